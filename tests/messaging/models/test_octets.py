"""Octets that are stored packed: the same again, whatever they are; and damage is seen."""

from __future__ import annotations

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from messaging import octets, storage
from messaging.models import Message, Signal
from messaging.octets import OctetsDamaged
from tests.messaging.factories import link, partner_side, submit, work


@given(st.binary(max_size=4096))
def test_they_are_the_same_again(data: bytes) -> None:
    packed = octets.pack(data)
    assert octets.unpack(memoryview(packed)) == data
    assert len(packed) <= len(data) + 1


@pytest.mark.parametrize("stored", [b"", b"\x02abc", b"\x01", b"\x01\xff\xff", octets.pack(b"x" * 500)[:-1]])
def test_damage_is_seen(stored: bytes) -> None:
    with pytest.raises(OctetsDamaged):
        octets.unpack(stored)


def test_something_behind_the_end_is_damage() -> None:
    with pytest.raises(OctetsDamaged):
        octets.unpack(octets.pack(b"x" * 500) + b"y")


@pytest.mark.django_db
def test_frames_and_acknowledgements_take_little_room_and_come_back_exactly() -> None:
    partner = partner_side()
    message = submit(partner)
    partner.send(partner.message(1))
    with link() as wire:
        work()
    sent = {parcel.body for parcel in wire.parcels}
    with connection.cursor() as cursor:
        cursor.execute("SELECT octet_length(wire_frame) FROM messaging_message WHERE id = %s", [message.pk])
        (frame,) = cursor.fetchone() or (0,)
        cursor.execute("SELECT octet_length(body) FROM messaging_signal WHERE direction = 'out'")
        (acknowledgement,) = cursor.fetchone() or (0,)
    found = Message.objects.get(pk=message.pk)
    assert found.wire_frame is not None
    literals = storage.unpack_frame(found.wire_frame)
    content = bytes(found.payloads.get().content or b"")
    signal = Signal.objects.get(direction="out")
    assert sent == {content.join(literals), bytes(signal.body)}
    assert frame < len(b"".join(literals)) / 5
    assert acknowledgement < len(bytes(signal.body)) / 5
