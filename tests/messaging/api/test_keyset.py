"""Pages by key: every row once, in both directions, whatever comes in meanwhile."""

from __future__ import annotations

from itertools import chain

import pytest

from messaging import keyset
from messaging.keyset import BadCursor, CursorMismatch, Place
from messaging.models import Pair
from messaging.pairs.selectors.pairs import pairs
from tests.messaging.api.client import Api, make_incident
from tests.messaging.factories import PartnerSide, submit
from tests.partners.factories import make_party

pytestmark = pytest.mark.django_db


def walk(api: Api, path: str, query: dict[str, str], relation: str = "next_cursor") -> list[list[str]]:
    """The ids of all pages from the first on."""
    found, cursor = [], None
    while True:
        answer = api.get(path, {**query, **({"cursor": cursor} if cursor else {})})
        assert answer.status == 200, answer.json
        found.append([row["id"] for row in answer.json["data"]])
        cursor = answer.json[relation]
        if relation == "next_cursor":
            assert answer.json["has_more"] == (cursor is not None)
        if cursor is None:
            return found


def test_forwards_and_backwards(admin: Api) -> None:
    incidents = [make_incident(cause=f"cause_{number}") for number in range(7)]
    newest_first = [incident.public_id for incident in reversed(incidents)]
    forwards = walk(admin, "/incidents", {"limit": "3"})
    assert [len(page) for page in forwards] == [3, 3, 1]
    assert list(chain(*forwards)) == newest_first

    first = admin.get("/incidents", {"limit": "3"})
    assert first.json["prev_cursor"] is None
    second = admin.get("/incidents", {"limit": "3", "cursor": first.json["next_cursor"]})
    back = admin.get("/incidents", {"limit": "3", "cursor": second.json["prev_cursor"]})
    assert back.json["data"] == first.json["data"]
    assert back.json["prev_cursor"] is None and back.json["has_more"] is True
    # Forwards again from the page that was reached backwards.
    again = admin.get("/incidents", {"limit": "3", "cursor": back.json["next_cursor"]})
    assert again.json["data"] == second.json["data"]


def test_what_comes_in_meanwhile_moves_nothing(admin: Api, partner: PartnerSide) -> None:
    before = [submit(partner).public_id for _ in range(4)]
    first = admin.get("/messages", {"limit": "2"})
    submit(partner)
    second = admin.get("/messages", {"limit": "2", "cursor": first.json["next_cursor"]})
    seen = [row["id"] for row in first.json["data"] + second.json["data"]]
    assert seen == before[::-1]


def test_links_name_the_neighbours_with_all_parameters(admin: Api) -> None:
    for number in range(3):
        make_incident(cause=f"cause_{number}")
    first = admin.get("/incidents", {"limit": "1", "state": "open"})
    (link,) = first.headers["link"].split(", ")
    assert link.endswith('>; rel="next"')
    path = link[1 : link.index(">")].removeprefix("/api/v1")
    second = admin.get(path)
    assert second.json["data"][0]["number"] == 2
    assert [part.rpartition("=")[2] for part in second.headers["link"].split(", ")] == ['"next"', '"prev"']


def test_several_columns_are_compared_as_a_row(admin: Api) -> None:
    parties = [make_party(own=True), make_party()]
    for number, flow in enumerate(["idle", "suspended", "idle", "suspended", "idle"]):
        Pair.objects.create(
            direction="out",
            sender_uri=f"http://a/{number}",
            receiver_uri=f"http://b/{number}",
            own_party=parties[0],
            partner=parties[1],
            code=f"P{number}",
            flow=flow,
        )
    codes = [Pair.objects.get(pk=pair.pk).code for pair in pairs().order_by("severity", "code")]
    assert codes == ["P1", "P3", "P0", "P2", "P4"]
    assert list(chain(*walk(admin, "/pairs", {"sort": "severity", "limit": "2"}))) == [
        pair.public_id for pair in pairs().order_by("severity", "code")
    ]
    assert [row["code"] for row in admin.get("/pairs", {"sort": "-code"}).json["data"]] == [
        "P4",
        "P3",
        "P2",
        "P1",
        "P0",
    ]


def test_a_cursor_belongs_to_its_list(admin: Api) -> None:
    for number in range(3):
        make_incident(cause=f"cause_{number}")
    cursor = admin.get("/incidents", {"limit": "1"}).json["next_cursor"]
    assert admin.get("/incidents", {"limit": "2", "cursor": cursor}).status == 200
    for path, query in (("/incidents", {"state": "open"}), ("/rejections", {}), ("/incidents", {"cause": "x"})):
        answer = admin.get(path, {**query, "cursor": cursor})
        assert (answer.status, answer.code) == (422, "cursor_mismatch")


def test_made_up_cursors_are_refused(admin: Api) -> None:
    make_incident(cause="a")
    make_incident(cause="b")
    cursor = admin.get("/incidents", {"limit": "1"}).json["next_cursor"]
    for text in ("x", cursor[:-1], cursor + "x", "a:b", "." * 3000, "é", cursor.partition(":")[0]):
        for path in ("/incidents", "/events"):
            answer = admin.get(path, {"cursor": text})
            assert (answer.status, answer.code) == (400, "invalid_cursor"), (path, text)


def test_a_cursor_survives_the_way_through_a_url() -> None:
    import uuid
    from datetime import UTC, datetime

    place = Place((uuid.uuid4(), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "ä>b", 7), backwards=True)
    assert keyset.read_cursor(keyset.write_cursor(place, "f"), "f") == place
    with pytest.raises(CursorMismatch):
        keyset.read_cursor(keyset.write_cursor(place, "f"), "g")
    with pytest.raises(BadCursor):
        keyset.read_cursor("", "f")


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "", "1e2", "9" * 30])
def test_limits_are_checked(admin: Api, limit: str) -> None:
    answer = admin.get("/incidents", {"limit": limit})
    assert (answer.status, answer.code) == (400, "invalid_parameter")
    assert answer.json["errors"][0]["parameter"] == "limit"
