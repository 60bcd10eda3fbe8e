"""Runs of the pipeline by the API."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from messaging.models import AuditEntry, PipelineRun
from messaging.report_choices import RunState
from rmhub import clock
from rmhub.ids import public_id
from tests.messaging.api.client import REASON, Api
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db


def test_a_run_is_asked_for_followed_and_cancelled(operator: Api) -> None:
    body = {"job": "audit", "range_from": "2026-01-01T00:00:00Z", "extract": False, "reason": "q1"}
    answer = operator.post("/pipeline-runs", body)
    run = PipelineRun.objects.get()
    assert (answer.status, answer.headers["location"]) == (202, f"/api/v1/pipeline-runs/{run.public_id}")
    (made,) = answer.json["data"]
    assert (made["id"], made["state"], made["parameters"]) == (run.public_id, "queued", {"extract": False})
    assert (made["range_from"], made["range_to"]) == ("2026-01-01T00:00:00Z", None)
    assert operator.post("/pipeline-runs", body).code == "wrong_state"
    read = operator.get(f"/pipeline-runs/{run.public_id}")
    assert (read.status, read.json["percent"], read.json["unclaimed"]) == (200, None, False)
    cancelled = operator.post(f"/pipeline-runs/{run.public_id}/cancel", {"reason": "wrong range"})
    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert operator.post(f"/pipeline-runs/{run.public_id}/cancel", {}).code == "wrong_state"
    assert AuditEntry.objects.get(verb="pipeline.cancel").reason == "wrong range"
    assert operator.get("/pipeline-runs/run_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7").code == "not_found"


def test_all_queues_the_extract_and_every_report(operator: Api) -> None:
    answer = operator.post("/pipeline-runs", {"job": "all"})
    jobs = [one["job"] for one in answer.json["data"]]
    assert jobs[0] == "extract" and {"audit", "levels", "window", "timing"} <= set(jobs)
    listed = operator.get("/pipeline-runs", {"job": "audit,levels", "state": "queued", "limit": "1"}).json
    assert len(listed["data"]) == 1 and listed["has_more"]
    following = operator.get(
        "/pipeline-runs", {"job": "audit,levels", "state": "queued", "limit": "1", "cursor": listed["next_cursor"]}
    ).json
    assert {listed["data"][0]["job"], following["data"][0]["job"]} == {"audit", "levels"}
    assert operator.get("/pipeline-runs", {"state": "lost"}).code == "invalid_parameter"


def test_an_export_of_our_log(operator: Api, partner: PartnerSide) -> None:
    party = public_id("par", partner.terms.partner_id)
    answer = operator.post("/pipeline-runs", {"job": "export", "party": party, "range_to": "2026-02-01T00:00:00Z"})
    run = PipelineRun.objects.get()
    assert (answer.status, run.job, run.scope, run.parameters) == (202, "export", party, {"party": party})
    assert operator.post("/pipeline-runs", {"job": "export", "party": party}).code == "wrong_state"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"job": "reconcile"}, "#/job"),
        ({"job": "restore"}, "#/job"),
        ({"job": "nothing"}, "#/job"),
        ({}, "#/job"),
        ({"job": "export"}, "#/party"),
        ({"job": "export", "party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "#/party"),
        ({"job": "audit", "party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7"}, "#/party"),
        ({"job": "all", "extract": True}, "#/extract"),
        ({"job": "extract", "range_from": "2026-01-01T00:00:00Z"}, "#/from"),
        ({"job": "audit", "range_from": "2026-01-02T00:00:00Z", "range_to": "2026-01-01T00:00:00Z"}, "#/to"),
        ({"job": "audit", "colour": 1}, "#/colour"),
    ],
)
def test_what_a_job_does_not_take_is_refused(operator: Api, body: dict[str, Any], pointer: str) -> None:
    answer = operator.post("/pipeline-runs", body)
    assert (answer.status, answer.code) == (422, "invalid_submission")
    assert pointer in [one["pointer"] for one in answer.json["errors"]]
    assert not PipelineRun.objects.exists()


def test_files_of_a_run_are_downloaded(viewer: Api, settings: Any) -> None:
    content = b"message_id\nm-1\n"
    place = Path(settings.RMHUB_LAKE_DIR) / "reports" / "log.csv"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    run = PipelineRun.objects.create(
        job="export",
        state=RunState.SUCCEEDED,
        requested_by="ana",
        interface="api",
        created_at=clock.now(),
        artifacts=[
            {"name": "log.csv", "path": "reports/log.csv", "rows": 1, "bytes": len(content), "sha256": digest},
            {"name": "gone.csv", "path": "reports/gone.csv", "rows": 1, "bytes": 1, "sha256": digest},
            {"name": "out.csv", "path": "../../etc/passwd", "rows": 1, "bytes": 1, "sha256": digest},
        ],
    )
    (one, *_) = viewer.get(f"/pipeline-runs/{run.public_id}").json["artifacts"]
    assert one == {
        "name": "log.csv",
        "rows": 1,
        "bytes": len(content),
        "sha256": digest,
        "href": f"/api/v1/pipeline-runs/{run.public_id}/artifacts/log.csv",
    }
    got = viewer.get(one["href"].removeprefix("/api/v1"), Accept="text/csv")
    assert (got.status, got.content) == (200, content)
    assert got.headers["content-type"] == "text/csv; charset=utf-8"
    assert got.headers["content-disposition"] == 'attachment; filename="log.csv"'
    assert got.headers["x-content-type-options"] == "nosniff" and "sandbox" in got.headers["content-security-policy"]
    for name in ("gone.csv", "out.csv", "other.csv"):
        assert viewer.get(f"/pipeline-runs/{run.public_id}/artifacts/{name}").code == "not_found"
    assert viewer.post(f"/pipeline-runs/{run.public_id}/cancel", REASON).code == "missing_scope"
