"""Routes, as one declaration: what console and API are made of."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib.humanize.templatetags.humanize import intcomma

from messaging.models import Route
from messaging.resource import Resource, Verb, deletion
from messaging.routing import selectors
from messaging.routing.services import routes

_STAYS = "What was passed on before goes on; repeats of it are answered as before."


def _said(route: Route, verb: Verb) -> Iterator[str]:
    count = selectors.waiting(route) if verb.slug != "enable" else 0
    if count:
        plural, are = ("", "is") if count == 1 else ("s", "are")
        yield f"{intcomma(count)} message{plural} passed on under its agreement {are} not delivered yet."


ROUTES = Resource(
    name="route",
    plural="routes",
    prefix="rt",
    reads="agreements:read",
    changes="agreements:write",
    rows=selectors.routes,
    one=selectors.route,
    order=("name",),
    create=routes.route_create,
    update=routes.route_update,
    possible=lambda route: ("disable", "delete") if route.enabled else ("enable", "delete"),
    state=lambda route: "on" if route.enabled else "off",
    said=_said,
    verbs=(
        Verb(
            "enable",
            "Switch on",
            "power",
            "primary",
            routes.route_enable,
            ("Messages that come from now on take it, unless a more specific route fits them.",),
            "Nothing here is irreversible: switch it off again at any time.",
            ("The next hop is ready", "Used again"),
            "is on",
            "Let a route decide about messages again",
        ),
        Verb(
            "disable",
            "Switch off",
            "power",
            "danger",
            routes.route_disable,
            ("Messages that come from now on do not take it: a less specific route does, or they are refused.", _STAYS),
            "A message that is refused meanwhile is not passed on later; its sender has to send it again.",
            ("Replaced by another route", "The party is our partner now"),
            "is off",
            "Switch a route off: messages that come do not take it",
        ),
        deletion(
            routes.route_delete,
            ("Messages that come from now on take a less specific route, or are refused.", _STAYS),
            "The route is",
            presets=("Not used any more",),
        ),
    ),
)
