"""The life of one incident as rows in the order of time: what the hub saw, what was tried, what people wrote and did,
and who was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from messaging import causes
from messaging.causes import Evidence
from messaging.choices import Direction, IncidentState, NoteKind, NotificationState, Outcome
from messaging.journal.wording import span
from messaging.keyset import floor_id
from messaging.models import AuditEntry, Event, Incident, IncidentNote, Notification, Transmission
from messaging.overview.selectors import records
from messaging.pairs.selectors import newer, screens
from messaging.pairs.selectors.newer import Tells
from messaging.protocol.pair_state import Flow
from rmhub import clock

# Each source has its own bound: an incident of months must not make its page slow.
_MOST = 100
_ATTEMPTS = 500
# What happened just before belongs to it: the attempts that led there.
_BEFORE = timedelta(minutes=30)
# Told by their notes, and by the incident itself, which say more.
_TOLD_ELSEWHERE = ("incident.assign", "incident.snooze", "incident.comment", "incident.resolve")
_EVENTS: dict[str, tuple[str, str]] = {
    "incident.opened": ("Opened", "bad"),
    "incident.resolved": ("Resolved", "good"),
    "pair.suspended": ("Pair suspended", "bad"),
    "pair.resumed": ("Pair resumed", "good"),
    "pair.paused": ("Pair paused", "watch"),
    "pair.released": ("Pair released", "good"),
    "pair.silent": ("Pair silent", "watch"),
    "pair.heard": ("Pair heard again", "good"),
    "pair.retry_budget": ("Retries being used up", "watch"),
    "pair.needs_resync": ("Memory was lost", "bad"),
    "pair.resynced": ("In sync again", "good"),
    "circuit.opened": ("Sending to the partner's server stopped", "bad"),
    "circuit.closed": ("Partner's server answers again", "good"),
}
_PAIR_EVENTS = tuple(name for name in _EVENTS if not name.startswith("incident."))
_NOTES: dict[str, tuple[str, str]] = {
    NoteKind.COMMENT: ("Comment", "comment"),
    NoteKind.SNOOZE: ("Put off", "person"),
    NoteKind.OWNER: ("Owner changed", "person"),
}


@dataclass(frozen=True, slots=True)
class IncidentMoment:
    """One row. `kind`: event, attempts, comment, person or notification; `tone`: good, watch, bad or plain."""

    at: datetime
    kind: str
    title: str
    detail: str = ""
    by: str = ""
    tone: str = "plain"
    rank: int = 2  # order within one instant: what led there, how it begins, what happens, what people do


@dataclass(frozen=True, slots=True)
class Past:
    """A resolved incident of the same cause, and how near it is: the same pair, the same partner, or another one."""

    incident: Incident
    nearness: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """Why the incident seems to be over. `since`: the newest evidence after it was last seen."""

    since: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that belongs to one incident beside its own row."""

    moments: list[IncidentMoment]
    similar: list[Past]
    recovery: Recovery | None
    notifications: list[Notification] = field(default_factory=list)


def story(incident: Incident) -> Story:
    """What happened around an incident that `overview.selectors.records.incident` read. A fixed number of queries."""
    told = list(_notifications(incident))
    return Story(
        moments=moments(incident, told),
        similar=similar(incident),
        recovery=recovery(incident),
        notifications=told,
    )


def moments(incident: Incident, told: list[Notification] | None = None) -> list[IncidentMoment]:
    """The rows in the order of time, oldest first."""
    begin = incident.opened_at - _BEFORE
    end = (incident.resolved_at or clock.now() + timedelta(days=1)) + timedelta(seconds=1)
    found = [
        *(_of_event(event, incident) for event in _events(incident, begin, end)),
        *_of_attempts(incident, begin, end),
        *(_of_note(note) for note in incident.notes.order_by("-id")[:_MOST]),
        *(_of_entry(entry) for entry in _entries(incident, begin, end)),
        *(_of_notification(one) for one in (told if told is not None else _notifications(incident))),
    ]
    if not any(moment.title == "Opened" for moment in found):
        # The event is made by whoever opens it; an incident of a trigger or of the hub has it in no pair's history.
        found.append(IncidentMoment(incident.opened_at, "event", "Opened", incident.detail, tone="bad", rank=1))
    if incident.resolved_at is not None and not any(moment.title == "Resolved" for moment in found):
        found.append(
            IncidentMoment(
                incident.resolved_at, "event", "Resolved", incident.resolution, incident.resolved_by, "good", rank=3
            )
        )
    return sorted(found, key=lambda moment: (moment.at, moment.rank))


def comments(incident: Incident) -> QuerySet[IncidentNote]:
    """What people wrote to it and did with it. Not ordered; pages by ("id",)."""
    return IncidentNote.objects.filter(incident=incident)


def similar(incident: Incident, limit: int = 5) -> list[Past]:
    """Resolved incidents of the same cause, those of the same pair and partner first, and then the newest.

    Those that the hub closed by itself say nothing about what helps, so that they come last.
    """
    pair = incident.pair
    nearness: list[When] = []
    if pair is not None:
        nearness = [When(pair=pair, then=Value(0)), When(pair__partner=pair.partner_id, then=Value(1))]
    elif incident.trigger_id is not None:
        nearness = [When(trigger=incident.trigger_id, then=Value(0))]
    past = records.incidents(states=(IncidentState.RESOLVED,), cause=incident.cause).exclude(pk=incident.pk)
    ranked = past.annotate(
        near=Case(*nearness, default=Value(2), output_field=IntegerField()),
        alone=Case(When(resolved_by="system", then=Value(1)), default=Value(0), output_field=IntegerField()),
    )
    words = {0: "same pair" if pair is not None else "same trigger", 1: "same partner", 2: ""}
    return [Past(one, words[one.near]) for one in ranked.order_by("alone", "near", "-number")[:limit]]


def recovery(incident: Incident) -> Recovery | None:
    """Whether the trouble seems to be over while the incident still stands: what is newer than its last sight."""
    pair = incident.pair
    if incident.state == IncidentState.RESOLVED or pair is None:
        return None
    now = clock.now()
    sign = newer.of_incident(pair, screens.terms_of(pair), incident.cause, incident.last_seen_at, now)
    if sign is None or sign.tells is not Tells.WORKS:
        return None
    if pair.flow == Flow.SUSPENDED:
        return Recovery(sign.at, f"{sign.sentence(now)} {pair.code} waits to be resumed.")
    if sign.evidence is not Evidence.SUCCESS:
        return Recovery(sign.at, sign.sentence(now))
    what = "taken from the partner" if pair.direction == Direction.IN else "acknowledged by the partner"
    ago = span((now - sign.at).total_seconds())
    return Recovery(sign.at, f"Documents of {pair.code} are {what} again, the last one {ago} ago.")


def _events(incident: Incident, begin: datetime, end: datetime) -> list[Event]:
    """Its own events, and those of its pair meanwhile."""
    if incident.pair_id is None:
        return []
    found = Event.objects.filter(pair=incident.pair_id, message__isnull=True, at__gte=begin, at__lte=end)
    mine = Q(type__in=("incident.opened", "incident.resolved"), data__incident=incident.public_id)
    return list(found.filter(mine | Q(type__in=_PAIR_EVENTS)).order_by("-id")[:_MOST])


def _of_event(event: Event, incident: Incident) -> IncidentMoment:
    title, tone = _EVENTS[event.type]
    data = event.data
    detail = str(data.get("reason") or data.get("detail") or "")
    if event.type == "incident.resolved" and event.at == incident.resolved_at:
        return IncidentMoment(event.at, "event", title, incident.resolution, incident.resolved_by, tone, rank=3)
    if event.type == "pair.retry_budget":
        detail = f"{data.get('percent')} % of them"
    if event.type == "pair.suspended" and data.get("cause"):
        detail = f"{causes.lookup(str(data['cause'])).label}. {detail}".strip()
    by = str(data.get("by") or data.get("actor") or "")
    first = event.type == "incident.opened"
    return IncidentMoment(event.at, "event", title, detail, by, tone, rank=1 if first else 2)


def _of_attempts(incident: Incident, begin: datetime, end: datetime) -> list[IncidentMoment]:
    """Attempts of its message, or else what failed on its pair; runs of the same outcome are folded into one row."""
    columns = ("started_at", "outcome", "cause", "http_status", "number")
    if incident.message_id is not None:
        found = Transmission.objects.filter(message=incident.message_id, started_at__lte=end).order_by("-id")
        rows = list(found.values_list(*columns)[:_ATTEMPTS])[::-1]
    elif incident.pair_id is not None:
        # From the beginning on, and no further than so many: a busy pair has thousands a minute.
        found = Transmission.objects.filter(pair=incident.pair_id, message__isnull=False, id__gte=floor_id(begin))
        first = found.order_by("id").values_list(*columns)[:_ATTEMPTS]
        rows = [row for row in first if begin <= row[0] <= end and row[1] != Outcome.SENT]
    else:
        return []
    made: list[IncidentMoment] = []
    run: list[tuple[datetime, str, str, int | None, int]] = []
    for row in rows:
        if run and (row[1], row[2], row[3]) != (run[-1][1], run[-1][2], run[-1][3]):
            made.append(_of_run(run))
            run = []
        run.append(row)
    if run:
        made.append(_of_run(run))
    return made[-_MOST:]


def _of_run(run: list[tuple[datetime, str, str, int | None, int]]) -> IncidentMoment:
    at, outcome, cause, status, number = run[0]
    fate = {
        Outcome.ON_THE_WIRE: "on the wire",
        Outcome.SENT: "handed over",
        Outcome.FAILED: "failed",
        Outcome.LOST: "of unknown outcome",
    }[Outcome(outcome)]
    what = f"Attempt {number} {fate}" if len(run) == 1 else f"{len(run):,} attempts {fate}"
    parts = [causes.lookup(cause).label if cause else "", f"HTTP {status}" if status else ""]
    if len(run) > 1:
        parts.append(f"until {run[-1][0]:%H:%M:%S} UTC")
    tone = {Outcome.SENT: "plain", Outcome.FAILED: "bad", Outcome.LOST: "watch"}.get(Outcome(outcome), "plain")
    return IncidentMoment(at, "attempts", what, " · ".join(part for part in parts if part), tone=tone, rank=0)


def _of_note(note: IncidentNote) -> IncidentMoment:
    title, kind = _NOTES[note.kind]
    return IncidentMoment(note.at, kind, title, note.text, note.author, rank=3)


def _entries(incident: Incident, begin: datetime, end: datetime) -> list[AuditEntry]:
    """What people did to it, and to its pair or trigger meanwhile."""
    about = Q(object_type="incident", object_id=incident.public_id)
    if incident.pair is not None:
        about |= Q(object_type="pair", object_id=incident.pair.public_id, at__gte=begin, at__lte=end)
    if incident.trigger is not None:
        about |= Q(object_type="trigger", object_id=incident.trigger.public_id, at__gte=begin, at__lte=end)
    found = AuditEntry.objects.filter(about, result="done").exclude(verb__in=_TOLD_ELSEWHERE)
    return list(found.order_by("-id")[:_MOST])


def _of_entry(entry: AuditEntry) -> IncidentMoment:
    what, _, verb = entry.verb.partition(".")
    words = verb.replace("_", " ").replace("-", " ").capitalize()
    title = words if what == "incident" else f"{words} ({entry.object_name})"
    return IncidentMoment(entry.at, "person", title, entry.reason, entry.actor, rank=3)


def _notifications(incident: Incident) -> QuerySet[Notification]:
    return incident.notifications.select_related("rule").order_by("-id")[:_MOST]


def _of_notification(one: Notification) -> IncidentMoment:
    states = {
        NotificationState.PENDING: ("is to be told", "plain"),
        NotificationState.SENT: ("was told", "plain"),
        NotificationState.FAILED: ("could not be told", "bad"),
    }
    said, tone = states[NotificationState(one.state)]
    more = f" {one.folded:,} more were folded into it." if one.folded else ""
    return IncidentMoment(
        one.sent_at or one.created_at,
        "notification",
        f"{one.rule.name} {said}",
        f"{one.subject}{more} {one.last_error}".strip(),
        tone=tone,
        rank=4,
    )
