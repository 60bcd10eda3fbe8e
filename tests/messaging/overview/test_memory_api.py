"""What the hub says about how far back it remembers the ids of repeatable requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging.models import MemoryEpoch
from rmhub import clock
from tests.messaging.api.client import Api
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def remembered(**values: object) -> MemoryEpoch:
    MemoryEpoch.objects.all().delete()
    long_ago = NOW - timedelta(days=400)
    defaults = {"memory_start": long_ago, "forgotten_through": long_ago, "heartbeat": NOW}
    return MemoryEpoch.objects.create(**{**defaults, **values})


def test_windows_of_the_agreements_in_force(viewer: Api) -> None:
    epoch = remembered(reason="The hub was set up.")
    version = make_agreement(profile="repeatable", memory_window=7200, clock_skew=60, repeat_interval=15)
    make_agreement(profile="repeatable", activate=False)
    make_agreement()
    with clock.frozen(NOW):
        found = viewer.get("/memory").json
    assert found["server_time"] == "2026-03-01T12:00:00Z"
    assert found["epoch"] == {
        "id": f"mem_{epoch.epoch.hex}",
        "memory_start": "2025-01-25T12:00:00Z",
        "forgotten_through": "2025-01-25T12:00:00Z",
        "heartbeat": "2026-03-01T12:00:00Z",
        "reason": "The hub was set up.",
    }
    (window,) = found["windows"]
    agreement = version.agreement
    assert window == {
        "agreement": {"id": agreement.public_id, "tpa_id": agreement.tpa_id},
        "partner": {"id": agreement.partner.public_id, "name": agreement.partner.name},
        "identity": "first_sent",
        "window_seconds": 7200,
        "clock_skew_seconds": 60,
        "repeat_interval_seconds": 15,
        "earliest_accepted_first_sent": "2026-03-01T10:00:00Z",
        "latest_accepted_first_sent": "2026-03-01T12:01:00Z",
    }


@pytest.mark.parametrize(
    ("values", "earliest"),
    [
        ({"memory_start": NOW - timedelta(minutes=5)}, "2026-03-01T11:55:00Z"),
        ({"forgotten_through": NOW - timedelta(hours=1)}, "2026-03-01T11:00:00Z"),
        ({"heartbeat": NOW + timedelta(minutes=30)}, "2026-03-01T10:30:00Z"),  # the clock was set back
    ],
)
def test_what_was_lost_or_forgotten_narrows_them(viewer: Api, values: dict[str, datetime], earliest: str) -> None:
    remembered(**values)
    make_agreement(profile="repeatable", memory_window=7200)
    with clock.frozen(NOW):
        (window,) = viewer.get("/memory").json["windows"]
    assert window["earliest_accepted_first_sent"] == earliest


def test_before_the_hub_first_ran(viewer: Api) -> None:
    MemoryEpoch.objects.all().delete()
    make_agreement(profile="repeatable")
    with clock.frozen(NOW):
        found = viewer.get("/memory").json
    assert found["epoch"] is None
    assert found["windows"][0]["earliest_accepted_first_sent"] == "2026-03-01T12:00:00Z"
