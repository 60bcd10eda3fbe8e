"""What the console's pages show, put together: the dashboard, rows of pairs, and all that a pair's page holds.

The same facts as the API's, from the same tables; counts come from the pairs (thousands), never from the message store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count, Min, Q, QuerySet, Sum

from messaging.choices import PAIR_LOOKS, Direction, IncidentState, Look, TriggerState
from messaging.models import (
    AuditEntry,
    BulkJob,
    Delivery,
    Event,
    Incident,
    Message,
    Pair,
    PartnerLog,
    PipelineRun,
    Route,
    Transmission,
    Trigger,
    WebhookEndpoint,
)
from messaging.profiles import carries_requests, terms_in_force
from messaging.selectors import circuits, doubts, events, health, messages, pairs, records, triggers
from messaging.selectors.circuits import CircuitRow
from messaging.selectors.diagnosis import diagnose, verb_states
from messaging.selectors.diagnosis_parts import Diagnosis, VerbState
from messaging.selectors.doubts import DoubtGroup, OutboundGroup
from messaging.selectors.health import Health
from messaging.selectors.streams import StreamState, flight, stream_state
from messaging.selectors.triggers import TriggerRow
from messaging.selectors.wording import span
from partners import registry
from partners.models import Credential, Pickup
from partners.terms import Terms
from rmhub import clock

_EXPIRING = timedelta(days=30)
# States in which documents do not flow until somebody, or the partner, does something.
TROUBLED = ("suspended", "holding", "retrying", "paused")
UNRESOLVED = (IncidentState.OPEN, IncidentState.ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class NavCounts:
    """Counters of the navigation: only what somebody must act on."""

    suspended: int
    incidents: int
    triggers: int
    in_doubt: int


@dataclass(frozen=True, slots=True)
class PairRow:
    """A pair with what is the matter with it."""

    pair: Pair
    look: Look
    diagnosis: Diagnosis

    @property
    def head(self) -> Message | None:
        return self.pair.in_flight


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all pairs."""

    pairs: int = 0
    waiting: int = 0
    blocked: int = 0
    delivered: int = 0
    received: int = 0
    duplicates: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """The dashboard. `level` is "good", "watch" or "bad"."""

    level: str
    sentence: str
    totals: Totals
    by_state: dict[str, int]
    health: Health
    troubled: list[PairRow] = field(default_factory=list)
    troubled_more: int = 0
    incidents: list[Incident] = field(default_factory=list)
    open_incidents: int = 0
    webhooks: list[WebhookEndpoint] = field(default_factory=list)
    expiring: list[Credential] = field(default_factory=list)
    recent: list[Message] = field(default_factory=list)
    triggers: int = 0
    stopped: list[TriggerRow] = field(default_factory=list)
    in_doubt: int = 0
    doubts: list[DoubtGroup] = field(default_factory=list)
    outbound_doubts: list[OutboundGroup] = field(default_factory=list)
    servers: list[CircuitRow] = field(default_factory=list)
    servers_more: int = 0


@dataclass(frozen=True, slots=True)
class PairScreen:
    """All of a pair's page. Lists are cut; the full ones have pages of their own.

    `requests`: its messages are repeatable requests, and `flying` those that are on the way, the first ones first; or
    those of its stream, if it has `streams`.
    """

    pair: Pair
    look: Look
    diagnosis: Diagnosis
    head: Message | None
    terms: Terms | None
    verbs: list[VerbState]
    queue: list[Message]
    attempts: list[Transmission]
    recent: list[Message]
    events: list[Event]
    incidents: list[Incident]
    audit: list[AuditEntry]
    requests: bool = False
    flying: list[Message] = field(default_factory=list)
    streams: StreamState = field(default_factory=StreamState)


def nav_counts() -> NavCounts:
    """One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM messaging_pair WHERE flow = 'suspended'),"  # noqa: S608  (constants)
            " (SELECT count(*) FROM messaging_incident WHERE state <> 'resolved'),"
            f" (SELECT count(*) FROM messaging_trigger WHERE state = 'suspended'), {doubts.COUNTS}",
            doubts.count_parameters(clock.now()),
        )
        suspended, incidents, stopped, inbound, outbound = cursor.fetchone()
    return NavCounts(suspended, incidents, stopped, inbound + outbound)


def pair_rows(found: Iterable[Pair], now: datetime) -> list[PairRow]:
    """Rows for pairs that `selectors.pairs.pairs` read; no query for each."""
    rows = []
    for pair in found:
        look = PAIR_LOOKS[pairs.state_of(pair)]
        rows.append(PairRow(pair, look, diagnose(pair, pair.in_flight, terms_of(pair), now)))
    return rows


def terms_of(pair: Pair) -> Terms | None:
    """The terms of the message in flight, else those in force for the pair's URIs; None when there are none."""
    if pair.in_flight is not None:
        return registry.current().version(pair.in_flight.agreement_version_id)
    return terms_in_force(pair)


def counts_by_state() -> dict[str, int]:
    """How many pairs are in each state, in the order of severity. One query."""
    found = dict(pairs.pairs().order_by().values_list("state").annotate(number=Count("pk")))
    return {state: found.get(state, 0) for state in pairs.STATE_NAMES}


def overview(now: datetime) -> Overview:
    """Is anything broken, and where? A fixed number of queries, however much is stored."""
    states = list(
        pairs.pairs()
        .order_by()
        .values("state")
        .annotate(
            number=Count("pk"),
            queued_sum=Sum("queued"),
            flying=Count("in_flight") + Sum("out_now"),
            oldest=Min("changed_at"),
            delivered=Sum("done", filter=Q(direction=Direction.OUT), default=0),
            received=Sum("done", filter=Q(direction=Direction.IN), default=0),
            duplicates_sum=Sum("duplicates"),
            rejected_sum=Sum("rejected"),
        )
    )
    by_state = dict.fromkeys(pairs.STATE_NAMES, 0) | {row["state"]: row["number"] for row in states}
    held = [row for row in states if row["state"] in ("suspended", "paused", "disabled")]
    totals = Totals(
        pairs=sum(row["number"] for row in states),
        waiting=sum(row["queued_sum"] + row["flying"] for row in states),
        blocked=sum(row["queued_sum"] + row["flying"] for row in held),
        delivered=sum(row["delivered"] for row in states),
        received=sum(row["received"] for row in states),
        duplicates=sum(row["duplicates_sum"] for row in states),
        rejected=sum(row["rejected_sum"] for row in states),
    )
    oldest = min((row["oldest"] for row in states if row["state"] == "suspended" and row["oldest"]), default=None)
    state = health.health()
    unresolved = records.incidents(states=UNRESOLVED)
    open_incidents = unresolved.count()
    by_trigger = triggers.counts_by_state()
    stopped = triggers.triggers(states=(TriggerState.SUSPENDED,)).order_by("changed_at", "name")[:10]
    stopped_rows = triggers.trigger_rows(stopped, now)
    in_doubt = doubts.counts(now).all
    matters = _Matters(open_incidents, by_trigger[TriggerState.SUSPENDED], stopped_rows, in_doubt)
    level, sentence = _verdict(by_state, totals, oldest, state, matters, now)
    servers = circuits.rows(circuits.circuits())
    troubled = pairs.pairs(states=TROUBLED).order_by("severity", "-queued", "code")[:10]
    return Overview(
        level=level,
        sentence=sentence,
        totals=totals,
        by_state=by_state,
        health=state,
        troubled=pair_rows(troubled, now),
        troubled_more=max(0, sum(by_state[name] for name in TROUBLED) - 10),
        incidents=list(unresolved.order_by("-number")[:6]),
        open_incidents=open_incidents,
        webhooks=list(_failing_webhooks()[:5]),
        expiring=_expiring(now),
        recent=list(messages.with_names(Message.objects.order_by("-id"))[:8]),
        triggers=sum(by_trigger.values()),
        stopped=stopped_rows,
        in_doubt=in_doubt,
        doubts=doubts.groups(now)[:5],
        outbound_doubts=doubts.outbound_groups(now)[:5],
        servers=servers[:5],
        servers_more=max(0, len(servers) - 5),
    )


def pair_screen(pair: Pair, now: datetime) -> PairScreen:
    """Everything about one pair that `selectors.pairs.pair` read. A fixed number of queries."""
    inbound = pair.direction == Direction.IN
    terms = terms_of(pair)
    audit = audit_of(pair)
    queue = [] if inbound else list(pairs.queue(pair.pk)[:10])
    head = pair.in_flight or (queue[0] if queue and pair.flow == "suspended" else None)
    requests = carries_requests(pair, terms)
    streams = stream_state(pair, terms)
    if streams.outgoing is not None:
        flying = list(flight(pair.pk)[:10])
    else:
        flying = list(pairs.in_flight(pair.pk)[:10]) if pair.out_now else []
    repeat_at = pairs.next_repeat(pair.pk) if pair.out_now else None
    return PairScreen(
        pair=pair,
        look=PAIR_LOOKS[pairs.state_of(pair)],
        diagnosis=diagnose(pair, head, terms, now, paused=_paused_by(audit), repeat_at=repeat_at),
        head=head,
        terms=terms,
        verbs=verb_states(pair, terms),
        queue=queue,
        attempts=[] if inbound else list(pairs.transmissions(pair.pk)[:15]),
        recent=list(messages.with_names(Message.objects.filter(pair=pair).order_by("-id"))[:20]) if inbound else [],
        events=list(events.of_pair(pair.pk)[:15]),
        incidents=list(records.incidents(pair_id=pair.pk).order_by("-number")[:8]),
        audit=audit,
        requests=requests,
        flying=flying,
        streams=streams,
    )


def _paused_by(audit: list[AuditEntry]) -> tuple[str, str] | None:
    entry = next((entry for entry in audit if entry.verb == "pair.pause"), None)
    return (entry.actor, entry.reason) if entry is not None else None


def audit_of(
    target: Pair | Message | Incident | Trigger | Delivery | BulkJob | PipelineRun | PartnerLog | Route | Pickup,
    limit: int = 15,
) -> list[AuditEntry]:
    """What people did to one object, newest first."""
    kind = target._meta.model_name or ""
    return list(records.audit_entries(object_type=kind, object_id=target.public_id).order_by("-id")[:limit])


@dataclass(frozen=True, slots=True)
class _Matters:
    """What needs people beside pairs."""

    incidents: int
    suspended_triggers: int
    stopped: list[TriggerRow]
    in_doubt: int


def _verdict(
    by_state: dict[str, int],
    totals: Totals,
    oldest: datetime | None,
    state: Health,
    matters: _Matters,
    now: datetime,
) -> tuple[str, str]:
    """The one sentence, and how bad it is."""
    suspended = by_state["suspended"]
    if not state.broker:
        return "bad", "The broker does not answer, so workers are not woken and nothing is sent. Nothing is lost."
    if not state.ok:
        return "bad", f"The hub is behind: something was due {span(state.overdue_seconds)} ago. Check workers and beat."
    if suspended:
        age = f", the longest for {span((now - oldest).total_seconds())}" if oldest is not None else ""
        held = f"{_pairs(suspended)} suspended{age}; {_documents(totals.blocked)} held up."
        return "bad", f"{held} {_stopped(matters)}".strip()
    if matters.suspended_triggers:
        return "bad", _stopped(matters)
    trouble = [
        f"{by_state[name]} {words}"
        for name, words in (("retrying", "retrying"), ("holding", "held by the partner"), ("paused", "paused"))
        if by_state[name]
    ]
    if trouble:
        return "watch", f"No pair is suspended; {', '.join(trouble)}. {_documents(totals.waiting)} to go."
    if matters.in_doubt:
        return "watch", f"{_flow(totals.pairs)}; {_documents(matters.in_doubt)} in doubt: a person decides."
    if matters.incidents:
        count = matters.incidents
        return "watch", f"{_flow(totals.pairs)}; {count} incident{'' if count == 1 else 's'} to look at."
    if not totals.pairs:
        return "good", "No pair yet: pairs appear when an agreement is active."
    return "good", f"{_flow(totals.pairs)}; {_documents(totals.waiting)} on the way."


def _flow(count: int) -> str:
    return "The one pair flows" if count == 1 else f"All {count:,} pairs flow"


def _stopped(matters: _Matters) -> str:
    """What suspended triggers hold up, as a sentence; "" without any."""
    count = matters.suspended_triggers
    if not count:
        return ""
    held = sum(row.backlog.held for row in matters.stopped)
    named = matters.stopped[0].trigger.name if count == 1 else f"{count:,} triggers"
    waits = f"{_documents(held)} wait{'s' if held == 1 else ''} for " + ("it" if count == 1 else "them")
    return f"{'Trigger ' if count == 1 else ''}{named} {'is' if count == 1 else 'are'} suspended; {waits}."


def _pairs(count: int) -> str:
    return f"{count:,} pair{'' if count == 1 else 's'}"


def _documents(count: int) -> str:
    return f"{count:,} document{'' if count == 1 else 's'}"


def _failing_webhooks() -> QuerySet[WebhookEndpoint]:
    failing = Q(failing_since__isnull=False) | Q(enabled=False) & ~Q(disabled_reason="")
    return records.webhook_endpoints().filter(failing).order_by("id")


def _expiring(now: datetime) -> list[Credential]:
    """Credentials that end within 30 days and have no successor that is valid for longer."""
    soon = Credential.objects.select_related("party").defer("secret_hash", "secret_encrypted")
    soon = soon.filter(revoked_at__isnull=True, valid_until__gt=now, valid_until__lt=now + _EXPIRING)
    later = Credential.objects.filter(revoked_at__isnull=True).filter(
        Q(valid_until__isnull=True) | Q(valid_until__gte=now + _EXPIRING)
    )
    covered = set(later.filter(party__in=soon.values("party")).values_list("party", "direction"))
    alone = [one for one in soon.order_by("valid_until")[:20] if (one.party_id, one.direction) not in covered]
    return alone[:5]
