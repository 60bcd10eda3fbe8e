"""M39 on the database: after a restore no number is used that the partner may have seen before."""

from __future__ import annotations

import pytest

from messaging.engine import memory as hub_memory
from messaging.journal.audit import Actor
from messaging.models import Message, OutgoingStream, Pair
from messaging.transports import Receipt
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import link, submit, work
from tests.messaging.profiles.stream.partner import decoded, stream_side
from tests.messaging.profiles.stream.test_sending import acknowledge

pytestmark = pytest.mark.django_db

TAKEN = Receipt(ok=True, status=202)


def restored() -> None:
    hub_memory.lost(clock.now(), reason="The database was restored.", actor=Actor("ann"))


def test_m39_after_a_restore_what_is_in_flight_gets_new_numbers_in_a_new_stream(time: FrozenClock) -> None:
    side = stream_side()
    with link(TAKEN) as wire:
        messages = [submit(side, b"<Order/>") for _ in range(3)]
        while work():
            pass
        before = int(OutgoingStream.objects.get(pair=side.outbound).tx_sequence_id)
        time.move(3600)
        restored()
        row = OutgoingStream.objects.get(pair=side.outbound)
        assert row.tx_sequence_id > before
        assert Pair.objects.get(pk=side.outbound.pk).queued == 3
        sent = len(wire.parcels)
        while work():
            pass
        again = [decoded(parcel) for parcel in wire.parcels[sent:]]
    assert [(one.position.current, one.position.previous) for one in again if one.position] == [(1, 0), (2, 1), (3, 2)]
    assert [one.message_id for one in again] == [message.message_id for message in messages]
    # What the partner says about the numbers of before means nothing now.
    acknowledge(side, 9, before)
    assert set(Message.objects.values_list("state", flat=True)) == {"awaiting_ack"}
    acknowledge(side, 3)
    assert set(Message.objects.values_list("state", flat=True)) == {"delivered"}


def test_m39_an_idle_stream_begins_anew_too(time: FrozenClock) -> None:
    side = stream_side()
    with link(TAKEN) as wire:
        submit(side, b"<Order/>")
        while work():
            pass
        before = int(OutgoingStream.objects.get(pair=side.outbound).tx_sequence_id)
        acknowledge(side, 1)
        idle = int(OutgoingStream.objects.get(pair=side.outbound).tx_sequence_id)
        time.move(3600)
        restored()
        submit(side, b"<Order/>")
        while work():
            pass
        position = decoded(wire.parcels[-1]).position
    assert position is not None
    assert position.tx_sequence_id > idle > before
    assert (position.current, position.previous, position.start) == (1, 0, True)
