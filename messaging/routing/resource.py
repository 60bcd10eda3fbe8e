"""Routes, as one declaration: what console and API are made of."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext_noop, ngettext

from messaging.models import Route
from messaging.resource import Resource, Verb, deletion
from messaging.routing import selectors
from messaging.routing.services import routes
from rmhub.language import gettext_lazy as _
from rmhub.language import number

_STAYS = _("What was passed on before goes on; repeats of it are answered as before.")


def _said(route: Route, verb: Verb) -> Iterator[str]:
    count = selectors.waiting(route) if verb.slug != "enable" else 0
    if count:
        yield ngettext(
            "{count} message passed on under its agreement is not delivered yet.",
            "{count} messages passed on under its agreement are not delivered yet.",
            count,
        ).format(count=number(count))


ROUTES = Resource(
    name=gettext_noop("route"),
    plural=gettext_noop("routes"),
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
            _("Switch on"),
            "power",
            "primary",
            routes.route_enable,
            (_("Messages that come from now on take it, unless a more specific route fits them."),),
            _("Nothing here is irreversible: switch it off again at any time."),
            (_("The next hop is ready"), _("Used again")),
            _("is on"),
            "Let a route decide about messages again",
        ),
        Verb(
            "disable",
            _("Switch off"),
            "power",
            "danger",
            routes.route_disable,
            (
                _("Messages that come from now on do not take it: a less specific route does, or they are refused."),
                _STAYS,
            ),
            _("A message that is refused meanwhile is not passed on later; its sender has to send it again."),
            (_("Replaced by another route"), _("The party is our partner now")),
            _("is off"),
            "Switch a route off: messages that come do not take it",
        ),
        deletion(
            routes.route_delete,
            (_("Messages that come from now on take a less specific route, or are refused."), _STAYS),
            presets=(_("Not used any more"),),
        ),
    ),
)
