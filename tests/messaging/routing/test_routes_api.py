"""Routes: made, changed, switched off and on, and deleted by those who run the hub as a router."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.models import AuditEntry, Route
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Answer, Api, make_token, make_user
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


def body(**changes: Any) -> dict[str, Any]:
    return {
        "name": "Brick Lane, by the harbour",
        "party_context": "DUNS",
        "party_value": "987654321",
        "onward": make_agreement().agreement.public_id,
        "reason": "go-live",
        **changes,
    }


def create(api: Api, **changes: Any) -> Answer:
    answer = api.post("/routes", body(**changes))
    assert answer.status == 201, answer.json
    return answer


def test_a_route_is_made_with_every_setting_and_read_again(admin: Api) -> None:
    settings = {"service": "urn:orders", "mode": "confirm_through", "max_hops": 4, "min_retry_secs": 90}
    made = create(admin, enabled=False, **settings)
    found = made.json
    assert {name: found[name] for name in settings} == settings
    assert (found["party_context"], found["party_value"]) == ("DUNS", "987654321")
    assert (found["enabled"], found["version"], found["waiting"]) == (False, 1, 0)
    agreement = Route.objects.get().onward
    assert found["onward"]["tpa_id"] == agreement.tpa_id
    assert found["onward"]["partner"]["name"] == agreement.partner.name
    read = admin.get(made.headers["location"].removeprefix("/api/v1"))
    assert read.json == found and read.etag == made.etag
    assert admin.get(f"/routes/{found['id']}", If_None_Match=read.etag).status == 304
    entry = AuditEntry.objects.get(verb="route.create")
    assert (entry.object_id, entry.reason, entry.interface) == (found["id"], "go-live", "api")


def test_what_keeps_it_from_working_comes_with_it(admin: Api) -> None:
    draft = make_agreement(activate=False).agreement
    found = create(admin, onward=draft.public_id).json
    (warning,) = [one for one in found["warnings"] if one["code"] == "onward_not_in_force"]
    assert warning["field"] == "onward" and draft.tpa_id in warning["detail"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": ""}, "#/name"),
        ({"max_hops": 11}, "#/max_hops"),
        ({"max_hops": 0}, "#/max_hops"),
        ({"min_retry_secs": 0}, "#/min_retry_secs"),
        ({"mode": "guess"}, "#/mode"),
        ({"onward": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "#/onward"),
        ({"party_value": "a\x00b"}, "#/party_value"),
        ({"party_context": "  "}, "#/party_context"),
        ({"reason": "x"}, "#/reason"),
        ({"hops": 3}, "#/hops"),
    ],
)
def test_what_is_wrong_is_said_by_field(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    answer = admin.post("/routes", body(**changes))
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
    assert not Route.objects.exists()


def test_two_routes_for_the_same_messages_are_refused(admin: Api) -> None:
    create(admin)
    answer = admin.post("/routes", body(name="Another"))
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert answer.json["errors"][0]["pointer"] == "#/party_value"
    create(admin, name="Orders only", service="urn:orders")


def test_it_is_changed_by_whoever_has_seen_it_last(admin: Api) -> None:
    made = create(admin)
    path = f"/routes/{made.json['id']}"
    changed = admin.patch(path, {"mode": "confirm_through", **REASON}, If_Match=made.etag)
    assert (changed.status, changed.json["mode"], changed.json["version"]) == (200, "confirm_through", 2)
    late = admin.patch(path, {"mode": "store_forward", **REASON}, If_Match=made.etag)
    assert (late.status, late.code) == (412, "stale")
    assert admin.patch(path, {"max_hops": 3, **REASON}).code == "precondition_required"
    entry = AuditEntry.objects.get(verb="route.update")
    assert (entry.before["mode"], entry.after["mode"]) == ("store_forward", "confirm_through")


def test_it_is_switched_off_and_on_and_deleted(admin: Api) -> None:
    made = create(admin)
    path = f"/routes/{made.json['id']}"
    off = admin.post(f"{path}/disable", REASON, If_Match=made.etag)
    assert (off.status, off.json["enabled"]) == (200, False)
    again = admin.post(f"{path}/disable", REASON, If_Match=off.etag)
    assert (again.status, again.code) == (409, "wrong_state")
    on = admin.post(f"{path}/enable", REASON, If_Match=off.etag)
    assert (on.status, on.json["enabled"]) == (200, True)
    assert admin.delete(path, REASON).code == "precondition_required"
    assert admin.delete(path, {}, If_Match=on.etag).status == 422
    assert admin.delete(path, REASON, If_Match=off.etag).code == "stale"
    assert admin.delete(path, REASON, If_Match=on.etag).status == 204
    assert admin.get(path).code == "not_found"
    said = list(AuditEntry.objects.filter(object_type="route").order_by("id").values_list("verb", flat=True))
    assert said == ["route.create", "route.disable", "route.enable", "route.delete"]


def test_lists_page_and_filter(admin: Api) -> None:
    for number in range(3):
        create(admin, name=f"Route {number}", party_value=str(number), enabled=number != 1)
    first = admin.get("/routes", {"limit": "2"})
    assert [one["name"] for one in first.json["data"]] == ["Route 0", "Route 1"]
    second = admin.get("/routes", {"limit": "2", "cursor": first.json["next_cursor"]})
    assert [one["name"] for one in second.json["data"]] == ["Route 2"]
    assert [one["name"] for one in admin.get("/routes", {"enabled": "false"}).json["data"]] == ["Route 1"]
    assert [one["name"] for one in admin.get("/routes", {"q": "Route 2"}).json["data"]] == ["Route 2"]


def test_who_only_looks_cannot_change(admin: Api) -> None:
    made = create(admin)
    viewer = Api(make_token(make_user(Role.VIEWER)))
    assert viewer.get(f"/routes/{made.json['id']}").status == 200
    assert viewer.delete(f"/routes/{made.json['id']}", REASON, If_Match=made.etag).code == "missing_scope"


def test_an_id_that_names_no_route(admin: Api) -> None:
    for reference in ("rt_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7", "rt_x", "nothing"):
        assert admin.get(f"/routes/{reference}").code == "not_found"
