"""Parties, endpoints, agreements and credentials by API: written by the services, audited, and never blindly."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.models import AuditEntry
from partners import registry
from partners.models import Agreement, AgreementVersion, Credential, Party
from rmhub import clock
from tests.messaging.api.client import REASON, Answer, Api
from tests.messaging.factories import partner_side, submit
from tests.partners.factories import make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db


def error_at(answer: Answer, pointer: str) -> str:
    """The code of the error at this place; fails when there is none."""
    assert answer.status == 422, (answer.status, answer.json)
    found = {error["pointer"]: error["code"] for error in answer.json["errors"]}
    assert pointer in found, found
    return str(found[pointer])


# ---- parties


def test_a_party_from_beginning_to_change(admin: Api) -> None:
    body = {
        "name": "Globex",
        "contact": "Eva, 9 to 5 CET",
        "identifiers": [{"type": "DUNS", "value": "123456789"}, {"type": "GLN", "value": "4012345000009"}],
        "reason": "new supplier",
    }
    made = admin.post("/parties", body)
    assert made.status == 201
    path = made.headers["location"].removeprefix("/api/v1")
    assert made.json["identifiers"] == body["identifiers"] and made.json["is_own"] is False
    read = admin.get(path)
    assert (read.json, read.etag) == (made.json, made.etag)
    assert admin.get(path, If_None_Match=read.etag).status == 304
    changed = admin.patch(path, {"name": "Globex Ltd", "identifiers": body["identifiers"][:1]}, If_Match=read.etag)
    assert (changed.status, changed.json["name"], len(changed.json["identifiers"])) == (200, "Globex Ltd", 1)
    assert changed.json["contact"] == body["contact"]
    stale = admin.patch(path, {"name": "Other"}, If_Match=read.etag)
    assert (stale.status, stale.code) == (412, "stale")
    assert [row["name"] for row in admin.get("/parties", {"q": "4567"}).json["data"]] == ["Globex Ltd"]
    entries = list(AuditEntry.objects.filter(object_id=made.json["id"]).order_by("id"))
    assert [(entry.verb, entry.reason) for entry in entries] == [("party.create", "new supplier"), ("party.update", "")]
    assert (entries[1].before["name"], entries[1].after["name"]) == ("Globex", "Globex Ltd")


def test_parties_are_filtered(admin: Api) -> None:
    make_party("Acme", own=True)
    make_party("Globex")
    assert [row["name"] for row in admin.get("/parties", {"is_own": "true"}).json["data"]] == ["Acme"]
    assert [row["name"] for row in admin.get("/parties", {"is_own": "false"}).json["data"]] == ["Globex"]
    assert admin.get("/parties", {"is_own": "yes"}).code == "invalid_parameter"
    Party.objects.filter(name="Globex").update(archived_at=clock.now())
    for archived, name in (("true", "Globex"), ("false", "Acme")):
        assert [row["name"] for row in admin.get("/parties", {"archived": archived}).json["data"]] == [name]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/name"),
        ({"name": ""}, "#/name"),
        ({"name": "x" * 121}, "#/name"),
        ({"name": "a\x07b"}, "#/name"),
        ({"name": "Taken"}, "#/name"),
        ({"name": "N", "is_own": "yes"}, "#/is_own"),
        ({"name": "N", "identifiers": {"type": "DUNS"}}, "#/identifiers"),
        ({"name": "N", "identifiers": [{"type": "DUNS"}]}, "#/identifiers/0/value"),
        ({"name": "N", "identifiers": [{"type": "DUNS", "value": "1", "x": 1}]}, "#/identifiers/0/x"),
        ({"name": "N", "identifiers": [{"type": "DUNS", "value": "taken"}]}, "#/identifiers"),
        ({"name": "N", "id": "par_1"}, "#/id"),
    ],
)
def test_parties_that_cannot_be(admin: Api, body: dict[str, Any], pointer: str) -> None:
    make_party("Taken", identifiers=[("DUNS", "taken")])
    error_at(admin.post("/parties", body), pointer)
    assert Party.objects.count() == 1


def test_changes_need_what_was_decided_upon(admin: Api) -> None:
    party, endpoint = make_party(), make_endpoint(make_party(own=True))
    version = make_agreement(activate=False)
    paths = [
        f"/parties/{party.public_id}",
        f"/endpoints/{endpoint.public_id}",
        f"/agreements/{version.agreement.public_id}",
        f"/agreements/{version.agreement.public_id}/versions/1",
    ]
    for path in paths:
        assert (admin.patch(path, {}).status, admin.patch(path, {}).code) == (428, "precondition_required")
        assert admin.patch(path, {}, If_Match='"old.tag"').code == "stale"
        assert admin.patch(path, {}, If_Match="old").code == "invalid_header"
        assert admin.patch(path, {}, If_Match="*").status == 200
        assert error_at(admin.patch(path, {"nothing": 1}, If_Match="*"), "#/nothing") == "unknown_field"


# ---- endpoints


def test_an_endpoint_from_beginning_to_change(admin: Api) -> None:
    party = make_party()
    body = {"party": party.public_id, "uri": "https://msh.globex.example/ebxml", "read_timeout": 20}
    made = admin.post("/endpoints", body)
    assert (made.status, made.json["error_uri"], made.json["read_timeout"]) == (201, body["uri"], 20)
    path = made.headers["location"].removeprefix("/api/v1")
    changed = admin.patch(path, {"address": "http://proxy.example/", "connect_timeout": 3}, If_Match=made.etag)
    assert (changed.json["address"], changed.json["connect_timeout"], changed.json["read_timeout"]) == (
        "http://proxy.example/",
        3,
        20,
    )
    assert [row["id"] for row in admin.get("/endpoints", {"party": party.public_id}).json["data"]] == [made.json["id"]]
    for body, pointer in (
        ({"party": party.public_id}, "#/uri"),
        ({"party": party.public_id, "uri": "ftp://x"}, "#/uri"),
        ({"party": party.public_id, "uri": "HTTPS://MSH.globex.example/ebxml"}, "#/uri"),
        ({"party": "par_x", "uri": "https://y.example"}, "#/party"),
        ({"party": f"par_{'0' * 32}", "uri": "https://y.example"}, "#/party"),
        ({"party": party.public_id, "uri": "https://y.example", "read_timeout": 0}, "#/read_timeout"),
        ({"party": party.public_id, "uri": "https://y.example", "transport": "pigeon"}, "#/transport"),
    ):
        error_at(admin.post("/endpoints", body), pointer)


def test_an_endpoint_in_use_keeps_its_uri(admin: Api) -> None:
    version = make_agreement()
    path = f"/endpoints/{version.partner_endpoint.public_id}"
    answer = admin.patch(path, {"uri": "https://elsewhere.example/"}, If_Match=admin.get(path).etag)
    assert (answer.status, answer.code, answer.json["current_state"]) == (409, "wrong_state", "active")


# ---- agreements


def draft(admin: Api, **changes: Any) -> Answer:
    own, partner = make_party(own=True), make_party()
    body = {
        "tpa_id": "tpa:acme-globex",
        "own_party": own.public_id,
        "partner": partner.public_id,
        "own_endpoint": make_endpoint(own).public_id,
        "partner_endpoint": make_endpoint(partner).public_id,
        "services": [{"service": "urn:orders"}],
        "timeout": 30,
        **changes,
    }
    return admin.post("/agreements", {name: value for name, value in body.items() if value is not None})


def test_an_agreement_from_draft_to_disabled(admin: Api) -> None:
    made = draft(admin, reason="contract 4711")
    assert (made.status, made.json["state"], made.json["current"]["timeout"]) == (201, "draft", 30)
    assert made.json["current"]["services"] == [{"service": "urn:orders", "action": "*", "direction": "both"}]
    path = made.headers["location"].removeprefix("/api/v1")
    first = f"{path}/versions/1"

    version = admin.get(first)
    assert version.json["problems"] == []
    edited = admin.patch(first, {"retries": 3, "note": "fewer"}, If_Match=version.etag)
    assert (edited.json["retries"], edited.json["timeout"]) == (3, 30)
    assert admin.post(f"{first}/activate", REASON, If_Match=version.etag).code == "stale"
    active = admin.post(f"{first}/activate", REASON, If_Match=edited.etag)
    assert (active.status, active.json["state"]) == (200, "active")
    assert registry.current().by_tpa_id("tpa:acme-globex") is not None

    frozen = admin.patch(first, {"retries": 4}, If_Match=active.etag)
    assert (frozen.status, frozen.code, frozen.json["current_state"]) == (409, "wrong_state", "active")
    second = admin.post(f"{path}/versions", {"note": "slower", "reason": "they asked"})
    assert (second.status, second.json["number"], second.json["retries"]) == (201, 2, 3)
    assert admin.post(f"{path}/versions", {}).code == "wrong_state"

    read = admin.get(path)
    assert [row["number"] for row in read.json["versions"]] == [2, 1]
    assert read.json["current"]["number"] == 1
    disabled = admin.post(f"{path}/disable", REASON, If_Match=read.etag)
    assert (disabled.status, disabled.json["state"]) == (200, "disabled")
    assert admin.post(f"{path}/disable", REASON, If_Match=disabled.etag).code == "wrong_state"
    enabled = admin.post(f"{path}/enable", REASON, If_Match=disabled.etag)
    assert (enabled.status, enabled.json["state"]) == (200, "active")
    gone = admin.delete(f"{path}/versions/2", If_Match=second.etag)
    assert (gone.status, gone.content) == (204, b"")
    assert admin.get(f"{path}/versions/2").code == "not_found"
    verbs = AuditEntry.objects.filter(object_type__startswith="agreement").order_by("id").values_list("verb", "reason")
    assert list(verbs) == [
        ("agreement.create", "contract 4711"),
        ("agreement.edit", ""),
        ("agreement.activate", REASON["reason"]),
        ("agreement.new_version", "they asked"),
        ("agreement.disable", REASON["reason"]),
        ("agreement.enable", REASON["reason"]),
        ("agreement.discard", ""),
    ]


def test_an_agreement_about_repeatable_requests(admin: Api) -> None:
    terms = {
        "profile": "repeatable",
        "partner_window": 7200,
        "clock_skew": 60,
        "exchange_mode": "synchronous",
        "exchange_identity": "first_sent",
        "repeat_interval": 30,
        "repeat_interval_max": 300,
        "ordered": False,
        "max_in_flight": 4,
    }
    made = draft(admin, **terms)
    assert {name: made.json["current"][name] for name in terms} == terms
    assert made.json["current"]["gives_up"] == "Repeats for up to 2 h, every 30 s to 5 m, then the message is in doubt."
    path = made.headers["location"].removeprefix("/api/v1") + "/versions/1"
    edited = admin.patch(path, {"repeat_interval": 301}, If_Match=admin.get(path).etag)
    assert [problem["code"] for problem in edited.json["problems"]] == ["repeat_interval_above_longest"]
    refused = admin.post(f"{path}/activate", REASON, If_Match=edited.etag)
    assert refused.code == "agreement_invalid"
    entry = AuditEntry.objects.get(verb="agreement.edit")
    assert (entry.before["repeat_interval"], entry.after["repeat_interval"]) == (30, 301)
    assert error_at(draft(admin, tpa_id="tpa:2", max_in_flight=257), "#/max_in_flight")
    assert error_at(draft(admin, tpa_id="tpa:2", exchange_mode="maybe"), "#/exchange_mode")


def test_x06_a_pair_with_open_messages_keeps_its_profile(admin: Api) -> None:
    side = partner_side()
    submit(side)
    path = f"/agreements/{Agreement.objects.get(tpa_id=side.terms.tpa_id).public_id}/versions"
    admin.post(path, {})
    edited = admin.patch(f"{path}/2", {"profile": "repeatable"}, If_Match="*")
    refused = admin.post(f"{path}/2/activate", REASON, If_Match=edited.etag)
    assert (refused.status, refused.code, refused.json["current_state"]) == (409, "pair_not_drained", "draft")
    assert "let them come to their end, or cancel them" in refused.json["detail"]


def test_two_profiles_on_one_pair_are_a_problem_of_the_draft(admin: Api) -> None:
    first = make_agreement()
    other = make_agreement(
        own_party=first.agreement.own_party,
        partner=first.agreement.partner,
        own_endpoint=first.own_endpoint,
        partner_endpoint=first.partner_endpoint,
        profile="repeatable",
        activate=False,
    )
    read = admin.get(f"/agreements/{other.agreement.public_id}/versions/1")
    assert [problem["code"] for problem in read.json["problems"]] == ["pair_of_other_profile"]


def test_a_version_that_contradicts_itself_is_not_activated(admin: Api) -> None:
    made = draft(admin, timeout=0, services=None)
    path = f"{made.headers['location'].removeprefix('/api/v1')}/versions/1"
    version = admin.get(path)
    errors = {row["code"] for row in version.json["problems"] if row["level"] == "error"}
    assert errors == {"timeout_zero", "services_missing"}
    answer = admin.post(f"{path}/activate", REASON, If_Match=version.etag)
    assert (answer.status, answer.code) == (422, "agreement_invalid")
    assert {(row["pointer"], row["code"]) for row in answer.json["errors"]} == {
        ("#/timeout", "timeout_zero"),
        ("#/services", "services_missing"),
    }
    assert AgreementVersion.objects.get().state == "draft"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"tpa_id": None}, "#/tpa_id"),
        ({"tpa_id": "tpa:taken"}, "#/tpa_id"),
        ({"own_party": f"par_{'0' * 32}"}, "#/own_party"),
        ({"own_endpoint": "x"}, "#/own_endpoint"),
        ({"partner_endpoint": f"end_{'0' * 32}"}, "#/partner_endpoint"),
        ({"timeout": -1}, "#/timeout"),
        ({"timeout": 10**30}, "#/timeout"),
        ({"retries": "5"}, "#/retries"),
        ({"strict_sequence": 1}, "#/strict_sequence"),
        ({"profile": "as2"}, "#/profile"),
        ({"semantics": "Maybe"}, "#/semantics"),
        ({"services": [{}]}, "#/services/0/service"),
        ({"services": [{"service": "a", "direction": "up"}]}, "#/services/0/direction"),
        ({"services": [{"service": "a"}, {"service": "a"}]}, "#/services"),
        ({"state": "active"}, "#/state"),
    ],
)
def test_agreements_that_cannot_be(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    make_agreement(tpa_id="tpa:taken")
    error_at(draft(admin, **changes), pointer)
    assert Agreement.objects.count() == 1


def test_the_parties_of_an_agreement_are_ours_and_theirs(admin: Api) -> None:
    other = make_party()
    error_at(draft(admin, own_party=other.public_id), "#/own_party")
    own = make_party(own=True)
    error_at(draft(admin, own_party=own.public_id, partner=own.public_id), "#/partner")


def test_agreement_verbs_need_precondition_and_reason(admin: Api) -> None:
    version = make_agreement(activate=False)
    path = f"/agreements/{version.agreement.public_id}"
    for verb in ("disable", "enable", "versions/1/activate"):
        assert admin.post(f"{path}/{verb}", REASON).code == "precondition_required"
        assert error_at(admin.post(f"{path}/{verb}", {}, If_Match="*"), "#/reason") == "required"
    assert admin.post(f"{path}/disable", REASON, If_Match="*").json["current_state"] == "draft"
    assert admin.delete(f"{path}/versions/1").code == "precondition_required"
    assert admin.delete(f"{path}/versions/1", If_Match="*").status == 204
    assert not Agreement.objects.exists()


def test_agreements_are_listed_and_found(admin: Api, django_assert_num_queries: Any) -> None:
    versions = [make_agreement(tpa_id=f"tpa:{name}") for name in "abc"]
    make_agreement(tpa_id="tpa:draft", activate=False)
    assert [row["tpa_id"] for row in admin.get("/agreements").json["data"]] == ["tpa:a", "tpa:b", "tpa:c", "tpa:draft"]
    assert [row["tpa_id"] for row in admin.get("/agreements", {"state": "draft"}).json["data"]] == ["tpa:draft"]
    partner = versions[1].agreement.partner
    assert [row["tpa_id"] for row in admin.get("/agreements", {"party": partner.public_id}).json["data"]] == ["tpa:b"]
    with django_assert_num_queries(3):  # agreements, versions, services
        admin.get("/agreements")


@pytest.mark.parametrize(
    "path",
    [
        "/parties/par_x",
        "/parties/{par}",
        "/endpoints/{end}",
        "/agreements/{agr}",
        "/agreements/x",
        "/agreements/{agr}/versions/1",
        "/credentials/{cred}",
        "/credentials/cred_",
    ],
)
def test_what_is_not_there(admin: Api, path: str) -> None:
    place = path.format(**{prefix: f"{prefix}_{'0' * 32}" for prefix in ("par", "end", "agr", "cred")})
    assert (admin.get(place).status, admin.get(place).code) == (404, "not_found")
    if "credentials" not in path:
        assert admin.patch(place, {}, If_Match="*").code == "not_found"


@pytest.mark.parametrize("number", ["0", "2", "x", "-1", "9" * 30])
def test_versions_that_are_not_there(admin: Api, number: str) -> None:
    path = f"/agreements/{make_agreement().agreement.public_id}/versions/{number}"
    assert admin.get(path).code == "not_found"
    assert admin.patch(path, {}, If_Match="*").code == "not_found"
    assert admin.post(f"{path}/activate", REASON, If_Match="*").code == "not_found"
    assert admin.delete(path, If_Match="*").code == "not_found"


# ---- credentials


def test_a_secret_is_shown_once(admin: Api) -> None:
    party = make_party()
    body = {
        "party": party.public_id,
        "direction": "inbound",
        "kind": "basic",
        "username": "globex",
        "reason": "go-live",
    }
    made = admin.post("/credentials", body)
    assert made.status == 201 and made.headers["cache-control"] == "no-store"
    secret = made.json["secret"]
    assert len(secret) > 30
    path = made.headers["location"].removeprefix("/api/v1")
    everywhere = [
        admin.get(path),
        admin.get("/credentials"),
        admin.get("/audit-log"),
        admin.get("/credentials", {"party": party.public_id}),
    ]
    assert all(secret.encode() not in answer.content and answer.status == 200 for answer in everywhere)
    assert all(b"secret" not in answer.content for answer in everywhere[:2])
    revoked = admin.post(f"{path}/revoke", REASON)
    assert (revoked.status, bool(revoked.json["revoked_at"])) == (200, True)
    again = admin.post(f"{path}/revoke", REASON)
    assert (again.status, again.code, again.json["current_state"]) == (409, "wrong_state", "revoked")
    assert error_at(admin.post(f"{path}/revoke", {}), "#/reason") == "required"
    entries = AuditEntry.objects.filter(object_type="credential").order_by("id")
    assert [entry.verb for entry in entries] == ["credential.issue", "credential.revoke"]


def test_bearer_certificate_and_outbound(admin: Api) -> None:
    party = make_party().public_id
    bearer = admin.post("/credentials", {"party": party, "direction": "inbound", "kind": "bearer"})
    assert bearer.json["secret"].startswith(bearer.json["id"].removeprefix("cred_"))
    fingerprint = "AB:" * 31 + "AB"
    body = {"party": party, "direction": "inbound", "kind": "certificate", "fingerprint": fingerprint}
    certificate = admin.post("/credentials", body)
    assert (certificate.json["fingerprint"], certificate.json["secret"]) == ("ab" * 32, None)
    body = {"party": party, "direction": "outbound", "kind": "basic", "username": "acme", "secret": "their-secret"}
    outbound = admin.post("/credentials", {**body, "valid_until": "2030-01-01T00:00:00+01:00"})
    assert (outbound.status, outbound.json["secret"]) == (201, None)
    assert outbound.json["valid_until"] == "2029-12-31T23:00:00Z"
    assert b"their-secret" not in outbound.content
    assert b"their-secret" not in bytes(Credential.objects.get(direction="outbound").secret_encrypted)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"party": None}, "#/party"),
        ({"party": f"par_{'0' * 32}"}, "#/party"),
        ({"direction": "sideways"}, "#/direction"),
        ({"kind": "kerberos"}, "#/kind"),
        ({"username": ""}, "#/username"),
        ({"username": "a:b"}, "#/username"),
        ({"secret": "short"}, "#/secret"),
        ({"secret": "with\x07bell-in-it"}, "#/secret"),
        ({"valid_until": "2030-01-01"}, "#/valid_until"),
        ({"valid_until": "2030-01-01T00:00:00"}, "#/valid_until"),
        ({"valid_from": "2031-01-01T00:00:00Z", "valid_until": "2030-01-01T00:00:00Z"}, "#/valid_until"),
        ({"kind": "certificate", "fingerprint": "12"}, "#/fingerprint"),
        ({"direction": "outbound"}, "#/secret"),
        ({"direction": "outbound", "kind": "certificate"}, "#/secret"),
        ({"direction": "outbound", "fingerprint": "ab" * 32}, "#/fingerprint"),
        ({"scopes": []}, "#/scopes"),
    ],
)
def test_credentials_that_cannot_be(admin: Api, changes: dict[str, Any], pointer: str) -> None:
    body = {"party": make_party().public_id, "direction": "inbound", "kind": "basic", "username": "globex", **changes}
    error_at(admin.post("/credentials", {name: value for name, value in body.items() if value is not None}), pointer)
    assert not Credential.objects.exists()


def test_a_user_name_of_another_party_is_taken(admin: Api) -> None:
    make_credential(make_party(), username="globex")
    body = {"party": make_party().public_id, "direction": "inbound", "kind": "basic", "username": "globex"}
    error_at(admin.post("/credentials", body), "#/username")


# ---- transactions


def test_an_agreement_of_transactions_by_the_api(admin: Api) -> None:
    own = make_endpoint(make_party(own=True), "https://hub.example/ws-tx")
    theirs = make_endpoint(make_party("Shop"), "https://shop.example/transactions")
    body = {
        "tpa_id": "tpa:transactions",
        "own_party": own.party.public_id,
        "partner": theirs.party.public_id,
        "own_endpoint": own.public_id,
        "partner_endpoint": theirs.public_id,
        "profile": "wsat",
        "coordination_version": "2004/10",
        "addressing_profile": "oasis",
        "addressing_strict": True,
        "other_servers": "https://txn.example:8443 http://Old.example",
        "soap_version": "1.2",
        **REASON,
    }
    made = admin.post("/agreements", body)
    assert made.status == 201, made.json
    (version,) = made.json["versions"]
    given = ("profile", "coordination_version", "addressing_profile", "addressing_strict", "soap_version")
    assert {name: version[name] for name in given} == {name: body[name] for name in given}
    assert version["other_servers"] == "https://txn.example:8443 http://old.example"
    assert (version["repeat_interval"], version["repeat_interval_max"], version["retries"]) == (5, 600, 10)
    assert version["gives_up"].startswith("Sends what awaits an answer again after 5 s to 10 m")
    path = made.headers["location"].removeprefix("/api/v1")
    etag = admin.get(f"{path}/versions/1").etag
    assert admin.post(f"{path}/versions/1/activate", dict(REASON), If_Match=etag).status == 200
    refused = admin.post("/agreements", body | {"tpa_id": "tpa:other", "soap_version": "1.3"})
    assert refused.status == 422
    for wrong in (
        "txn.example",
        "https://txn.example/path",
        "https://u@txn.example",
        "ftp://a.example",
        "https://*.b.example",
    ):
        refused = admin.post("/agreements", body | {"tpa_id": "tpa:other", "other_servers": wrong})
        assert (refused.status, refused.json["errors"][0]["pointer"]) == (422, "#/other_servers"), wrong
