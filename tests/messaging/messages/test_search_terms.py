"""The grammar of the search box."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from messaging.messages.selectors import search_terms
from messaging.messages.selectors.search_terms import Term, read, write

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_terms_and_the_id_that_is_left() -> None:
    found = read('state:failed,in_doubt partner:"Globex Ltd" size>=100k attempts<3 inv-9@acme')
    assert found.terms == (
        Term("state", ":", "failed,in_doubt"),
        Term("partner", ":", "Globex Ltd"),
        Term("size", ">=", "100k"),
        Term("attempts", "<", "3"),
    )
    assert (found.text, found.problems) == ("inv-9@acme", ())


@pytest.mark.parametrize("text", ["urn:uuid:123", "a+b=c", "http://x/y", "foo://x", "<id@x>", "20260101:7", "mid:7@x"])
def test_ids_with_colons_are_ids(text: str) -> None:
    assert read(text) == search_terms.Search(text=text)


@pytest.mark.parametrize("text", ["tag:x", "other:thing", "statement:1", "latency>2s", "Status:failed"])
def test_an_id_that_may_have_been_meant_as_a_term_is_told_apart(text: str) -> None:
    assert read(f"dir:in {text}") == search_terms.Search((Term("dir", ":", "in"),), text, (), (text,))
    assert read(f'"{text}"') == search_terms.Search(text=text)
    assert read(search_terms.exactly(text)) == read(f'"{text}"')


def test_an_id_that_looks_like_a_term_stands_in_quotes() -> None:
    assert read('"state:failed"') == search_terms.Search(text="state:failed")
    assert write([Term("dir", ":", "in")], "state:failed") == 'dir:in "state:failed"'
    assert read(write([Term("dir", ":", "in")], "state:failed")).text == "state:failed"


def test_pairs_with_their_arrow_and_agreements_with_colons() -> None:
    assert read("pair:ACME>GLOBEX agreement:tpa:acme-globex").terms == (
        Term("pair", ":", "ACME>GLOBEX"),
        Term("agreement", ":", "tpa:acme-globex"),
    )


@pytest.mark.parametrize("text", ["size:12", "state>failed", "state:", 'conv:""', "attempts:2"])
def test_a_sign_that_a_key_does_not_take_is_said(text: str) -> None:
    found = read(text)
    assert found.terms == () and len(found.problems) == 1 and text in found.problems[0]


def test_a_search_without_one_of_its_terms() -> None:
    found = read('state:failed partner:"A B" x-1')
    assert found.without(found.terms[0]) == 'partner:"A B" x-1'
    assert found.without(found.terms[1]) == "state:failed x-1"


@pytest.mark.parametrize(("text", "size"), [("812", 812), ("100k", 102_400), ("2M", 2**21), ("1GiB", 2**30)])
def test_sizes(text: str, size: int) -> None:
    assert search_terms.read_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "1.5M", "-3", "10T", "²"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        search_terms.read_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-27", datetime(2026, 2, 26, 23, tzinfo=UTC)),
        ("2026-02-27T14:00", datetime(2026, 2, 27, 13, tzinfo=UTC)),
        ("2026-02-27T14:00Z", datetime(2026, 2, 27, 14, tzinfo=UTC)),
        ("today", datetime(2026, 2, 28, 23, tzinfo=UTC)),
        ("yesterday-14:00", datetime(2026, 2, 28, 13, tzinfo=UTC)),
        ("yesterday", datetime(2026, 2, 27, 23, tzinfo=UTC)),
        ("09:30", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("24h", NOW - timedelta(hours=24)),
        ("-7d", NOW - timedelta(days=7)),
    ],
)
def test_times_are_those_of_whoever_writes_them(text: str, expected: datetime) -> None:
    assert search_terms.read_time(text, ZoneInfo("Europe/Berlin"), NOW) == expected


@pytest.mark.parametrize("text", ["someday", "25:00", "2026-13-01", "yesterday-24:61", "9999999h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        search_terms.read_time(text, UTC, NOW)
