"""Reports by the API: which there are, their rows as pages and files, and what becomes of them."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from messaging.models import AuditFinding, Incident, PipelineRun, ServiceLevel
from messaging.report_choices import PipelineJob
from messaging.reports.catalogue import REPORTS
from partners.models import AgreementVersion
from rmhub.ids import public_id
from tests.messaging.api.client import REASON, Api
from tests.messaging.factories import PartnerSide
from tests.messaging.reports.test_actions import advised, published

pytestmark = pytest.mark.django_db
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def audit(partner: PartnerSide) -> PipelineRun:
    """An audit with five findings."""
    run = published(PipelineJob.AUDIT)
    pair = partner.outbound
    for number, kind in enumerate(("gap", "gap", "repeat", "reset", "bridge")):
        AuditFinding.objects.create(
            run=run,
            kind=kind,
            violation=kind in ("gap", "repeat"),
            pair_id=pair.pk,
            pair=pair.code,
            partner="=Globex",
            first_number=number,
            count=1,
            message_ids=[f"m-{number}"],
            at=AT,
        )
    return run


def test_all_reports_are_listed_also_before_they_were_made(viewer: Api) -> None:
    listed = viewer.get("/reports").json["data"]
    assert [one["job"] for one in listed] == list(REPORTS)
    assert all(one["run"] is None for one in listed)
    (audit, *_) = listed
    (findings, _) = audit["tables"]
    assert findings["filters"] == ["kind", "pair", "partner"]
    columns = {column["name"]: column for column in findings["columns"]}
    assert columns["violation"]["kind"] == "boolean" and columns["message_ids"]["kind"] == "ids"
    assert columns["kind"]["choices"]["gap"] == "Gap in the sequence"
    assert viewer.get(findings["href"].removeprefix("/api/v1")).code == "not_found"


def test_a_report_says_where_its_numbers_come_from(viewer: Api, audit: PipelineRun) -> None:
    shown = viewer.get("/reports/audit").json
    assert (shown["run"]["id"], shown["earlier"][0]["id"]) == (audit.public_id, audit.public_id)
    assert viewer.get("/reports/nothing").code == "not_found"
    assert viewer.get("/reports/reconcile").code == "invalid_parameter"
    assert viewer.get("/reports/reconcile", {"scope": "plog_x"}).json["run"] is None
    assert viewer.get("/reports/audit", {"run": "run_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}).code == "not_found"


def test_rows_page_by_key_and_filter_strictly(viewer: Api, audit: PipelineRun) -> None:
    path = "/reports/audit/findings"
    first = viewer.get(path, {"limit": "2", "sort": "-first_number"})
    assert [row["first_number"] for row in first.json["data"]] == [4, 3]
    assert first.json["run"]["id"] == audit.public_id
    row = first.json["data"][0]
    assert (row["at"], row["message_ids"], row["violation"]) == ("2026-01-31T12:00:00Z", ["m-4"], False)
    assert 'rel="next"' in first.headers["link"]
    second = viewer.get(path, {"limit": "2", "sort": "-first_number", "cursor": first.json["next_cursor"]}).json
    assert [row["first_number"] for row in second["data"]] == [2, 1]
    back = viewer.get(path, {"limit": "2", "sort": "-first_number", "cursor": second["prev_cursor"]}).json
    assert back["data"] == first.json["data"]
    gaps = viewer.get(path, {"kind": "gap", "violation": "true"}).json["data"]
    assert [row["first_number"] for row in gaps] == [0, 1]
    for query, code in (
        ({"colour": "red"}, "unknown_parameter"),
        ({"verdict": "lost"}, "unknown_parameter"),
        ({"kind": "hole"}, "invalid_parameter"),
        ({"violation": "maybe"}, "invalid_parameter"),
        ({"sort": "message_ids"}, "invalid_parameter"),
        ({"sort": "-nothing"}, "invalid_parameter"),
        ({"kind": "gap", "cursor": first.json["next_cursor"]}, "cursor_mismatch"),
        ({"cursor": "xyz"}, "invalid_cursor"),
    ):
        assert viewer.get(path, query).code == code, query
    assert viewer.get("/reports/audit/nothing").code == "not_found"


def test_a_cursor_belongs_to_its_run(viewer: Api, audit: PipelineRun) -> None:
    path = "/reports/audit/findings"
    cursor = viewer.get(path, {"limit": "2"}).json["next_cursor"]
    newer = published(PipelineJob.AUDIT)
    assert viewer.get(path, {"limit": "2", "cursor": cursor}).code == "cursor_mismatch"
    kept = viewer.get(path, {"limit": "2", "run": audit.public_id, "cursor": cursor})
    assert (kept.status, len(kept.json["data"])) == (200, 2)
    assert viewer.get(path).json["run"]["id"] == newer.public_id


def test_a_table_as_csv(viewer: Api, audit: PipelineRun) -> None:
    path = "/reports/audit/findings"
    by_parameter = viewer.get(path, {"format": "csv", "kind": "gap"})
    by_header = viewer.get(path, {"kind": "gap"}, Accept="text/csv")
    for answer in (by_parameter, by_header):
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"] == 'attachment; filename="audit-findings.csv"'
        assert answer.headers["rm-run"] == audit.public_id
        lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
        assert [line["first_number"] for line in lines] == ["0", "1"]
        assert lines[0]["partner"] == "'=Globex" and lines[0]["message_ids"] == '["m-0"]'
    assert viewer.get(path, Accept="image/png").code == "not_acceptable"
    assert viewer.get(path, {"format": "xlsx"}).code == "invalid_parameter"


def test_a_table_as_parquet_is_the_file_of_the_run(viewer: Api, audit: PipelineRun, settings: Any) -> None:
    place = Path(settings.RMHUB_LAKE_DIR) / "reports" / "findings.parquet"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"PAR1...PAR1")
    audit.artifacts = [
        {"name": "findings.parquet", "path": "reports/findings.parquet", "rows": 5, "bytes": 11, "sha256": "0" * 64}
    ]
    audit.save()
    path = "/reports/audit/findings"
    answer = viewer.get(path, {"format": "parquet"})
    assert (answer.status, answer.content) == (200, b"PAR1...PAR1")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-disposition"] == 'attachment; filename="audit-findings.parquet"'
    assert viewer.get(path, Accept="application/vnd.apache.parquet").content == answer.content
    assert viewer.get(path, {"format": "parquet", "kind": "gap"}).code == "invalid_parameter"


def test_the_row_about_all_partners_has_a_name_in_filters(viewer: Api) -> None:
    run = published(PipelineJob.LEVELS)
    numbers = dict.fromkeys(
        (
            "messages",
            "bytes",
            "succeeded",
            "failed",
            "in_doubt",
            "under_way",
            "attempts",
            "duplicates",
            "suspensions",
            "resumed",
        ),
        1,
    )
    for partner in ("", "Globex"):
        ServiceLevel.objects.create(run=run, grain="total", partner=partner, direction="out", **numbers)
    rows = viewer.get("/reports/levels/levels", {"partner": "*"}).json["data"]
    assert [row["partner"] for row in rows] == [""]
    assert len(viewer.get("/reports/levels/levels").json["data"]) == 2


def test_findings_of_the_audit_become_incidents(operator: Api, audit: PipelineRun) -> None:
    answer = operator.post("/reports/audit/incidents", {**REASON, "kinds": ["gap"], "run": audit.public_id})
    assert (answer.status, Incident.objects.get().cause) == (200, "audit_gap")
    assert answer.json["incidents"][0]["detail"].startswith("2 found: m-0, m-1.")
    assert operator.post("/reports/audit/incidents", {**REASON, "kinds": ["reset"]}).status == 422
    newer = published(PipelineJob.AUDIT)
    again = operator.post("/reports/audit/incidents", {**REASON, "run": audit.public_id})
    assert again.code == "wrong_state" and newer.public_id in again.json["detail"]


def test_advised_times_become_a_draft(admin: Api, operator: Api, partner: PartnerSide) -> None:
    path = f"/agreements/{public_id('agr', partner.terms.agreement_id)}/timing-draft"
    assert operator.post(path, {}).code == "missing_scope"
    assert admin.post(path, {}).code == "wrong_state"
    run = advised(partner)
    answer = admin.post(path, {"run": run.public_id, "reason": "go"})
    assert answer.status == 201
    assert answer.headers["location"].endswith("/versions/2") and answer.etag
    assert (answer.json["state"], answer.json["timeout"], answer.json["retries"]) == ("draft", 20, 4)
    assert run.public_id in answer.json["note"]
    read = admin.get(answer.headers["location"].removeprefix("/api/v1"))
    assert read.etag == answer.etag
    again = admin.post(path, {})
    assert again.code == "wrong_state" and "a draft already" in again.json["detail"]
    assert AgreementVersion.objects.count() == 2
    assert admin.post("/agreements/agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7/timing-draft", {}).code == "not_found"
