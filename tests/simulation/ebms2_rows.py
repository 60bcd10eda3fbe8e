"""What the two hubs of the ebXML 2.0 world are made of, what they store, and what goes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from messaging.protocol.ebms import acceptance, sending
from messaging.protocol.ebms.acceptance import Conversation, Decision, Received
from messaging.protocol.ebms.sending import Policy, Step
from messaging.protocol.envelope import ErrorInfo, MessageOrder
from messaging.protocol.errors import ErrorCode
from messaging.protocol.messages import State
from messaging.protocol.repeating import Act
from tests.simulation.workers import Attempt, Handing, Worker

START = datetime(2026, 1, 1, tzinfo=UTC)
UNDER_WAY, PERSIST = timedelta(seconds=120), timedelta(seconds=600)
# A receiver that forgets ids does so no earlier than when the last copy may have come.
FORGETS = PERSIST + UNDER_WAY
CERTAIN = frozenset({401, 404})  # answered before anything is looked at


class Broken(AssertionError):
    """A promise was broken; the text names the seed."""


@dataclass(frozen=True)
class Build:
    """What both hubs are made of. The defaults are what we ship; every other value is a known mistake."""

    begin: Callable[..., Step] = sending.begin
    step: Callable[..., Step] = sending.step
    wait_over: Callable[[sending.State, datetime, Policy], Step] = sending.wait_over
    expire: Callable[[sending.State], Step] = sending.expire
    place: Callable[[int | None, Callable[[], bool]], MessageOrder | None] = sending.place
    refused: Callable[[ErrorCode | str], Act] = sending.refused
    decide: Callable[[Conversation, Received], Decision] = acceptance.decide
    released: Callable[[Conversation], tuple[Conversation, tuple[int, ...]]] = acceptance.released
    looks_at_the_time_before_it_talks: bool = True
    repeats_under_the_same_id: bool = True
    begins_anew_after_what_failed: bool = True
    takes_errors: bool = True
    stores_before_it_acknowledges: bool = True
    hands_on_what_it_gives_up: bool = True
    remembers: timedelta = FORGETS
    keeps_acknowledgements: bool = True
    handing: Handing = Handing()  # noqa: RUF009  (frozen)


class Signal(NamedTuple):
    """What a receiver says of a message: an acknowledgement with its octets, or an error."""

    about: str
    octets: str = ""
    error: ErrorInfo | None = None


class Outcome(NamedTuple):
    """What a worker knows of an attempt: a status or why there is none, and what the response had in it."""

    status: int | None
    cause: str = ""
    signal: Signal | None = None
    retry_after: float | None = None


@dataclass(eq=False)
class Message:
    """A document at its sender, under one id. `place`: when it was submitted, among all. `wrong`: what its receiver
    finds wrong with each copy of it. `attempts`: all of them; those of `core` count since somebody let it go.
    """

    document: int
    id: str
    place: int
    conversation: str
    time_to_live: datetime | None
    wrong: ErrorInfo | None
    state: State = State.QUEUED
    core: sending.State = field(default_factory=sending.State)
    order: MessageOrder | None = None
    attempts: int = 0
    due_at: datetime = START
    attempt: Attempt | None = None
    cause: str = ""
    talked: datetime = START  # last
    told: set[int | str] = field(default_factory=set)  # what came of its attempts
    refused: bool = False  # an error has said that it fails


class Job(NamedTuple):
    """One attempt of a message at its sender, with the octets that were claimed."""

    message: Message
    number: int
    packet: Packet


@dataclass(frozen=True)
class Packet:
    """A message on the wire. `of`: whose it is, for the judge. `sent`: who waits for the response; nobody waits for
    that to a copy which something on the way has made.
    """

    id: str
    of: Message
    conversation: str
    order: MessageOrder | None
    time_to_live: datetime | None
    sync: bool
    sent: tuple[Worker, Attempt] | None = None


@dataclass
class Place:
    """The row of a conversation at its sender."""

    number: int | None = None
    restarts: bool = False


@dataclass
class Disk:
    """What the receiver has committed. `ids`: since when they are known; `acks`: octets, by id; `owed`: those that are
    to be sent by themselves; `waits`: what is held, by conversation and number.
    """

    ids: dict[str, datetime] = field(default_factory=dict)
    acks: dict[str, str] = field(default_factory=dict)
    owed: list[Signal] = field(default_factory=list)
    conversations: dict[str, Conversation] = field(default_factory=dict)
    waits: dict[str, dict[int, Message]] = field(default_factory=dict)
    gaps: dict[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True)
class Weather:
    loses: float
    loses_answers: float
    repeats: float
    strays: float
    delay: float
    kills: float
    fails: float


def fits(cause: str, told: set[int | str]) -> bool:
    """Whether what is said of the end is so, after these outcomes."""
    says: Mapping[str, bool] = {
        "never_sent": told <= {"not sent"},
        "access_refused": 401 in told and told <= {"not sent", 401},
        "turned_away": 404 in told and told <= {"not sent", *CERTAIN},
        "outcome_unknown": not told <= {"not sent", *CERTAIN},
    }
    return says.get(cause, True)
