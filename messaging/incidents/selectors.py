"""The life of one incident as rows in the order of time: what the hub saw, what was tried, what people wrote and did,
and who was told.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

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
from rmhub.language import gettext_lazy, inside, number

# Each source has its own bound: an incident of months must not make its page slow.
_MOST = 100
_ATTEMPTS = 500
# What happened just before belongs to it: the attempts that led there.
_BEFORE = timedelta(minutes=30)
# Told by their notes, and by the incident itself, which say more.
_TOLD_ELSEWHERE = ("incident.assign", "incident.snooze", "incident.comment", "incident.resolve")
_PAIR_EVENTS = tuple(name for name in EVENTS if name.startswith(("pair.", "circuit.")))
_NOTES: dict[str, tuple[str, str]] = {
    NoteKind.COMMENT: (gettext_lazy("Comment"), "comment"),
    NoteKind.SNOOZE: (gettext_lazy("Snoozed"), "person"),
    NoteKind.OWNER: (gettext_lazy("Owner changed"), "person"),
}
# What people do to an incident, its pair or its trigger.
_VERBS = {
    "acknowledge": gettext_lazy("Acknowledge"),
    "clear resync": gettext_lazy("Clear resync"),
    "create": gettext_lazy("Create"),
    "disable": gettext_lazy("Disable"),
    "enable": gettext_lazy("Enable"),
    "expect sequence": gettext_lazy("Expect sequence"),
    "export": gettext_lazy("Export"),
    "leave": gettext_lazy("Remove"),
    "pause": gettext_lazy("Pause"),
    "release": gettext_lazy("Release"),
    "restart sequence": gettext_lazy("Restart sequence"),
    "resume": gettext_lazy("Resume"),
    "retry now": gettext_lazy("Retry now"),
    "rotate secret": gettext_lazy("Rotate secret"),
    "skip head": gettext_lazy("Skip head"),
    "suspend": gettext_lazy("Suspend"),
    "update": gettext_lazy("Update"),
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
    events = _events(incident, begin, end)
    found = [
        *(_of_event(event, incident) for event in events),
        *_of_attempts(incident, begin, end),
        *(_of_note(note) for note in incident.notes.order_by("-id")[:_MOST]),
        *(_of_entry(entry) for entry in _entries(incident, begin, end)),
        *(_of_notification(one) for one in (told if told is not None else _notifications(incident))),
    ]
    known = {event.type for event in events}
    if "incident.opened" not in known:
        # The event is made by whoever opens it; an incident of a trigger or of the hub has it in no pair's history.
        found.append(Step(incident.opened_at, "event", title=_("Opened"), detail=incident.detail, tone="bad"))
    if incident.resolved_at is not None and "incident.resolved" not in known:
        found.append(
            Step(
                incident.resolved_at,
                "event",
                title=_("Resolved"),
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
    words = {0: _("same pair") if pair is not None else _("same trigger"), 1: _("same partner"), 2: ""}
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
        waits = _("{pair} waits to be resumed.").format(pair=pair.code)
        return Recovery(sign.at, f"{sign.sentence(now)} {waits}")
    if sign.evidence is not Evidence.SUCCESS:
        return Recovery(sign.at, sign.sentence(now))
    said = _("Documents of {pair} are acknowledged by the partner again, the last one {ago} ago.")
    if pair.direction == Direction.IN:
        said = _("Documents of {pair} are taken from the partner again, the last one {ago} ago.")
    return Recovery(sign.at, said.format(pair=pair.code, ago=span((now - sign.at).total_seconds())))


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


# What became of one attempt, and of several.
_FATES = {
    Outcome.ON_THE_WIRE: (gettext_lazy("Attempt {number} on the wire"), gettext_lazy("{count} attempts on the wire")),
    Outcome.SENT: (gettext_lazy("Attempt {number} handed over"), gettext_lazy("{count} attempts handed over")),
    Outcome.FAILED: (gettext_lazy("Attempt {number} failed"), gettext_lazy("{count} attempts failed")),
    Outcome.LOST: (
        gettext_lazy("Attempt {number} of unknown outcome"),
        gettext_lazy("{count} attempts of unknown outcome"),
    ),
}


def _of_run(run: list[tuple[datetime, str, str, int | None, int]]) -> Step:
    at, outcome, cause, status, attempt = run[0]
    one, many = _FATES[Outcome(outcome)]
    what = str(one).format(number=attempt) if len(run) == 1 else str(many).format(count=number(len(run)))
    parts = [str(causes.lookup(cause).label) if cause else "", f"HTTP {status}" if status else ""]
    if len(run) > 1:
        parts.append(_("until {time} UTC").format(time=f"{run[-1][0]:%H:%M:%S}"))
    tone = {Outcome.SENT: "plain", Outcome.FAILED: "bad", Outcome.LOST: "watch"}.get(Outcome(outcome), "plain")
    detail = " · ".join(part for part in parts if part)
    return Step(at, "attempts", title=what, detail=detail, tone=tone, rank=0)


def _of_note(note: IncidentNote) -> Step:
    title, kind = _NOTES[note.kind]
    return Step(note.at, kind, title=str(title), detail=note.text, by=note.author, rank=3)


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
    what, __, verb = entry.verb.partition(".")
    verb = verb.replace("_", " ").replace("-", " ")
    words = str(_VERBS.get(verb, verb.capitalize()))
    title = words if what == "incident" else f"{words} ({entry.object_name})"
    return Step(entry.at, "person", title=title, detail=entry.reason, by=entry.actor, rank=3)


def _notifications(incident: Incident) -> QuerySet[Notification]:
    return incident.notifications.select_related("rule").order_by("-id")[:_MOST]


def _of_notification(one: Notification) -> Step:
    states = {
        NotificationState.PENDING: (_("{name} is to be notified"), "plain"),
        NotificationState.SENT: (_("{name} was notified"), "plain"),
        NotificationState.FAILED: (_("{name} could not be notified"), "bad"),
    }
    said, tone = states[NotificationState(one.state)]
    more = ""
    if one.folded:
        more = " " + ngettext(
            "{count} more was folded into it.", "{count} more were folded into it.", one.folded
        ).format(count=number(one.folded))
    return Step(
        one.sent_at or one.created_at,
        "notification",
        title=said.format(name=one.rule.name),
        detail=f"{one.subject}{more} {one.last_error}".strip(),
        tone=tone,
        rank=4,
    )


# --- Texts that people send or keep of an incident: a note to the partner, and the post-mortem as Markdown.

# Causes that the partner's own side shows: what they may look at, said to them.
_FOR_PARTNER: dict[str, str] = {
    "dns_error": gettext_lazy("The host name of your messaging service cannot be resolved."),
    "connect_refused": gettext_lazy(
        "Your server refuses our connections: nothing seems to listen at that address and port."
    ),
    "connect_timeout": gettext_lazy("Your server does not answer our connection attempts."),
    "tls_handshake": gettext_lazy("The encrypted connection to your server cannot be set up."),
    "cert_expired": gettext_lazy("Your server shows a certificate that is past its date."),
    "cert_untrusted": gettext_lazy("Your server shows a certificate that we cannot trust."),
    "read_timeout": gettext_lazy("Your server takes our requests and gives no answer in time."),
    "connection_reset": gettext_lazy("Your server breaks the connection off before an answer comes."),
    "server_unreachable": gettext_lazy("Your server cannot be reached."),
    "http_401_403": gettext_lazy("Your server does not accept our credential (HTTP 401 or 403)."),
    "access_refused": gettext_lazy("Your server does not accept our credential (HTTP 401 or 403)."),
    "http_404": gettext_lazy("Your server does not know the address that we have of you (HTTP 404)."),
    "http_413": gettext_lazy("Your server does not take messages of this size (HTTP 413)."),
    "http_429": gettext_lazy("Your server asks us to slow down (HTTP 429)."),
    "http_5xx": gettext_lazy("Your server answers with an error of its own (HTTP 5xx)."),
    "ack_timeout": gettext_lazy("Your server takes our messages, and no acknowledgement comes back."),
    "out_of_sequence": gettext_lazy("Your messages come with sequence numbers that we do not expect."),
    "live_partner_silent": gettext_lazy("Nothing has come from you for longer than is usual."),
    "silent": gettext_lazy("Nothing has come for longer than was agreed."),
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
    seen = _FOR_PARTNER.get(incident.cause) or _("What our side notes: {cause}.").format(cause=inside(known.label))
    found = recovery(incident)
    over = found.since if found is not None else incident.resolved_at
    inbound = pair.direction == Direction.IN
    facts = [
        (pgettext("sender of a message", "From"), pair.sender_uri),
        (pgettext("receiver of a message", "To"), pair.receiver_uri),
        (_("Since"), f"{incident.opened_at:%Y-%m-%d %H:%M} UTC"),
        (_("Last seen"), f"{incident.last_seen_at:%Y-%m-%d %H:%M} UTC"),
        (_("Occurrences"), number(incident.occurrences)),
    ]
    if incident.message is not None:
        facts.append((_("First message concerned"), incident.message.message_id))
    if over is not None:
        facts.append((_("Seems to be over since"), f"{over:%Y-%m-%d %H:%M} UTC"))
    if not inbound and pair.queued:
        facts.append((_("Documents that wait"), number(pair.queued)))
    if over is None:
        trouble = _("there is a problem with the messages from us to you.")
        if inbound:
            trouble = _("there is a problem with the messages from you to us.")
    else:
        trouble = _("there was a problem with the messages from us to you.")
        if inbound:
            trouble = _("there was a problem with the messages from you to us.")
        seen = _("What we saw: “{seen}”").format(seen=seen)
    wish = _("Please have a look at your side and tell us what you find.")
    if not inbound:
        wish = _(
            "Please have a look at your side and tell us what you find, and when we may send again. Nothing is lost: "
            "what waits goes out in order."
        )
    named = [(_("{name}:").format(name=name), value) for name, value in facts]
    width = max(25, *(len(name) + 1 for name, __ in named))
    lines = [
        _("Hello,"),
        "",
        f"{trouble} {seen}",
        "",
        *(f"  {name:<{width}}{value}" for name, value in named),
        "",
        wish,
        "",
        _("Our reference: {incident}. Please keep it in your answer.").format(incident=incident),
        "",
        str(pair.own_party.name),
    ]
    subject = _("{incident}: messages to {partner} since {time} UTC")
    if inbound:
        subject = _("{incident}: messages from {partner} since {time} UTC")
    since = f"{incident.opened_at:%Y-%m-%d %H:%M}"
    subject = subject.format(incident=incident, partner=pair.partner.name, time=since)
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
        "## " + _("What happened"),
        "",
        str(known.sentence),
    ]
    if incident.detail:
        lines += ["", f"> {_line(incident.detail)}"]
    lines += ["", "## " + _("Resolution"), "", _line(incident.resolution) or _("Not resolved yet.")]
    lines += ["", "## " + _("Timeline"), ""]
    lines += [_("| time (UTC) | who | what | detail |"), "| --- | --- | --- | --- |"]
    lines += [_row(moment) for moment in moments(incident)]
    past = similar(incident)
    if past:
        lines += ["", "## " + _("Similar incidents before"), "", *(_past(one) for one in past)]
    lines += ["", "## " + _("To be filled in"), ""]
    lines += [_("- Impact:"), _("- Root cause:"), _("- What went well:"), _("- What is changed now:")]
    return "\n".join(lines) + "\n"


def _facts(incident: Incident) -> list[tuple[str, str]]:
    pair, trigger = incident.pair, incident.trigger
    end = incident.resolved_at or clock.now()
    where = _("the hub")
    if pair is not None:
        where = _("pair {pair} ({partner})").format(pair=pair.code, partner=pair.partner.name)
    elif trigger is not None:
        where = _("trigger {trigger}").format(trigger=trigger.name)
    seen = ngettext("{when}, {count} time", "{when}, {count} times", incident.occurrences).format(
        when=_instant(incident.last_seen_at), count=number(incident.occurrences)
    )
    facts = [
        (_("State"), str(incident.get_state_display())),
        (_("Where"), _cell(where)),
        (_("Cause"), _code(incident.cause)),
        (_("Opened"), _instant(incident.opened_at)),
        (_("Last seen"), seen),
    ]
    if incident.acknowledged_at is not None:
        taken = span((incident.acknowledged_at - incident.opened_at).total_seconds())
        after = _("{when}, after {time}").format(when=_instant(incident.acknowledged_at), time=taken)
        facts.append((_("Acknowledged"), after))
    if incident.owner:
        facts.append((_("Owner"), _cell(incident.owner)))
    if incident.resolved_at is not None:
        closed = _("{when} by {name}").format(when=_instant(incident.resolved_at), name=_cell(incident.resolved_by))
        facts.append((_("Resolved"), closed))
    facts.append((_("Lasted"), span((end - incident.opened_at).total_seconds())))
    if incident.message is not None:
        facts.append((_("Message"), _code(incident.message.message_id)))
    facts.append((_("Link"), f"{settings.RMHUB_PUBLIC_URL}/incidents/{incident}/"))
    return facts


def _row(moment: Step) -> str:
    at, hub = f"{moment.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", _("the hub")
    return f"| {at} | {_cell(moment.by or hub)} | {_cell(moment.title)} | {_cell(moment.detail)} |"


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
