"""Where messages for parties that are not ours go next (spec 1, 4.1; wire-ebxml 1.8).

Routes are few and messages are many, so they are kept in memory like agreements are: `routes` counts as a
write of those, so that a change is seen by every process within about a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from messaging import profile
from messaging.choices import RouteMode
from messaging.engine import pairs
from messaging.models import Route
from messaging.protocol.codecs import repeatable
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.envelope import Envelope, ErrorInfo
from messaging.protocol.errors import ErrorCode, Severity
from partners import registry
from partners.registry import Registry
from partners.terms import Principal, Terms

_TO = "/ebXMLHeader/Header/To"
_CHAIN = "/ebXMLHeader/RoutingHeader"


@dataclass(frozen=True, slots=True)
class Entry:
    """A route as it is used. `onward`: the terms in force with the next hop; None while there are none."""

    name: str
    mode: str
    max_hops: int
    min_retry_secs: int
    onward: Terms | None


@dataclass(frozen=True, slots=True)
class Road:
    """What is known of the way of one message for somebody else, before anything is locked.

    `hop`: the agreement with the hop that brought it. `refusal`: why it is not taken, if it is new; of one that is
    stored already every copy is acknowledged, whatever became of the route.
    """

    hop: Terms
    entry: Entry | None
    pair_id: uuid.UUID | None = None
    refusal: ErrorInfo | None = None

    @property
    def confirms_through(self) -> bool:
        """Whether the previous hop is acknowledged only when the next one has acknowledged."""
        return self.entry is not None and self.entry.mode == RouteMode.CONFIRM_THROUGH

    @property
    def onward(self) -> Terms:
        """The terms with the next hop, of a road that is not refused and leads somewhere now."""
        assert self.entry is not None and self.entry.onward is not None
        return self.entry.onward


Table = Mapping[tuple[str, str, str], Entry]
_known: tuple[Registry, Table] | None = None


def table() -> Table:
    """All enabled routes by To-party (type, value) and service ("" = every one); one query after a change."""
    global _known
    snapshot = registry.current()
    if _known is None or _known[0] is not snapshot:
        active = {terms.agreement_id: terms for terms in snapshot.active()}
        _known = (
            snapshot,
            {
                (route.party_context, route.party_value, route.service): Entry(
                    route.name, route.mode, route.max_hops, route.min_retry_secs, active.get(route.onward_id)
                )
                for route in Route.objects.filter(enabled=True)
            },
        )
    return _known[1]


def entry_for(parties: Iterable[tuple[str, str]], service: str) -> Entry | None:
    """The most specific enabled route: party and service before the party alone."""
    known = table()
    if not known:
        return None
    wanted = list(parties)
    for of in (service, ""):
        for context, value in wanted:
            entry = known.get((context, value, of))
            if entry is not None:
                return entry
    return None


def road(envelope: Envelope, principal: Principal, terms: Terms | None) -> Road | None:
    """The road of a Normal message that the principal brought; None for one that is ours, or nobody's.

    `terms`: those of the agreement that it names, if we have that. The hop's agreement is found by who brought it and
    by the two URIs of the last RoutingHeader, not by TPAId: the one that the message names is between others.
    """
    to = [(party.context, party.value) for party in envelope.to_parties]
    if not to:
        return None
    if terms is not None and terms.hop_party_id == principal.party_id and _shares(to, terms.own_identifiers):
        return None
    hop = _hop(envelope, principal, terms)
    if hop is None or _shares(to, hop.own_identifiers):
        return None
    entry = entry_for(to, envelope.service)
    if entry is None:
        if terms is not None or any(_shares(to, known.own_identifiers) for known in registry.current().active()):
            return None
        names = ", ".join(f"{context}:{value}" for context, value in to)
        return Road(hop, None, refusal=_error(ErrorCode.NOT_SUPPORTED, f"No route leads to {names} from here", _TO))
    if entry.onward is None:
        return Road(hop, entry)
    return Road(hop, entry, pairs.outbound_pair_id(entry.onward), _refusal(envelope, hop, entry, entry.onward))


def road_of_other_profile(
    to: Collection[tuple[str, str]], service: str, message_id: str, sizes: Collection[int], hop: Terms
) -> Road | None:
    """The same for what came by another profile under the agreement `hop`; None for what is ours.

    `to`: the identifiers that name its receiver; none means us. `sizes`: of its payloads, in bytes.
    """
    if not to or _shares(to, hop.own_identifiers):
        return None
    entry = entry_for(to, service)
    if entry is None:
        names = ", ".join(f"{context}:{value}" for context, value in to)
        return Road(hop, None, refusal=_error(ErrorCode.NOT_SUPPORTED, f"No route leads to {names} from here", _TO))
    if entry.onward is None:
        return Road(hop, entry)
    onward = entry.onward
    refusal = None
    if onward.agreement_id == hop.agreement_id:
        text = f"The message came from {onward.hop_party_name}, where its route leads to"
        refusal = _error(ErrorCode.DELIVERY_FAILURE, text, _TO)
    return Road(hop, entry, pairs.outbound_pair_id(onward), refusal or _misfit(message_id, sizes, onward))


def _refusal(envelope: Envelope, hop: Terms, entry: Entry, onward: Terms) -> ErrorInfo | None:
    """Why the message is never passed on: a loop, too many hops, or something that the next hop cannot take."""
    chain = envelope.routing
    receivers = {normalize_uri(one.receiver_uri) for one in chain[:-1]}
    if normalize_uri(hop.own_uri) in receivers:
        return _error(ErrorCode.DELIVERY_FAILURE, f"The message has been at {hop.own_uri} before: a loop", _CHAIN)
    been = receivers | {normalize_uri(one.sender_uri) for one in chain}
    if normalize_uri(onward.partner_uri) in been:
        text = f"The next hop would be {onward.partner_uri}, where the message has been already: a loop"
        return _error(ErrorCode.DELIVERY_FAILURE, text, _CHAIN)
    if len(chain) >= entry.max_hops:
        text = f"The message has had {len(chain)} hops; route {entry.name} allows {entry.max_hops}"
        return _error(ErrorCode.DELIVERY_FAILURE, text, _CHAIN)
    return _misfit(envelope.message_id, [len(payload.content) for payload in envelope.payloads], onward)


def _misfit(message_id: str, sizes: Collection[int], onward: Terms) -> ErrorInfo | None:
    if not profile.of(onward).carries_documents:
        text = f"The way to {onward.hop_party_name} is an agreement of transactions, which carry no documents"
        return _error(ErrorCode.NOT_SUPPORTED, text, "/ebXMLHeader/Manifest")
    if sum(sizes) > onward.max_message_bytes:
        text = f"{sum(sizes)} bytes; {onward.hop_party_name}, the next hop, takes {onward.max_message_bytes}"
        return _error(ErrorCode.DELIVERY_FAILURE, text, "/ebXMLHeader/Manifest")
    if profile.of(onward).answered_at_once:
        if len(sizes) != 1:
            text = f"{len(sizes)} payloads; the way to {onward.hop_party_name} is by HTTP requests, which carry one"
            return _error(ErrorCode.NOT_SUPPORTED, text, "/ebXMLHeader/Manifest")
        if not repeatable.is_id(message_id):
            text = f"The way to {onward.hop_party_name} takes MessageIds of 1 to {repeatable.MAX_ID} ASCII characters"
            return _error(ErrorCode.NOT_SUPPORTED, text, "/ebXMLHeader/Header/MessageData/MessageId")
    return None


def _hop(envelope: Envelope, principal: Principal, terms: Terms | None) -> Terms | None:
    last = envelope.hop
    found = [
        known
        for known in registry.current().by_uri_pair(last.sender_uri, last.receiver_uri)
        if known.hop_party_id == principal.party_id and profile.of(known).numbered
    ]
    named = next((known for known in found if terms is not None and known.version_id == terms.version_id), None)
    return named or (found[0] if found else None)


def _shares(some: Collection[tuple[str, str]], others: Collection[tuple[str, str]]) -> bool:
    return any(one in others for one in some)


def _error(code: ErrorCode, text: str, location: str) -> ErrorInfo:
    return ErrorInfo(code, Severity.ERROR, f"{text}.", location)


def reset() -> None:
    """Forgets the routes that were read (tests)."""
    global _known
    _known = None
