"""Documents that are no agreement: why, and where."""

from __future__ import annotations

import pytest

from partners.cpa.document import MAX_ELEMENTS, MAX_OCTETS, CpaUnreadable, Unreadable
from partners.cpa.reading import read
from tests.partners.cpa import NOW, RELIABLE, changed, octets


def refusal(document: bytes) -> CpaUnreadable:
    with pytest.raises(CpaUnreadable) as refused:
        read(document, NOW)
    return refused.value


ROOT = b'<a:CollaborationProtocolAgreement xmlns:a="http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"'


@pytest.mark.parametrize(
    ("what", "document"),
    [
        (Unreadable.NOT_XML, b""),
        (Unreadable.NOT_XML, b"\x00\xff"),
        (Unreadable.NOT_XML, b"<a><b></a>"),
        (Unreadable.NOT_XML, b'<?xml version="1.0" encoding="none-such"?><a/>'),
        (Unreadable.TOO_LARGE, b" " * (MAX_OCTETS + 1)),
        (Unreadable.DTD, b"<!DOCTYPE a><a/>"),
        (Unreadable.DTD, b'<!DOCTYPE a SYSTEM "http://127.0.0.1/x.dtd"><a/>'),
        (Unreadable.DTD, b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'),
        (Unreadable.DTD, '<!DOCTYPE a [<!ENTITY x "yy"><!ENTITY z "&x;&x;">]><a b="&z;"/>'.encode("utf-16")),
        (Unreadable.TOO_DEEP, b"<a>" * 65 + b"</a>" * 65),
        (Unreadable.TOO_MANY_ELEMENTS, b"<a>" + b"<b/>" * MAX_ELEMENTS + b"</a>"),
        (Unreadable.WRONG_ROOT, b"<CollaborationProtocolAgreement/>"),
        (Unreadable.WRONG_ROOT, ROOT.replace(b"Agreement", b"Profile", 1) + b"/>"),
        (Unreadable.NOT_VALID, ROOT + b"/>"),
    ],
)
def test_what_cannot_be_read(what: Unreadable, document: bytes) -> None:
    refused = refusal(document)
    assert refused.what is what
    assert len(refused.faults) >= 1
    assert str(refused).startswith(f"{what}: ")


def test_faults_by_the_schema_are_listed_with_their_lines() -> None:
    document = changed(RELIABLE, ('tns:value="agreed"', 'tns:value="perhaps"'), ("<tns:Retries>5", "<tns:Retries>five"))
    refused = refusal(document)
    assert refused.what is Unreadable.NOT_VALID
    assert {fault.place.line for fault in refused.faults} == {20, 90}
    assert any("'perhaps'" in fault.text and "tp:value" in fault.text for fault in refused.faults)
    assert refused.place.path == "/tns:CollaborationProtocolAgreement/tns:Status"


def test_no_more_than_twenty_faults_are_listed() -> None:
    assert len(refusal(changed(RELIABLE, ("tns:isTamperProof", "tns:isNothing"), times=8)).faults) <= 20
    many = changed(RELIABLE, ("<tns:PartyRef", '<tns:PartyId tns:nothing=""/>' * 50 + "<tns:PartyRef"))
    assert len(refusal(many).faults) == 20


@pytest.mark.parametrize(
    ("what", "said", "old", "new"),
    [
        (Unreadable.DUPLICATE_ID, "line 32", 'id="DIGIPOORT_R_BevestigAfleveren"', 'id="DIGIPOORT_S_Afleveren"'),
        (Unreadable.DUPLICATE_ID, "'MsgHdr'", 'tns:id="XMLMsg"', 'tns:id="MsgHdr"'),
        (Unreadable.UNKNOWN_ID, "'nowhere'", 'packageId="XMLMessagePackage"', 'packageId="nowhere"'),
        (
            Unreadable.UNKNOWN_ID,
            "is a SimplePart and no Packaging",
            'packageId="XMLMessagePackage"',
            'packageId="XMLMsg"',
        ),
        (Unreadable.UNKNOWN_ID, "no ThisPartyActionBinding", ">OVERHEID_R_Afleveren<", ">OVERHEID_R_Nichts<"),
        (Unreadable.UNKNOWN_ID, "no DeliveryChannel", "<tns:ChannelId>DIGIPOORT_d", "<tns:ChannelId>d"),
        (
            Unreadable.UNKNOWN_ID,
            "the other party's Transport",
            'tns:transportId="DIGIPOORT_transport_HTTP"',
            'tns:transportId="OVERHEID_transport_HTTP"',
        ),
        (Unreadable.UNKNOWN_ID, "'nowhere'", 'idref="XMLMsg"', 'idref="nowhere"'),
        (Unreadable.OUT_OF_RANGE, "-1", "<tns:Retries>5", "<tns:Retries>-1"),
        (Unreadable.OUT_OF_RANGE, "999,999,999", "<tns:Retries>5", "<tns:Retries>1000000000"),
        (Unreadable.OUT_OF_RANGE, "digits", "<tns:Retries>5", "<tns:Retries>" + "9" * 5000),
        (Unreadable.OUT_OF_RANGE, "less than no time", "<tns:RetryInterval>PT5M", "<tns:RetryInterval>-PT5M"),
        (Unreadable.OUT_OF_RANGE, "can be counted", "<tns:RetryInterval>PT5M", "<tns:RetryInterval>P9999999999D"),
        (Unreadable.OUT_OF_RANGE, "year 1 to 9999", "2031-01-01T00:00:00Z", "12031-01-01T00:00:00Z"),
        (Unreadable.OUT_OF_RANGE, "white space", 'tns:cpaid="cpaStubEBF.rm.http.unsigned"', 'tns:cpaid=" "'),
        (Unreadable.OUT_OF_RANGE, "white space", ">00000000000000000000<", "> <"),
        (Unreadable.OUT_OF_RANGE, "white space", 'tns:uri="http://localhost:8888/ebms"', 'tns:uri=""'),
    ],
)
def test_what_is_valid_by_the_schema_and_cannot_be_read(what: Unreadable, said: str, old: str, new: str) -> None:
    refused = refusal(changed(RELIABLE, (old, new)))
    assert (refused.what, said in refused.faults[0].text) == (what, True), refused
    assert refused.place.path.startswith("/tp:CollaborationProtocolAgreement/") or what is Unreadable.OUT_OF_RANGE
    assert octets(RELIABLE).decode().splitlines()[refused.place.line - 1].strip()
    assert refused.place.line > 18
