"""Mailboxes and folders that the hub looks into, by the API."""

from __future__ import annotations

from typing import Any

import pytest

from messaging import dispatch
from messaging.models import AuditEntry, Incident, PollerState
from messaging.pollers.services import pollers
from messaging.pollers.services.collecting import Found
from partners import secrets
from partners.models import Credential, Poller
from tests.messaging.api.client import REASON, Answer, Api
from tests.partners.factories import make_endpoint, make_party

pytestmark = pytest.mark.django_db
KEY = "SHA256:" + "a" * 43
SECRET = "what-they-gave-us"


def body(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": "Globex, outgoing",
        "kind": "sftp",
        "url": "sftp://files.globex.example/to-us/",
        "username": "hub",
        "secret": SECRET,
        "host_key": KEY,
        "interval": 60,
        **REASON,
        **changes,
    }
    if "endpoint" not in values:
        values["endpoint"] = make_endpoint(make_party(own=True)).public_id
    if "partner" not in values:
        values["partner"] = make_party().public_id
    return values


def made(api: Api, **changes: Any) -> Answer:
    answer = api.post("/pollers", body(**changes))
    assert answer.status == 201, answer.json
    return answer


def test_a_poller_from_its_making_to_its_end(
    admin: Api, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        answer = made(admin)
    assert woken == [dispatch.POLLERS]
    path = answer.headers["location"].removeprefix("/api/v1")
    found = admin.get(path)
    assert found.json == answer.json and found.etag == answer.etag
    assert (found.json["interval"], found.json["enabled"], found.json["secret_kind"]) == (60, True, "basic")
    assert found.json["progress"]["state"] == "new"
    changed = admin.patch(path, {"interval": 120, **REASON}, If_Match=found.etag)
    assert (changed.status, changed.json["interval"]) == (200, 120)
    assert admin.patch(path, {"interval": 90, **REASON}, If_Match=found.etag).code == "stale"
    assert admin.delete(path, REASON, If_Match=changed.etag).status == 204
    assert admin.get(path).code == "not_found"
    verbs = AuditEntry.objects.filter(object_type="poller").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["poller.create", "poller.update", "poller.delete"]


def test_the_secret_is_told_nowhere(admin: Api) -> None:
    answer = made(admin)
    path = answer.headers["location"].removeprefix("/api/v1")
    patched = admin.patch(path, {"secret": "another-secret", **REASON}, If_Match=answer.etag)
    assert patched.status == 200 and patched.etag != answer.etag
    assert secrets.decrypt(Poller.objects.get().secret_encrypted) == "another-secret"
    listed = admin.get("/pollers")
    for told in (answer, patched, listed):
        assert SECRET not in str(told.json) and "another-secret" not in str(told.json)
    entries = [str((entry.before, entry.after)) for entry in AuditEntry.objects.all()]
    assert not any(SECRET in entry or "another-secret" in entry for entry in entries)
    assert "'secret': 'replaced'" in entries[0]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"host_key": ""}, "#/host_key"),
        ({"url": "sftp://files.globex.example/../x/"}, "#/url"),
        ({"partner": None}, "#/partner"),
        ({"endpoint": "end_" + "0" * 32}, "#/endpoint"),
        ({"partner": "par_" + "0" * 32}, "#/partner"),
        ({"kind": "ftp"}, "#/kind"),
        ({"secret": ""}, "#/secret"),
        ({"interval": 1}, "#/interval"),
        ({"reason": ""}, "#/reason"),
        ({"nothing": 1}, "#/nothing"),
    ],
)
def test_what_cannot_be(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    answer = admin.post("/pollers", body(**changes))
    assert answer.status == 422 and pointer in [error["pointer"] for error in answer.json["errors"]]
    assert SECRET not in str(answer.json)
    assert not Poller.objects.exists() and not AuditEntry.objects.filter(object_type="poller").exists()


def test_the_progress_and_what_people_can_do_about_it(admin: Api, operator: Api) -> None:
    answer = made(admin)
    path = answer.headers["location"].removeprefix("/api/v1")
    (job,) = pollers.claim_due(1)
    assert admin.get(path).json["progress"]["state"] == "looking"
    pollers.record([(job, Found(cause="login_refused", detail="Authentication failed.", permanent=True))])
    progress = admin.get(path).json["progress"]
    assert (progress["state"], progress["failures"], progress["cause"]) == ("failing", 1, "login_refused")
    assert Incident.objects.get().state == "open"
    # An operator may ask for a look, and nothing else.
    state = PollerState.objects.get()
    assert operator.post(f"{path}/look", REASON, If_Match="*").status == 200
    assert (PollerState.objects.get().due_at or state.due_at) < state.due_at
    assert operator.post(f"{path}/disable", REASON, If_Match="*").code == "missing_scope"
    off = admin.post(f"{path}/disable", REASON, If_Match="*")
    assert (off.json["enabled"], off.json["progress"]["state"]) == (False, "off")
    assert Incident.objects.get().state == "resolved"  # nobody waits for it now
    assert pollers.claim_due(1) == []
    assert admin.post(f"{path}/disable", REASON, If_Match="*").code == "wrong_state"
    assert admin.post(f"{path}/look", REASON, If_Match="*").code == "wrong_state"
    assert admin.post(f"{path}/enable", REASON, If_Match="*").json["enabled"] is True
    assert len(pollers.claim_due(1)) == 1


def test_another_folder_begins_at_its_beginning(admin: Api) -> None:
    answer = made(admin)
    PollerState.objects.update(position="7:100")
    path = answer.headers["location"].removeprefix("/api/v1")
    admin.patch(path, {"interval": 30, **REASON}, If_Match="*")
    assert PollerState.objects.get().position == "7:100"
    admin.patch(path, {"url": "sftp://files.globex.example/other/", **REASON}, If_Match="*")
    assert PollerState.objects.get().position == ""


def test_the_list_and_its_filters(admin: Api) -> None:
    party = make_party().public_id
    made(admin, name="A", partner=party)
    mail = {"kind": "imap", "url": "imaps://mail.us.example/INBOX", "trusted_checker": "mx", "host_key": ""}
    made(admin, name="B", partner=None, **mail)
    made(admin, name="C", enabled=False)

    def names(**query: str) -> list[str]:
        return [one["name"] for one in admin.get("/pollers", query).json["data"]]

    assert names() == ["A", "B", "C"]
    assert names(kind="imap") == ["B"]
    assert names(enabled="false") == ["C"]
    assert names(party=party) == ["A"]
    assert names(q="INBOX") == ["B"]


def test_credentials_and_endpoints_know_files(admin: Api) -> None:
    from tests.partners.test_pollers import ED25519, pem

    party = make_party()
    endpoint = admin.post(
        "/endpoints",
        {"party": party.public_id, "transport": "sftp", "uri": "sftp://files.globex.example/in/", "host_key": KEY},
    )
    assert (endpoint.status, endpoint.json["host_key"], endpoint.json["server"]) == (201, KEY, "")
    refused = admin.patch(
        endpoint.headers["location"].removeprefix("/api/v1"), {"host_key": "none"}, If_Match=endpoint.etag
    )
    assert [error["pointer"] for error in refused.json["errors"]] == ["#/host_key"]
    values = {"party": party.public_id, "direction": "outbound", "kind": "ssh_key", "username": "hub"}
    stored = admin.post("/credentials", {**values, "secret": pem(ED25519)})
    assert stored.status == 201 and stored.json["fingerprint"].startswith("SHA256:")
    assert "PRIVATE" not in str(stored.json)
    assert Credential.objects.get().secret_encrypted
