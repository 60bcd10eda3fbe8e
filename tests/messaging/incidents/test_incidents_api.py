"""Incidents by the API: the verbs of people with their ETags, comments, the story, texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Incident
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_incident, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db
SOON = (datetime.now(UTC) + timedelta(hours=4)).isoformat()


def path_of(incident: Incident) -> str:
    return f"/incidents/{incident}"


def test_the_owner_is_a_person_whichever_token_they_use() -> None:
    olga = Api(make_token(make_user(Role.OPERATOR, "olga"), name="ERP"))
    incident = make_incident()
    taken = olga.post(f"{path_of(incident)}/acknowledge")
    assert (taken.json["owner"], taken.json["state"]) == ("olga", "acknowledged")
    entry = AuditEntry.objects.get(verb="incident.acknowledge")
    assert (entry.actor, entry.authentication) == ("olga (token ERP)", "token")
    assert [row["number"] for row in olga.get("/incidents", {"owner": "olga"}).json["data"]] == [incident.number]
    assert olga.get("/incidents", {"owner": "nobody"}).json["data"] == []


def test_it_is_given_to_somebody(operator: Api) -> None:
    make_user(Role.OPERATOR, "olga")
    make_user(Role.VIEWER, "vera")
    path = path_of(make_incident())
    read = operator.get(path)
    given = operator.post(f"{path}/assign", {"owner": "olga"}, If_Match=read.etag)
    assert (given.status, given.json["owner"], given.json["version"]) == (200, "olga", 2)
    assert given.etag != read.etag
    assert operator.post(f"{path}/assign", {"owner": "olga"}, If_Match=read.etag).code == "stale"
    for body in ({}, {"owner": "vera"}, {"owner": "nobody-here"}, {"owner": 1}):
        refused = operator.post(f"{path}/assign", body)
        assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/owner")


def test_it_is_put_off(operator: Api) -> None:
    path = path_of(make_incident())
    put_off = operator.post(f"{path}/snooze", {"until": SOON, **REASON})
    assert put_off.status == 200
    assert datetime.fromisoformat(put_off.json["snoozed_until"]) == datetime.fromisoformat(SOON)
    count = lambda **query: len(operator.get("/incidents", query).json["data"])  # noqa: E731
    assert (count(snoozed="true"), count(snoozed="false"), count()) == (1, 0, 1)
    back = operator.post(f"{path}/snooze", {"until": None, **REASON})
    assert (back.json["snoozed_until"], count(snoozed="false")) == (None, 1)
    for body in ({"until": SOON}, REASON, {"until": "2020-01-01T00:00:00Z", **REASON}, {"until": "soon", **REASON}):
        assert operator.post(f"{path}/snooze", body).status == 422


def test_it_is_closed_with_what_it_was(operator: Api) -> None:
    path = path_of(make_incident())
    closed = operator.post(f"{path}/resolve", {"found": "Firewall", "reason": "They opened it"})
    assert closed.json["resolution"] == "Firewall → They opened it"
    for verb, body in (("assign", {"owner": "x"}), ("snooze", {"until": SOON, **REASON}), ("resolve", REASON)):
        refused = operator.post(f"{path}/{verb}", body)
        assert refused.status in (409, 422), verb
    again = operator.post(f"{path}/acknowledge")
    assert (again.code, again.json["current_state"], again.json["allowed_actions"]) == (
        "wrong_state", "resolved", ["comments"],
    )  # fmt: skip


def test_comments(operator: Api, viewer: Api) -> None:
    path = f"{path_of(make_incident())}/comments"
    for text in ("first", "second"):
        made = operator.post(path, {"text": text})
        assert (made.status, made.json["kind"], made.json["text"]) == (201, "comment", text)
    assert [row["text"] for row in viewer.get(path).json["data"]] == ["first", "second"]
    assert viewer.post(path, {"text": "third"}).json["required_scope"] == "incidents:write"
    for body in ({}, {"text": ""}, {"text": "x" * 5001}, {"text": "x", "author": "me"}):
        assert operator.post(path, body).status == 422


def test_the_story_and_the_texts(viewer: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    incident = Incident.objects.get()
    old = make_incident(pair, "another")
    Incident.objects.filter(pk=old.pk).update(cause=incident.cause, state="resolved", resolved_by="ann")
    incidents.incident_comment(incident_id=incident.pk, text="Calling them", actor=Actor("ann"))
    story = viewer.get(f"{path_of(incident)}/timeline").json
    assert {"event", "attempts", "comment"} <= {row["kind"] for row in story["moments"]}
    assert [row["incident"]["number"] for row in story["similar"]] == [old.number]
    assert (story["similar"][0]["nearness"], story["recovery"]) == ("same pair", None)
    note = viewer.get(f"{path_of(incident)}/partner-note")
    assert str(incident) in note.json["subject"]
    text = viewer.get(f"{path_of(incident)}/post-mortem", Accept="text/markdown")
    assert text.headers["content-type"] == "text/markdown; charset=utf-8"
    assert text.content.decode().startswith(f"# {incident}: ")
    assert viewer.get(f"{path_of(make_incident(cause='x'))}/partner-note").code == "not_found"


@pytest.mark.parametrize("below", ["timeline", "partner-note", "post-mortem", "comments"])
def test_what_is_not_there(viewer: Api, below: str) -> None:
    assert viewer.get(f"/incidents/INC-99/{below}").code == "not_found"
    assert viewer.get(f"/incidents/INC-99/{below}", {"x": "1"}).code == "unknown_parameter"
