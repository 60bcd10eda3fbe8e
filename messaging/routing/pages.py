"""Routes in the console: columns of the list, the form, and what a route's page shows."""

from __future__ import annotations

from typing import Any

from django.forms import RadioSelect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.choices import RouteMode
from messaging.console import cells
from messaging.console.filters import Filter
from messaging.console.forms import AgreementField, Group, SettingsForm
from messaging.console.resource import Column, ListPage, Pages, table
from messaging.messages.selectors import relatives
from messaging.models import Message, Route
from messaging.pairs.selectors import screens
from messaging.routing import selectors
from messaging.routing.resource import ROUTES
from messaging.routing.services.routes import SETTINGS
from messaging.templatetags.hub import ago, middle, state
from rmhub import clock
from rmhub.language import gettext_lazy, pgettext_lazy


def _name(route: Route) -> SafeString:
    href = reverse("console:route", args=[route.public_id])
    return format_html('<a class="strong" id="route-{}" href="{}">{}</a>', route.public_id, href, route.name)


def _service(route: Route) -> SafeString:
    if not route.service:
        return format_html('<span class="text-soft">{}</span>', _("every service"))
    return format_html('<span class="mono">{}</span>', route.service)


def _next_hop(route: Route) -> SafeString:
    return format_html(
        '<a href="{}">{}</a><div class="text-faint">{}</div>',
        reverse("console:agreement", args=[route.onward.public_id]),
        middle(route.onward.tpa_id, 36),
        _("with {name}").format(name=route.onward.partner),
    )


def _party(route: Route) -> SafeString:
    return format_html('<span class="text-faint">{}</span> {}', route.party_context, route.party_value)


LIST = ListPage(
    lead=gettext_lazy(
        "The next hop of messages for parties that are not ours. Header and documents are passed on as they came; each "
        "hop adds a routing header."
    ),
    caption=gettext_lazy("Routes by name"),
    columns=(
        Column(gettext_lazy("State"), lambda route: state("route", ROUTES.state(route)), "nowrap"),
        Column(gettext_lazy("Route"), _name),
        Column(gettext_lazy("To-party"), _party, "mono wrap"),
        Column(gettext_lazy("Service"), _service, "wrap"),
        Column(gettext_lazy("Next hop"), _next_hop),
        Column(
            pgettext_lazy("message", "Acknowledged"),
            lambda route: (
                _("when the next hop has") if route.mode == RouteMode.CONFIRM_THROUGH else _("when stored here")
            ),
        ),
    ),
    filters=(
        Filter("q", gettext_lazy("Name, To-party or service"), "q", kind="search"),
        Filter(
            "state",
            gettext_lazy("State"),
            "enabled",
            {"on": True, "off": False},
            (("", gettext_lazy("On and off")), ("on", gettext_lazy("On")), ("off", gettext_lazy("Off"))),
        ),
    ),
    icon="arrow-forward-up",
    none_yet=gettext_lazy("No route yet."),
    what_then=gettext_lazy("Messages for parties that are not ours are refused. Create a route to pass them on."),
)


class RouteForm(SettingsForm):
    """The settings of a route."""

    groups = (
        Group(gettext_lazy("Route"), ("name",)),
        Group(
            gettext_lazy("Which messages"),
            ("party_context", "party_value", "service"),
            gettext_lazy("Messages for a party that is not ours, under the agreement with the previous hop."),
        ),
        Group(gettext_lazy("Where they go"), ("onward", "mode")),
        Group(gettext_lazy("Limits"), ("max_hops", "min_retry_secs")),
    )
    note = gettext_lazy("What was passed on already goes on as it was taken.")
    placeholders = {"party_context": "DUNS", "party_value": "123456789", "service": "urn:orders"}
    onward = AgreementField(Route.onward, missing=gettext_lazy("Choose the agreement with the next hop."))

    class Meta:
        model = Route
        fields = SETTINGS
        widgets = {"mode": RadioSelect}


def _taken(message: Message) -> SafeString:
    return format_html('{} <span class="text-soft">{}</span>', cells.message(message, 28), message.action)


def _origin(message: Any) -> SafeString:
    one = message.origin
    if not one:
        return cells.span("text-faint", _("left the store"))
    said = cells.joined(one.pair.partner, cells.hidden(_(": {id} as it came").format(id=message.message_id)))
    return cells.link(cells.to("message", one.public_id), said)


_LATELY = (
    Column(gettext_lazy("Taken"), lambda message: ago(message.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("Message"), _taken),
    Column(gettext_lazy("Came from"), _origin),
    Column(
        gettext_lazy("State at the next hop"),
        lambda message: state("message", message.state),
        "nowrap",
        narrow=gettext_lazy("State"),
    ),
)


def _shown(route: Route) -> dict[str, Any]:
    pair = relatives.onward_pair(route.onward)
    lately = relatives.lately(pair) if pair is not None else []
    said = _("The newest messages that were passed on to this next hop")
    return {
        "warnings": selectors.warnings(route),
        "waiting": selectors.waiting(route),
        "pair": next(iter(screens.pair_rows([pair], clock.now())), None) if pair is not None else None,
        "lately": lately,
        "table": table(said, _LATELY, lately, about=lambda message: {"data-testid": "passed-on"}),
        "audit": screens.audit_of(route),
    }


PAGES = Pages(
    resource=ROUTES,
    listing=LIST,
    form=RouteForm,
    template="console/routing/route.html",
    shown=_shown,
    now=lambda route: _("Messages for {party}").format(party=f"{route.party_context} {route.party_value}"),
    made=gettext_lazy("decides about messages from now on."),
)
