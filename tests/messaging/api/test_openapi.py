"""The OpenAPI document: complete, committed, and true."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.conf import settings
from django.core.management import CommandError, call_command

from messaging.api.catalogue import CODES
from messaging.api.openapi import document
from messaging.engine import subscriptions
from messaging.journal.events import TYPES
from messaging.models import Delivery, Message
from rmhub.ids import read_public_id
from rmhub.roles import ADMIN_SCOPES, OPERATOR_SCOPES, VIEWER_SCOPES, Role
from rmhub.roles import SCOPES as SCOPES_OF_ROLES
from tests.messaging.access.test_access_api import SCOPES
from tests.messaging.api.client import REASON, Answer, Api, submission, suspended
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.partners.factories import make_party

ROOT = Path(settings.BASE_DIR)


@pytest.fixture(scope="module")
def api_document() -> dict[str, Any]:
    """Fails when drf-spectacular warns of anything."""
    return json.loads(json.dumps(document(), default=str))


def test_the_committed_files_are_those_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("openapi", "--check")


def test_a_stale_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match=r"openapi\.yaml, api-problems\.md: out of date"):
        call_command("openapi", "--check", "--docs", str(tmp_path))
    assert not list(tmp_path.iterdir())
    call_command("openapi", "--docs", str(tmp_path))
    call_command("openapi", "--check", "--docs", str(tmp_path))
    path = tmp_path / "openapi.yaml"
    path.write_text(path.read_text().replace("Submit a message", "Submit something"))
    capsys.readouterr()
    with pytest.raises(CommandError, match=r"^openapi\.yaml: out of date"):
        call_command("openapi", "--check", "--docs", str(tmp_path))
    said = capsys.readouterr().err
    assert "run `manage.py openapi`" in said and "-      summary: Submit something" in said


def test_the_check_needs_no_database(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    environment |= {"RMHUB_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "rmhub.settings"}
    done = subprocess.run(
        [sys.executable, "manage.py", "openapi", "--check"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "postgres").exists()


def test_every_operation_is_described(api_document: dict[str, Any]) -> None:
    found = {}
    for path, methods in api_document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path.removeprefix('/api/v1/')}"
            found[name] = operation
            assert operation["summary"] and operation["tags"], name
            good = [status for status in operation["responses"] if status.startswith("2")]
            assert good, name
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    assert status == "204" or answer["content"], (name, status)
                else:
                    assert set(answer["content"]) == {"application/problem+json"}, (name, status)
            # To look, or to try, takes no reason and nothing else.
            if method in ("post", "patch") and not path.endswith(("/test", "/ping")):
                assert operation["requestBody"]["content"], name
    assert {re.sub(r"\{[^}]+\}", "{}", name) for name in found} == set(SCOPES)
    for name, operation in found.items():
        scope = SCOPES[re.sub(r"\{[^}]+\}", "{}", name)]
        if scope == "public":
            assert "security" not in operation, name
        else:
            assert f"Scope: `{scope}`." in operation["description"], name
            assert [list(way) for way in operation["security"]] == [["apiToken"], ["consoleSession"]]
            assert scope in ADMIN_SCOPES
    identifiers = [operation["operationId"] for operation in found.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_all_webhooks_are_listed(api_document: dict[str, Any]) -> None:
    assert set(api_document["webhooks"]) == set(TYPES)
    for path_item in api_document["webhooks"].values():
        operation = path_item["post"]
        headers = [parameter["name"] for parameter in operation["parameters"]]
        assert headers == ["webhook-id", "webhook-timestamp", "webhook-signature"]
        content = operation["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            check(api_document, content["schema"], example["value"])


def check(api_document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Raises ValidationError when the value is not what the schema says."""
    whole = {**schema, "components": api_document["components"]}
    jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker()).validate(value)


def test_the_examples_are_valid(api_document: dict[str, Any]) -> None:
    checked = 0
    for methods in api_document["paths"].values():
        for operation in methods.values():
            places = [operation.get("requestBody", {}).get("content", {})]
            places += [answer.get("content", {}) for answer in operation["responses"].values()]
            for content in places:
                for media in content.values():
                    for example in media.get("examples", {}).values():
                        check(api_document, media["schema"], example["value"])
                        checked += 1
    assert checked > 8


@pytest.mark.django_db
def test_the_example_of_a_submission_can_be_sent(
    api_document: dict[str, Any], admin: Api, partner: PartnerSide
) -> None:
    content = api_document["paths"]["/api/v1/messages"]["post"]["requestBody"]["content"]["application/json"]
    (example,) = content["examples"].values()
    body = {**example["value"], "agreement": partner.terms.tpa_id}
    assert admin.submit(body).status == 202
    assert hashlib.sha256(b"<Order/>").hexdigest() == body["payloads"][0]["sha256"]


@pytest.mark.django_db
def test_answers_are_what_the_document_says(api_document: dict[str, Any], admin: Api, partner: PartnerSide) -> None:
    """Every JSON answer of a busy hub, against its schema; nothing in it that the schema does not know."""
    party = make_party()
    pair = suspended(partner)
    message = submit(partner, message_id="m-1@acme")
    trigger = admin.post("/triggers", {"name": "Queue", "kind": "pull", "ordered": False, **REASON})
    subscriptions.current.forget()
    partner.send(partner.message(1, "in-1@partner"))
    partner.send(partner.message(2, "in-2@partner"))
    partner.send(partner.message(3, "in-3@partner"))
    with link():
        work()
    partner.send(partner.message(7))  # refused: a rejection
    endpoint = admin.post("/webhook-endpoints", {"url": "http://127.0.0.1:9/", "types": ["message.accepted"]})

    submit(partner)
    credential = admin.post("/credentials", {"party": party.public_id, "direction": "inbound", "kind": "bearer"})
    token = admin.post("/tokens", {"name": "x", "scopes": ["pairs:read"]})
    version = message.agreement_version
    agreement = version.agreement
    head = f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    attempt = admin.get(f"/messages/{head}/transmissions").json["data"][0]["id"]
    rejection = admin.get("/rejections").json["data"][0]["id"]
    incident = admin.get("/incidents").json["data"][0]["id"]
    queue = trigger.json["id"]
    leased = admin.post(f"/triggers/{queue}/lease?include=payloads", {"limit": 3})
    first, second, third = leased.json["data"]
    failed = admin.post(f"/deliveries/{first['delivery']}/fail", {"claim": first["claim"], "detail": "No."})
    Delivery.objects.filter(pk=read_public_id("del", second["delivery"])).update(
        state="in_doubt", doubt="started_not_completed"
    )
    outbound = submit(partner_side(profile="repeatable"))
    Message.objects.filter(pk=outbound.pk).update(state="in_doubt", cause="outcome_unknown")
    job = admin.post(
        "/bulk-operations",
        {"action": "settle_deliveries", "decision": "duplicate", "ids": [second["delivery"]], **REASON},
    )
    v2 = admin.post(f"/agreements/{agreement.public_id}/versions", {})
    calls: list[tuple[str, str, dict[str, str], Answer]] = [
        ("post", "/webhook-endpoints", {}, endpoint),
        ("post", "/credentials", {}, credential),
        ("post", "/tokens", {}, token),
        ("post", "/agreements/{agreement_id}/versions", {}, v2),
        ("post", "/messages", {}, admin.submit(submission(partner))),
        ("post", "/triggers", {}, trigger),
        ("post", "/triggers/{trigger}/lease", {}, leased),
        ("post", "/deliveries/{delivery}/fail", {}, failed),
        ("post", "/bulk-operations", {}, job),
    ]
    for path, names in (
        ("/messages", {}),
        ("/messages/{message_id}", {"message_id": head}),
        ("/messages/{message_id}/transmissions", {"message_id": head}),
        ("/transmissions/{transmission_id}", {"transmission_id": attempt}),
        ("/messages/{message_id}/signals", {"message_id": head}),
        ("/messages/{message_id}/events", {"message_id": head}),
        ("/messages/{message_id}", {"message_id": "in-1@partner"}),
        ("/pairs", {}),
        ("/pairs/{pair}", {"pair": pair.code}),
        ("/parties", {}),
        ("/parties/{party_id}", {"party_id": party.public_id}),
        ("/endpoints", {}),
        ("/endpoints/{endpoint_id}", {"endpoint_id": version.own_endpoint.public_id}),
        ("/agreements", {}),
        ("/agreements/{agreement_id}", {"agreement_id": agreement.public_id}),
        ("/agreements/{agreement_id}/versions/{number}", {"agreement_id": agreement.public_id, "number": "1"}),
        ("/credentials", {}),
        ("/credentials/{credential_id}", {"credential_id": credential.json["id"]}),
        ("/events", {}),
        ("/triggers", {}),
        ("/triggers/{trigger}", {"trigger": queue}),
        ("/triggers/{trigger}/leases", {"trigger": queue}),
        ("/deliveries", {}),
        ("/deliveries/{delivery}", {"delivery": second["delivery"]}),
        ("/in-doubt", {}),
        ("/bulk-operations", {}),
        ("/bulk-operations/{job}", {"job": job.json["id"]}),
        ("/bulk-operations/{job}/items", {"job": job.json["id"]}),
        ("/memory", {}),
        ("/incidents", {}),
        ("/incidents/{incident}", {"incident": incident}),
        ("/rejections", {}),
        ("/rejections/{rejection_id}", {"rejection_id": rejection}),
        ("/webhook-endpoints", {}),
        ("/webhook-endpoints/{endpoint_id}", {"endpoint_id": endpoint.json["id"]}),
        ("/webhook-endpoints/{endpoint_id}/deliveries", {"endpoint_id": endpoint.json["id"]}),
        ("/audit-log", {}),
        ("/tokens", {}),
        ("/tokens/{token_id}", {"token_id": token.json["id"]}),
        ("/problems", {}),
        ("/problems/{code}", {"code": "not-found"}),
        ("/health", {}),
    ):
        calls.append(("get", path, names, admin.get(path.format(**names))))
    for path, names, body in (
        ("/deliveries/{delivery}/extend", {"delivery": third["delivery"]}, {"claim": third["claim"], "seconds": 60}),
        ("/deliveries/{delivery}/release", {"delivery": third["delivery"]}, {"claim": third["claim"]}),
        ("/deliveries/{delivery}/complete", {"delivery": third["delivery"]}, {"claim": third["claim"]}),
        ("/deliveries/{delivery}/settle", {"delivery": second["delivery"]}, {**REASON, "decision": "resubmit"}),
        ("/messages/{message_id}/settle", {"message_id": outbound.public_id}, {**REASON, "decision": "delivered"}),
        ("/bulk-operations/{job}/cancel", {"job": job.json["id"]}, REASON),
        ("/triggers/{trigger}/suspend", {"trigger": queue}, REASON),
        ("/triggers/{trigger}/rotate-secret", {"trigger": queue}, REASON),
    ):
        calls.append(("post", path, names, admin.post(path.format(**names), body, If_Match="*")))
    resumed = admin.post(f"/pairs/{pair.public_id}/resume", REASON, If_Match="*")
    calls.append(("post", "/pairs/{pair}/resume", {}, resumed))
    calls.append(("post", "/pairs/{pair}/resume", {}, admin.post(f"/pairs/{pair.public_id}/resume", REASON)))
    calls.append(("get", "/pairs/{pair}", {}, admin.get("/pairs/none")))
    empty = []
    for method, path, _, answer in calls:
        described = api_document["paths"][f"/api/v1{path}"][method]["responses"][str(answer.status)]
        media = answer.headers["content-type"].partition(";")[0]
        schema = _closed(described["content"][media]["schema"], api_document)
        check(api_document, schema, answer.json)
        if answer.status == 200 and isinstance(answer.json.get("data"), list) and not answer.json["data"]:
            empty.append(path)
    # Nothing is committed within a test's transaction: its events show only when others on the server commit meanwhile.
    assert set(empty) <= {"/events"}


def _closed(schema: dict[str, Any], api_document: dict[str, Any]) -> dict[str, Any]:
    """The schema, refusing members that it does not name (one level of reference deep is enough to notice)."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**schema, "unevaluatedProperties": False} if name else schema


def test_the_document_is_an_openapi_document(api_document: dict[str, Any]) -> None:
    assert api_document["openapi"].startswith("3.1")
    references = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            references.update([value["$ref"]] if "$ref" in value else [])
            for below in value.values():
                walk(below)
        elif isinstance(value, list):
            for below in value:
                walk(below)

    walk(api_document)
    for reference in references:
        place = api_document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    for name, schema in api_document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        if name.endswith("Request") and name != "WebhookBodyRequest":
            assert schema["additionalProperties"] is False
    committed = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
    assert committed == api_document


def test_the_guide_names_only_what_exists(api_document: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    patterns = [re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)) for path in api_document["paths"]]
    paths = set(re.findall(r"/api/v1/[\w/{}.-]*[\w}]", text))
    assert len(paths) > 8
    for path in paths:
        assert any(pattern.fullmatch(path) for pattern in patterns), path
    scopes = set(re.findall(r"`([a-z]+:[a-z]+)`", text))
    assert scopes == ADMIN_SCOPES
    for role, row in re.findall(r"^\| (viewer|operator|admin) \| (.+) \|$", text, re.MULTILINE):
        named = set(re.findall(r"`([a-z]+:[a-z]+)`", row))
        lower = {"viewer": set(), "operator": VIEWER_SCOPES, "admin": OPERATOR_SCOPES}[role]
        assert named == SCOPES_OF_ROLES[Role(role)] - lower, role
    parameters = {parameter["name"] for parameter in api_document["paths"]["/api/v1/messages"]["get"]["parameters"]} - {
        "limit",
        "cursor",
        "sort",
    }
    assert all(f"`{name}`" in text for name in parameters)
    assert set(re.findall(r"types=([\w.,]+)", text)[0].split(",")) <= set(TYPES)
    codes = {"idempotency_key_reused", "duplicate_message_id", "stale"}
    assert codes <= set(CODES) and all(f"`{code}`" in text for code in codes)
