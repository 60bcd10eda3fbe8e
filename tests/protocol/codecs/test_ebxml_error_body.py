"""Error messages in all the forms in which partners may write them."""

from __future__ import annotations

import pytest

from messaging.protocol.envelope import ErrorInfo
from messaging.protocol.errors import ErrorCode, Severity

from .samples import (
    ERROR_XML,
    SEQUENCE_ERROR,
    TRANSIENT_ERROR,
    changed,
    document_of,
    read,
    the_defect,
)

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
