"""What holds for all answers: request ids, HEAD, estimated counts, what can be included, what is gone."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.api.catalogue import CODES
from messaging.bulk.services import jobs
from messaging.models import BulkJob
from partners.models import Party
from rmhub import clock
from tests.messaging.api.client import Api, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, submit
from tests.messaging.pollers import test_pollers_api as test_pollers
from tests.messaging.routing import test_routes_api as test_routes
from tests.partners.factories import make_agreement, make_party

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


@pytest.mark.parametrize("thing", ["pollers", "routes", "agreements", "parties"])
def test_what_is_so_already_says_that_the_opposite_is_possible(admin: Api, thing: str) -> None:
    """`allowed_actions` are the last parts of paths: the one that is named is taken."""
    agreement = make_agreement().agreement
    identifier, verb, opposite = {
        "pollers": lambda: (test_pollers.made(admin).json["id"], "enable", "disable"),
        "routes": lambda: (test_routes.create(admin).json["id"], "enable", "disable"),
        "agreements": lambda: (agreement.public_id, "enable", "disable"),
        "parties": lambda: (make_party().public_id, "restore", "archive"),
    }[thing]()
    path, reason = f"/{thing}/{identifier}", {"reason": "because the test says so"}
    for refused, possible in ((verb, opposite), (opposite, verb)):
        answer = admin.post(f"{path}/{refused}", reason, If_Match="*")
        assert (answer.status, answer.code) == (409, "wrong_state"), answer.json
        assert possible in answer.json["allowed_actions"], answer.json
        assert refused not in answer.json["allowed_actions"]
        assert admin.post(f"{path}/{possible}", reason, If_Match="*").status == 200


def test_a_poller_that_is_off_is_looked_into_after_it_is_enabled(admin: Api) -> None:
    made = test_pollers.made(admin, enabled=False).json
    path, reason = f"/pollers/{made['id']}", {"reason": "because the test says so"}
    refused = admin.post(f"{path}/look", reason, If_Match="*")
    assert (refused.status, refused.json["current_state"], refused.json["allowed_actions"]) == (409, "off", ["enable"])
    assert admin.post(f"{path}/enable", reason, If_Match="*").status == 200
    assert admin.post(f"{path}/look", reason, If_Match="*").status == 200


def test_a_frozen_version_and_a_draft_say_what_comes_next(admin: Api) -> None:
    version = make_agreement()
    path, reason = f"/agreements/{version.agreement.public_id}", {"reason": "because the test says so"}
    frozen = admin.patch(f"{path}/versions/1", {**reason, "note": "later"}, If_Match="*")
    assert (frozen.status, frozen.json["allowed_actions"]) == (409, ["versions", "disable"])
    assert admin.post(f"{path}/versions/1/activate", reason, If_Match="*").json["allowed_actions"] == [
        "versions",
        "disable",
    ]
    assert admin.post(f"{path}/versions", reason).status == 201
    second = admin.post(f"{path}/versions", reason)
    assert (second.status, second.json["allowed_actions"]) == (409, ["activate", "disable"])


def test_a_party_with_an_agreement_in_force_is_neither_archived_nor_restored(admin: Api) -> None:
    version = make_agreement()
    path, reason = f"/parties/{version.agreement.partner.public_id}", {"reason": "because the test says so"}
    for verb in ("archive", "restore"):
        refused = admin.post(f"{path}/{verb}", reason, If_Match="*")
        assert (refused.status, refused.json["allowed_actions"]) == (409, []), verb


def test_a_job_says_what_its_state_takes(admin: Api, partner: PartnerSide) -> None:
    reason = {"reason": "because the test says so"}
    planned = admin.post("/bulk-operations", {"action": "pairs_pause", "ids": [partner.outbound.public_id]})
    path = planned.headers["location"].removeprefix("/api/v1")
    execute = {**reason, "expect_count": 1}
    for call in (lambda: admin.post(f"{path}/retry", {}), lambda: admin.post(f"{path}/cancel", reason)):
        assert call().json["allowed_actions"] == ["execute", "discard"]
    BulkJob.objects.update(expires_at=clock.now())
    assert admin.post(f"{path}/execute", execute).json["allowed_actions"] == ["discard"]
    assert admin.get(path).json["allowed_actions"] == ["discard"]
    BulkJob.objects.update(expires_at=None)
    assert admin.post(f"{path}/execute", execute).status == 202
    for call in (
        lambda: admin.post(f"{path}/execute", execute),
        lambda: admin.post(f"{path}/retry", {}),
        lambda: admin.call("DELETE", path),
    ):
        refused = call()
        assert (refused.status, refused.json["allowed_actions"]) == (409, ["cancel"])
    jobs.run_due()
    for call in (lambda: admin.post(f"{path}/execute", execute), lambda: admin.post(f"{path}/cancel", reason)):
        assert call().json["allowed_actions"] == admin.get(path).json["allowed_actions"] == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/messages", "created"),
        ("/audit-log", "created"),
        ("/rejections", "created"),
        ("/traffic", "hour"),
        ("/transactions", "begun"),
        ("/archive/messages", "created"),
    ],
)
def test_a_range_of_times_that_runs_backwards_is_refused(admin: Api, path: str, name: str) -> None:
    for end in ("2026-01-31T00:00:00Z", "2026-01-30T23:00:00Z"):
        answer = admin.get(path, {f"{name}_gte": "2026-01-31T00:00:00Z", f"{name}_lt": end})
        assert (answer.status, answer.code) == (400, "invalid_parameter"), path
        assert answer.json["errors"] == [
            {
                "parameter": f"{name}_lt",
                "code": "invalid",
                "detail": f"It must be later than {name}_gte: the range runs backwards.",
            }
        ]


def test_a_party_is_named_by_id_name_or_identifier(admin: Api, partner: PartnerSide) -> None:
    submit(partner)
    other = make_party(name="Zeta & Sons", identifiers=(("DUNS", "999999991"),))
    party = Party.objects.get(pk=partner.terms.partner_id)
    kind, value = partner.terms.partner_identifiers[0]
    for text in (party.public_id, party.name, party.name.upper(), value, f"{kind}:{value}", f"{kind.lower()}: {value}"):
        assert len(admin.get("/messages", {"partner": text}).json["data"]) == 1, text
        assert len(admin.get("/pairs", {"partner": text}).json["data"]) == 1, text
    assert admin.get("/messages", {"partner": other.name}).json["data"] == []
    assert admin.get("/messages", {"partner": "par_" + "0" * 32}).json["data"] == []
    for text in ("Nobody", f"GLN:{value}" if kind != "GLN" else f"DUNS:{value}"):
        answer = admin.get("/messages", {"partner": text})
        assert (answer.status, answer.code) == (400, "invalid_parameter"), text
        assert "There is no such party" in answer.json["errors"][0]["detail"]
