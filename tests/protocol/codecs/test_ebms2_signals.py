"""Acknowledgements, errors and status as the ebms2 reader takes them, alone and on a business message."""

from __future__ import annotations

import pytest

from messaging.protocol.envelope import (
    Acknowledgment,
    Actor,
    Ebms2Kind,
    ErrorInfo,
    MessageStatus,
    MessageType,
    PartyId,
    Semantics,
    StatusReport,
)
from messaging.protocol.errors import ErrorCode, Severity

from .ebms2_samples import (
    ACK_REQUESTED,
    ACK_XML,
    ACKNOWLEDGEMENT,
    END,
    ERROR_XML,
    ORDER,
    RECEIVED,
    SENT,
    ebms,
    found,
    read,
    read_ack,
    with_header,
)

E, W = Severity.ERROR, Severity.WARNING
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def test_an_acknowledgement() -> None:
    assert read_ack() == ACKNOWLEDGEMENT


def test_an_acknowledgement_may_name_the_message_in_one_place_only() -> None:
    reference = f"<eb:RefToMessageId>{ORDER.message_id}</eb:RefToMessageId>\r\n</eb:MessageData>"
    assert read_ack((reference, "</eb:MessageData>")) == ACKNOWLEDGEMENT


@pytest.mark.parametrize(
    "changes",
    [
        [("<eb:CPAId>cpa:buyer-seller:2026-11</eb:CPAId>", "")],
        [('eb:version="2.0"', 'eb:version="2.1"')],
        [("</eb:CPAId>", "</eb:CPAId><eb:Via/>")],
        [("47DEQpj8HBSa", "?")],
        [(">2026-11-28T21:00:01.250Z<", ">now<")],
        [(' eb:type="urn:oasis:names:tc:ebxml-cppa:partyid-type:duns"', "")],
        [("</SOAP:Body>", '<eb:Manifest eb:version="2.0"/></SOAP:Body>')],
    ],
)
def test_what_is_wrong_with_an_acknowledgement_is_mostly_a_warning(changes: list[tuple[str, str]]) -> None:
    envelope = read_ack(*changes)
    assert envelope.defects != () and envelope.fault is None
    assert ebms(envelope).acknowledgments[0].ref_to_message_id == ORDER.message_id


TRANSFORM = '<ds:Transform Algorithm="urn:x"><x>a:b</x></ds:Transform>'


def test_many_namespaces_do_not_cost_their_square() -> None:
    many = " ".join(f'xmlns:n{number}="urn:{number}"' for number in range(2000))
    envelope = read_ack(
        ("<SOAP:Envelope", f"<SOAP:Envelope {many}"), ("</ds:Transforms>", f"{TRANSFORM}</ds:Transforms>")
    )
    assert found(envelope) == [(ErrorCode.SECURITY_FAILURE, W)] * 2
    assert [len(digest.transforms) for digest in ebms(envelope).acknowledgments[0].digests] == [1]


def test_transforms_are_canonical_only_so_often() -> None:
    envelope = read_ack(("</ds:Transforms>", f"{TRANSFORM * 200}</ds:Transforms>"))
    (digest,) = ebms(envelope).acknowledgments[0].digests
    assert sum(transform.parameters != "" for transform in digest.transforms) == 20
    assert found(envelope) == [(ErrorCode.SECURITY_FAILURE, W)]


def test_an_acknowledgement_asks_for_nothing() -> None:
    """Some strict services refuse DuplicateElimination in one; it has no meaning (wire-ebxml 3.1)."""
    envelope = read_ack(
        ("</eb:MessageHeader>", "<eb:DuplicateElimination/></eb:MessageHeader>"), (END, ACK_REQUESTED + END)
    )
    assert (ebms(envelope).duplicate_elimination, ebms(envelope).ack_requests) == (False, ())
    assert (envelope.semantics, found(envelope)) == (Semantics.BEST_EFFORT, [(ErrorCode.INCONSISTENT, W)])


def test_an_acknowledgement_of_nothing_is_refused() -> None:
    start, stop = ACK_XML.index("<eb:Acknowledgment "), ACK_XML.index("</eb:Acknowledgment>")
    envelope = read_ack((ACK_XML[start:stop] + "</eb:Acknowledgment>", ""))
    assert envelope.fault is not None and envelope.fault.code is ErrorCode.OTHER_XML
    assert envelope.message_type is MessageType.ACKNOWLEDGEMENT


ACKNOWLEDGMENT = (
    '<eb:Acknowledgment eb:version="2.0" SOAP:mustUnderstand="1"><eb:Timestamp>2026-11-28T21:00:01.25Z</eb:Timestamp>'
    "<eb:RefToMessageId>1@x</eb:RefToMessageId><eb:From><eb:PartyId>urn:x:router</eb:PartyId><eb:Role>R</eb:Role></eb:From>"
    "</eb:Acknowledgment>"
)
ERROR_LIST = (
    '<eb:ErrorList eb:version="2.0" SOAP:mustUnderstand="1" eb:highestSeverity="Warning">'
    '<eb:Error eb:errorCode="NotSupported" eb:severity="Warning"/></eb:ErrorList>'
)


def test_an_acknowledgment_that_rides_on_a_message() -> None:
    envelope = with_header(ACKNOWLEDGMENT, ACKNOWLEDGMENT.replace("1@x", "2@x").replace(
        "eb:version", 'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH" eb:version'
    ))  # fmt: skip
    assert (envelope.message_type, ebms(envelope).kind) == (MessageType.NORMAL, Ebms2Kind.BUSINESS)
    assert (envelope.defects, envelope.ref_to_message_id) == ((), "")
    router = (PartyId("urn:x:router"),)
    assert ebms(envelope).acknowledgments == (
        Acknowledgment("1@x", RECEIVED, Actor.TO_PARTY_MSH, router, "R"),
        Acknowledgment("2@x", RECEIVED, Actor.NEXT_MSH, router, "R"),
    )


def test_errors_that_ride_on_a_message() -> None:
    envelope = with_header(ERROR_LIST)
    assert (envelope.message_type, envelope.error, envelope.defects) == (MessageType.NORMAL, None, ())
    assert ebms(envelope).errors == (ErrorInfo(ErrorCode.NOT_SUPPORTED, W, ""),)


def test_an_error_message() -> None:
    envelope = read(ERROR_XML)
    assert envelope.message_type is MessageType.ERROR
    assert envelope.error == ErrorInfo(ErrorCode.MIME_PROBLEM, E, "a part is missing", "cid:po-4711@msh.buyer.example")
    assert [error.code for error in ebms(envelope).errors] == [ErrorCode.VALUE_NOT_RECOGNIZED, ErrorCode.MIME_PROBLEM]


@pytest.mark.parametrize(
    ("old", "new", "code", "severity"),
    [
        ("MimeProblem", "mimeproblem", ErrorCode.MIME_PROBLEM, E),
        ("MimeProblem", "x:Odd", "x:Odd", E),
        ("MimeProblem", "", ErrorCode.UNKNOWN, E),
        ("MimeProblem", "TimeToLiveExpired", ErrorCode.TIME_TO_LIVE_EXPIRED, E),
        ("MimeProblem", "OtherXml", ErrorCode.OTHER_XML, E),
        ('severity="Error"', 'severity="Fatal"', ErrorCode.MIME_PROBLEM, E),
        ('severity="Error"', 'severity="error"', ErrorCode.MIME_PROBLEM, E),
    ],
)
def test_codes_and_severities_of_errors(old: str, new: str, code: str, severity: Severity) -> None:
    envelope = read(ERROR_XML, (old, new))
    assert envelope.error is not None and envelope.fault is None
    assert (envelope.error.code, envelope.error.severity) == (code, severity)


def test_an_error_message_without_errors_is_one_all_the_same() -> None:
    start, stop = ERROR_XML.index("<eb:ErrorList"), ERROR_XML.index("</eb:ErrorList>")
    envelope = read(ERROR_XML, (ERROR_XML[start:stop] + "</eb:ErrorList>", ""))
    assert envelope.error == ErrorInfo(ErrorCode.UNKNOWN, E, "")
    assert found(envelope) == [(ErrorCode.OTHER_XML, W)]


FAULT = (
    "<SOAP:Fault><faultcode>SOAP:MustUnderstand</faultcode><faultstring> No eb:Via </faultstring></SOAP:Fault>"
    "</SOAP:Body>"
)


def test_a_soap_fault_is_an_error() -> None:
    document = f'<SOAP:Envelope xmlns:SOAP="{SOAP}"><SOAP:Body>{FAULT}</SOAP:Envelope>'
    envelope = read(document)
    assert (envelope.message_type, envelope.message_id) == (MessageType.ERROR, "")
    assert envelope.error == ErrorInfo(ErrorCode.UNKNOWN, E, "No eb:Via")
    assert ebms(envelope).errors == (envelope.error,)
    assert envelope.fault is None


def test_a_soap_fault_with_a_message_header_names_its_message() -> None:
    envelope = read(ACK_XML, ("</SOAP:Body>", FAULT))
    assert (envelope.message_type, envelope.action) == (MessageType.ERROR, "MessageError")
    assert (envelope.ref_to_message_id, envelope.defects) == (ORDER.message_id, ())
    assert envelope.error == ErrorInfo(ErrorCode.UNKNOWN, E, "No eb:Via")


def test_a_status_response() -> None:
    body = (
        '<eb:StatusResponse eb:version="2.0" eb:messageStatus="Processed"><eb:RefToMessageId>1@x</eb:RefToMessageId>'
        "<eb:Timestamp>2026-11-28T21:00:00Z</eb:Timestamp></eb:StatusResponse></SOAP:Body>"
    )
    start, stop = ACK_XML.index("<eb:Acknowledgment "), ACK_XML.index("</eb:Acknowledgment>")
    changes = [
        (ACK_XML[start:stop] + "</eb:Acknowledgment>", ""),
        (">Acknowledgment<", ">StatusResponse<"),
    ]
    envelope = read_ack(*changes, ("</SOAP:Body>", body))
    assert (envelope.message_type, ebms(envelope).kind) == (MessageType.NORMAL, Ebms2Kind.STATUS_RESPONSE)
    assert ebms(envelope).status == StatusReport("1@x", MessageStatus.PROCESSED, SENT)
    assert envelope.defects == ()
    odd = read_ack(*changes, ("</SOAP:Body>", body.replace("Processed", "Lost")))
    assert (found(odd), ebms(odd).status) == ([(ErrorCode.VALUE_NOT_RECOGNIZED, E)], StatusReport("1@x", None, SENT))
    assert found(read_ack(*changes)) == [(ErrorCode.OTHER_XML, E)]
