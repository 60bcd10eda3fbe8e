"""Triggers as people look at them: what waits, what is the matter, what happens next. Counts stop at `MOST`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection
from django.db.models import Case, Count, IntegerField, Max, Prefetch, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging import causes
from messaging.access.selectors import reach
from messaging.causes import Cause
from messaging.choices import TRIGGER_LOOKS, Consult, JoinType, Look, ServiceKind, TriggerState
from messaging.exceptions import NotFound
from messaging.journal.wording import span
from messaging.models import AuditEntry, Trigger
from messaging.overview.selectors.health import OVERDUE_SECONDS
from messaging.pairs.selectors.diagnosis_parts import Diagnosis, workers_behind
from partners import visibility
from partners.choices import ServiceDirection, VersionState
from partners.models import AgreementService
from rmhub.language import number

# A queue may be long: nobody reads an exact number beyond this, and counting further would cost.
MOST = 10_000
# Suspended for these, it is as it was until a person says so: no document that came through since disproves it.
_ONLY_PEOPLE_KNOW = frozenset({"suspended_by_user", "service_error"})


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a trigger has to do, and what people have to look at. `oldest_at`: when the oldest that waits was stored."""

    waiting: int = 0
    running: int = 0
    joined: int = 0
    in_doubt: int = 0
    failed: int = 0
    oldest_at: datetime | None = None
    due_at: datetime | None = None  # when the first that waits was, or is, due

    @property
    def held(self) -> int:
        """Documents that do not go on while the trigger is suspended or disabled."""
        return self.waiting + self.running


def diagnose(trigger: Trigger, backlog: Backlog, now: datetime, *, changed_at: datetime | None = None) -> Diagnosis:
    """What is the matter with a trigger, from its row and its backlog; no queries of its own.

    `changed_at`: when a person last entered something else. What is newer than the suspension decides what is said.
    """
    since = span((now - trigger.changed_at).total_seconds()) if trigger.changed_at is not None else ""
    if trigger.state == TriggerState.SUSPENDED:
        return _suspended(trigger, backlog, since, now, changed_at)
    if trigger.state == TriggerState.DISABLED:
        outlook = ngettext(
            "{count} document waits until it is enabled.", "{count} documents wait until it is enabled.", backlog.held
        )
        return Diagnosis(
            trigger.state,
            _("Disabled for {span}.").format(span=since) if since else _("Disabled."),
            why=_("Documents that come now make no delivery to it."),
            outlook=_waits(backlog, outlook),
            advice=_("Enable it to take documents again; those that came meanwhile are not handed over later."),
            short=_("Takes no documents"),
        )
    return _active(trigger, backlog, now)


def _suspended(trigger: Trigger, backlog: Backlog, since: str, now: datetime, changed_at: datetime | None) -> Diagnosis:
    cause = causes.lookup(trigger.cause)
    why, advice = _newer(trigger, cause, now, changed_at) or (str(cause.sentence), str(cause.action))
    asked = trigger.monitor_due_at if trigger.monitor != Consult.NONE else None
    if asked is not None:
        outlook = _("Its resource monitor is asked again, and resumes it when it says that the resources are there.")
        late = (now - asked).total_seconds()
        if late > OVERDUE_SECONDS:
            outlook, advice = workers_behind(late)
    else:
        outlook = _("Nothing is handed over until somebody resumes it.")
    waiting = ngettext(
        "{count} document waits; those that come now wait behind them.",
        "{count} documents wait; those that come now wait behind them.",
        backlog.held,
    )
    return Diagnosis(
        trigger.state,
        _("Suspended for {span}.").format(span=since) if since else _("Suspended."),
        why=why,
        outlook=f"{_waits(backlog, waiting)} {outlook}",
        advice=advice,
        short=str(cause.label),
        cause=cause,
        next_at=asked,
    )


def _newer(trigger: Trigger, cause: Cause, now: datetime, changed_at: datetime | None) -> tuple[str, str] | None:
    """What is known since the suspension, and what to do then; None when it is still as its cause says, or when only a
    person can say so.
    """
    suspended = trigger.changed_at
    if suspended is None or trigger.cause in _ONLY_PEOPLE_KNOW:
        return None
    before = _("It was suspended for “{cause}”.").format(cause=cause.label)
    worked = trigger.last_success_at
    if worked is not None and suspended < worked <= now and (changed_at is None or changed_at <= worked):
        said = _("A document was processed {span} ago.").format(span=span((now - worked).total_seconds()))
        return f"{said} {before}", _("Resume it.")
    if changed_at is not None and suspended < changed_at <= now:
        ago = span((now - changed_at).total_seconds())
        said = _("Its settings were changed {span} ago, and nothing was handed over since.").format(span=ago)
        return f"{said} {before}", _("Resume it to see whether it works now.")
    return None


def _active(trigger: Trigger, backlog: Backlog, now: datetime) -> Diagnosis:
    if not backlog.held:
        return Diagnosis(trigger.state, _("Nothing waits."), outlook=_people(backlog), short=_("Nothing waits"))
    parts = []
    if backlog.running:
        taken = _("{count} taken") if trigger.kind == ServiceKind.PULL else _("{count} in progress")
        parts.append(taken.format(count=_number(backlog.running)))
    if backlog.waiting:
        parts.append(_("{count} waiting").format(count=_number(backlog.waiting)))
    short = ", ".join(parts)
    why, advice = [], ""
    if backlog.waiting and backlog.oldest_at is not None:
        waited = span((now - backlog.oldest_at).total_seconds())
        why.append(_("The oldest has waited for {span}.").format(span=waited))
    if trigger.failing_since is not None:
        ago = span((now - trigger.failing_since).total_seconds())
        why.append(_("Handing over failed {span} ago, and has not succeeded since.").format(span=ago))
    elif late := _late(trigger, backlog, now):
        why.append(_("It was due {span} ago, and no worker has taken it up.").format(span=span(late)))
        advice = workers_behind(late)[1]
    return Diagnosis(
        trigger.state,
        f"{short[:1].upper()}{short[1:]}.",
        " ".join(why),
        outlook=_people(backlog),
        advice=advice,
        short=short,
    )


def _late(trigger: Trigger, backlog: Backlog, now: datetime) -> float:
    """Seconds by which the hub is late with what waits; 0 where its turn may not have come, or a consumer takes it."""
    if trigger.kind == ServiceKind.PULL or backlog.running or backlog.due_at is None:
        return 0
    late = (now - max(backlog.due_at, trigger.changed_at or backlog.due_at)).total_seconds()
    return late if late > OVERDUE_SECONDS else 0


def _people(backlog: Backlog) -> str:
    """What no machine goes on with."""
    counts = {"in_doubt": _number(backlog.in_doubt), "failed": _number(backlog.failed)}
    if backlog.in_doubt and backlog.failed:
        return _("{in_doubt} in doubt and {failed} failed: a person decides.").format(**counts)
    if backlog.in_doubt:
        return _("{in_doubt} in doubt: a person decides.").format(**counts)
    return _("{failed} failed: a person decides.").format(**counts) if backlog.failed else ""


def _waits(backlog: Backlog, how: str) -> str:
    """`how`: with a place for the count, of this many."""
    return how.format(count=_number(backlog.held)) if backlog.held else _("Nothing waits.")


def _number(count: int) -> str:
    return number(count) if count < MOST else _("{count} or more").format(count=number(MOST))


# What a person enters that may fix what a trigger was suspended for.
_ENTERED = ("trigger.update", "trigger.rotate_secret")
_STATES = (TriggerState.SUSPENDED, TriggerState.ACTIVE, TriggerState.DISABLED)


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A trigger with what is the matter with it."""

    trigger: Trigger
    look: Look
    backlog: Backlog
    diagnosis: Diagnosis


_NEVER = Value(datetime(1970, 1, 1, tzinfo=UTC))
# By what a URL calls them. Triggers are few: no index serves the last.
ORDERS = {
    "state": ("severity", "name"),
    "-state": ("-severity", "-name"),
    "name": ("name",),
    "-name": ("-name",),
    "-last_success": ("-succeeded_at", "-name"),
    "last_success": ("succeeded_at", "name"),
}


def triggers(
    *,
    state: tuple[str, ...] = (),
    kind: str = "",
    party: uuid.UUID | None = None,
    concerns: uuid.UUID | None = None,
    q: str = "",
) -> QuerySet[Trigger]:
    """Triggers without their secrets, each with `severity` (0 = suspended) and `succeeded_at`. Not ordered: `ORDERS`.

    `party`: those that name the partner; `concerns`: those that take documents of the partner. `q` is part of the name
    and in the service's address.
    """
    found = (
        visibility.shared(
            Trigger.objects.select_related("party", "agreement__partner", "member_of", "atomic_agreement"),
            *reach.TRIGGER,
        )
        .defer("secret_encrypted", "member_of__secret_encrypted")
        .prefetch_related(Prefetch("members", Trigger.objects.defer("secret_encrypted").order_by("name")))
        .annotate(
            severity=Case(
                When(state=TriggerState.SUSPENDED, then=Value(0)),
                When(state=TriggerState.ACTIVE, then=Value(1)),
                default=Value(2),
                output_field=IntegerField(),
            ),
            succeeded_at=Coalesce("last_success_at", _NEVER),
        )
    )
    if state:
        found = found.filter(state__in=state)
    if kind:
        found = found.filter(kind=kind)
    if party is not None:
        found = found.filter(party=party)
    if concerns is not None:
        one = Q(party=concerns) | Q(agreement__partner=concerns)
        found = found.filter(one | Q(party=None, agreement=None, member_of=None))
    if q:
        found = found.filter(Q(name__icontains=q) | Q(url__icontains=q) | Q(callable_name__icontains=q))
    return found


def trigger(reference: str | uuid.UUID) -> Trigger:
    """One trigger without its secret, by id (`trg_...`) or name. Raises NotFound."""
    found = triggers().filter(reach.named("trg", reference, "name")).first()
    if found is None:
        raise NotFound(_("There is no trigger {name}.").format(name=reference))
    return found


def wholes() -> QuerySet[Trigger]:
    """Triggers that may have members, by name."""
    return triggers(kind=ServiceKind.ATOMIC).order_by("name")


def counts_by_state() -> dict[str, int]:
    """How many triggers are in each state. Triggers are few."""
    if visibility.visible() is not None:
        found = dict(triggers().order_by().values_list("state").annotate(number=Count("pk")))
        return {state.value: found.get(state.value, 0) for state in _STATES}
    counts = dict.fromkeys([state.value for state in _STATES], 0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT state, count(*) FROM messaging_trigger GROUP BY state")
        counts.update(dict(cursor.fetchall()))
    return counts


def backlogs(trigger_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Backlog]:
    """What lies with these triggers, in one query over the partial indexes of what is not done."""
    if not trigger_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_BACKLOGS, [MOST, MOST, MOST, MOST, MOST, list(trigger_ids)])
        return {row[0]: Backlog(*row[1:]) for row in cursor.fetchall()}


_BACKLOGS = """
SELECT t.id,
    (SELECT count(*) FROM (SELECT 1 FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'waiting' LIMIT %s) AS counted),
    (SELECT count(*) FROM (SELECT 1 FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'running' LIMIT %s) AS counted),
    (SELECT count(*) FROM (SELECT 1 FROM messaging_join j JOIN messaging_delivery d ON d.part_of_id = j.id
        WHERE j.trigger_id = t.id AND j.state = 'open' AND d.state = 'joined' LIMIT %s) AS counted),
    (SELECT count(*) FROM (SELECT 1 FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'in_doubt' LIMIT %s) AS counted),
    (SELECT count(*) FROM (SELECT 1 FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'failed' AND d.state IN ('in_doubt', 'failed') LIMIT %s) AS counted),
    (SELECT d.created_at FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'waiting' ORDER BY d.due_at LIMIT 1),
    (SELECT d.due_at FROM messaging_delivery d
        WHERE d.trigger_id = t.id AND d.state = 'waiting' ORDER BY d.due_at LIMIT 1)
FROM unnest(%s::uuid[]) AS t(id)
"""


def trigger_rows(found: Iterable[Trigger], now: datetime) -> list[TriggerRow]:
    """Rows for triggers that `triggers()` read; one query for all of them, and one for those that are suspended."""
    rows = list(found)
    known = backlogs([row.pk for row in rows])
    changed = _changes([row for row in rows if row.state == TriggerState.SUSPENDED])
    made = []
    for row in rows:
        backlog = known.get(row.pk, Backlog())
        said = diagnose(row, backlog, now, changed_at=changed.get(row.public_id))
        made.append(TriggerRow(row, TRIGGER_LOOKS[row.state], backlog, said))
    return made


def _changes(suspended: Sequence[Trigger]) -> dict[str, datetime]:
    """When a person last entered something else for each of these, by its id."""
    if not suspended:
        return {}
    entries = AuditEntry.objects.filter(
        object_type="trigger", object_id__in=[row.public_id for row in suspended], verb__in=_ENTERED
    )
    return dict(entries.order_by().values_list("object_id").annotate(at=Max("at")))


def known_documents() -> list[tuple[str, str]]:
    """(service, action) that partners may send under the agreements in force: what a trigger can be made for."""
    found = AgreementService.objects.filter(version__state=VersionState.ACTIVE).exclude(direction=ServiceDirection.SEND)
    return list(found.order_by("service", "action").values_list("service", "action").distinct()[:50])


# --- what a trigger does, in words ---


def subscription(trigger: Trigger) -> str:
    """Which documents it takes, e.g. `Orders / New of agreement TPA-7 with Globex`."""
    if trigger.member_of is not None:
        return _("What {trigger} takes, together with its other members").format(trigger=trigger.member_of.name)
    named = [f"{one['service']} / {one['action']}" for one in trigger.documents]
    if len(named) > 3:
        more = ngettext("{count} more", "{count} more", len(named) - 3).format(count=number(len(named) - 3))
        named = [*named[:3], more]
    what = ", ".join(named) or _("Every document")
    if trigger.agreement is not None:
        return _("{documents} of agreement {agreement} with {partner}").format(
            documents=what, agreement=trigger.agreement, partner=trigger.agreement.partner
        )
    if trigger.party is not None:
        return _("{documents} from {partner}").format(documents=what, partner=trigger.party)
    return _("{documents} from every partner").format(documents=what)


def target(trigger: Trigger) -> str:
    """Where documents go: the URL, the callable's name, or that they are fetched."""
    return {
        ServiceKind.HTTP.value: trigger.url,
        ServiceKind.CALLABLE.value: trigger.callable_name,
        ServiceKind.PULL.value: _("pull queue"),
        ServiceKind.ATOMIC.value: _("its members, all of them or none"),
    }[trigger.kind]


def policy(trigger: Trigger) -> list[str]:
    """Its exactly-once properties as sentences, in the order of spec 4."""
    if trigger.member_of is not None:
        return _membership(trigger)
    said = []
    if trigger.kind == ServiceKind.ATOMIC:
        within = span(trigger.timeout)
        said.append(
            _("Hands a document to all members in one transaction, which they have {span} to vote in.").format(
                span=within
            )
        )
        said.append(_("A member that fails or votes no has it rolled back everywhere; then it is handed over again."))
    if not trigger.detect_duplicates:
        said.append(_("Looks for no duplicates: every document is processed, also one that was processed before."))
    elif trigger.use_history:
        said.append(
            _("Keeps a document history for {span}: what is in it is not processed again.").format(
                span=span(trigger.history_ttl)
            )
        )
    else:
        said.append(_("Keeps no history: only a document that was handed over before is suspected."))
    if trigger.detect_duplicates and trigger.document_id_path:
        said.append(_("Identifies a document by its own id, at {path}.").format(path=trigger.document_id_path))
    if trigger.detect_duplicates:
        said.append(_resolver(trigger))
    if trigger.kind == ServiceKind.PULL:
        within = span(trigger.lease_seconds)
        said.append(_("A consumer has {span} to complete a document that it took.").format(span=within))
    else:
        said.append(_retries(trigger))
    said.append(_order(trigger))
    if trigger.suspend_on_error:
        said.append(_("A service that ends with an error suspends it."))
    if trigger.join_type != JoinType.NONE:
        said.append(
            _("Joins the documents of a conversation: {type}, within {span}.").format(
                type=trigger.get_join_type_display(), span=span(trigger.join_timeout)
            )
        )
    if trigger.answers:
        said.append(_("What the service answers is what the partner of a synchronous exchange gets."))
    if trigger.silent_after:
        said.append(_("Without a document for {span} it is an incident.").format(span=span(trigger.silent_after)))
    return said


def _resolver(trigger: Trigger) -> str:
    if trigger.resolver == Consult.NONE:
        return _("Has no resolver: what the history cannot decide is in doubt, and a person decides.")
    named = trigger.resolver_url if trigger.resolver == Consult.HTTP else trigger.resolver_callable
    said = (
        _(
            "Asks its resolver {resolver} about what the history cannot decide; if that cannot answer, the trigger is "
            "suspended."
        )
        if trigger.resolver_failure == "suspend"
        else _(
            "Asks its resolver {resolver} about what the history cannot decide; if that cannot answer, the document is "
            "in doubt."
        )
    )
    return said.format(resolver=named)


def _membership(trigger: Trigger) -> list[str]:
    assert trigger.member_of is not None
    said = [
        _("Takes part in the transactions of {trigger}, which decides what is handed over, and when.").format(
            trigger=trigger.member_of.name
        )
    ]
    if trigger.atomic_agreement is not None:
        said.append(
            _("Its application registers and votes under the agreement {agreement}.").format(
                agreement=trigger.atomic_agreement
            )
        )
    if trigger.kind == ServiceKind.CALLABLE:
        said.append(_("It runs when all others have voted, in the transaction of the commit record."))
    return said


def _retries(trigger: Trigger) -> str:
    every = _("every {span}").format(span=span(trigger.retry_interval)) if trigger.retry_interval else _("at once")
    if trigger.retry_until == "success":
        return _("A service that is not available is tried {every} until it succeeds.").format(every=every)
    suspends = trigger.when_exhausted == "suspend"
    if not trigger.max_retries:
        return (
            _("A service that is not available is not retried: the trigger is suspended.")
            if suspends
            else _("A service that is not available is not retried: the document fails.")
        )
    said = (
        ngettext(
            "A service that is not available is tried once more, {every}; then the trigger is suspended.",
            "A service that is not available is tried {count} more times, {every}; then the trigger is suspended.",
            trigger.max_retries,
        )
        if suspends
        else ngettext(
            "A service that is not available is tried once more, {every}; then the document fails.",
            "A service that is not available is tried {count} more times, {every}; then the document fails.",
            trigger.max_retries,
        )
    )
    return said.format(count=number(trigger.max_retries), every=every)


def _order(trigger: Trigger) -> str:
    if trigger.ordered:
        said = ngettext(
            "Processes the documents of a pair one after the other, and up to one document of different pairs at a "
            "time.",
            "Processes the documents of a pair one after the other, and up to {count} documents of different pairs at "
            "a time.",
            trigger.concurrency,
        )
    else:
        said = ngettext(
            "Processes up to one document at a time, in any order.",
            "Processes up to {count} documents at a time, in any order.",
            trigger.concurrency,
        )
    return said.format(count=number(trigger.concurrency))
