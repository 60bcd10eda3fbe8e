"""Reports with all that they find, and their charts, in the language of whoever reads them."""

from __future__ import annotations

import re

import pytest
from django.utils import translation
from lxml import html

from messaging.models import PipelineRun, Preference
from messaging.reports.catalogue import REPORTS
from messaging.reports.pages import chart_scales as scales
from tests.messaging.console.scenes import browser
from tests.messaging.console.test_languages import left, marked, stored  # noqa: F401  (a fixture)
from tests.messaging.reports import report_scenes as scenes
from tests.messaging.reports.report_scenes import PLOG
from tests.staged import staged

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("time")]
_NUMBERS = re.compile(r"[-0-9. ]*")


@pytest.fixture
def reports(db: None) -> dict[str, PipelineRun]:
    return staged(scenes.all_reports)


def _addresses() -> list[str]:
    found = ["/reports/"]
    for job, report in REPORTS.items():
        found += [
            f"/reports/{job}/?table={table.name}&scope={PLOG if job == 'reconcile' else ''}" for table in report.tables
        ]
    more = ("failed_share&by=hour", "ack_p95&by=day", "messages&by=day&from=2026-02-01&to=2026-02-03")
    return [*found, *(f"/reports/levels/?heat={one}" for one in more), "/reports/audit/?notices=all"]


def _pages(language: str) -> dict[str, html.HtmlElement]:
    client = browser()
    user = client.session["_auth_user_id"]
    Preference.objects.update_or_create(user_id=user, defaults={"language": language})
    answers = {one: client.get(one, headers={"Accept-Language": language}) for one in _addresses()}
    assert {one.status_code for one in answers.values()} == {200}
    return {one: html.fromstring(answer.content) for one, answer in answers.items()}


@pytest.mark.usefixtures("marked")
def test_no_text_of_a_report_is_left_untranslated(reports: dict[str, PipelineRun]) -> None:
    data = stored()
    found = [
        f"{one}: {text}"
        for one, page in _pages("de").items()
        for text in dict.fromkeys(left(page.xpath("//*[@id='main']")[0], data))
    ]
    assert found == [], f"{len(found)} texts:\n" + "\n".join(found)


@pytest.mark.parametrize("language", ["de", "fr"])
def test_what_is_drawn_has_points_where_texts_have_commas(reports: dict[str, PipelineRun], language: str) -> None:
    drawn = 0
    for page in _pages(language).values():
        for element in page.xpath("//*[@id='main']//svg//*"):
            for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"):
                assert _NUMBERS.fullmatch(element.get(name, "")), html.tostring(element)
                drawn += element.get(name) is not None
    assert drawn > 1000


def test_numbers_days_and_shares_follow_the_language() -> None:
    with translation.override("de"):
        assert scales.number(1234567) == "1.234.567" and scales.number(0.256) == "0,26"
        assert scales.share(0.1234) == "12,3 %" and scales.short(1_200_000, "") == "1,2 M"
    with translation.override("en-gb"):
        assert scales.number(1234567) == "1,234,567" and scales.number(0.256) == "0.26"
        assert scales.decimals(1234.567, 2) == "1,234.57"
