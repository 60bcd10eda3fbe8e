"""Messages that are signed and say something else: each way to move, hide or add is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from lxml import etree

from messaging.profiles.ebms2.signatures import Reason, verify
from tests.messaging.profiles.ebms2.edited import DS, EB, SOAP, Change, edited, refusal, signature_of, signed_anew
from tests.messaging.profiles.ebms2.signed import NEXT, NEXT_MSH, NOW, PARTS, signer


def test_the_changes_below_start_from_a_message_that_is_right() -> None:
    def nothing(root: etree._Element) -> None:
        pass

    for document in (edited(nothing), signed_anew(nothing)):
        assert verify(document, PARTS, [signer().certificate], at=NOW)


# --- where the signature and what it signs are


def moved_to(place: str) -> Change:
    def change(root: etree._Element) -> None:
        target = root.find(place)
        assert target is not None
        target.append(signature_of(root))

    return change


def second_signature(root: etree._Element) -> None:
    body = root[1]
    body.append(etree.fromstring(etree.tostring(signature_of(root))))


def second_header(root: etree._Element) -> None:
    header = etree.Element(f"{SOAP}Header")
    etree.SubElement(header, f"{EB}MessageHeader")
    root.insert(0, header)


def moved_body(root: etree._Element) -> None:
    """The signed body goes into the header; another takes its place."""
    body = root[1]
    root[0].insert(0, body)
    etree.SubElement(root, f"{SOAP}Body")


def second_body(root: etree._Element) -> None:
    etree.SubElement(root, f"{SOAP}Body")


def wrapped_envelope(root: etree._Element) -> None:
    """The whole signed envelope goes into the body of another."""
    inner = etree.fromstring(etree.tostring(root))
    for child in list(root):
        root.remove(child)
    etree.SubElement(root, f"{SOAP}Header")
    etree.SubElement(root, f"{SOAP}Body").append(inner)


def renamed_root(root: etree._Element) -> None:
    root.tag = "{http://www.w3.org/2003/05/soap-envelope}Envelope"


def no_signature(root: etree._Element) -> None:
    root[0].remove(signature_of(root))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_signature, Reason.UNSIGNED),
        (second_signature, Reason.SEVERAL_SIGNATURES),
        (moved_to(f"{SOAP}Body"), Reason.WRONG_PLACE),
        (moved_to(f"{SOAP}Header/{EB}MessageHeader"), Reason.WRONG_PLACE),
        (moved_to(f"{SOAP}Body/{EB}Manifest"), Reason.WRONG_PLACE),
        (second_header, Reason.WRONG_PLACE),
        (moved_body, Reason.NOT_INTACT),
        (second_body, Reason.WRONG_PLACE),
        (wrapped_envelope, Reason.WRONG_PLACE),
        (renamed_root, Reason.WRONG_PLACE),
    ],
)
def test_what_is_signed_stays_where_it_was(change: Change, reason: Reason) -> None:
    assert refusal(edited(change)) is reason


@pytest.mark.parametrize("change", [moved_to(f"{SOAP}Body"), moved_to(f"{SOAP}Header/{EB}MessageHeader"), second_body])
def test_not_even_the_signer_may_put_it_elsewhere(change: Change) -> None:
    assert refusal(signed_anew(change)) is Reason.WRONG_PLACE


# --- what the next hop may write, and nobody signed


def added(name: str, actor: str, place: str = f"{SOAP}Header") -> Change:
    def change(root: etree._Element) -> None:
        target = root.find(place)
        assert target is not None
        target.insert(0, etree.Element(name, {f"{SOAP}actor": actor}))

    return change


def addressed(place: str, actor: str = NEXT) -> Change:
    def change(root: etree._Element) -> None:
        target = root.find(place) if place else root
        assert target is not None
        target.set(f"{SOAP}actor", actor)

    return change


@pytest.mark.parametrize("actor", [NEXT, NEXT_MSH])
@pytest.mark.parametrize(
    "change",
    [
        partial(added, f"{EB}MessageHeader"),
        partial(added, f"{EB}ErrorList"),
        partial(added, f"{EB}StatusResponse"),
        partial(added, f"{EB}Manifest"),
        partial(added, f"{SOAP}Body"),
        partial(added, f"{DS}KeyInfo"),
        partial(added, "MessageHeader"),
        partial(added, f"{EB}SyncReply", place=f"{SOAP}Body"),
        partial(added, f"{EB}Reference", place=f"{SOAP}Body/{EB}Manifest"),
        partial(added, f"{EB}MessageId", place=f"{SOAP}Header/{EB}MessageHeader"),
        partial(addressed, ""),
        partial(addressed, f"{SOAP}Header"),
        partial(addressed, f"{SOAP}Body"),
        partial(addressed, f"{SOAP}Header/{EB}MessageHeader"),
    ],
)
def test_nothing_that_says_what_the_message_is_can_hide_behind_an_actor(
    change: Callable[..., Change], actor: str
) -> None:
    assert refusal(edited(change(actor=actor))) is Reason.UNSIGNED_CONTENT
    assert refusal(signed_anew(change(actor=actor))) is Reason.UNSIGNED_CONTENT


@pytest.mark.parametrize("actor", [NEXT, NEXT_MSH])
@pytest.mark.parametrize("name", [f"{EB}SyncReply", f"{EB}AckRequested", f"{EB}Acknowledgment", "{urn:trace}Hop"])
def test_what_is_for_the_next_hop_may_come_and_is_named(name: str, actor: str) -> None:
    verified = verify(edited(added(name, actor)), PARTS, [signer().certificate], at=NOW)
    assert verified.uncovered == (name,)


@pytest.mark.parametrize(
    "actor", ["", "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH", NEXT + " ", NEXT_MSH.lower(), "next"]
)
def test_what_is_for_others_is_signed(actor: str) -> None:
    assert refusal(edited(added(f"{EB}SyncReply", actor))) is Reason.NOT_INTACT
    assert verify(signed_anew(added(f"{EB}SyncReply", actor)), PARTS, [signer().certificate], at=NOW).uncovered == ()


def test_an_actor_without_soaps_namespace_hides_nothing() -> None:
    def change(root: etree._Element) -> None:
        root[0].insert(0, etree.Element(f"{EB}SyncReply", {"actor": NEXT, f"{EB}actor": NEXT}))

    assert refusal(edited(change)) is Reason.NOT_INTACT


def test_without_the_xpath_everything_is_signed() -> None:
    """Some leave it out (the NAV fixtures): then SyncReply is as signed as the rest."""

    def change(root: etree._Element) -> None:
        added(f"{EB}SyncReply", NEXT)(root)
        transforms = signature_of(root).find(f".//{DS}Transforms")
        assert transforms is not None
        transforms.remove(transforms[1])

    document = signed_anew(change)
    assert verify(document, PARTS, [signer().certificate], at=NOW).uncovered == ()
    assert refusal(document.replace(b"SyncReply", b"SyncReplx")) is Reason.NOT_INTACT
