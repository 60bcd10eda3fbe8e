"""What a collaboration protocol agreement says (OASIS ebXML CPPA 2.0), as values.

Certificates, security details, channels and packages are named by their ids, as in the document; `Party` and `Cpa` find
them. "" and None stand for what the document does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from partners.cpa.channels import Channel, Namespace, Placed


class Status(StrEnum):
    """How far the parties are with the agreement."""

    AGREED = "agreed"
    SIGNED = "signed"
    PROPOSED = "proposed"


class Confidentiality(StrEnum):
    """Whether a document is encrypted on the wire (transient), where it is kept (persistent), or both."""

    NONE = "none"
    TRANSIENT = "transient"
    PERSISTENT = "persistent"
    BOTH = "transient-and-persistent"


class CertificateUse(StrEnum):
    """What a party's certificate is for: those that refer to it say so."""

    SIGNING = "signing"
    ENCRYPTION = "encryption"
    CLIENT = "client"
    SERVER = "server"
    APPLICATION = "application"
    ANCHOR = "anchor"


class _WithId(Protocol):
    @property
    def id(self) -> str: ...


_T = TypeVar("_T", bound=_WithId)


def _named(known: Iterable[_T], wanted: str) -> _T:
    for one in known:
        if one.id == wanted:
            return one
    raise KeyError(wanted)


@dataclass(frozen=True, slots=True)
class PartyId(Placed):
    id: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Certificate(Placed):
    """A certificate in DER, b"" where the document only names a key; `chain`: the others beside it, in its order."""

    id: str
    der: bytes = field(default=b"", repr=False)
    chain: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SecurityDetails(Placed):
    """Whom a party trusts. `anchors`: ids of certificates."""

    id: str
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionBinding(Placed):
    """One action that a party can send, or can receive.

    `channel_ids`: the first is the default. `other_id`: the other party's binding. `signed`, `signed_receipt`: whether
    nobody may be able to deny the message and its receipt. `replies`: bindings in the opposite direction that are
    answered synchronously.
    """

    id: str
    action: str
    package_id: str
    channel_ids: tuple[str, ...]
    other_id: str = ""
    signed: bool | None = None
    signed_receipt: bool | None = None
    confidential: Confidentiality | None = None
    replies: tuple[ActionBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessSpecification(Placed):
    name: str
    version: str
    href: str
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Role(Placed):
    """A role that a party plays in a business process, with its one service. `certificate_ids`: its application's."""

    name: str
    href: str
    process: ProcessSpecification
    service: str
    service_type: str = ""
    can_send: tuple[ActionBinding, ...] = ()
    can_receive: tuple[ActionBinding, ...] = ()
    certificate_ids: tuple[str, ...] = ()
    security_id: str = ""

    def sends(self) -> Iterator[ActionBinding]:
        """All that the role can send, synchronous replies too."""
        return _of_direction(self.can_send, self.can_receive)

    def receives(self) -> Iterator[ActionBinding]:
        """All that the role can receive, synchronous replies too."""
        return _of_direction(self.can_receive, self.can_send)


def _of_direction(own: tuple[ActionBinding, ...], opposite: tuple[ActionBinding, ...]) -> Iterator[ActionBinding]:
    for binding in own:
        yield binding
        yield from _of_direction((), binding.replies)
    for binding in opposite:
        yield from _of_direction(binding.replies, ())


@dataclass(frozen=True, slots=True)
class Override(Placed):
    """The channel for one action of the messaging service itself, Acknowledgment for instance."""

    action: str
    channel_id: str


@dataclass(frozen=True, slots=True)
class Party(Placed):
    """`references`: URIs where more is said about the party. The defaults are for signals of the messaging service."""

    name: str
    ids: tuple[PartyId, ...]
    references: tuple[str, ...]
    roles: tuple[Role, ...]
    channels: tuple[Channel, ...]
    default_channel_id: str
    default_package_id: str
    certificates: tuple[Certificate, ...] = ()
    security_details: tuple[SecurityDetails, ...] = ()
    overrides: tuple[Override, ...] = ()

    def channel(self, channel_id: str) -> Channel:
        """Raises KeyError."""
        return _named(self.channels, channel_id)

    def certificate(self, certificate_id: str) -> Certificate:
        """Raises KeyError."""
        return _named(self.certificates, certificate_id)

    def anchors(self, security_id: str) -> tuple[Certificate, ...]:
        """The certificates that these security details trust; none for "". Raises KeyError."""
        if not security_id:
            return ()
        return tuple(self.certificate(one) for one in _named(self.security_details, security_id).anchors)

    def uses(self, certificate_id: str) -> frozenset[CertificateUse]:
        """What the certificate is for, as those say that refer to it."""
        return frozenset(use for known, use in self._uses() if known == certificate_id)

    def _uses(self) -> Iterator[tuple[str, CertificateUse]]:
        for role in self.roles:
            yield from ((one, CertificateUse.APPLICATION) for one in role.certificate_ids)
        for details in self.security_details:
            yield from ((one, CertificateUse.ANCHOR) for one in details.anchors)
        for channel in self.channels:
            sides = (
                (channel.transport.sender, CertificateUse.CLIENT),
                (channel.transport.receiver, CertificateUse.SERVER),
            )
            yield from ((side.security.certificate_id, use) for side, use in sides if side and side.security)
            for binding in (channel.doc_exchange.sender, channel.doc_exchange.receiver):
                if binding and binding.non_repudiation:
                    yield binding.non_repudiation.certificate_id, CertificateUse.SIGNING
                if binding and binding.envelope:
                    yield binding.envelope.certificate_id, CertificateUse.ENCRYPTION


@dataclass(frozen=True, slots=True)
class SimplePart(Placed):
    """A MIME part. `role`: URI of what it is for."""

    id: str
    mime_type: str
    mime_parameters: str = ""
    role: str = ""
    namespaces: tuple[Namespace, ...] = ()


@dataclass(frozen=True, slots=True)
class Constituent(Placed):
    """A part of a package. `part_id`: a simple part, or a container before it. The numbers are of occurrences."""

    part_id: str
    excluded_from_signature: bool = False
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Container(Placed):
    """Parts put together (composite), or one part in another form (encapsulated: compressed, encrypted)."""

    id: str
    encapsulates: bool
    mime_type: str
    constituents: tuple[Constituent, ...]
    mime_parameters: str = ""


@dataclass(frozen=True, slots=True)
class Packaging(Placed):
    """How a message is put together. `composites`: alternatives, each of containers from the innermost outwards."""

    id: str
    parse: bool
    generate: bool
    composites: tuple[tuple[Container, ...], ...]


@dataclass(frozen=True, slots=True)
class Comment(Placed):
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Cpa(Placed):
    """An agreement of two parties. `start`, `end`: aware, in UTC."""

    id: str
    version: str
    status: Status
    start: datetime
    end: datetime
    parties: tuple[Party, Party]
    simple_parts: tuple[SimplePart, ...]
    packagings: tuple[Packaging, ...]
    invocation_limit: int | None = None
    concurrent_conversations: int | None = None
    comments: tuple[Comment, ...] = ()

    def packaging(self, package_id: str) -> Packaging:
        """Raises KeyError."""
        return _named(self.packagings, package_id)
