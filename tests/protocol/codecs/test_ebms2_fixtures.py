"""Messages of others, each decoded to what a person reads in it."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from messaging.protocol.codecs.ebms2 import SERVICE, decode
from messaging.protocol.codecs.mail import entity, read_mail
from messaging.protocol.envelope import (
    Acknowledgment,
    AckRequest,
    Actor,
    Digest,
    DocumentReference,
    Ebms2,
    Ebms2Kind,
    Envelope,
    ErrorInfo,
    MessageOrder,
    MessageType,
    PartyId,
    Semantics,
    StatusReport,
    Transform,
)
from messaging.protocol.errors import Defect, ErrorCode, Severity

from .ebms2_samples import FIXTURES, ORDER_PART, SENT, ebms, enclose, entity_of, filled, found, read, reason

SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
C14N = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
ENVELOPED = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"


def her(value: str) -> PartyId:
    return PartyId(value, "HER")


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


NAV_ACKNOWLEDGMENT = Envelope(
    message_type=MessageType.ACKNOWLEDGEMENT,
    message_id="7a631915-eb02-4b58-bd8c-4851d37c2590",
    timestamp=datetime(2025, 1, 24, 10, 42, 58, 725_072, tzinfo=UTC),
    from_parties=(her("95879"),),
    to_parties=(her("79768"), PartyId("889640782", "ENH")),
    agreement_id="nav:qass:34986",
    conversation_id="20250124-114229-355",
    service=SERVICE,
    action="Acknowledgment",
    semantics=Semantics.BEST_EFFORT,
    routing=(),
    ref_to_message_id="20250124-114229-35564@qa.ebxml.nav.no",
    version="2.0",
    ebms=Ebms2(Ebms2Kind.ACKNOWLEDGMENT, "Utleverer", "KontrollUtbetaler", signed=True),
)
NAV_ERROR_INFO = ErrorInfo(
    ErrorCode.VALUE_NOT_RECOGNIZED,
    Severity.ERROR,
    "Message [autotest_tc_2_2_15] has an invalid CpaId [unknown]",
    "xpointer(//MessageHeader/CpaId)",
)
NAV_ERROR = Envelope(
    message_type=MessageType.ERROR,
    message_id="20140607-214220-84523@dev.ebxml.nav.no",
    timestamp=datetime(2014, 6, 7, 19, 42, 20, tzinfo=UTC),
    from_parties=(her("79768"),),
    to_parties=(her("987654321"),),
    agreement_id="unknown",
    conversation_id="20140607-214220-751-0",
    service=SERVICE,
    action="MessageError",
    semantics=Semantics.BEST_EFFORT,
    routing=(),
    ref_to_message_id="autotest_tc_2_2_15",
    error=NAV_ERROR_INFO,
    version="2.0",
    ebms=Ebms2(Ebms2Kind.ERROR, "Frikortregister", "Behandler", sync_reply=True, errors=(NAV_ERROR_INFO,)),
)
NAV_PAYLOAD_MESSAGE = Envelope(
    message_type=MessageType.NORMAL,
    message_id="7104acf8-21e9-4ee7-b894-d413a00a8881",
    timestamp=datetime(2023, 8, 29, 10, 56, 50, 306_947, tzinfo=UTC),
    from_parties=(her("123"),),
    to_parties=(her("321"),),
    agreement_id="nav:qass:35065",
    conversation_id="be192d3a-34b5-448a-a374-5eab0524c74d",
    service="BehandlerKrav",
    action="OppgjorsMelding",
    semantics=Semantics.BEST_EFFORT,
    routing=(),
    manifest=(DocumentReference("", "cid:ref1"),),
    version="2.0",
    ebms=Ebms2(
        from_role="Behandler",
        to_role="KontrollUtbetaler",
        service_type="string",
        ack_requests=(AckRequest(Actor.TO_PARTY_MSH, signed=True),),
        signed=True,
    ),
)


def test_a_signed_acknowledgement_of_nav() -> None:
    envelope = decode("text/xml; charset=UTF-8", fixture("nav-acknowledgment.xml"))
    (acknowledgment,) = ebms(envelope).acknowledgments
    (digest,) = acknowledgment.digests
    assert replace(envelope, defects=(), ebms=replace(ebms(envelope), acknowledgments=())) == NAV_ACKNOWLEDGMENT
    assert replace(acknowledgment, digests=()) == Acknowledgment(
        "20250124-114229-35564@qa.ebxml.nav.no", datetime(2025, 1, 24, 10, 42, 29, tzinfo=UTC), Actor.TO_PARTY_MSH
    )
    assert replace(digest, transforms=()) == Digest("", SHA256, "digestValue")
    enveloped, xpath, c14n = digest.transforms
    assert (enveloped, c14n) == (Transform(ENVELOPED), Transform(C14N))
    assert xpath.algorithm == XPATH
    assert xpath.parameters.startswith('<XPath xmlns="http://www.w3.org/2000/09/xmldsig#">')
    assert xpath.parameters.split()[-1] == "</XPath>"
    assert '@SOAP-ENV:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"' in xpath.parameters
    # "digestValue" stands where base64 should.
    assert found(envelope) == [(ErrorCode.SECURITY_FAILURE, Severity.WARNING)]
    assert envelope.fault is None


def test_an_error_of_nav() -> None:
    assert decode("text/xml", fixture("nav-messageerror.xml")) == NAV_ERROR


def test_a_signed_message_of_nav_with_its_payload() -> None:
    content_type, body = enclose(
        fixture("nav-payloadmessage.xml"), b"Content-Id: <ref1>\r\nContent-Type: application/pkcs7-mime\r\n\r\n0\x82"
    )
    envelope = decode(content_type, body)
    (payload,) = envelope.payloads
    assert (payload.content_id, payload.content_type, payload.content) == ("ref1", "application/pkcs7-mime", b"0\x82")
    assert replace(envelope, payloads=()) == NAV_PAYLOAD_MESSAGE


def test_a_signed_message_of_nav_without_its_payload() -> None:
    envelope = decode("text/xml", fixture("nav-payloadmessage.xml"))
    problem = Defect(
        ErrorCode.MIME_PROBLEM, "no part has the Content-ID of cid:ref1", "/Envelope/Body/Manifest/Reference[1]"
    )
    assert envelope == replace(NAV_PAYLOAD_MESSAGE, defects=(problem,))


def test_a_request_of_nav() -> None:
    boundary = "------=_part_c2a3282c_e754_4193_9fb5_e8a469941f97"
    body = fixture("nav-http-request.mime")
    envelope = decode(f'multipart/related; boundary="{boundary}"', body)  # without type and start
    (payload,) = envelope.payloads
    assert payload.content_id == "attachmentId-3b407d6f-7efc-4ce9-99a6-868f04329e68"
    assert (payload.content_type, payload.filename) == ("application/pkcs7-mime", "")
    assert payload.content.startswith(b'<?xml version="1.0" encoding="utf-8"?><ns:MsgHead xmlns:xsd=')
    assert payload.content.endswith(b"</ns:MsgHead>")
    assert replace(envelope, payloads=()) == Envelope(
        message_type=MessageType.NORMAL,
        message_id="e17eb03e-9e43-43fb-874c-1fde9a28c308",
        timestamp=datetime(2024, 2, 12, 13, 4, 2, 541_000, tzinfo=UTC),
        from_parties=(her("8090595"),),
        to_parties=(her("79768"),),
        agreement_id="nav:qass:31162",
        conversation_id="e17eb03e-9e43-43fb-874c-1fde9a28c308",
        service="HarBorgerEgenandelFritak",
        action="EgenandelForesporsel",
        semantics=Semantics.BEST_EFFORT,
        routing=(),
        manifest=(DocumentReference("", "cid:attachmentId-3b407d6f-7efc-4ce9-99a6-868f04329e68"),),
        version="2.0",
        ebms=Ebms2(
            from_role="Utleverer", to_role="Frikortregister", service_type="string", sync_reply=True, signed=True
        ),
    )


def test_a_mail_of_nav_as_relays_left_it() -> None:
    envelope = decode(*entity(read_mail(fixture("nav-smtp-delivered.msg"))))
    (payload,) = envelope.payloads
    assert payload.content_id == "3CTGI8UKUKU4.ADHEUDMDCY3Q3@speare.no"
    assert payload.content_type == 'application/pkcs7-mime; smime-type="enveloped-data"; charset=utf-8'
    assert payload.filename == "20e5962b-49a8-4050-8113-733819913183.p7m"
    assert len(payload.content) == 4236
    assert payload.content[:4].hex() == "30821088"
    assert replace(envelope, payloads=()) == replace(
        NAV_PAYLOAD_MESSAGE,
        from_parties=(her("8141253"),),
        to_parties=(her("79768"),),
        manifest=(DocumentReference("", "cid:3CTGI8UKUKU4.ADHEUDMDCY3Q3@speare.no"),),
    )


@pytest.mark.parametrize(("name", "year"), [("hermes-test1.msg", 2008), ("hermes-test2.msg", 2099)])
def test_a_request_of_hermes(name: str, year: int) -> None:
    head, _, body = fixture(name).partition(b"\n\n")
    content_type = head.decode().partition("Content-Type: ")[2].partition("\n")[0]
    envelope = decode(content_type, body)
    (payload,) = envelope.payloads
    assert (payload.content_id, payload.content_type) == ("Payload-0", "application/octream")
    assert payload.content.startswith(b"This is an sample message.\n\n")
    assert payload.content.endswith(b"\nThis is an sample message.")
    party = PartyId("fromPartyId", "fromPartyType"), PartyId("toPartyId", "toPartyType")
    assert replace(envelope, payloads=()) == Envelope(
        message_type=MessageType.NORMAL,
        message_id="20080721-152652-07404@192.168.0.51",
        timestamp=datetime(2008, 7, 21, 7, 26, 52, 75_000, tzinfo=UTC),
        from_parties=party[:1],
        to_parties=party[1:],
        agreement_id="cpaid",
        conversation_id="convId",
        service="http://localhost:8080/corvus/httpd/ebms/inbound",
        action="action",
        semantics=Semantics.BEST_EFFORT,
        routing=(),
        manifest=(DocumentReference("", "cid:Payload-0"),),
        version="2.0",
        ebms=Ebms2(time_to_live=datetime(year, 7, 21, 7, 26, 52, 75_000, tzinfo=UTC)),
    )


EBMS_CORE = Envelope(
    message_type=MessageType.NORMAL,
    message_id="5d3f1c1e-0000-4000-8000-000000000001@localhost",
    timestamp=SENT,  # its text has no zone
    from_parties=(PartyId("00000000000000000000", "urn:osb:oin"),),
    to_parties=(PartyId("00000000000000000001", "urn:osb:oin"),),
    agreement_id="cpaStubEBF.rm.http.unsigned.sync",
    conversation_id="5d3f1c1e-0000-4000-8000-000000000001",
    service="http://www.example.nl/afleveren",
    action="afleveren",
    semantics=Semantics.ONCE_AND_ONLY_ONCE,
    routing=(),
    version="2.0",
    ebms=Ebms2(
        from_role="DIGIPOORT",
        to_role="OVERHEID",
        time_to_live=datetime(2026, 11, 29, 21, 0, tzinfo=UTC),
        duplicate_elimination=True,
        ack_requests=(AckRequest(),),
        sync_reply=True,
    ),
)
BUSINESS = EBMS_CORE.ebms or Ebms2()
SIGNAL = replace(BUSINESS, from_role="", to_role="", duplicate_elimination=False, ack_requests=())
CASES = {
    "ebms-core-EbMSMessage.xml": EBMS_CORE,
    # Whether the agreement wants it is not for the codec to say.
    "ebms-core-EbMSMessageMissingDuplicateElimination.xml": replace(
        EBMS_CORE, semantics=Semantics.BEST_EFFORT, ebms=replace(BUSINESS, duplicate_elimination=False)
    ),
    "ebms-core-EbMSMessageNextMshAckRequested.xml": replace(
        EBMS_CORE, ebms=replace(BUSINESS, ack_requests=(AckRequest(Actor.NEXT_MSH),))
    ),
    "ebms-core-EbMSMessageInvalidAckRequestedActor.xml": replace(
        EBMS_CORE, semantics=Semantics.AT_MOST_ONCE, ebms=replace(BUSINESS, ack_requests=())
    ),
    "ebms-core-EbMSMessageMessageOrder.xml": replace(EBMS_CORE, ebms=replace(BUSINESS, order=MessageOrder(1))),
    "ebms-core-EbMSMessageMissingFromPartyId.xml": replace(EBMS_CORE, from_parties=()),
    "ebms-core-EbMSMessageStatus.xml": replace(
        EBMS_CORE,
        service=SERVICE,
        action="StatusRequest",
        semantics=Semantics.BEST_EFFORT,
        ebms=replace(
            SIGNAL,
            kind=Ebms2Kind.STATUS_REQUEST,
            status=StatusReport("5d3f1c1e-0000-4000-8000-000000000000@localhost"),
        ),
    ),
    "ebms-core-EbMSPing.xml": replace(
        EBMS_CORE,
        service=SERVICE,
        action="Ping",
        semantics=Semantics.BEST_EFFORT,
        ebms=replace(SIGNAL, kind=Ebms2Kind.PING),
    ),
}
CODES = {
    "ebms-core-EbMSMessageInvalidAckRequestedActor.xml": [
        (ErrorCode.VALUE_NOT_RECOGNIZED, "/Envelope/Header/AckRequested/@actor")
    ],
    "ebms-core-EbMSMessageMessageOrder.xml": [(ErrorCode.INCONSISTENT, "/Envelope/Header/MessageOrder")],
    "ebms-core-EbMSMessageMissingFromPartyId.xml": [(ErrorCode.INCONSISTENT, "/Envelope/Header/MessageHeader/From")],
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_envelopes_of_ebms_core(name: str) -> None:
    envelope = read(filled(name))
    assert replace(envelope, defects=()) == CASES[name]
    assert [(defect.code, defect.location) for defect in envelope.defects] == CODES.get(name, [])


def test_a_message_of_ebms_core_with_its_attachment() -> None:
    envelope = decode(*enclose(filled("ebms-core-EbMSMessageWithAttachments.xml"), ORDER_PART))
    assert [payload.content for payload in envelope.payloads] == [b"<PurchaseOrder/>\r\n"]
    manifest = (DocumentReference("", "cid:po-4711@msh.buyer.example"),)
    assert replace(envelope, payloads=()) == replace(EBMS_CORE, manifest=manifest)


def test_a_manifest_of_another_version() -> None:
    envelope = decode(*enclose(filled("ebms-core-EbMSMessageInvalidManifestVersion.xml"), ORDER_PART))
    assert [(defect.code, defect.location) for defect in envelope.defects] == [
        (ErrorCode.VALUE_NOT_RECOGNIZED, "/Envelope/Body/Manifest/@version")
    ]


def test_external_entities_are_no_message() -> None:
    assert reason("text/xml", filled("ebms-core-EbMSPingXXE.xml")) == "dtd_forbidden"


def test_payloads_are_what_their_senders_signed() -> None:
    """The digests stand in the signatures of the two messages."""
    mail = decode(*entity(read_mail(fixture("nav-smtp-delivered.msg"))))
    sha256 = hashlib.sha256(mail.payloads[0].content[:]).digest()
    assert b64encode(sha256) == b"ihNHQl8a44GwTy72Bq7m0jyn8/Ap7nbSOtNix4sycTs="
    boundary = "------=_part_c2a3282c_e754_4193_9fb5_e8a469941f97"
    request = decode(f"multipart/related; boundary={boundary}", fixture("nav-http-request.mime"))
    sha1 = hashlib.sha1(request.payloads[0].content[:]).digest()
    assert b64encode(sha1) == b"ch2SFbU7KFmNm6Jp5zWa1dGVWCQ="


def test_what_others_sent_is_sent_again_as_the_same_message() -> None:
    for name, envelope in CASES.items():
        if name not in CODES:
            assert decode(*entity_of(envelope)) == envelope
    assert decode(*entity_of(NAV_ERROR)) == NAV_ERROR
