"""Routes for screens and the API, and what is wrong with one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from messaging import profile
from messaging.choices import Direction, RouteMode
from messaging.models import Message, Pair, Route
from messaging.models.base import existing
from messaging.models.message import WAITED_FOR
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.pair_state import Flow, Gate
from partners import registry
from partners.fields import duration
from partners.models import Party
from partners.rules.rule import (
    give_up_seconds,
)
from partners.terms import Terms
from partners.visibility import allows, limit
from rmhub.language import gettext_lazy

_BLOCKED = {
    Gate.PAUSED.value: gettext_lazy("{pair} is paused: it accepts no new messages now."),
    Gate.DISABLED.value: gettext_lazy("{pair} is disabled: it accepts no new messages now."),
    Flow.SUSPENDED.value: gettext_lazy("{pair} is suspended: it accepts no new messages now."),
}


@dataclass(frozen=True, slots=True)
class Warning:
    """Something about a route that a person should know; it is used all the same. `code` is stable."""

    field: str
    code: str
    sentence: str


def routes(*, q: str = "", enabled: bool | None = None) -> QuerySet[Route]:
    """Routes with their agreements and those parties, by name."""
    found = limit(Route.objects.select_related("onward__own_party", "onward__partner"), "onward__partner")
    found = found.order_by("name")
    if q:
        words = Q(name__icontains=q) | Q(party_value__icontains=q) | Q(service__icontains=q)
        found = found.filter(words | Q(onward__tpa_id__icontains=q))
    return found if enabled is None else found.filter(enabled=enabled)


def route(route_id: uuid.UUID) -> Route:
    """One route with its agreement and parties. Raises NotFound."""
    return existing(routes(), route_id)


def waiting(route: Route) -> int:
    """How many messages that came from a previous hop have not been delivered under the route's agreement yet."""
    terms = _in_force(route)
    if terms is None:
        return 0
    pair = _pair(terms)
    if pair is None:
        return 0
    return Message.objects.filter(pair=pair, forwarded_from__isnull=False, standing__in=WAITED_FOR).count()


def warnings(route: Route) -> list[Warning]:
    """What keeps the route from working, or is probably not meant. A handful of queries."""
    return [*_of_party(route), *_of_onward(route)]


def _of_party(route: Route) -> Iterator[Warning]:
    who = (route.party_context, route.party_value)
    known = limit(Party.objects.all(), "pk").filter(identifiers__context=who[0], identifiers__value=who[1]).first()
    if known is not None and known.is_own:
        sentence = _(
            "{party} is one of our parties: what comes under its own agreements stays here, and only the rest goes on."
        ).format(party=known)
        yield Warning("party_value", "party_is_ours", sentence)


def _of_onward(route: Route) -> Iterator[Warning]:
    terms = _in_force(route)
    if terms is None:
        sentence = _(
            "Agreement {agreement} is not in force: the previous hops are asked to send again in {time}. Activate or "
            "enable a version of it."
        ).format(agreement=route.onward.tpa_id, time=duration(route.min_retry_secs))
        yield Warning("onward", "onward_not_in_force", sentence)
        return
    pair = _pair(terms)
    if pair is not None and (pair.gate != Gate.OPEN or pair.flow == Flow.SUSPENDED):
        state = pair.gate if pair.gate != Gate.OPEN else pair.flow
        yield Warning("onward", "onward_pair_blocked", _BLOCKED[state].format(pair=pair.code))
    if not profile.of(terms).carries_documents:
        sentence = _(
            "Agreement {agreement} is one of transactions, which carry no documents: each one is refused."
        ).format(agreement=terms.tpa_id)
        yield Warning("onward", "onward_of_transactions", sentence)
        return
    if profile.of(terms).answered_at_once:
        sentence = _(
            "Agreement {agreement} sends HTTP requests: a message without exactly one payload is refused."
        ).format(agreement=terms.tpa_id)
        yield Warning("onward", "one_payload_only", sentence)
    if route.mode == RouteMode.CONFIRM_THROUGH:
        yield from _of_waiting(terms)


def _of_waiting(terms: Terms) -> Iterator[Warning]:
    """Who waits for the next hop's acknowledgement must not give up before it has had all its attempts (C9)."""
    needed = give_up(terms)
    short = [
        before.tpa_id
        for before in registry.current().active()
        if before.agreement_id != terms.agreement_id and profile.of(before).numbered and before.timeout <= needed
        if allows(before.partner_id)
    ]
    if short:
        named = ", ".join(short[:5]) + (" ..." if len(short) > 5 else "")
        sentence = _(
            "Agreement {agreement} gives up after {time} only, and messages are acknowledged when the next hop has "
            "acknowledged: previous hops with a Timeout of {time} or less repeat meanwhile, or give up too early. That "
            "is so in {others}: agree on a longer Timeout there, or a shorter one here."
        ).format(agreement=terms.tpa_id, time=duration(needed), others=named)
        yield Warning("mode", "confirm_through_too_slow", sentence)
    speaking = ((other, profile.of(other)) for other in registry.current().active() if other != terms)
    if any(one.carries_documents and not (one.numbered or one.acknowledged_singly) for _, one in speaking):
        sentence = _(
            "Streams and HTTP requests are acknowledged when they are stored here, whatever the route's mode is: "
            "nothing of them can be kept back."
        )
        yield Warning("mode", "confirm_through_ebxml_only", sentence)


def give_up(terms: Terms) -> int:
    """Seconds from the first send under these terms until the pair gives up, or the message is in doubt."""
    if profile.of(terms).answered_at_once:
        return terms.partner_window
    if profile.of(terms).windowed:
        waits = terms.resend_schedule
        return sum(waits[min(index, len(waits) - 1)] for index in range(terms.retries + 1))
    return give_up_seconds(terms)


def _in_force(route: Route) -> Terms | None:
    return next((t for t in registry.current().active() if t.agreement_id == route.onward_id), None)


def _pair(terms: Terms) -> Pair | None:
    ours, theirs = normalize_uri(terms.own_uri), normalize_uri(terms.partner_uri)
    return Pair.objects.filter(direction=Direction.OUT, sender_uri=ours, receiver_uri=theirs).first()
