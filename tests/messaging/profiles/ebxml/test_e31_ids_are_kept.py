"""MessageIds of ebXML messages are kept permanently: they carry no first-instance time that a window could go by."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from messaging.models import Delivery, Message, MessageIdentity, Signal
from partners.models import DAY
from partners.services import version_validate
from rmhub import clock
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.factories import partner_side
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("number", [1, 3], ids=["as number 1", "as the next number"])
@pytest.mark.parametrize("days", [8, 500])
def test_e31_a_copy_of_an_old_id_is_a_repeat_however_old_it_is(number: int, days: int) -> None:
    with clock.frozen(datetime(2026, 3, 1, 12, tzinfo=UTC)) as time:
        make_queue()
        partner = partner_side(memory_window=7 * DAY)
        assert [partner.send(partner.message(at, name)) for at, name in ((1, "a@p"), (2, "b@p"))] == [204] * 2
        Message.objects.filter(message_id="a@p").delete()  # purged long ago: its id outlives it
        Delivery.objects.filter(message__message_id="a@p").delete()
        time.move(days * DAY)
        assert partner.send(partner.message(number, "a@p")) == 204
        assert list(Message.objects.values_list("message_id", flat=True)) == ["b@p"]
        assert Delivery.objects.count() == 1
        # As the next number it is that of a sender who numbers anew what it had sent; its next document counts on.
        assert partner.inbound.last_sequence == (2 if number == 1 else 3)
        assert partner.send(partner.message(partner.inbound.last_sequence + 1, "c@p")) == 204
        assert Signal.objects.filter(kind="ack", ref_to_message_id="a@p").exists()
        assert MessageIdentity.objects.filter(direction="in").count() == 3


@pytest.mark.parametrize("profile", ["ebxml", "stream"])
def test_e31_a_window_that_would_say_nothing_is_told(profile: str) -> None:
    version = make_agreement(profile=profile, memory_window=7 * DAY)
    (told,) = [one for one in version_validate(version=version) if one.code == "memory_window_unused"]
    assert "kept permanently" in told.sentence
    usual = make_agreement(profile=profile)
    assert not [one for one in version_validate(version=usual) if one.code == "memory_window_unused"]
