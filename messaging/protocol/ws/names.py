"""Namespaces, actions and names of WS-Coordination, WS-AtomicTransaction, WS-Addressing and SOAP (protocols.md 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Protocol, Request

WSA_2004: Final = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSA_2005: Final = "http://www.w3.org/2005/08/addressing"
OURS: Final = "urn:rmhub:ws-tx"  # reference parameters of our own endpoint references

# A message that is none of WS-Coordination or WS-AtomicTransaction: an application's, perhaps with a context header.
APPLICATION: Final = "Application"


class Version(StrEnum):
    """Of the specifications: 2004/10 is 1.0, 2006/06 is 1.1 and 1.2."""

    V2004 = "2004/10"
    V2006 = "2006/06"


class Soap(StrEnum):
    V11 = "1.1"
    V12 = "1.2"


class Style(StrEnum):
    """Which addressing headers notifications carry: as spec 5 says, or as the 2006/06 implementations do."""

    SEED = "seed"
    OASIS = "oasis"


@dataclass(frozen=True, slots=True)
class Names:
    """What one version of the specifications calls things."""

    wscoor: str
    wsat: str  # also the CoordinationType
    wsa: str
    anonymous: str
    none: str  # "" where the version has no such address
    unspecified: str  # RelatesTo of an answer to a message without MessageID
    addressing_fault: str  # action of faults of SOAP and WS-Addressing themselves


@dataclass(frozen=True, slots=True)
class SoapNames:
    envelope: str
    media_type: str
    actor: str  # attribute that says for whom a header block is
    actors: frozenset[str]  # of which we are one
    sender: str  # local name of the code "it is the sender's fault"


NAMES: Final[Mapping[Version, Names]] = MappingProxyType(
    {
        Version.V2004: Names(
            wscoor="http://schemas.xmlsoap.org/ws/2004/10/wscoor",
            wsat="http://schemas.xmlsoap.org/ws/2004/10/wsat",
            wsa=WSA_2004,
            anonymous=f"{WSA_2004}/role/anonymous",
            none="",
            unspecified=f"{WSA_2004}/id/unspecified",
            addressing_fault=f"{WSA_2004}/fault",
        ),
        Version.V2006: Names(
            wscoor="http://docs.oasis-open.org/ws-tx/wscoor/2006/06",
            wsat="http://docs.oasis-open.org/ws-tx/wsat/2006/06",
            wsa=WSA_2005,
            anonymous=f"{WSA_2005}/anonymous",
            none=f"{WSA_2005}/none",
            unspecified=f"{WSA_2005}/unspecified",
            addressing_fault=f"{WSA_2005}/soap/fault",
        ),
    }
)

SOAP: Final[Mapping[Soap, SoapNames]] = MappingProxyType(
    {
        Soap.V11: SoapNames(
            envelope="http://schemas.xmlsoap.org/soap/envelope/",
            media_type="text/xml",
            actor="actor",
            actors=frozenset(("", "http://schemas.xmlsoap.org/soap/actor/next")),
            sender="Client",
        ),
        Soap.V12: SoapNames(
            envelope="http://www.w3.org/2003/05/soap-envelope",
            media_type="application/soap+xml",
            actor="role",
            actors=frozenset(
                (
                    "",
                    "http://www.w3.org/2003/05/soap-envelope/role/next",
                    "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
                )
            ),
            sender="Sender",
        ),
    }
)

# Never the target of a message of ours (spec 5: "MUST NOT use the well-known anonymous endpoint").
NOWHERE: Final = frozenset(one for names in NAMES.values() for one in (names.anonymous, names.none) if one)
UNSPECIFIED: Final = frozenset(names.unspecified for names in NAMES.values())

_OF_WSCOOR = frozenset(
    (
        FaultCode.INVALID_STATE,
        FaultCode.INVALID_PROTOCOL,
        FaultCode.INVALID_PARAMETERS,
        FaultCode.CANNOT_CREATE,
        FaultCode.CANNOT_REGISTER,
    )
)
# What others call these faults: Narayana, and versions of the specification before 2006/06 (protocols.md 5.3).
FAULT_ALIASES: Final[Mapping[str, FaultCode]] = MappingProxyType(
    {
        "CannotRegister": FaultCode.CANNOT_REGISTER,
        "AlreadyRegistered": FaultCode.CANNOT_REGISTER,
        "NoActivity": FaultCode.CANNOT_REGISTER,
        "ContextRefused": FaultCode.CANNOT_CREATE,
        "InvalidCreateParameters": FaultCode.INVALID_PARAMETERS,
    }
)

# 2004/10 has neither CannotCreateContext nor CannotRegisterParticipant. UnknownTransaction is none of its names either,
# but nothing else makes a participant roll back.
_FAULTS_2004: Final[Mapping[FaultCode, str]] = MappingProxyType(
    {FaultCode.CANNOT_CREATE: "ContextRefused", FaultCode.CANNOT_REGISTER: "NoActivity"}
)

NOTES: Final[Mapping[str, Note]] = MappingProxyType({str(note): note for note in Note})
REQUESTS: Final[Mapping[str, Request]] = MappingProxyType({str(request): request for request in Request})


def body_namespace(kind: str, version: Version) -> str:
    """Namespace of the body element of a message of this kind, which is no fault."""
    names = NAMES[version]
    return names.wscoor if kind in REQUESTS else names.wsat


def action_of(kind: str, version: Version, fault: FaultCode | None = None) -> str:
    """wsa:Action of a message: `<namespace>/<element>`, of a fault `<namespace of its code>/fault`."""
    if kind != FAULT:
        return f"{body_namespace(kind, version)}/{kind}"
    names = NAMES[version]
    if fault in _OF_WSCOOR:
        return f"{names.wscoor}/fault"
    return names.addressing_fault if fault in (None, FaultCode.MUST_UNDERSTAND) else f"{names.wsat}/fault"


def fault_namespace(code: FaultCode, version: Version, soap: Soap) -> str:
    names = NAMES[version]
    if code in _OF_WSCOOR:
        return names.wscoor
    return SOAP[soap].envelope if code is FaultCode.MUST_UNDERSTAND else names.wsat


def fault_name(code: FaultCode, version: Version) -> str:
    """Local name of a fault's code as this version calls it."""
    return _FAULTS_2004.get(code, str(code)) if version is Version.V2004 else str(code)


def protocol_uri(protocol: Protocol, version: Version) -> str:
    """ProtocolIdentifier of a coordination protocol: `<wsat>/Durable2PC`."""
    return f"{NAMES[version].wsat}/{protocol}"


def protocol_of(uri: str, version: Version) -> Protocol | None:
    """The coordination protocol that a ProtocolIdentifier names; None when it is none of this version."""
    return next((one for one in Protocol if protocol_uri(one, version) == uri), None)


def coordination_type(version: Version) -> str:
    return NAMES[version].wsat
