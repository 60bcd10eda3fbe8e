"""Headers of repeatable requests: what is read, what is refused, what is written, what of an answer is given again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messaging.protocol.codecs.repeatable import (
    FIRST_SENT,
    REPLAY_NEVER,
    REQUEST_ID,
    RESULT,
    HeaderProblem,
    Identity,
    fingerprint,
    imf_fixdate,
    parse_imf_fixdate,
    read,
    read_result,
    storable_headers,
    write,
)
from messaging.protocol.errors import EncodeError, ProtocolError

bounded = settings(max_examples=300)
TIME = datetime(2019, 3, 26, 16, 6, 51, tzinfo=UTC)
DATE = "Tue, 26 Mar 2019 16:06:51 GMT"
UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def headers(**values: str | list[str]) -> dict[str, list[str]]:
    """request_id="a" -> {"repeatability-request-id": ["a"]}, and so on."""
    names = {
        "request_id": "repeatability-request-id",
        "first_sent": "repeatability-first-sent",
        "client_id": "repeatability-client-id",
        "key": "idempotency-key",
        "message_id": "message-id",
        "mid": "mid",
        "msg_create": "msgcreate",
    }
    return {names[name]: [value] if isinstance(value, str) else value for name, value in values.items()}


def problem(of: Mapping[str, list[str]]) -> str:
    with pytest.raises(HeaderProblem) as raised:
        read(of)
    assert isinstance(raised.value, ProtocolError)
    assert raised.value.detail.endswith("."), "a sentence"
    return raised.value.code


# --- identity ---


@pytest.mark.parametrize(
    ("given_", "identity"),
    [
        ({}, None),
        (headers(client_id="c"), None),
        ({"content-type": ["text/plain"]}, None),
        (headers(request_id="a", first_sent=DATE), Identity("a", TIME)),
        (headers(request_id="a", first_sent=DATE, client_id="till 4"), Identity("a", TIME, "till 4")),
        (headers(request_id=" a\t", first_sent=f" {DATE} "), Identity("a", TIME)),
        (headers(message_id="<1@b.example>", msg_create=DATE), Identity("<1@b.example>", TIME)),
        (headers(mid="a", msg_create=DATE), Identity("a", TIME)),
        (headers(message_id="a", first_sent=DATE), Identity("a", TIME)),
        (headers(key='"a"'), Identity("a", by_key=True)),
        (headers(key='"a"', client_id="c"), Identity("a", None, "c", by_key=True)),
        (headers(key=r'"a\"b\\c"'), Identity('a"b\\c', by_key=True)),
        (headers(request_id="x" * 96, first_sent=DATE), Identity("x" * 96, TIME)),
        (headers(request_id="! ~", first_sent=DATE), Identity("! ~", TIME)),
    ],
)
def test_what_identifies_a_request(given_: dict[str, list[str]], identity: Identity | None) -> None:
    assert read(given_) == identity


def test_g17_a_uuid_is_the_same_in_either_case() -> None:
    lower, upper = (read(headers(request_id=text, first_sent=DATE)) for text in (UUID, UUID.upper()))
    assert lower == upper == Identity(UUID, TIME)
    # Nothing else is: ids are opaque.
    other = read(headers(request_id="Order-A", first_sent=DATE))
    assert other is not None and other.request_id == "Order-A"
    key = read(headers(key=f'"{UUID.upper()}"'))
    assert key is not None and key.request_id == UUID.upper()


@pytest.mark.parametrize(
    ("given_", "missing"),
    [
        (headers(request_id="a"), FIRST_SENT),
        (headers(first_sent=DATE), REQUEST_ID),
        (headers(message_id="a"), FIRST_SENT),
        (headers(mid="a"), FIRST_SENT),
        (headers(msg_create=DATE), REQUEST_ID),
        (headers(request_id="a", client_id="c"), FIRST_SENT),
    ],
)
def test_g03_one_header_of_the_pair_is_not_enough(given_: dict[str, list[str]], missing: str) -> None:
    with pytest.raises(HeaderProblem, match=f"{missing} is missing") as raised:
        read(given_)
    assert raised.value.code == "header-missing"


BAD_DATES = [
    "2026-01-01T12:00:00Z",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
    "Tue, 31 Feb 2026 12:00:00 GMT",
    "Wed, 26 Mar 2019 16:06:51 GMT",  # it was a Tuesday
    "Tue, 26 Mar 2019 16:06:51 UTC",
    "Tue, 26 Mar 2019 16:06:51 +0000",
    "Tue, 26 Mar 2019 16:06:51",
    "tue, 26 mar 2019 16:06:51 gmt",
    "Tue, 26 Mar 2019 24:00:00 GMT",
    "Tue, 26 Mar 2019 16:06:60 GMT",
    "Tue, 6 Mar 2019 16:06:51 GMT",
    "Tue,  26 Mar 2019 16:06:51 GMT",
    "Tue, 26 Mar 19 16:06:51 GMT",
    "Sat, 01 Jan 0000 00:00:00 GMT",
    "Tue, ٢٦ Mar 2019 16:06:51 GMT",
    f"{DATE}, {DATE}",
    "1553616411",
    "",
]


@pytest.mark.parametrize("text", BAD_DATES)
@pytest.mark.parametrize("name", ["first_sent", "msg_create"])
def test_g04_only_imf_fixdate_is_a_first_instance_time(text: str, name: str) -> None:
    assert problem(headers(request_id="a", **{name: text})) == "malformed-date"
    with pytest.raises(ValueError):
        parse_imf_fixdate(text)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 4096, id="G36"),
        "x" * 97,
        "",
        "  ",
        "a\tb",
        "a\x7f",
        "a\r\nb",
        "ä",
        "a\x00",
    ],
)
def test_an_id_is_1_to_96_printable_characters(value: str) -> None:
    assert problem(headers(request_id=value, first_sent=DATE)) == "malformed-id"
    assert problem(headers(mid=value, msg_create=DATE)) == "malformed-id"
    assert problem(headers(request_id="a", first_sent=DATE, client_id=value)) == "malformed-id"


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        pytest.param(headers(key="abc"), "malformed-idempotency-key", id="G33-unquoted"),
        pytest.param(headers(key=['"abc"', '"abc"']), "repeated-header", id="G33-two-headers"),
        pytest.param(headers(key='"abc", "abc"'), "malformed-idempotency-key", id="G33-two-in-one"),
        (headers(key='"abc'), "malformed-idempotency-key"),
        (headers(key='"a"b"'), "malformed-idempotency-key"),
        (headers(key=r'"a\b"'), "malformed-idempotency-key"),
        (headers(key='"abc\\"'), "malformed-idempotency-key"),
        (headers(key="'abc'"), "malformed-idempotency-key"),
        (headers(key='""'), "malformed-idempotency-key"),
        (headers(key='" a"'), "malformed-idempotency-key"),
        (headers(key='"ä"'), "malformed-idempotency-key"),
        (headers(key='"abc";v=1'), "malformed-idempotency-key"),
        (headers(key=""), "malformed-idempotency-key"),
        pytest.param(headers(key='"' + "x" * 4096 + '"'), "malformed-idempotency-key", id="G36-key"),
    ],
)
def test_an_idempotency_key_is_one_quoted_string(given_: dict[str, list[str]], code: str) -> None:
    assert problem(given_) == code


@pytest.mark.parametrize(
    "given_",
    [
        headers(request_id=["a", "a"], first_sent=DATE),
        headers(request_id="a", first_sent=[DATE, DATE]),
        headers(request_id="a", message_id="b", first_sent=DATE),
        headers(request_id="a", mid="a", first_sent=DATE),
        headers(message_id="a", mid="a", msg_create=DATE),
        headers(request_id="a", first_sent=DATE, msg_create=DATE),
        headers(request_id="a", first_sent=DATE, client_id=["c", "d"]),
        headers(request_id="a", first_sent=DATE, key='"a"'),
        headers(request_id="a", key='"a"'),
        headers(msg_create=DATE, key='"a"'),
    ],
)
def test_what_is_said_twice_is_refused_and_not_chosen_from(given_: dict[str, list[str]]) -> None:
    assert problem(given_) == "repeated-header"


_VALUES = st.lists(st.text(max_size=40) | st.sampled_from(["a", UUID, DATE, '"a"', *BAD_DATES]), max_size=3)
_NAMES = st.sampled_from(
    [
        "repeatability-request-id",
        "repeatability-first-sent",
        "repeatability-client-id",
        "idempotency-key",
        "message-id",
        "mid",
        "msgcreate",
        "date",
    ]
)


@bounded
@given(st.dictionaries(_NAMES, _VALUES))
def test_whatever_comes_is_an_identity_or_a_problem_with_a_name(given_: dict[str, list[str]]) -> None:
    try:
        identity = read(given_)
    except HeaderProblem as raised:
        assert raised.code in {
            "header-missing",
            "malformed-date",
            "malformed-id",
            "repeated-header",
            "malformed-idempotency-key",
        }
        assert raised.detail.isascii() and raised.detail.isprintable(), "no stranger's text gets into an answer"
        return
    if identity is not None:
        assert (identity.first_sent is None) is identity.by_key
        assert 1 <= len(identity.request_id) <= 96 and identity.request_id.isprintable()


# --- writing ---

_IDS = st.from_regex(r"[!-~]([ -~]{0,94}[!-~])?", fullmatch=True, alphabet=st.characters(max_codepoint=127))
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC))


@bounded
@given(_IDS, _TIMES, st.just("") | _IDS, st.booleans())
@example('a"\\b', TIME, "", True)
def test_what_is_written_is_read_again(request_id: str, first_sent: datetime, client_id: str, by_key: bool) -> None:
    whole = first_sent.replace(microsecond=0)
    identity = Identity(request_id, None if by_key else whole, client_id, by_key)
    written = {name.lower(): [value] for name, value in write(identity)}
    read_again = read(written)
    folded = request_id.lower() if not by_key and len(request_id) == 36 and read_again != identity else request_id
    assert read_again == replace(identity, request_id=folded)


def test_the_headers_that_we_write() -> None:
    assert write(Identity(UUID, TIME)) == (
        ("Repeatability-Request-ID", UUID),
        ("Repeatability-First-Sent", DATE),
    )
    assert write(Identity("a", TIME, "c"))[2:] == (("Repeatability-Client-ID", "c"),)
    assert write(Identity('a"b', by_key=True)) == (("Idempotency-Key", r'"a\"b"'),)


@pytest.mark.parametrize(
    "identity",
    [
        Identity("", TIME),
        Identity("x" * 97, TIME),
        Identity("a\r\nHost: b", TIME),
        Identity(" a", TIME),
        Identity("a", TIME, "c\n"),
        Identity("a", None),
        Identity("ä", by_key=True),
    ],
)
def test_what_has_no_wire_form_is_not_written(identity: Identity) -> None:
    with pytest.raises(EncodeError):
        write(identity)


def test_a_date_is_written_in_utc_and_whole_seconds() -> None:
    assert imf_fixdate(TIME.replace(microsecond=999_999)) == DATE
    assert imf_fixdate(TIME.astimezone(timezone(timedelta(hours=9)))) == DATE
    with pytest.raises(ValueError, match="zone"):
        imf_fixdate(datetime(2026, 1, 1))


@bounded
@given(_TIMES)
def test_a_date_that_is_written_is_read_again(value: datetime) -> None:
    assert parse_imf_fixdate(imf_fixdate(value)) == value.replace(microsecond=0)


# --- the answer ---


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ([], ""),
        (["accepted"], "accepted"),
        (["Rejected "], "rejected"),
        (["ACCEPTED", "accepted"], "accepted"),
        (["accepted", "rejected"], ""),
        (["accepted, rejected"], ""),
        (["maybe"], ""),
        ([""], ""),
    ],
)
def test_the_result_of_a_request(values: list[str], result: str) -> None:
    assert RESULT == "Repeatability-Result"
    assert read_result(values) == result


def test_g35_what_belongs_to_one_connection_or_moment_is_not_given_again() -> None:
    kept = {
        "Content-Type": "application/json",
        "ETag": '"1"',
        "Location": "/orders/7",
        "X-Trace": "é",
        "Retry-After": "5",
    }
    gone = {
        "Date": DATE,
        "Set-Cookie": "s=1",
        "Content-Length": "12",
        "Server": "x",
        "Transfer-Encoding": "chunked",
        "Keep-Alive": "timeout=5",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "1",
        "Repeatability-Result": "accepted",
        "Repeatability-Window": "7200",
        "REPEATABILITY-Earliest": DATE,
        "X-Split": "a\r\nSet-Cookie: b",
        "X Bad": "1",
        "": "1",
        "X-Wide": "漢",
    }
    assert storable_headers({**gone, **kept}) == kept
    assert all(name == name.lower() for name in REPLAY_NEVER)


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_g15_the_fingerprint_tells_requests_apart() -> None:
    first = ("POST", "/exchange/a/", "text/plain", _sha(b"1"))
    others = [
        ("PUT", "/exchange/a/", "text/plain", _sha(b"1")),
        ("POST", "/exchange/b/", "text/plain", _sha(b"1")),
        ("POST", "/exchange/a/", "text/html", _sha(b"1")),
        ("POST", "/exchange/a/", "text/plain", _sha(b"2")),
        ("POST", "/exchange/a", "/text/plain", _sha(b"1")),
        ("POST", "/exchange/ä/", "text/plain", _sha(b"1")),
    ]
    assert len({fingerprint(*request) for request in [first, *others]}) == len(others) + 1
    assert fingerprint("POST", "/exchange/a/", " text/plain ", _sha(b"1").upper()) == fingerprint(*first)
    assert len(bytes.fromhex(fingerprint(*first))) == 32


_TEXTS = st.tuples(*[st.text(alphabet="a:,1 ", max_size=6)] * 3)


@bounded
@given(_TEXTS, _TEXTS)
@example(("a", "b,c", ""), ("a,b", "c", ""))
@example(("1:a", "", ""), ("", "1:a", ""))
def test_parts_of_a_fingerprint_do_not_run_together(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    def alike(parts: tuple[str, str, str]) -> tuple[str, str, str]:
        return parts[0], parts[1], parts[2].strip()

    same = fingerprint(*one, _sha(b"")) == fingerprint(*other, _sha(b""))
    assert same is (alike(one) == alike(other))
