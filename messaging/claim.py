"""A claimed transmission and the parcel that goes with it: what all kinds of claims hand to the engine.

It is below the engine, because wire profiles say what is claimed and what follows from it (`messaging.profile`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from django.db import Error as DatabaseError

from messaging import storage
from messaging.choices import SignalState
from messaging.models import Event, Message, Pair, Payload, Signal, Transmission
from messaging.models.bulk import read
from messaging.protocol.errors import EncodeError
from messaging.read_ahead import Encode, Octets, Reader, Unread
from messaging.transports import Parcel
from messaging.transports.base import Login
from partners import registry, transports
from partners.secrets import SecretUnreadable
from partners.terms import Terms
from partners.transports import HTTP

log = logging.getLogger(__name__)

# Fields of the Parcel for a server that is not to see our credentials.
WITHHELD: dict[str, Any] = {"authorization": "", "login": None, "client_certificate": ""}


class EncodingFailed(EncodeError):
    """A defect of the hub, which this message meets: it is held, and a person is told. All others go on."""

    cause = "internal_error"


class JobKind(StrEnum):
    PAIR = "pair"  # the one message that its pair has in flight
    UNRELIABLE = "unreliable"  # one that is sent once
    SIGNAL = "signal"
    OWN = "own"  # a message that its profile moves and times (`Profile.moves`)


@dataclass(frozen=True, slots=True)
class Job:
    """One transmission that is claimed: what to send, and what its outcome belongs to."""

    kind: JobKind
    transmission_id: uuid.UUID
    transport: str
    parcel: Parcel
    version_id: uuid.UUID
    pair_id: uuid.UUID | None = None
    message_id: uuid.UUID | None = None
    signal_id: uuid.UUID | None = None
    about_id: uuid.UUID | None = None  # the message that a signal is about
    number: int = 0  # of the attempt; tells for all but PAIR and UNRELIABLE which claim an outcome belongs to
    last: bool = False  # if it fails, its pair gives up: it goes out even to a server that is left alone


@dataclass(slots=True)
class Claim:
    """One claiming transaction as it fills up. `limit`: how many of each kind at most. `passed_over`: pairs for
    which nothing is claimed now. `largest`: of what is encoded in it, bytes; None = of any size. `reader`:
    has what lies in the store; None = nothing that does is claimed.
    """

    now: datetime
    limit: int
    passed_over: list[uuid.UUID] = field(default_factory=list)
    largest: int | None = None
    reader: Reader | None = None
    jobs: list[Job] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)  # called when it is committed; must not raise

    def carries(self, message: Message) -> bool:
        """Whether a message may be encoded in it. One that is passed on is made of what came, which is read first."""
        return self.largest is None or (message.size <= self.largest and message.forwarded_from_id is None)

    def octets(self, message: Message, payloads: Sequence[Payload], encode: Encode, place: Hashable = None) -> Octets:
        """The octets of a message, made by `encode`: now of payloads in rows, ahead of the claim of those in the store.

        `place`: what they depend on beside the number and the attempt of the message. Raises Unread when they are still
        to be read; and what `encode` raises, of which what nobody expects is EncodingFailed.
        """
        encode = partial(_fenced, encode)
        if not any(payload.stored_as for payload in payloads):
            return encode(message)
        if self.reader is None:
            raise Unread
        whole = (message.agreement_version_id, message.attempts, message.sequence_number, place)
        self.after.append(partial(self.reader.drop, message.pk))
        try:
            return self.reader.octets(message, whole, encode)
        except Unread:
            self.after.pop()
            raise

    def transmit(
        self,
        kind: JobKind,
        message: Message,
        body: Octets,
        terms: Terms,
        *,
        address: str = "",
        last: bool = False,
        **fields: Any,
    ) -> Transmission:
        """Claims the attempt that the message has come to, with these octets; `fields`: more of the Parcel.

        `address`: where it goes, if not to the partner's address.
        """
        address = address or terms.partner_address
        attempt = Transmission(
            pair_id=message.pair_id, message=message, number=message.attempts, address=address, started_at=self.now
        )
        fields["attempt"] = attempt.public_id
        self.transmissions.append(attempt)
        self.jobs.append(
            Job(
                kind=kind,
                transmission_id=attempt.pk,
                transport=terms.transport,
                parcel=parcel(terms, address, message.content_type, body, self.now, **fields),
                version_id=terms.version_id,
                pair_id=message.pair_id,
                message_id=message.pk,
                number=message.attempts,
                last=last,
            )
        )
        return attempt

    def answer(self, signal: Signal, terms: Terms, address: str, **fields: Any) -> None:
        """Claims the next attempt of a signal, with its stored octets; `fields`: more of the Parcel."""
        signal.state = SignalState.SENDING
        signal.attempts += 1
        signal.due_at = self.now + timedelta(seconds=lease_seconds(terms))
        number = signal.sends + signal.attempts
        attempt = Transmission(
            pair_id=signal.pair_id, signal=signal, number=number, address=address, started_at=self.now
        )
        fields["attempt"] = attempt.public_id
        self.transmissions.append(attempt)
        self.jobs.append(
            Job(
                kind=JobKind.SIGNAL,
                transmission_id=attempt.pk,
                transport=terms.transport,
                parcel=parcel(terms, address, signal.content_type, bytes(signal.body), self.now, **fields),
                version_id=terms.version_id,
                pair_id=signal.pair_id,
                signal_id=signal.pk,
                about_id=signal.about_id,
                number=number,
            )
        )

    def but(self, column: str) -> str:
        """What to add to the condition of a query by pairs, so that it leaves out what is passed over."""
        return f" AND {column} <> ALL(%s)" if self.passed_over else ""

    @property
    def parameters(self) -> list[object]:
        """Of a query with a time, `but` and a limit."""
        return [self.now, *([self.passed_over] if self.passed_over else []), self.limit]


def _fenced(encode: Encode, message: Message) -> Octets:
    try:
        return encode(message)
    except (EncodeError, storage.PayloadMissing, DatabaseError, OSError):
        raise
    except Exception as error:
        log.exception("encoding failed", extra={"action": "encoding_failed", "message_id": message.public_id})
        raise EncodingFailed(f"The hub cannot write this message: {error!r}") from error


class Due:
    """Messages, locked, whose own timers have run out, with what is around them: each read when it is first asked for,
    for all that are due at once.
    """

    def __init__(self, messages: Sequence[Message], whole: Due | None = None) -> None:
        self.messages = messages
        self._whole = whole or self

    def of(self, messages: Sequence[Message]) -> Due:
        """Some of them, with what was read for all."""
        return Due(messages, self)

    @property
    def payloads(self) -> dict[uuid.UUID, list[Payload]]:
        """The payloads of each message, in their order."""
        return self._whole._payloads

    @property
    def pairs(self) -> dict[uuid.UUID, Pair]:
        """Gate, flow and `probing` of each pair, which is not locked."""
        return self._whole._pairs

    @cached_property
    def _payloads(self) -> dict[uuid.UUID, list[Payload]]:
        return Payload.of_messages(message.pk for message in self.messages)

    @cached_property
    def _pairs(self) -> dict[uuid.UUID, Pair]:
        wanted = list({message.pair_id for message in self.messages})
        found = read(Pair, "SELECT id, gate, flow, probing FROM messaging_pair WHERE id = ANY(%s)", [wanted])
        return {pair.pk: pair for pair in found}


@dataclass(slots=True)
class Recorded:
    """What outcomes have led to. `moved`: the transmissions that moved something, each with its cause. `tell`: opens
    and ends the incidents that wait until all other rows of the transaction are written.
    """

    moved: dict[uuid.UUID, str] = field(default_factory=dict)
    tell: Callable[[], list[Event]] | None = None


def lease_seconds(terms: Terms) -> int:
    """How long a claimed transmission may take before another worker takes it over."""
    return terms.connect_timeout + terms.read_timeout + 15


def parcel(terms: Terms, address: str, content_type: str, body: Octets, now: datetime, **more: Any) -> Parcel:
    """Bytes with the partner's address and our credential for it; `more` are further fields of the Parcel."""
    try:
        authorization, login = _credentials(terms, now)
        certificate = _certificate(terms, now)
    except SecretUnreadable:
        # Sent without it the partner refuses, which a person sees; not sent at all the whole batch would stand still.
        log.exception("credential unreadable", extra={"action": "credential_unreadable", "partner": terms.partner_name})
        authorization, login, certificate = "", None, ""
    fields = {
        "authorization": authorization,
        "login": login,
        "origin": terms.own_uri,
        "target": terms.partner_uri,
        "server": terms.server,
        "host_key": terms.host_key,
        "trusted_certificates": terms.trusted_certificates,
        "client_certificate": certificate,
        "connect_timeout": terms.connect_timeout,
        "read_timeout": terms.read_timeout,
        **more,
    }
    return Parcel(address=address, content_type=content_type, body=body, **fields)


def _credentials(terms: Terms, now: datetime) -> tuple[str, Login | None]:
    """The Authorization header, or the log-in for the server of mail or files. Raises SecretUnreadable."""
    known = registry.current()
    if terms.transport == HTTP.name:
        return known.outbound_authorization(terms.hop_party_id, now), None
    transport = transports.named(terms.transport)
    if transport.relayed and not terms.server:
        return "", None  # the hub's own relay has a log-in of its own; the partner's goes to nobody else
    found = known.outbound_login(terms.hop_party_id, now, *transport.logins)
    return "", Login(*found) if found else None


def _certificate(terms: Terms, now: datetime) -> str:
    """Our certificate with its key, for servers that ask for one. Raises SecretUnreadable."""
    if terms.transport != HTTP.name:
        return ""
    return registry.current().outbound_certificate(terms.hop_party_id, now)
