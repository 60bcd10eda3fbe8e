"""Nothing in a document is passed over: each element and attribute is mapped or ignored, and conflicts are said."""

from __future__ import annotations

import base64
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from lxml import etree

from partners import certificates
from partners.cpa.document import PREFIXES, parse
from partners.cpa.findings import REASONS, Finding, Kind, Matter
from partners.cpa.reading import read
from tests.partners.cpa import ALL, BEST_EFFORT, EBIOT, NAV, NOW, RELIABLE, SIGNED, changed, octets, reading

PREFIX_OF = {prefix: namespace for namespace, prefix in PREFIXES.items()}
NEVER_BUSINESS = Matter.BUSINESS_PROCESS, Matter.FOR_XML_TOOLS
# Of each name that is ignored, how often and why: counted by eye in the documents.
BUSINESS = {
    "tp:isAuthenticated": (8, Matter.BUSINESS_PROCESS),
    "tp:timeToPerform": (8, Matter.BUSINESS_PROCESS),
    "tp:isAuthorizationRequired": (8, Matter.BUSINESS_PROCESS),
    "tp:isIntelligibleCheckRequired": (8, Matter.BUSINESS_PROCESS),
    "tp:isTamperProof": (8, Matter.BUSINESS_PROCESS),
    "xsi:schemaLocation": (1, Matter.FOR_XML_TOOLS),
}
CERTIFICATE = [
    "ds:KeyValue",
    "ds:RSAKeyValue",
    "ds:Modulus",
    "ds:Exponent",
    "ds:X509SubjectName",
    "ds:X509IssuerSerial",
    "ds:X509IssuerName",
    "ds:X509SerialNumber",
]
SIGNATURE = [
    "tp:Signature",
    "ds:Signature",
    "ds:SignedInfo",
    "ds:CanonicalizationMethod",
    "ds:SignatureMethod",
    "ds:Reference",
    "URI",
    "ds:Transforms",
    "ds:DigestMethod",
    "ds:DigestValue",
    "ds:SignatureValue",
]
IGNORED = {
    BEST_EFFORT: BUSINESS,
    RELIABLE: BUSINESS,
    SIGNED: BUSINESS | dict.fromkeys(CERTIFICATE, (8, Matter.SAID_BY_CERTIFICATE)),
    NAV: {
        **{name: (68, matter) for name, (_count, matter) in BUSINESS.items() if matter is Matter.BUSINESS_PROCESS},
        "xlink:type": (110, Matter.FOR_XML_TOOLS),
        **dict.fromkeys(SIGNATURE, (1, Matter.DOCUMENT_SIGNATURE)),
        "ds:Transform": (2, Matter.DOCUMENT_SIGNATURE),
        "Algorithm": (5, Matter.DOCUMENT_SIGNATURE),
    },
    **{name: {"xlink:type": (6, Matter.FOR_XML_TOOLS), "ds:KeyName": (2, Matter.KEY_ALONE)} for name in EBIOT},
}


def followed(findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.kind is not Kind.CONFLICTING and one.matter is not Matter.BEST_EFFORT]


@pytest.mark.parametrize("name", ALL)
def test_each_element_and_attribute_is_accounted_for_once(name: str) -> None:
    root = parse(octets(name))
    nodes: list[tuple[etree._Element, str]] = []
    for element in root.iter():
        nodes += [(element, ""), *((element, str(attribute)) for attribute in element.attrib)]
    found = followed(reading(name).findings)
    assert len(found) == len(nodes)
    for (element, attribute), finding in zip(nodes, found, strict=True):
        path, _at, last = finding.path.rpartition("/@") if attribute else (finding.path, "", "")
        # The path leads to this very element, and the line is where it is.
        assert root.getroottree().xpath(path, namespaces=PREFIX_OF) == [element]
        assert finding.line == element.sourceline
        if attribute:
            assert root.getroottree().xpath(finding.path, namespaces=PREFIX_OF) == [element.get(attribute)]
            assert last.rpartition(":")[2] == etree.QName(attribute).localname
        if finding.kind is Kind.MAPPED and attribute:
            assert finding.text == element.get(attribute, "").strip()
        if finding.kind is Kind.IGNORED:
            assert finding.text == REASONS[finding.matter]


@pytest.mark.parametrize("name", ALL)
def test_what_is_ignored_and_why(name: str) -> None:
    ignored = [one for one in reading(name).findings if one.kind is Kind.IGNORED]
    counted = Counter((one.path.rpartition("/")[2].lstrip("@").partition("[")[0], one.matter) for one in ignored)
    assert {last: (count, matter) for (last, matter), count in counted.items()} == IGNORED[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (BEST_EFFORT, {}),
        (RELIABLE, {}),
        (
            SIGNED,
            {
                Matter.OLD_TLS: [165, 174, 372, 381],
                Matter.WEAK_ALGORITHM: sorted(
                    first + step for first in (183, 191, 207, 221, 390, 398, 415, 430) for step in (2, 3)
                ),
            },
        ),
        ("ebiot-CPAT1.xml", {Matter.ENDED: [20], Matter.CERTIFICATE_MISSING: [84, 222]}),
        (
            "ebiot-CPAT1-4-I.xml",
            {
                Matter.ENDED: [20],
                Matter.CERTIFICATE_MISSING: [84, 236],
                Matter.PERSIST_DURATION: [156, 166, 308, 318],
            },
        ),
        ("ebiot-CPAT2-2-1.xml", {Matter.ENDED: [16], Matter.CERTIFICATE_MISSING: [80, 232]}),
        ("ebiot-CPAT5.xml", {Matter.ENDED: [20], Matter.CERTIFICATE_MISSING: [84, 236]}),
        (
            NAV,
            {
                Matter.STATUS: [6],
                Matter.MAIL_URI: [641, 1351],
                Matter.OLD_TLS: [647, 1357, 1364],
                Matter.ALGORITHM_NAMES: [669, 687, 699, 712, 1383, 1401, 1415, 1426],
            },
        ),
    ],
)
def test_what_conflicts_and_in_which_line(name: str, expected: dict[Matter, list[int]]) -> None:
    found: dict[Matter, list[int]] = {}
    for one in reading(name).of_kind(Kind.CONFLICTING):
        found.setdefault(one.matter, []).append(one.line)
    lines = octets(name).decode().splitlines()
    assert {matter: sorted(numbers) for matter, numbers in found.items()} == expected
    assert all("PersistDuration" in lines[line - 1] for line in found.get(Matter.PERSIST_DURATION, []))


def test_a_channel_without_reliable_messaging_is_best_effort_and_says_so() -> None:
    said = [one for one in reading(RELIABLE).findings if one.matter is Matter.BEST_EFFORT]
    assert [one.line for one in said] == [84, 85, 167, 168]
    assert all(one.kind is Kind.MAPPED and "best effort" in one.text for one in said)


def conflicts(document: bytes, now: datetime = NOW) -> dict[Matter, str]:
    """The conflicts of a document, and one sentence for each."""
    return {one.matter: one.text for one in read(document, now).of_kind(Kind.CONFLICTING)}


def test_the_fixture_that_is_changed_below_has_no_conflict() -> None:
    assert conflicts(octets(RELIABLE)) == {}


CHANNEL = "DIGIPOORT_defaultDeliveryChannel_ProfileReliableMessaging"
SENDING = """<tns:CanSend>
					<tns:ThisPartyActionBinding tns:id="DIGIPOORT_S_Afleveren" tns:action="afleveren\""""


@pytest.mark.parametrize(
    ("matter", "said", "old", "new"),
    [
        (Matter.STATUS, "only proposed", 'value="agreed"', 'value="proposed"'),
        (Matter.STATUS, "does not verify", 'value="agreed"', 'value="signed"'),
        (Matter.ENDED, "2026-11-28T21:00:00Z", "2031-01-01T00:00:00Z", "2026-11-28T22:00:00+01:00"),
        (Matter.NOT_BEGUN, "2026-11-28T21:00:01Z", "2011-01-01T00:00:00Z", "2026-11-28T21:00:01"),
        (Matter.END_BEFORE_START, "before it begins", "2011-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
        (Matter.SAME_PARTY, "00000000000000000001", "00000000000000000000", "00000000000000000001"),
        (Matter.MONTHS, "P1M", "<tns:RetryInterval>PT5M", "<tns:RetryInterval>P1M"),
        (Matter.PERSIST_DURATION, "6 times PT300S", "PT30M", "PT29M59S"),
        (Matter.MAIL_URI, "taken as mailto:a@b.example", "http://localhost:8888/ebms", "mailto://a@b.example"),
        (Matter.URI_SCHEME, "no address for it", "http://localhost:8888/ebms", "mailto:a@b.example"),
        (Matter.URI_SCHEME, "no address for it", "http://localhost:8888/ebms", "http://[x]/"),
        (Matter.NO_SIGNATURE, "Logius", 'isNonRepudiationRequired="false"', 'isNonRepudiationRequired="true"'),
        (Matter.NO_COUNTERPART, "Overheid can receive", SENDING, SENDING.replace('"afleveren"', '"anders"')),
        (Matter.COUNTERPART_DIFFERS, "nothing that Overheid can", "OVERHEID_R_Afleveren", "DIGIPOORT_S_Afleveren"),
        (Matter.COUNTERPART_DIFFERS, "/anders", SENDING, SENDING.replace('"afleveren"', '"anders"')),
        (
            Matter.COUNTERPART_DIFFERS,
            "belongs to DIGIPOORT_S_BevestigAanleveren",
            "<tns:OtherPartyActionBinding>DIGIPOORT_S_Afleveren",
            "<tns:OtherPartyActionBinding>DIGIPOORT_S_BevestigAanleveren",
        ),
        (Matter.SIDES_DIFFER, "The sender's counts", "<tns:Retries>5", "<tns:Retries>4"),
        (Matter.SIDES_DIFFER, "The receiver's counts", 'duplicateElimination="always"', 'duplicateElimination="never"'),
        (Matter.DIRECTIONS_DIFFER, "Retries is 4 from Logius", "<tns:Retries>5", "<tns:Retries>4"),
        (
            Matter.NO_RELIABILITY,
            "not sent again",
            'ackRequested="never" tns:actor',
            'ackRequested="always" tns:actor',
        ),
    ],
)
def test_each_conflict(matter: Matter, said: str, old: str, new: str) -> None:
    document = changed(RELIABLE, (old, new))
    if matter is Matter.NO_COUNTERPART:
        # Without the name of the other side, which would say more.
        document = document.replace(
            b"<tns:OtherPartyActionBinding>OVERHEID_R_Afleveren</tns:OtherPartyActionBinding>", b""
        )
    assert said in conflicts(document).get(matter, "nothing"), conflicts(document)


def test_what_only_one_side_says_is_no_conflict() -> None:
    """A receiver need not say how often it is sent to."""
    text = octets(RELIABLE).decode()
    start = text.index("<tns:ReliableMessaging>", text.index('docExchangeId="OVERHEID_ReliableMessaging">'))
    start = text.index("<tns:ReliableMessaging>", text.index("<tns:ebXMLReceiverBinding", start))
    end = text.index("</tns:ReliableMessaging>", start) + len("</tns:ReliableMessaging>")
    assert conflicts((text[:start] + text[end:]).encode()) == {}


def from_year_0(der: bytes) -> bytes:
    """A certificate that is valid from the year 0 on: the time is two octets longer, and so is what it is in."""
    at = der.index(b"\x17\x0d")
    made = bytearray(der[:at] + b"\x18\x0f00000101000000Z" + der[at + 15 :])
    for place in (2, 6):
        made[place : place + 2] = (int.from_bytes(made[place : place + 2], "big") + 2).to_bytes(2, "big")
    made[at - 1] += 2
    return bytes(made)


def test_conflicts_of_credentials() -> None:
    plain = changed(SIGNED, ('uri="https://', 'uri="http://'))
    assert "without TLS" in conflicts(plain)[Matter.URI_SCHEME]
    certificate = octets(SIGNED).decode().partition("<X509Certificate>")[2].partition("</X509Certificate>")[0]
    both = changed(
        SIGNED, ("</X509Certificate>", f"</X509Certificate><X509Certificate>{certificate}</X509Certificate>")
    )
    assert "2 certificates" in conflicts(both)[Matter.SEVERAL_CERTIFICATES]
    der = base64.b64decode(certificate)
    version = b"\xa0\x03\x02\x01"
    for octets_of_it in (b"foo", der.replace(version + b"\x02", version + b"\x07"), from_year_0(der)):
        other = changed(SIGNED, (certificate, base64.b64encode(octets_of_it).decode()))
        assert "no X.509 certificate" in conflicts(other)[Matter.CERTIFICATE_UNREADABLE]
        with pytest.raises(ValueError, match="This certificate cannot be read"):
            certificates.facts(octets_of_it)
    until = datetime(2030, 6, 5, 14, 29, 59, tzinfo=UTC)
    assert Matter.CERTIFICATE_TIME not in conflicts(octets(SIGNED), until)
    assert "2030-06-05T14:29:59Z" in conflicts(octets(SIGNED), until + timedelta(seconds=1))[Matter.CERTIFICATE_TIME]


def test_a_receiver_without_an_address() -> None:
    start = octets(RELIABLE).index(b"<tns:TransportReceiver>")
    end = octets(RELIABLE).index(b"</tns:TransportReceiver>") + len(b"</tns:TransportReceiver>")
    document = octets(RELIABLE)[:start] + octets(RELIABLE)[end:]
    assert "no endpoint" in conflicts(document)[Matter.NO_ENDPOINT]


def test_an_action_that_is_said_twice() -> None:
    text = octets(RELIABLE).decode()
    first = text.index("<tns:CanSend>")
    binding = text[first : text.index("</tns:CanSend>") + len("</tns:CanSend>")]
    twice = text[:first] + binding.replace('"DIGIPOORT_S_Afleveren"', '"Again"') + text[first:]
    twice = twice.replace("<tns:OtherPartyActionBinding>DIGIPOORT_S_Afleveren</tns:OtherPartyActionBinding>", "")
    assert "line 32 says it first" in conflicts(twice.encode())[Matter.AMBIGUOUS]


def test_what_no_channel_uses_and_extensions_are_ignored_by_name() -> None:
    binding = '<tns:ebXMLSenderBinding tns:version="2.0"/>'
    unused = f"""<tns:DocExchange tns:docExchangeId="NOBODY">{binding}</tns:DocExchange>
		<tns:DocExchange tns:docExchangeId="DIGIPOORT_BestEffort">"""
    own = """</tns:ChannelId><own:thing xmlns:own="urn:own" xml:space="preserve" own:a="b"><own:c/></own:thing>"""
    document = changed(
        RELIABLE, ('<tns:DocExchange tns:docExchangeId="DIGIPOORT_BestEffort">', unused), ("</tns:ChannelId>", own)
    )
    ignored = [one for one in read(document, NOW).findings if one.kind is Kind.IGNORED]
    assert Counter(one.matter for one in ignored if one.matter not in NEVER_BUSINESS) == {
        Matter.UNUSED: 4,
        Matter.EXTENSION: 4,
    }
    long = changed(RELIABLE, ("</tns:ChannelId>", own.replace("urn:own", "urn:own" + "a" * 900)))
    cut = next(one.path for one in read(long, NOW).findings if one.matter is Matter.EXTENSION)
    assert cut.endswith(f"local-name()='thing' and starts-with(namespace-uri(), 'urn:own{'a' * 73}')]")
    last = next(one.path for one in ignored if one.matter is Matter.EXTENSION)
    assert last.endswith("tp:ThisPartyActionBinding/*[local-name()='thing' and namespace-uri()='urn:own']")
