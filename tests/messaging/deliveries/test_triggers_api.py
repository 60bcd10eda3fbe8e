"""Triggers: made, changed, held and let go by those who operate the hub."""

from __future__ import annotations

from typing import Any

import pytest

from messaging import applications
from messaging.deliveries.services import triggering
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Trigger
from rmhub import clock
from rmhub.ids import public_id
from tests.messaging.api.client import REASON, Api
from tests.messaging.profiles.wsat.kit import peer
from tests.partners.factories import make_agreement, make_party

pytestmark = pytest.mark.django_db

URL = "http://erp.internal:8080/documents"
VERBS = ("suspend", "resume", "disable", "enable", "leave")
SETTINGS: dict[str, Any] = {
    "documents": [{"service": "urn:orders", "action": "*"}, {"service": "urn:invoices", "action": "Invoice"}],
    "kind": "http",
    "url": URL,
    "timeout": 7,
    "answers": False,
    "retry_statuses": [423, 429, 503],
    "detect_duplicates": True,
    "use_history": True,
    "history_ttl": 86_400,
    "document_id_path": "$.order.number",
    "resolver": "http",
    "resolver_url": "http://erp.internal:8080/resolve",
    "resolver_callable": "",
    "resolver_failure": "in_doubt",
    "retry_until": "success",
    "max_retries": 0,
    "retry_interval": 3,
    "when_exhausted": "fail",
    "suspend_on_error": True,
    "concurrency": 9,
    "ordered": True,
    "lease_seconds": 77,
    "monitor": "http",
    "monitor_url": "http://erp.internal:8080/up",
    "monitor_callable": "",
    "monitor_interval": 11,
    "join_type": "all",
    "join_timeout": 3600,
    "silent_after": 7200,
}


def create(api: Api, **changes: Any) -> Any:
    answer = api.post("/triggers", {"name": "ERP orders", "url": URL, "reason": "go-live", **changes})
    assert answer.status == 201, answer.json
    return answer


def test_a_trigger_is_made_with_every_setting_and_shows_its_secret_once(admin: Api) -> None:
    agreement = make_agreement().agreement
    party = f"par_{agreement.partner_id.hex}"
    made = create(admin, name="All of it", party=party, agreement=agreement.public_id, **SETTINGS)
    assert made.headers["cache-control"] == "no-store"
    found = made.json
    assert {name: found[name] for name in SETTINGS} == SETTINGS
    assert (found["party"]["id"], found["agreement"]["tpa_id"]) == (party, agreement.tpa_id)
    assert (found["state"], found["version"]) == ("active", 1)
    assert found["allowed_actions"] == ["suspend", "disable"]
    secret = found.pop("secret")
    assert secret.startswith("whsec_")
    path = made.headers["location"].removeprefix("/api/v1")
    read = admin.get(path)
    assert read.json == found and read.etag == made.etag
    assert admin.get("/triggers/All of it").json["id"] == found["id"]
    for answer in (read, admin.get("/triggers"), admin.get("/audit-log")):
        assert secret.encode() not in answer.content and b'"secret"' not in answer.content
    entry = AuditEntry.objects.get(verb="trigger.create")
    assert (entry.object_id, entry.reason, entry.interface) == (found["id"], "go-live", "api")


def test_every_setting_of_the_service_is_a_member_here(admin: Api) -> None:
    """Whatever the console's form has, a script can set."""
    from messaging.deliveries.services.trigger_rules import SETTINGS as of_service

    members = {*SETTINGS, "name", "callable_name", "party", "agreement", "member_of", "atomic_agreement"}
    assert members == {name.removesuffix("_id") for name in of_service}


def test_callables_and_pull_queues(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(applications.SERVICES, "orders.import", lambda document: None)
    called = create(admin, kind="callable", url="", callable_name="orders.import").json
    assert (called["kind"], called["callable_name"], called["url"]) == ("callable", "orders.import", "")
    assert create(admin, name="Queue", kind="pull", url="").json["lease_seconds"] == 300
    assert [row["name"] for row in admin.get("/triggers", {"kind": "pull"}).json["data"]] == ["Queue"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": ""}, "#/name"),
        ({"name": "x" * 81}, "#/name"),
        ({"name": "a\u0000b"}, "#/name"),
        ({"name": "Taken"}, "#/name"),
        ({"url": ""}, "#/url"),
        ({"url": "ftp://x.example/"}, "#/url"),
        ({"url": "http://user:pw@x.example/"}, "#/url"),
        ({"kind": "mail"}, "#/kind"),
        ({"kind": ["http"]}, "#/kind"),
        ({"kind": "callable"}, "#/url"),
        ({"kind": "callable", "url": "", "callable_name": "nobody"}, "#/callable_name"),
        ({"kind": "pull", "url": "", "answers": True}, "#/answers"),
        ({"answers": "yes"}, "#/answers"),
        ({"party": "par_1"}, "#/party"),
        ({"party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "#/party"),
        ({"agreement": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "#/agreement"),
        ({"documents": "urn:orders"}, "#/documents"),
        ({"documents": [{"service": "x"}]}, "#/documents/0/action"),
        ({"documents": [{"service": "x", "action": "*", "state": "x"}]}, "#/documents/0/state"),
        ({"documents": [{"service": "x", "action": "y"}] * 2}, "#/documents"),
        ({"documents": [{"service": "x", "action": "y"}] * 101}, "#/documents"),
        ({"join_type": "all"}, "#/documents"),
        ({"retry_statuses": [200]}, "#/retry_statuses/0"),
        ({"retry_statuses": [503] * 51}, "#/retry_statuses"),
        ({"timeout": 0}, "#/timeout"),
        ({"timeout": 10**400}, "#/timeout"),
        ({"timeout": "5"}, "#/timeout"),
        ({"history_ttl": 59}, "#/history_ttl"),
        ({"document_id_path": "//Order["}, "#/document_id_path"),
        ({"document_id_path": "count(//Order)"}, "#/document_id_path"),
        ({"document_id_path": "$"}, "#/document_id_path"),
        ({"history_ttl": 2_000_000_000}, "#/history_ttl"),
        ({"concurrency": 65}, "#/concurrency"),
        ({"max_retries": 1001}, "#/max_retries"),
        ({"resolver": "http"}, "#/resolver_url"),
        ({"resolver": "callable", "resolver_callable": "x"}, "#/resolver_callable"),
        ({"monitor": "http", "monitor_url": "x"}, "#/monitor_url"),
        ({"suspend_on_error": True, "ordered": False}, "#/suspend_on_error"),
        ({"silent_after": -1}, "#/silent_after"),
        ({"secret": "whsec_mine"}, "#/secret"),
        ({"state": "disabled"}, "#/state"),
        ({"reason": ""}, "#/reason"),
    ],
)
def test_triggers_that_cannot_be(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    create(admin, name="Taken")
    body = {"name": "ERP orders", "url": URL, "reason": "go-live", **changes}
    answer = admin.post("/triggers", body)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert pointer in {error["pointer"] for error in answer.json["errors"]}, answer.json["errors"]
    assert Trigger.objects.count() == 1
    path = f"/triggers/{Trigger.objects.get().public_id}"
    if changes != {"name": "Taken"}:
        assert admin.patch(path, {**REASON, **changes}, If_Match="*").status == 422


def test_a_party_of_ours_sends_no_documents(admin: Api) -> None:
    answer = admin.post(
        "/triggers", {"name": "x", "url": URL, "party": make_party(own=True).public_id, "reason": "go-live"}
    )
    assert answer.json["errors"][0]["pointer"] == "#/party"


def test_changes_need_what_was_decided_upon(admin: Api) -> None:
    made = create(admin)
    path = made.headers["location"].removeprefix("/api/v1")
    assert admin.patch(path, {**REASON, "timeout": 5}).code == "precondition_required"
    assert admin.patch(path, {"timeout": 5}, If_Match="*").json["errors"][0]["pointer"] == "#/reason"
    changed = admin.patch(path, {**REASON, "timeout": 5, "documents": []}, If_Match=made.etag)
    assert (changed.status, changed.json["timeout"], changed.json["version"]) == (200, 5, 2)
    assert changed.json["url"] == URL
    assert admin.patch(path, {**REASON, "timeout": 6}, If_Match=made.etag).code == "stale"
    same = admin.patch(path, {**REASON, "timeout": 5}, If_Match=changed.etag)
    assert (same.status, same.etag) == (200, changed.etag)
    entry = AuditEntry.objects.get(verb="trigger.update")
    assert (entry.before, entry.after) == ({"timeout": 30}, {"timeout": 5})


def test_a_new_secret(admin: Api) -> None:
    made = create(admin)
    path = made.headers["location"].removeprefix("/api/v1")
    before = bytes(Trigger.objects.get().secret_encrypted)
    assert admin.post(f"{path}/rotate-secret", REASON).code == "precondition_required"
    rotated = admin.post(f"{path}/rotate-secret", REASON, If_Match=made.etag)
    assert rotated.status == 200 and rotated.headers["cache-control"] == "no-store"
    assert rotated.json["secret"] != made.json["secret"] and rotated.json["secret"].startswith("whsec_")
    assert bytes(Trigger.objects.get().secret_encrypted) != before
    assert rotated.etag == admin.get(path).etag
    assert admin.post(f"{path}/rotate-secret", REASON, If_Match=made.etag).code == "stale"


def test_held_let_go_switched_off_and_on(admin: Api) -> None:
    made = create(admin)
    path = made.headers["location"].removeprefix("/api/v1")
    etag = made.etag
    for verb, state in (
        ("suspend", "suspended"),
        ("resume", "active"),
        ("disable", "disabled"),
        ("enable", "active"),
    ):
        answer = admin.post(f"{path}/{verb}", REASON, If_Match=etag)
        assert (answer.status, answer.json["state"]) == (200, state), verb
        assert admin.post(f"{path}/{verb}", REASON, If_Match=etag).code == "stale"
        etag = answer.etag
        assert etag == admin.get(path).etag
        again = admin.post(f"{path}/{verb}", REASON, If_Match="*")
        assert (again.status, again.code, again.json["current_state"]) == (409, "wrong_state", state)
        assert verb not in again.json["allowed_actions"] == answer.json["allowed_actions"]
    entries = AuditEntry.objects.filter(object_id=made.json["id"]).order_by("id")
    assert [entry.verb for entry in entries] == [
        "trigger.create",
        "trigger.suspend",
        "trigger.resume",
        "trigger.disable",
        "trigger.enable",
    ]


@pytest.mark.parametrize("verb", [*VERBS, "rotate-secret"])
def test_verbs_need_a_reason_and_take_nothing_else(admin: Api, verb: str) -> None:
    path = create(admin).headers["location"].removeprefix("/api/v1")
    for body in ({}, {"reason": ""}, {"reason": " x "}, {"reason": 7}, {"reason": None}, [], "x", None):
        answer = admin.post(f"{path}/{verb}", body, If_Match="*")
        assert (answer.status, answer.code) == (422, "invalid_submission"), body
    answer = admin.post(f"{path}/{verb}", {**REASON, "mode": "now"}, If_Match="*")
    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "#/mode")
    assert Trigger.objects.get().version == 1


def test_a_suspended_trigger_says_what_is_the_matter(viewer: Api, admin: Api) -> None:
    made = create(admin)
    create(admin, name="Another")
    trigger = Trigger.objects.get(name="ERP orders")
    triggering.suspend_now(trigger, "service_unreachable", "Connection refused.", clock.now())
    found = viewer.get(f"/triggers/{made.json['id']}").json
    assert (found["state"], found["cause"]) == ("suspended", "service_unreachable")
    assert found["diagnosis"]["cause"]["code"] == "service_unreachable" and found["diagnosis"]["advice"]
    assert found["allowed_actions"] == ["resume", "suspend", "disable"]
    names = lambda **query: [row["name"] for row in viewer.get("/triggers", query).json["data"]]  # noqa: E731
    assert names() == ["Another", "ERP orders"]
    assert names(sort="severity") == ["ERP orders", "Another"]
    assert names(sort="-name") == ["ERP orders", "Another"]
    assert names(state="suspended") == ["ERP orders"]
    assert names(q="ANOTHER") == ["Another"]
    assert names(party="par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7") == []
    (incident,) = viewer.get("/incidents", {"trigger": "ERP orders"}).json["data"]
    assert incident["trigger"] == {"id": made.json["id"], "name": "ERP orders"}
    assert viewer.get("/incidents", {"trigger": "Another"}).json["data"] == []
    assert viewer.get("/incidents", {"trigger": "Nobody"}).code == "invalid_parameter"


def test_traffic_does_not_refuse_an_operator(operator: Api, admin: Api) -> None:
    made = create(admin)
    path = f"/triggers/{made.json['id']}"
    Trigger.objects.update(last_arrival_at=clock.now(), last_success_at=clock.now())
    read = operator.get(path, If_None_Match=made.etag)
    assert read.status == 200 and read.etag != made.etag
    assert operator.get(path, If_None_Match=read.etag).status == 304
    assert operator.post(f"{path}/suspend", REASON, If_Match=made.etag).status == 200


def test_the_list_costs_the_same_for_any_number(admin: Api, django_assert_num_queries: Any) -> None:
    for number in range(5):
        create(admin, name=f"Trigger {number}")
    admin.get("/triggers")
    with django_assert_num_queries(3):  # with their members and backlogs
        page = admin.get("/triggers", {"limit": "3"}).json
    assert [row["name"] for row in page["data"]] == ["Trigger 0", "Trigger 1", "Trigger 2"]
    following = admin.get("/triggers", {"limit": "3", "cursor": page["next_cursor"]}).json
    assert [row["name"] for row in following["data"]] == ["Trigger 3", "Trigger 4"]


def test_an_operator_suspends_and_resumes_and_no_more(operator: Api, viewer: Api, admin: Api) -> None:
    made = create(admin)
    path = f"/triggers/{made.json['id']}"
    for verb in ("disable", "enable", "rotate-secret"):
        answer = operator.post(f"{path}/{verb}", REASON, If_Match="*")
        assert (answer.status, answer.json["required_scope"]) == (403, "triggers:write")
    for answer in (operator.post("/triggers", {}), operator.patch(path, {}, If_Match="*")):
        assert answer.json["required_scope"] == "triggers:write"
    assert viewer.post(f"{path}/suspend", REASON, If_Match="*").json["required_scope"] == "triggers:operate"
    assert operator.post(f"{path}/suspend", REASON, If_Match="*").status == 200


@pytest.mark.parametrize("reference", [f"trg_{'0' * 32}", "Nobody", "%00", "trg_", "a\u0301"])
def test_triggers_that_are_not_there(admin: Api, reference: str) -> None:
    assert admin.get(f"/triggers/{reference}").code == "not_found"
    assert admin.patch(f"/triggers/{reference}", REASON, If_Match="*").code == "not_found"
    for verb in (*VERBS, "rotate-secret"):
        assert admin.post(f"/triggers/{reference}/{verb}", REASON, If_Match="*").code == "not_found"


def test_the_console_and_the_api_do_the_same(admin: Api) -> None:
    """Whatever the services can do to a trigger has a path here."""
    assert set(triggering.VERBS) == set(VERBS)
    made = create(admin)
    trigger = Trigger.objects.get()
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=Actor("olga"), reason="by hand")
    assert admin.post(f"/triggers/{made.json['id']}/resume", REASON, If_Match=made.etag).code == "stale"


def test_an_atomic_trigger_and_its_member(admin: Api) -> None:
    whole = create(admin, name="books and stock", kind="atomic", url="").json
    agreement = peer().terms.agreement_id
    body = {"member_of": whole["id"], "atomic_agreement": public_id("agr", agreement)}
    made = create(admin, name="stock", **body)
    assert made.json["member_of"] == {"id": whole["id"], "name": "books and stock"}
    assert made.json["atomic_agreement"]["id"] == public_id("agr", agreement)
    assert made.json["allowed_actions"] == ["leave"]
    found = admin.get(f"/triggers/{whole['id']}").json
    assert (found["kind"], [one["name"] for one in found["members"]]) == ("atomic", ["stock"])
    left = admin.post(f"/triggers/{made.json['id']}/leave", REASON, If_Match=made.etag)
    assert (left.status, left.json["state"], left.json["member_of"]) == (200, "disabled", None)
    refused = create_refused(admin, name="other", member_of=left.json["id"])
    assert {one["pointer"] for one in refused.json["errors"]} == {"#/member_of", "#/atomic_agreement"}


def create_refused(api: Api, **changes: Any) -> Any:
    answer = api.post("/triggers", {"name": "ERP orders", "url": URL, "reason": "go-live", **changes})
    assert answer.status == 422
    return answer
