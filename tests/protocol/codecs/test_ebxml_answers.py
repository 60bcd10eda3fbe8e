"""Acknowledgements, Errors and forwarded messages that follow from a received one.

Error messages in all the forms in which partners may write them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from messaging.protocol.codecs.ebxml import (
    acknowledgement,
    append_hop,
    decode,
    encode,
    error_message,
    may_answer_with_error,
)
from messaging.protocol.envelope import Envelope, ErrorInfo, MessageType, RoutingHeader, Semantics
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, Severity

from .samples import (
    ACKNOWLEDGED,
    ACKNOWLEDGEMENT,
    BUYER,
    BUYER_ERRORS,
    ERROR_XML,
    HUB,
    HUB_ERRORS,
    ORDER,
    ORDER_PART,
    POSTPONED,
    REFUSED,
    ROUTED,
    SELLER,
    SELLER_ERRORS,
    SENT,
    SEQUENCE_ERROR,
    TRANSIENT_ERROR,
    as_read,
    changed,
    document_of,
    enclose,
    entity_of,
    fixture,
    read,
    the_defect,
)

BEST_EFFORT = replace(ORDER, semantics=Semantics.BEST_EFFORT, routing=(replace(ORDER.hop, sequence_number=None),))


def acknowledge(envelope: Envelope) -> Envelope:
    return acknowledgement(
        envelope, message_id=ACKNOWLEDGEMENT.message_id, timestamp=ACKNOWLEDGED, error_uri=SELLER_ERRORS
    )


def test_e17_form_of_the_acknowledgement() -> None:
    received = decode(*fixture("01-normal.http"))
    answer = acknowledge(received)
    assert answer.message_type is MessageType.ACKNOWLEDGEMENT
    assert [party.value for party in answer.from_parties] == [received.hop.receiver_uri]
    assert [party.value for party in answer.to_parties] == [received.hop.sender_uri]
    assert (answer.agreement_id, answer.conversation_id) == (received.agreement_id, received.conversation_id)
    assert (answer.service, answer.action) == ("", "")
    assert answer.ref_to_message_id == received.message_id
    assert answer.semantics is Semantics.BEST_EFFORT
    assert (answer.payloads, answer.manifest, answer.error) == ((), (), None)
    assert answer.routing == (RoutingHeader(SELLER, BUYER, SELLER_ERRORS, ACKNOWLEDGED),)


def test_e17_the_acknowledgement_is_the_published_one() -> None:
    assert acknowledge(ORDER) == ACKNOWLEDGEMENT
    assert entity_of(acknowledge(ORDER)) == fixture("02-acknowledgement.http")


@pytest.mark.parametrize(
    "envelope",
    [BEST_EFFORT, replace(BEST_EFFORT, semantics=Semantics.AT_MOST_ONCE), ACKNOWLEDGEMENT, SEQUENCE_ERROR],
)
def test_c8_only_reliable_messages_are_acknowledged(envelope: Envelope) -> None:
    with pytest.raises(EncodeError, match="never acknowledged"):
        acknowledge(envelope)


def test_c9_an_acknowledgement_answers_the_current_hop() -> None:
    answer = acknowledge(ROUTED)
    assert answer.from_parties[0].value == answer.hop.sender_uri == SELLER
    assert answer.to_parties[0].value == answer.hop.receiver_uri == HUB
    assert len(answer.routing) == 1


def test_error_message_from_a_defect_is_the_published_one() -> None:
    assert SEQUENCE_ERROR.error is not None
    defect = Defect(ErrorCode.INVALID_SEQUENCE_NUMBER, SEQUENCE_ERROR.error.description, SEQUENCE_ERROR.error.location)
    answer = error_message(
        ORDER, defect, message_id=SEQUENCE_ERROR.message_id, timestamp=REFUSED, error_uri=SELLER_ERRORS
    )
    assert answer == SEQUENCE_ERROR
    assert entity_of(answer) == fixture("03-error-invalid-sequence.http")


def test_error_message_from_a_router_is_the_published_one() -> None:
    received = replace(ORDER, routing=(replace(ORDER.hop, receiver_uri=HUB),))
    assert TRANSIENT_ERROR.error is not None
    answer = error_message(
        received,
        TRANSIENT_ERROR.error,
        message_id=TRANSIENT_ERROR.message_id,
        timestamp=POSTPONED,
        error_uri=HUB_ERRORS,
        target_uri=BUYER_ERRORS,
    )
    assert answer == TRANSIENT_ERROR
    assert entity_of(answer) == fixture("04-error-transient.http")


@pytest.mark.parametrize(
    ("target", "error_uri", "receiver"),
    [
        ("https://registered.example/errors", BUYER_ERRORS, "https://registered.example/errors"),
        ("", BUYER_ERRORS, BUYER_ERRORS),
        ("", "", BUYER),
    ],
)
def test_error_message_says_where_it_goes(target: str, error_uri: str, receiver: str) -> None:
    received = replace(ORDER, routing=(replace(ORDER.hop, error_uri=error_uri),))
    answer = error_message(
        received,
        Defect(ErrorCode.UNKNOWN, "x"),
        message_id="1@x",
        timestamp=SENT,
        error_uri=SELLER_ERRORS,
        target_uri=target,
    )
    assert answer.hop.receiver_uri == receiver
    assert answer.to_parties[0].value == BUYER


def test_a_transient_defect_becomes_a_transient_error() -> None:
    defect = Defect(ErrorCode.TRANSIENT_ERROR, "later")
    answer = error_message(ORDER, defect, message_id="1@x", timestamp=SENT, error_uri=SELLER_ERRORS)
    assert answer.error == ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.TRANSIENT, "later")
    assert decode(*entity_of(answer)) == answer


def test_no_error_about_an_error_or_an_acknowledgement() -> None:
    assert may_answer_with_error(ORDER)
    assert may_answer_with_error(BEST_EFFORT)
    for envelope in (ACKNOWLEDGEMENT, SEQUENCE_ERROR):
        assert not may_answer_with_error(envelope)
        with pytest.raises(EncodeError, match="never answered"):
            error_message(
                envelope, Defect(ErrorCode.UNKNOWN, "x"), message_id="1@x", timestamp=SENT, error_uri=SELLER_ERRORS
            )


def test_a_message_with_unfit_identifiers_can_be_answered() -> None:
    document = document_of(ORDER).replace(ORDER.message_id, "a\nb" + "x" * 600).replace(ORDER.agreement_id, "")
    received = decode(*enclose(document, ORDER_PART))
    answer = error_message(received, received.defects[0], message_id="1@x", timestamp=SENT, error_uri=SELLER_ERRORS)
    assert decode(*entity_of(answer)) == answer
    assert answer.ref_to_message_id == received.message_id == ("a b" + "x" * 600)[:512]


def test_a_router_appends_its_hop_and_leaves_the_rest() -> None:
    received = decode(*entity_of(replace(ORDER, routing=(ROUTED.routing[0],))))
    forwarded = append_hop(received, ROUTED.routing[1])
    assert as_read(forwarded) == ROUTED
    assert entity_of(forwarded) == fixture("05-routed-two-hops.http")


def test_what_is_not_routed() -> None:
    hop = ROUTED.routing[1]
    for envelope in (
        ACKNOWLEDGEMENT,
        SEQUENCE_ERROR,
        replace(ORDER, defects=(Defect(ErrorCode.INCONSISTENT, "x"),)),
        replace(ORDER, routing=ORDER.routing * 10),
    ):
        with pytest.raises(EncodeError):
            append_hop(envelope, hop)
    with pytest.raises(EncodeError, match="SequenceNumber"):
        encode(append_hop(ORDER, replace(hop, sequence_number=None)))


def test_answers_take_their_time_from_the_caller() -> None:
    moment = datetime(2001, 1, 1, tzinfo=UTC)
    answer = acknowledgement(ORDER, message_id="1@x", timestamp=moment, error_uri=SELLER_ERRORS)
    assert answer.timestamp == answer.hop.timestamp == moment


TRANSIENT = ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.TRANSIENT, "later", "", 120)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "<ErrorHeader><ErrorCode>TransientError</ErrorCode><Severity>TransientError</Severity>"
            "<Description>later</Description><MinRetrySecs> 120 </MinRetrySecs></ErrorHeader>",
            TRANSIENT,
        ),
        (
            '<ErrorHeader ErrorCode="TransientError" Severity="Transient Error" '
            'Description="later" MinRetrySecs="120"/>',
            TRANSIENT,
        ),
        (
            '<ErrorHeader><ErrorCode>Transient Error</ErrorCode><ErrorDesc>later</ErrorDesc><x:a xmlns:x="urn:x">'
            "<x:MinRetrySecs>120</x:MinRetrySecs></x:a></ErrorHeader>",
            TRANSIENT,
        ),
        (
            '<eb:ErrorList xmlns:eb="urn:x" eb:highestSeverity="Error"><eb:Error eb:errorCode="ValueNotRecognized"'
            ' eb:severity="Warning"/><eb:Error eb:errorCode="MimeProblem" eb:severity="Error" eb:location="cid:x">'
            "<eb:Description>no part</eb:Description></eb:Error></eb:ErrorList>",
            ErrorInfo(ErrorCode.MIME_PROBLEM, Severity.ERROR, "no part", "cid:x"),
        ),
        (
            '<ErrorList highestSeverity="Warning"><Error errorCode="OtherXml"/></ErrorList>',
            ErrorInfo("OtherXml", Severity.WARNING, ""),
        ),
        (
            "<ErrorHeader><ErrorCode>Unknown</ErrorCode><Severity>HardError</Severity></ErrorHeader>",
            ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, ""),
        ),
        ("<ErrorHeader><Severity>fatal</Severity></ErrorHeader>", ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, "")),
        (
            "<ErrorHeader><ErrorCode>TransientError</ErrorCode><MinRetrySecs>soon</MinRetrySecs></ErrorHeader>",
            ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.TRANSIENT, ""),
        ),
        (
            "<ErrorHeader><ErrorCode>TransientError</ErrorCode><Severity>Error</Severity>"
            "<MinRetrySecs>-1</MinRetrySecs></ErrorHeader>",
            ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.TRANSIENT, ""),
        ),
    ],
    ids=[
        "ErrorHeader",
        "attributes",
        "iotp-words",
        "ErrorList",
        "highestSeverity",
        "HardError",
        "unknown-severity",
        "MinRetrySecs-text",
        "transient-by-code",
    ],
)
def test_error_bodies(body: str, error: ErrorInfo) -> None:
    start, end = ERROR_XML.index("  <ErrorHeader>"), ERROR_XML.index("</ebXMLHeader>")
    envelope = read(ERROR_XML[:start] + body + ERROR_XML[end:])
    assert envelope.error == error
    assert envelope.defects == ()


def test_error_body_within_the_header() -> None:
    start, end = ERROR_XML.index("  <ErrorHeader>"), ERROR_XML.index("</ebXMLHeader>")
    document = ERROR_XML[:start].replace("</Header>", ERROR_XML[start:end] + "</Header>") + ERROR_XML[end:]
    assert read(document) == SEQUENCE_ERROR


def test_error_message_without_an_error() -> None:
    start, end = ERROR_XML.index("  <ErrorHeader>"), ERROR_XML.index("</ebXMLHeader>")
    envelope = read(ERROR_XML[:start] + ERROR_XML[end:])
    assert envelope.error == ErrorInfo(ErrorCode.UNKNOWN, Severity.ERROR, "")
    assert the_defect(envelope).code is ErrorCode.NOT_WELL_FORMED


def test_error_header_of_another_message_is_ignored() -> None:
    document = document_of(TRANSIENT_ERROR).replace('"Error"', '"Acknowledgement"')
    assert read(document).error is None


def test_error_values_are_bounded() -> None:
    document = changed(
        ERROR_XML, (">InvalidSequenceNumber<", f">{'x' * 600}<"), ("/ebXMLHeader/RoutingHeader[1]", "a\nb" + "y" * 600)
    )
    error = read(document).error
    assert error is not None
    assert error.code == "x" * 512
    assert error.location == ("a b" + "y" * 600)[:512]
