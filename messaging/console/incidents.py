"""Incidents: the list, the page, taking one, closing one."""

from __future__ import annotations

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.choices import IncidentState
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import WrongState
from messaging.models import Incident
from messaging.selectors import archive, events, records, screens, triggers
from messaging.services import incidents as services
from rmhub import clock

MIN_REASON = 3
_SHOWN = {"open": screens.UNRESOLVED, "resolved": (IncidentState.RESOLVED,), "all": ()}


@requires("incidents:read")
def incident_list(request: HttpRequest) -> HttpResponse:
    """The unresolved ones first; `?show=resolved` and `all` for the rest."""
    show = request.GET.get("show", "open")
    show = show if show in _SHOWN else "open"
    filters = {"show": show}
    found = records.incidents(states=tuple(_SHOWN[show]))
    context = keyset_page(request, "console.incidents", found, order=("-number",), filters=filters)
    return page(
        request,
        "console/incidents.html",
        context | filters,
        fragments={"live-incidents": "console/incidents_live.html"},
    )


@requires("incidents:read")
def incident_page(request: HttpRequest, number: str) -> HttpResponse:
    """One incident with its pair as it is now, and what people did about it."""
    incident = records.incident(number)
    if number != str(incident):
        return see_other("console:incident", str(incident))
    return page(request, "console/incident.html", _context(incident))


@requires("incidents:write", methods=("POST",))
def incident_acknowledge(request: HttpRequest, number: str) -> HttpResponse:
    """Whoever does it owns the incident from now on."""
    incident = records.incident(number)
    try:
        services.incident_acknowledge(incident_id=incident.pk, actor=actor(request), reason=_text(request, "reason"))
    except WrongState as error:
        notices.error(request, error.detail)
    else:
        notices.success(request, f"{incident} is yours.")
    return see_other("console:incident", str(incident))


@requires("incidents:write", methods=("GET", "POST"))
def incident_resolve(request: HttpRequest, number: str) -> HttpResponse:
    """The dialog, and closing it with what was found and done."""
    incident = records.incident(number)
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        reason = _text(request, "reason")
        if len(reason) < MIN_REASON:
            errors, status = (
                [("reason", f"Say what it was and what was done, in at least {MIN_REASON} characters.")],
                422,
            )
        else:
            try:
                services.incident_resolve(incident_id=incident.pk, actor=actor(request), reason=reason)
            except WrongState as error:
                errors, status = problems(error), 409
                incident = records.incident(number)
            else:
                notices.success(request, f"{incident} is resolved.")
                return see_other("console:incident", str(incident))
    context = {**_context(incident), "errors": errors, "given": request.POST}
    return page(
        request, "console/resolve.html", context, fragments={"dialog": "console/resolve_form.html"}, status=status
    )


def _context(incident: Incident) -> dict[str, object]:
    pair, trigger = incident.pair, incident.trigger
    return {
        "incident": incident,
        "gone": archive.entry_of(incident.message_id) if incident.message is None else None,
        "trigger_row": triggers.trigger_rows([trigger], clock.now())[0] if trigger is not None else None,
        "row": screens.pair_rows([pair], clock.now())[0] if pair is not None else None,
        "audit": screens.audit_of(incident),
        "events": list(events.of_pair(pair.pk)[:15]) if pair is not None else [],
    }


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip().replace("\x00", "")
