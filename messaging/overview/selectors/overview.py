"""The dashboard: is anything broken, what needs somebody, and how the hub itself does.

Counts come from the pairs (thousands) and from `TrafficHour`, never from the message store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from string import Formatter
from typing import TYPE_CHECKING

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    Min,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.choices import Direction, MessageState, TriggerState
from messaging.deliveries.selectors import in_doubt, triggers
from messaging.deliveries.selectors.in_doubt import DoubtGroup, OutboundGroup
from messaging.deliveries.selectors.triggers import TriggerRow
from messaging.journal.wording import span
from messaging.messages.selectors import finding, messages
from messaging.models import Coordination, Incident, Message, PipelineRun, WebhookEndpoint
from messaging.notifications import selectors as notifications
from messaging.onboarding import selectors as onboarding
from messaging.onboarding.selectors import Held
from messaging.overview.selectors import health, records
from messaging.overview.selectors.health import OVERDUE_SECONDS, Health
from messaging.overview.selectors.traffic import Traffic, traffic
from messaging.pairs.selectors import circuits, pairs
from messaging.pairs.selectors.circuits import CircuitRow
from messaging.pairs.selectors.screens import UNRESOLVED, PairRow, pair_rows
from messaging.protocol.pair_state import Flow
from messaging.transactions.selectors import coordinations
from partners import visibility
from partners.models import Credential
from rmhub.language import number

if TYPE_CHECKING:
    from messaging.pairs.selectors.pairs import RatedPair

NEEDS_YOU = 10
# What a message's state is while it is in its pair's queue or first in line and not given up.
ON_THE_WAY = (MessageState.QUEUED, MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)
_EXPIRING = timedelta(days=30)
# Documents do not flow, or are in doubt, until a person, or the partner, does something.
_STOPPED = ("suspended", "resync", "silent", "paused")
_TROUBLED = (*_STOPPED, "holding", "retrying")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the sentence; `mark` names a number in it (`broken-pairs`, `blocked-documents`, `oldest`)."""

    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all pairs. `heads`: how many of `waiting` are first in line of a suspended pair; they have failed."""

    pairs: int = 0
    waiting: int = 0
    blocked: int = 0
    heads: int = 0
    delivered: int = 0
    received: int = 0
    duplicates: int = 0
    rejected: int = 0

    @property
    def moving(self) -> int:
        """Of the queues of all pairs what is in a state of `ON_THE_WAY`."""
        return self.waiting - self.heads


@dataclass(frozen=True, slots=True)
class Status:
    """Is anything broken? `level` is "good", "watch" or "bad"; `oldest_at`: since when the longest is suspended."""

    level: str
    parts: tuple[Part, ...]
    totals: Totals
    by_state: dict[str, int]
    oldest_at: datetime | None
    open_incidents: int
    in_doubt: int
    triggers: int
    suspended_triggers: int
    health: Health
    at: datetime
    doubtful_transactions: int = 0

    @property
    def sentence(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def broken(self) -> int:
        """Pairs that are suspended."""
        return self.by_state["suspended"]


@dataclass(frozen=True, slots=True)
class Overview:
    """The dashboard. Lists are cut; the full ones have pages of their own."""

    status: Status
    traffic: Traffic
    troubled: list[PairRow] = field(default_factory=list)
    troubled_more: int = 0
    incidents: list[Incident] = field(default_factory=list)
    webhooks: list[WebhookEndpoint] = field(default_factory=list)
    ending: list[Held] = field(default_factory=list)
    recent: list[Message] = field(default_factory=list)
    stopped: list[TriggerRow] = field(default_factory=list)
    in_doubt_groups: list[DoubtGroup] = field(default_factory=list)
    outbound_in_doubt: list[OutboundGroup] = field(default_factory=list)
    transactions: list[Coordination] = field(default_factory=list)
    servers: list[CircuitRow] = field(default_factory=list)
    servers_more: int = 0
    last_run: PipelineRun | None = None

    @property
    def totals(self) -> Totals:
        return self.status.totals

    @property
    def health(self) -> Health:
        return self.status.health


def status(now: datetime) -> Status:
    """The sentence and its numbers. A fixed number of queries, however much is stored."""
    return _status(now, _stopped_triggers(now))


def overview(now: datetime) -> Overview:
    """Is anything broken, and where? A fixed number of queries, however much is stored."""
    stopped = _stopped_triggers(now)
    found = _status(now, stopped)
    servers = circuits.rows(circuits.circuits())
    return Overview(
        status=found,
        traffic=traffic(now),
        troubled=pair_rows(_troubled(now)[:NEEDS_YOU], now),
        troubled_more=max(0, sum(found.by_state[name] for name in _TROUBLED) - NEEDS_YOU),
        incidents=list(records.incidents(states=UNRESOLVED, parts=False).order_by("-number")[:6]),
        webhooks=list(_failing_webhooks()[:5]),
        ending=_ending(now),
        recent=_recent(),
        stopped=stopped,
        in_doubt_groups=in_doubt.groups(now)[:5],
        outbound_in_doubt=in_doubt.outbound_groups(now)[:5],
        transactions=coordinations.doubtful(5) if found.doubtful_transactions else [],
        servers=servers[:5],
        servers_more=max(0, len(servers) - 5),
        last_run=PipelineRun.objects.order_by("-id").first(),
    )


def _status(now: datetime, stopped: list[TriggerRow]) -> Status:
    states = list(
        pairs.pairs()
        .order_by()
        .values("state")
        .annotate(
            number=Count("pk"),
            queued_sum=Sum("queued"),
            under_way=Count("in_flight") + Sum("out_now"),
            heads=Count("in_flight", filter=Q(flow=Flow.SUSPENDED)),
            oldest=Min("changed_at"),
            delivered=Sum("done", filter=Q(direction=Direction.OUT), default=0),
            received=Sum("done", filter=Q(direction=Direction.IN), default=0),
            duplicates_sum=Sum("duplicates"),
            rejected_sum=Sum("rejected"),
            marked=Count("pk", filter=Q(resync_since__isnull=False)),
        )
    )
    by_state = dict.fromkeys(pairs.STATE_NAMES, 0) | {row["state"]: row["number"] for row in states}
    held = [row for row in states if row["state"] in ("suspended", "paused", "disabled")]
    totals = Totals(
        pairs=sum(row["number"] for row in states),
        waiting=sum(row["queued_sum"] + row["under_way"] for row in states),
        blocked=sum(row["queued_sum"] + row["under_way"] for row in held),
        heads=sum(row["heads"] for row in states),
        delivered=sum(row["delivered"] for row in states),
        received=sum(row["received"] for row in states),
        duplicates=sum(row["duplicates_sum"] for row in states),
        rejected=sum(row["rejected_sum"] for row in states),
    )
    by_trigger = triggers.counts_by_state()
    found = Status(
        level="",
        parts=(),
        totals=totals,
        by_state=by_state,
        oldest_at=min((row["oldest"] for row in states if row["state"] == "suspended" and row["oldest"]), default=None),
        open_incidents=records.incidents(states=UNRESOLVED, parts=False).count(),
        in_doubt=in_doubt.counts(now).all,
        triggers=sum(by_trigger.values()),
        suspended_triggers=by_trigger[TriggerState.SUSPENDED],
        health=health.health(),
        at=now,
        doubtful_transactions=coordinations.doubtful_count(),
    )
    level, parts = _verdict(found, stopped, sum(row["marked"] for row in states))
    return replace(found, level=level, parts=parts)


def _recent() -> list[Message]:
    """The newest messages. For a few partners alone they may lie far apart, so that search has a time limit."""
    if visibility.visible() is None:
        return list(messages.with_names(Message.objects.order_by("-id"))[:8])
    try:
        return finding.message_page(finding.MessageFilters(), limit=8).rows
    except messages.TooBroad:
        return []


def _stopped_triggers(now: datetime) -> list[TriggerRow]:
    found = triggers.triggers(state=(TriggerState.SUSPENDED,)).order_by("changed_at", "name")[:NEEDS_YOU]
    return triggers.trigger_rows(found, now)


def _troubled(now: datetime) -> QuerySet[RatedPair]:
    """Those that need a person before those that fix themselves; then by documents held up x how long."""
    since = Case(
        When(state="resync", then=F("resync_since")),
        When(state="silent", then=F("silent_since")),
        default=Coalesce("changed_at", "created_at"),
        output_field=DateTimeField(),
    )
    age = Func(
        ExpressionWrapper(Value(now) - since, output_field=DurationField()),
        template="extract(epoch FROM %(expressions)s)",
        output_field=FloatField(),
    )
    under_way = Case(When(in_flight__isnull=False, then=1), default=0)
    fixes = Case(When(state__in=_STOPPED, then=0), default=1)
    found = pairs.pairs(states=_TROUBLED).annotate(
        fixes=fixes, weight=ExpressionWrapper((F("queued") + F("out_now") + under_way + 1) * age, FloatField())
    )
    return found.order_by("fixes", "-weight", "code")


def _verdict(found: Status, stopped: list[TriggerRow], unsure: int) -> tuple[str, tuple[Part, ...]]:
    """The one sentence, and how bad it is. `unsure`: pairs that need resync, whatever their state is."""
    by_state, totals = found.by_state, found.totals
    suspended = _suspended(found, stopped)
    hub = next((text for text in _of_hub(found.health) if text), "")
    if hub:
        return "bad", (Part(hub), *((Part(" "), *suspended) if suspended else ()))
    if suspended:
        return "bad", suspended
    if found.suspended_triggers:
        return "bad", _plain(_stopped(found.suspended_triggers, stopped))
    trouble = [
        words.format(count=number(count))
        for count, words in (
            (unsure, _("{count} to be compared after a loss of memory")),
            (by_state["silent"], _("{count} silent")),
            (by_state["retrying"], _("{count} retrying")),
            (by_state["holding"], _("{count} held by the partner")),
            (by_state["paused"], _("{count} paused")),
        )
        if count
    ]
    if trouble:
        to_go = ngettext("{count} document to go.", "{count} documents to go.", totals.waiting)
        said = _("No pair is suspended; {states}.").format(states=", ".join(trouble))
        return "watch", _plain(f"{said} {to_go.format(count=number(totals.waiting))}")
    flow = _flow(totals.pairs)
    if count := found.in_doubt:
        said = ngettext(
            "{count} document in doubt: a person decides.", "{count} documents in doubt: a person decides.", count
        )
        return "watch", _plain(f"{flow}; {said.format(count=number(count))}")
    if count := found.doubtful_transactions:
        said = ngettext(
            "{count} transaction in doubt: look at it.", "{count} transactions in doubt: look at them.", count
        )
        return "watch", _plain(f"{flow}; {said.format(count=number(count))}")
    if count := found.open_incidents:
        said = ngettext("{count} incident to look at.", "{count} incidents to look at.", count)
        return "watch", _plain(f"{flow}; {said.format(count=number(count))}")
    if not totals.pairs:
        return "good", _plain(_("No pair yet: pairs appear when an agreement is active."))
    said = ngettext("{count} document on the way.", "{count} documents on the way.", totals.waiting)
    return "good", _plain(f"{flow}; {said.format(count=number(totals.waiting))}")


def _of_hub(state: Health) -> tuple[str, ...]:
    """What is wrong with the hub itself, the worst first; "" for what is not."""
    said = {part.name: part.detail for part in state.troubled}
    behind = _("The hub is behind: something was due {time} ago. Check workers and beat.").format(
        time=span(state.overdue_seconds)
    )
    broker = _(
        "The broker does not answer: workers are not woken, and find what is due by themselves. Nothing is lost."
    )
    return (
        "" if state.store else said.get("store", _("The payload store accepts no documents.")),
        said.get("workers", "") if state.nobody_works else "",
        behind if state.overdue_seconds > OVERDUE_SECONDS else "",
        "" if state.broker else broker,
        said.get("database", ""),
        said.get("workers", ""),
        said.get("store", ""),
    )


def _suspended(found: Status, stopped: list[TriggerRow]) -> tuple[Part, ...]:
    """How many pairs, for how long, and what they hold up; nothing when there are none."""
    count, blocked = found.broken, found.totals.blocked
    if not count:
        return ()
    longest = found.oldest_at is not None
    pairs_said = (
        ngettext(
            "{count} pair suspended, the longest for {time}", "{count} pairs suspended, the longest for {time}", count
        )
        if longest
        else ngettext("{count} pair suspended", "{count} pairs suspended", count)
    )
    since = span((found.at - found.oldest_at).total_seconds()) if found.oldest_at is not None else ""
    held = ngettext("{count} document held up.", "{count} documents held up.", blocked)
    more = _stopped(found.suspended_triggers, stopped)
    return (
        *_parts(pairs_said, count=(number(count), "broken-pairs"), time=(since, "oldest")),
        Part("; "),
        *_parts(held, count=(number(blocked), "blocked-documents")),
        *([Part(f" {more}")] if more else []),
    )


def _parts(text: str, **marked: tuple[str, str]) -> Iterator[Part]:
    """A text whose placeholders are parts of their own: name=(text, mark)."""
    for plain, name, _form, _conversion in Formatter().parse(text):
        if plain:
            yield Part(plain)
        if name:
            yield Part(*marked[name])


def _plain(text: str) -> tuple[Part, ...]:
    return (Part(text),)


def _flow(count: int) -> str:
    return ngettext("The one pair flows", "All {count} pairs flow", count).format(count=number(count))


def _stopped(count: int, stopped: list[TriggerRow]) -> str:
    """What suspended triggers hold up, as a sentence; "" without any."""
    if not count:
        return ""
    held = sum(row.backlog.held for row in stopped)
    if count == 1:
        said = ngettext(
            "Trigger {name} is suspended; {count} document waits for it.",
            "Trigger {name} is suspended; {count} documents wait for it.",
            held,
        )
        return said.format(name=stopped[0].trigger.name, count=number(held))
    said = ngettext(
        "{triggers} triggers are suspended; {count} document waits for them.",
        "{triggers} triggers are suspended; {count} documents wait for them.",
        held,
    )
    return said.format(triggers=number(count), count=number(held))


def _failing_webhooks() -> QuerySet[WebhookEndpoint]:
    if visibility.visible() is not None:
        return WebhookEndpoint.objects.none()  # they carry the events of all partners
    failing = Q(failing_since__isnull=False) | Q(enabled=False) & ~Q(disabled_reason="")
    return notifications.webhook_endpoints().filter(failing).order_by("id")


def _ending(now: datetime) -> list[Held]:
    """What ends within 30 days, or has ended: certificates, and credentials without a successor that lasts longer."""
    found = onboarding.certificates(within_days=_EXPIRING.days)
    owners = {one.party.pk for one in found if one.credential is not None}
    later = Credential.objects.filter(party__in=owners, revoked_at__isnull=True).filter(
        Q(valid_until__isnull=True) | Q(valid_until__gte=now + _EXPIRING)
    )
    covered = set(later.values_list("party", "direction")) if owners else set()
    kept = [
        one
        for one in found
        if one.credential is None
        or ((one.party.pk, one.credential.direction) not in covered and one.ends_at > now - _EXPIRING)
    ]
    return kept[:5]
