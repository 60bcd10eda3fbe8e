"""What engine, entrance and rooms ask a wire profile: each folder of `messaging/profiles` has one that answers.

It is below services and selectors, because both ask.
"""

from __future__ import annotations

import importlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from django.utils.translation import gettext as _

from messaging.bench import Bench
from messaging.choices import Direction, MessageState, PartnerAnswer
from messaging.claim import Claim, Due, Job, Recorded
from messaging.models import Event, Message, Pair, Payload, Signal
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.codecs.stream import StreamEnvelope
from messaging.protocol.envelope import Envelope, Sought, Wire
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, State
from messaging.protocol.pair_state import Kind
from messaging.transports import Receipt
from partners import registry
from partners.choices import Profile as Name
from partners.terms import Terms

Errors = dict[str, list[str]]


@dataclass(slots=True)
class Acted:
    """What came of a verb of people on a pair: events, and what the audit entry names beside the pair's own state."""

    events: list[Event] = field(default_factory=list)
    named: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is POSTed to the partner's messaging service beside all messages, and not kept."""

    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """What a look at the signature of a message (`signal` None), or of an acknowledgement of it, has found.

    `theirs`: the partner made it; `at`: when it came or first went out. `signer`, `fingerprint`: of the certificate
    (SHA-256); `revoked_at`: of that, when it is by now. `refused`: why it proves nothing, "" when it does.
    """

    signal: Signal | None
    theirs: bool
    at: datetime
    signer: str = ""
    fingerprint: str = ""
    revoked_at: datetime | None = None
    refused: str = ""


class Profile(ABC):
    """A wire protocol with its rules."""

    # One message of a pair is in flight at a time, under a number that a person may set (spec 1).
    numbered = False
    # Several are in flight, and the response to each is its answer: requests, which are remembered (spec 2).
    answered_at_once = False
    # A window of messages is in flight, and answers are cumulative (spec 3).
    windowed = False
    # False: messages of transactions, which no application submits (spec 5).
    carries_documents = True
    # The verbs of people that are offered, whether they can be used now or not.
    verbs = frozenset({Kind.RESUME, Kind.RETRY_NOW, Kind.SKIP, Kind.RESTART})
    # Several are in flight, each with its own timer and its own end; without an answer at once they are acknowledged by
    # messages of their own (ebXML Messaging 2.0).
    one_by_one = False
    # The table of those of its messages that are in flight one by one.
    move: Callable[[str, Happened], State]
    # What it does with test messages.
    bench: Bench
    # Why a person cannot set the number that an inbound pair expects.
    without_number = ""
    # Receipts go where the partner wants its errors, and not where it takes messages.
    answers_apart = False
    # Headers of receipts and Error messages.
    answer_headers: tuple[tuple[str, str], ...] = ()
    # False: outcomes lock messages before their pairs, as whoever stores an answer does (spec 5).
    pairs_first = True

    # Whether the response to a message that is sent once may say more than its status (`hear`).
    hears = False

    @property
    def acknowledged_singly(self) -> bool:
        """Whether each message has an acknowledgement of its own, and several are in flight."""
        return self.one_by_one and not self.answered_at_once

    @abstractmethod
    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        """Puts a message, which has its place, into the queue of its pair. Call with the pair's lock held; the caller
        saves both.
        """

    def let_go(self, pair: Pair, now: datetime) -> None:
        """Makes due what waits in flight behind a pair that goes on, if anything does. Call with its lock held."""
        return

    # What follows from what: the engine asks, in the transaction that claims or records. It moves by itself messages of
    # a pair that has one in flight, and those that are sent once: these are only written here.

    def write(
        self,
        message: Message,
        payloads: Sequence[Payload],
        contents: Sequence[bytes | Sought],
        terms: Terms,
        now: datetime,
    ) -> Wire:
        """The octets of a message that the engine moves. Raises EncodeError, storage.PayloadMissing."""
        raise AssertionError(f"messages under {terms.tpa_id} are written by their profile, not by the engine")

    def fields(self, message: Message, terms: Terms) -> dict[str, Any]:
        """Fields of the Parcel of a message, beside those that come of its agreement."""
        return {"name": name_of("message", message.message_id)}

    def fields_of(self, messages: Mapping[uuid.UUID, tuple[Message, Terms]]) -> dict[uuid.UUID, dict[str, Any]]:
        """The same for messages that were claimed before, of the rows: however many, as many queries as for one."""
        return {key: self.fields(message, terms) for key, (message, terms) in messages.items()}

    def moves(self, message: Message) -> bool:
        """Whether this profile claims the message, times it and records what became of it, and not the engine."""
        return False

    def owe(self, claim: Claim) -> None:
        """Writes the receipts whose time has come, which the same claim sends."""
        return

    def promote(self, pairs: Sequence[Pair], heads: dict[uuid.UUID, Message], claim: Claim) -> list[Pair]:
        """Puts in flight what may go now on those of these locked, due pairs that have several; returns the others.

        `heads`: the first queued message of each; those of its own are taken out. Together they get no more than the
        claim's limit, so that no lease runs out while its job waits for a thread.
        """
        return list(pairs)

    def send_due(self, due: Due, claim: Claim) -> None:
        """Claims messages that it moves itself, or ends them: their own timers have run out, or their leases have."""
        raise AssertionError("a profile that moves messages itself says how")

    def record(
        self,
        outcomes: Sequence[tuple[Job, Receipt]],
        pairs: Mapping[uuid.UUID, Pair],
        now: datetime,
        written: list[Event],
    ) -> Recorded:
        """Writes what came of attempts at messages that it moves itself; `pairs`: theirs, locked, if `pairs_first`."""
        raise AssertionError("a profile that moves messages itself says how")

    def hear(self, message: Message, receipt: Receipt, pair: Pair, now: datetime, written: list[Event]) -> None:
        """Takes what the response to a message that is sent once says (`hears`). Call with both locked."""
        raise AssertionError("a profile that hears says how")

    def held(self, pair: Pair) -> bool:
        """Whether something that was received on the pair waits for its turn."""
        return False

    def hand_on(self, pair: Pair, now: datetime) -> int:
        """Hands on all that waits for its turn, without what is missing before it; how many messages. Call with the
        pair locked.
        """
        return 0

    def last_send(self, message: Message, terms: Terms) -> datetime:
        """When a message in flight one by one, which has been sent first at `first_sent_at`, is sent no more."""
        raise AssertionError(f"messages under {terms.tpa_id} are not in flight one by one")

    def repeat_at(self, message: Message, terms: Terms) -> datetime | None:
        """When a message in flight one by one goes out again by itself; None: it does not, or it is on the wire."""
        waits = message.state in (MessageState.RETRYING, MessageState.AWAITING_ACK)
        if not waits or message.due_at is None or message.expires_at is None or message.due_at >= message.expires_at:
            return None
        return message.due_at

    def restored(self, now: datetime) -> None:
        """The database was replaced by an older one, or ids were lost: what that leaves in doubt. Call outside of
        transactions.
        """
        return

    @abstractmethod
    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        """Why a verb of people cannot be used on a pair now, as far as its row says; None when it can."""

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        """Does what a verb of people means where several messages are in flight; without those it is not asked.

        Call with the pair locked; the caller saves it. Raises IllegalTransition, WrongState.
        """
        raise IllegalTransition(pair.flow, kind.value)

    @abstractmethod
    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        """Takes back a message that its pair does not wait for; saves both. Call with both locked, of a transaction
        with the message locked. Raises IllegalTransition, WrongState.
        """

    def decode(self, content_type: str, body: bytes | Sought) -> Envelope | StreamEnvelope | None:
        """A received message with its parties and agreement; None where it does not say them. Raises NotAMessage."""
        return None

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        """Adds what a message of this profile cannot carry. Raises OutsideAgreement when it carries no documents."""
        if time_to_live is not None:
            errors["time_to_live"] = [
                _("Only messages of transactional streams expire: leave it out under this agreement.")
            ]

    def inquiry(self, message: Message, terms: Terms, now: datetime) -> Outgoing | None:
        """How this protocol asks what became of a message; None where it has no words for that."""
        return None

    def said_of(self, receipt: Receipt, message_id: str) -> tuple[PartnerAnswer, str, str]:
        """What the response to an `inquiry` says: the word, a sentence, and why there is no word (docs/causes.md)."""
        raise AssertionError("a profile that asks says how the answer is read")

    def ping(self, terms: Terms, now: datetime) -> Outgoing | None:
        """How this protocol asks whether the messaging service is there; None where it has no words for that."""
        return None

    def ponged(self, receipt: Receipt) -> str:
        """What came instead of the answer to a `ping`, in a sentence; "" when that came."""
        raise AssertionError("a profile that pings says how the answer is read")

    def proofs(self, message: Message) -> list[Proof]:
        """Looks at the signatures of a message and of its acknowledgements again; nothing where none are agreed."""
        return []

    def message_id(self, given: str, key: uuid.UUID) -> str:
        """The MessageId of a new message; "" for one that is made for the host."""
        return given

    @abstractmethod
    def final_states(self, semantics: str) -> frozenset[str]:
        """The states in which a message of ours has come to its end."""

    @abstractmethod
    def cancellable_states(self, semantics: str) -> frozenset[str]:
        """The states in which a person may take a message of ours back; its pair may still refuse it."""


@cache
def named(name: str) -> Profile:
    """The profile that an agreement names."""
    profile = importlib.import_module(f"messaging.profiles.{name}.profile").PROFILE
    assert isinstance(profile, Profile)
    return profile


def every() -> Iterator[Profile]:
    """All profiles: those with a window first, for they take a pair by what it has in flight, others by its head."""
    return iter(sorted(map(named, Name.values), key=lambda one: not one.windowed))


def names(wanted: Callable[[Profile], bool]) -> list[str]:
    """Names the profiles of which it is true, for queries."""
    return [name for name in Name.values if wanted(named(name))]


def of(terms: Terms) -> Profile:
    """The profile of messages under these terms."""
    return named(terms.profile)


def of_message(message: Message) -> Profile:
    """The profile of a message whose agreement version is loaded."""
    return named(message.agreement_version.profile)


def carried(pair: Pair, terms: Terms | None) -> Profile:
    """The profile of what a pair has in flight; without that the one of its `terms`, those in force."""
    agreed = named(terms.profile if terms is not None else Name.EBXML)
    if agreed.windowed and pair.in_flight_id is None:
        return agreed
    if pair.out_now:
        return agreed if agreed.one_by_one else named(Name.REPEATABLE)
    return agreed if pair.in_flight_id is None else named(Name.EBXML)


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
