"""What nobody expects while one message is encoded holds up that message, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from messaging import storage
from messaging.engine.claiming import claim_due
from messaging.models import Incident
from messaging.transports import Receipt
from rmhub.clock import FrozenClock
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db

LOST = Receipt(ok=False, cause="connection_reset")
POISON = b"<poison/>"
PROFILES = ("ebxml", "repeatable", "stream", "ebms2")


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding has a mistake that one document meets."""
    opened = storage.opened

    def open_(content: bytes | None, stored_as: str) -> Any:
        if content == POISON:
            raise KeyError("a mistake of ours")
        return opened(content, stored_as)

    monkeypatch.setattr(storage, "opened", open_)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_message_that_the_hub_fails_to_encode_stops_its_pair_and_no_other(profile: str, defect: None) -> None:
    poisoned, healthy = partner_side(profile=profile), partner_side(profile=profile)
    message, other = submit(poisoned, POISON), submit(healthy)
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("queued", 0)
    _told(poisoned, message.pk)


@pytest.mark.parametrize("profile", PROFILES)
def test_one_that_it_fails_to_send_again_does_neither(
    profile: str, time: FrozenClock, request: pytest.FixtureRequest
) -> None:
    poisoned, healthy = partner_side(profile=profile), partner_side(profile=profile)
    message = submit(poisoned, POISON)
    with link(LOST):
        work()
    request.getfixturevalue("defect")
    time.move(3600)
    other = submit(healthy)
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    _told(poisoned, message.pk)


def _told(partner: PartnerSide, message_pk: object) -> None:
    pair = partner.outbound
    assert (pair.flow, pair.cause) == ("suspended", "internal_error")
    assert "a mistake of ours" in pair.cause_detail
    assert [(one.cause, one.message_id) for one in Incident.objects.filter(state="open")] == [
        ("internal_error", message_pk)
    ]


def test_one_that_is_sent_once_fails(defect: None) -> None:
    partner = partner_side()
    message, other = submit(partner, POISON, semantics="BestEffort"), submit(partner, semantics="BestEffort")
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "internal_error")
