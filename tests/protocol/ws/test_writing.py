"""What we write: valid by the schemas, read back as what it was, with the headers of the addressing table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from messaging.protocol.atomic.words import FAULT, TERMINAL, FaultCode, Note, Protocol, Request
from messaging.protocol.errors import EncodeError
from messaging.protocol.ws.bodies import MAX_EXPIRES
from messaging.protocol.ws.messages import (
    Body,
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Fault,
    Notification,
    Octets,
    Register,
    Registered,
    WsMessage,
    parameter,
)
from messaging.protocol.ws.names import NAMES, SOAP, Profile, Soap, Version, coordination_type, protocol_uri
from messaging.protocol.ws.reading import decode, read_context
from messaging.protocol.ws.rules import check
from messaging.protocol.ws.writing import compose, encode, write_context
from tests.protocol.ws.messages import FIXTURES, HUB, MAX_BYTES, PEER, fixture, notification, read

_OPEN = [note for note in Note if note not in TERMINAL]


def _context(version: Version, expires_ms: int | None = 60000) -> CoordinationContext:
    registration = EndpointReference("https://hub.example/ws-tx/registration", (parameter("Transaction", "txn_1"),))
    return CoordinationContext("urn:uuid:5", registration, coordination_type(version), expires_ms)


def _bodies(version: Version) -> dict[str, Body]:
    return {
        Request.CREATE: Create(coordination_type(version), 5, _context(version)),
        Request.CREATED: Created(_context(version)),
        Request.REGISTER: Register(Protocol.DURABLE, HUB, protocol_uri(Protocol.DURABLE, version)),
        Request.REGISTERED: Registered(HUB),
        FAULT: Fault(FaultCode.INVALID_STATE, "Aborted is not possible now", detail="seat prepared"),
        **{note: Notification(note) for note in Note},
    }


def _message(
    kind: str,
    *,
    version: Version = Version.V2006,
    soap: Soap = Soap.V11,
    profile: Profile = Profile.SEED,
    to: EndpointReference = PEER,
    body: Body | None = None,
    relates_to: str = "urn:uuid:0",
) -> WsMessage:
    return compose(
        kind,
        version=version,
        soap=soap,
        profile=profile,
        to=to,
        me=HUB,
        message_id="urn:uuid:1",
        body=body or _bodies(version)[kind],
        relates_to=relates_to,
    )


def _decoded(octets: Octets) -> WsMessage:
    action = octets.headers.get("SOAPAction", "")
    return decode(octets.headers["Content-Type"], octets.body, max_bytes=MAX_BYTES, soap_action=action)


@cache
def _schema(name: str) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(FIXTURES / "schemas" / name))


def _assert_valid(octets: bytes) -> None:
    """The body by the schema of its namespace, every addressing header by that of WS-Addressing, SOAP 1.1 as such."""
    root = etree.fromstring(octets)
    header, body = root
    names = NAMES[Version.V2006]
    for block in header:
        if etree.QName(block).namespace == names.wsa:
            copy = etree.fromstring(etree.tostring(block))
            for attribute in [one for one in copy.attrib if "mustUnderstand" in str(one)]:
                del copy.attrib[attribute]  # SOAP's own, whose schema is not the one of WS-Addressing
            _schema("ws-addr.xsd").assertValid(copy)
    schema = {names.wscoor: "wscoor.xsd", names.wsat: "wsat.xsd"}.get(str(etree.QName(body[0]).namespace))
    if schema is not None:
        _schema(schema).assertValid(etree.fromstring(etree.tostring(body[0])))
    if SOAP[Soap.V11].envelope in root.tag:
        _schema("soap-envelope-1.1.xsd").assertValid(root)


@pytest.mark.parametrize("soap", list(Soap))
@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("kind", [kind for kind in _bodies(Version.V2006) if kind != Note.REPLAY])
def test_what_we_write_is_valid_by_the_schemas(kind: str, profile: Profile, soap: Soap) -> None:
    octets = encode(_message(kind, soap=soap, profile=profile), profile)
    _assert_valid(octets.body)


def test_the_schemas_do_refuse_what_is_wrong() -> None:
    octets = encode(_message(Request.REGISTER), Profile.SEED).body
    for right, wrong in ((b"wscoor:ProtocolIdentifier", b"wscoor:Protocol"), (b"a:Address>", b"a:Adress>")):
        with pytest.raises(etree.DocumentInvalid):
            _assert_valid(octets.replace(right, wrong))


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("soap", list(Soap))
@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("kind", list(_bodies(Version.V2006)))
def test_every_message_is_read_back_as_it_was(kind: str, profile: Profile, soap: Soap, version: Version) -> None:
    if (kind, version) == (Note.REPLAY, Version.V2006):
        return
    message = _message(kind, version=version, soap=soap, profile=profile)

    back = _decoded(encode(message, profile))

    if kind == FAULT:
        assert isinstance(back.body, Fault)
        back = replace(back, body=replace(back.body, name=""))
    assert back == message
    assert not any(one.fatal for one in check(back, strict=True, profile=profile))


def test_content_types_and_actions() -> None:
    action = f"{NAMES[Version.V2006].wsat}/Prepare"
    assert encode(_message(Note.PREPARE), Profile.SEED).headers == {
        "Content-Type": "text/xml; charset=utf-8",
        "SOAPAction": f'"{action}"',
    }
    assert encode(_message(Note.PREPARE, soap=Soap.V12), Profile.SEED).headers == {
        "Content-Type": f'application/soap+xml; charset=utf-8; action="{action}"'
    }


@pytest.mark.parametrize("note", _OPEN, ids=[f"T43-{note}" for note in _OPEN])
def test_t43_seed_profile_open_notifications_carry_a_physical_reply_to(note: Note) -> None:
    version = Version.V2004 if note is Note.REPLAY else Version.V2006
    addressing = _decoded(encode(_message(note, version=version), Profile.SEED)).addressing

    assert addressing.reply_to == HUB
    assert addressing.message_id == "urn:uuid:1"
    with pytest.raises(EncodeError, match="ReplyTo"):
        compose_without_me = _message(note, version=version)
        bare = replace(compose_without_me, addressing=replace(compose_without_me.addressing, reply_to=None))
        encode(bare, Profile.SEED)


@pytest.mark.parametrize("note", sorted(TERMINAL), ids=[f"T44-{note}" for note in sorted(TERMINAL)])
def test_t44_seed_profile_terminal_notifications_carry_none(note: Note) -> None:
    octets = encode(_message(note), Profile.SEED).body
    assert b"ReplyTo" not in octets
    assert b"From" not in octets


@pytest.mark.parametrize("note", [note for note in Note if note is not Note.REPLAY])
def test_t45_oasis_profile_names_the_sender_and_replies_go_nowhere(note: Note) -> None:
    addressing = _decoded(encode(_message(note, profile=Profile.OASIS), Profile.OASIS)).addressing

    assert addressing.sender == HUB
    assert addressing.sender.parameters == (parameter("Enlistment", "enl_1"),)
    assert addressing.reply_to == EndpointReference("http://www.w3.org/2005/08/addressing/none")


def test_oasis_profile_in_2004_10_has_no_none_address() -> None:
    message = _message(Note.PREPARE, profile=Profile.OASIS, version=Version.V2004)
    addressing = _decoded(encode(message, Profile.OASIS)).addressing
    assert (addressing.sender, addressing.reply_to) == (HUB, None)


@pytest.mark.parametrize(("version", "flags"), [(Version.V2006, 1), (Version.V2004, 0)], ids=["T04-2005/08", "2004/08"])
def test_t04_parameters_of_the_reply_to_come_back_as_header_blocks(version: Version, flags: int) -> None:
    octets = encode(_message(Request.CREATED, version=version, to=PEER), Profile.SEED).body

    header = etree.fromstring(octets)[0]
    (block,) = [one for one in header if one.tag == "{urn:peer}Branch"]
    assert (block.text, block.get("{urn:peer}kind")) == ("7 & 8", "2")
    assert octets.count(b'a:IsReferenceParameter="true"') == flags
    assert _decoded(Octets("text/xml", octets)).addressing.relates_to == "urn:uuid:0"


@pytest.mark.parametrize("soap", list(Soap))
@pytest.mark.parametrize("code", list(FaultCode))
def test_t05_faults_have_the_code_and_the_action_of_their_namespace(code: FaultCode, soap: Soap) -> None:
    message = _message(FAULT, soap=soap, body=Fault(code, "why"))
    octets = encode(message, Profile.SEED)
    back = _decoded(octets)

    names = NAMES[Version.V2006]
    wsat = code in (FaultCode.INCONSISTENT, FaultCode.UNKNOWN_TRANSACTION)
    space = SOAP[soap].envelope if code is FaultCode.MUST_UNDERSTAND else names.wsat if wsat else names.wscoor
    assert back.body == Fault(code, "why", name=f"{{{space}}}{code}")
    expected = names.addressing_fault if code is FaultCode.MUST_UNDERSTAND else f"{space}/fault"
    assert back.addressing.action == expected
    assert back.addressing.relates_to == "urn:uuid:0"
    if soap is Soap.V12 and code is not FaultCode.MUST_UNDERSTAND:
        assert b"<s:Value>s:Sender</s:Value>" in octets.body


@pytest.mark.parametrize(
    ("code", "name"), [(FaultCode.CANNOT_CREATE, "ContextRefused"), (FaultCode.CANNOT_REGISTER, "NoActivity")]
)
def test_faults_of_2004_10_have_its_names(code: FaultCode, name: str) -> None:
    back = _decoded(encode(_message(FAULT, version=Version.V2004, body=Fault(code, "why")), Profile.SEED)).body
    assert back == Fault(code, "why", name=f"{{{NAMES[Version.V2004].wscoor}}}{name}")


def test_t48_fault_about_a_message_without_message_id() -> None:
    for version, names in NAMES.items():
        octets = encode(_message(FAULT, version=version, relates_to=""), Profile.SEED).body
        assert f"<a:RelatesTo>{names.unspecified}</a:RelatesTo>".encode() in octets
        assert _decoded(Octets("text/xml", octets)).addressing.relates_to == ""


def test_t41_replay_is_never_written_in_2006_06() -> None:
    with pytest.raises(EncodeError, match="no Replay"):
        encode(_message(Note.REPLAY), Profile.SEED)


def test_t42_replay_of_2004_10_carries_a_reply_to() -> None:
    back = _decoded(encode(_message(Note.REPLAY, version=Version.V2004), Profile.SEED))
    assert (back.kind, back.addressing.reply_to) == (Note.REPLAY, HUB)


@pytest.mark.parametrize(
    "message",
    [
        _message(Request.CREATED, relates_to=""),
        _message(
            Request.REGISTERED, body=Registered(EndpointReference("http://www.w3.org/2005/08/addressing/anonymous"))
        ),
        _message(Request.REGISTER, body=Register(None, HUB, "urn:x")),
        _message(FAULT, body=Fault(None, "of others")),
        _message(FAULT, body=Fault(FaultCode.INVALID_STATE, "a \x00 in it")),
        _message(Note.COMMIT, to=EndpointReference("")),
        _message(Note.COMMIT, to=EndpointReference("https://peer.example/", ("no XML",))),
    ],
)
def test_messages_that_have_no_valid_form(message: WsMessage) -> None:
    with pytest.raises(EncodeError):
        encode(message, Profile.SEED)


def test_equal_messages_give_equal_octets() -> None:
    assert encode(_message(Note.COMMIT), Profile.SEED) == encode(_message(Note.COMMIT), Profile.SEED)


def test_context_by_itself_is_valid_and_read_back() -> None:
    for version in Version:
        octets = write_context(_context(version), version)
        assert read_context(octets) == (_context(version), version)
    _schema("wscoor.xsd").assertValid(etree.fromstring(octets))


@pytest.mark.parametrize("number", [2, 4, 6, 7, 8, 9])
def test_published_requests_and_replies_written_again_say_the_same(number: int) -> None:
    message = read(fixture(number))
    back = _decoded(encode(message, Profile.OASIS))
    assert back == message
    _assert_valid(encode(message, Profile.OASIS).body)


_ALPHABET = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
_TEXT = st.text(_ALPHABET, max_size=40)
_REST = st.text("abcXYZ019-._~!$&'()*+,;=:@/?", min_size=1, max_size=30)
_URIS = st.builds("{}:{}".format, st.sampled_from(["urn", "uuid", "http", "x-1.2+z"]), _REST)
_HOSTS = st.sampled_from(["https://a.example", "http://b.example:8080", "HTTPS://[::1]:443"])
_ADDRESSES = st.builds("{}/{}".format, _HOSTS, _REST)
# A text like "a:b" may be a qualified name: it is read with the declaration of that prefix, as it is there on the wire.
_PLAIN = _TEXT.map(lambda text: text.replace(":", ""))
_PARAMETERS = st.lists(st.builds(parameter, st.sampled_from(["Enlistment", "Other"]), _PLAIN), max_size=3).map(tuple)
_EPRS = st.builds(EndpointReference, _ADDRESSES, _PARAMETERS)
_EXPIRES = st.none() | st.integers(0, MAX_EXPIRES)


@st.composite
def _messages(draw: st.DrawFn) -> tuple[WsMessage, Profile]:
    version, soap, profile = (draw(st.sampled_from(list(one))) for one in (Version, Soap, Profile))
    context = st.builds(CoordinationContext, _URIS, _EPRS, st.just(coordination_type(version)), _EXPIRES, _PARAMETERS)
    protocol = draw(st.sampled_from(list(Protocol)))
    bodies: dict[str, st.SearchStrategy[Body]] = {
        Request.CREATE: st.builds(Create, st.just(coordination_type(version)), _EXPIRES, st.none() | context),
        Request.CREATED: st.builds(Created, context),
        Request.REGISTER: st.builds(Register, st.just(protocol), _EPRS, st.just(protocol_uri(protocol, version))),
        Request.REGISTERED: st.builds(Registered, _EPRS),
        FAULT: st.builds(Fault, st.sampled_from(list(FaultCode)), _TEXT.map(lambda text: " ".join(text.split()))),
        **{n: st.just(Notification(n)) for n in Note if n is not Note.REPLAY or version is Version.V2004},
    }
    kind = draw(st.sampled_from(sorted(bodies)))
    message = compose(
        kind,
        version=version,
        soap=soap,
        profile=profile,
        to=draw(_EPRS),
        me=draw(_EPRS),
        message_id=draw(_URIS),
        body=draw(bodies[kind]),
        relates_to=draw(_URIS),
    )
    return message, profile


@given(_messages())
def test_any_message_survives_the_wire(drawn: tuple[WsMessage, Profile]) -> None:
    message, profile = drawn

    octets = encode(message, profile)
    back = _decoded(octets)

    if isinstance(back.body, Fault):
        back = replace(back, body=replace(back.body, name=""))
    assert back == message
    if message.version is Version.V2006:
        _assert_valid(octets.body)


@given(st.binary(max_size=300))
def test_no_octets_are_anything_but_unreadable_or_a_message(octets: bytes) -> None:
    for wire in (octets, notification("Commit", octets.decode("latin-1"))):
        try:
            message = read(wire)
        except Exception as error:
            assert type(error).__name__ == "Unreadable"
        else:
            check(message, strict=True, profile=Profile.SEED)
