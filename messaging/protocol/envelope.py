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
class DocumentReference:
    """A Manifest entry. `document_id` is `cid:<Content-ID>` of the part that it names."""

    label: str
    document_id: str
    description: str = ""
    language: str = "en"


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


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of any type, decoded or about to be encoded.

    `routing` is oldest hop first, the current hop last (ruling C3); never empty in
    the ebxml profile. `document_id` is what the sender's application calls the
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
