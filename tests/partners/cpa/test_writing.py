"""Agreements that are written read as the same agreements."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from lxml import etree

from partners.cpa.channels import Endpoint
from partners.cpa.findings import Kind, Matter
from partners.cpa.model import Comment, Cpa
from partners.cpa.reading import read
from partners.cpa.writing import CpaUnwritable, write
from tests.partners.cpa import ALL, NAV, NOW, RELIABLE, reading
from tests.partners.cpa.strategies import agreements


@pytest.mark.parametrize("name", ALL)
def test_what_others_agreed_on_is_written_as_it_was_read(name: str) -> None:
    before = reading(name)
    after = read(write(before.cpa), NOW)
    assert after.cpa == before.cpa
    assert [(one.matter, one.text) for one in after.of_kind(Kind.CONFLICTING)] == [
        (one.matter, one.text) for one in before.of_kind(Kind.CONFLICTING)
    ]


@settings(max_examples=25)
@given(agreements())
def test_any_agreement_is_written_and_reads_the_same(cpa: Cpa) -> None:
    after = read(write(cpa), NOW)
    assert after.cpa == cpa
    ignored = {one.matter for one in after.findings if one.kind is Kind.IGNORED}
    assert ignored <= {Matter.FOR_XML_TOOLS, Matter.KEY_ALONE}


def test_nothing_is_written_twice_and_the_usual_prefixes_are_there() -> None:
    octets = write(reading(NAV).cpa)
    root = etree.fromstring(octets)
    tp = "{http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd}"
    assert (len(root.findall(f".//{tp}Transport")), len(root.findall(f".//{tp}DocExchange"))) == (4, 4)
    assert octets.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<tp:CollaborationProtocolAgreement xmlns:")


def test_two_channels_share_what_they_use() -> None:
    first, second = reading(RELIABLE).cpa.parties[0].channels
    assert first.transport == second.transport
    octets = write(reading(RELIABLE).cpa)
    assert octets.count(b"<tp:Transport ") == 2


def with_id(cpa: Cpa, name: str) -> Cpa:
    return replace(cpa, id=name)


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("tp:cpaid", lambda cpa: with_id(cpa, "")),
        ("would not say the same", lambda cpa: with_id(cpa, " x")),
        ("XML cannot carry", lambda cpa: with_id(cpa, "a\x00b")),
        ("would not say the same", lambda cpa: replace(cpa, start=datetime(2011, 1, 1))),
        ("makes no valid document", lambda cpa: replace(cpa, simple_parts=())),
        ("unknown_id", lambda cpa: replace(cpa, simple_parts=cpa.simple_parts[:1])),
        ("duplicate_id", lambda cpa: replace(cpa, parties=(cpa.parties[0], cpa.parties[0]))),
        ("makes no valid document", lambda cpa: replace(cpa, comments=(Comment(""),))),
    ],
)
def test_what_cannot_be_written(said: str, change: object) -> None:
    with pytest.raises(CpaUnwritable) as refused:
        write(change(reading(RELIABLE).cpa))  # type: ignore[operator]
    assert said in str(refused.value)


def test_different_objects_with_one_id_cannot_be_written() -> None:
    cpa = reading(RELIABLE).cpa
    party = cpa.parties[0]
    first, second = party.channels
    receiver = second.transport.receiver
    assert receiver is not None
    other = replace(second.transport, receiver=replace(receiver, endpoints=(Endpoint("http://other.example/"),)))
    changed = replace(party, channels=(first, replace(second, transport=other)))
    with pytest.raises(CpaUnwritable, match="different objects with the same id"):
        write(replace(cpa, parties=(changed, cpa.parties[1])))
