"""What engine, entrance and rooms ask a wire profile: each folder of `messaging/profiles` has one that answers.

It is below services and selectors, because both ask.
"""

from __future__ import annotations

import importlib
from datetime import datetime
from functools import cache

from messaging.choices import Direction
from messaging.models import Message, Pair
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS
from partners import registry
from partners.choices import Profile as Name
from partners.choices import Semantics
from partners.terms import Terms


class Profile:
    """A wire protocol with its rules. What a profile does not say itself is as ebXML has it (spec 1)."""

    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        """Puts a message, which has its place, into the queue of its pair. Call with the pair's lock held; the caller
        saves both.
        """
        raise NotImplementedError

    def let_go(self, pair: Pair, now: datetime) -> None:
        """Makes due what waits in flight behind a pair that goes on. Call with its lock held."""


@cache
def named(name: str) -> Profile:
    """The profile that an agreement names."""
    profile = importlib.import_module(f"messaging.profiles.{name}.profile").PROFILE
    assert isinstance(profile, Profile)
    return profile


def of(terms: Terms) -> Profile:
    """The profile of messages under these terms."""
    return named(terms.profile)


def carried(pair: Pair, terms: Terms | None) -> Profile:
    """The profile of what a pair has in flight, and without that of its `terms`, those in force."""
    if carries_transactions(pair, terms):
        return named(Name.WSAT)
    if carries_stream(pair, terms):
        return named(Name.STREAM)
    return named(Name.REPEATABLE if carries_requests(pair, terms) else Name.EBXML)


def is_repeatable(terms: Terms) -> bool:
    """Whether messages under these terms are requests with an id and a first-instance time."""
    return terms.profile == Name.REPEATABLE


def is_stream(terms: Terms) -> bool:
    """Whether messages under these terms go as transactional streams (spec 3)."""
    return terms.profile == Name.STREAM


def is_atomic(terms: Terms) -> bool:
    """Whether messages under these terms are those of atomic transactions (spec 5)."""
    return terms.profile == Name.WSAT


def in_stream(message: Message) -> bool:
    """Whether a message whose agreement version is loaded has, or gets, a place in a transactional stream."""
    return message.agreement_version.profile == Name.STREAM and message.semantics == Semantics.ONCE_AND_ONLY_ONCE


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
    if carries_stream(pair, terms):
        return False
    if pair.in_flight_id is not None or pair.out_now:
        return pair.out_now > 0
    return terms is not None and is_repeatable(terms)


def carries_stream(pair: Pair, terms: Terms | None) -> bool:
    """Whether the pair has a transactional stream (spec 3) under its `terms`, those in force."""
    return pair.in_flight_id is None and terms is not None and is_stream(terms)


def carries_transactions(pair: Pair, terms: Terms | None) -> bool:
    """Whether the pair has messages of atomic transactions (spec 5) under its `terms`, those in force."""
    return pair.in_flight_id is None and not pair.out_now and terms is not None and is_atomic(terms)


def transaction_refusal(pair: Pair, kind: Kind) -> str | None:
    """Why a verb of people cannot be used on a pair with messages of transactions; None when it can."""
    if kind is Kind.RETRY_NOW:
        return None
    if kind is Kind.RESUME:
        return None if pair.flow == Flow.SUSPENDED else REFUSALS[(Flow.IDLE, kind)]
    if kind is Kind.SKIP:
        return "Messages of transactions do not wait for each other: cancel one by itself, or settle its participant."
    return "Messages of transactions have no sequence numbers, so there is nothing to restart."


def request_refusal(pair: Pair, kind: Kind) -> str | None:
    """Why a verb of people cannot be used on a pair of repeatable requests now; None when it can."""
    if kind is Kind.RESTART:
        return "Requests of this pair have no sequence numbers, so there is nothing to restart."
    if kind is Kind.RESUME:
        return None if pair.flow == Flow.SUSPENDED else REFUSALS[(Flow.IDLE, kind)]
    if kind is Kind.RETRY_NOW and pair.flow == Flow.SUSPENDED:
        return REFUSALS[(Flow.SUSPENDED, kind)]
    return None if pair.out_now else REFUSALS[(Flow.IDLE, kind)]


def stream_refusal(pair: Pair, kind: Kind) -> str | None:
    """Why a verb of people cannot be used on a pair with a stream now, as far as its row says; None when it can."""
    suspended = pair.flow == Flow.SUSPENDED
    if kind is Kind.RESUME:
        return None if suspended else REFUSALS[(Flow.IDLE, kind)]
    if kind is Kind.RESTART:
        return REFUSALS[(Flow.AWAITING_ACK, kind)] if pair.out_now and not suspended else None
    if kind is Kind.RETRY_NOW and suspended:
        return REFUSALS[(Flow.SUSPENDED, kind)]
    return None if pair.out_now else REFUSALS[(Flow.IDLE, kind)]
