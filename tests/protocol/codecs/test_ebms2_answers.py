"""What follows from an ebms2 message: its acknowledgement, errors about it, status and ping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lxml import etree

from messaging.protocol.codecs.ebms2 import (
    SERVICE,
    acknowledgement,
    decode,
    error_message,
    may_answer_with_error,
    ping,
    pong,
    status_request,
    status_response,
)
from messaging.protocol.codecs.ebms2_parts import canonical
from messaging.protocol.envelope import (
    Acknowledgment,
    AckRequest,
    Actor,
    Ebms2,
    Ebms2Kind,
    Envelope,
    ErrorInfo,
    MessageStatus,
    MessageType,
    PartyId,
    Semantics,
    StatusReport,
    Transform,
)
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, Severity

from .ebms2_samples import (
    ACKNOWLEDGEMENT,
    DIGEST,
    ERROR,
    ORDER,
    RECEIVED,
    SENT,
    assert_valid,
    document_of,
    ebms,
    entity_of,
    read_order,
)

ANSWER = Envelope(
    message_type=MessageType.NORMAL,
    message_id="7@seller",
    timestamp=RECEIVED,
    from_parties=ORDER.to_parties,
    to_parties=ORDER.from_parties,
    agreement_id=ORDER.agreement_id,
    conversation_id=ORDER.conversation_id,
    service=SERVICE,
    action="",
    semantics=Semantics.BEST_EFFORT,
    routing=(),
    ref_to_message_id=ORDER.message_id,
    version="2.0",
)


def asking(*requests: AckRequest) -> Envelope:
    asked = replace(ebms(ORDER), ack_requests=requests)
    return replace(ORDER, semantics=asked.semantics, ebms=asked)


def acknowledged(envelope: Envelope) -> Envelope:
    return acknowledgement(envelope, message_id="7@seller", timestamp=RECEIVED, received=SENT, digests=(DIGEST,))


def written(envelope: Envelope) -> Envelope:
    """As the partner reads it."""
    assert_valid(document_of(envelope))
    return decode(*entity_of(envelope))


def test_an_acknowledgement_goes_back_and_asks_for_nothing() -> None:
    answer = acknowledgement(ORDER, message_id="7@seller", timestamp=RECEIVED, received=SENT)
    assert answer == replace(
        ANSWER,
        message_type=MessageType.ACKNOWLEDGEMENT,
        action="Acknowledgment",
        ebms=Ebms2(
            Ebms2Kind.ACKNOWLEDGMENT, "Seller", "Buyer", acknowledgments=(Acknowledgment(ORDER.message_id, SENT),)
        ),
    )
    assert written(answer) == answer


def test_each_service_that_is_asked_for_is_answered_for() -> None:
    answer = acknowledged(asking(AckRequest(Actor.NEXT_MSH), AckRequest(signed=True)))
    assert ebms(answer).acknowledgments == (
        Acknowledgment(ORDER.message_id, SENT, Actor.NEXT_MSH, digests=(DIGEST,)),
        Acknowledgment(ORDER.message_id, SENT, Actor.TO_PARTY_MSH, digests=(DIGEST,)),
    )
    assert written(answer) == answer


def test_also_without_duplicate_elimination() -> None:
    envelope = replace(ORDER, semantics=Semantics.BEST_EFFORT, ebms=replace(ebms(ORDER), duplicate_elimination=False))
    assert acknowledged(envelope).ref_to_message_id == ORDER.message_id


@pytest.mark.parametrize("envelope", [asking(), ACKNOWLEDGEMENT, ERROR, replace(ORDER, ebms=None)])
def test_what_is_not_acknowledged(envelope: Envelope) -> None:
    with pytest.raises(EncodeError):
        acknowledged(envelope)


def test_a_signed_acknowledgement_needs_digests() -> None:
    with pytest.raises(EncodeError, match="digests"):
        acknowledgement(asking(AckRequest(signed=True)), message_id="7@seller", timestamp=RECEIVED, received=SENT)


def test_errors_name_their_places() -> None:
    errors = (
        Defect(ErrorCode.OTHER_XML, "CPAId is missing or empty", "/Envelope/Header/MessageHeader/CPAId"),
        Defect(ErrorCode.MIME_PROBLEM, "the content is damaged", "po 4711@msh.buyer.example", Severity.WARNING),
        ErrorInfo(ErrorCode.TIME_TO_LIVE_EXPIRED, Severity.ERROR, "too late"),
    )
    answer = error_message(ORDER, errors, message_id="7@seller", timestamp=RECEIVED)
    listed = (
        ErrorInfo(
            ErrorCode.OTHER_XML,
            Severity.ERROR,
            "CPAId is missing or empty",
            "xpointer(/Envelope/Header/MessageHeader/CPAId)",
        ),
        ErrorInfo(
            ErrorCode.MIME_PROBLEM, Severity.WARNING, "the content is damaged", "cid:po%204711@msh.buyer.example"
        ),
        errors[2],
    )
    assert answer == replace(
        ANSWER,
        message_type=MessageType.ERROR,
        action="MessageError",
        error=listed[0],
        ebms=Ebms2(Ebms2Kind.ERROR, "Seller", "Buyer", errors=listed),
    )
    assert written(answer) == answer


def test_what_a_message_lacks_is_unknown_in_its_answer() -> None:
    start, stop = "<eb:From><eb:PartyId", "</eb:From>"
    document = document_of(ORDER)
    sender = document[document.index(start) : document.index(stop)]
    envelope = read_order((sender, "<eb:From>"), (">cpa:buyer-seller:2026-11<", "><"))
    answer = error_message(envelope, envelope.defects, message_id="7@seller", timestamp=RECEIVED)
    assert answer.to_parties == (PartyId("unknown", "unknown"),)
    assert answer.agreement_id == "unknown"
    assert [error.code for error in ebms(answer).errors] == [ErrorCode.INCONSISTENT, ErrorCode.OTHER_XML]
    assert written(answer) == answer


@pytest.mark.parametrize(
    "error",
    [
        Defect(ErrorCode.INVALID_SEQUENCE_NUMBER, ""),
        Defect(ErrorCode.NOT_WELL_FORMED, ""),
        ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.ERROR, ""),
        ErrorInfo(ErrorCode.DELIVERY_FAILURE, Severity.TRANSIENT, ""),
    ],
)
def test_ebms_has_no_words_for_some_errors(error: Defect | ErrorInfo) -> None:
    with pytest.raises(EncodeError):
        error_message(ORDER, (error,), message_id="7@seller", timestamp=RECEIVED)


def test_a_status_is_asked_for_and_given() -> None:
    request = status_request(ORDER, message_id="8@buyer", timestamp=RECEIVED)
    assert request == replace(
        ANSWER,
        message_id="8@buyer",
        from_parties=ORDER.from_parties,
        to_parties=ORDER.to_parties,
        action="StatusRequest",
        ref_to_message_id="",
        ebms=Ebms2(Ebms2Kind.STATUS_REQUEST, "Buyer", "Seller", status=StatusReport(ORDER.message_id)),
    )
    assert written(request) == request
    response = status_response(
        request, MessageStatus.PROCESSED, message_id="7@seller", timestamp=RECEIVED, received=SENT
    )
    report = StatusReport(ORDER.message_id, MessageStatus.PROCESSED, SENT)
    assert response == replace(
        ANSWER,
        action="StatusResponse",
        ref_to_message_id="8@buyer",
        ebms=Ebms2(Ebms2Kind.STATUS_RESPONSE, "Seller", "Buyer", status=report),
    )
    assert written(response) == response


@pytest.mark.parametrize("status", [MessageStatus.UNAUTHORIZED, MessageStatus.NOT_RECOGNIZED])
def test_of_what_is_not_known_no_time_is_told(status: MessageStatus) -> None:
    request = status_request(ORDER, message_id="8@buyer", timestamp=RECEIVED)
    response = status_response(request, status, message_id="7@seller", timestamp=RECEIVED, received=SENT)
    assert ebms(response).status == StatusReport(ORDER.message_id, status)


def test_a_ping_is_answered() -> None:
    request = ping(ORDER, message_id="9@buyer", timestamp=SENT)
    assert (request.action, request.ref_to_message_id, request.to_parties) == ("Ping", "", ORDER.to_parties)
    assert written(request) == request
    answer = pong(request, message_id="7@seller", timestamp=RECEIVED)
    assert answer == replace(
        ANSWER, action="Pong", ref_to_message_id="9@buyer", ebms=Ebms2(Ebms2Kind.PONG, "Seller", "Buyer")
    )
    assert written(answer) == answer


@pytest.mark.parametrize(
    "build",
    [
        lambda: pong(ORDER, message_id="7@seller", timestamp=RECEIVED),
        lambda: status_response(ORDER, MessageStatus.RECEIVED, message_id="7@seller", timestamp=RECEIVED),
        lambda: error_message(ERROR, (), message_id="7@seller", timestamp=RECEIVED),
        lambda: error_message(ACKNOWLEDGEMENT, (), message_id="7@seller", timestamp=RECEIVED),
    ],
)
def test_what_is_not_answered(build: Callable[[], Envelope]) -> None:
    with pytest.raises(EncodeError):
        build()


def test_requests_may_be_answered_with_errors_and_answers_not() -> None:
    request = ping(ORDER, message_id="9@buyer", timestamp=SENT)
    asked = status_request(ORDER, message_id="8@buyer", timestamp=RECEIVED)
    told = status_response(asked, MessageStatus.RECEIVED, message_id="7@seller", timestamp=RECEIVED)
    answers = (pong(request, message_id="7@seller", timestamp=RECEIVED), told, ERROR, ACKNOWLEDGEMENT)
    assert [may_answer_with_error(one) for one in (ORDER, request, asked)] == [True] * 3
    assert [may_answer_with_error(one) for one in answers] == [False] * 4


@pytest.mark.parametrize("place", ["/" + "a" * 507, "/Envelope/" + "a" * 600, "/é ", "a" * 600], ids=len)
def test_whatever_place_is_wrong_can_be_told(place: str) -> None:
    """The Content-ID of a part may look like a place within the envelope."""
    answer = error_message(ORDER, (Defect(ErrorCode.MIME_PROBLEM, "no", place),), message_id="1@x", timestamp=SENT)
    assert_valid(document_of(answer))
    assert decode(*entity_of(answer)).ebms == answer.ebms


@pytest.mark.parametrize("prefix", ["SOAP", "MySOAP", "SOAP-ENV", "a.SOAP"])
def test_the_xpath_of_a_reference_is_acknowledged_with_any_prefix(prefix: str) -> None:
    xpath = (
        f'<ds:Transform xmlns:ds="http://www.w3.org/2000/09/xmldsig#" xmlns:{prefix}="http://schemas.xmlsoap.org/soap/'
        f'envelope/"><ds:XPath>not(ancestor-or-self::node()[@{prefix}:actor="n"])</ds:XPath></ds:Transform>'
    )
    transform = Transform("http://www.w3.org/TR/1999/REC-xpath-19991116", canonical(etree.fromstring(xpath)))
    asked = replace(ORDER, ebms=replace(ebms(ORDER), ack_requests=(AckRequest(signed=True),)))
    digests = (replace(DIGEST, transforms=(transform,)),)
    answer = acknowledgement(asked, message_id="1@x", timestamp=SENT, received=RECEIVED, digests=digests)
    assert decode(*entity_of(answer)).ebms == answer.ebms
