"""What readers of reports get: one run and all of it, its rows filtered, sorted, in pages; and how later runs went."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging import keyset
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.models import AuditFinding, LakeFile, LakeState, PipelineRun
from messaging.reports.catalogue import REPORTS
from messaging.reports.selectors import figures as report_levels
from messaging.reports.selectors import pipeline, reports
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from rmhub.ids import BadPublicId
from tests.messaging.reports.report_scenes import (
    LAST,
    OLGA,
    PARTNERS,
    archive_rows,
    audit_rows,
    claimed,
    failed,
    level_rows,
    publish,
    queued,
    timing_rows,
    window_rows,
)

pytestmark = pytest.mark.django_db
FINDINGS = REPORTS["audit"].table("findings")
ADVICE = REPORTS["window"].table("advice")
DELAYS = REPORTS["window"].table("delays")
DAY = timedelta(days=1)


def _pages(run: PipelineRun, table: Any, *, sort: str = "", limit: int = 3, **filters: object) -> list[Any]:
    """Keys of all rows, walked to the end and back: both ways must show the same."""
    found, place, pages = reports.rows(run.pk, table, filters), None, []
    while True:
        page = reports.row_page(found, table, sort=sort, limit=limit, place=place)
        pages.append([row.pk for row in page.rows])
        if page.following is None:
            break
        mark = reports.mark(run.pk, table, filters, sort)
        place = keyset.read_cursor(keyset.write_cursor(page.following, mark), mark)
    back = [pages[-1]]
    while page.previous is not None:
        page = reports.row_page(found, table, sort=sort, limit=limit, place=page.previous)
        if page.rows:
            back.insert(0, [row.pk for row in page.rows])
    assert list(chain(*back)) == list(chain(*pages))
    return list(chain(*pages))


def test_a_report_that_was_never_made_has_no_run() -> None:
    shown = reports.shown("audit")
    assert (shown.run, shown.current, shown.failed, shown.active, list(shown.earlier)) == (None, None, None, None, [])
    assert not shown.is_current


def test_unknown_names_are_not_found() -> None:
    with pytest.raises(NotFound, match="audit"):
        reports.shown("nonsense")
    with pytest.raises(NotFound, match="findings"):
        reports.table(reports.report("audit"), "nonsense")
    with pytest.raises(BadPublicId):
        reports.shown("audit", run="nonsense")
    with pytest.raises(NotFound, match="results are kept"):
        reports.shown("audit", run="run_" + "0" * 32)


def test_the_newest_run_is_shown_and_earlier_ones_on_request() -> None:
    first = publish("audit", audit_rows())
    second = publish("audit", audit_rows(violations=False))
    shown = reports.shown("audit")
    assert shown.run == second
    assert shown.is_current
    assert list(shown.earlier) == [second, first]
    earlier = reports.shown("audit", run=first.public_id)
    assert earlier.run == first
    assert earlier.current == second
    assert not earlier.is_current


def test_what_came_after_the_published_run_is_told() -> None:
    broken_before = failed("audit")
    publish("audit", audit_rows())
    assert reports.shown("audit").failed is None
    broken = failed("audit")
    waiting = queued("audit")
    shown = reports.shown("audit")
    assert shown.failed == broken != broken_before
    assert shown.active == waiting


def test_scopes_stand_beside_each_other() -> None:
    one = publish("reconcile", {}, scope="plog_" + "1" * 32)
    other = publish("reconcile", {}, scope="plog_" + "2" * 32)
    assert reports.shown("reconcile", scope=one.scope).run == one
    assert reports.shown("reconcile", scope=other.scope).run == other
    assert reports.shown("reconcile").run is None
    assert [found.run for found in reports.published_of("reconcile").order_by("-id")] == [other, one]
    newest = next(shown for shown in reports.overview() if shown.report.job == "reconcile")
    assert newest.run == other


def test_a_reader_costs_two_queries_and_so_do_all_reports_together() -> None:
    publish("audit", audit_rows())
    publish("window", window_rows())
    with CaptureQueriesContext(connection) as captured:
        reports.shown("audit")
    assert len(captured) == 2
    with CaptureQueriesContext(connection) as captured:
        found = reports.overview()
    assert len(captured) == 2
    assert [shown.report.job.value for shown in found] == list(REPORTS)
    assert [shown.report.job.value for shown in found if shown.run] == ["audit", "window"]


def test_rows_are_of_one_run_and_filtered() -> None:
    publish("audit", audit_rows())
    run = publish("audit", audit_rows(notices=4))
    assert reports.rows(run.pk, FINDINGS).count() == 7
    assert reports.rows(run.pk, FINDINGS, {"violation": True}).count() == 3
    assert reports.rows(run.pk, FINDINGS, {"kind": "gap", "partner": PARTNERS[1]}).count() == 1
    assert not reports.rows(run.pk, FINDINGS, {"kind": "gap\x00"}).exists()
    with pytest.raises(InvalidSubmission, match="no such filter"):
        reports.rows(run.pk, FINDINGS, {"detail": "x"})


def test_the_usual_order_shows_violations_first_in_pages_that_can_be_walked_back() -> None:
    run = publish("audit", audit_rows())
    walked = _pages(run, FINDINGS)
    rows = AuditFinding.objects.in_bulk(walked)
    kinds = [(not rows[key].violation, rows[key].kind) for key in walked]
    assert kinds == sorted(kinds)
    assert len(walked) == len(set(walked)) == 10


@pytest.mark.parametrize("sort", ["count", "-count", "last_number", "-last_number", "at", "-at", "violation", "-pair"])
def test_every_sort_walks_all_rows_once_and_leaves_what_has_no_value_for_the_end(sort: str) -> None:
    run = publish("audit", audit_rows())
    AuditFinding.objects.filter(kind="gap").update(at=None, last_number=None)
    walked = _pages(run, FINDINGS, sort=sort)
    rows = AuditFinding.objects.in_bulk(walked)
    values = [getattr(rows[key], sort.lstrip("-")) for key in walked]
    known = [value for value in values if value is not None]
    assert len(walked) == 10
    assert known == sorted(known, reverse=sort.startswith("-"))
    assert values == known + [None] * (len(values) - len(known))


def test_days_sort_too() -> None:
    run = publish("archive", archive_rows())
    table = REPORTS["archive"].table("days")
    assert len(_pages(run, table, sort="-day", limit=4)) == 10


def test_a_sort_that_there_is_not_is_refused() -> None:
    for sort in ("nonsense", "message_ids", "run", "count; drop table"):
        with pytest.raises(InvalidSubmission):
            reports.order_of(FINDINGS, sort)


def test_a_cursor_of_one_run_is_none_of_another() -> None:
    first, second = publish("audit", audit_rows()), publish("audit", audit_rows())
    page = reports.row_page(reports.rows(first.pk, FINDINGS), FINDINGS, limit=2)
    assert page.following is not None
    cursor = keyset.write_cursor(page.following, reports.mark(first.pk, FINDINGS, {}, ""))
    with pytest.raises(keyset.CursorMismatch):
        keyset.read_cursor(cursor, reports.mark(second.pk, FINDINGS, {}, ""))


def test_columns_say_what_they_are() -> None:
    known = {column.name: column for column in reports.columns(ADVICE)}
    assert known["one_in"].title == "Risk: one message in"
    assert (known["window"].kind, known["window"].unit) == ("integer", "s")
    assert (known["bytes"].unit, known["cost"].kind, known["suffices"].kind) == ("bytes", "number", "boolean")
    assert known["basis"].choices["measured"] == "Measured"
    assert {column.name: column.kind for column in reports.columns(FINDINGS)}["message_ids"] == "ids"
    for report in REPORTS.values():
        for table in report.tables:
            for column in reports.columns(table):
                assert column.title, (table.name, column.name)
                assert column.kind in ("text", "integer", "number", "time", "date", "boolean", "ids", "uuid")
                assert not column.sortable or reports.order_of(table, column.name)


def test_csv_holds_every_column_of_every_row_that_was_asked_for() -> None:
    run = publish("audit", audit_rows())
    text = "".join(reports.csv_lines(run.pk, FINDINGS, {"violation": True}, "-count"))
    assert "\r\n" in text
    found = list(csv.DictReader(io.StringIO(text)))
    assert list(found[0]) == [column.name for column in reports.columns(FINDINGS)]
    assert [one["count"] for one in found] == ["5", "2", "1"]
    assert found[0]["violation"] == "true"
    assert json.loads(found[1]["message_ids"]) == [f"20260214-{n:06d}@edi.initech.example" for n in range(2)]
    assert found[0]["at"] == "2026-02-13T10:00:00.000000Z"
    assert found[2]["last_number"] == ""


def test_csv_keeps_commas_and_quotes_and_disarms_formulas() -> None:
    run = publish("audit", audit_rows(notices=0))
    AuditFinding.objects.update(partner='=HYPERLINK("http://x","y")', detail='said "no", and\nleft')
    found = list(csv.DictReader(io.StringIO("".join(reports.csv_lines(run.pk, FINDINGS, {})))))
    assert found[0]["partner"] == '\'=HYPERLINK("http://x","y")'
    assert found[0]["detail"] == 'said "no", and\nleft'


def test_csv_of_many_rows_is_made_line_by_line() -> None:
    run = publish("levels", level_rows(days=3))
    lines = reports.csv_lines(run.pk, REPORTS["levels"].table("levels"), {"grain": "hour"})
    assert next(lines).startswith("grain,at,partner")
    assert sum(1 for _ in lines) == 3 * 24 * 10
    with pytest.raises(InvalidSubmission):
        reports.csv_lines(run.pk, FINDINGS, {"nonsense": ""})


def test_figures_by_a_column() -> None:
    run = publish("audit", audit_rows())
    assert reports.finding_counts(run.pk, FINDINGS, "kind", "count")["ack_without_storage"] == (1, 5)
    assert reports.finding_counts(run.pk, FINDINGS, "kind")["reset"] == (3, 0)
    assert reports.values_of(run.pk, FINDINGS, "partner") == [PARTNERS[1], PARTNERS[2]]


def test_only_a_run_of_the_range_right_before_and_as_long_is_fair_to_compare_with() -> None:
    week = timedelta(days=7)
    begin = datetime(2026, 2, 1, tzinfo=UTC)
    before = publish("levels", {}, begin=begin - week, end=begin)
    longer = publish("levels", {}, begin=begin - 2 * week, end=begin)
    overlapping = publish("levels", {}, begin=begin - DAY, end=begin + week - DAY)
    now = publish("levels", {}, begin=begin, end=begin + week)
    runs = reports.shown("levels").earlier
    assert {run.pk for run in runs} == {before.pk, longer.pk, overlapping.pk, now.pk}
    assert reports.previous(now, runs) == before
    assert reports.previous(before, runs) is None
    assert reports.previous(publish("levels", {}), runs) is None


def test_stretches_of_levels_add_up_to_what_was_published() -> None:
    run = publish("levels", level_rows(days=6))
    extent = report_levels.extent(run)
    assert extent == (LAST - 5 * DAY, LAST + DAY)
    begin, end = LAST - 2 * DAY, LAST + DAY
    now, before = report_levels.stretches(run.pk, grain="day", partner="", direction="", begin=begin, end=end)
    assert [one.at for one in now.buckets] == [begin, begin + DAY, begin + 2 * DAY]
    assert (before.begin, before.end) == (begin - 3 * DAY, begin)
    whole = report_levels.whole(run.pk, partner="", direction="")
    assert now.total.messages + before.total.messages == whole.messages > 0
    hours, _ = report_levels.stretches(run.pk, grain="hour", partner="", direction="", begin=begin, end=end)
    assert len(hours.buckets) == 72
    assert hours.total.messages == now.total.messages
    outbound, _ = report_levels.stretches(run.pk, grain="day", partner="", direction="out", begin=begin, end=end)
    assert 0 < outbound.total.messages < now.total.messages
    assert outbound.buckets[0].ack_p95 == now.buckets[0].ack_p95 is not None


def test_hours_without_a_row_are_empty_buckets() -> None:
    run = publish("levels", {"levels": [_level(LAST), _level(LAST + timedelta(hours=5))]})
    now, _ = report_levels.stretches(run.pk, grain="hour", partner="", direction="", begin=LAST, end=LAST + DAY)
    assert [one.messages for one in now.buckets] == [4, 0, 0, 0, 0, 4, *([0] * 18)]
    assert now.buckets[1].ack_p95 is None
    assert now.total.success == 0.75
    assert now.total.mean_to_resume == 30.0
    week = report_levels.by_weekday(now.buckets)
    assert week[LAST.weekday()][5].messages == 4


def _level(at: datetime) -> dict[str, Any]:
    known = {"grain": "hour", "at": at, "direction": "out", "messages": 4, "bytes": 1, "succeeded": 3, "failed": 1}
    known |= {"in_doubt": 0, "under_way": 0, "attempts": 4, "duplicates": 0, "suspensions": 1, "resumed": 1}
    return known | {"mean_seconds_to_resume": 30.0, "ack_p95": 2.0}


def test_partners_and_causes_of_levels() -> None:
    run = publish("levels", level_rows(days=2))
    assert all(report_levels.has_partner(run.pk, name) for name in PARTNERS)
    assert not report_levels.has_partner(run.pk, "Nobody")
    causes = report_levels.causes(run.pk, "")
    assert [one.cause for one in causes][:2] == ["read_timeout", "connect_refused"]
    assert causes[-1].cumulative == 1
    assert len(report_levels.doubts(run.pk, PARTNERS[0])) == 4


def test_runs_by_job_state_and_scope() -> None:
    broken, made = failed("audit"), publish("timing", timing_rows())
    assert list(pipeline.runs(states=("failed",))) == [broken]
    assert list(pipeline.runs(jobs=("timing",), scope="")) == [made]
    assert pipeline.run(made.public_id) == made == pipeline.run(made.pk)
    with pytest.raises(NotFound):
        pipeline.run("run_" + "0" * 32)


def test_progress_of_a_run() -> None:
    with clock.frozen(LAST) as time:
        waiting = queued("extract")
        assert not pipeline.progress(waiting, clock.now()).unclaimed
        time.move(31)
        assert pipeline.progress(waiting, clock.now()).unclaimed
        assert not pipeline.progress(waiting, clock.now(), busy=True).unclaimed
        run = claimed(waiting)
        assert pipeline.busy()
        assert pipeline.progress(run, clock.now()).percent is None
        time.move(10)
        pipeline_runs.heartbeat(run, "Events", 25, 200)
        seen = pipeline.progress(pipeline.run(run.pk), clock.now())
        assert (seen.percent, seen.seconds, seen.open, seen.unclaimed) == (12, 10.0, True, False)
        pipeline_runs.run_cancel(run_id=run.pk, actor=OLGA)
        pipeline_runs.run_cancelled(run)
        time.move(1000)
        ended = pipeline.progress(pipeline.run(run.pk), clock.now())
        assert (ended.seconds, ended.open, pipeline.busy()) == (10.0, False, False)


def test_what_the_lake_holds_now() -> None:
    assert pipeline.lake() == pipeline.Lake(None, ())
    LakeState.objects.update_or_create(pk=1, defaults={"generation": 2, "extracted_through": 900})
    same = {"schema_version": 1, "sha256": "", "from_xid": 0, "to_xid": 1, "created_at": LAST}
    for number, (generation, replaced) in enumerate([(2, None), (2, None), (2, LAST), (1, None)]):
        LakeFile.objects.create(
            generation=generation,
            entity="events",
            day=(LAST + DAY * number).date(),
            path=f"{number}",
            rows=10,
            bytes=100,
            replaced_at=replaced,
            **same,
        )
    found = pipeline.lake()
    assert (found.files, found.rows, found.bytes) == (2, 20, 200)
    assert found.entities[0].last_day == (LAST + DAY).date()


def test_files_of_a_run_are_below_the_lake_and_nowhere_else(settings: Any) -> None:
    run = publish("window", window_rows(), files=True)
    assert pipeline.artifact(run, "advice.parquet").read_bytes().startswith(b"PAR1")
    with pytest.raises(NotFound, match="no file"):
        pipeline.artifact(run, "../advice.parquet")
    outside = settings.RMHUB_LAKE_DIR.parent / "secret"
    outside.write_text("x")
    for path in ("../secret", str(outside), "reports/gone.parquet", ""):
        run.artifacts = [{"name": "x", "path": path}]
        with pytest.raises(NotFound):
            pipeline.artifact(run, "x")
