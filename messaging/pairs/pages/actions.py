"""What can be done to a pair: the dialogs of its verbs, a look at the partner's endpoint, its settings, a copy of what
waits.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from messaging.console.access import actor, person, requires
from messaging.console.rendering import after, page, problems, see_other
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.journal.audit import HEAVY_REASON
from messaging.journal.wording import span
from messaging.models import Pair
from messaging.pairs.pages.settings import read_settings, settings_fields
from messaging.pairs.pages.verbs import VERBS, PairVerb, service
from messaging.pairs.selectors import pairs, screens
from messaging.pairs.selectors.screens import PairScreen
from messaging.pairs.services import exporting, probing
from messaging.pairs.services.settings import pair_update
from rmhub import clock


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
        raise Http404(f"There is no verb {verb} for this pair.")
    if request.method == "GET":
        return _dialog(request, screen, chosen)
    errors = _checked(request, screen.pair, chosen)
    if errors:
        return _dialog(request, screen, chosen, errors=errors, status=422)
    try:
        _do(request, screen.pair, chosen)
    except (Stale, WrongState) as error:
        screen = screens.pair_screen(pairs.pair(code), clock.now())
        return _dialog(request, screen, chosen, errors=problems(error), faster=_faster(screen, error), status=409)
    except InvalidSubmission as error:
        return _dialog(request, screen, chosen, errors=problems(error), status=422)
    notices.success(request, f"{screen.pair.code} is {chosen.said(screen)}.")
    return see_other(after(request)) if request.POST.get("next") else see_other("console:pair", code)


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
        notices.success(request, "The partner answers.")
    else:
        notices.error(request, "The partner could not be reached as it should be: see the steps.")
    return see_other(f"{reverse('console:pair', args=[code])}?{urlencode({'pinged': report.public_id})}#probe")


@requires("pairs:operate", methods=("POST",))
def pair_settings(request: HttpRequest, code: str) -> HttpResponse:
    """Rhythm and run-book, from the tab Settings."""
    pair = pairs.pair(code)
    version = request.POST.get("version", "")
    errors: list[tuple[str, str]] = []
    status = 422
    try:
        if not version.isascii() or not version.isdigit():
            raise InvalidSubmission({"": ["This form is not complete: open it again from the pair's page."]})
        values = read_settings(request.POST)
        pair_update(
            pair_id=pair.pk,
            actor=actor(request),
            reason=request.POST.get("reason", "").strip().replace("\x00", ""),
            expected_version=int(version),
            **values,  # type: ignore[arg-type]
        )
    except Stale as error:
        errors, status = problems(error), 409
    except InvalidSubmission as error:
        errors = problems(error)
    if errors:
        screen = screens.pair_screen(pairs.pair(code), clock.now())
        context = {
            "screen": screen,
            "pair": screen.pair,
            "fields": settings_fields(screen.pair, request.POST),
            "errors": [(_FIELDS.get(field, field), text) for field, text in errors],
            "given": request.POST,
        }
        return page(request, "console/pairs/pair_settings.html", context, status=status)
    notices.success(request, f"The settings of {pair.code} are changed.")
    return see_other(f"{reverse('console:pair', args=[code])}?tab=settings")


# The service's names of settings -> the form's.
_FIELDS = {"expected_every": "every", "silence_grace": "grace"}


@requires("payloads:read")
def pair_export(request: HttpRequest, code: str) -> HttpResponseBase:
    """What waits on the pair, or (`which=head`) what is first in line, as a ZIP file."""
    pair = pairs.pair(code)
    which = "head" if request.GET.get("which") == "head" else "queue"
    try:
        who = person(request)
        export = exporting.pair_export(pair_id=pair.pk, actor=actor(request), role=who.role, which=which)
    except WrongState as error:
        notices.error(request, error.detail)
        return see_other("console:pair", code)
    return StreamingHttpResponse(
        export.chunks,
        content_type="application/zip",
        headers={
            "Content-Disposition": f'attachment; filename="{export.filename}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def _do(request: HttpRequest, pair: Pair, verb: PairVerb) -> None:
    more: dict[str, Any] = {}
    if verb.slug == "expect-sequence":
        more["expected"] = int(request.POST["expected"])
    if verb.slug == "resume":
        more["mode"] = request.POST.get("mode", "all")
    service(verb.slug)(
        pair_id=pair.pk,
        actor=actor(request),
        reason=request.POST.get("reason", "").strip(),
        expected_version=int(request.POST["version"]),
        **more,
    )


def _checked(request: HttpRequest, pair: Pair, verb: PairVerb) -> list[tuple[str, str]]:
    """What the form itself can tell; the rest is the service's to say."""
    errors = []
    if not request.POST.get("version", "").isascii() or not request.POST.get("version", "").isdigit():
        errors.append(("", "This form is not complete: open it again from the pair's page."))
    if verb.long_reason and len(request.POST.get("reason", "").strip()) < HEAVY_REASON:
        errors.append(("reason", f"Say why, in at least {HEAVY_REASON} characters: it cannot be taken back."))
    if "\x00" in request.POST.get("reason", ""):
        errors.append(("reason", "There is a control character in this text: take it out."))
    expected = request.POST.get("expected", "")
    if verb.slug == "expect-sequence" and not (expected.isascii() and expected.isdigit() and len(expected) < 10):
        errors.append(("expected", "A number from 1 to 999999999."))
    if verb.heavy and request.POST.get("confirm", "").strip().upper() != pair.code.upper():
        errors.append(("confirm", f"Type {pair.code} to show that you mean this pair."))
    return errors


def _dialog(
    request: HttpRequest,
    screen: PairScreen,
    verb: PairVerb,
    *,
    errors: list[tuple[str, str]] | None = None,
    faster: str = "",
    status: int = 200,
) -> HttpResponse:
    state = next((state for state in screen.verbs if state.slug == verb.slug), None)
    context = {
        "screen": screen,
        "pair": screen.pair,
        "verb": verb,
        "effects": verb.effects(screen),
        "possible": state is not None and state.enabled,
        "why_not": state.why_not if state is not None else f"The pair is {screen.look.label.lower()} now.",
        "errors": errors or [],
        "faster": faster,
        "given": request.POST,
        "next": after(request) if request.GET.get("next") or request.POST.get("next") else "",
        "upcoming": screen.queue[:5],
        "lacks_payloads": person(request).lacks("payloads:read"),
        "incident": screens.incident_of(screen.pair, screen.incidents),
    }
    return page(
        request, "console/pairs/verb.html", context, fragments={"dialog": "console/pairs/verb_form.html"}, status=status
    )


def _faster(screen: PairScreen, error: Stale | WrongState) -> str:
    """Who changed the pair while this form was open, if it was a person."""
    if isinstance(error, Stale) and screen.audit:
        entry = screen.audit[0]
        ago = span((clock.now() - entry.at).total_seconds())
        return (
            f"{entry.actor} was faster: {entry.verb.removeprefix('pair.').replace('_', ' ')}, {ago} ago: {entry.reason}"
        )
    return ""
