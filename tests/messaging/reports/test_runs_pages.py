"""Pages of the pipeline's runs: what waits, what runs and how far it is, what was made of what; start and cancel."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from lxml import html

from messaging.models import AuditEntry, LakeFile, LakeState, PipelineRun
from messaging.reports.services import runs as pipeline_runs
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.reports import report_scenes as scenes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("time")]


def _page(url: str, role: Role = Role.VIEWER) -> html.HtmlElement:
    answer = browser(role).get(url)
    assert answer.status_code == 200, answer.content[:2000]
    return html.fromstring(answer.content)


def _rows(page: html.HtmlElement) -> list[list[str]]:
    found = page.xpath("//tr[@data-testid='run-row']")
    return [[" ".join(cell.text_content().split()) for cell in row.xpath("./td")] for row in found]


def _text(page: html.HtmlElement, testid: str) -> str:
    found = page.xpath(f"//*[@data-testid='{testid}']")
    return " ".join(found[0].text_content().split()) if found else ""


def test_runs_are_listed_with_how_they_went() -> None:
    scenes.publish("audit", scenes.audit_rows())
    scenes.failed("timing", "Out of memory.")
    pipeline_runs.run_cancel(run_id=scenes.queued("window").pk, actor=scenes.OLGA)
    running = scenes.claimed(scenes.queued("levels"))
    pipeline_runs.heartbeat(running, "Reading messages", 30, 120)
    scenes.queued("extract")
    found = _rows(_page("/pipeline/"))
    assert [row[1:4] for row in found] == [
        ["Waiting", "Extract to the lake", "—"],
        ["Running", "Service levels", "25 % Reading messages"],
        ["Cancelled", "Memory window", "—"],
        ["Failed", "Timing advice", "Out of memory."],
        ["Succeeded", "Exactly-once audit", "18 rows"],
    ]
    assert [row[2] for row in _rows(_page("/pipeline/?state=failed"))] == ["Timing advice"]
    assert [row[2] for row in _rows(_page("/pipeline/?job=extract"))] == ["Extract to the lake"]
    assert len(_rows(_page("/pipeline/?state=nonsense&job=nonsense"))) == 5
    assert "No run matches." in _page("/pipeline/?job=archive").text_content()


def test_a_run_that_nobody_takes_is_told_with_what_to_start(time: FrozenClock) -> None:
    run = scenes.queued("extract")
    assert not _text(_page("/pipeline/"), "idle")
    time.move(40)
    assert "manage.py pipeline serve" in _text(_page("/pipeline/"), "idle")
    assert "manage.py pipeline serve" in _text(_page(f"/pipeline/{run.public_id}/"), "idle")


def test_the_list_says_what_the_lake_holds() -> None:
    assert "The lake is empty." in _page("/pipeline/").text_content()
    LakeState.objects.update_or_create(pk=1, defaults={"generation": 3, "extracted_through": 4711})
    LakeFile.objects.create(
        generation=3,
        entity="events",
        day=scenes.LAST.date(),
        path="x",
        schema_version=1,
        rows=1_234_567,
        bytes=3 << 20,
        sha256="",
        from_xid=0,
        to_xid=4711,
        created_at=scenes.LAST,
    )
    text = _page("/pipeline/").text_content()
    assert "generation 3, transactions below 4,711" in text
    assert "1,234,567" in text
    assert "3.0 MiB" in text


def test_a_running_run_shows_its_step_and_lets_an_operator_cancel_it() -> None:
    run = scenes.claimed(scenes.queued("audit"))
    pipeline_runs.heartbeat(run, "Reading messages of 2026-02-12", 1240, 12_431)
    page = _page(f"/pipeline/{run.public_id}/", Role.OPERATOR)
    assert "Reading messages of 2026-02-12" in _text(page, "run")
    assert "1,240 of 12,431 in this step, 9 %." in _text(page, "run")
    assert page.xpath("//progress[@value='9'][@max='100']")
    assert page.xpath("//*[@id='live-run']/@hx-trigger") == ["every 2s"]
    assert page.xpath("//a[@data-testid='run-cancel']")
    viewer = _page(f"/pipeline/{run.public_id}/")
    assert not viewer.xpath("//a[@data-testid='run-cancel']")
    assert "Needs the role operator." in _text(viewer, "run")


def test_a_run_that_has_ended_shows_its_lineage_and_files_and_polls_no_more() -> None:
    run = scenes.publish("audit", scenes.audit_rows(), files=True, end=datetime(2026, 2, 1, tzinfo=UTC))
    page = _page(f"/pipeline/{run.public_id}/")
    text = page.text_content()
    assert "18 rows published" in _text(page, "run")
    assert not page.xpath("//*[@id='live-run']/@hx-get")
    assert "before 2026-02-01 00:00" in text
    for known in ("4,402,118", "transactions below 4,812,377", "3fa91c20be77", "local[*]", "hub-1:4711", "5.82 s"):
        assert known in text, known
    assert page.xpath(f"//a[@data-testid='run-report'][@href='/reports/audit/?run={run.public_id}']")
    files = page.xpath("//a[contains(@href, '/files/')]/@href")
    assert files == [f"/pipeline/{run.public_id}/files/{name}.parquet" for name in ("findings", "pairs")]
    answer = browser(Role.VIEWER).get(files[0])
    assert answer.getvalue() == b"PAR1findings"
    assert browser(Role.VIEWER).get(f"/pipeline/{run.public_id}/files/nonsense").status_code == 404


def test_an_extract_shows_what_it_took_up() -> None:
    run = scenes.claimed(scenes.queued("extract"))
    entities = {"events": 1204, "messages": 300, "pairs": 8}
    pipeline_runs.run_succeed(
        run, rows=1512, facts={"entities": entities, "generation": 1, "through_xid": 99, "batches": 3}
    )
    page = _page(f"/pipeline/{run.public_id}/")
    assert "1,512 rows written" in _text(page, "run")
    assert "Rows extracted" in _text(page, "inputs")
    assert "Events—1,204—" in _text(page, "inputs")
    assert '"batches": 3' in page.text_content()


def test_facts_of_any_shape_are_no_error() -> None:
    for number, facts in enumerate(({}, {"entities": None, "seconds": None}, {"restored": ["msg_1"], "notes": []})):
        run = scenes.claimed(scenes.queued("export", scope=f"s{number}"))
        pipeline_runs.run_succeed(run, facts=facts)
        assert "It is done" in _text(_page(f"/pipeline/{run.public_id}/"), "run")


def test_a_failed_run_says_why_and_that_nothing_was_published() -> None:
    run = scenes.failed("audit", "Out of memory.")
    page = _page(f"/pipeline/{run.public_id}/")
    assert "Out of memory." in _text(page, "run")
    assert "what was shown before is still shown" in _text(page, "run")
    assert "java.lang.OutOfMemoryError" in page.xpath("//details//pre")[0].text_content()
    assert not page.xpath("//a[@data-testid='run-report']")


def test_a_bare_uuid_leads_to_the_run_and_so_does_the_search() -> None:
    run = scenes.queued("extract")
    client = browser(Role.VIEWER)
    assert client.get(f"/pipeline/{run.pk}/")["Location"] == f"/pipeline/{run.public_id}/"
    assert client.get(f"/go?q={run.public_id}")["Location"] == f"/pipeline/{run.public_id}/"
    assert client.get("/pipeline/nonsense/").status_code == 404
    assert client.get(f"/pipeline/run_{'0' * 32}/").status_code == 404


def test_a_run_is_started_with_its_range() -> None:
    client = browser(Role.OPERATOR, "olga")
    form = html.fromstring(client.get("/pipeline/run/?job=window").content)
    assert form.xpath("//select[@name='job']/option[@selected]/@value") == ["window"]
    posted = {"job": "window", "from": "2026-01-01", "to": "2026-01-31", "reason": "quarter"}
    answer = client.post("/pipeline/run/", posted)
    run = PipelineRun.objects.get()
    assert answer.status_code == 303
    assert answer["Location"] == f"/pipeline/{run.public_id}/"
    assert (run.job, run.range_from, run.range_to) == (
        *("window", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
    )
    assert (run.requested_by, run.reason) == ("olga", "quarter")
    assert AuditEntry.objects.get().verb == "pipeline.run"


def test_all_reports_are_started_at_once_in_their_order() -> None:
    answer = browser(Role.OPERATOR).post("/pipeline/run/", {"job": "all"})
    runs = list(PipelineRun.objects.order_by("id"))
    assert [run.job for run in runs] == ["extract", "audit", "levels", "sla", "window", "timing"]
    assert answer["Location"] == f"/pipeline/{runs[0].public_id}/"


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"job": "nonsense"}, 422, "Choose what to run."),
        ({"job": "reconcile"}, 422, "Choose what to run."),
        ({"job": "audit", "from": "soon"}, 422, ""),
        ({"job": "audit", "from": "2026-02-01", "to": "2026-01-01"}, 422, ""),
        ({"job": "extract", "from": "2026-02-01"}, 422, "takes no range"),
        ({"job": "levels"}, 409, "already"),
    ],
)
def test_what_cannot_be_started_says_why_and_keeps_the_form(given: dict[str, str], status: int, said: str) -> None:
    scenes.queued("levels")
    answer = browser(Role.OPERATOR).post("/pipeline/run/", {**given, "reason": "because"})
    assert answer.status_code == status
    page = html.fromstring(answer.content)
    assert said in page.get_element_by_id("form-errors").text_content()
    assert page.xpath("//input[@name='reason']/@value") == ["because"]
    assert PipelineRun.objects.count() == 1


def test_a_waiting_run_is_cancelled_at_once_and_a_running_one_is_told_to_stop() -> None:
    client = browser(Role.OPERATOR, "olga")
    waiting = scenes.queued("extract")
    answer = client.post(f"/pipeline/{waiting.public_id}/cancel/", {"reason": "too early"})
    assert answer.status_code == 303
    waiting.refresh_from_db()
    assert waiting.state == "cancelled"
    assert AuditEntry.objects.get(verb="pipeline.cancel").reason == "too early"
    running = scenes.claimed(scenes.queued("audit"))
    client.post(f"/pipeline/{running.public_id}/cancel/", {"reason": ""})
    assert not pipeline_runs.heartbeat(running, "on")
    assert "being cancelled" in _text(_page(f"/pipeline/{running.public_id}/", Role.OPERATOR), "run")


def test_a_run_that_has_ended_is_not_cancelled() -> None:
    run = scenes.publish("audit", scenes.audit_rows())
    answer = browser(Role.OPERATOR).post(f"/pipeline/{run.public_id}/cancel/", {"reason": "late"})
    assert answer.status_code == 409
    assert "This run has ended" in html.fromstring(answer.content).get_element_by_id("form-errors").text_content()


def test_viewers_start_and_cancel_nothing() -> None:
    run = scenes.queued("extract")
    client = browser(Role.VIEWER)
    assert client.post("/pipeline/run/", {"job": "all"}).status_code == 403
    assert client.post(f"/pipeline/{run.public_id}/cancel/", {}).status_code == 403
    assert client.get("/pipeline/run/").status_code == 403
