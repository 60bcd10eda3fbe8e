"""What holds for all answers: request ids, HEAD, estimated counts, what can be included, what is gone."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.api.catalogue import CODES
from tests.messaging.api.client import Api, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, submit

pytestmark = pytest.mark.django_db


def test_a_request_id_of_the_caller_comes_back_with_success_and_with_problems(admin: Api) -> None:
    for path, status in (("/pairs", 200), ("/pairs/none", 404)):
        answer = admin.get(path, X_Request_Id="erp-4711")
        assert (answer.status, answer.headers["x-request-id"]) == (status, "erp-4711")


@pytest.mark.parametrize("path", ["/messages", "/pairs", "/pairs/{pair}", "/problems", "/health"])
def test_head_answers_as_get_without_a_body(admin: Api, partner: PartnerSide, path: str) -> None:
    path = path.format(pair=partner.outbound.public_id)
    got, head = admin.get(path), admin.call("HEAD", path)
    assert (head.status, head.content) == (got.status, b"")
    assert head.headers.get("etag") == got.headers.get("etag")


def test_a_count_is_estimated_when_asked_for_and_exact_on_a_list_of_one_page(admin: Api, partner: PartnerSide) -> None:
    for _ in range(3):
        submit(partner)
    assert "estimated_count" not in admin.get("/messages").json
    assert admin.get("/pairs", {"count": "estimate"}).json["estimated_count"] == 1
    page = admin.get("/events", {"limit": "1"})
    assert page.status == 200
    first = admin.get("/messages", {"count": "estimate", "limit": "1"})
    assert isinstance(first.json["estimated_count"], int)
    behind = admin.get("/messages", {"count": "estimate", "limit": "1", "cursor": first.json["next_cursor"]})
    assert behind.status == 200, "the cursor does not depend on it"
    assert "count=estimate" in behind.headers["link"]
    assert admin.get("/messages", {"count": "exact"}).code == "invalid_parameter"


def test_an_estimate_costs_one_plan_and_counts_nothing(admin: Api, partner: PartnerSide) -> None:
    def queries(**query: str) -> list[str]:
        with CaptureQueriesContext(connection) as asked:
            assert admin.get("/audit-log", {"limit": "1", **query}).status == 200
        return [one["sql"] for one in asked.captured_queries]

    make_token(make_user())  # a second entry
    queries()  # looks up who asks
    plain, estimated = queries(), queries(count="estimate")
    assert len(estimated) == len(plain) + 1
    assert estimated[-1].startswith("EXPLAIN")
    assert not any("COUNT(" in sql for sql in estimated)


def test_what_belongs_to_a_message_comes_along_when_asked_for(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    reference = f"/messages/msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    plain = admin.get(reference)
    full = admin.get(reference, {"include": "transmissions,signals,events"})
    assert {"transmissions", "signals", "events"} & set(plain.json) == set()
    for name in ("transmissions", "signals", "events"):
        listed = admin.get(f"{reference}/{name}").json["data"]
        assert full.json[name] == listed and listed, name
    assert full.etag != plain.etag
    assert admin.get(reference, {"include": "everything"}).code == "invalid_parameter"


def test_every_problem_says_whether_to_try_again_and_what_to_do() -> None:
    for row in CODES.values():
        assert 400 <= row.status < 600 and row.meaning.endswith("."), row.code


def test_a_state_that_forbids_it_says_what_it_allows(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    head = f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    reason = {"reason": "because the test says so"}
    for path, body, owner in (
        (f"/pairs/{pair.public_id}/release", reason, f"/pairs/{pair.public_id}"),
        (f"/pairs/{pair.public_id}/expect-sequence", {**reason, "expected": 7}, f"/pairs/{pair.public_id}"),
        (f"/messages/{head}/settle", {**reason, "decision": "delivered"}, f"/messages/{head}"),
    ):
        answer = admin.post(path, body, If_Match="*")
        assert answer.status == 409, (path, answer.json)
        assert answer.json["current_state"]
        assert answer.json["allowed_actions"] == admin.get(owner).json["allowed_actions"] != [], path
