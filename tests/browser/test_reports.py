"""Reports and runs of the pipeline in a browser: what they look like, and what people do with them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from messaging.models import PipelineRun
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from rmhub.roles import Role
from tests import sizes
from tests.browser.conftest import Open
from tests.browser.test_console import ALL, AXE, COLOURS, SIZES, _violations
from tests.messaging.reports import report_scenes as scenes
from tests.messaging.reports.report_scenes import LAST, PLOG

MORNING = LAST + timedelta(days=1, hours=9)
PAGES = (
    "/reports/",
    "/reports/audit/",
    "/reports/audit/?table=pairs",
    "/reports/levels/",
    "/reports/levels/?by=hour&partner=Initech+Logistics&heat=ack_p95&table=errors",
    "/reports/window/",
    "/reports/timing/?table=latencies",
    f"/reports/reconcile/?scope={PLOG}",
    "/reports/archive/",
    "/pipeline/",
    "/pipeline/run/?job=audit",
)


@pytest.fixture
def reports(transactional_db: None) -> dict[str, PipelineRun]:
    with clock.frozen(MORNING):
        return scenes.all_reports()


def _checked(page: Page, path: str) -> list[str]:
    page.set_viewport_size({"width": 1366, "height": 768})
    page.emulate_media(color_scheme="light")
    page.goto(path)
    # Tables beside charts and folded notices are looked at too.
    page.evaluate("document.querySelectorAll('main details').forEach(one => one.open = true)")
    page.add_script_tag(path=AXE)
    found = _violations(page, ALL)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {text}" for text in _violations(page, COLOURS)]
    page.set_viewport_size({"width": 400, "height": 800})
    return found + [f"narrow: {text}" for text in _violations(page, SIZES)]


def test_axe_finds_nothing_on_reports_full_of_numbers(open_console: Open, reports: dict[str, PipelineRun]) -> None:
    with clock.frozen(MORNING):
        scenes.failed("timing")
        run = scenes.claimed(scenes.queued("audit"))
        pipeline_runs.heartbeat(run, "Reading messages", 1, 3)
        page = open_console("/", bypass_csp=True)
        runs = (f"/pipeline/{run.public_id}/", f"/pipeline/{reports['levels'].public_id}/")
        paths = (*PAGES, *runs) if sizes.ALL else (*PAGES[::4], *runs)
        problems = {path: found for path in paths if (found := _checked(page, path))}
    assert not problems


def test_reports_reflow_at_four_hundred_percent(open_console: Open, reports: dict[str, PipelineRun]) -> None:
    """WCAG 1.4.10: 1280 pixels at 400 % are 320. Drawings and wide tables scroll in a frame of their own."""
    page = open_console("/", viewport={"width": 320, "height": 256})
    for path in (*PAGES, f"/pipeline/{reports['levels'].public_id}/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_a_run_is_started_followed_and_read_without_leaving_the_page(open_console: Open) -> None:
    page = open_console("/reports/window/", role=Role.OPERATOR)
    page.click("[data-testid=run-start]")
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("#field-job")).to_have_value("window")
    dialog.locator("#field-reason").fill("is our memory long enough?")
    page.click("[data-testid=start-do]")
    expect(page.locator("#diagnosis")).to_have_text("It waits for its turn")
    run = PipelineRun.objects.get()
    taken = scenes.claimed(run)
    pipeline_runs.heartbeat(taken, "Reading receptions", 25, 100)
    page.clock.run_for(2000)
    expect(page.locator("#diagnosis")).to_have_text("Reading receptions")
    expect(page.locator("#live-run progress")).to_have_attribute("value", "25")
    expect(page.locator("#announce[role=status]")).to_contain_text("Reading receptions")
    scenes.publish_claimed(taken, scenes.window_rows(), as_of=clock.now())
    page.clock.run_for(2000)
    expect(page.locator("[data-testid=run]")).to_have_attribute("data-state", "succeeded")
    page.click("[data-testid=run-report]")
    expect(page.locator("[data-testid=verdict]")).to_contain_text("Umbrella Pharma")


def test_a_run_is_cancelled_in_a_dialog(open_console: Open) -> None:
    run = scenes.claimed(scenes.queued("audit"))
    page = open_console(f"/pipeline/{run.public_id}/", role=Role.OPERATOR)
    page.click("[data-testid=run-cancel]")
    expect(page.locator("dialog[open] #field-reason")).to_be_focused()
    page.click("[data-testid=cancel-do]")
    expect(page.locator(".alert-success")).to_contain_text("publishes nothing")
    expect(page.locator("[data-testid=run]")).to_contain_text("being cancelled")
    assert PipelineRun.objects.get(pk=run.pk).cancel_requested


def test_without_javascript_a_report_is_filtered_sorted_and_run(
    open_console: Open, reports: dict[str, PipelineRun]
) -> None:
    page = open_console("/reports/levels/", javascript=False, role=Role.OPERATOR)
    page.fill("#level-partner", "Initech Logistics")
    page.select_option("#level-by", "hour")
    page.fill("#level-from", "2026-02-24")
    page.fill("#level-to", "2026-02-24")
    page.click("form[aria-label='What is shown'] button")
    expect(page.locator("[data-testid=against]")).to_contain_text("24 February 2026, Initech Logistics")
    page.click("#chart-volume >> xpath=ancestor::section >> summary")
    expect(page.locator("section[aria-labelledby=chart-volume] tbody tr")).to_have_count(24)
    page.goto("/reports/audit/")
    page.click("th >> text=Count")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Count")
    page.click("[data-testid=run-start]")
    expect(page.locator("h1")).to_have_text("Run the pipeline")
    page.click("[data-testid=start-do]")
    expect(page.locator("#diagnosis")).to_have_text("It waits for its turn")


def test_the_keyboard_reaches_a_chart_s_table_and_scrolls_what_is_wide(
    open_console: Open, reports: dict[str, PipelineRun]
) -> None:
    page = open_console("/reports/levels/", viewport={"width": 640, "height": 700})
    page.focus("section[aria-labelledby=chart-volume] summary")
    page.keyboard.press("Enter")
    expect(page.locator("section[aria-labelledby=chart-volume] tbody tr").first).to_be_visible()
    wide = page.locator("[role=group][aria-label='Levels']")
    wide.focus()
    page.keyboard.press("ArrowRight")
    # Not `wait_for_function`: it evaluates text again and again, which the pages' policy forbids.
    page.evaluate(
        "new Promise((seen, gone) => { setTimeout(() => gone('not scrolled'), 20000); const look = () =>"
        " document.activeElement.scrollLeft > 0 ? seen() : requestAnimationFrame(look); look(); })"
    )


def test_files_are_downloaded(open_console: Open, reports: dict[str, PipelineRun]) -> None:
    page = open_console("/reports/audit/")
    with page.expect_download() as download:
        page.click("[data-testid=csv]")
    assert download.value.suggested_filename == "audit-findings-20260228-0315.csv"
    assert download.value.path().read_text().startswith("kind,violation,pair_id")
    with page.expect_download() as download:
        page.click("[data-testid=parquet]")
    assert download.value.path().read_bytes() == b"PAR1findings"
