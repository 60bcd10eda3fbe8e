"""An agreement as a CPA 2.0 document, which anybody's messaging service can import."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from lxml import etree

from partners.cpa.document import DS, ROOT, TP, XLINK, XML, CpaUnreadable
from partners.cpa.lexical import write_boolean, write_date_time
from partners.cpa.model import (
    ActionBinding,
    Certificate,
    Constituent,
    Container,
    Cpa,
    Packaging,
    Party,
    Role,
    SecurityDetails,
    SimplePart,
)
from partners.cpa.reading import read_agreement
from partners.cpa.trees import add
from partners.cpa.writing_channels import add_channels, add_namespaces


class CpaUnwritable(Exception):
    """An agreement cannot be said in a CPA 2.0; the sentence tells why."""


def write(cpa: Cpa) -> bytes:
    """The document in UTF-8: it is valid, and reads as the same agreement. Raises CpaUnwritable."""
    try:
        root = _cpa(cpa)
        octets = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)
        again = read_agreement(octets)
    except CpaUnreadable as error:
        raise CpaUnwritable(f"The agreement makes no valid document. {error}") from error
    except ValueError as error:
        raise CpaUnwritable(f"A value has characters that XML cannot carry: {error}") from error
    if again != cpa:
        raise CpaUnwritable(
            "The document would not say the same: white space at the ends of values, blank values, different objects "
            "with the same id, and objects that no channel uses get lost."
        )
    return octets


def _cpa(cpa: Cpa) -> etree._Element:
    root = etree.Element(ROOT, nsmap={"tp": TP, "xlink": XLINK, "ds": DS})
    root.set(f"{{{TP}}}cpaid", cpa.id)
    root.set(f"{{{TP}}}version", cpa.version)
    add(root, "Status", value=cpa.status)
    add(root, "Start", write_date_time(cpa.start))
    add(root, "End", write_date_time(cpa.end))
    if cpa.invocation_limit is not None or cpa.concurrent_conversations is not None:
        add(
            root,
            "ConversationConstraints",
            invocationLimit=_number(cpa.invocation_limit),
            concurrentConversations=_number(cpa.concurrent_conversations),
        )
    for party in cpa.parties:
        _party(root, party)
    for part in cpa.simple_parts:
        _simple_part(root, part)
    for packaging in cpa.packagings:
        _packaging(root, packaging)
    for comment in cpa.comments:
        element = add(root, "Comment", comment.text)
        if comment.language:
            element.set(f"{{{XML}}}lang", comment.language)
    return root


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _boolean(value: bool | None) -> str:
    return "" if value is None else write_boolean(value)


def _link(element: etree._Element, href: str) -> None:
    element.set(f"{{{XLINK}}}type", "simple")
    element.set(f"{{{XLINK}}}href", href)


def _party(root: etree._Element, party: Party) -> None:
    element = add(
        root,
        "PartyInfo",
        partyName=party.name,
        defaultMshChannelId=party.default_channel_id,
        defaultMshPackageId=party.default_package_id,
    )
    for one in party.ids:
        add(element, "PartyId", one.id, type=one.type)
    for href in party.references:
        _link(add(element, "PartyRef"), href)
    for role in party.roles:
        _role(element, role)
    for certificate in party.certificates:
        _certificate(element, certificate)
    for details in party.security_details:
        _security_details(element, details)
    add_channels(element, party.channels)
    for override in party.overrides:
        add(element, "OverrideMshActionBinding", action=override.action, channelId=override.channel_id)


def _role(party: etree._Element, role: Role) -> None:
    element = add(party, "CollaborationRole")
    process = role.process
    specification = add(element, "ProcessSpecification", name=process.name, version=process.version, uuid=process.uuid)
    _link(specification, process.href)
    _link(add(element, "Role", name=role.name), role.href)
    for certificate_id in role.certificate_ids:
        add(element, "ApplicationCertificateRef", certId=certificate_id)
    if role.security_id:
        add(element, "ApplicationSecurityDetailsRef", securityId=role.security_id)
    binding = add(element, "ServiceBinding")
    add(binding, "Service", role.service, type=role.service_type)
    _bindings(binding, "CanSend", role.can_send)
    _bindings(binding, "CanReceive", role.can_receive)


def _bindings(parent: etree._Element, name: str, bindings: Iterable[ActionBinding]) -> None:
    opposite = "CanReceive" if name == "CanSend" else "CanSend"
    for binding in bindings:
        element = add(parent, name)
        own = add(element, "ThisPartyActionBinding", id=binding.id, action=binding.action, packageId=binding.package_id)
        add(
            own,
            "BusinessTransactionCharacteristics",
            isNonRepudiationRequired=_boolean(binding.signed),
            isNonRepudiationReceiptRequired=_boolean(binding.signed_receipt),
            isConfidential=binding.confidential or "",
        )
        for channel_id in binding.channel_ids:
            add(own, "ChannelId", channel_id)
        if binding.other_id:
            add(element, "OtherPartyActionBinding", binding.other_id)
        _bindings(element, opposite, binding.replies)


def _certificate(party: etree._Element, certificate: Certificate) -> None:
    info = add(add(party, "Certificate", certId=certificate.id), "KeyInfo", namespace=DS)
    if not certificate.der:
        add(info, "KeyName", certificate.id, namespace=DS)  # the schema wants something about a key
        return
    data = add(info, "X509Data", namespace=DS)
    for der in (certificate.der, *certificate.chain):
        add(data, "X509Certificate", base64.b64encode(der).decode(), namespace=DS)


def _security_details(party: etree._Element, details: SecurityDetails) -> None:
    element = add(party, "SecurityDetails", securityId=details.id)
    if details.anchors:
        anchors = add(element, "TrustAnchors")
        for certificate_id in details.anchors:
            add(anchors, "AnchorCertificateRef", certId=certificate_id)


def _simple_part(root: etree._Element, part: SimplePart) -> None:
    element = add(root, "SimplePart", id=part.id, mimetype=part.mime_type, mimeparameters=part.mime_parameters)
    if part.role:
        element.set(f"{{{XLINK}}}role", part.role)
    add_namespaces(element, part.namespaces)


def _packaging(root: etree._Element, packaging: Packaging) -> None:
    element = add(root, "Packaging", id=packaging.id)
    add(
        element,
        "ProcessingCapabilities",
        parse=write_boolean(packaging.parse),
        generate=write_boolean(packaging.generate),
    )
    for containers in packaging.composites:
        composites = add(element, "CompositeList")
        for container in containers:
            _container(composites, container)


def _container(parent: etree._Element, container: Container) -> None:
    element = add(
        parent,
        "Encapsulation" if container.encapsulates else "Composite",
        id=container.id,
        mimetype=container.mime_type,
        mimeparameters=container.mime_parameters,
    )
    for constituent in container.constituents:
        _constituent(element, constituent)


def _constituent(parent: etree._Element, constituent: Constituent) -> None:
    add(
        parent,
        "Constituent",
        idref=constituent.part_id,
        excludedFromSignature=write_boolean(constituent.excluded_from_signature),
        minOccurs=_number(constituent.least),
        maxOccurs=_number(constituent.most),
    )
