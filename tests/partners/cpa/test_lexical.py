"""Times, durations and numbers of XML Schema."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partners.cpa import lexical


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2031-01-01T00:00:00Z", datetime(2031, 1, 1, tzinfo=UTC)),
        (" 2031-01-01T00:00:00\n", datetime(2031, 1, 1, tzinfo=UTC)),
        ("2031-01-01T01:30:00.1234567+01:30", datetime(2031, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        ("2030-12-31T20:00:00.5-04:00", datetime(2031, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        ("2030-12-31T24:00:00Z", datetime(2031, 1, 1, tzinfo=UTC)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert lexical.read_date_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "12031-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T24:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "2031-01-01",
        "2031-02-30T00:00:00Z",
    ],
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        lexical.read_date_time(text)


@pytest.mark.parametrize(
    ("text", "length", "months"),
    [
        ("PT720M", timedelta(hours=12), False),
        ("P4D", timedelta(days=4), False),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5), False),
        ("P1Y2M", timedelta(days=425), True),
        ("PT0S", timedelta(), False),
        ("PT1M", timedelta(minutes=1), False),
        ("P1M", timedelta(days=30), True),
    ],
)
def test_durations(text: str, length: timedelta, months: bool) -> None:
    assert lexical.read_duration(text) == length
    assert lexical.has_months(text) is months


@given(st.timedeltas(min_value=timedelta()))
def test_a_duration_that_is_written_reads_the_same(length: timedelta) -> None:
    assert lexical.read_duration(lexical.write_duration(length)) == length


@given(st.datetimes(timezones=st.timezones()).filter(lambda moment: 1 < moment.year < 9999))
def test_a_time_that_is_written_reads_the_same(moment: datetime) -> None:
    assert lexical.read_date_time(lexical.write_date_time(moment)) == moment.astimezone(UTC)


@pytest.mark.parametrize("text", ["-1", "1000000000", "9" * 5000])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"digits|between"):
        lexical.read_number(text)


def test_numbers_and_truth() -> None:
    assert [lexical.read_number(text) for text in ("+5", " 007 ", "999999999")] == [5, 7, 999_999_999]
    assert [lexical.read_boolean(text) for text in ("true", " 1", "false", "0")] == [True, True, False, False]
