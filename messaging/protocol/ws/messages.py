"""What one SOAP message of WS-Coordination or WS-AtomicTransaction says, without its XML."""

from __future__ import annotations

from dataclasses import dataclass, field

from messaging.protocol.atomic.words import FaultCode, Note, Protocol
from messaging.protocol.errors import NotAMessage
from messaging.protocol.ws.epr import EndpointReference
from messaging.protocol.ws.names import Soap, Version


class Unreadable(NotAMessage):
    """Octets that are no SOAP message which could be answered by another one: only the HTTP status tells.

    `status` is 400, 413 or 415; `reason` a stable code, `detail` a sentence.
    """

    def __init__(self, reason: str, detail: str, status: int = 400) -> None:
        super().__init__(reason, detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a message breaks. `header` is the header or element; a `fatal` one keeps it from being processed."""

    header: str
    code: FaultCode
    sentence: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Addressing:
    """WS-Addressing headers. "" and None: not there. `relates_to` is "" for the `unspecified` URI, too."""

    action: str = ""
    to: str = ""
    message_id: str = ""
    relates_to: str = ""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    sender: EndpointReference | None = None  # wsa:From


@dataclass(frozen=True, slots=True)
class CoordinationContext:
    """`identifier` is an absolute URI, `expires_ms` milliseconds, `extensions` serialised elements of others."""

    identifier: str
    registration: EndpointReference
    coordination_type: str
    expires_ms: int | None = None
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    coordination_type: str
    expires_ms: int | None = None
    current: CoordinationContext | None = None


@dataclass(frozen=True, slots=True)
class Created:
    context: CoordinationContext


@dataclass(frozen=True, slots=True)
class Register:
    """`protocol` is None when `identifier` (the ProtocolIdentifier) is none that we know."""

    protocol: Protocol | None
    participant: EndpointReference
    identifier: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    coordinator: EndpointReference


@dataclass(frozen=True, slots=True)
class Notification:
    note: Note


@dataclass(frozen=True, slots=True)
class Fault:
    """`code` is None for a fault of others (soap:Client, wsa:...); `name`: its code as it came, `{namespace}local`."""

    code: FaultCode | None
    reason: str = ""
    name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Opaque:
    """The body of an application's message: the name of its first element, `{namespace}local`, or ""."""

    name: str = ""


Body = Create | Created | Register | Registered | Notification | Fault | Opaque


@dataclass(frozen=True, slots=True)
class WsMessage:
    """One message. `kind` is a value of Request or Note, "Fault" or "Application".

    `echoed`: read, the header blocks that are neither addressing nor a context (among them our own reference
    parameters that the peer copied); written, the reference parameters of the endpoint that it goes to.
    `context`: the CoordinationContext header of an application message. `body` is None, and `problems` says why, when
    the body cannot be used.
    """

    kind: str
    version: Version
    soap: Soap
    addressing: Addressing
    body: Body | None
    echoed: tuple[str, ...] = ()
    context: CoordinationContext | None = None
    problems: tuple[Violation, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Octets:
    """What goes out by HTTP POST. `soap_action` is the value of the SOAPAction header; "" (SOAP 1.2): send none."""

    content_type: str
    body: bytes
    soap_action: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.content_type} | ({"SOAPAction": self.soap_action} if self.soap_action else {})
