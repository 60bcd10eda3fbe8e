"""Routes: the list, the page, and the dialogs that switch one on or off, or delete it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.messages.selectors import forwards
from messaging.models import Route
from messaging.pairs.selectors import screens
from messaging.routing import selectors
from messaging.routing.services import routes as services
from rmhub import clock

SCOPE = "agreements:write"
_STATES = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class RouteVerb:
    """One verb of `services.routes`. `effects` say what it does."""

    slug: str
    label: str
    icon: str
    colour: str
    service: Callable[..., Route | None]
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    done: str


_STAYS = "What was passed on before goes on; repeats of it are answered as before."
VERBS: dict[str, RouteVerb] = {
    verb.slug: verb
    for verb in (
        RouteVerb(
            "enable",
            "Switch on",
            "power",
            "primary",
            services.route_enable,
            ("Messages that come from now on take it, unless a more specific route fits them.",),
            "Nothing here is final: switch it off again at any time.",
            ("The next hop is ready", "Used again"),
            "is on",
        ),
        RouteVerb(
            "disable",
            "Switch off",
            "power",
            "danger",
            services.route_disable,
            ("Messages that come from now on do not take it: a less specific route does, or they are refused.", _STAYS),
            "A message that is refused meanwhile is not passed on later; its sender has to send it again.",
            ("Replaced by another route", "The party is our partner now"),
            "is off",
        ),
        RouteVerb(
            "delete",
            "Delete",
            "x",
            "danger",
            services.route_delete,
            ("Messages that come from now on take a less specific route, or are refused.", _STAYS),
            "The route is gone for good; the audit log keeps what it was.",
            ("Not used any more",),
            "is deleted",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class RouteButton:
    """A verb on a route's page. `why_not` says which role is missing."""

    verb: RouteVerb
    why_not: str


@requires("agreements:read")
def route_list(request: HttpRequest) -> HttpResponse:
    """All routes, by name."""
    state = request.GET.get("state", "")
    filters = {
        "state": state if state in _STATES else "",
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    found = selectors.routes(search=filters["q"], enabled=_STATES.get(filters["state"]))
    context = keyset_page(request, "console.routes", found, order=("name",), filters=filters)
    context |= {"filters": filters, "filtered": any(filters.values())}
    return page(
        request, "console/routing/routes.html", context, fragments={"live-routes": "console/routing/routes_live.html"}
    )


@requires("agreements:read")
def route_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One route: what is the matter with it, the next hop, and what was passed on lately."""
    route = selectors.route(read_id("rt", reference))
    pair = forwards.onward_pair(route.onward)
    context = {
        "route": route,
        "state": "on" if route.enabled else "off",
        "warnings": selectors.warnings(route),
        "waiting": selectors.waiting(route),
        "pair": next(iter(screens.pair_rows([pair], clock.now())), None) if pair is not None else None,
        "lately": forwards.lately(pair) if pair is not None else [],
        "buttons": _buttons(route, person(request)),
        "audit": screens.audit_of(route),
    }
    return page(
        request, "console/routing/route.html", context, fragments={"live-route": "console/routing/route_live.html"}
    )


@requires(SCOPE, methods=("GET", "POST"))
def route_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame of the route's page. POST: does it, or says why not."""
    chosen = VERBS.get(verb)
    route = selectors.route(read_id("rt", reference))
    if chosen is None:
        raise Http404(f"There is no verb {verb} for routes.")
    if request.method == "GET":
        return _dialog(request, route, chosen)
    version = request.POST.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 19):
        errors = [("", "This form is not complete: open it again from the route's page.")]
        return _dialog(request, route, chosen, errors=errors, status=422)
    try:
        chosen.service(
            route_id=route.pk,
            actor=actor(request),
            reason=request.POST.get("reason", "").strip().replace("\x00", ""),
            expected_version=int(version),
        )
    except (Stale, WrongState) as error:
        return _dialog(request, selectors.route(route.pk), chosen, errors=problems(error), status=409)
    except InvalidSubmission as error:
        return _dialog(request, route, chosen, errors=problems(error), status=422)
    notices.success(request, f"{route.name} {chosen.done}.")
    return see_other("console:routes") if verb == "delete" else see_other("console:route", route.public_id)


def _possible(route: Route) -> tuple[str, ...]:
    return ("disable", "delete") if route.enabled else ("enable", "delete")


def _buttons(route: Route, who: Person) -> list[RouteButton]:
    missing = who.lacks(SCOPE)
    why_not = f"Needs the role {missing}." if missing else ""
    return [RouteButton(VERBS[slug], why_not) for slug in _possible(route)]


def _dialog(
    request: HttpRequest,
    route: Route,
    verb: RouteVerb,
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    possible = verb.slug in _possible(route)
    waiting = selectors.waiting(route)
    context: dict[str, Any] = {
        "route": route,
        "state": "on" if route.enabled else "off",
        "verb": verb,
        "possible": possible,
        "why_not": "" if possible else f"The route is {'on' if route.enabled else 'off'} now.",
        "waiting": waiting if verb.slug != "enable" else 0,
        "errors": errors or [],
        "given": request.POST,
    }
    fragments = {"dialog": "console/routing/route_verb_form.html"}
    return page(request, "console/routing/route_verb.html", context, fragments=fragments, status=status)
