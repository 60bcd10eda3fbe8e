"""What the reader makes of the messages of others, and of octets that are none."""

from __future__ import annotations

import pytest

from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Protocol, Request
from messaging.protocol.ws.bodies import MAX_EXPIRES
from messaging.protocol.ws.messages import (
    Create,
    Created,
    EndpointReference,
    Fault,
    Notification,
    Opaque,
    Register,
    Registered,
    Unreadable,
    read_parameter,
)
from messaging.protocol.ws.names import APPLICATION, NAMES, SOAP, Profile, Soap, Version
from messaging.protocol.ws.reading import decode, read_context
from messaging.protocol.ws.rules import check
from tests.protocol.ws.messages import MAX_BYTES, create, envelope, epr, fixture, notification, read, register

_KINDS = [
    (1, Request.CREATE, Soap.V11, Create),
    (2, Request.CREATED, Soap.V11, Created),
    (3, Request.REGISTER, Soap.V11, Register),
    (4, Request.REGISTERED, Soap.V11, Registered),
    (5, APPLICATION, Soap.V12, Opaque),
    (6, Request.CREATE, Soap.V12, Create),
    (7, Request.REGISTER, Soap.V11, Register),
    (8, Request.REGISTERED, Soap.V11, Registered),
    (9, Request.CREATED, Soap.V12, Created),
    (10, Note.COMMIT, Soap.V11, Notification),
    (11, Note.PREPARE, Soap.V11, Notification),
    (12, Note.PREPARED, Soap.V11, Notification),
    (13, Note.COMMITTED, Soap.V11, Notification),
    (14, Note.COMMIT, Soap.V11, Notification),
    (15, Note.COMMITTED, Soap.V11, Notification),
]
_IDENTIFIER = "urn:uuid:4413663a-b7f1-4001-8956-7af04265103b"


@pytest.mark.parametrize(
    ("number", "kind", "soap", "body"), _KINDS, ids=[f"T54-{row[0]:02}-{row[1]}" for row in _KINDS]
)
def test_t54_published_messages_are_read(number: int, kind: str, soap: Soap, body: type) -> None:
    message = read(fixture(number))

    assert (message.kind, message.version, message.soap) == (kind, Version.V2006, soap)
    assert isinstance(message.body, body)
    assert message.problems == ()
    assert not any(one.fatal for profile in Profile for one in check(message, strict=False, profile=profile))
    # They are of an implementation of 2006/06: held strictly to that profile, they still pass.
    assert not any(one.fatal for one in check(message, strict=True, profile=Profile.OASIS))


def test_t54_facts_of_the_published_messages() -> None:
    created = read(fixture(2)).body
    assert isinstance(created, Created)
    assert (created.context.identifier, created.context.expires_ms) == (_IDENTIFIER, 60000)
    assert "RegisterInfo" in created.context.registration.parameters[0]
    assert len(created.context.extensions) == 2

    registering = read(fixture(7))
    assert isinstance(registering.body, Register)
    assert registering.body.protocol is Protocol.DURABLE
    assert registering.addressing.message_id == "urn:uuid:27d5656b-6ea7-4094-8294-116e264ffae2"
    assert registering.addressing.reply_to == EndpointReference(
        "https://machine_2.tempuri.org:5432/WsatService/67b7e957-913c-4604-8d68-d5319cbeaa6c"
    )
    assert len(registering.echoed) == 1
    assert "IsReferenceParameter" not in registering.echoed[0]

    interposed = read(fixture(6)).body
    assert isinstance(interposed, Create)
    assert interposed.current is not None
    assert interposed.current.identifier == _IDENTIFIER

    flow = read(fixture(5))
    assert flow.context is not None
    assert flow.context.expires_ms == 59904

    prepared = read(fixture(12)).addressing
    assert prepared.message_id == ""
    assert prepared.sender is not None
    assert prepared.sender.is_physical()
    assert prepared.reply_to is not None
    assert not prepared.reply_to.is_physical()


def test_2004_10_with_reference_properties() -> None:
    names = NAMES[Version.V2004]
    headers = (
        f"<a:Action>{names.wsat}/Replay</a:Action><a:MessageID>uuid:1</a:MessageID><a:To>http://hub.example/x</a:To>"
        "<a:ReplyTo><a:Address>http://peer.example/p</a:Address>"
        '<a:ReferenceProperties><p:A xmlns:p="urn:p">1</p:A></a:ReferenceProperties>'
        '<a:ReferenceParameters><p:B xmlns:p="urn:p">2</p:B></a:ReferenceParameters></a:ReplyTo>'
    )
    message = read(envelope(headers, "<wsat:Replay/>", version=Version.V2004))

    assert (message.version, message.kind) == (Version.V2004, Note.REPLAY)
    assert message.addressing.reply_to == EndpointReference(
        "http://peer.example/p", ('<p:A xmlns:p="urn:p">1</p:A>', '<p:B xmlns:p="urn:p">2</p:B>')
    )
    assert check(message, strict=True, profile=Profile.SEED) == ()


def test_t41_replay_of_2006_06_is_read_and_noted_as_deprecated() -> None:
    message = read(notification("Replay", epr("a:ReplyTo", "https://peer.example/p")))

    found = check(message, strict=True, profile=Profile.SEED)

    assert message.body == Notification(Note.REPLAY)
    assert not any(one.fatal for one in found)
    assert any("deprecated" in one.sentence for one in found)


def test_our_parameter_is_found_among_the_headers_with_and_without_its_flag() -> None:
    for flag in ("", ' a:IsReferenceParameter="true"', ' s:mustUnderstand="1"'):
        block = f'<r:Enlistment xmlns:r="urn:rmhub:ws-tx"{flag}> enl_7 </r:Enlistment>'
        message = read(notification("Prepared", '<x:Other xmlns:x="urn:x">enl_8</x:Other>' + block))
        assert message.problems == ()
        assert read_parameter(message.echoed, "Enlistment") == "enl_7"
        assert read_parameter(message.echoed, "Transaction") == ""


def test_two_parameters_of_ours_that_differ_count_as_none() -> None:
    blocks = "".join(f'<r:Enlistment xmlns:r="urn:rmhub:ws-tx">enl_{n}</r:Enlistment>' for n in (1, 2))
    assert read_parameter(read(notification("Prepared", blocks)).echoed, "Enlistment") == ""


@pytest.mark.parametrize("soap", list(Soap))
@pytest.mark.parametrize("value", ["1", "true"])
def test_header_that_must_be_understood_and_is_not(soap: Soap, value: str) -> None:
    block = f'<sec:Security xmlns:sec="urn:sec" s:mustUnderstand="{value}"/>'
    message = read(notification("Prepared", block, soap=soap))

    assert [one.code for one in message.problems] == [FaultCode.MUST_UNDERSTAND]
    assert "{urn:sec}Security" in message.problems[0].sentence


def test_headers_for_others_on_the_way_are_not_ours_to_understand() -> None:
    block = '<x:Hop xmlns:x="urn:x" s:mustUnderstand="1" s:actor="urn:somebody-else"/>'
    assert read(notification("Prepared", block)).problems == ()
    next_one = block.replace("urn:somebody-else", "http://schemas.xmlsoap.org/soap/actor/next")
    assert [one.code for one in read(notification("Prepared", next_one)).problems] == [FaultCode.MUST_UNDERSTAND]


def _application(coordination_type: str, must_understand: str = ' s:mustUnderstand="1"') -> bytes:
    context = (
        f"<wscoor:CoordinationContext{must_understand}><wscoor:Identifier>urn:t:1</wscoor:Identifier>"
        f"<wscoor:CoordinationType>{coordination_type}</wscoor:CoordinationType>"
        f"{epr('wscoor:RegistrationService', 'https://peer.example/reg')}</wscoor:CoordinationContext>"
    )
    return envelope(f"<a:Action>urn:order</a:Action>{context}", '<o:Order xmlns:o="urn:o"/>')


def test_t55_context_of_an_unknown_type_that_must_be_understood() -> None:
    message = read(_application("urn:ba"))

    assert [(one.header, one.code, one.fatal) for one in message.problems] == [
        ("CoordinationContext", FaultCode.MUST_UNDERSTAND, True)
    ]
    assert message.context is None
    # Without mustUnderstand it may be ignored, and one of our type is understood.
    assert read(_application("urn:ba", "")).problems == ()
    assert read(_application(NAMES[Version.V2006].wsat)).context is not None


@pytest.mark.parametrize("soap", list(Soap))
@pytest.mark.parametrize(
    ("space", "local", "code"),
    [
        ("wscoor", "CannotRegister", FaultCode.CANNOT_REGISTER),
        ("wscoor", "CannotRegisterParticipant", FaultCode.CANNOT_REGISTER),
        ("wscoor", "InvalidState", FaultCode.INVALID_STATE),
        ("wsat", "UnknownTransaction", FaultCode.UNKNOWN_TRANSACTION),
        ("wsat", "InconsistentInternalState", FaultCode.INCONSISTENT),
        ("s", "MustUnderstand", FaultCode.MUST_UNDERSTAND),
        ("s", "Server", None),
        ("other", "InvalidState", None),
    ],
    ids=lambda value: "T56" if value == "CannotRegister" else None,
)
def test_t56_faults_are_known_by_the_names_that_others_use(
    soap: Soap, space: str, local: str, code: FaultCode | None
) -> None:
    if soap is Soap.V11:
        inner = f'<faultcode xmlns:other="urn:o">{space}:{local}</faultcode><faultstring>why \n so</faultstring>'
    else:
        inner = (
            f"<s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value xmlns:other='urn:o'>{space}:{local}</s:Value>"
            '</s:Subcode></s:Code><s:Reason><s:Text xml:lang="de">warum</s:Text><s:Text xml:lang="en">why so</s:Text>'
            "</s:Reason>"
        )
    headers = f"<a:Action>{NAMES[Version.V2006].wscoor}/fault</a:Action><a:RelatesTo>urn:uuid:9</a:RelatesTo>"
    message = read(envelope(headers, f"<s:Fault>{inner}</s:Fault>", soap=soap))

    assert message.kind == FAULT
    assert message.addressing.relates_to == "urn:uuid:9"
    assert isinstance(message.body, Fault)
    assert (message.body.code, message.body.reason) == (code, "why so")
    assert message.body.name.endswith(f"}}{local}")


def test_fault_that_says_nothing_is_still_a_fault() -> None:
    for body in ("<s:Fault/>", "<s:Fault><faultcode>x:Y</faultcode></s:Fault>", "<s:Fault><faultcode/></s:Fault>"):
        message = read(envelope("", body))
        assert isinstance(message.body, Fault)
        assert message.body.code is None


def test_relates_to_unspecified_is_read_as_nothing() -> None:
    for version, names in NAMES.items():
        octets = envelope(f"<a:RelatesTo>{names.unspecified}</a:RelatesTo>", "<s:Fault/>", version=version)
        assert read(octets).addressing.relates_to == ""


def test_relationships_other_than_reply_are_passed_over() -> None:
    headers = (
        '<a:RelatesTo RelationshipType="urn:similar">urn:uuid:0</a:RelatesTo>'
        '<a:RelatesTo RelationshipType="http://www.w3.org/2005/08/addressing/reply">urn:uuid:1</a:RelatesTo>'
    )
    assert read(notification("Prepared", headers)).addressing.relates_to == "urn:uuid:1"


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize(("kind", "other"), [("Commit", "Rollback"), ("Prepared", "Committed")])
def test_action_and_body_must_agree(version: Version, kind: str, other: str) -> None:
    action = f"<a:Action>{NAMES[version].wsat}/{other}</a:Action>"
    (problem,) = read(envelope(action, f"<wsat:{kind}/>", version=version)).problems
    assert (problem.header, problem.code) == ("Action", FaultCode.INVALID_PARAMETERS)

    (problem,) = read(envelope("", f"<wsat:{kind}/>", version=version)).problems
    assert "no wsa:Action" in problem.sentence

    # The action of the other version is the wrong one, too.
    foreign = next(names.wsat for one, names in NAMES.items() if one is not version)
    octets = envelope(f"<a:Action>{foreign}/{kind}</a:Action>", f"<wsat:{kind}/>", version=version)
    assert [one.header for one in read(octets).problems] == ["Action"]


def test_action_without_its_body() -> None:
    for body in ("", '<x:Commit xmlns:x="urn:x"/>'):
        message = read(envelope(f"<a:Action>{NAMES[Version.V2006].wsat}/Commit</a:Action>", body))
        assert (message.kind, message.body) == (Note.COMMIT, None)
        assert [one.header for one in message.problems] == ["Body"]


@pytest.mark.parametrize(
    ("content_type", "soap_action", "agrees"),
    [
        ("text/xml", "", True),
        ("text/xml", '""', True),
        ("text/xml", f'"{NAMES[Version.V2006].wsat}/Prepared"', True),
        ("text/xml", '"urn:else"', False),
        ('application/soap+xml; action="urn:else"', "", False),
        (f'application/soap+xml; action="{NAMES[Version.V2006].wsat}/Prepared"', "", True),
    ],
)
def test_action_of_the_http_headers(content_type: str, soap_action: str, agrees: bool) -> None:
    soap = Soap.V12 if "soap+xml" in content_type else Soap.V11
    message = decode(content_type, notification("Prepared", soap=soap), max_bytes=MAX_BYTES, soap_action=soap_action)
    assert (message.problems == ()) is agrees


def test_headers_that_stand_twice() -> None:
    (problem,) = read(notification("Prepared", "<a:To>https://hub.example/other</a:To>")).problems
    assert (problem.header, problem.code) == ("To", FaultCode.INVALID_PARAMETERS)


@pytest.mark.parametrize("text", ["-1", "1.5", "abc", "", str(MAX_EXPIRES + 1), "9" * 30, "٣"])
def test_expires_that_is_no_number_of_milliseconds(text: str) -> None:
    message = read(create(f"<wscoor:Expires>{text}</wscoor:Expires>"))
    assert message.body is None
    assert [(one.header, one.code) for one in message.problems] == [("Expires", FaultCode.INVALID_PARAMETERS)]


@pytest.mark.parametrize(("text", "value"), [("60000", 60000), (" +5 ", 5), ("0", 0), (str(MAX_EXPIRES), MAX_EXPIRES)])
def test_t52_expires_in_milliseconds(text: str, value: int) -> None:
    body = read(create(f"<wscoor:Expires>{text}</wscoor:Expires>")).body
    assert isinstance(body, Create)
    assert body.expires_ms == value


def test_t53_expires_may_be_absent() -> None:
    body = read(create()).body
    assert isinstance(body, Create)
    assert body.expires_ms is None


def _context(identifier: str, more: str = "") -> str:
    return (
        f"<wscoor:CurrentContext><wscoor:Identifier>{identifier}</wscoor:Identifier>{more}"
        f"<wscoor:CoordinationType>{NAMES[Version.V2006].wsat}</wscoor:CoordinationType>"
        f"{epr('wscoor:RegistrationService', 'https://up.example/reg')}</wscoor:CurrentContext>"
    )


@pytest.mark.parametrize("identifier", ["", "relative/path", "//host/path", "urn:", "urn:a b", "x" * 600])
def test_identifier_must_be_an_absolute_uri(identifier: str) -> None:
    message = read(create(_context(identifier)))
    assert message.body is None
    assert [(one.header, one.code) for one in message.problems] == [("Identifier", FaultCode.INVALID_PARAMETERS)]


def test_current_context() -> None:
    body = read(create(_context("urn:t:1", '<wscoor:Expires>1</wscoor:Expires><x:Y xmlns:x="urn:x"/>'))).body
    # The extension stands where it should not: order is no reason to refuse a message.
    assert isinstance(body, Create)
    assert body.current is not None
    assert (body.current.identifier, body.current.expires_ms) == ("urn:t:1", 1)
    assert body.current.extensions == ('<x:Y xmlns:x="urn:x"></x:Y>',)


def test_unknown_elements_and_attributes_are_passed_over() -> None:
    octets = create('<x:Loopback xmlns:x="urn:x" y="1">z</x:Loopback>', more='<x:H xmlns:x="urn:x"/>')
    message = read(octets)
    assert message.problems == ()
    assert isinstance(message.body, Create)


@pytest.mark.parametrize(
    ("octets", "header"),
    [
        (register().replace(b"ProtocolIdentifier", b"Protocol"), "ProtocolIdentifier"),
        (register().replace(b"ParticipantProtocolService", b"Service"), "ParticipantProtocolService"),
        (register(""), "ParticipantProtocolService"),
        (register("https://peer.example/" + "x" * 500), "ParticipantProtocolService"),
        (register(parameters="<a:To>https://else.example</a:To>"), "ParticipantProtocolService"),
        (register(parameters="<s:Header/>"), "ParticipantProtocolService"),
        (register(parameters='<x:Y xmlns:x="urn:x"/>' * 21), "ParticipantProtocolService"),
        (register(parameters=f'<x:Y xmlns:x="urn:x">{"z" * 9000}</x:Y>'), "ParticipantProtocolService"),
        (create().replace(b"CoordinationType", b"Type"), "CoordinationType"),
    ],
)
def test_requests_that_lack_what_they_need(octets: bytes, header: str) -> None:
    message = read(octets)
    assert message.body is None
    assert [(one.header, one.code) for one in message.problems] == [(header, FaultCode.INVALID_PARAMETERS)]


def test_namespaces_that_canonical_xml_refuses() -> None:
    message = read(notification("Prepared", '<x xmlns="relative">1</x>'))
    assert message.echoed[0].startswith('<x xmlns="relative"')


def test_prefixes_in_values_of_parameters_keep_their_declarations() -> None:
    octets = register(parameters='<p:Kind xmlns:p="urn:p" xmlns:q="urn:q" xmlns:u="urn:unused">q:thing</p:Kind>')
    body = read(octets).body
    assert isinstance(body, Register)
    assert body.participant.parameters == ('<p:Kind xmlns:p="urn:p" xmlns:q="urn:q">q:thing</p:Kind>',)


_DECLARED = "<x " + " ".join(f'xmlns:n{n}="u:{n}"' for n in range(100)) + "/>"
_UNREADABLE: list[tuple[str, bytes, str, int]] = [
    ("text/html", notification("Commit"), "not_soap", 415),
    ("", notification("Commit"), "not_soap", 415),
    ("multipart/related; boundary=x", notification("Commit"), "not_soap", 415),
    ("application/soap+xml", notification("Commit"), "wrong_soap_version", 415),
    ("text/xml", notification("Commit", soap=Soap.V12), "wrong_soap_version", 415),
    ("text/xml; charset=iso-8859-1", notification("Commit"), "wrong_charset", 415),
    ("text/xml; charset=nonsense", notification("Commit"), "wrong_charset", 415),
    ("text/xml; charset=utf-8", b"\xff\xfe<", "bad_charset", 400),
    ("text/xml", b"", "xml_not_well_formed", 400),
    ("text/xml", b"<s:Envelope", "xml_not_well_formed", 400),
    ("text/xml", b"<order/>", "not_an_envelope", 400),
    ("text/xml", b"<Envelope/>", "not_an_envelope", 400),
    ("text/xml", f'<s:Body xmlns:s="{SOAP[Soap.V11].envelope}"/>'.encode(), "not_an_envelope", 400),
    ("text/xml", f'<s:Envelope xmlns:s="{SOAP[Soap.V11].envelope}"/>'.encode(), "no_body", 400),
    ("text/xml", notification("Commit", '<x xmlns="urn:x"/>' * 50), "too_many_headers", 400),
    ("text/xml", notification("Commit", "<x>" * 40 + "</x>" * 40), "too_deep", 400),
    ("text/xml", notification("Commit", f"<y>{'<x/>' * 2500}</y>"), "too_many_elements", 400),
    ("text/xml", notification("Commit", f"<y>{'x' * MAX_BYTES}</y>"), "too_large", 413),
    # Each name in scope costs for each element: without a bound, 50 kB take a minute.
    ("text/xml", notification("Commit", _DECLARED), "too_many_namespaces", 400),
    ("text/xml", notification("Commit", _DECLARED).decode().encode("utf-16"), "too_many_namespaces", 400),
    ("text/xml", b'<?xml version="1.0" encoding="windows-1252"?>' + notification("Commit"), "wrong_charset", 415),
    (
        "text/xml",
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + notification("Commit", "<x>&e;</x>"),
        "dtd_forbidden",
        400,
    ),
    (
        "text/xml; charset=utf-8",
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "1234567890"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        + notification("Commit", "<x>&b;&b;&b;</x>"),
        "dtd_forbidden",
        400,
    ),
]


@pytest.mark.parametrize(
    ("content_type", "octets", "reason", "status"),
    _UNREADABLE,
    ids=[f"{n}-{row[2]}" for n, row in enumerate(_UNREADABLE)],
)
def test_octets_that_are_no_message(content_type: str, octets: bytes, reason: str, status: int) -> None:
    with pytest.raises(Unreadable) as caught:
        decode(content_type, octets, max_bytes=MAX_BYTES)
    assert (caught.value.reason, caught.value.status) == (reason, status)
    assert caught.value.detail


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("text/xml", "utf-8"),
        ("text/xml; charset=UTF-8", "utf-8"),
        ('text/xml; charset="utf-8"', "utf-8-sig"),
        ("text/xml; charset=utf-16", "utf-16"),
        ("text/xml; charset=us-ascii", "ascii"),
    ],
)
def test_charset_of_the_content_type_wins_over_the_declaration(content_type: str, encoding: str) -> None:
    text = '<?xml version="1.0" encoding="utf-8"?>' + notification("Commit").decode()
    assert read(text.encode(encoding), content_type).kind == Note.COMMIT


def test_context_by_itself() -> None:
    message = fixture(2)
    begin = message.index(b"<wscoor:CoordinationContext ")
    end = message.index(b"</wscoor:CreateCoordinationContextResponse>")
    octets = message[begin:end].replace(
        b"<wscoor:CoordinationContext ",
        b'<wscoor:CoordinationContext xmlns:wscoor="http://docs.oasis-open.org/ws-tx/wscoor/2006/06"'
        b' xmlns:a="http://www.w3.org/2005/08/addressing" ',
    )
    context, version = read_context(octets)
    assert (context.identifier, version) == (_IDENTIFIER, Version.V2006)

    for wrong in (b"<x/>", b"", octets.replace(b"urn:uuid:4413663a-b7f1-4001-8956-7af04265103b", b"relative", 1)):
        with pytest.raises(Unreadable):
            read_context(wrong)
