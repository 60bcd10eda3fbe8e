"""What can be done to a pair: the dialogs of its verbs, a look at the partner's endpoint, its settings, a copy of what
waits. And to a partner's server that cannot be reached: having it tried now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from messaging.console.access import actor, person, requires
from messaging.console.rendering import after, dialog, page, posted, problems, see_other
from messaging.engine.circuits import circuit_reset
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from messaging.journal.audit import HEAVY_REASON
from messaging.journal.wording import span
from messaging.models import Pair
from messaging.pairs.pages import tables
from messaging.pairs.resource import VERBS, PairVerb
from messaging.pairs.selectors import circuits, pairs, screens
from messaging.pairs.services import exporting, probing
from messaging.pairs.services.silence import pair_update
from rmhub import clock
from rmhub.language import gettext_lazy, inside


def _scope(parameters: dict[str, Any]) -> str:
    verb = VERBS.get(parameters["verb"])
    # An unknown verb is answered 404 to whoever may see pairs at all.
    return verb.scope if verb else "pairs:read"


@requires(_scope, methods=("GET", "POST"))
def pair_verb(request: HttpRequest, code: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame of the pair's page. POST: does it, or says why not.

    From a list that says `next` one comes back to that list.
    """
    chosen = VERBS.get(verb)
    screen = screens.pair_screen(pairs.pair(code), clock.now())
    possible = {state.slug for state in screen.verbs}
    if possible & {"pause", "release"}:  # the other one may be in a form that was opened before
        possible |= {"pause", "release"}
    possible |= {"clear-resync"}  # somebody else may have, since the form was opened
    if chosen is None or verb not in possible:
        raise Http404(_("There is no verb {verb} for this pair.").format(verb=verb))
    href = reverse("console:pair", args=[screen.pair.code])
    onward = after(request) if request.GET.get("next") or request.POST.get("next") else ""

    def do() -> HttpResponse:
        more: dict[str, Any] = {}
        _check(request, screen.pair, chosen)
        if verb == "expect-sequence":
            more["expected"] = int(request.POST["expected"])
        if verb == "resume":
            more["mode"] = request.POST.get("mode", "all")
        why = {"actor": actor(request), "reason": request.POST.get("reason", "").strip()}
        chosen.service(pair_id=screen.pair.pk, expected_version=int(request.POST["version"]), **why, **more)
        notices.success(request, chosen.said(screen))
        return see_other(onward or href)

    def shown() -> dict[str, Any]:
        now = screen if request.method == "GET" else screens.pair_screen(pairs.pair(code), clock.now())
        pair = now.pair
        state = next((state for state in now.verbs if state.slug == verb), None)
        return {
            "title": _("{verb}: {pair}").format(verb=chosen.label, pair=pair.code),
            "heading": _("{verb} {pair}").format(verb=chosen.label, pair=pair.code),
            "crumbs": [(reverse("console:pairs"), _("Pairs")), (href, pair.code)],
            "screen": now,
            "pair": pair,
            "version": pair.version,
            "verb": chosen,
            "effects": chosen.effects(now),
            "possible": state is not None and state.enabled,
            "why_not": state.why_not
            if state is not None
            else _("The pair is {state} now.").format(state=inside(now.look.label)),
            "next": onward,
            "href": onward or href,
            "leave": _("Back to the list") if onward else _("Back to the pair"),
            "upcoming": now.queue[:5],
            "lacks_payloads": person(request).lacks("payloads:read"),
            "incident": screens.incident_of(pair, now.incidents),
        }

    def faster(error: ApplicationError) -> str:
        entry = next(iter(screens.audit_of(screen.pair, limit=1)), None)
        if entry is None or not isinstance(error, Stale):
            return ""
        ago = span((clock.now() - entry.at).total_seconds())
        verb = entry.verb.removeprefix("pair.")
        known = VERBS.get(verb.replace("_", "-"))
        did = inside(known.label) if known is not None else _OTHER_VERBS.get(verb, verb.replace("_", " "))
        said = _("{name} was faster: {did}, {ago} ago: {reason}")
        return said.format(name=entry.actor, did=did, ago=ago, reason=entry.reason)

    return dialog(request, "console/pairs/verb_form.html", shown, do, faster=faster)


# What people do to a pair beside its verbs.
_OTHER_VERBS = {"update": gettext_lazy("change the settings"), "export": gettext_lazy("export")}


def _check(request: HttpRequest, pair: Pair, verb: PairVerb) -> None:
    """What the form itself can tell; the rest is the service's to say. Raises InvalidSubmission."""
    given, errors = request.POST, {}
    if not _is_number(given.get("version", "")):
        errors[""] = [_("This form is not complete: open it again from the pair's page.")]
    if verb.long_reason and len(given.get("reason", "").strip()) < HEAVY_REASON:
        said = _("Say why, in at least {count} characters: it cannot be taken back.")
        errors["reason"] = [said.format(count=HEAVY_REASON)]
    if "\x00" in given.get("reason", ""):
        errors.setdefault("reason", []).append(_("There is a control character in this text: remove it."))
    expected = given.get("expected", "")
    if verb.slug == "expect-sequence" and not (_is_number(expected) and len(expected) < 10):
        errors["expected"] = [_("A number from 1 to 999999999.")]
    if verb.heavy and given.get("confirm", "").strip().upper() != pair.code.upper():
        errors["confirm"] = [_("Type {pair} to show that you mean this pair.").format(pair=pair.code)]
    if errors:
        raise InvalidSubmission(errors)


@requires("pairs:operate", methods=("POST",))
def pair_ping(request: HttpRequest, code: str) -> HttpResponse:
    """Looks at the partner's endpoint step by step; what it found stands on the pair's page."""
    pair = pairs.pair(code)
    try:
        report = probing.ping(pair_id=pair.pk, actor=actor(request))
    except WrongState as error:
        notices.error(request, error.detail)
        return see_other("console:pair", code)
    if report.ok:
        notices.success(request, _("The partner answers."))
    else:
        notices.error(request, _("The partner could not be reached as it should be: see the steps."))
    return see_other(f"{reverse('console:pair', args=[code])}?{urlencode({'pinged': report.public_id})}#probe")


@requires("payloads:read")
def pair_export(request: HttpRequest, code: str) -> HttpResponseBase:
    """What waits on the pair, or (`which=head`) what is first in line, as a ZIP file."""
    pair = pairs.pair(code)
    which = "head" if request.GET.get("which") == "head" else "queue"
    try:
        export = exporting.pair_export(pair_id=pair.pk, actor=actor(request), role=person(request).role, which=which)
    except WrongState as error:
        notices.error(request, error.detail)
        return see_other("console:pair", code)
    return StreamingHttpResponse(export.chunks, content_type="application/zip", headers=export.headers)


# --- settings: the rhythm, in the units in which people think, and the run-book ---

UNITS = (("60", gettext_lazy("minutes")), ("3600", gettext_lazy("hours")), ("86400", gettext_lazy("days")))
# The form's names, the service's, and the unit of a length that is not set.
_LENGTHS = (("every", "expected_every", "3600"), ("grace", "silence_grace", "60"))


def settings_fields(pair: Pair) -> dict[str, str]:
    """The pair's settings, as the form shows them: lengths of time in the largest unit that makes them whole."""
    fields = {"runbook": pair.runbook}
    for name, field, otherwise in _LENGTHS:
        seconds = getattr(pair, field)
        unit = next((unit for unit, __ in reversed(UNITS) if seconds % int(unit) == 0), "60") if seconds else otherwise
        fields |= {name: str(max(1, seconds // int(unit))) if seconds else "", f"{name}_unit": unit}
    return fields


@requires("pairs:operate", methods=("POST",))
def pair_settings(request: HttpRequest, code: str) -> HttpResponse:
    """Rhythm and run-book, from the tab Settings."""
    pair, given = pairs.pair(code), request.POST
    try:
        if not _is_number(given.get("version", "")):
            raise InvalidSubmission({"": [_("This form is not complete: open it again from the pair's page.")]})
        pair_update(
            pair_id=pair.pk,
            actor=actor(request),
            reason=posted(request, "reason"),
            expected_version=int(given["version"]),
            **_read_settings(given),
        )
    except (Stale, InvalidSubmission) as error:
        names = {field: name for name, field, __ in _LENGTHS}
        context = {
            "pair": pairs.pair(code),
            "fields": {**{f"{name}_unit": unit for name, __, unit in _LENGTHS}, **given.dict()},
            "units": UNITS,
            "errors": [(names.get(field, field), text) for field, text in problems(error)],
            "given": given,
        }
        return page(
            request, "console/pairs/pair_settings.html", context, status=409 if isinstance(error, Stale) else 422
        )
    notices.success(request, _("The settings of {pair} are changed.").format(pair=pair.code))
    return see_other(f"{reverse('console:pair', args=[code])}?tab=settings")


def _read_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `pair_update`. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    values: dict[str, Any] = {"runbook": given.get("runbook", "")}
    for name, field, __ in _LENGTHS:
        text, unit = given.get(name, "").strip(), given.get(f"{name}_unit", "")
        if not text:
            values[field] = 0
        elif _is_number(text) and len(text) < 8 and unit in dict(UNITS):
            values[field] = int(text) * int(unit)
        else:
            errors[name] = [_("A whole number and its unit; leave it empty for none.")]
    if errors:
        raise InvalidSubmission(errors)
    return values


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# --- partners' servers that could not be reached lately ---

PRESETS = (
    gettext_lazy("Partner says that the server is up"),
    gettext_lazy("Address or firewall corrected"),
    gettext_lazy("Check whether it is back"),
)


@requires("pairs:read")
def circuit_list(request: HttpRequest) -> HttpResponse:
    """What is left alone first, then what has only failed."""
    rows = circuits.rows(circuits.circuits())
    operates = "pairs:operate" in person(request).scopes
    context = {"rows": rows, "table": tables.circuits(rows, operates=operates)}
    return page(request, "console/pairs/circuits.html", context, live="live-circuits")


@requires("pairs:operate", methods=("GET", "POST"))
def circuit_try(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and letting the next attempt through."""
    row = circuits.rows([circuits.circuit(reference)])[0]
    address, href = row.circuit.address, reverse("console:circuits")

    def do() -> HttpResponse:
        circuit_reset(circuit_id=reference, actor=actor(request), reason=posted(request, "reason"))
        notices.success(request, _("The next attempt to {address} is let through.").format(address=address))
        return see_other(href)

    def shown() -> dict[str, Any]:
        return {
            "title": _("Try {address} now").format(address=address),
            "heading": format_html(_('Try <span class="mono">{address}</span> now'), address=address),
            "crumbs": [(href, _("Servers"))],
            "row": row,
            "presets": PRESETS,
        }

    return dialog(request, "console/pairs/circuit_try_form.html", shown, do)
