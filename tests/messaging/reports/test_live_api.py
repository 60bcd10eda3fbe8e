"""GET /live: the same as the console's page, for scripts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging import anomalies
from messaging.models import LiveMinute, LiveState
from messaging.reports.services import live_watch
from messaging.reports.services.live_watch import Memory
from rmhub import clock
from rmhub.ids import public_id, uuid7
from tests.messaging.api.client import Api
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def test_off(viewer: Api) -> None:
    with clock.frozen(NOON):
        found = viewer.get("/live").json
    assert found["state"] == "off" and found["data_as_of"] is None and found["data"] == []


def test_the_last_hour(viewer: Api) -> None:
    at = NOON + anomalies.WINDOW
    LiveState.objects.create(query="live 1/1", epoch=uuid7(), batch=3, through=100, applied_at=at)
    pair = partner_side().inbound
    for number in range(24):
        LiveMinute.objects.create(pair=pair, minute=NOON - anomalies.WINDOW * (number + 1), received=10)
    LiveMinute.objects.create(pair=pair, minute=NOON, received=10, rejected=10)
    (incident,) = live_watch.judge(at, Memory())
    with clock.frozen(at + timedelta(seconds=20)):
        found = viewer.get("/live").json
        empty = viewer.get(f"/live?cursor={found['next_cursor']}").json if found["next_cursor"] else None
    assert (found["state"], found["begin"], found["end"]) == ("live", "2026-11-20T11:06:00Z", "2026-11-20T12:06:00Z")
    (row,) = found["data"]
    minutes = {minute["at"]: minute for minute in row.pop("minutes")}
    assert len(minutes) == 60
    assert minutes["2026-11-20T12:00:00Z"]["volume"] == minutes["2026-11-20T12:00:00Z"]["failures"] == 10
    assert row == {
        "pair": public_id("pair", pair.pk),
        "code": pair.code,
        "direction": "in",
        "partner": pair.partner.name,
        "accepted": 0,
        "volume": 110,
        "failures": 10,
        "failure_rate": pytest.approx(10 / 120),
        "seconds_to_acknowledge": None,
        "longest_to_acknowledge": None,
        "usual_seconds_to_acknowledge": None,
        "usual_failure_rate": {"usual": 0.0, "limit": 0.1},
        "silent_after_seconds": 1200.0,
        "anomalies": [
            {
                "id": public_id("inc", incident.pk),
                "number": incident.number,
                "cause": "live_failure_rate",
                "detail": incident.detail,
                "opened_at": "2026-11-20T12:05:00Z",
            }
        ],
    }
    assert empty is None or empty["data"] == []
