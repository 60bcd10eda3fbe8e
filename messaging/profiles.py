"""Which wire profile a pair speaks, and what people can do to one: below services and selectors, because both ask."""

from __future__ import annotations

from messaging.choices import Direction
from messaging.models import Pair
from messaging.protocol.sender import REFUSALS, Flow, Kind
from partners import registry
from partners.choices import Profile
from partners.terms import Terms


def is_repeatable(terms: Terms) -> bool:
    """Whether messages under these terms are requests with an id and a first-instance time."""
    return terms.profile == Profile.REPEATABLE


def is_stream(terms: Terms) -> bool:
    """Whether messages under these terms go as transactional streams (spec 3)."""
    return terms.profile == Profile.STREAM


def in_flight_limit(terms: Terms) -> int:
    """How many requests of a pair may be on their way at once."""
    return 1 if terms.ordered else terms.max_in_flight


def terms_in_force(pair: Pair) -> Terms | None:
    """The terms that new messages of the pair go under; None when no agreement in force uses it."""
    theirs, ours = pair.receiver_uri, pair.sender_uri
    if pair.direction == Direction.IN:
        theirs, ours = ours, theirs
    found = registry.current().by_uri_pair(theirs, ours)
    return found[0] if found else None


def carries_requests(pair: Pair, terms: Terms | None) -> bool:
    """Whether the pair has repeatable requests (spec 2) rather than ebXML messages: what is in flight says so, and
    without that its `terms`, those in force.
    """
    if pair.in_flight_id is not None or pair.out_now:
        return pair.out_now > 0
    return terms is not None and is_repeatable(terms)


def request_refusal(pair: Pair, kind: Kind) -> str | None:
    """Why a verb of people cannot be used on a pair of repeatable requests now; None when it can."""
    if kind is Kind.RESTART:
        return "Requests of this pair have no sequence numbers, so there is nothing to restart."
    if kind is Kind.RESUME:
        return None if pair.flow == Flow.SUSPENDED else REFUSALS[(Flow.IDLE, kind)]
    if kind is Kind.RETRY_NOW and pair.flow == Flow.SUSPENDED:
        return REFUSALS[(Flow.SUSPENDED, kind)]
    return None if pair.out_now else REFUSALS[(Flow.IDLE, kind)]
