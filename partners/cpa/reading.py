"""A CPA 2.0 document as an agreement, with what became of everything in it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import datetime

from partners.cpa import document, judging, references
from partners.cpa.delivery import read_channels, read_namespaces
from partners.cpa.document import DS, XLINK, XML
from partners.cpa.findings import Finding, Kind
from partners.cpa.lexical import read_boolean, read_date_time, read_number
from partners.cpa.model import (
    ActionBinding,
    Certificate,
    Comment,
    Confidentiality,
    Constituent,
    Container,
    Cpa,
    Override,
    Packaging,
    Party,
    PartyId,
    ProcessSpecification,
    Role,
    SecurityDetails,
    SimplePart,
    Status,
)
from partners.cpa.nodes import Ledger, Node


@dataclass(frozen=True, slots=True)
class Reading:
    """An agreement, and what became of each element and attribute of its document, followed by what does not fit."""

    cpa: Cpa
    findings: tuple[Finding, ...]

    def of_kind(self, kind: Kind) -> list[Finding]:
        return [one for one in self.findings if one.kind is kind]


def read(octets: bytes, now: datetime) -> Reading:
    """Reads a document. `now`: aware; the agreement and its certificates are judged by it. Raises CpaUnreadable."""
    cpa, ledger = _read(octets)
    followed = ledger.findings()
    lines = {one.path: one.line for one in followed}
    judged = (replace(one, line=lines.get(one.path, one.line)) for one in judging.judge(cpa, now))
    return Reading(cpa, (*followed, *judged))


def read_agreement(octets: bytes) -> Cpa:
    """The agreement alone. Raises CpaUnreadable."""
    return _read(octets)[0]


def _read(octets: bytes) -> tuple[Cpa, Ledger]:
    root = document.parse(octets)
    ledger = Ledger(root)
    # Before the schema, which says only that the value of a second one is not valid.
    ids = references.ids(root, ledger)
    document.validate(root)
    references.check(root, ledger, ids)
    return _cpa(Node(root, ledger)), ledger


def _cpa(node: Node) -> Cpa:
    limits = node.child("ConversationConstraints")
    first, second = (_party(one) for one in node.children("PartyInfo"))
    return Cpa(
        id=node.needed("cpaid"),
        version=node.attribute("version"),
        status=Status(node.one("Status").attribute("value")),
        start=node.one("Start").read_text(read_date_time),
        end=node.one("End").read_text(read_date_time),
        parties=(first, second),
        simple_parts=tuple(_simple_part(one) for one in node.children("SimplePart")),
        packagings=tuple(_packaging(one) for one in node.children("Packaging")),
        invocation_limit=limits.read_attribute("invocationLimit", read_number) if limits else None,
        concurrent_conversations=limits.read_attribute("concurrentConversations", read_number) if limits else None,
        comments=tuple(
            Comment(one.text(), one.attribute("lang", XML), place=one.place) for one in node.children("Comment")
        ),
        place=node.place,
    )


def _party(node: Node) -> Party:
    return Party(
        name=node.needed("partyName"),
        ids=tuple(
            PartyId(one.needed_text(), one.attribute("type"), place=one.place) for one in node.children("PartyId")
        ),
        references=tuple(one.attribute("href", XLINK) for one in node.children("PartyRef")),
        roles=tuple(_role(one) for one in node.children("CollaborationRole")),
        channels=read_channels(node),
        default_channel_id=node.attribute("defaultMshChannelId"),
        default_package_id=node.attribute("defaultMshPackageId"),
        certificates=tuple(_certificate(one) for one in node.children("Certificate")),
        security_details=tuple(_security_details(one) for one in node.children("SecurityDetails")),
        overrides=tuple(
            Override(one.needed("action"), one.attribute("channelId"), place=one.place)
            for one in node.children("OverrideMshActionBinding")
        ),
        place=node.place,
    )


def _certificate(node: Node) -> Certificate:
    found = [
        base64.b64decode("".join(one.text().split()))
        for info in node.children("KeyInfo", namespace=DS)
        for data in info.children("X509Data", namespace=DS)
        for one in data.children("X509Certificate", namespace=DS)
    ]
    der, *chain = [der for der in found if der] or [b""]
    return Certificate(node.attribute("certId"), der, tuple(chain), place=node.place)


def _security_details(node: Node) -> SecurityDetails:
    anchors = node.child("TrustAnchors")
    known = anchors.children("AnchorCertificateRef") if anchors else []
    return SecurityDetails(
        node.attribute("securityId"), tuple(one.attribute("certId") for one in known), place=node.place
    )


def _role(node: Node) -> Role:
    role, process, binding = node.one("Role"), node.one("ProcessSpecification"), node.one("ServiceBinding")
    service = binding.one("Service")
    security = node.child("ApplicationSecurityDetailsRef")
    return Role(
        name=role.needed("name"),
        href=role.attribute("href", XLINK),
        process=ProcessSpecification(
            process.attribute("name"),
            process.attribute("version"),
            process.attribute("href", XLINK),
            process.attribute("uuid"),
            place=process.place,
        ),
        service=service.needed_text(),
        service_type=service.attribute("type"),
        can_send=_bindings(binding, "CanSend"),
        can_receive=_bindings(binding, "CanReceive"),
        certificate_ids=tuple(one.attribute("certId") for one in node.children("ApplicationCertificateRef")),
        security_id=security.attribute("securityId") if security else "",
        place=node.place,
    )


def _bindings(node: Node, name: str) -> tuple[ActionBinding, ...]:
    opposite = "CanReceive" if name == "CanSend" else "CanSend"
    return tuple(_binding(one, opposite) for one in node.children(name))


def _binding(node: Node, opposite: str) -> ActionBinding:
    own, other = node.one("ThisPartyActionBinding"), node.child("OtherPartyActionBinding")
    business = own.one("BusinessTransactionCharacteristics")
    confidential = business.attribute("isConfidential")
    return ActionBinding(
        id=own.attribute("id"),
        action=own.needed("action"),
        package_id=own.attribute("packageId"),
        channel_ids=tuple(one.text() for one in own.children("ChannelId")),
        other_id=other.text() if other else "",
        signed=business.read_attribute("isNonRepudiationRequired", read_boolean),
        signed_receipt=business.read_attribute("isNonRepudiationReceiptRequired", read_boolean),
        confidential=Confidentiality(confidential) if confidential else None,
        replies=_bindings(node, opposite),
        place=own.place,
    )


def _simple_part(node: Node) -> SimplePart:
    return SimplePart(
        id=node.attribute("id"),
        mime_type=node.attribute("mimetype"),
        mime_parameters=node.attribute("mimeparameters"),
        role=node.attribute("role", XLINK),
        namespaces=read_namespaces(node),
        place=node.place,
    )


def _packaging(node: Node) -> Packaging:
    able = node.one("ProcessingCapabilities")
    return Packaging(
        id=node.attribute("id"),
        parse=able.read_attribute("parse", read_boolean) is True,
        generate=able.read_attribute("generate", read_boolean) is True,
        composites=tuple(_composites(one) for one in node.children("CompositeList")),
        place=node.place,
    )


def _composites(node: Node) -> tuple[Container, ...]:
    return tuple(_container(one) for one in node.children("Encapsulation", "Composite"))


def _container(node: Node) -> Container:
    return Container(
        id=node.attribute("id"),
        encapsulates=node.name == "Encapsulation",
        mime_type=node.attribute("mimetype"),
        constituents=tuple(_constituent(one) for one in node.children("Constituent")),
        mime_parameters=node.attribute("mimeparameters"),
        place=node.place,
    )


def _constituent(node: Node) -> Constituent:
    return Constituent(
        part_id=node.attribute("idref"),
        excluded_from_signature=node.read_attribute("excludedFromSignature", read_boolean) is True,
        least=node.read_attribute("minOccurs", read_number),
        most=node.read_attribute("maxOccurs", read_number),
        place=node.place,
    )
