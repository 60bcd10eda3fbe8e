"""Delivery channels, and the transports and document exchanges that they share, as elements of an agreement."""

from __future__ import annotations

from collections.abc import Iterable

from lxml import etree

from partners.cpa.channels import (
    Algorithm,
    Channel,
    DocExchange,
    MessageBinding,
    Namespace,
    Protocol,
    Reliability,
    Transport,
    TransportSecurity,
)
from partners.cpa.lexical import write_duration
from partners.cpa.trees import add


def add_channels(party: etree._Element, channels: Iterable[Channel]) -> None:
    """Adds the channels of a party, then each transport and each document exchange once."""
    transports: dict[str, Transport] = {}
    exchanges: dict[str, DocExchange] = {}
    for channel in channels:
        _channel(party, channel)
        transports.setdefault(channel.transport.id, channel.transport)
        exchanges.setdefault(channel.doc_exchange.id, channel.doc_exchange)
    for transport in transports.values():
        _transport(party, transport)
    for exchange in exchanges.values():
        element = add(party, "DocExchange", docExchangeId=exchange.id)
        _message_binding(element, "Sender", exchange.sender)
        _message_binding(element, "Receiver", exchange.receiver)


def add_namespaces(element: etree._Element, namespaces: Iterable[Namespace]) -> None:
    """Adds the document types that are supported."""
    for one in namespaces:
        add(element, "NamespaceSupported", one.uri, location=one.location, version=one.version)


def _channel(party: etree._Element, channel: Channel) -> None:
    element = add(
        party,
        "DeliveryChannel",
        channelId=channel.id,
        transportId=channel.transport.id,
        docExchangeId=channel.doc_exchange.id,
    )
    add(
        element,
        "MessagingCharacteristics",
        syncReplyMode=channel.sync_reply,
        ackRequested=channel.ack_requested,
        ackSignatureRequested=channel.ack_signature_requested,
        duplicateElimination=channel.duplicate_elimination,
        actor=channel.actor,
    )


def _transport(party: etree._Element, transport: Transport) -> None:
    element = add(party, "Transport", transportId=transport.id)
    if sender := transport.sender:
        side = add(element, "TransportSender")
        _protocol(side, "TransportProtocol", sender.protocol)
        for access in sender.access:
            add(side, "AccessAuthentication", access)
        _security(side, "Client", "Server", sender.security)
    if receiver := transport.receiver:
        side = add(element, "TransportReceiver")
        _protocol(side, "TransportProtocol", receiver.protocol)
        for access in receiver.access:
            add(side, "AccessAuthentication", access)
        for endpoint in receiver.endpoints:
            add(side, "Endpoint", uri=endpoint.uri, type=endpoint.type)
        _security(side, "Server", "Client", receiver.security)


def _security(side: etree._Element, own: str, other: str, security: TransportSecurity | None) -> None:
    if security is None:
        return
    element = add(side, f"Transport{own}Security")
    _protocol(element, "TransportSecurityProtocol", security.protocol)
    if security.certificate_id:
        add(element, f"{own}CertificateRef", certId=security.certificate_id)
    if security.security_id:
        add(element, f"{other}SecurityDetailsRef", securityId=security.security_id)
    _algorithms(element, "EncryptionAlgorithm", security.encryption)


def _protocol(parent: etree._Element, name: str, protocol: Protocol) -> None:
    add(parent, name, protocol.name, version=protocol.version)


def _algorithms(parent: etree._Element, name: str, algorithms: Iterable[Algorithm]) -> None:
    for one in algorithms:
        add(
            parent,
            name,
            one.name,
            minimumStrength="" if one.minimum_strength is None else str(one.minimum_strength),
            oid=one.oid,
            w3c=one.w3c,
            enumerationType=one.enumeration,
        )


def _message_binding(exchange: etree._Element, side: str, binding: MessageBinding | None) -> None:
    if binding is None:
        return
    element = add(exchange, f"ebXML{side}Binding", version=binding.version)
    if binding.reliability:
        _reliability(element, binding.reliability)
    if binding.persist_duration is not None:
        add(element, "PersistDuration", write_duration(binding.persist_duration))
    if signing := binding.non_repudiation:
        parent = add(element, f"{side}NonRepudiation")
        _protocol(parent, "NonRepudiationProtocol", signing.protocol)
        add(parent, "HashFunction", signing.hash)
        _algorithms(parent, "SignatureAlgorithm", signing.algorithms)
        _credentials(parent, "Signing", signing.certificate_id, signing.security_id)
    if envelope := binding.envelope:
        parent = add(element, f"{side}DigitalEnvelope")
        _protocol(parent, "DigitalEnvelopeProtocol", envelope.protocol)
        _algorithms(parent, "EncryptionAlgorithm", envelope.encryption)
        _credentials(parent, "Encryption", envelope.certificate_id, envelope.security_id)
    add_namespaces(element, binding.namespaces)


def _credentials(parent: etree._Element, use: str, certificate_id: str, security_id: str) -> None:
    if certificate_id:
        add(parent, f"{use}CertificateRef", certId=certificate_id)
    if security_id:
        add(parent, f"{use}SecurityDetailsRef", securityId=security_id)


def _reliability(binding: etree._Element, reliability: Reliability) -> None:
    element = add(binding, "ReliableMessaging")
    if reliability.retries is not None:
        add(element, "Retries", str(reliability.retries))
    if reliability.retry_interval is not None:
        add(element, "RetryInterval", write_duration(reliability.retry_interval))
    add(element, "MessageOrderSemantics", "Guaranteed" if reliability.ordered else "NotGuaranteed")
