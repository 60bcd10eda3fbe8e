"""The addressing table as it judges what comes in, and where answers go.

The page for integrators says what the code does.
"""

from __future__ import annotations

import re

import pytest

from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Request
from messaging.protocol.ws.messages import EndpointReference, Violation, origin
from messaging.protocol.ws.names import NAMES, Style, Version
from messaging.protocol.ws.rules import RULES, Need, answerable, check, reply_targets
from tests import ROOT
from tests.protocol.ws.messages import HUB, PEER, create, envelope, epr, fixture, notification, read, register, request

_ANONYMOUS = [names.anonymous for names in NAMES.values()]
_NOWHERE = [one for names in NAMES.values() for one in (names.anonymous, names.none) if one]


def _fatal(octets: bytes, *, strict: bool = False, profile: Style = Style.SEED) -> list[tuple[str, FaultCode]]:
    return [(one.header, one.code) for one in check(read(octets), strict=strict, profile=profile) if one.fatal]


def test_table_has_every_type_of_message_for_both_profiles() -> None:
    kinds = {*Request, *Note, FAULT}
    assert set(RULES) == {(kind, profile) for kind in kinds for profile in Style}


@pytest.mark.parametrize("profile", list(Style))
@pytest.mark.parametrize("version", list(Version))
def test_t01_create_with_all_its_headers_breaks_nothing(version: Version, profile: Style) -> None:
    assert check(read(create(version=version)), strict=True, profile=profile) == ()
    assert check(read(register(version=version)), strict=True, profile=profile) == ()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("profile", list(Style))
def test_t02_requests_without_message_id_or_reply_to(profile: Style, strict: bool) -> None:
    for header, octets in (("MessageID", create(message_id="")), ("ReplyTo", create(reply_to=""))):
        assert _fatal(octets, strict=strict, profile=profile) == [(header, FaultCode.INVALID_PARAMETERS)]


@pytest.mark.parametrize(
    "address", [*_NOWHERE, "urn:x", "mailto:a@peer.example", "https://", "/relative", "https://u:p@peer.example"]
)
def test_t03_requests_whose_reply_to_is_not_physical(address: str) -> None:
    for kind, body in (
        (
            "CreateCoordinationContext",
            f"<wscoor:CoordinationType>{NAMES[Version.V2006].wsat}</wscoor:CoordinationType>",
        ),
        ("Register", register().partition(b"<wscoor:Register>")[2].partition(b"</wscoor:Register>")[0].decode()),
    ):
        assert _fatal(request(kind, body, reply_to=address)) == [("ReplyTo", FaultCode.INVALID_PARAMETERS)]


def test_t05_unknown_coordination_type() -> None:
    assert _fatal(create(kind="urn:ba")) == [("CoordinationType", FaultCode.CANNOT_CREATE)]
    # The type of the other version is unknown as well.
    assert _fatal(create(kind=NAMES[Version.V2004].wsat)) == [("CoordinationType", FaultCode.CANNOT_CREATE)]


def test_t07_unknown_protocol() -> None:
    assert _fatal(register(protocol="urn:x")) == [("ProtocolIdentifier", FaultCode.INVALID_PROTOCOL)]


@pytest.mark.parametrize("address", [*_NOWHERE, "urn:x"])
def test_t10_participant_that_cannot_be_reached(address: str) -> None:
    assert _fatal(register(address)) == [("ParticipantProtocolService", FaultCode.INVALID_PARAMETERS)]


def test_current_context_of_somewhere_else() -> None:
    context = (
        "<wscoor:CurrentContext><wscoor:Identifier>urn:t:1</wscoor:Identifier>"
        f"<wscoor:CoordinationType>urn:ba</wscoor:CoordinationType>"
        f"{epr('wscoor:RegistrationService', _ANONYMOUS[1])}</wscoor:CurrentContext>"
    )
    assert _fatal(create(context)) == [
        ("CurrentContext/RegistrationService", FaultCode.INVALID_PARAMETERS),
        ("CurrentContext/CoordinationType", FaultCode.CANNOT_CREATE),
    ]


_OPEN = ["Prepare", "Prepared", "Commit", "Rollback", "Replay"]


@pytest.mark.parametrize("kind", _OPEN, ids=[f"T46-{kind}" for kind in _OPEN])
def test_t46_open_notification_without_reply_to(kind: str) -> None:
    identifier = "<a:MessageID>urn:uuid:1</a:MessageID>"
    for reply_to in ("", *(epr("a:ReplyTo", address) for address in _NOWHERE)):
        octets = notification(kind, identifier + reply_to)
        assert _fatal(octets, strict=True) == [("ReplyTo", FaultCode.INVALID_PARAMETERS)]
        assert _fatal(octets, strict=False) == []
        assert any(one.header == "ReplyTo" for one in check(read(octets), strict=False, profile=Style.SEED))


def test_oasis_profile_held_strictly_wants_a_sender_or_a_reply_to() -> None:
    assert _fatal(notification("Prepared"), strict=True, profile=Style.OASIS) == [
        ("From", FaultCode.INVALID_PARAMETERS)
    ]
    for header in ("a:From", "a:ReplyTo"):
        octets = notification("Prepared", epr(header, "https://peer.example/p"))
        assert _fatal(octets, strict=True, profile=Style.OASIS) == []


@pytest.mark.parametrize("profile", list(Style))
@pytest.mark.parametrize("strict", [True, False])
def test_t44_terminal_notification_with_a_reply_to_is_only_noted(profile: Style, strict: bool) -> None:
    octets = notification("Committed", epr("a:ReplyTo", "https://peer.example/p"))
    assert _fatal(octets, strict=strict, profile=profile) == []
    noted = [one.header for one in check(read(octets), strict=strict, profile=profile)]
    assert ("ReplyTo" in noted) is (profile is Style.SEED)


@pytest.mark.parametrize("strict", [True, False])
def test_t47_fault_and_replies_without_relates_to(strict: bool) -> None:
    for octets in (envelope("", "<s:Fault/>"), fixture(8).replace(b"RelatesTo", b"Relates")):
        found = [one for one in check(read(octets), strict=strict, profile=Style.SEED) if one.header == "RelatesTo"]
        assert [one.fatal for one in found] == [strict]


def test_what_is_fatal_comes_first() -> None:
    found = check(read(create(kind="urn:ba", more=epr("a:FaultTo", _ANONYMOUS[1]))), strict=False, profile=Style.SEED)
    assert [one.fatal for one in found] == [True, False]
    assert all(isinstance(one, Violation) and one.sentence for one in found)


def test_faults_and_replies_are_never_answered_with_a_fault() -> None:
    assert [answerable(kind) for kind in (FAULT, Request.CREATED, Request.REGISTERED)] == [False] * 3
    assert all(answerable(kind) for kind in (Request.CREATE, Request.REGISTER, *Note))


_SENDER, _REPLY, _FAULT = (EndpointReference(f"https://peer.example/{name}") for name in ("from", "reply", "fault"))


def _prepared(**addresses: str) -> bytes:
    return notification("Prepared", "".join(epr(f"a:{name}", address) for name, address in addresses.items()))


def test_t47_faults_go_to_fault_to_and_else_to_the_registered_endpoint() -> None:
    message = read(_prepared(From=_SENDER.address, ReplyTo=_REPLY.address, FaultTo=_FAULT.address))
    assert reply_targets(message, PEER, fault=True) == (_FAULT, PEER, _SENDER, _REPLY)
    assert reply_targets(message, PEER) == (PEER, _SENDER, _REPLY)

    without = read(_prepared(ReplyTo=_REPLY.address))
    assert reply_targets(without, PEER, fault=True)[0] == PEER


@pytest.mark.parametrize("address", _NOWHERE)
def test_t50_fault_to_nowhere_falls_back_to_the_registered_endpoint(address: str) -> None:
    message = read(_prepared(FaultTo=address, From=address, ReplyTo=address))
    assert reply_targets(message, PEER, fault=True) == (PEER,)
    assert reply_targets(message, None, fault=True) == ()
    (note,) = [one for one in check(message, strict=False, profile=Style.SEED) if one.header == "FaultTo"]
    assert not note.fatal


def test_t49_without_a_registration_the_reply_to_is_used() -> None:
    message = read(notification("Commit", epr("a:ReplyTo", "https://peer.example/c", HUB.parameters[0])))
    assert reply_targets(message, None) == (EndpointReference("https://peer.example/c", HUB.parameters),)


def test_requests_are_answered_at_their_reply_to() -> None:
    message = read(create(more=epr("a:FaultTo", _FAULT.address)))
    assert reply_targets(message, PEER)[0] == EndpointReference("https://peer.example/replies")
    assert reply_targets(message, PEER, fault=True)[0] == _FAULT


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://peer.example/x?y=z", ("https", "peer.example", 443)),
        ("HTTP://Peer.Example.:8080", ("http", "peer.example", 8080)),
        ("http://[::1]:1/", ("http", "::1", 1)),
        ("https://peer.example:0x/", None),
        ("https://peer.example:99999/", None),
        ("https://[::1/", None),
        ("https://u@peer.example/", None),
        ("https://peer.example /", None),
        ("https://peer.example\\@else.example/", None),
        ("ftp://peer.example/", None),
        ("//peer.example/", None),
        ("https:///x", None),
        ("https://peer.example/" + "x" * 500, None),
        ("", None),
    ],
)
def test_origin_of_an_address(address: str, expected: tuple[str, str, int] | None) -> None:
    assert origin(address) == expected


PAGE = (ROOT / "docs" / "atomic-transactions.md").read_text()
_SHOWN = {Need.PHYSICAL: "MUST, physical", Need.MAY: "may", Need.NOWHERE: "`none`"}


def test_examples_on_the_wire_are_messages_that_break_no_rule() -> None:
    examples = [example for example in re.findall(r"```xml\n(.*?)```", PAGE, re.DOTALL) if "s:Envelope" in example]
    assert len(examples) >= 8
    for example in examples:
        assert check(read(example.encode()), strict=True, profile=Style.SEED) == ()


def test_addressing_table_is_the_one_of_the_code() -> None:
    documented = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1] in ("seed", "oasis", "both"):
            for kind in cells[0].split(", "):
                for profile in Style if cells[1] == "both" else (Style(cells[1]),):
                    documented[kind, profile] = cells[2:]
    assert documented == {
        key: [_SHOWN.get(need, str(need)) for need in (row.message_id, row.relates_to, row.reply_to, row.sender)]
        for key, row in RULES.items()
    }
