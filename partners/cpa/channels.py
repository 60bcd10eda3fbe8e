"""How messages travel: delivery channels with their transports and document exchanges (OASIS ebXML CPPA 2.0).

Each object is an element of the document, and `place` says which; it does not count when two are compared. "" and None
stand for what the document does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a document. `path`: XPath with the prefixes tp, ds, xlink, xml; `line`: from 1."""

    path: str
    line: int


NOWHERE = Place("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An element of the document."""

    place: Place = field(default=NOWHERE, compare=False, repr=False)


class Requirement(StrEnum):
    """Whether a header element is in every message, in none, or as the sender likes."""

    ALWAYS = "always"
    NEVER = "never"
    PER_MESSAGE = "perMessage"


class SyncReply(StrEnum):
    """What comes back in the HTTP response."""

    NONE = "none"
    MSH_SIGNALS_ONLY = "mshSignalsOnly"
    SIGNALS_ONLY = "signalsOnly"
    RESPONSE_ONLY = "responseOnly"
    SIGNALS_AND_RESPONSE = "signalsAndResponse"


class EndpointType(StrEnum):
    LOGIN = "login"
    REQUEST = "request"
    RESPONSE = "response"
    ERROR = "error"
    ALL_PURPOSE = "allPurpose"


class Access(StrEnum):
    """How a client proves who it is, beside TLS."""

    BASIC = "basic"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class Protocol(Placed):
    name: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Algorithm(Placed):
    """An algorithm of signatures or encryption, under up to three names. `minimum_strength`: bits of the key."""

    name: str
    w3c: str = ""
    oid: str = ""
    enumeration: str = ""
    minimum_strength: int | None = None

    @property
    def uri(self) -> str:
        """The name in XML Signature and XML Encryption: what `w3c` says, else the text."""
        return self.w3c or self.name


@dataclass(frozen=True, slots=True)
class Namespace(Placed):
    """A document type that can be processed. `location`: where its schema is."""

    uri: str
    location: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class TransportSecurity(Placed):
    """TLS on one side of a transport. `certificate_id`: its own; `security_id`: which of the other side's to trust."""

    protocol: Protocol
    certificate_id: str = ""
    security_id: str = ""
    encryption: tuple[Algorithm, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint(Placed):
    uri: str
    type: EndpointType = EndpointType.ALL_PURPOSE

    @property
    def address(self) -> str:
        """The URI as this hub writes it: the two slashes that some put into `mailto:` are no part of it (RFC 6068)."""
        scheme, colon, rest = self.uri.partition(":")
        return f"mailto:{rest[2:]}" if colon and scheme.lower() == "mailto" and rest.startswith("//") else self.uri


@dataclass(frozen=True, slots=True)
class TransportSender(Placed):
    protocol: Protocol
    access: tuple[Access, ...] = ()
    security: TransportSecurity | None = None


@dataclass(frozen=True, slots=True)
class TransportReceiver(Placed):
    protocol: Protocol
    endpoints: tuple[Endpoint, ...]
    access: tuple[Access, ...] = ()
    security: TransportSecurity | None = None

    def endpoint(self, kind: EndpointType) -> Endpoint | None:
        """The endpoint for this purpose, else the one for all purposes, else None."""
        for wanted in (kind, EndpointType.ALL_PURPOSE):
            for one in self.endpoints:
                if one.type is wanted:
                    return one
        return None


@dataclass(frozen=True, slots=True)
class Transport(Placed):
    id: str
    sender: TransportSender | None = None
    receiver: TransportReceiver | None = None


@dataclass(frozen=True, slots=True)
class Reliability(Placed):
    """How often and after what time a message without an acknowledgement is sent again; `ordered`: in its order."""

    ordered: bool
    retries: int | None = None
    retry_interval: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NonRepudiation(Placed):
    """How messages are signed. A sender names its certificate, a receiver the details of those that it trusts."""

    protocol: Protocol
    hash: str
    algorithms: tuple[Algorithm, ...]
    certificate_id: str = ""
    security_id: str = ""


@dataclass(frozen=True, slots=True)
class DigitalEnvelope(Placed):
    """How documents are encrypted. A receiver names its certificate, a sender the details of those that it trusts."""

    protocol: Protocol
    encryption: tuple[Algorithm, ...]
    certificate_id: str = ""
    security_id: str = ""


@dataclass(frozen=True, slots=True)
class MessageBinding(Placed):
    """What holds for messages that a party sends, or for those that it receives. `version`: of ebXML Messaging.

    `reliability` None is best effort (wire-ebxml, section 4).
    """

    version: str
    reliability: Reliability | None = None
    persist_duration: timedelta | None = None
    non_repudiation: NonRepudiation | None = None
    envelope: DigitalEnvelope | None = None
    namespaces: tuple[Namespace, ...] = ()


@dataclass(frozen=True, slots=True)
class DocExchange(Placed):
    id: str
    sender: MessageBinding | None = None
    receiver: MessageBinding | None = None


@dataclass(frozen=True, slots=True)
class Channel(Placed):
    """A delivery channel: how a party receives, and how it sends. `actor`: URN, "" if unsaid."""

    id: str
    transport: Transport
    doc_exchange: DocExchange
    sync_reply: SyncReply = SyncReply.NONE
    ack_requested: Requirement = Requirement.PER_MESSAGE
    ack_signature_requested: Requirement = Requirement.PER_MESSAGE
    duplicate_elimination: Requirement = Requirement.PER_MESSAGE
    actor: str = ""
