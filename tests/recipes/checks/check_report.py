"""A made-up report is listed, asked for, published, shown and handed out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from django.http import StreamingHttpResponse
from django.test import Client
from django.urls import reverse

from messaging.journal.audit import Actor
from messaging.pipeline import driver
from messaging.pipeline.submitted import JOBS
from messaging.reports.services import runs
from rmhub import clock
from tests.messaging.api.client import REASON, Api

pytestmark = pytest.mark.django_db


def test_it_is_listed_and_asked_for(admin: Api, browser: Client, openapi: dict[str, Any]) -> None:
    (listed,) = [one for one in admin.get("/reports").json["data"] if one["job"] == "sizes"]
    (table,) = listed["tables"]
    assert {column["name"]: column["description"] for column in table["columns"]}["bytes"] == "Of all of them."
    assert "How large are messages?" in browser.get(reverse("console:reports")).content.decode()
    page = browser.get(reverse("console:report", args=["sizes"])).content.decode()
    assert "This report has not been run yet." in page
    assert "Sizes of messages" in browser.get(reverse("console:pipeline-start")).content.decode()
    assert admin.post("/pipeline-runs", {"job": "sizes", **REASON}).status == 202
    assert (set(JOBS), "sizes" in runs.ALL) == (set(driver.JOBS), True)


@pytest.mark.django_db(transaction=True)  # the pulse of a run looks at it over a connection of its own
def test_it_is_published_and_shown(admin: Api, browser: Client) -> None:
    asked = runs.run_request(job="sizes", actor=Actor("ann"), parameters={"extract": False})
    run = runs.claim_run(asked.pk, worker="here:1")
    assert run is not None
    rows = pa.table({"direction": ["in", "out"], "messages": [2, 3], "bytes": [20, 3_000_000]})
    assert driver.execute(run, perform=lambda context: _publish(context, rows)), _error(run)
    page = browser.get(reverse("console:report", args=["sizes"])).content.decode()
    assert "Inbound" in page
    (first, second) = admin.get("/reports/sizes/sizes").json["data"]
    assert (first["direction"], first["messages"], second["bytes"]) == ("in", 2, 3_000_000)
    file = browser.get(reverse("console:report-download", args=["sizes", "sizes", "csv"]))
    assert isinstance(file, StreamingHttpResponse)
    assert file.getvalue().decode().splitlines()[1:] == ["in,2,20", "out,3,3000000"]


def _publish(context: driver.Context, rows: pa.Table) -> None:
    context.publish({"sizes": rows}, data_as_of=clock.now())


def _error(run: Any) -> str:
    run.refresh_from_db()
    return f"{run.error}\n{run.error_detail}"
