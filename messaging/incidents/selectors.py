"""The life of one incident as rows in the order of time: what the hub saw, what was tried, what people wrote and did,
and who was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from messaging import causes
from messaging.causes import Evidence
from messaging.choices import Direction, IncidentState, NoteKind, NotificationState, Outcome
from messaging.journal.wording import span
from messaging.keyset import floor_id
from messaging.messages.selectors.history import EVENTS, Step, of_event
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
_PAIR_EVENTS = tuple(name for name in EVENTS if name.startswith(("pair.", "circuit.")))
_NOTES: dict[str, tuple[str, str]] = {
    NoteKind.COMMENT: ("Comment", "comment"),
    NoteKind.SNOOZE: ("Snoozed", "person"),
    NoteKind.OWNER: ("Owner changed", "person"),
}


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

    moments: list[Step]
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


def moments(incident: Incident, told: list[Notification] | None = None) -> list[Step]:
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
        found.append(Step(incident.opened_at, "event", title="Opened", detail=incident.detail, tone="bad"))
    if incident.resolved_at is not None and not any(moment.title == "Resolved" for moment in found):
        found.append(
            Step(
                incident.resolved_at,
                "event",
                title="Resolved",
                detail=incident.resolution,
                by=incident.resolved_by,
                tone="good",
                rank=3,
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


def _of_event(event: Event, incident: Incident) -> Step:
    told = replace(of_event(event), kind="event", rank=1 if event.type == "incident.opened" else 2)
    if event.type == "incident.resolved" and event.at == incident.resolved_at:
        return replace(told, detail=incident.resolution, by=incident.resolved_by, rank=3)
    return told


def _of_attempts(incident: Incident, begin: datetime, end: datetime) -> list[Step]:
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
    made: list[Step] = []
    run: list[tuple[datetime, str, str, int | None, int]] = []
    for row in rows:
        if run and (row[1], row[2], row[3]) != (run[-1][1], run[-1][2], run[-1][3]):
            made.append(_of_run(run))
            run = []
        run.append(row)
    if run:
        made.append(_of_run(run))
    return made[-_MOST:]


def _of_run(run: list[tuple[datetime, str, str, int | None, int]]) -> Step:
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
    detail = " · ".join(part for part in parts if part)
    return Step(at, "attempts", title=what, detail=detail, tone=tone, rank=0)


def _of_note(note: IncidentNote) -> Step:
    title, kind = _NOTES[note.kind]
    return Step(note.at, kind, title=title, detail=note.text, by=note.author, rank=3)


def _entries(incident: Incident, begin: datetime, end: datetime) -> list[AuditEntry]:
    """What people did to it, and to its pair or trigger meanwhile."""
    about = Q(object_type="incident", object_id=incident.public_id)
    if incident.pair is not None:
        about |= Q(object_type="pair", object_id=incident.pair.public_id, at__gte=begin, at__lte=end)
    if incident.trigger is not None:
        about |= Q(object_type="trigger", object_id=incident.trigger.public_id, at__gte=begin, at__lte=end)
    found = AuditEntry.objects.filter(about, result="done").exclude(verb__in=_TOLD_ELSEWHERE)
    return list(found.order_by("-id")[:_MOST])


def _of_entry(entry: AuditEntry) -> Step:
    what, _, verb = entry.verb.partition(".")
    words = verb.replace("_", " ").replace("-", " ").capitalize()
    title = words if what == "incident" else f"{words} ({entry.object_name})"
    return Step(entry.at, "person", title=title, detail=entry.reason, by=entry.actor, rank=3)


def _notifications(incident: Incident) -> QuerySet[Notification]:
    return incident.notifications.select_related("rule").order_by("-id")[:_MOST]


def _of_notification(one: Notification) -> Step:
    states = {
        NotificationState.PENDING: ("is to be notified", "plain"),
        NotificationState.SENT: ("was notified", "plain"),
        NotificationState.FAILED: ("could not be notified", "bad"),
    }
    said, tone = states[NotificationState(one.state)]
    more = f" {one.folded:,} more were folded into it." if one.folded else ""
    return Step(
        one.sent_at or one.created_at,
        "notification",
        title=f"{one.rule.name} {said}",
        detail=f"{one.subject}{more} {one.last_error}".strip(),
        tone=tone,
        rank=4,
    )


# --- Texts that people send or keep of an incident: a note to the partner, and the post-mortem as Markdown.

# Causes that the partner's own side shows: what they may look at, said to them.
_FOR_PARTNER: dict[str, str] = {
    "dns_error": "The host name of your messaging service cannot be resolved.",
    "connect_refused": "Your server refuses our connections: nothing seems to listen at that address and port.",
    "connect_timeout": "Your server does not answer our connection attempts.",
    "tls_handshake": "The encrypted connection to your server cannot be set up.",
    "cert_expired": "Your server shows a certificate that is past its date.",
    "cert_untrusted": "Your server shows a certificate that we cannot trust.",
    "read_timeout": "Your server takes our requests and gives no answer in time.",
    "connection_reset": "Your server breaks the connection off before an answer comes.",
    "server_unreachable": "Your server cannot be reached.",
    "http_401_403": "Your server does not accept our credential (HTTP 401 or 403).",
    "http_404": "Your server does not know the address that we have of you (HTTP 404).",
    "http_413": "Your server does not take messages of this size (HTTP 413).",
    "http_429": "Your server asks us to slow down (HTTP 429).",
    "http_5xx": "Your server answers with an error of its own (HTTP 5xx).",
    "ack_timeout": "Your server takes our messages, and no acknowledgement comes back.",
    "out_of_sequence": "Your messages come with sequence numbers that we do not expect.",
    "live_partner_silent": "Nothing has come from you for longer than is usual.",
    "silent": "Nothing has come for longer than was agreed.",
}


@dataclass(frozen=True, slots=True)
class PartnerNote:
    """A letter to the partner, to be read and changed before it is sent. `contact`: whom we know there."""

    subject: str
    text: str
    contact: str


def partner_note(incident: Incident) -> PartnerNote | None:
    """None for an incident that no partner has part in."""
    pair = incident.pair
    if pair is None:
        return None
    known = causes.lookup(incident.cause)
    seen = _FOR_PARTNER.get(incident.cause, f"What our side notes: {known.label.lower()}.")
    found = recovery(incident)
    over = found.since if found is not None else incident.resolved_at
    inbound = pair.direction == Direction.IN
    facts = [
        ("From", pair.sender_uri),
        ("To", pair.receiver_uri),
        ("Since", f"{incident.opened_at:%Y-%m-%d %H:%M} UTC"),
        ("Last seen", f"{incident.last_seen_at:%Y-%m-%d %H:%M} UTC"),
        ("Times", f"{incident.occurrences:,}"),
    ]
    if incident.message is not None:
        facts.append(("First message concerned", incident.message.message_id))
    if over is not None:
        facts.append(("Seems to be over since", f"{over:%Y-%m-%d %H:%M} UTC"))
    if not inbound and pair.queued:
        facts.append(("Documents that wait", f"{pair.queued:,}"))
    lines = [
        "Hello,",
        "",
        f"there {'is' if over is None else 'was'} a problem with the messages "
        f"{'from you to us' if inbound else 'from us to you'}. {seen if over is None else f'What we saw: “{seen}”'}",
        "",
        *(f"  {name + ':':<25}{value}" for name, value in facts),
        "",
        "Please have a look at your side and tell us what you find"
        + ("." if inbound else ", and when we may send again. Nothing is lost: what waits goes out in order."),
        "",
        f"Our reference: {incident}. Please keep it in your answer.",
        "",
        str(pair.own_party.name),
    ]
    way = "from" if inbound else "to"
    subject = f"{incident}: messages {way} {pair.partner.name} since {incident.opened_at:%Y-%m-%d %H:%M} UTC"
    return PartnerNote(subject, "\n".join(lines), pair.partner.contact)


def post_mortem(incident: Incident) -> str:
    """All that is known of an incident, as Markdown: facts, timeline, what solved it, what is to be filled in."""
    known = causes.lookup(incident.cause)
    lines = [
        f"# {incident}: {known.label}",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in _facts(incident)),
        "",
        "## What happened",
        "",
        known.sentence,
    ]
    if incident.detail:
        lines += ["", f"> {_line(incident.detail)}"]
    lines += ["", "## Resolution", "", _line(incident.resolution) or "Not resolved yet.", "", "## Timeline", ""]
    lines += ["| time (UTC) | who | what | detail |", "| --- | --- | --- | --- |"]
    lines += [_row(moment) for moment in moments(incident)]
    past = similar(incident)
    if past:
        lines += ["", "## Similar incidents before", "", *(_past(one) for one in past)]
    lines += ["", "## To be filled in", "", "- Impact:", "- Root cause:", "- What went well:", "- What is changed now:"]
    return "\n".join(lines) + "\n"


def _facts(incident: Incident) -> list[tuple[str, str]]:
    pair, trigger = incident.pair, incident.trigger
    end = incident.resolved_at or clock.now()
    where = f"pair {pair.code} ({pair.partner.name})" if pair is not None else ""
    where = where or (f"trigger {trigger.name}" if trigger is not None else "the hub")
    facts = [
        ("State", str(incident.get_state_display())),
        ("Where", _cell(where)),
        ("Cause", _code(incident.cause)),
        ("Opened", _instant(incident.opened_at)),
        ("Last seen", f"{_instant(incident.last_seen_at)}, {incident.occurrences:,} times"),
    ]
    if incident.acknowledged_at is not None:
        taken = span((incident.acknowledged_at - incident.opened_at).total_seconds())
        facts.append(("Acknowledged", f"{_instant(incident.acknowledged_at)}, after {taken}"))
    if incident.owner:
        facts.append(("Owner", _cell(incident.owner)))
    if incident.resolved_at is not None:
        facts.append(("Resolved", f"{_instant(incident.resolved_at)} by {_cell(incident.resolved_by)}"))
    facts.append(("Lasted", span((end - incident.opened_at).total_seconds())))
    if incident.message is not None:
        facts.append(("Message", _code(incident.message.message_id)))
    facts.append(("Link", f"{settings.RMHUB_PUBLIC_URL}/incidents/{incident}/"))
    return facts


def _row(moment: Step) -> str:
    at = f"{moment.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return f"| {at} | {_cell(moment.by or 'the hub')} | {_cell(moment.title)} | {_cell(moment.detail)} |"


def _past(past: Past) -> str:
    one = past.incident
    near = f", {past.nearness}" if past.nearness else ""
    return f"- {one} ({one.opened_at:%Y-%m-%d}{near}): {_line(one.resolution)} ({one.resolved_by})"


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _line(text: str) -> str:
    """One line, in which nothing is markup: texts come from people, and from partners' servers."""
    flat = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_[]<>#" else character for character in flat)


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "\\|") + "`"
