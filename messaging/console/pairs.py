"""Pairs: the list, the page, and the dialogs of their verbs."""

from __future__ import annotations

from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse

from messaging.choices import Direction
from messaging.console.access import actor, person, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.console.verbs import VERBS, PairVerb, buttons, service
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.models import Pair
from messaging.selectors import pairs, screens
from messaging.selectors.screens import PairScreen
from messaging.selectors.wording import span
from rmhub import clock

_ORDER = ("severity", "code")


@requires("pairs:read")
def pair_list(request: HttpRequest) -> HttpResponse:
    """All pairs, the ones that need somebody first."""
    filters = {
        "state": _known(request.GET.get("state", ""), pairs.STATE_NAMES),
        "direction": _known(request.GET.get("direction", ""), Direction.values),
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    found = pairs.pairs(
        states=(filters["state"],) if filters["state"] else (), direction=filters["direction"], search=filters["q"]
    )
    context = keyset_page(request, "console.pairs", found, order=_ORDER, filters=filters)
    context["rows"] = screens.pair_rows(context["rows"], clock.now())
    counts = screens.counts_by_state()
    context |= {"filters": filters, "counts": counts, "total": sum(counts.values()), "directions": Direction.choices}
    return page(request, "console/pairs.html", context, fragments={"live-pairs": "console/pairs_live.html"})


@requires("pairs:read")
def pair_page(request: HttpRequest, code: str) -> HttpResponse:
    """One pair: what is the matter, what can be done, and what was done."""
    screen = screens.pair_screen(pairs.pair(code), clock.now())
    context = {"screen": screen, "pair": screen.pair, "buttons": buttons(screen, person(request))}
    return page(request, "console/pair.html", context, fragments={"live-pair": "console/pair_live.html"})


def _scope(parameters: dict[str, Any]) -> str:
    verb = VERBS.get(parameters["verb"])
    # An unknown verb is answered 404 to whoever may see pairs at all.
    return verb.scope if verb else "pairs:read"


@requires(_scope, methods=("GET", "POST"))
def pair_verb(request: HttpRequest, code: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame of the pair's page. POST: does it, or says why not."""
    chosen = VERBS.get(verb)
    screen = screens.pair_screen(pairs.pair(code), clock.now())
    possible = {state.slug for state in screen.verbs}
    if possible & {"pause", "release"}:  # the other one may be in a form that was opened before
        possible |= {"pause", "release"}
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
    return see_other("console:pair", code)


def _do(request: HttpRequest, pair: Pair, verb: PairVerb) -> None:
    more: dict[str, Any] = {}
    if verb.slug == "expect-sequence":
        more["expected"] = int(request.POST["expected"])
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
        "upcoming": screen.queue[:5],
        "incident": next((one for one in screen.incidents if one.state != "resolved"), None),
    }
    return page(request, "console/verb.html", context, fragments={"dialog": "console/verb_form.html"}, status=status)


def _faster(screen: PairScreen, error: Stale | WrongState) -> str:
    """Who changed the pair while this form was open, if it was a person."""
    if isinstance(error, Stale) and screen.audit:
        entry = screen.audit[0]
        ago = span((clock.now() - entry.at).total_seconds())
        return (
            f"{entry.actor} was faster: {entry.verb.removeprefix('pair.').replace('_', ' ')}, {ago} ago: {entry.reason}"
        )
    return ""


def _known(text: str, allowed: Any) -> str:
    return text if text in allowed else ""
