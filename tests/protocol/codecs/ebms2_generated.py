"""Generated ebms2 messages and signals, and entities that are no longer what somebody wrote."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st
from lxml import etree

from messaging.protocol.codecs.ebms2 import SERVICE
from messaging.protocol.codecs.ebms2_lexical import escaped_reference
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
    MessageStatus,
    PartyId,
    PayloadPart,
    Schema,
    StatusReport,
    Transform,
)
from messaging.protocol.errors import ErrorCode, Severity

from .ebms2_samples import (
    ACK_XML,
    ERROR_XML,
    FIXTURES,
    MULTIPART,
    ORDER_PART,
    ORDER_XML,
    document_of,
    enclose,
    entity_of,
    filled,
)

XML_SPACE = " \t\r\n"
characters = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufffe\uffff")
optional_identifiers = st.text(characters, max_size=30).map(lambda text: text.strip(XML_SPACE))
identifiers = optional_identifiers.filter(bool)
free_texts = st.text(st.one_of(characters, st.sampled_from("\r\n\t<&>\"'\x85\u2028")), max_size=60).map(
    lambda text: text.strip(XML_SPACE)
)
moments = st.datetimes(
    min_value=datetime(1000, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=5, minutes=30))]),
)
content_ids = st.from_regex(r"[!-;=?-~]([ -;=?-~]{0,20}[!-;=?-~])?", fullmatch=True)
filenames = st.text(characters, max_size=20)
uris = st.one_of(
    st.sampled_from(["urn:x:y", "http://user@[::1]:80/a%20b?c=d&e#f", "mid:1@x/2@x", "#order", "a/b"]),
    st.text(characters, min_size=1, max_size=15).map(lambda text: escaped_reference(f"x:{text}")),
)
contents = st.one_of(
    st.binary(max_size=100),
    st.lists(st.sampled_from([b"\r", b"\n", b"--", b"--ebms2-", b"\r\n--ebms2-1--\r\n", b"x", b"\0"]), max_size=9).map(
        b"".join
    ),
)
content_types = st.sampled_from(["application/xml", 'text/plain; charset="UTF-8"', "application/octream", "x"])
# Without a type it has to be a URI.
typed_parties = st.one_of(
    st.builds(PartyId, identifiers, identifiers), st.builds(PartyId, identifiers.map(lambda text: f"urn:{text}"))
)
parties = st.lists(typed_parties, min_size=1, max_size=3).map(tuple)
parameters = st.sampled_from(
    [
        "",
        '<XPath xmlns="http://www.w3.org/2000/09/xmldsig#" xmlns:S="http://schemas.xmlsoap.org/soap/envelope/">'
        "not(ancestor-or-self::node()[@S:actor])</XPath>",
        '<x xmlns="urn:x" b="&quot;&amp;">\n</x><y xmlns="urn:y"></y>',
    ]
)
digests = st.builds(
    Digest,
    st.one_of(st.just(""), uris),
    uris,
    st.sampled_from(["47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "AA=="]),
    st.lists(st.builds(Transform, uris, parameters), max_size=3).map(tuple),
)
errors = st.lists(
    st.builds(
        ErrorInfo,
        st.one_of(st.sampled_from(ErrorCode), identifiers.map(lambda text: f"x:{text}")),
        st.sampled_from([Severity.WARNING, Severity.ERROR]),
        free_texts,
        optional_identifiers,
    ),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def acknowledgments(draw: st.DrawFn, least: int = 0) -> tuple[Acknowledgment, ...]:
    found = []
    for actor in draw(st.lists(st.sampled_from(Actor), min_size=least, max_size=2, unique=True)):
        sender: tuple[PartyId, ...] = draw(st.one_of(st.just(()), parties))
        role = draw(optional_identifiers) if sender else ""
        listed = draw(st.lists(digests, max_size=2).map(tuple))
        found.append(Acknowledgment(draw(identifiers), draw(moments), actor, sender, role, listed))
    return tuple(found)


ack_requests = st.lists(
    st.builds(AckRequest, st.sampled_from(Actor), st.booleans()), max_size=2, unique_by=lambda request: request.actor
).map(tuple)


@st.composite
def documents(draw: st.DrawFn) -> tuple[tuple[PayloadPart, ...], tuple[DocumentReference, ...]]:
    parts = draw(
        st.lists(
            st.builds(PayloadPart, content_ids, content_types, contents, filenames),
            max_size=3,
            unique_by=lambda payload: payload.content_id,
        )
    )
    hrefs = [escaped_reference(f"cid:{part.content_id.replace('%', '%25')}") for part in parts]
    hrefs += draw(st.lists(st.sampled_from(["mid:1@x/2@x", "http://files.example/a.xml"]), max_size=1))
    listed = []
    for href in hrefs:
        description = draw(free_texts)
        language = draw(st.sampled_from(["en", "de-CH", "NO"])) if description else "en"
        role = draw(st.one_of(st.just(""), uris))
        schemas = draw(st.lists(st.builds(Schema, uris, optional_identifiers), max_size=2).map(tuple))
        listed.append(DocumentReference("", href, description, language, role, schemas))
    return tuple(parts), tuple(listed)


@st.composite
def _rest(draw: st.DrawFn, kind: Ebms2Kind) -> Ebms2:
    """What there is beside the documents."""
    never_answered = kind in (Ebms2Kind.ACKNOWLEDGMENT, Ebms2Kind.ERROR)
    requests = () if never_answered else draw(ack_requests)
    duplicate_elimination = not never_answered and draw(st.booleans())
    sync_reply = draw(st.booleans())
    order = None
    if requests and duplicate_elimination and not sync_reply and draw(st.booleans()):
        order = draw(
            st.one_of(st.just(MessageOrder(0, reset=True)), st.builds(MessageOrder, st.integers(0, 99_999_999)))
        )
    status = None
    if kind is Ebms2Kind.STATUS_REQUEST:
        status = StatusReport(draw(identifiers))
    elif kind is Ebms2Kind.STATUS_RESPONSE:
        moment = draw(st.one_of(st.none(), moments))
        status = StatusReport(draw(identifiers), draw(st.sampled_from(MessageStatus)), moment)
    return Ebms2(
        kind,
        draw(optional_identifiers),
        draw(optional_identifiers),
        draw(identifiers) if kind is Ebms2Kind.BUSINESS else draw(optional_identifiers),
        draw(st.one_of(st.none(), moments)),
        duplicate_elimination,
        requests,
        sync_reply,
        order,
        draw(acknowledgments(least=1 if kind is Ebms2Kind.ACKNOWLEDGMENT else 0)),
        draw(errors) if kind is Ebms2Kind.ERROR or draw(st.booleans()) else (),
        status,
    )


@st.composite
def messages(draw: st.DrawFn) -> Envelope:
    """A message or signal of any kind, with all that it may have."""
    kind = draw(st.sampled_from(Ebms2Kind))
    business = kind is Ebms2Kind.BUSINESS
    payloads, manifest = draw(documents()) if business else ((), ())
    ebms = draw(_rest(kind))
    least = 1 if kind in (Ebms2Kind.ACKNOWLEDGMENT, Ebms2Kind.ERROR) else 0
    return Envelope(
        message_type=kind.message_type,
        message_id=draw(st.one_of(identifiers, st.sampled_from(["1", "x-1@host"]))),
        timestamp=draw(moments),
        from_parties=draw(parties),
        to_parties=draw(parties),
        agreement_id=draw(identifiers),
        conversation_id=draw(identifiers),
        service=draw(identifiers.filter(lambda text: text != SERVICE)) if business else SERVICE,
        action=draw(identifiers) if business else str(kind),
        semantics=ebms.semantics,
        routing=(),
        ref_to_message_id=draw(identifiers if least else optional_identifiers),
        document_id=draw(st.sampled_from(["", "order 4711", "a%b"])) if business else "",
        manifest=manifest,
        payloads=payloads,
        error=ebms.gravest if kind is Ebms2Kind.ERROR else None,
        version="2.0",
        ebms=ebms,
    )


def _fixtures() -> list[tuple[str, bytes]]:
    found = [("text/xml", filled(path.name)) for path in sorted(FIXTURES.glob("ebms-core-*.xml"))]
    found += [("text/xml", path.read_bytes()) for path in sorted(FIXTURES.glob("nav-*.xml"))]
    found += [enclose(document, ORDER_PART) for _, document in found]
    boundary = "------=_part_c2a3282c_e754_4193_9fb5_e8a469941f97"
    found.append((f"multipart/related; boundary={boundary}", (FIXTURES / "nav-http-request.mime").read_bytes()))
    _, _, body = (FIXTURES / "hermes-test1.msg").read_bytes().partition(b"\n\n")
    found.append(("multipart/related; boundary=----=_Part_10_15889049.1216625212140", body))
    found += [enclose(ORDER_XML, ORDER_PART), ("text/xml", ACK_XML.encode()), ("text/xml", ERROR_XML.encode())]
    return found


ENTITIES = _fixtures()
FILLINGS = [
    b"", b"<", b">", b"&", b'"', b"/", b"%", b"#", b"[", b":", b" ", b"\t", b"\0", b"\xc2\x85", b"&#10;", b"&lt;",
    b"--b\r\n", b"\r\n", b"\n\n", b"</eb:From>", b"<eb:Role>", b"<eb:CPAId>x</eb:CPAId>", b"<!DOCTYPE x>", b"<!-- -->",
    b"<eb:DuplicateElimination/>", b'SOAP:actor="urn:x"', b'<eb:SyncReply eb:version="2.0"/>', b"eb:", b"SOAP:", b"ds:",
    b"cid:", b"mid:", b"99999999", b"0", b"Reset", b"Ping", b"Error", b"2.0", b"true", SERVICE.encode(),
    b'<eb:MessageOrder eb:version="2.0"><eb:SequenceNumber>7</eb:SequenceNumber></eb:MessageOrder>',
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """An entity of somebody or of our own writer, with some octets changed, moved or doubled."""
    content_type, body = draw(st.one_of(st.sampled_from(ENTITIES), messages().map(entity_of)))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(body)))
        length = draw(st.sampled_from([0, 1, 1, 2, 10, 200]))
        source = draw(st.integers(0, len(body)))
        copied = body[source : source + draw(st.sampled_from([5, 40, 300]))]
        filling = draw(st.one_of(st.sampled_from(FILLINGS), st.binary(max_size=4), st.just(copied)))
        body = body[:start] + filling + body[start + length :]
    return draw(st.sampled_from([content_type, content_type, content_type, MULTIPART, "text/xml"])), body


TEXTS = [
    "", "x", "urn:x", "a b", "cid:po-4711@msh.buyer.example", "mid:1@x/2", "2.0", "1", "true", "0", "-1", "Reset",
    "Error", "warning", "Ping", "Pong", "StatusResponse", "MessageError", "Acknowledgment", "2026-11-28T21:00:00",
    "soon", "Processed", "%zz[]", "x" * 600, SERVICE, *Actor,
]  # fmt: skip
ROOTS = [
    etree.fromstring(body) for content_type, body in ENTITIES if content_type == "text/xml" and b"DOCTYPE" not in body
]
NAMES = sorted({str(name) for root in ROOTS for element in root.iter() for name in element.attrib})


@st.composite
def reshaped(draw: st.DrawFn) -> tuple[str, bytes]:
    """A well-formed SOAP envelope, with elements left out, doubled, moved, renamed, or of other values."""
    written = messages().map(lambda envelope: etree.fromstring(document_of(envelope).encode()))
    root = deepcopy(draw(st.one_of(st.sampled_from(ROOTS), written)))
    for _ in range(draw(st.integers(1, 4))):
        elements = [element for element in root.iter(etree.Element) if element is not root]
        if not elements:
            break
        element, other = draw(st.sampled_from(elements)), draw(st.sampled_from(elements))
        match draw(st.integers(0, 5)):
            case 0:
                element.getparent().remove(element)
            case 1:
                other.addnext(deepcopy(element))
            case 2:
                other.append(deepcopy(element))
            case 3:
                element.text = draw(st.one_of(st.sampled_from(TEXTS), free_texts))
            case 4:
                element.set(draw(st.sampled_from(NAMES)), draw(st.one_of(st.sampled_from(TEXTS), optional_identifiers)))
            case _:
                element.attrib.pop(draw(st.sampled_from([*map(str, element.attrib), "none"])), None)
    octets = etree.tostring(root)
    return draw(st.sampled_from([("text/xml", octets), enclose(octets, ORDER_PART)]))
