"""The hub at a glance, traffic by hour, badges, preferences and saved views by the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.core.cache import cache

from messaging.models import AuditEntry, SavedView, TrafficHour
from messaging.overview.selectors import health
from tests.messaging.api.client import Api, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db
HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The broker answers, whatever runs beside the test, and nothing is kept from another one."""
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    cache.clear()
    yield
    cache.clear()


def test_how_many_pairs_are_broken_and_how_many_documents_blocked(viewer: Api, partner: PartnerSide) -> None:
    assert viewer.get("/status").json["level"] == "good"
    suspended(partner)
    submit(partner)
    found = viewer.get("/status").json
    assert (found["level"], found["broken_pairs"], found["blocked_documents"]) == ("bad", 1, 2)
    assert found["sentence"].startswith("1 pair suspended, the longest for ")
    assert found["oldest_suspended_at"] is not None
    assert found["pairs"]["suspended"] == 1
    assert found["recent"]["success_percent"] is None
    assert viewer.get("/status?x=1").code == "unknown_parameter"


def test_traffic_by_pair_and_hour(viewer: Api, partner: PartnerSide) -> None:
    other = partner_side()
    for number, pair in enumerate((partner.outbound, other.outbound)):
        for hour in (HOUR, HOUR.replace(hour=13)):
            TrafficHour.objects.create(pair=pair, hour=hour, delivered=number + 1, latencies=[1, *[0] * 12])
    rows = viewer.get("/traffic").json["data"]
    assert [row["hour"] for row in rows] == ["2026-03-01T13:00:00Z"] * 2 + ["2026-03-01T12:00:00Z"] * 2
    assert rows[0]["ack_p95_seconds"] == pytest.approx(0.095)
    (row,) = viewer.get(f"/traffic?pair={partner.outbound.public_id}&hour_lt=2026-03-01T13:00:00Z").json["data"]
    assert (row["pair_code"], row["delivered"]) == (partner.outbound.code, 1)
    party = other.outbound.partner.public_id
    assert {row["partner"] for row in viewer.get(f"/traffic?partner={party}").json["data"]} == {party}
    page = viewer.get("/traffic?limit=3").json
    assert len(viewer.get(f"/traffic?limit=3&cursor={page['next_cursor']}").json["data"]) == 1
    assert viewer.get("/traffic?hour_gte=noon").code == "invalid_parameter"
    assert viewer.get("/traffic?pair=NOPE").code in ("not_found", "invalid_parameter")


def test_a_badge_for_other_peoples_pages(viewer: Api, stranger: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    badge = viewer.get(f"/pairs/{pair.public_id}/badge").json
    assert (badge["pair"], badge["state"], badge["blocked"]) == (pair.code, "suspended", 1)
    image = viewer.get(f"/pairs/{pair.public_id}/badge.svg")
    assert image.headers["content-type"].startswith("image/svg+xml")
    assert "sandbox" in image.headers["content-security-policy"]
    assert b"Suspended, 1 wait" in image.content
    assert b">" + pair.code.encode() not in image.content, "the code is escaped"
    assert stranger.get(f"/pairs/{pair.public_id}/badge.svg").status == 401
    assert viewer.get("/pairs/NOPE/badge").code == "not_found"


def test_preferences_are_ones_own(viewer: Api, operator: Api) -> None:
    assert viewer.get("/preferences").json == {"zone": "UTC", "language": "", "shortcuts": True, "columns": {}}
    changed = viewer.patch("/preferences", {"zone": "Europe/Berlin", "columns": {"pairs": ["queue"]}})
    assert changed.json == {"zone": "Europe/Berlin", "language": "", "shortcuts": True, "columns": {"pairs": ["queue"]}}
    assert viewer.patch("/preferences", {"columns": {"pairs": None}}).json["columns"] == {}
    assert viewer.patch("/preferences", {"language": "de"}).json["language"] == "de"
    assert viewer.patch("/preferences", {"language": ""}).json["language"] == ""
    assert operator.get("/preferences").json["zone"] == "UTC"
    for body in (
        {"zone": "Mars/Olympus"},
        {"zone": 1},
        {"columns": []},
        {"columns": {"Pairs!": []}},
        {"theme": "dark"},
        {"language": "tlh"},
    ):
        assert viewer.patch("/preferences", body).code == "invalid_submission", body


def test_a_saved_view_from_the_first_to_the_last(operator: Api, viewer: Api) -> None:
    body = {"page": "messages", "name": "Failures", "query": "?state=failed&cursor=x", "shared": True}
    made = operator.post("/saved-views", body)
    assert (made.status, made.json["query"], made.json["shared"]) == (201, "state=failed", True)
    path = made.headers["location"].removeprefix("/api/v1")
    assert [one["name"] for one in viewer.get("/saved-views?page=messages").json["data"]] == ["Failures"]
    assert viewer.get("/saved-views?page=pairs").json["data"] == []
    assert operator.patch(path, {"name": "x"}).code == "precondition_required"
    changed = operator.patch(path, {"name": "All failures", "is_default": True}, If_Match=made.etag)
    assert (changed.json["name"], changed.json["is_default"]) == ("All failures", True)
    assert operator.patch(path, {"name": "again"}, If_Match=made.etag).code == "stale"
    assert viewer.patch(path, {"name": "mine"}, If_Match="*").code == "invalid_submission"
    assert viewer.delete(path, If_Match="*").code == "invalid_submission"
    assert operator.delete(path, If_Match=changed.etag).status == 204
    assert not SavedView.objects.exists()
    verbs = AuditEntry.objects.filter(object_type="savedview").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["view.share", "view.update", "view.delete"]


def test_private_views_are_nobody_elses_and_sharing_needs_its_scope(viewer: Api, operator: Api) -> None:
    private = operator.post("/saved-views", {"page": "pairs", "name": "Mine"}).headers["location"]
    assert viewer.get(private.removeprefix("/api/v1")).code == "not_found"
    assert viewer.post("/saved-views", {"page": "pairs", "name": "T", "shared": True}).code == "invalid_submission"
    cut = Api(make_token(make_user(), scopes=["views:write"]))
    assert cut.post("/saved-views", {"page": "pairs", "name": "T", "shared": True}).code == "invalid_submission"
    assert cut.post("/saved-views", {"page": "Pairs!", "name": ""}).code == "invalid_submission"
