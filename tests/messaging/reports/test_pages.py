"""Pages of reports: what they answer, how old the answer is, and where it comes from."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from lxml import html

from messaging.models import AuditFinding, PipelineRun
from messaging.report_choices import PipelineJob
from messaging.reports.catalogue import REPORTS
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import public_id
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.reports import report_scenes as scenes
from tests.messaging.reports.report_scenes import LAST, PARTNERS, PLOG
from tests.staged import staged

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("time")]
DAY = timedelta(days=1)


def _page(url: str, client: Client | None = None) -> html.HtmlElement:
    answer = (client or browser(Role.VIEWER)).get(url)
    assert answer.status_code == 200, answer.content[:2000]
    return html.fromstring(answer.content)


def _text(page: html.HtmlElement, testid: str) -> str:
    found = page.xpath(f"//*[@data-testid='{testid}']")
    return " ".join(found[0].text_content().split()) if found else ""


def _column(page: html.HtmlElement, label: str) -> list[str]:
    cells = page.xpath(f"//section[starts-with(@aria-labelledby, 'sheet-')]//td[@data-label='{label}']")
    return [" ".join(cell.text_content().split()) for cell in cells]


@pytest.fixture
def reports(db: None) -> dict[str, PipelineRun]:
    return staged(scenes.all_reports)


def test_before_the_first_run_every_report_says_how_to_run_it() -> None:
    operator, viewer = browser(Role.OPERATOR), browser(Role.VIEWER)
    assert "No report has been run yet" in _page("/reports/", operator).text_content()
    for job in ("audit", "levels", "sla", "window", "timing", "archive"):
        page = _page(f"/reports/{job}/", operator)
        assert f"manage.py pipeline run {job}" in _text(page, "never")
        assert page.xpath(f"//a[@data-testid='run-start'][@href='/pipeline/run/?job={job}']")
        page = _page(f"/reports/{job}/", viewer)
        assert not page.xpath("//a[@data-testid='run-start']")
        assert "Needs the role operator." in page.text_content()
    assert "No log was compared yet" in _page("/reports/reconcile/").text_content()


def test_the_list_has_each_answer_in_a_few_words(reports: dict[str, PipelineRun]) -> None:
    scenes.failed("timing")
    page = _page("/reports/")
    assert "3 violations" in _text(page, "report-audit")
    assert "17 of 2,002,170 messages differ" in _text(page, "report-reconcile")
    assert "1 window too short for 1 in 1,000,000" in _text(page, "report-window")
    assert "1 agreement could do better" in _text(page, "report-timing")
    assert "last run failed" in _text(page, "report-timing")
    assert "messages, > 99.9 % succeeded" in _text(page, "report-levels")
    assert "targets missed in February 2026" in _text(page, "report-sla")
    assert "messages archived and verified" in _text(page, "report-archive")
    assert "Data as of" in _text(page, "report-audit")


def test_every_page_says_what_it_answers_how_old_it_is_and_where_it_comes_from(
    reports: dict[str, PipelineRun],
) -> None:
    for job, run in reports.items():
        page = _page(f"/reports/{job}/" + (f"?scope={PLOG}" if run.scope else ""))
        assert str(REPORTS[job].question) in page.text_content()
        stamp = _text(page, "stamp")
        assert "2026-02-28 03:15:00 UTC" in stamp
        assert "everything" in stamp
        assert "7,217,658 rows in 123 files" in stamp
        assert "transactions below 4,812,377" in stamp
        assert "3fa91c20be77" in stamp
        assert page.xpath(f"//dl[@data-testid='stamp']//a[@href='/pipeline/{run.public_id}/']")


def test_pages_with_numbers_are_fit_for_a_strict_csp_and_for_screen_readers(reports: dict[str, PipelineRun]) -> None:
    for job, run in reports.items():
        for table in REPORTS[job].tables:
            page = _page(f"/reports/{job}/?table={table.name}&scope={run.scope}")
            for element in page.iter():
                if isinstance(element.tag, str):
                    assert "style" not in element.attrib, (job, element.tag)
                    assert element.tag != "style", job
            ids = page.xpath("//@id")
            assert len(ids) == len(set(ids)), (job, sorted(ids))
            for reference in page.xpath("//@aria-labelledby | //@aria-describedby"):
                assert set(reference.split()) <= set(ids), (job, reference)
            assert not page.xpath("//table[not(caption)]")
            assert not page.xpath("//th[not(@scope)]")
            labelled = set(page.xpath("//label/@for"))
            for field in page.xpath("//main//input[not(@type='hidden')] | //main//select"):
                assert field.get("id") in labelled, (job, field.get("name"))
            for chart in page.xpath("//*[local-name()='svg'][@role='img']"):
                section = chart.xpath("ancestor::section")[0]
                assert section.xpath(".//table/tbody/tr"), (job, "a chart without the same numbers as a table")


def test_a_failed_run_is_told_and_what_was_shown_stays(reports: dict[str, PipelineRun]) -> None:
    broken = scenes.failed("audit", "The lake's files do not fit their manifest.")
    page = _page("/reports/audit/")
    banner = _text(page, "run-failed")
    assert "The last run failed, showing the results of 28 February, 03:15 UTC." in banner
    assert "The lake's files do not fit their manifest." in banner
    assert page.xpath(f"//*[@data-testid='run-failed']//a[@href='/pipeline/{broken.public_id}/']")
    assert "3 violations" in _text(page, "verdict")


def test_a_first_run_that_failed_is_told_too() -> None:
    scenes.failed("window")
    page = _page("/reports/window/")
    assert _text(page, "run-failed").startswith("The last run failed.")
    assert _text(page, "never")


def test_a_run_that_is_under_way_is_told() -> None:
    run = scenes.claimed(scenes.queued("audit"))
    pipeline_runs.heartbeat(run, "Reading messages", 1, 2)
    assert "under way: Reading messages" in _text(_page("/reports/audit/"), "run-active")


def test_old_data_are_told(time: FrozenClock) -> None:
    scenes.publish("audit", scenes.audit_rows(), as_of=clock.now())
    assert not _text(_page("/reports/audit/"), "run-old")
    time.move(3 * 86_400)
    assert "older than two days" in _text(_page("/reports/audit/"), "run-old")


def test_an_earlier_run_is_shown_as_such_and_pages_stay_with_their_run() -> None:
    first = scenes.publish("audit", scenes.audit_rows())
    second = scenes.publish("audit", scenes.audit_rows(violations=False))
    page = _page("/reports/audit/")
    assert "No violations" in _text(page, "verdict")
    assert not _text(page, "run-earlier")
    (link,) = page.xpath("//*[@data-testid='earlier']//a/@href")
    assert link == f"?run={first.public_id}"
    earlier = _page(f"/reports/audit/{link}")
    assert "results of an earlier run" in _text(earlier, "run-earlier")
    assert "3 violations" in _text(earlier, "verdict")
    for href in earlier.xpath("//div[@id='rows']//a[starts-with(@href, '?')]/@href"):
        assert first.public_id in href, href
    assert second.public_id not in html.tostring(earlier.xpath("//div[@id='rows']")[0]).decode()


def test_unknown_reports_tables_and_runs_are_404(reports: dict[str, PipelineRun]) -> None:
    client = browser(Role.VIEWER)
    gone = f"run_{'0' * 32}"
    for url in (
        "/reports/nonsense/",
        "/reports/extract/",
        f"/reports/audit/?run={gone}",
        "/reports/audit/?run=nonsense",
        f"/reports/audit/?run={reports['window'].public_id}",
        "/reports/audit/nonsense.csv",
        "/reports/audit/findings.xlsx",
        "/reports/audit/findings.csv?sort=nonsense",
    ):
        assert client.get(url).status_code == 404, url


def test_whatever_the_url_says_the_page_answers(reports: dict[str, PipelineRun]) -> None:
    client = browser(Role.VIEWER)
    for job in ("audit", "levels", "sla", "window", "timing"):
        for query in (
            "table=nonsense&sort=nonsense&cursor=nonsense",
            "kind=%00&pair=%00&partner=%00&of=%00",
            "from=2026-13-77&to=x&by=x&direction=x&heat=x&partner=x&of=x",
            "from=2030-01-01&to=1999-01-01",
            f"sort=-count&scope={'x' * 300}",
        ):
            assert client.get(f"/reports/{job}/?{query}").status_code == 200, (job, query)


def test_attainment_names_the_targets_that_are_missed(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/sla/")
    assert f"1 of {len(scenes.AGREEMENTS)} targets of February 2026 missed: urn:tpa:acme-" in _text(page, "verdict")
    assert set(_column(page, "Month")) == {"2026-02", "2026-01"}
    rows = scenes.sla_rows()
    rows["months"] = [row for row in rows["months"] if row["missed"] < 100]
    scenes.publish("sla", rows)
    assert "are met so far" in _text(_page("/reports/sla/"), "verdict")
    scenes.publish("sla", {"months": []})
    assert "No document in the range had a target." in _page("/reports/sla/").text_content()


def test_the_audit_shows_violations_first_and_folds_notices(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/audit/")
    assert len(page.xpath("//section[@aria-labelledby='sheet-findings']//tbody/tr")) == 3
    folded = page.xpath("//details[@data-testid='notices']")[0]
    assert folded.get("open") is None
    assert len(folded.xpath(".//tbody/tr")) == 7
    everything = _page("/reports/audit/?notices=all")
    assert len(everything.xpath("//section[@aria-labelledby='sheet-findings']//tbody/tr")) == 7
    gaps = _page("/reports/audit/?kind=gap")
    assert _column(gaps, "Kind") == ["Gap in the sequence80,111 was stored at 09:14:02, 80,114 at 09:14:05."]
    assert _column(gaps, "Numbers") == ["80112 … 80113"]


def test_incidents_are_made_of_what_is_shown_by_who_may(reports: dict[str, PipelineRun]) -> None:
    link = "//a[@data-testid='audit-incidents'][@href='/reports/audit/incidents/']"
    assert _page("/reports/audit/", browser(Role.OPERATOR)).xpath(link)
    assert not _page("/reports/audit/").xpath(link)
    scenes.publish("audit", scenes.audit_rows(violations=False))
    assert not _page("/reports/audit/", browser(Role.OPERATOR)).xpath(link)
    first = reports["audit"].public_id
    assert not _page(f"/reports/audit/?run={first}", browser(Role.OPERATOR)).xpath(link), "only the newest counts"


def test_findings_lead_to_their_messages_and_pairs(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/audit/?kind=gap")
    links = page.xpath("//section[@aria-labelledby='sheet-findings']//td//a/@href")
    assert "/go?q=20260214-000000%40edi.initech.example" in links
    assert "/pairs/INITECH%3EACME/" in links


def test_text_of_partners_is_no_markup() -> None:
    scenes.publish("audit", scenes.audit_rows())
    evil = "<script>alert(1)</script>"
    AuditFinding.objects.update(partner=evil, detail=evil, message_ids=[evil, evil, evil], pair=evil)
    page = _page("/reports/audit/")
    assert not [one for one in page.xpath("//script") if not one.get("src")]
    assert evil in page.text_content()


def test_headings_sort_and_say_how(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/audit/")
    (href,) = page.xpath("//section[@aria-labelledby='sheet-findings']//th/a[text()='Count']/@href")
    assert "sort=-count" in href, "numbers from the greatest"
    page = _page("/reports/audit/" + href.partition("#")[0])
    assert _column(page, "Count") == ["5", "2", "1"]
    assert page.xpath("//th[@aria-sort='descending']/a/text()") == ["Count"]
    (href,) = page.xpath("//th[@aria-sort]/a/@href")
    page = _page("/reports/audit/" + href.partition("#")[0])
    assert _column(page, "Count") == ["1", "2", "5"]


def test_long_tables_come_in_pages_that_keep_filter_and_sort() -> None:
    scenes.publish("audit", scenes.audit_rows(notices=130))
    seen: list[str] = []
    url = "/reports/audit/?notices=all&partner=Umbrella+Pharma&sort=-at"
    while url:
        page = _page(url)
        seen += page.xpath("//section[@aria-labelledby='sheet-findings']//td[@data-label='MessageIds']//a/@title")
        following = page.xpath("//nav[contains(@class, 'pager')]//a[@rel='next']/@href")
        url = f"/reports/audit/{following[0].partition('#')[0]}" if following else ""
    assert seen == [f"reset-{number}@acme.example" for number in range(130)]
    back = page.xpath("//nav[contains(@class, 'pager')]//a[@rel='prev']/@href")[0]
    assert "sort=-at" in back
    assert "partner=Umbrella+Pharma" in back


def test_csv_is_what_the_page_shows_and_parquet_what_the_run_wrote(reports: dict[str, PipelineRun]) -> None:
    client = browser(Role.VIEWER)
    page = _page("/reports/audit/?table=findings&partner=Initech+Logistics&sort=-count", client)
    answer = client.get(page.xpath("//a[@data-testid='csv']/@href")[0])
    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"] == 'attachment; filename="audit-findings-20260228-0315.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [row["count"] for row in rows] == ["5", "2", "1"]
    assert {row["violation"] for row in rows} == {"true"}
    answer = client.get(page.xpath("//a[@data-testid='parquet']/@href")[0])
    assert answer.getvalue() == b"PAR1findings"
    assert answer["Content-Disposition"] == 'attachment; filename="audit-findings-20260228-0315.parquet"'
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_a_file_that_was_cleared_away_is_404_with_advice() -> None:
    scenes.publish("audit", scenes.audit_rows())
    answer = browser(Role.VIEWER).get("/reports/audit/findings.parquet")
    assert answer.status_code == 404


def test_levels_compare_equal_stretches_of_whole_weeks(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/levels/")
    assert _text(page, "against") == "14 February 2026 to 27 February 2026. Compared with 31 Jan to 13 Feb."
    charts = page.xpath("//section[contains(@class, 'chart-card')]")
    titles = [chart.xpath(".//h2/text()")[0] for chart in charts]
    assert titles == [
        *("Messages by outcome", "Time to acknowledge (logarithmic scale)", "Messages by hour (UTC)"),
        *("The most frequent errors", "Outcomes of documents in doubt"),
    ]
    latency = charts[1]
    assert latency.xpath(".//thead//th/text()") == ["Day (UTC)", "p50", "p95", "p99", "p95 before"]
    assert len(latency.xpath(".//tbody/tr")) == 14
    volume = charts[0].xpath(".//tbody/tr")
    assert volume[0].xpath("./th/text()") == ["2026-02-14"]


def test_days_that_run_backwards_are_refused_beside_the_last_day(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/levels/?from=2026-02-24&to=2026-02-20")
    assert "The last day was before the first" in page.get_element_by_id("error-to").text_content()
    assert not _page("/reports/levels/?from=2026-02-20&to=2026-02-24").xpath("//*[@id='error-to']")


def test_levels_of_a_partner_by_hour(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/levels/?partner=Initech+Logistics&by=hour&from=2026-02-24&to=2026-02-24&heat=failed_share")
    assert _text(page, "against") == "24 February 2026, Initech Logistics. Compared with 23 Feb to 23 Feb."
    rows = page.xpath("//section[@aria-labelledby='chart-volume']//tbody/tr")
    assert len(rows) == 24
    assert [row.xpath("./th/text()")[0] for row in rows[13:15]] == ["2026-02-24 13:00", "2026-02-24 14:00"]
    failed = [int(row.xpath("./td[4]/text()")[0].replace(",", "")) for row in rows]
    assert all(failed[13:17])
    assert not any(failed[:12])
    assert "Share that failed by hour" in page.xpath("//h2[@id='chart-heat']/text()")[0]
    assert set(_column(page, "Partner")) == {"Initech Logistics"}


def test_without_anything_before_it_nothing_is_compared() -> None:
    scenes.publish("levels", scenes.level_rows(days=1))
    page = _page("/reports/levels/")
    assert "There is nothing before it to compare with." in _text(page, "against")
    assert "p95 to acknowledge" in page.text_content(), "the whole range has exact percentiles"


def test_the_run_of_the_range_before_is_compared_with() -> None:
    end = LAST + DAY
    scenes.publish("levels", scenes.level_rows(days=2), begin=end - 4 * DAY, end=end - 2 * DAY)
    scenes.publish("levels", scenes.level_rows(days=2), begin=end - 2 * DAY, end=end)
    page = _page("/reports/levels/?from=2026-02-26&to=2026-02-27")
    assert "Compared with the run of the range before" in _text(page, "against")


def test_levels_without_a_message_are_no_error() -> None:
    scenes.publish("levels", {})
    assert "No message in the range." in _page("/reports/levels/").text_content()


def test_the_window_says_whose_is_too_short(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/window/")
    assert _text(page, "verdict") == (
        "1 of 4 windows in force is shorter than a risk of 1 in 1,000,000 needs: Umbrella Pharma (7 d, needed 9 d)."
    )
    assert _column(page, "Risk: one message in")[:3] == ["1 in 10,000", "1 in 1,000,000", "1 in 1,000,000,000"]
    chosen = _page("/reports/window/?of=Initech+Logistics%7Cebxml")
    assert "How late copies come: Initech Logistics, ebxml" in chosen.text_content()
    quiet = _page("/reports/window/?of=Wayne+Freight%7Cebxml")
    assert "No copy came in the range." in quiet.text_content()


def test_timing_shows_before_and_after_and_offers_a_draft_to_who_may(reports: dict[str, PipelineRun]) -> None:
    key = public_id("agr", scenes.AGREEMENTS[PARTNERS[0]])
    page = _page("/reports/timing/", browser(Role.ADMIN))
    assert _text(page, "verdict") == "For 1 of 4 agreements other parameters would have done better."
    proposal = _text(page, "proposal")
    assert "In force30 s31 m70,3128,12014" in proposal
    assert "Proposed1 m 15 s51 m 30 s62,4802111" in proposal
    assert "after 1.84 s (median), 28.20 s (90 %), 1 m 6 s (99 %)" in _text(page, "latency")
    (href,) = page.xpath("//a[@data-testid='timing-draft']/@href")
    assert key in href
    assert f"run={reports['timing'].public_id}" in href
    rows = page.xpath("//section[@aria-labelledby='chart-comparison']//tbody/tr")
    assert [cell.text for cell in rows[0].xpath("./*")] == ["Attempts", "70,312", "62,480"]
    assert not _text(page, "unadvised")
    assert len(page.xpath("//select[@id='filter-of']/option")) == 4
    better = _page("/reports/timing/?better=1")
    assert better.xpath("//select[@id='filter-of']/option/@value") == [key]
    viewer = _page("/reports/timing/")
    assert not viewer.xpath("//a[@data-testid='timing-draft']")
    assert "Needs the role admin." in _text(viewer, "proposal")
    fitting = _page(f"/reports/timing/?of={public_id('agr', scenes.AGREEMENTS[PARTNERS[1]])}", browser(Role.ADMIN))
    assert "What is in force fits this partner." in _text(fitting, "proposal")
    assert not fitting.xpath("//a[@data-testid='timing-draft']")


def test_an_agreement_without_a_proposal_is_counted_and_left_in_the_table() -> None:
    rows = scenes.timing_rows()
    rows["advice"] = [row for row in rows["advice"] if row["option"] == "in_force" or row["partner"] == PARTNERS[0]]
    scenes.publish("timing", rows)
    page = _page("/reports/timing/")
    assert _text(page, "verdict") == "For 1 of 1 agreement other parameters would have done better."
    assert _text(page, "unadvised").startswith("3 more agreements had too few")
    assert len(_column(page, "Agreement")) == 5
    rows["advice"] = [row for row in rows["advice"] if row["option"] == "in_force"]
    scenes.publish("timing", rows)
    assert "No agreement has enough messages" in _page("/reports/timing/").text_content()


def test_a_reconciliation_says_how_far_the_books_agree(reports: dict[str, PipelineRun]) -> None:
    page = _page(f"/reports/reconcile/?scope={PLOG}")
    assert _text(page, "verdict") == "The logs differ on 17 of 2,002,170 messages."
    lost = _page(f"/reports/reconcile/?scope={PLOG}&table=findings&verdict=lost")
    assert len(lost.xpath("//section[@aria-labelledby='sheet-findings']//tbody/tr")) == 7
    assert lost.xpath("//section[@aria-labelledby='sheet-findings']//a[starts-with(@href, '/go?q=')]")
    assert PLOG in lost.xpath("//a[@data-testid='csv']/@href")[0]
    comparisons = _page("/reports/reconcile/")
    assert comparisons.xpath(f"//a[@href='?scope={PLOG}']")


def test_the_archive_says_what_left_the_store(reports: dict[str, PipelineRun]) -> None:
    page = _page("/reports/archive/")
    assert "Everything that was archived is what the store says" in _text(page, "verdict")
    assert len(page.xpath("//section[@aria-labelledby='sheet-days']//tbody/tr")) == 10


def test_pages_cost_the_same_however_many_rows_there_are() -> None:
    def queries(url: str) -> int:
        client.get(url)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        assert not [query["sql"] for query in captured.captured_queries if "OFFSET" in query["sql"]]
        return len(captured)

    client = browser(Role.OPERATOR)
    makers = {
        PipelineJob.AUDIT: scenes.audit_rows,
        PipelineJob.LEVELS: lambda: scenes.level_rows(days=2),
        PipelineJob.WINDOW: scenes.window_rows,
        PipelineJob.TIMING: scenes.timing_rows,
    }
    for job, rows in makers.items():
        one = {name: list(found) for name, found in rows().items()}
        few = {
            name: [row for row in found if name != "levels" or row["partner"] in ("", PARTNERS[0])]
            for name, found in one.items()
        }
        if job == PipelineJob.AUDIT:
            few["findings"] = one["findings"][:4]
        scenes.publish(job, few)
        before = queries(f"/reports/{job}/")
        scenes.publish(job, one)
        assert queries(f"/reports/{job}/") == before <= 20, job
    assert queries("/reports/") <= 20
