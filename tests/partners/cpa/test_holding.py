"""What one agreement of this hub holds of a CPA, and why an action is left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from partners.choices import Encryption, Semantics, SignatureAlgorithm, Signatures, SyncReply
from partners.cpa.channels import Channel, Endpoint, Reliability
from partners.cpa.findings import Kind, Matter
from partners.cpa.flows import view_of
from partners.cpa.holding import ALGORITHMS, CIPHER_NAMES, Holding, NotHeld, hold
from partners.cpa.model import ActionBinding, Cpa
from partners.cpa.reading import read
from tests.partners.cpa import ALL, NOW, RELIABLE, SIGNED, changed, octets, reading

OVERHEID = 1


def held(document: bytes, side: int = OVERHEID) -> Holding:
    cpa = read(document, NOW).cpa
    return hold(view_of(cpa, cpa.parties[side]))


def left_out(document: bytes) -> list[str]:
    """What is said of the actions that are left out, each sentence once."""
    with pytest.raises(NotHeld) as refused:
        held(document)
    assert all(one.kind is Kind.CONFLICTING and one.line and one.path for one in refused.value.findings)
    return list(dict.fromkeys(one.text.partition("is left out: ")[2] for one in refused.value.findings))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", [0, 1])
def test_terms_are_values_that_agreements_have(name: str, side: int) -> None:
    cpa = reading(name).cpa
    try:
        terms = hold(view_of(cpa, cpa.parties[side])).terms
    except NotHeld:
        return
    assert terms["semantics"] in Semantics.values and terms["sync_reply"] in SyncReply.values
    assert terms["signatures"] in Signatures.values
    assert terms.get("signature_algorithm", SignatureAlgorithm.RSA_SHA256) in SignatureAlgorithm.values


def test_every_algorithm_of_agreements_has_a_name_in_documents() -> None:
    assert {name for name, _digest in ALGORITHMS.values()} == {*SignatureAlgorithm.values}


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (RELIABLE, [('syncReplyMode="none"', 'syncReplyMode="signalsOnly"')], "(signalsOnly) are not spoken here."),
        (RELIABLE, [('Binding tns:version="2.0"', 'Binding tns:version="1.0"')], "it is of ebXML Messaging 1.0, and"),
        (
            RELIABLE,
            [('duplicateElimination="always"', 'duplicateElimination="never"')],
            "messages are repeated and duplicates are never eliminated (at least once)",
        ),
        (
            RELIABLE,
            [('ackSignatureRequested="never"', 'ackSignatureRequested="always"')],
            "its acknowledgements are signed and its messages are not",
        ),
        (
            SIGNED,
            [
                (
                    "<tns:SignatureAlgorithm>http://www.w3.org/2000/09/xmldsig#rsa-sha1",
                    "<tns:SignatureAlgorithm>dsa-sha1",
                )
            ],
            "this hub does not sign with dsa-sha1.",
        ),
        (RELIABLE, [('NonRepudiationRequired="false"', 'NonRepudiationRequired="true"')], "neither side says how."),
    ],
)
def test_an_action_is_left_out_for_a_reason(name: str, changes: list[tuple[str, str]], said: str) -> None:
    text = octets(name).decode()
    document = changed(name, *changes, times=min(text.count(old) for old, _new in changes))
    [sentence] = left_out(document)
    assert said in sentence


def encrypted(algorithm: str = "aes256-CBC", *, protocol: str = "S/MIME", confidential: str = "persistent") -> bytes:
    """A document with DigitalEnvelopes."""
    envelope = (
        f"<tns:ReceiverDigitalEnvelope><tns:DigitalEnvelopeProtocol tns:version='2.0'>{protocol}"
        f"</tns:DigitalEnvelopeProtocol>{algorithm}"
        "<tns:EncryptionCertificateRef tns:certId='{}'/></tns:ReceiverDigitalEnvelope></tns:ebXMLReceiverBinding>"
    )
    text = octets(SIGNED).decode().replace('isConfidential="transient"', f'isConfidential="{confidential}"')
    text = text.replace('isConfidential="none"', f'isConfidential="{confidential}"')
    first, *rest = text.split("</tns:ebXMLReceiverBinding>")
    names = ["DIGIPOORT_EncryptionCert"] * 2 + ["OVERHEID_EncryptionCert"] * 2
    return (first + "".join(envelope.format(name) + part for name, part in zip(names, rest, strict=True))).encode()


@pytest.mark.parametrize(
    ("algorithm", "term"),
    [
        ("<tns:EncryptionAlgorithm>aes256-CBC</tns:EncryptionAlgorithm>", "smime-aes256"),
        (
            "<tns:EncryptionAlgorithm>http://www.w3.org/2001/04/xmlenc#aes128-cbc</tns:EncryptionAlgorithm>",
            "smime-aes128",
        ),
        (
            "<tns:EncryptionAlgorithm tns:oid='2.16.840.1.101.3.4.1.42'>best</tns:EncryptionAlgorithm>",
            "smime-aes256",
        ),
        (
            "<tns:EncryptionAlgorithm>DES-CBC</tns:EncryptionAlgorithm>"
            "<tns:EncryptionAlgorithm>AES-128-CBC</tns:EncryptionAlgorithm>",
            "smime-aes128",
        ),
    ],
)
def test_documents_are_encrypted_with_the_first_algorithm_that_is_known(algorithm: str, term: str) -> None:
    found = held(encrypted(algorithm))
    assert found.terms["encryption"] == term
    sides = [[one.id for one in side.recipients] for side in (found.own, found.partner)]
    assert sides == [["OVERHEID_EncryptionCert"], ["DIGIPOORT_EncryptionCert"]]


def test_every_way_to_encrypt_has_a_name_in_documents() -> None:
    assert {*CIPHER_NAMES, "none"} == {*Encryption.values}


AES = "<tns:EncryptionAlgorithm>AES-128</tns:EncryptionAlgorithm>"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (encrypted("<tns:EncryptionAlgorithm>DES-CBC</tns:EncryptionAlgorithm>"), "does not encrypt with DES-CBC."),
        (encrypted("<tns:EncryptionAlgorithm>AES256-GCM</tns:EncryptionAlgorithm>"), "encrypt with AES256-GCM."),
        (encrypted(AES, protocol="XMLENC"), "encrypts documents with S/MIME, and not with XMLENC."),
        (
            octets(SIGNED).replace(b'isConfidential="transient"', b'isConfidential="transient-and-persistent"'),
            "must be encrypted (isConfidential), and neither side says how.",
        ),
    ],
    ids=["algorithm", "mode", "protocol", "nothing"],
)
def test_what_cannot_be_encrypted_as_it_must_be_is_left_out(document: bytes, said: str) -> None:
    [sentence] = left_out(document)
    assert said in sentence


def test_documents_that_are_not_confidential_are_not_encrypted() -> None:
    found = held(encrypted(AES, confidential="transient"))
    assert (found.terms["encryption"], found.own.recipients) == ("none", ())
    [said] = {one.text.partition(" (line")[0] for one in found.findings if one.matter is Matter.NOT_ENCRYPTED}
    assert said == "Documents are not encrypted: isConfidential is transient"


@pytest.mark.parametrize(
    ("acknowledged", "once", "semantics"),
    [
        ("always", "always", "OnceAndOnlyOnce"),
        ("always", "perMessage", "OnceAndOnlyOnce"),
        ("perMessage", "always", "OnceAndOnlyOnce"),
        ("perMessage", "never", "BestEffort"),
        ("never", "always", "AtMostOnce"),
        ("never", "perMessage", "BestEffort"),
        ("never", "never", "BestEffort"),
    ],
)
def test_what_is_left_to_each_message_this_hub_asks_for(acknowledged: str, once: str, semantics: str) -> None:
    said = (
        ('ackRequested="always"', f'ackRequested="{acknowledged}"'),
        ('duplicateElimination="always"', f'duplicateElimination="{once}"'),
    )
    count = octets(RELIABLE).count(b'duplicateElimination="always"')
    found = held(changed(RELIABLE, *said, times=count))
    assert found.terms["semantics"] == semantics
    asked = [one for one in found.findings if one.matter is Matter.PER_MESSAGE]
    assert bool(asked) is (semantics == "OnceAndOnlyOnce" and "perMessage" in (acknowledged, once))
    assert all(one.kind is Kind.MAPPED for one in asked)
    timed = {"retries", "retry_interval", "partner_window"}
    assert timed <= found.terms.keys() if semantics == "OnceAndOnlyOnce" else not timed & found.terms.keys()


def test_receipts_are_signed_if_the_channel_says_so() -> None:
    document = changed(
        SIGNED,
        ('ackSignatureRequested="never"', 'ackSignatureRequested="always"'),
        times=octets(SIGNED).count(b'ackSignatureRequested="never"'),
    )
    assert (held(octets(SIGNED)).terms["signatures"], held(document).terms["signatures"]) == ("messages", "receipts")


def everywhere(name: str, *changes: tuple[str, str]) -> bytes:
    text = octets(name).decode()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text.encode()


def test_what_is_not_acknowledged_has_no_signed_receipt() -> None:
    never = (
        ('ackRequested="always"', 'ackRequested="never"'),
        ('SignatureRequested="never"', 'SignatureRequested="always"'),
    )
    terms = held(everywhere(SIGNED, *never)).terms
    assert (terms["semantics"], terms["signatures"]) == ("AtMostOnce", "messages")


def test_certificates_for_signatures_are_of_those_who_sign() -> None:
    assert [one.id for one in held(octets(SIGNED)).partner.signers] == ["DIGIPOORT_SigningCert"]
    unsigned = everywhere(SIGNED, ('isNonRepudiationRequired="true"', 'isNonRepudiationRequired="false"'))
    found = held(unsigned)
    assert (found.terms["signatures"], found.partner.signers, found.own.signers) == ("none", (), ())
    assert [one.id for one in found.partner.clients] == ["DIGIPOORT_ClientCert"]


def test_the_certificate_of_the_partner_s_server_is_trusted_else_our_anchors() -> None:
    shown = '<tns:ServerCertificateRef tns:certId="DIGIPOORT_ServerCert" />'
    other = shown.replace("ServerCert", "EncryptionCert", 2).replace(
        "<tns:EncryptionCertificateRef", "<tns:ServerCertificateRef"
    )
    assert [one.id for one in held(everywhere(SIGNED, (shown, other))).trusted] == ["DIGIPOORT_EncryptionCert"]
    cpa = reading(SIGNED).cpa
    mute = []
    for channel in cpa.parties[0].channels:
        receiver = channel.transport.receiver
        assert receiver
        mute.append(replace(channel, transport=replace(channel.transport, receiver=replace(receiver, security=None))))
    cpa = replace(cpa, parties=(replace(cpa.parties[0], channels=tuple(mute)), cpa.parties[1]))
    anchors = cpa.parties[1].anchors("OVERHEID_TransportSecurity")
    trusted = [one.der for one in hold(view_of(cpa, cpa.parties[1])).trusted]
    assert trusted == list(dict.fromkeys(one.der for one in anchors)) != []


def test_a_digest_of_another_kind_is_told() -> None:
    name = "<tns:HashFunction>http://www.w3.org/2000/09/xmldsig#sha1"
    document = changed(
        SIGNED,
        (name, "<tns:HashFunction>http://www.w3.org/2001/04/xmlenc#sha256"),
        times=octets(SIGNED).count(name.encode()),
    )
    told = [one for one in held(document).findings if one.matter is Matter.HASH]
    assert len(told) == 2 and not [one for one in held(octets(SIGNED)).findings if one.matter is Matter.HASH]


def by_second_channel(action: str, change: Callable[[Channel], Channel]) -> Cpa:
    """The reliable agreement, in which Logius has a second channel, and uses it for one action."""
    cpa = reading(RELIABLE).cpa
    logius = cpa.parties[0]
    used = next(one for one in logius.channels if one.id.endswith("_ProfileReliableMessaging"))

    def rebound(bindings: tuple[ActionBinding, ...]) -> tuple[ActionBinding, ...]:
        return tuple(replace(one, channel_ids=("second",)) if one.action == action else one for one in bindings)

    roles = tuple(
        replace(one, can_send=rebound(one.can_send), can_receive=rebound(one.can_receive)) for one in logius.roles
    )
    changed_party = replace(logius, channels=(*logius.channels, replace(change(used), id="second")), roles=roles)
    return replace(cpa, parties=(changed_party, cpa.parties[1]))


def with_binding(channel: Channel, **changes: Any) -> Channel:
    """The channel with other settings of what is sent, and of what is received."""
    exchange = channel.doc_exchange
    assert exchange.sender and exchange.receiver
    sender, receiver = replace(exchange.sender, **changes), replace(exchange.receiver, **changes)
    return replace(channel, doc_exchange=replace(exchange, sender=sender, receiver=receiver))


def elsewhere(channel: Channel) -> Channel:
    receiver = channel.transport.receiver
    assert receiver
    endpoints = (Endpoint("http://localhost:9999/ebms"),)
    return replace(channel, transport=replace(channel.transport, receiver=replace(receiver, endpoints=endpoints)))


def fewer(channel: Channel) -> Channel:
    return with_binding(channel, reliability=Reliability(False, 4, timedelta(seconds=60.5)))


def test_another_address_is_left_out() -> None:
    cpa = by_second_channel("aanleveren", elsewhere)
    found = hold(view_of(cpa, cpa.parties[1]))
    [left] = [one for one in found.findings if one.matter is Matter.LEFT_OUT]
    assert "the address is http://localhost:8888/ebms in others" in left.text
    assert "aanleveren" not in [action for _service, action, _direction in found.services]
    # Of as many, those that come first.
    assert (found.partner.uri, len(found.services)) == ("http://localhost:8888/ebms", 3)


def test_of_several_memories_the_shortest_counts() -> None:
    cpa = by_second_channel("aanleveren", lambda one: with_binding(one, persist_duration=timedelta(minutes=29.99)))
    found = hold(view_of(cpa, cpa.parties[1]))
    assert found.terms["partner_window"] == 1799 and len(found.services) == 4
    [told] = [one for one in found.findings if one.matter is Matter.ONE_VALUE]
    assert told.text == "Of several PersistDurations PT1799.4S is taken."


def test_retries_are_those_of_the_first_and_others_are_told() -> None:
    cpa = by_second_channel("bevestigAanleveren", fewer)
    found = hold(view_of(cpa, cpa.parties[0]))
    assert (found.terms["retries"], found.terms["retry_interval"]) == (5, 300)
    told = [one.text for one in found.findings if one.matter is Matter.ONE_VALUE]
    first = "DIGIPOORT_defaultDeliveryChannel_ProfileReliableMessaging"
    assert told == [f"{name} is not that of {first}, which is taken for all." for name in ("Retries", "RetryInterval")]
    cpa = by_second_channel("afleveren", fewer)
    found = hold(view_of(cpa, cpa.parties[0]))
    assert (found.terms["retries"], found.terms["retry_interval"]) == (4, 61)  # no repeat is sooner than agreed


def test_a_party_that_only_sends_is_reached_by_its_own_channel() -> None:
    cpa = reading("ebiot-CPAT1.xml").cpa
    buyer = hold(view_of(cpa, cpa.parties[0]))
    assert buyer.own.uri == "http://147.8.178.159:8080/msh/"
    assert buyer.services == (("urn:ebIOT-TestService:order", "Order", "send"),)


def test_a_party_without_an_address() -> None:
    cpa = reading("ebiot-CPAT1.xml").cpa
    buyer, seller = cpa.parties
    mute = tuple(replace(one, transport=replace(one.transport, receiver=None)) for one in buyer.channels)
    cpa = replace(cpa, parties=(replace(buyer, channels=mute), seller))
    with pytest.raises(NotHeld, match="The document has no address of CECID"):
        hold(view_of(cpa, cpa.parties[0]))


def test_parties_that_agree_on_nothing() -> None:
    cpa = reading(RELIABLE).cpa
    silent = replace(cpa.parties[0], roles=())
    cpa = replace(cpa, parties=(silent, cpa.parties[1]))
    with pytest.raises(NotHeld, match="The parties agree on no action"):
        hold(view_of(cpa, silent))


def one_side(text: str, attribute: str, sends: str, receives: str) -> bytes:
    """A document in which CanSend says something else of all messages than CanReceive."""
    pieces = re.split(rf'({attribute}=")[a-z-]+', text)
    made = pieces[0]
    for name, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        made += name + (sends if made.rindex("<tns:CanSend>") > made.rfind("<tns:CanReceive>") else receives) + rest
    return made.encode()


@pytest.mark.parametrize(("sends", "receives"), [("true", "false"), ("false", "true")])
def test_what_one_side_wants_signed_is_signed(sends: str, receives: str) -> None:
    found = held(one_side(octets(SIGNED).decode(), "isNonRepudiationRequired", sends, receives))
    assert found.terms["signatures"] == "messages"
    said = {one.text for one in found.findings if one.matter is Matter.SIDES_DIFFER}
    assert said and all("is signed, because the other side says so" in one for one in said)


@pytest.mark.parametrize(("sends", "receives"), [("persistent", "none"), ("none", "persistent")])
def test_what_one_side_wants_encrypted_is_encrypted(sends: str, receives: str) -> None:
    document = one_side(encrypted(AES).decode(), "isConfidential", sends, receives)
    found = held(document)
    assert found.terms["encryption"] == "smime-aes128"
    assert any("is encrypted, because the other side" in one.text for one in found.findings)
    with pytest.raises(NotHeld):
        held(one_side(octets(RELIABLE).decode(), "isConfidential", sends, receives))


def test_an_address_without_tls_for_what_is_confidential_is_said() -> None:
    said = [one.text for one in held(octets(RELIABLE)).findings if one.matter is Matter.URI_SCHEME]
    assert said and "is without it: ask for another address." in said[0]
    assert not any(one.matter is Matter.URI_SCHEME for one in held(octets(SIGNED)).findings)


def test_the_partners_server_is_trusted_where_we_only_receive() -> None:
    both = held(octets(SIGNED))
    cpa = read(octets(SIGNED), NOW).cpa
    view = view_of(cpa, cpa.parties[OVERHEID])
    assert both.trusted and hold(replace(view, sends=())).trusted == both.trusted


def test_any_interval_is_held() -> None:
    found = held(changed(RELIABLE, ("<tns:RetryInterval>PT5M", "<tns:RetryInterval>P999999999DT1S"), times=4))
    assert found.terms["retry_interval"] == 999_999_999 * 86_400 + 1
