"""What eight agreements of others say: the values were read by eye from the documents."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from partners.cpa.channels import (
    Algorithm,
    Endpoint,
    EndpointType,
    Namespace,
    NonRepudiation,
    Protocol,
    Reliability,
    Requirement,
    SyncReply,
    TransportReceiver,
    TransportSecurity,
    TransportSender,
)
from partners.cpa.model import (
    CertificateUse,
    Confidentiality,
    Constituent,
    Container,
    Packaging,
    PartyId,
    ProcessSpecification,
    SimplePart,
    Status,
)
from tests.partners.cpa import BEST_EFFORT, EBIOT, NAV, RELIABLE, SIGNED, reading

DSIG = "http://www.w3.org/2000/09/xmldsig#"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
TO_PARTY = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
HEADER = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
HTTP = Protocol("HTTP", "1.1")
SMTP = Protocol("SMTP", "1.1")


def test_nav_the_agreement_and_its_parties() -> None:
    cpa = reading(NAV).cpa
    assert (cpa.id, cpa.version, cpa.status) == ("nav:qass:35065", "2_0b", Status.PROPOSED)
    assert cpa.start == datetime(2025, 9, 29, 13, 33, 28, tzinfo=UTC)
    assert cpa.end == datetime(2028, 1, 2, 22, 59, tzinfo=UTC)
    assert (cpa.invocation_limit, cpa.concurrent_conversations, cpa.comments) == (None, None, ())
    partner, nav = cpa.parties
    assert (partner.name, nav.name) == ("SPEARE AS, flytitnhndevelop", "NAV")
    assert partner.ids == (PartyId("8141253", "HER"), PartyId("123456789", "orgnummer"), PartyId("123456789", "ENH"))
    assert nav.ids == (PartyId("79768", "HER"), PartyId("889640782", "ENH"), PartyId("889640782", "orgnummer"))
    assert partner.references == nav.references == ("https://www.nav.no/about.html",)
    assert partner.default_channel_id == "Partner_channelSMTP0_partner"
    assert nav.default_package_id == "NAV_package_mshsignal"
    assert [role.service for role in nav.roles] == [
        "Legemelding",
        "Sykmelding",
        "HenvendelseFraLege",
        "BehandlerKrav",
        "HarBorgerFrikort",
        "HarBorgerFrikortMengde",
        "ForesporselFraSaksbehandler",
        "HenvendelseFraSaksbehandler",
        "Oppfolgingsplan",
        "DialogmoteInnkalling",
    ]
    assert [role.name for role in partner.roles] == [
        "Lege",
        "Sykmelder",
        "Sykmelder",
        "Behandler",
        "Behandler",
        "Behandler",
        "Sykmelder",
        "Sykmelder",
        "Sykmelder",
        "Sykmelder",
    ]


def test_nav_a_role_with_its_actions() -> None:
    role = reading(NAV).cpa.parties[0].roles[0]
    assert role.process == ProcessSpecification(
        "Legemelding",
        "1.0",
        "http://www.helsedirektoratet.no/processes/Legemelding.xml",
        "0ebb5fb6-6c42-429b-8f8a-c30d92c7a099",
    )
    assert (role.name, role.href) == ("Lege", "http://www.nav.no/processes#Lege")
    assert (role.service, role.service_type) == ("Legemelding", "string")
    assert role.certificate_ids == ("Partner_cert_crypt_partner",)
    assert [one.action for one in role.can_send] == ["Sykmelding", "Legeerklaring", "Oppgjorsmelding", "Soknad"]
    assert [one.action for one in role.can_receive] == ["Svarmelding"]
    first = role.can_send[0]
    assert (first.id, first.other_id) == ("Partner_SM_Sending20", "NAV_SM_Sending2")
    assert (first.package_id, first.channel_ids) == ("Partner_package_sm_v1p0", ("Partner_channelSMTP0_partner",))
    assert (first.signed, first.signed_receipt, first.confidential) == (True, True, Confidentiality.NONE)
    assert first.replies == ()


def test_an_id_with_white_space_around_it_is_the_id() -> None:
    roles = reading(NAV).cpa.parties[0].roles
    other_ids = [one.other_id for role in roles for one in role.can_receive]
    assert "NAV_ForesporselFraSaksbehandler_Bekreftelse" in other_ids


def test_nav_channels_by_mail_and_by_http() -> None:
    partner, nav = reading(NAV).cpa.parties
    mail, http = partner.channels
    assert (mail.id, http.id) == ("Partner_channelSMTP0_partner", "Partner_channelHTTP1_partner")
    assert (mail.sync_reply, http.sync_reply) == (SyncReply.NONE, SyncReply.SIGNALS_AND_RESPONSE)
    assert (mail.ack_requested, http.ack_requested) == (Requirement.ALWAYS, Requirement.NEVER)
    assert mail.ack_signature_requested is mail.duplicate_elimination is Requirement.PER_MESSAGE
    assert http.ack_signature_requested is http.duplicate_elimination is Requirement.NEVER
    assert mail.actor == http.actor == ""
    assert mail.transport.sender == TransportSender(SMTP)
    assert mail.transport.receiver == TransportReceiver(SMTP, (Endpoint("mailto://example@example.com"),))
    assert mail.transport.receiver.endpoints[0].address == "mailto:example@example.com"
    ssl = Protocol("SSL", "3.0")
    assert http.transport.sender == TransportSender(HTTP, security=TransportSecurity(ssl))
    assert http.transport.receiver == TransportReceiver(HTTP, (Endpoint("http://foo.bar"),))
    server = nav.channel("NAV_SyncHttpChannelB1").transport.receiver
    assert server is not None
    assert server.endpoints == (Endpoint("https://nhn-gw-q.nav.no:9443/ebxml/msh", EndpointType.ALL_PURPOSE),)
    assert server.security == TransportSecurity(ssl, "NAV_default_crypt_cert")


def test_nav_how_messages_are_repeated_and_signed() -> None:
    mail, http = reading(NAV).cpa.parties[0].channels
    sender, receiver = mail.doc_exchange.sender, mail.doc_exchange.receiver
    assert sender is not None and receiver is not None
    assert sender.version == "2.0"
    assert sender.reliability == receiver.reliability == Reliability(False, 4, timedelta(hours=12))
    assert sender.persist_duration == receiver.persist_duration == timedelta(days=4)
    algorithm = Algorithm(RSA_SHA256, RSA_SHA256, "1.2.840.113549.1.1.5")
    assert sender.non_repudiation == NonRepudiation(
        Protocol(DSIG, "string"), SHA256, (algorithm,), certificate_id="Partner_cert_sign_partner"
    )
    assert receiver.non_repudiation == NonRepudiation(Protocol(DSIG, "string"), SHA256, (algorithm,))
    assert http.doc_exchange.sender is not None
    assert http.doc_exchange.sender.reliability is None
    assert http.doc_exchange.sender.persist_duration is None


def test_nav_certificates_and_what_they_are_for() -> None:
    partner, nav = reading(NAV).cpa.parties
    prints = {one.id: hashlib.sha256(one.der).hexdigest()[:16] for one in (*partner.certificates, *nav.certificates)}
    # As `openssl x509 -fingerprint -sha256` shows them.
    assert prints == {
        "Partner_cert_crypt_partner": "dc18551f54d37867",
        "Partner_cert_sign_partner": "b4e4bba2f95ef33b",
        "NAV_default_sign_cert": "f7b62e968e620ed2",
        "NAV_default_crypt_cert": "9a7df32a945a380d",
    }
    assert partner.uses("Partner_cert_sign_partner") == {CertificateUse.SIGNING}
    assert partner.uses("Partner_cert_crypt_partner") == {CertificateUse.APPLICATION}
    assert nav.uses("NAV_default_crypt_cert") == {CertificateUse.APPLICATION, CertificateUse.SERVER}


def test_nav_packages_compressed_and_encrypted() -> None:
    cpa = reading(NAV).cpa
    assert (len(cpa.simple_parts), len(cpa.packagings)) == (26, 26)
    assert cpa.packaging("Partner_package_lom_v1p0") == Packaging(
        "Partner_package_lom_v1p0",
        parse=True,
        generate=True,
        composites=(
            (
                Container(
                    "Partner_zip_lom_v1p0",
                    True,
                    "application/x-gzip",
                    (Constituent("Partner_message_lom_v1p0"),),
                    "type=application/x-gzip",
                ),
                Container(
                    "Partner_enc_lom_v1p0",
                    True,
                    "application/pkcs7-mime",
                    (Constituent("Partner_zip_lom_v1p0"),),
                    'smime-type="enveloped-data"',
                ),
                Container(
                    "Partner_msg_lom_v1p0",
                    False,
                    "multipart/related",
                    (Constituent("Partner_msg_header"), Constituent("Partner_enc_lom_v1p0")),
                    "type=text/xml",
                ),
            ),
        ),
    )
    assert cpa.simple_parts[1] == SimplePart(
        "Partner_message_apprec_v1p0",
        "application/xml",
        namespaces=(Namespace("http://www.kith.no/xmlstds/apprec/2004-11-21", "AppRec-v1-2004-11-21.xsd", "1.0"),),
    )


@pytest.mark.parametrize("name", [BEST_EFFORT, RELIABLE, SIGNED])
def test_digikoppeling_the_agreement_and_its_parties(name: str) -> None:
    cpa = reading(name).cpa
    assert cpa.id == name.removeprefix("digikoppeling-").removesuffix(".xml")
    assert (cpa.version, cpa.status) == ("1.0", Status.AGREED)
    assert (cpa.start, cpa.end) == (datetime(2011, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC))
    logius, overheid = cpa.parties
    assert (logius.name, overheid.name) == ("Logius", "Overheid")
    assert logius.ids == (PartyId("00000000000000000000", "urn:osb:oin"),)
    assert overheid.ids == (PartyId("00000000000000000001", "urn:osb:oin"),)
    assert logius.references == ("",)
    assert [(role.name, role.service, role.service_type) for role in logius.roles] == [
        ("DIGIPOORT", "osb:afleveren:1.1$1.0", "urn:osb:services"),
        ("DIGIPOORT", "osb:aanleveren:1.1$1.0", "urn:osb:services"),
    ]
    assert logius.roles[0].process.uuid == "urn:overheidsservicebus.nl:osr:Afleveren:OsbAfleveren11$10"
    assert logius.default_channel_id == "DIGIPOORT_defaultDeliveryChannel_ProfileBestEffortSigned"
    assert cpa.simple_parts == (
        SimplePart("MsgHdr", "text/xml", namespaces=(Namespace(HEADER, HEADER, "2.0"),)),
        SimplePart("XMLMsg", "application/xml"),
    )


def test_digikoppeling_best_effort() -> None:
    (channel,) = reading(BEST_EFFORT).cpa.parties[0].channels
    assert channel.ack_requested is channel.duplicate_elimination is Requirement.NEVER
    assert channel.actor == TO_PARTY
    for binding in (channel.doc_exchange.sender, channel.doc_exchange.receiver):
        assert binding is not None
        assert (binding.version, binding.reliability, binding.persist_duration) == ("2.0", None, None)
    assert channel.transport.receiver == TransportReceiver(HTTP, (Endpoint("http://localhost:8888/ebms"),))


@pytest.mark.parametrize("name", [RELIABLE, SIGNED])
def test_digikoppeling_reliable(name: str) -> None:
    for party in reading(name).cpa.parties:
        best_effort, reliable = party.channels
        assert best_effort.ack_requested is best_effort.duplicate_elimination is Requirement.NEVER
        assert reliable.ack_requested is reliable.duplicate_elimination is Requirement.ALWAYS
        assert reliable.ack_signature_requested is Requirement.NEVER
        assert {one.channel_ids for role in party.roles for one in role.sends()} == {(reliable.id,)}
        for binding in (reliable.doc_exchange.sender, reliable.doc_exchange.receiver):
            assert binding is not None
            assert binding.reliability == Reliability(False, 5, timedelta(minutes=5))
            assert binding.persist_duration == timedelta(minutes=30)


def test_digikoppeling_signed_and_over_tls() -> None:
    logius = reading(SIGNED).cpa.parties[0]
    transport = logius.channels[0].transport
    assert transport is logius.channels[1].transport
    ssl = Protocol("SSL", "3.0")
    assert transport.sender == TransportSender(
        HTTP, security=TransportSecurity(ssl, "DIGIPOORT_ClientCert", "DIGIPOORT_TransportSecurity")
    )
    assert transport.receiver == TransportReceiver(
        HTTP,
        (Endpoint("https://localhost:8888/ebms"),),
        security=TransportSecurity(ssl, "DIGIPOORT_ServerCert", "DIGIPOORT_TransportSecurity"),
    )
    sender, receiver = logius.channels[0].doc_exchange.sender, logius.channels[0].doc_exchange.receiver
    assert sender is not None and receiver is not None
    sha1, rsa_sha1 = f"{DSIG}sha1", (Algorithm(f"{DSIG}rsa-sha1"),)
    assert sender.non_repudiation == NonRepudiation(
        Protocol(DSIG), sha1, rsa_sha1, certificate_id="DIGIPOORT_SigningCert"
    )
    assert receiver.non_repudiation == NonRepudiation(Protocol(DSIG), sha1, rsa_sha1, security_id="DIGIPOORT_Security")
    assert {one.id for one in logius.anchors("DIGIPOORT_Security")} == {
        "DIGIPOORT_SigningCert",
        "DIGIPOORT_EncryptionCert",
    }
    uses = {one.id: logius.uses(one.id) for one in logius.certificates}
    anchor = CertificateUse.ANCHOR
    assert uses == {
        "DIGIPOORT_SigningCert": {CertificateUse.SIGNING, anchor},
        "DIGIPOORT_EncryptionCert": {anchor},
        "DIGIPOORT_ServerCert": {CertificateUse.SERVER, anchor},
        "DIGIPOORT_ClientCert": {CertificateUse.CLIENT, anchor},
    }
    assert {hashlib.sha256(one.der).hexdigest()[:16] for one in logius.certificates} == {"6f42179af9c98187"}


@pytest.mark.parametrize(
    ("name", "cpa_id", "reliability", "ack", "once", "sync"),
    [
        ("ebiot-CPAT1.xml", "ebIOT-CPAT1.CECID.I3T", None, "never", "never", "none"),
        ("ebiot-CPAT1-4-I.xml", "ebIOT-CPAT1-4.CECID.I3T", (1, timedelta(days=10)), "always", "always", "none"),
        (
            "ebiot-CPAT2-2-1.xml",
            "ebIOT-CPAT2-2-1.CECID.I3T",
            (5, timedelta(seconds=60)),
            "always",
            "never",
            "mshSignalsOnly",
        ),
        ("ebiot-CPAT5.xml", "ebIOT-CPAT5.CECID.I3T", (5, timedelta(seconds=60)), "always", "never", "none"),
    ],
)
def test_ebiot(
    name: str, cpa_id: str, reliability: tuple[int, timedelta] | None, ack: str, once: str, sync: str
) -> None:
    cpa = reading(name).cpa
    assert (cpa.id, cpa.version, cpa.status) == (cpa_id, "2_0", Status.AGREED)
    assert (cpa.start, cpa.end) == (datetime(2002, 1, 1, tzinfo=UTC), datetime(2010, 1, 1, tzinfo=UTC))
    buyer, seller = cpa.parties
    assert (buyer.name, buyer.ids, buyer.references) == (
        "CECID",
        (PartyId("CECID", "ebIOT"),),
        ("http://www.cecid.hku.hk",),
    )
    assert (seller.name, seller.ids) == ("I3T", (PartyId("I3T", "ebIOT"),))
    (role,) = buyer.roles
    assert (role.name, role.service, role.service_type) == ("Buyer", "urn:ebIOT-TestService:order", "anyURI")
    assert [(one.id, one.action, one.signed, one.signed_receipt) for one in role.can_send] == [
        ("BuyerActionBinding", "Order", False, None)
    ]
    assert role.can_receive == ()
    for party in cpa.parties:
        (channel,) = party.channels
        assert (channel.ack_requested, channel.ack_signature_requested) == (Requirement(ack), Requirement.NEVER)
        assert (channel.duplicate_elimination, channel.sync_reply) == (Requirement(once), SyncReply(sync))
        for binding in (channel.doc_exchange.sender, channel.doc_exchange.receiver):
            assert binding is not None
            assert binding.reliability == (Reliability(False, *reliability) if reliability else None)
            assert binding.persist_duration == (timedelta(minutes=10) if reliability else None)
        assert [one.der for one in party.certificates] == [b""]
    receiver = buyer.channels[0].transport.receiver
    assert receiver is not None
    assert receiver.endpoints == (Endpoint("http://147.8.178.159:8080/msh/"),)


@pytest.mark.parametrize("name", EBIOT)
def test_ebiot_a_message_has_up_to_99_payloads(name: str) -> None:
    ((composite,),) = reading(name).cpa.packaging("Party-Buyer-pack001").composites
    assert composite == Container(
        "Party-Buyer-Composite",
        False,
        "multipart/related",
        (Constituent("MessageHeader-Buyer"), Constituent("Payload-Buyer", False, 0, 99)),
        'type="text/xml"',
    )


def test_each_object_knows_its_place() -> None:
    cpa = reading(RELIABLE).cpa
    root = "/tp:CollaborationProtocolAgreement"
    assert (cpa.place.path, cpa.place.line) == (root, 19)
    second = cpa.parties[1].roles[1].can_receive[0]
    assert second.place.path == (
        f"{root}/tp:PartyInfo[2]/tp:CollaborationRole[2]/tp:ServiceBinding/tp:CanReceive/tp:ThisPartyActionBinding"
    )
    assert second.place.line == 143
    endpoint = cpa.parties[0].channels[0].transport.receiver
    assert endpoint is not None and endpoint.endpoints[0].place.line == 80
