"""Looks at pairs by the API: timeline, queue, sequence, diagnosis, probes; settings; resume with one message first."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Message, Pair, ProbeReport
from messaging.pairs.services import probing
from partners import visibility
from rmhub.roles import Role
from tests.messaging.api.client import REASON, Api, make_token, make_user, suspended
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db


def path_of(pair: Pair, rest: str = "") -> str:
    return f"/pairs/{pair.public_id}{rest}"


def test_the_timeline_has_the_rows_of_the_diagram(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    found = admin.get(path_of(pair, "/timeline")).json
    kinds = [(step["kind"], step["source"], step["target"], step["outcome"]) for step in found["steps"]]
    assert kinds[0] == ("message", "app", "hub", "arrived")
    assert ("message", "hub", "partner", "arrived") in kinds and ("answer", "partner", "hub", "refused") in kinds
    assert found["about"] == f"msg_{pair.in_flight_id.hex}"  # type: ignore[union-attr]
    assert not found["folded"] and not found["cut"]
    failed = admin.get(path_of(pair, "/timeline?failed=true&scope=day")).json
    assert failed["failed_only"] and {step["kind"] for step in failed["steps"]} == {"answer", "mark"}
    message = admin.get(f"/messages/{found['about']}/timeline").json
    assert [step["kind"] for step in message["steps"]] == [step["kind"] for step in found["steps"]]
    by_its_own = Message.objects.get(pk=pair.in_flight_id).message_id
    assert admin.get(f"/messages/{by_its_own}/timeline").json == message
    assert admin.get("/messages/none@acme/timeline").status == 404
    assert admin.get(path_of(pair, "/timeline?scope=year")).code == "invalid_parameter"


def test_the_queue_goes_on_by_key(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    waiting = [submit(partner).public_id for _ in range(3)]
    seen: list[str] = []
    path = path_of(pair, "/queue?limit=2")
    while path:
        page = admin.get(path).json
        seen += [row["id"] for row in page["data"]]
        path = path_of(pair, f"/queue?limit=2&cursor={page['next_cursor']}") if page["next_cursor"] else ""
    assert seen == waiting


def test_the_sequence_names_what_blocks(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    submit(partner)
    found = admin.get(path_of(pair, "/sequence")).json
    assert (found["applies"], found["next_number"], found["waiting"], found["gaps"]) == (True, 2, 1, [])
    assert [(cell["number"], cell["state"]) for cell in found["messages"]] == [(1, "blocking"), (2, "waiting")]


def test_the_diagnosis_says_what_changed(admin: Api, partner: PartnerSide) -> None:
    found = admin.get(path_of(suspended(partner), "/diagnosis")).json
    assert found["state"] == "suspended" and found["sentence"].startswith("Suspended")
    assert found["changed_since_last_success"] == []


def test_resuming_with_one_message_first(operator: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    etag = operator.get(path_of(pair)).etag
    answer = operator.post(path_of(pair, "/resume"), {**REASON, "mode": "probe"}, If_Match=etag)
    assert answer.status == 200 and answer.json["probing"] is True
    assert AuditEntry.objects.get(verb="pair.resume").after["mode"] == "probe"
    wrong = operator.post(path_of(pair, "/resume"), {**REASON, "mode": "slowly"}, If_Match=answer.etag)
    assert wrong.status == 422 and wrong.json["errors"][0]["pointer"] == "#/mode"


def test_settings_are_changed_with_if_match(operator: Api, partner: PartnerSide) -> None:
    pair = partner.outbound
    body: dict[str, Any] = {**REASON, "expected_every": 3600, "runbook": "Call **Bob**"}
    assert operator.patch(path_of(pair), body).code == "precondition_required"
    etag = operator.get(path_of(pair)).etag
    answer = operator.patch(path_of(pair), body, If_Match=etag)
    assert (answer.status, answer.json["expected_every"], answer.json["runbook"]) == (200, 3600, "Call **Bob**")
    assert operator.patch(path_of(pair), body, If_Match=etag).code == "stale"
    assert (
        operator.patch(path_of(pair), {**REASON, "silence_grace": 60}, If_Match=answer.etag).json["runbook"]
        == "Call **Bob**"
    )
    short = operator.patch(path_of(pair), {**REASON, "expected_every": 5}, If_Match="*")
    assert short.json["errors"][0]["pointer"] == "#/expected_every"
    assert (
        operator.patch(path_of(pair), {**REASON, "flow": "idle"}, If_Match="*").json["errors"][0]["code"]
        == "unknown_field"
    )


def test_a_ping_is_kept_and_listed(operator: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    made = operator.post(path_of(pair, "/ping"), {}).json
    assert (made["ok"], made["cause"], made["pair"]) == (False, "dns_error", pair.public_id)
    assert [(step["name"], step["verdict"]) for step in made["steps"]] == [("dns", "failed")]
    assert operator.get(f"/probes/{made['id']}").json == made
    assert [row["id"] for row in operator.get(f"/probes?pair={pair.public_id}").json["data"]] == [made["id"]]
    assert operator.get(f"/probes?endpoint={made['endpoint']}").json["data"][0]["id"] == made["id"]
    assert operator.get("/probes/prb_" + "0" * 32).code == "not_found"


def test_what_waits_comes_as_a_zip(operator: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    submit(partner)
    answer = operator.get(path_of(pair, "/waiting.zip"))
    assert answer.headers["content-type"] == "application/zip"
    assert len(zipfile.ZipFile(io.BytesIO(answer.content)).namelist()) == 3
    head = operator.get(path_of(pair, "/waiting.zip?which=head"))
    assert len(zipfile.ZipFile(io.BytesIO(head.content)).namelist()) == 2
    other = partner_side().outbound
    assert operator.get(path_of(other, "/waiting.zip")).code == "wrong_state"
    viewer = Api(make_token(make_user(Role.VIEWER)))
    assert viewer.get(path_of(pair, "/waiting.zip")).json["required_scope"] == "payloads:read"


def test_skipping_wants_a_reason_that_says_something(admin: Api, partner: PartnerSide) -> None:
    pair = suspended(partner)
    answer = admin.post(path_of(pair, "/skip-head"), {"reason": "poison"}, If_Match="*")
    assert answer.status == 422 and answer.json["errors"][0]["pointer"] == "#/reason"
    assert Message.objects.get(pk=pair.in_flight_id).state == "failed"


def test_probes_of_others_are_not_shown(partner: PartnerSide) -> None:
    from messaging.pairs.selectors import circuits

    probing.ping(pair_id=partner.outbound.pk, actor=Actor("ann"))
    with visibility.only(frozenset()):
        assert list(circuits.probes()) == []
    assert ProbeReport.objects.count() == len(circuits.probes()) == 1
