"""Which WS-Addressing headers a message has: one table, for checking what comes in and for writing what goes out.

Sources: spec 5 (profile `seed`), protocols.md 5.7 (profile `oasis`: what implementations of 2006/06 send).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from messaging.protocol.atomic.words import FAULT, TERMINAL, FaultCode, Note, Request
from messaging.protocol.ws.messages import (
    Addressing,
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Register,
    Registered,
    Violation,
    WsMessage,
)
from messaging.protocol.ws.names import APPLICATION, NAMES, NOWHERE, Style, Version, coordination_type


class Need(StrEnum):
    """How much a message needs a header. PHYSICAL: must be there, with an address that can be connected to."""

    PHYSICAL = "MUST, physical"
    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"
    NOWHERE = "none address"  # written as the address `none` where the version has one, else left out
    SHOULD_NOT = "SHOULD NOT"


@dataclass(frozen=True, slots=True)
class Row:
    """The headers of one type of message. `binding`: a breach counts even from a partner who is not held strictly."""

    message_id: Need
    relates_to: Need
    reply_to: Need
    sender: Need
    binding: bool
    source: str


_REQUEST = Row(Need.MUST, Need.SHOULD_NOT, Need.PHYSICAL, Need.MAY, True, "spec 5, WS-Coordination, request messages")
_REPLY = Row(Need.MAY, Need.MUST, Need.SHOULD_NOT, Need.MAY, False, "spec 5, WS-Coordination, reply messages")
_FAULT = Row(Need.MAY, Need.MUST, Need.SHOULD_NOT, Need.MAY, False, "spec 5, WS-AT, fault messages")
_SEED_OPEN = Row(
    Need.SHOULD, Need.MAY, Need.PHYSICAL, Need.MAY, False, "spec 5, WS-AT, non-terminal notification messages"
)
_SEED_LAST = Row(
    Need.SHOULD, Need.MAY, Need.SHOULD_NOT, Need.MAY, False, "spec 5, WS-AT, terminal notification messages"
)
_OASIS_OPEN = Row(Need.SHOULD, Need.MAY, Need.NOWHERE, Need.PHYSICAL, False, "2006/06 practice, [MS-WSRVCAT] 4.2")
_OASIS_LAST = Row(Need.SHOULD, Need.MAY, Need.NOWHERE, Need.SHOULD, False, "2006/06 practice, [MS-WSRVCAT] 4.2")

RULES: Final[Mapping[tuple[str, Style], Row]] = MappingProxyType(
    {
        (Request.CREATE, Style.SEED): _REQUEST,
        (Request.CREATE, Style.OASIS): _REQUEST,
        (Request.REGISTER, Style.SEED): _REQUEST,
        (Request.REGISTER, Style.OASIS): _REQUEST,
        (Request.CREATED, Style.SEED): _REPLY,
        (Request.CREATED, Style.OASIS): _REPLY,
        (Request.REGISTERED, Style.SEED): _REPLY,
        (Request.REGISTERED, Style.OASIS): _REPLY,
        (Note.PREPARE, Style.SEED): _SEED_OPEN,
        (Note.PREPARE, Style.OASIS): _OASIS_OPEN,
        (Note.PREPARED, Style.SEED): _SEED_OPEN,
        (Note.PREPARED, Style.OASIS): _OASIS_OPEN,
        (Note.COMMIT, Style.SEED): _SEED_OPEN,
        (Note.COMMIT, Style.OASIS): _OASIS_OPEN,
        (Note.ROLLBACK, Style.SEED): _SEED_OPEN,
        (Note.ROLLBACK, Style.OASIS): _OASIS_OPEN,
        (Note.REPLAY, Style.SEED): _SEED_OPEN,
        (Note.REPLAY, Style.OASIS): _OASIS_OPEN,
        (Note.COMMITTED, Style.SEED): _SEED_LAST,
        (Note.COMMITTED, Style.OASIS): _OASIS_LAST,
        (Note.ABORTED, Style.SEED): _SEED_LAST,
        (Note.ABORTED, Style.OASIS): _OASIS_LAST,
        (Note.READ_ONLY, Style.SEED): _SEED_LAST,
        (Note.READ_ONLY, Style.OASIS): _OASIS_LAST,
        (FAULT, Style.SEED): _FAULT,
        (FAULT, Style.OASIS): _FAULT,
    }
)

_REQUESTS = frozenset((Request.CREATE, Request.REGISTER))
_UNANSWERED = frozenset((FAULT, Request.CREATED, Request.REGISTERED))


def headers_for(
    kind: str,
    profile: Style,
    version: Version,
    *,
    me: EndpointReference | None,
    message_id: str,
    relates_to: str = "",
) -> Addressing:
    """The headers of an outgoing message as its row says, without Action and To.

    `me` is our own endpoint reference for the relationship. An answer to a message without MessageID relates to
    nothing; the writer says so with the version's `unspecified` URI.
    """
    row = RULES[kind, profile]
    nowhere = EndpointReference(NAMES[version].none) if NAMES[version].none else None
    reply_to = me if row.reply_to is Need.PHYSICAL else nowhere if row.reply_to is Need.NOWHERE else None
    sender = me if row.sender in (Need.PHYSICAL, Need.SHOULD) else None
    return Addressing(
        message_id=message_id,
        relates_to=relates_to if row.relates_to is Need.MUST else "",
        reply_to=reply_to,
        sender=sender,
    )


def check(message: WsMessage, *, strict: bool, profile: Style) -> tuple[Violation, ...]:
    """Everything that is wrong with a message, what keeps it from being processed first.

    Requests are held to their row always (spec 5: MUST, and there is nowhere else to answer to). Of other messages a
    breach is fatal only when the partner is held strictly; else it is a note for the log, and the endpoint references
    of the registration are used. A strict partner of profile `oasis` may name its ReplyTo instead of From, as
    initiators do ([MS-WSRVCAT] 4.2.10).
    """
    found = [*message.problems, *_addressing(message, strict, profile), *_body(message)]
    return tuple(sorted(found, key=lambda one: not one.fatal))


def answerable(kind: str) -> bool:
    """Whether a message of this kind may be answered with a fault: faults and replies never are."""
    return kind not in _UNANSWERED


def reply_targets(
    message: WsMessage, registered: EndpointReference | None, *, fault: bool = False
) -> tuple[EndpointReference, ...]:
    """Where an answer to `message` may go, best first; only endpoints that can be connected to, each once.

    Faults: FaultTo (spec 5: MUST), the endpoint of the registration, From, ReplyTo. Others: the same without FaultTo.
    Create and Register: ReplyTo comes first (request and reply of WS-Addressing).
    """
    addressing = message.addressing
    order = [registered, addressing.sender, addressing.reply_to]
    if message.kind in _REQUESTS:
        order = [addressing.reply_to, registered, addressing.sender]
    if fault:
        order.insert(0, addressing.fault_to)
    targets = [one for one in order if one is not None and one.is_physical()]
    return tuple(dict.fromkeys(targets))


def _addressing(message: WsMessage, strict: bool, profile: Style) -> list[Violation]:
    if message.kind == APPLICATION:
        return []
    row = RULES[message.kind, profile]
    addressing, found = message.addressing, []

    def broken(header: str, why: str, fatal: bool) -> None:
        found.append(Violation(header, FaultCode.INVALID_PARAMETERS, f"{message.kind} {why} ({row.source})", fatal))

    binding = row.binding or strict
    if not addressing.message_id and row.message_id in (Need.MUST, Need.SHOULD):
        broken("MessageID", "has no wsa:MessageID", row.message_id is Need.MUST and binding)
    if not addressing.relates_to and row.relates_to is Need.MUST:
        broken("RelatesTo", "has no wsa:RelatesTo with a MessageID", binding)
    if row.reply_to is Need.PHYSICAL:
        if addressing.reply_to is None:
            broken("ReplyTo", "has no wsa:ReplyTo", binding)
        elif not addressing.reply_to.is_physical():
            broken(
                "ReplyTo", f"has a wsa:ReplyTo that is not a physical address: {_shown(addressing.reply_to)}", binding
            )
    elif row.reply_to is Need.SHOULD_NOT and addressing.reply_to is not None and message.kind in TERMINAL:
        broken("ReplyTo", "has a wsa:ReplyTo although nothing is to be answered", fatal=False)
    if row.sender is Need.PHYSICAL and not any(
        one is not None and one.is_physical() for one in (addressing.sender, addressing.reply_to)
    ):
        broken("From", "has neither wsa:From nor wsa:ReplyTo with a physical address", binding)
    if addressing.fault_to is not None and not addressing.fault_to.is_physical():
        broken(
            "FaultTo", f"has a wsa:FaultTo that is not a physical address: {_shown(addressing.fault_to)}", fatal=False
        )
    if message.kind == Note.REPLAY and message.version is Version.V2006:
        broken("Action", "is deprecated: 2006/06 has Prepared for this", fatal=False)
    return found


def _body(message: WsMessage) -> list[Violation]:
    """What the facts of a body break (protocols.md 5.3)."""
    body, expected = message.body, coordination_type(message.version)
    match body:
        case Create(coordination_type=kind, current=current):
            found = []
            if kind != expected:
                found.append(
                    Violation(
                        "CoordinationType",
                        FaultCode.CANNOT_CREATE,
                        f"coordination type {kind[:200]} is not supported, only {expected}",
                    )
                )
            return found + (_context(current, "CurrentContext", expected) if current is not None else [])
        case Created(context=context):
            return _context(context, "CoordinationContext", expected)
        case Register(protocol=protocol, participant=participant, identifier=identifier):
            found = _endpoint(participant, "ParticipantProtocolService")
            if protocol is None:
                sentence = (
                    f"protocol {identifier[:200]} is not one of {expected}/Completion, /Volatile2PC and /Durable2PC"
                )
                found.append(Violation("ProtocolIdentifier", FaultCode.INVALID_PROTOCOL, sentence))
            return found
        case Registered(coordinator=coordinator):
            return _endpoint(coordinator, "CoordinatorProtocolService")
        case _:
            return []


def _context(context: CoordinationContext, header: str, expected: str) -> list[Violation]:
    found = _endpoint(context.registration, f"{header}/RegistrationService")
    if context.coordination_type != expected:
        sentence = f"{header} has coordination type {context.coordination_type[:200]}, not {expected}"
        found.append(Violation(f"{header}/CoordinationType", FaultCode.CANNOT_CREATE, sentence))
    return found


def _endpoint(endpoint: EndpointReference, header: str) -> list[Violation]:
    if endpoint.is_physical():
        return []
    sentence = f"{header} needs a physical address (absolute http or https URL), not {_shown(endpoint)}"
    return [Violation(header, FaultCode.INVALID_PARAMETERS, sentence)]


def _shown(endpoint: EndpointReference) -> str:
    if endpoint.address in NOWHERE:
        return endpoint.address
    return repr(endpoint.address[:200])
