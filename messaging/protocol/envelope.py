"""The one shape in which all wire profiles meet (docs/architecture.md, "One way in, one way out").

Bounds on what we read from strangers. One frozen value, passed in, so that tests can make it small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from messaging.protocol.errors import Defect, ErrorCode, Severity

Content = TypeVar("Content")

MAX_SEQUENCE_NUMBER = 999_999_999  # spec 1, 2.2.2


class MessageType(StrEnum):
    """MessageType attribute of the ebXMLHeader (spec 1, 2.1.3)."""

    NORMAL = "Normal"
    ACKNOWLEDGEMENT = "Acknowledgement"
    ERROR = "Error"


class Semantics(StrEnum):
    """Delivery semantics (spec 1, 2.2.1 and 3.1).

    AtMostOnce is a glossary term and no wire value: the writer sends it as
    BestEffort, and the agreement tells the receiver to look for repeats.
    """

    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce"
    AT_MOST_ONCE = "AtMostOnce"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class PartyId:
    """A party identifier: `value` in the scheme `context` (DUNS, GLN, URI ...; may be empty)."""

    value: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class RoutingHeader:
    """One hop (spec 1, 2.2.2). `sequence_number` is there for OnceAndOnlyOnce only."""

    sender_uri: str
    receiver_uri: str
    error_uri: str
    timestamp: datetime
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What a document follows: address of its schema, and that schema's version if it is said (ebms2)."""

    location: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class DocumentReference:
    """A Manifest entry. `document_id` is `cid:<Content-ID>` of the part that it names.

    In the ebms2 profile it may also be `mid:<MessageId>/<Content-ID>` of a part of another message, or any URI of
    something that lies elsewhere. Only that profile has `role`, a URI of what the document is for, and `schemas`; it
    has no label.
    """

    label: str
    document_id: str
    description: str = ""
    language: str = "en"
    role: str = ""
    schemas: tuple[Schema, ...] = ()


class Pieces(Protocol):
    """Octets that are too many to be held: they are read piece by piece, as often as needed."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


class Sought(Pieces, Protocol):
    """Pieces that can be searched, and of which parts can be taken: few octets, or as many as there are."""

    def __contains__(self, sought: bytes, /) -> bool: ...

    def find(self, sought: bytes, begin: int = 0, end: int | None = None, /) -> int: ...

    def __getitem__(self, where: slice[int | None, int | None, None], /) -> bytes: ...

    def part(self, begin: int, end: int) -> Sought: ...


@dataclass(frozen=True, slots=True)
class PayloadPart:
    """A payload container. `offset` is where `content` lies unencoded in the body that was read, if it does."""

    content_id: str
    content_type: str
    content: bytes | Sought
    filename: str = ""
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What an Error message says (wire-ebxml 1.9). `min_retry_secs` is whole seconds (spec 1, 4.2)."""

    code: ErrorCode | str
    severity: Severity
    description: str
    location: str = ""
    min_retry_secs: int | None = None


class Ebms2Kind(StrEnum):
    """What a message of the ebms2 profile is for. All but the first are signals: the value is their Action."""

    BUSINESS = "Business"
    ACKNOWLEDGMENT = "Acknowledgment"
    ERROR = "MessageError"
    STATUS_REQUEST = "StatusRequest"
    STATUS_RESPONSE = "StatusResponse"
    PING = "Ping"
    PONG = "Pong"

    @property
    def message_type(self) -> MessageType:
        """As which a message of this kind is handled: Normal for all that may be answered with an Error."""
        if self is Ebms2Kind.ACKNOWLEDGMENT:
            return MessageType.ACKNOWLEDGEMENT
        return MessageType.ERROR if self is Ebms2Kind.ERROR else MessageType.NORMAL


class Actor(StrEnum):
    """Whom an AckRequested or Acknowledgment is for: the next messaging service, or that of the To party."""

    TO_PARTY_MSH = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
    NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"


@dataclass(frozen=True, slots=True)
class AckRequest:
    """An AckRequested element. `signed`: the acknowledgment has to be signed and to repeat the digests."""

    actor: Actor = Actor.TO_PARTY_MSH
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of XML-Signature. `parameters`: its child elements in exclusive canonical form, "" for none."""

    algorithm: str
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class Digest:
    """A ds:Reference: digest `value` (base64) by the algorithm `method`, of what lies at `uri` after `transforms`."""

    uri: str
    method: str
    value: str
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """An Acknowledgment element, alone or on a business message. `timestamp`: when the message was received.

    `from_parties`: who acknowledges, where it is not the sender of the message that carries this.
    """

    ref_to_message_id: str
    timestamp: datetime
    actor: Actor = Actor.TO_PARTY_MSH
    from_parties: tuple[PartyId, ...] = ()
    from_role: str = ""
    digests: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageOrder:
    """The place of a message in its conversation. `reset`: the count begins anew, with 0."""

    sequence_number: int
    reset: bool = False


class MessageStatus(StrEnum):
    """What a StatusResponse says of a message."""

    UNAUTHORIZED = "UnAuthorized"
    NOT_RECOGNIZED = "NotRecognized"
    RECEIVED = "Received"
    PROCESSED = "Processed"
    FORWARDED = "Forwarded"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """A StatusRequest (without `status`), or a StatusResponse. `timestamp`: when the message was received."""

    ref_to_message_id: str
    status: MessageStatus | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ebms2:
    """What only messages of OASIS ebXML Messaging 2.0 have (wire-ebxml 3.1).

    `acknowledgments` and `errors` may also ride on a business message. `signed`: there is a ds:Signature; it is over
    the octets, and this says nothing about whether it is right.
    """

    kind: Ebms2Kind = Ebms2Kind.BUSINESS
    from_role: str = ""
    to_role: str = ""
    service_type: str = ""
    time_to_live: datetime | None = None
    duplicate_elimination: bool = False
    ack_requests: tuple[AckRequest, ...] = ()
    sync_reply: bool = False
    order: MessageOrder | None = None
    acknowledgments: tuple[Acknowledgment, ...] = ()
    errors: tuple[ErrorInfo, ...] = ()
    status: StatusReport | None = None
    signed: bool = False

    @property
    def semantics(self) -> Semantics:
        """Asked to acknowledge and to eliminate duplicates: once and only once (wire-ebxml 3.2)."""
        if not self.duplicate_elimination:
            return Semantics.BEST_EFFORT
        return Semantics.ONCE_AND_ONLY_ONCE if self.ack_requests else Semantics.AT_MOST_ONCE

    @property
    def gravest(self) -> ErrorInfo | None:
        """The first of the errors with the highest severity."""
        grave = (error for error in self.errors if error.severity is Severity.ERROR)
        return next(grave, self.errors[0] if self.errors else None)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of any type, decoded or about to be encoded.

    `routing` is oldest hop first, the current hop last (ruling C3); never empty in
    the ebxml profile, always in the ebms2 profile. `document_id` is what the sender's application calls the
    document (`document_ids`), empty when it goes by the MessageId. `defects` holds
    what a decoder found wrong but readable.
    """

    message_type: MessageType
    message_id: str
    timestamp: datetime
    from_parties: tuple[PartyId, ...]
    to_parties: tuple[PartyId, ...]
    agreement_id: str
    conversation_id: str
    service: str
    action: str
    semantics: Semantics
    routing: tuple[RoutingHeader, ...]
    ref_to_message_id: str = ""
    document_id: str = ""
    manifest: tuple[DocumentReference, ...] = ()
    payloads: tuple[PayloadPart, ...] = ()
    error: ErrorInfo | None = None
    version: str = "0.21"
    defects: tuple[Defect, ...] = ()
    ebms: Ebms2 | None = None

    @property
    def fault(self) -> Defect | None:
        """The first defect for which the message is refused; warnings are none."""
        return next((defect for defect in self.defects if defect.severity is not Severity.WARNING), None)

    @property
    def hop(self) -> RoutingHeader:
        """The current hop: the last RoutingHeader (ruling C3)."""
        return self.routing[-1]


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Per-partner switches of the strict writer (wire-ebxml 1.2 and 1.4)."""

    namespace: bool = True
    padded_sequence_number: bool = True


@dataclass(frozen=True, slots=True)
class Ebms2Options:
    """Per-partner switches of the strict writer of the ebms2 profile.

    `element_ids`: each element has an eb:id, for signatures that name elements. `multipart`: what has no payload goes
    as multipart/related as well, and not as a SOAP envelope alone.
    """

    element_ids: bool = False
    multipart: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """Exact octets of a message, with the payload bytes left out so that they are stored once.

    The body is literals[0] + payload[0] + literals[1] + ... + literals[n]:
    one literal more than payloads.
    """

    content_type: str
    literals: tuple[bytes, ...]

    def join(self, payloads: tuple[bytes, ...] | list[bytes]) -> bytes:
        """The body's exact octets. Raises ValueError when the number of payloads does not fit."""
        return b"".join(self.around(payloads))

    def around(self, payloads: Sequence[Content]) -> list[bytes | Content]:
        """The body in order, literals and payloads. Raises ValueError when the number of payloads does not fit."""
        if len(payloads) + 1 != len(self.literals):
            raise ValueError(f"{len(self.literals)} literals cannot frame {len(payloads)} payloads")
        pieces: list[bytes | Content] = [self.literals[0]]
        for payload, literal in zip(payloads, self.literals[1:], strict=True):
            pieces += (payload, literal)
        return pieces


MAX_PAYLOADS = 1000  # documents of one message


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds; sizes in bytes."""

    body: int = 50 * 1024 * 1024  # one transport entity
    header_document: int = 4 * 1024 * 1024  # the ebXMLHeader part; it names each document
    parts: int = MAX_PAYLOADS + 1  # MIME parts of one message
    part_headers: int = 16 * 1024  # header block of one MIME part
    xml_depth: int = 32  # nesting of elements
    xml_nodes: int = 20_000  # elements of one header document
    identifier: int = 512  # MessageId, ConversationId, URIs, party ids
    routing_headers: int = 10  # hops (wire-ebxml 1.8)


DEFAULT_LIMITS = Limits()
