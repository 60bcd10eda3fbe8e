"""Time stamps and URIs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from messaging.protocol.codecs.ebxml import normalize_uri, parse_timestamp

from .samples import (
    SENT,
)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("19991110T102344.000Z", datetime(1999, 11, 10, 10, 23, 44, tzinfo=UTC)),
        ("\r\n  19991110T102344.000Z\n", datetime(1999, 11, 10, 10, 23, 44, tzinfo=UTC)),
        ("19991110T102344Z", datetime(1999, 11, 10, 10, 23, 44, tzinfo=UTC)),
        ("19991110T1023Z", datetime(1999, 11, 10, 10, 23, tzinfo=UTC)),
        ("2013-10-24T15:08:07", datetime(2013, 10, 24, 15, 8, 7, tzinfo=UTC)),
        ("2013-10-24 15:08:07z", datetime(2013, 10, 24, 15, 8, 7, tzinfo=UTC)),
        ("2013-10-24T15:08:07.1234567Z", datetime(2013, 10, 24, 15, 8, 7, 123_456, tzinfo=UTC)),
        ("2013-10-24T15:08:07,5Z", datetime(2013, 10, 24, 15, 8, 7, 500_000, tzinfo=UTC)),
        ("2013-10-24T15:08:07.123456789123+02:00", datetime(2013, 10, 24, 13, 8, 7, 123_456, tzinfo=UTC)),
        ("20131024T150807-0530", datetime(2013, 10, 24, 20, 38, 7, tzinfo=UTC)),
        ("20131024T150807+02", datetime(2013, 10, 24, 13, 8, 7, tzinfo=UTC)),
        ("19981231T235960Z", datetime(1999, 1, 1, tzinfo=UTC)),
    ],
)
def test_time_stamps_that_are_read(text: str, moment: datetime) -> None:
    parsed = parse_timestamp(text)
    assert parsed == moment
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "Tue Jul 10 20:01:14 HKT 2007",
        "20001302T103000Z",
        "20000230T103000Z",
        "2000-1002T103000Z",
        "2000-10-02T10:3000Z",
        "20001002",
        "20001002T243000Z",
        "20001002T103061Z",
        "20001002T103000.Z",
        "20001002T103000+25:00",
        "00010101T000000+01:00",
        "99991231T235959-01:00",
        "99991231T235960Z",
        "2000\u0661002T103000Z",
        "20001002T103000ZZ",
    ],
)
def test_texts_that_are_no_time_stamp(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_timestamp(text)


def test_time_stamp_in_another_zone_is_the_same_instant() -> None:
    zone = timezone(timedelta(hours=9))
    assert parse_timestamp("20001002T193000.000+0900") == datetime(2000, 10, 2, 19, 30, tzinfo=zone) == SENT


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        (" HTTP://Msh.Example:8080/Path?Q#F \n", "http://msh.example:8080/Path?Q#F"),
        ("https://User:Pw@HOST", "https://User:Pw@host"),
        ("https://HOST?Q", "https://host?Q"),
        ("MAILTO:Msh@Example.ORG?Subject=X", "mailto:Msh@example.org?Subject=X"),
        ("mailto://Msh@Example.ORG", "mailto://Msh@example.org"),
        ("mailto:Postmaster", "mailto:Postmaster"),
        ("URN:Example:A", "urn:Example:A"),
        ("No Scheme:X", "No Scheme:X"),
        ("Plain", "Plain"),
        ("", ""),
    ],
)
def test_uris_are_compared_with_scheme_and_host_in_lower_case(uri: str, normal: str) -> None:
    assert normalize_uri(uri) == normal
    assert normalize_uri(normal) == normal
