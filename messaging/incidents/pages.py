"""Incidents: the list, the page, and what people do with one: take it, give it to somebody, put it off, talk about it,
close it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.defaultfilters import linebreaksbr
from django.urls import reverse
from django.utils.translation import gettext as _

from messaging import causes, keyset
from messaging.access.selectors.reach import read_id
from messaging.archive import selectors as archive
from messaging.bulk.pages import buttons as bulk
from messaging.choices import IncidentState
from messaging.console import filters, lists, zones
from messaging.console.access import actor, person, requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import after, dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column as Shown
from messaging.console.resource import table
from messaging.deliveries.selectors import triggers
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale
from messaging.incidents import selectors as incident_timeline
from messaging.journal import incidents as services
from messaging.journal.wording import span
from messaging.models import Incident
from messaging.overview.selectors import records
from messaging.pairs.selectors import pairs, screens
from messaging.templatetags.hub import clock_time
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import diagnose
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy

# Tab of the list -> (states, put off or not).
_SHOWN: dict[str, tuple[tuple[str, ...], bool | None]] = {
    "open": (screens.UNRESOLVED, False),
    "snoozed": (screens.UNRESOLVED, True),
    "resolved": ((IncidentState.RESOLVED,), None),
    "all": ((), None),
}
_TABS = (
    ("open", gettext_lazy("Unresolved")),
    ("snoozed", gettext_lazy("Snoozed")),
    ("resolved", gettext_lazy("Resolved")),
    ("all", gettext_lazy("All")),
)
NOBODY = "nobody"  # in place of an owner: those that nobody has taken
_FILTERS = ("pair", "partner", "trigger", "cause", "owner")
# How long something is put off, as the dialog offers it: minutes and words.
SNOOZES = (
    (60, gettext_lazy("1 hour")),
    (240, gettext_lazy("4 hours")),
    (1440, gettext_lazy("1 day")),
    (10_080, gettext_lazy("1 week")),
)

INCIDENTS = ListPage(
    name="incidents",
    view="console:incidents",
    columns=(
        Column("incident", gettext_lazy("Incident"), str, fixed=True, sort="number"),
        Column("state", gettext_lazy("State"), lambda one: one.get_state_display()),
        Column("what", gettext_lazy("What"), lambda one: causes.lookup(one.cause).label),
        Column("cause", "Cause", lambda one: one.cause, only_csv=True),
        Column("where", gettext_lazy("Where"), lambda one: _where(one)),
        Column(
            "partner",
            gettext_lazy("Partner"),
            lambda one: one.pair.partner.name if one.pair is not None else "",
            hidden=True,
        ),
        Column("waiting", gettext_lazy("Queue"), lambda one: one.pair.in_queue if one.pair is not None else None),
        Column("opened", gettext_lazy("Opened"), lambda one: one.opened_at),
        Column("seen", gettext_lazy("Last seen"), lambda one: one.last_seen_at),
        Column("times", gettext_lazy("Occurrences"), lambda one: one.occurrences),
        Column("owner", gettext_lazy("Owner"), lambda one: one.owner),
        Column("snoozed", "Snoozed until", lambda one: one.snoozed_until, only_csv=True),
        Column("resolved", "Resolved", lambda one: one.resolved_at, only_csv=True),
        Column("resolved_by", "Resolved by", lambda one: one.resolved_by, only_csv=True),
        Column("resolution", "Resolution", lambda one: one.resolution, only_csv=True),
        Column("detail", "Detail", lambda one: one.detail, only_csv=True),
    ),
    api="/api/v1/incidents",
    api_query=lambda given: _api_query(given),
    orders=records.INCIDENT_ORDERS,
)
FILTERS = (
    Filter("show", gettext_lazy("State"), kind="tab"),
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter("pair", gettext_lazy("Pair"), hint="ACME>GLOBEX", mono=True),
    Filter("cause", gettext_lazy("Cause"), hint="cert_expired", mono=True, most=60),
    Filter("owner", gettext_lazy("Owner"), hint=gettext_lazy("a name, or nobody"), most=150),
    Filter("trigger", gettext_lazy("Trigger"), kind="link"),
)


@requires("incidents:read")
def incident_list(request: HttpRequest) -> HttpResponseBase:
    """The unresolved ones first, by owner, pair, partner, trigger and cause; the others under their tabs."""
    if (other := lists.opened(request, INCIDENTS)) is not None:
        return other
    given, wrong, partner = _given(request), "", filters.partner_of(request)
    given["partner"] = partner.reference
    __, order = lists.order(request, INCIDENTS)
    try:
        found = records.incidents().none() if partner.missing else _found(given)
    except (NotFound, BadPublicId) as error:
        found, wrong = records.incidents().none(), str(error)
    if lists.csv_wanted(request):
        return lists.csv(
            request,
            INCIDENTS,
            lambda place, limit: keyset.page(found, order=order, limit=limit, place=place),
        )
    context = keyset_page(request, "console.incidents", found, order=order, filters=given)
    context |= lists.tools(request, INCIDENTS, given, partner.meant())
    context |= {
        "given": given,
        "show": given["show"],
        "wrong": wrong,
        "tabs": _TABS,
        "filtered": any(given[name] for name in _FILTERS),
        "bulk_actions": bulk.actions(request, "incidents_acknowledge", "incidents_assign", "incidents_resolve"),
        "bar": filters.bar(request, "incidents", FILTERS, given, partner=partner),
    }
    return page(request, "console/incidents/incidents.html", context, live="live-incidents")


def _given(request: HttpRequest) -> dict[str, str]:
    show = request.GET.get("show", "open")
    given = {name: request.GET.get(name, "").strip()[:255].replace("\x00", "") for name in _FILTERS}
    return {"show": show if show in _SHOWN else "open", **given}


def _found(given: Mapping[str, str]) -> Any:
    """The incidents of a list's filters. Raises NotFound, BadPublicId."""
    states, snoozed = _SHOWN[given["show"]]
    owner = given["owner"] or None
    return records.incidents(
        states=states,
        snoozed=snoozed,
        pair_id=pairs.pair(given["pair"]).pk if given["pair"] else None,
        partner_id=read_id("par", given["partner"]) if given["partner"] else None,
        trigger_id=triggers.trigger(given["trigger"]).pk if given["trigger"] else None,
        cause=given["cause"],
        owner="" if owner == NOBODY else owner,
    )


def _api_query(given: Mapping[str, str]) -> dict[str, object]:
    states, snoozed = _SHOWN[given["show"]]
    put_off = "" if snoozed is None else str(snoozed).lower()
    return {"state": ",".join(states), "snoozed": put_off, **{name: given[name] for name in _FILTERS}}


def _where(incident: Incident) -> str:
    if incident.pair is not None:
        return incident.pair.code
    if incident.coordination is not None:
        return incident.coordination.identifier
    return incident.trigger.name if incident.trigger is not None else ""


@requires("incidents:read")
def incident_page(request: HttpRequest, number: str) -> HttpResponse:
    """One incident: what it is, its pair as it is now, all that happened, what helped before."""
    incident = records.incident(number)
    if number != str(incident):
        return see_other("console:incident", str(incident))
    context = _context(request, incident)
    return page(request, "console/incidents/incident.html", context, live="live-incident")


@requires("incidents:write", methods=("POST",))
def incident_acknowledge(request: HttpRequest, number: str) -> HttpResponse:
    """Whoever does it owns the incident from now on. One press, no dialog: it can be handed on at any time.

    From a list whose form says `next` one comes back to that list.
    """
    incident = records.incident(number)
    try:
        services.incident_acknowledge(**_why(request, incident))
    except Stale:
        faster = _faster(records.incident(incident.pk))
        notices.error(request, f"{faster} " + _("Nothing was changed."))
    except ApplicationError as error:
        notices.error(request, error.detail)
    else:
        notices.success(request, _("{incident} is yours.").format(incident=incident))
    return see_other(after(request)) if request.POST.get("next") else see_other("console:incident", str(incident))


def _assign(request: HttpRequest, incident: Incident, why: Mapping[str, Any]) -> str:
    owner = posted(request, "owner")
    services.incident_assign(owner=owner, **why)
    mine = owner == request.user.get_username()
    said = _("{incident} is yours.") if mine else _("{incident} is given to {owner}.")
    return said.format(incident=incident, owner=owner)


def _snooze(request: HttpRequest, incident: Incident, why: Mapping[str, Any]) -> str:
    until = _until(request)
    services.incident_snooze(until=until, **why)
    said = _("{incident} is snoozed.") if until is not None else _("{incident} is back on the list.")
    return said.format(incident=incident)


def _resolve(request: HttpRequest, incident: Incident, why: Mapping[str, Any]) -> str:
    services.incident_resolve(found=posted(request, "found"), **why)
    return _("{incident} is resolved.").format(incident=incident)


# Verbs with a form: its title, and what does it and says what was done.
_VERBS: dict[str, tuple[str, Callable[[HttpRequest, Incident, Mapping[str, Any]], str]]] = {
    "assign": (gettext_lazy("Assign {incident}"), _assign),
    "snooze": (gettext_lazy("Snooze {incident}"), _snooze),
    "resolve": (gettext_lazy("Resolve {incident}"), _resolve),
}
# What people do to an incident, as it stands in a sentence about who was faster.
_DONE = {
    "acknowledge": gettext_lazy("acknowledge"),
    "assign": gettext_lazy("assign"),
    "snooze": gettext_lazy("snooze"),
    "comment": gettext_lazy("comment"),
    "resolve": gettext_lazy("resolve"),
}


@requires("incidents:write", methods=("GET", "POST"))
def incident_verb(request: HttpRequest, number: str, verb: str) -> HttpResponse:
    """GET: the dialog. POST: does it; 409 when somebody was faster, 422 when something is missing."""
    title, act = _VERBS[verb]
    incident = records.incident(number)
    href = reverse("console:incident", args=[incident])

    def do() -> HttpResponse:
        notices.success(request, act(request, incident, _why(request, incident)))
        return see_other(href)

    def shown() -> dict[str, Any]:
        now = incident if request.method == "GET" else records.incident(incident.pk)
        return _now(now) | {
            "title": str(title).format(incident=now),
            "crumbs": [(reverse("console:incidents"), _("Incidents")), (href, str(now))],
            "incident": now,
            "given": request.POST if request.method == "POST" else _proposed(now, verb),
            "href": href,
            "leave": _("Cancel"),
            "people": services.may_own() if verb == "assign" else (),
            "snoozes": SNOOZES,
        }

    return dialog(
        request,
        f"console/incidents/incident_{verb}_form.html",
        shown,
        do,
        faster=lambda error: "" if isinstance(error, InvalidSubmission) else _faster(incident),
    )


@requires("incidents:write", methods=("POST",))
def incident_comment(request: HttpRequest, number: str) -> HttpResponse:
    """Writes something to it; open or not."""
    incident = records.incident(number)
    try:
        services.incident_comment(incident_id=incident.pk, text=posted(request, "text"), actor=actor(request))
    except InvalidSubmission as error:
        context = _context(request, incident) | {"errors": problems(error), "given": request.POST}
        return page(request, "console/incidents/incident.html", context, status=422)
    return see_other(f"/incidents/{incident}/#timeline")


@requires("incidents:read")
def incident_note(request: HttpRequest, number: str) -> HttpResponse:
    """A letter to the partner, to be copied and changed."""
    incident = records.incident(number)
    note = incident_timeline.partner_note(incident)
    if note is None:
        raise NotFound(_("{incident} is about no partner.").format(incident=incident))
    return page(request, "console/incidents/incident_note.html", {"incident": incident, "note": note})


@requires("incidents:read")
def incident_post_mortem(request: HttpRequest, number: str) -> HttpResponse:
    """All that is known of it as a Markdown file."""
    incident = records.incident(number)
    answer = HttpResponse(incident_timeline.post_mortem(incident), content_type="text/markdown; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{incident}.md"'
    return answer


def _proposed(incident: Incident, verb: str) -> dict[str, str]:
    """What stands in a form when it opens: what the hub knows already."""
    if verb != "resolve":
        return {}
    over = incident_timeline.recovery(incident)
    return {"found": str(causes.lookup(incident.cause).label), "reason": over.sentence if over is not None else ""}


def _faster(incident: Incident) -> str:
    """Who acted on it while a form was open."""
    entry = next(iter(screens.audit_of(incident, limit=1)), None)
    if entry is None:
        return ""
    ago = span((clock.now() - entry.at).total_seconds())
    did = entry.verb.removeprefix("incident.").replace("_", " ")
    said = _("{name} was faster: {did}, {ago} ago.")
    if entry.reason:
        said = _("{name} was faster: {did}, {ago} ago: {reason}.")
    return said.format(name=entry.actor, did=_DONE.get(did, did), ago=ago, reason=entry.reason)


def _until(request: HttpRequest) -> datetime | None:
    """The end that a form names, by minutes from now or by a time; None = now. Raises InvalidSubmission."""
    given = posted(request, "for")
    if given == "now":
        return None
    if given.isascii() and given.isdigit() and len(given) < 6:
        return clock.now() + timedelta(minutes=int(given))
    at = zones.read_local(posted(request, "until"), zones.zone_of(request))
    if at is None:
        raise InvalidSubmission({"until": [_("Choose how long, or a time such as 2026-01-31T08:00.")]})
    return at


_MOMENTS = (
    Shown(gettext_lazy("Time"), lambda moment: clock_time(moment.at), "nowrap", zoned=True),
    Shown(gettext_lazy("Who"), lambda moment: moment.by or _("the hub"), "nowrap"),
    Shown(gettext_lazy("What"), lambda moment: moment.title, "strong"),
    Shown(gettext_lazy("Detail"), lambda moment: linebreaksbr(moment.detail) or "—", "wrap"),
)


def _context(request: HttpRequest, incident: Incident) -> dict[str, Any]:
    story = incident_timeline.story(incident)
    put_off = incident.snoozed_until is not None and incident.snoozed_until > clock.now()
    parts = records.incidents(part_of=incident.pk).order_by("number")[:10]
    return _now(incident) | {
        "incident": incident,
        "gone": archive.entry_of(incident.message_id) if incident.message is None else None,
        "story": story,
        "moments": table(
            _("What happened, oldest first"),
            _MOMENTS,
            story.moments,
            about=lambda one: {"class": f"moment-{one.kind} moment-{one.tone}", "data-kind": one.kind},
            css="card-table stack incident-timeline",
        ),
        "put_off": put_off,
        "parts": [(one, causes.lookup(one.cause).label) for one in parts],
        "mine": incident.owner == person(request).name,
        "errors": [],
        "given": {},
    }


def _now(incident: Incident) -> dict[str, Any]:
    """The pair or trigger as it is now."""
    pair, trigger = incident.pair, incident.trigger
    return {
        "trigger_row": triggers.trigger_rows([trigger], clock.now())[0] if trigger is not None else None,
        "row": screens.pair_rows([pair], clock.now())[0] if pair is not None else None,
        **_transaction(incident),
    }


def _transaction(incident: Incident) -> dict[str, Any]:
    """The transaction as it is now, for people who may see it."""
    if incident.coordination_id is None:
        return {}
    try:
        one = coordinations.coordination(incident.coordination_id)
    except NotFound:
        return {}
    takers, waiting = coordinations.taking_part(one), coordinations.pending(one.pk)
    found = diagnose(one, takers, clock.now(), pending=waiting, hidden=coordinations.hidden(one))
    return {"transaction": one, "transaction_now": found}


def _why(request: HttpRequest, incident: Incident) -> dict[str, Any]:
    """What every verb is told. A form that names no version is not compared."""
    version = request.POST.get("version", "")
    known = version.isascii() and version.isdigit() and len(version) < 10
    return {
        "incident_id": incident.pk,
        "actor": actor(request),
        "reason": posted(request, "reason"),
        "expected_version": int(version) if known else None,
    }
