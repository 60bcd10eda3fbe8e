"""Charts: what is drawn is where it belongs, and the table beside a chart says the same."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

import pytest
from lxml import etree

from messaging.reports.pages import chart_scales as scales
from messaging.reports.pages import charts
from messaging.reports.pages.charts import Bar, Chart, Series

DAY = timedelta(days=1)
BEGIN = datetime(2026, 2, 1, tzinfo=UTC)
DAYS = [BEGIN + DAY * number for number in range(4)]


def _drawn(chart: Chart) -> etree._Element:
    return etree.fromstring(str(chart.svg))


def _points(chart: Chart) -> list[list[tuple[float, float]]]:
    lines = _drawn(chart).findall(".//polyline")
    return [[tuple(map(float, point.split(","))) for point in line.get("points", "").split()] for line in lines]  # type: ignore[misc]


def _rects(chart: Chart) -> list[dict[str, float]]:
    return [
        {name: float(one.get(name, "0")) for name in ("x", "y", "width", "height")}
        for one in _drawn(chart).findall(".//rect")
    ]


def _all() -> list[Chart]:
    return [
        charts.lines("l", "Lines", DAYS, [Series("p50", "tone-p50", [1.0, None, 2.0, 3.0])]),
        charts.columns("c", "Columns", DAYS, [Series("ok", "tone-good", [1, 2, 0, 4])]),
        charts.pareto("p", "Pareto", [("read timeout <b>", 9, 0.9), ("refused", 1, 1.0)]),
        charts.histogram("h", "Histogram", {2: 3, 16: 100}, marks=[("In force:", "tone-bad", 60.0)]),
        charts.heat_map("m", "Heat", [("Mon", [float(hour) for hour in range(24)])]),
        charts.bars("b", "Bars", [Bar("We sent", [("Agreed", "tone-good", 10.0, "10")])]),
    ]


@pytest.mark.parametrize("chart", _all(), ids=lambda chart: chart.title)
def test_every_chart_has_a_name_a_description_and_no_style(chart: Chart) -> None:
    svg = _drawn(chart)
    assert svg.get("role") == "img"
    title, description = svg.find("title"), svg.find("desc")
    assert title is not None
    assert description is not None
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text == chart.title
    assert description.text
    assert not [one for one in svg.iter() if "style" in one.attrib or any(name.startswith("on") for name in one.attrib)]
    assert chart.body
    assert all(len(row) == len(chart.head) for row in chart.body)


@pytest.mark.parametrize("chart", _all(), ids=lambda chart: chart.title)
def test_nothing_is_drawn_outside_the_drawing(chart: Chart) -> None:
    _, _, width, height = map(float, _drawn(chart).get("viewBox", "").split())
    for rect in _rects(chart):
        assert 0 <= rect["x"] <= rect["x"] + rect["width"] <= width
        assert 0 <= rect["y"] <= rect["y"] + rect["height"] <= height + 0.1
    for line in _points(chart):
        assert all(0 <= x <= width and 0 <= y <= height for x, y in line)


def test_text_of_partners_is_no_markup() -> None:
    chart = charts.pareto("p", "P", [("<script>alert(1)</script>", 1, 1.0)])
    assert "<script" not in chart.svg
    assert chart.body[0][0] == "<script>alert(1)</script>"


def test_a_line_is_interrupted_where_there_is_no_value() -> None:
    values: list[float | None] = [1.0, 2.0, None, 4.0]
    chart = charts.lines("l", "L", DAYS, [Series("p50", "tone-p50", values)])
    (line,) = _points(chart)
    assert len(line) == 2, "the last value stands alone, as a dot"
    assert len(_drawn(chart).findall(".//circle")) == 1
    assert [row[1] for row in chart.body] == ["1.00 s", "2.00 s", "—", "4.00 s"]


def test_lines_of_seconds_and_of_minutes_are_both_seen_on_one_scale() -> None:
    series = [Series("p50", "tone-p50", [0.02, 0.2, 0.0, 0.04]), Series("p99", "tone-p99", [90.0, 90.0, 90.0, 300.0])]
    fast, slow = _points(charts.lines("l", "L", DAYS, series))
    heights = [192 - y for _, y in fast]
    assert heights[1] - heights[0] == pytest.approx(180 / math.log10(600 / 0.01), abs=0.2), "ten times as long"
    assert heights[2] == 0 and min(192 - y for _, y in slow) > 120
    assert 0 < heights[3] - heights[0] < heights[1] - heights[0]


@pytest.mark.parametrize(
    ("least", "greatest", "axis"),
    [
        (0.02, 300.0, [0.01, 0.1, 1.0, 10.0, 60.0, 600.0]),
        (1.0, 1.0, [1.0, 10.0]),
        (1e-9, 1e12, list(scales.log_times(1e-9, 1e12))),
    ],
)
def test_an_axis_of_times_reaches_around_its_values(least: float, greatest: float, axis: list[float]) -> None:
    found = scales.log_times(least, greatest)
    assert found == axis and found == sorted(set(found)) and len(found) > 1


def test_columns_stack_and_sum_to_their_whole() -> None:
    parts = [Series("ok", "tone-good", [6, 0, 0, 0]), Series("failed", "tone-bad", [2, 0, 0, 0])]
    lower, upper = _rects(charts.columns("c", "C", DAYS, parts))
    assert lower["y"] == pytest.approx(upper["y"] + upper["height"], abs=0.2)
    assert lower["height"] == pytest.approx(3 * upper["height"], abs=0.3)


def test_what_is_rare_can_be_seen_and_takes_nothing_from_the_whole() -> None:
    widths = charts.seen_widths([1_000_000, 1, 0, 3], 400)
    assert sum(widths) == pytest.approx(400)
    assert widths[1] >= 3
    assert widths[2] == 0
    assert charts.seen_widths([0, 0], 400) == [0, 0]


def test_the_cumulated_line_of_a_pareto_ends_at_its_whole() -> None:
    chart = charts.pareto("p", "P", [("a", 75, 0.75), ("b", 25, 1.0)])
    bars, ((first, _), (last, _)) = _rects(chart), _points(chart)[0]
    left, width = bars[0]["x"], bars[0]["width"]
    assert last == pytest.approx(left + width, abs=0.2)
    assert first == pytest.approx(left + 0.75 * width, abs=0.2)
    assert bars[1]["width"] == pytest.approx(width / 3, abs=0.2)


def test_a_histogram_has_every_power_of_two_and_its_marks_between_them() -> None:
    chart = charts.histogram("h", "H", {1: 4, 8: 1}, marks=[("In force:", "tone-bad", 4.0)])
    assert [row[0] for row in chart.body] == ["below 1 s", "below 2 s", "below 4 s", "below 8 s"]
    assert [row[1] for row in chart.body] == ["4", "0", "0", "1"]
    mark = _drawn(chart).find(".//line[@class='chart-mark tone-bad']")
    assert mark is not None
    step = (charts.WIDTH - 52 - 12) / 4
    assert float(mark.get("x1", "")) == pytest.approx(52 + 3 * step, abs=0.1), "four seconds end the third bucket"


def test_a_histogram_of_many_sizes_shows_the_small_ones() -> None:
    tall, low = _rects(charts.histogram("h", "H", {2: 100_000, 4: 1}))
    assert low["height"] > 0.05 * tall["height"]
    assert low["height"] < tall["height"]


def test_shades_of_a_heat_map_go_from_nothing_to_the_most() -> None:
    assert [charts.heat(value, 100) for value in (None, 0, 1, 20, 21, 100)] == [
        *("heat-none", "heat-0", "heat-1", "heat-1", "heat-2", "heat-5"),
    ]
    chart = charts.heat_map("m", "M", [("Mon", [None] * 23 + [5.0])])
    assert len(_rects(chart)) == 24
    assert "most: Mon 23:00 with 5" in str(chart.svg)


def test_bars_of_different_units_are_compared_each_by_itself() -> None:
    def bar(name: str, before: float, after: float) -> Bar:
        return Bar(name, [("Before", "tone-before", before, f"{before}"), ("After", "tone-main", after, f"{after}")])

    rects = _rects(charts.bars("b", "B", [bar("Attempts", 1000, 500), bar("Seconds", 0.2, 0.4)], each=True))
    widths = [rect["width"] for rect in rects]
    assert widths[0] == widths[3] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[2] == pytest.approx(widths[1], abs=0.2)


@pytest.mark.parametrize(("greatest", "last"), [(0, 1), (1, 1), (7, 8), (19_240, 20_000)])
def test_an_axis_ends_at_a_round_value_that_holds_all(greatest: float, last: float) -> None:
    found = scales.ticks(greatest)
    assert found[0] == 0
    assert found[-1] == pytest.approx(last)
    assert found[-1] >= greatest
    assert 2 <= len(found) <= 7


@pytest.mark.parametrize("power", range(-4, 9))
def test_axes_of_all_sizes_have_few_ticks(power: int) -> None:
    for factor in (1, 1.7, 3.3, 9.9):
        found = scales.ticks(factor * 10**power)
        assert found[-1] >= factor * 10**power * 0.999999
        assert len(found) <= 7, (factor * 10**power, found)


def test_numbers_as_people_read_them() -> None:
    assert [scales.share(value) for value in (0, 0.00001, 0.1234, 0.99999, 1, None)] == [
        *("0 %", "< 0.1 %", "12.3 %", "> 99.9 %", "100 %", "—"),
    ]
    assert scales.amount(604_800, "s") == "7 d"
    assert scales.amount(0.084, "s") == "84 ms"
    assert scales.amount(1536, "bytes") == "1.5 KiB"
    assert scales.amount(1_234_567, "") == "1,234,567"
    assert [scales.rough(2.0**power) for power in (1, 6, 10, 12, 18, 20)] == [
        *("2 s", "64 s", "17 m", "68 m", "3 d", "12 d"),
    ]


def test_the_time_axis_names_midnights_or_round_hours() -> None:
    hours = [BEGIN + timedelta(hours=number) for number in range(24)]
    assert [text for _, text in scales.time_labels(hours)] == [
        *("1 Feb", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"),
    ]
    weeks = [BEGIN + DAY * number for number in range(60)]
    labels = scales.time_labels(weeks)
    assert len(labels) <= 10
    assert all(re.fullmatch(r"\d{1,2} [A-Z][a-z]{2}", text) for _, text in labels)


def test_a_chart_without_values_is_no_error() -> None:
    for chart in (
        charts.lines("l", "L", [], []),
        charts.columns("c", "C", DAYS, [Series("ok", "tone-good", [0, 0, 0, 0])]),
        charts.histogram("h", "H", {}),
        charts.heat_map("m", "M", []),
        charts.pareto("p", "P", []),
        charts.bars("b", "B", []),
    ):
        assert "no value" in str(chart.svg) or chart.body
