"""Partners' logs by the API: handed in, compared, and what becomes of the findings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messaging.models import AuditEntry, Incident, PartnerLog, PipelineRun
from messaging.report_choices import PipelineJob, Verdict
from messaging.reports.services import partner_logs
from rmhub.ids import public_id
from tests.messaging.api.client import REASON, Answer, Api
from tests.messaging.factories import PartnerSide
from tests.messaging.reports.test_actions import differing, published
from tests.partners.factories import make_party

pytestmark = pytest.mark.django_db
LOG = b"message_id,direction,at\nm-1,in,2026-01-31T12:00:00Z\n"


def form(fields: dict[str, str], file: bytes | None = LOG, name: str = "march.csv") -> bytes:
    """A multipart body with the boundary x."""
    parts = [f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    body = "".join(parts).encode()
    if file is not None:
        head = (
            f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
        )
        body += head.encode() + file + b"\r\n"
    return body + b"--x--\r\n"


def send(api: Api, partner: PartnerSide, file: bytes | None = LOG, **fields: str) -> Answer:
    given = {"party": public_id("par", partner.terms.partner_id), **fields}
    return api.call("POST", "/partner-logs", form(given, file), Content_Type="multipart/form-data; boundary=x")


def test_a_log_is_handed_in_and_read_again(operator: Api, partner: PartnerSide) -> None:
    answer = send(operator, partner, range_from="2026-01-01T00:00:00Z", reason="January")
    assert answer.status == 201
    log = PartnerLog.objects.get()
    assert answer.headers["location"] == f"/api/v1/partner-logs/{log.public_id}"
    body = answer.json
    assert (body["id"], body["state"], body["format"], body["filename"]) == (
        log.public_id,
        "received",
        "csv",
        "march.csv",
    )
    assert (body["size"], body["source"], body["problems"], body["verdicts"]) == (len(LOG), "api", [], {})
    assert body["range_from"] == "2026-01-01T00:00:00Z" and body["run"] is None and body["report"] is None
    assert partner_logs.path_of(log).read_bytes() == LOG
    again = operator.get(f"/partner-logs/{log.public_id}")
    assert (again.status, again.json) == (200, body)
    repeated = send(operator, partner)
    assert (repeated.status, repeated.json["id"]) == (200, log.public_id)
    assert AuditEntry.objects.get(verb="partner_log.receive").reason == "January"
    listed = operator.get("/partner-logs", {"party": body["party"]["id"], "state": "received"}).json
    assert [one["id"] for one in listed["data"]] == [log.public_id]
    assert operator.get("/partner-logs", {"party": make_party().public_id}).json["data"] == []


@pytest.mark.parametrize(
    ("fields", "file", "pointer", "says"),
    [
        ({}, None, "#/file", "No file"),
        ({}, b"", "#/file", "empty"),
        ({}, b"a,b\n1,2\n", "#/columns", "no column message_id. Its columns are a, b: map one of them"),
        ({"columns": "{"}, LOG, "#/columns", "not JSON"),
        ({"columns": "[]"}, LOG, "#/columns", "object"),
        ({"columns": '{"colour": "x"}'}, LOG, "#/columns/colour", "no such member"),
        ({"columns": '{"message_id": "id"}'}, LOG, "#/columns", "direction: name its column"),
        ({"columns": '{"message_id": "id", "direction": "direction"}'}, LOG, "#/columns", "no column id"),
        ({"party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, LOG, "#/party", "no such party"),
        ({"agreement": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, LOG, "#/agreement", "no such agreement"),
        ({"range_from": "yesterday"}, LOG, "#/range_from", "with its zone"),
        ({"colour": "red"}, LOG, "#/colour", "no such member"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    operator: Api, partner: PartnerSide, fields: dict[str, str], file: bytes | None, pointer: str, says: str
) -> None:
    answer = send(operator, partner, file, **fields)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert any(one["pointer"] == pointer and says in one["detail"] for one in answer.json["errors"]), answer.json
    assert not PartnerLog.objects.exists()


def test_too_large_a_log_is_refused_by_its_length_and_by_its_octets(
    operator: Api, partner: PartnerSide, settings: Any
) -> None:
    settings.RMHUB_PARTNER_LOG_MAX_BYTES = 1024
    assert send(operator, partner, LOG * 40).code == "body_too_large"
    assert send(operator, partner, LOG * 40_000).code == "body_too_large"
    assert operator.post("/partner-logs", {"party": "x"}).status == 422
    assert not PartnerLog.objects.exists()


def test_a_log_is_compared_with_the_mapping_that_is_given(operator: Api, partner: PartnerSide) -> None:
    mapping = {"message_id": "Id", "direction_is": "sent", "digest_of": "payload", "sent_values": ["TX"]}
    sent = send(operator, partner, b"Id\nm-1\n", columns=json.dumps({"message_id": "Id", "direction_is": "received"}))
    path = f"/partner-logs/{sent.json['id']}"
    answer = operator.post(
        f"{path}/reconcile",
        {"columns": mapping, "range_from": "2026-01-01T00:00:00Z", "range_to": "2026-02-01T00:00:00Z", "reason": "q1"},
    )
    run = PipelineRun.objects.get()
    assert (answer.status, answer.json["id"]) == (202, run.public_id)
    assert answer.headers["location"] == f"/api/v1/pipeline-runs/{run.public_id}"
    assert (run.job, run.scope, run.parameters["skip_unreadable"]) == ("reconcile", sent.json["id"], False)
    read = operator.get(path).json
    assert (read["columns"], read["run"]["id"]) == (mapping, run.public_id)
    assert (read["range_from"], read["range_to"]) == ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    assert operator.post(f"{path}/reconcile", {}).code == "wrong_state"
    assert operator.post(f"{path}/reconcile", {"columns": {"message_id": "x", "direction_is": "sent"}}).status == 422
    assert operator.post("/partner-logs/plog_x/reconcile", {}).code == "not_found"


def test_findings_become_incidents(operator: Api, partner: PartnerSide) -> None:
    log = PartnerLog.objects.get(
        pk=partner_logs.log_receive(
            party_id=partner.terms.partner_id, chunks=[LOG], filename="l.csv", actor=partner_logs.Actor("ana")
        ).log.pk
    )
    path = f"/partner-logs/{log.public_id}/incidents"
    assert operator.post(path, REASON).code == "wrong_state"
    run = published(PipelineJob.RECONCILE, log.public_id)
    differing(run, partner.outbound, Verdict.LOST, "a", "b")
    answer = operator.post(path, {**REASON, "verdicts": ["lost"], "run": run.public_id})
    incident = Incident.objects.get()
    assert (answer.status, answer.json["known"], answer.json["run"]) == (200, 0, run.public_id)
    (made,) = answer.json["incidents"]
    assert (made["id"], made["cause"], made["pair"]) == (
        incident.public_id,
        "reconciliation_lost",
        partner.outbound.code,
    )
    assert operator.post(path, REASON).json["known"] == 1
    assert operator.post(path, {}).status == operator.post(path, {**REASON, "verdicts": ["x"]}).status == 422
    assert operator.get(f"/partner-logs/{log.public_id}").json["report"].endswith(f"?scope={log.public_id}")


def test_the_agreement_says_how_the_columns_are_called(admin: Api, partner: PartnerSide) -> None:
    path = f"/agreements/{public_id('agr', partner.terms.agreement_id)}"
    before = admin.get(path)
    assert before.json["log_columns"] == {}
    mapping = {"message_id": "Id", "direction": "Way", "sent_values": ["TX"]}
    changed = admin.patch(path, {"log_columns": mapping, **REASON}, If_Match=before.etag)
    assert (changed.status, changed.json["log_columns"]) == (200, mapping)
    entry = AuditEntry.objects.get(verb="agreement.update")
    assert (entry.before["log_columns"], entry.after["log_columns"]) == ({}, mapping)
    assert admin.patch(path, {"log_columns": {}}, If_Match=before.etag).code == "stale"
    wrong = admin.patch(path, {"log_columns": {"message_id": "Id"}}, If_Match="*")
    assert (wrong.status, wrong.json["errors"][0]["pointer"]) == (422, "#/log_columns")
    assert admin.patch(path, {"log_columns": {"x": "y"}}, If_Match="*").status == 422
    sent = send(admin, partner, b"Way,Id\nTX,m-1\n")
    assert (sent.status, sent.json["columns"]) == (201, mapping)
