"""Users, sessions and partner groups by the API, and the roles' matrix operation by operation."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from messaging.access.services import sessions
from messaging.journal.audit import Actor
from messaging.models import Access, AuditEntry, SecondFactor
from rmhub import clock
from rmhub.roles import ORDER, SCOPES, Role
from tests.messaging.access import test_access_api as test_access
from tests.messaging.api.client import REASON, Api, make_token, make_user
from tests.messaging.factories import partner_side

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Api:
    return Api(make_token(make_user(Role.ADMIN, "boss")))


@pytest.mark.parametrize("role", ORDER)
def test_each_role_calls_its_operations_and_no_other(role: Role) -> None:
    caller = Api(make_token(make_user(role), scopes=SCOPES[role]))
    for name in test_access.GUARDED:
        scope = test_access.SCOPES[name]
        method, path = test_access.concrete(name)
        answer = caller.call(method, path, {} if method != "GET" else None)
        if scope in SCOPES[role]:
            assert answer.status not in (401, 403) and answer.status < 500, (name, answer.status)
        else:
            assert (answer.status, answer.code) == (403, "missing_scope"), name


def test_a_user_is_made_invited_changed_and_switched_off(api: Api) -> None:
    group = api.post("/partner-groups", {"name": "North"}).json
    body = {"username": "ana", "role": "operator", "limited": True, "groups": [group["id"]]}
    made = api.post("/users", body)
    assert (made.status, made.headers["location"]) == (201, "/api/v1/users/ana")
    assert made.json["login"] == "invited" and made.json["limited"] is True
    assert [one["name"] for one in made.json["groups"]] == ["North"]
    path = made.json["invitation"].partition("127.0.0.1:8000")[2]
    assert b"ana" in Client().get(path).content
    assert api.post("/users", body).json["errors"][0]["pointer"] == "#/username"
    read = api.get("/users/ana")
    assert "invitation" not in read.json
    stale = api.patch("/users/ana", {"role": "viewer", **REASON}, If_Match='"0.old"')
    assert stale.code == "stale"
    changed = api.patch("/users/ana", {"role": None, "is_active": False, **REASON}, If_Match=read.etag)
    assert (changed.json["role"], changed.json["is_active"], changed.json["limited"]) == (None, False, True)
    assert api.post("/users/ana/invite", {}).code == "wrong_state"
    listed = api.get("/users", {"active": "false"}).json["data"]
    assert [one["username"] for one in listed] == ["ana"]
    assert {entry.interface for entry in AuditEntry.objects.filter(object_name="ana")} == {"api"}


def test_the_last_admin_stays(api: Api) -> None:
    refused = api.patch("/users/boss", {"role": "viewer", **REASON})
    assert (refused.status, refused.code) == (409, "wrong_state")
    assert api.patch("/users/boss", {"role": "emperor", **REASON}).status == 422
    assert api.patch("/users/boss", {"role": "admin"}).status == 422, "a reason"
    assert api.get("/users/nobody").code == "not_found"


def test_sessions_are_listed_and_ended(api: Api) -> None:
    ana = make_user(Role.VIEWER, "ana")
    client = Client()
    client.force_login(ana)
    client.get("/")
    (row,) = api.get("/sessions", {"user": "ana"}).json["data"]
    assert (row["user"], row["address"]) == ("ana", "127.0.0.1")
    assert client.session.session_key not in str(row)
    assert api.delete(f"/sessions/{row['id']}").status == 204
    assert client.get("/").status_code == 302
    assert api.delete(f"/sessions/{row['id']}").status == 404
    sessions.session_begun(user=ana, key="k" * 32, actor=Actor("ana"), agent="", method="password")
    assert api.get("/sessions").json["data"] == [], "django_session has no such row any more"
    assert api.post("/users/ana/end-sessions", REASON).status == 200


def test_a_second_factor_is_taken_away(api: Api) -> None:
    ana = make_user(Role.VIEWER, "ana")
    ana.set_password("something long")
    ana.save()
    SecondFactor.objects.create(user=ana, secret_encrypted=b"", confirmed_at=clock.now(), created_at=clock.now())
    assert api.get("/users/ana").json["login"] == "password_and_code"
    assert api.post("/users/ana/reset-second-factor", REASON).json["login"] == "password"
    assert api.post("/users/ana/reset-second-factor", REASON).status == 404


def test_groups_are_made_changed_and_deleted_when_nobody_is_limited_to_them(api: Api) -> None:
    partner = partner_side().outbound.partner
    made = api.post("/partner-groups", {"name": "North", "partners": [partner.public_id]})
    assert made.status == 201
    assert made.json["partners"] == [{"id": partner.public_id, "name": partner.name}]
    path = f"/partner-groups/{made.json['id']}"
    assert api.post("/partner-groups", {"name": "North"}).json["errors"][0]["pointer"] == "#/name"
    assert api.post("/partner-groups", {"name": "X", "partners": ["par_" + "0" * 32]}).status == 422
    assert api.patch(path, {"name": "South", **REASON}).json["size"] == 1
    access = Access.objects.create(user=User.objects.get(username="boss"), limited=False)
    access.groups.set([made.json["id"].removeprefix("grp_")])
    assert api.delete(path, REASON).code == "wrong_state"
    access.groups.clear()
    assert api.delete(path, REASON).status == 204
    assert api.get("/partner-groups").json["data"] == []
