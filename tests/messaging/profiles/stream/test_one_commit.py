"""What belongs to one message of a stream is stored by one commit, or not at all (M38, X02)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from django.db import connection, models

from messaging.entrance import reading
from messaging.entrance.refusals import Arrival
from messaging.models import (
    Delivery,
    Event,
    IncomingStream,
    Message,
    MessageIdentity,
    Signal,
)
from partners.terms import Presented
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.outages import Killed
from tests.messaging.profiles.stream.partner import TAKEN, A, decoded, post, stream_side

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_m38_x02_killed_between_any_two_statements_leaves_all_or_nothing() -> None:
    make_trigger(kind="pull")
    partner = stream_side()
    assert post(partner.message(1, requested=True)).status_code == 202
    arrival = partner.message(2, "m2@p", requested=True)

    def everything() -> list[object]:
        rows = (Message, Delivery, Event, Signal, MessageIdentity)
        return [*(model.objects.count() for model in rows), partner.state, partner.row.order_ack_due_at]

    before, statements = everything(), 0
    while True:
        with connection.execute_wrapper(Killed(statements)):
            answer = post(arrival)
        if answer.status_code == 202:
            break
        assert (answer.status_code, answer["Retry-After"]) == (503, str(reading.SOON))
        assert everything() == before
        statements += 1
    assert statements >= 8
    assert (Message.objects.count(), Delivery.objects.count(), partner.state) == (2, 2, (A, 2, 0))


@pytest.mark.django_db(transaction=True)
def test_no_acknowledgement_before_the_commit(
    commit_fails: Callable[[type[models.Model]], AbstractContextManager[None]],
) -> None:
    partner = stream_side(final_receipt=True)
    with commit_fails(Message):
        assert post(partner.message(1, "m1@p", requested=True)).status_code == 503
    assert not Signal.objects.exists()
    assert not IncomingStream.objects.exists()
    assert post(partner.message(1, "m1@p", requested=True)).status_code == 202
    assert Signal.objects.count() == 2


def test_m38_an_order_ack_that_was_lost_is_earned_again_by_the_repeat(time: FrozenClock) -> None:
    """Stored, and the process died before anything was answered: the resend is rejected, acknowledged, and not run."""
    make_trigger(kind="pull")
    partner = stream_side()
    arrival = partner.message(1, "m1@p", requested=True)
    partner.send(arrival)
    Signal.objects.all().delete()
    time.move(30)
    assert partner.send(arrival) == TAKEN
    assert (partner.state, Delivery.objects.count()) == ((A, 1, 1), 1)
    [signal] = Signal.objects.all()
    assert decoded_signal(signal) == (A, 1)


def decoded_signal(signal: Signal) -> tuple[int, int]:
    receipt = decoded(Arrival(signal.content_type, bytes(signal.body), Presented())).receipt
    assert receipt is not None
    return receipt.tx_sequence_id, receipt.last_ordinal
