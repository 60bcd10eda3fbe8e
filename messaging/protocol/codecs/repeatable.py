"""Headers of repeatable requests: spec 2's message id and first-instance time, as OASIS Repeatable Requests names them.

    Repeatability-Request-ID   Message-ID or MID      the id, the sender's own
    Repeatability-First-Sent   MsgCreate              when the first copy was sent, IMF-fixdate (RFC 9110, 5.6.7)
    Repeatability-Client-ID                           optional, groups ids for deletion
    Repeatability-Result                              of the answer: accepted or rejected
    Idempotency-Key                                   the id alone, an RFC 8941 string

The middle column is read in place of the left one (SOA-Rity's names); we write the left one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from messaging.protocol.errors import EncodeError, ProtocolError

REQUEST_ID = "Repeatability-Request-ID"
FIRST_SENT = "Repeatability-First-Sent"
CLIENT_ID = "Repeatability-Client-ID"
RESULT = "Repeatability-Result"
IDEMPOTENCY_KEY = "Idempotency-Key"

_ID_NAMES = (REQUEST_ID, "Message-ID", "MID")
_TIME_NAMES = (FIRST_SENT, "MsgCreate")

MAX_ID = 96  # characters

_ID = re.compile(r"[!-~](?:[ -~]{0,94}[!-~])?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')  # RFC 8941, 3.3.3
_ESCAPED = re.compile(r'\\(["\\])')

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_IMF_FIXDATE = re.compile(
    rf"({'|'.join(_DAYS)}), ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) "
    r"([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)


class HeaderProblem(ProtocolError):
    """The headers cannot identify a request: HTTP 400, and nothing is executed.

    `code`: header-missing, malformed-date, malformed-id, repeated-header or malformed-idempotency-key.
    `detail`: a sentence that names the header and says what is expected; it never repeats a stranger's text.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two requests of one sender the same.

    `first_sent` (UTC, whole seconds) is None exactly when the request is identified `by_key` alone. Ids that are
    UUIDs are in lower case.
    """

    request_id: str
    first_sent: datetime | None = None
    client_id: str = ""
    by_key: bool = False


def imf_fixdate(value: datetime) -> str:
    """`Tue, 26 Mar 2019 16:06:51 GMT`; fractions of the second are cut off. Raises ValueError for a naive datetime."""
    if value.utcoffset() is None:
        raise ValueError("a time without a zone has no HTTP form")
    utc = value.astimezone(UTC)
    return (
        f"{_DAYS[utc.weekday()]}, {utc.day:02} {_MONTHS[utc.month - 1]} {utc.year:04} "
        f"{utc.hour:02}:{utc.minute:02}:{utc.second:02} GMT"
    )


def parse_imf_fixdate(text: str) -> datetime:
    """The instant, in UTC. Raises ValueError for everything else: other HTTP dates, 31 Feb, a wrong day of the week."""
    matched = _IMF_FIXDATE.fullmatch(text)
    if matched is None:
        raise ValueError("not an IMF-fixdate")
    weekday, day, month, year, hour, minute, second = matched.groups()
    value = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    if _DAYS[value.weekday()] != weekday:
        raise ValueError("not the day of the week of this date")
    return value


def _one(headers: Mapping[str, Sequence[str]], names: Sequence[str]) -> tuple[str, str] | None:
    """(name, value) of the one header that is there, whichever of its names it has; None without any."""
    found = [(name, value) for name in names for value in headers.get(name.lower(), ())]
    if len(found) > 1:
        said = " and ".join(dict(found))
        raise HeaderProblem("repeated-header", f"{said}: the same was said {len(found)} times; say it once.")
    if not found:
        return None
    name, value = found[0]
    return name, value.strip(" \t")


def _id(name: str, value: str, code: str = "malformed-id") -> str:
    if _ID.fullmatch(value) is None:
        raise HeaderProblem(
            code, f"{name} has to be 1 to {MAX_ID} printable ASCII characters, not a blank first or last."
        )
    return value


def _date(name: str, value: str) -> datetime:
    try:
        return parse_imf_fixdate(value)
    except ValueError:
        raise HeaderProblem(
            "malformed-date", f"{name} has to be an IMF-fixdate such as Tue, 26 Mar 2019 16:06:51 GMT."
        ) from None


def _key(name: str, value: str) -> str:
    code = "malformed-idempotency-key"
    matched = _STRING.fullmatch(value)
    if matched is None:
        raise HeaderProblem(code, f'{name} has to be one string in double quotes, such as "8e03978e-40d5-43e8-bc93".')
    return _id(name, _ESCAPED.sub(r"\1", matched[1]), code)


def is_id(value: str) -> bool:
    """Whether `value` can identify a request: 1 to MAX_ID printable ASCII characters, no blank first or last."""
    return _ID.fullmatch(value) is not None


def canonical_id(identifier: str) -> str:
    """The form in which ids are compared: UUIDs in lower case, everything else as it is."""
    return identifier.lower() if _UUID.fullmatch(identifier) else identifier


def read(headers: Mapping[str, Sequence[str]]) -> Identity | None:
    """What identifies a request. `headers`: lower-case name -> all its values, in order. None: nothing does.

    Raises HeaderProblem when only one header of the pair is there, when one is given twice or under two names, when a
    value is malformed, and when the pair and an Idempotency-Key both claim to identify the request.
    """
    request_id, first_sent = _one(headers, _ID_NAMES), _one(headers, _TIME_NAMES)
    key, client = _one(headers, (IDEMPOTENCY_KEY,)), _one(headers, (CLIENT_ID,))
    if request_id is None and first_sent is None and key is None:
        return None
    if key is not None and (request_id is not None or first_sent is not None):
        other = request_id or first_sent
        assert other is not None
        raise HeaderProblem(
            "repeated-header", f"{IDEMPOTENCY_KEY} and {other[0]} both identify the request: give one of them."
        )
    client_id = _id(*client) if client is not None else ""
    if key is not None:
        return Identity(_key(*key), None, client_id, by_key=True)
    if request_id is None or first_sent is None:
        there, missing = (request_id, FIRST_SENT) if request_id is not None else (first_sent, REQUEST_ID)
        assert there is not None
        raise HeaderProblem("header-missing", f"{there[0]} is there, but {missing} is missing: give both.")
    return Identity(canonical_id(_id(*request_id)), _date(*first_sent), client_id)


def write(identity: Identity) -> tuple[tuple[str, str], ...]:
    """The request headers, the same for every copy. Raises EncodeError for an identity that has no wire form."""
    for value in (identity.request_id, identity.client_id or "-"):
        if _ID.fullmatch(value) is None:
            raise EncodeError(f"not 1 to {MAX_ID} printable ASCII characters without a blank first or last: {value!r}")
    client = ((CLIENT_ID, identity.client_id),) if identity.client_id else ()
    if identity.by_key:
        escaped = identity.request_id.replace("\\", "\\\\").replace('"', '\\"')
        return ((IDEMPOTENCY_KEY, f'"{escaped}"'), *client)
    if identity.first_sent is None:
        raise EncodeError("a request that is not identified by key needs its first-instance time")
    return ((REQUEST_ID, identity.request_id), (FIRST_SENT, imf_fixdate(identity.first_sent)), *client)


def read_result(values: Sequence[str]) -> str:
    """`accepted` or `rejected`, from all values of `Repeatability-Result` of an answer; "" when it says neither."""
    words = {value.strip(" \t").lower() for value in values}
    return words.pop() if len(words) == 1 and words <= {"accepted", "rejected"} else ""


# What belongs to one connection, one moment or one client, and not to the answer as it was first given (G35).
REPLAY_NEVER = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "repeatability-client-id",
        "repeatability-first-sent",
        "repeatability-request-id",
        "repeatability-result",
        "server",
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    }
)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_VALUE = re.compile("[\t -~\x80-\xff]*")


def storable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an answer that are stored and given again, under the names that they had.

    Left out: `REPLAY_NEVER`, all of `Repeatability-*`, what the Connection header names (RFC 9110, 7.6.1), and
    whatever could not be written as a header again.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    hop = {name.strip().lower() for name in lower.get("connection", "").split(",")}
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in REPLAY_NEVER | hop
        and not name.lower().startswith("repeatability-")
        and _TOKEN.fullmatch(name)
        and _FIELD_VALUE.fullmatch(value)
    }


def fingerprint(method: str, target: str, content_type: str, body_sha256: str) -> str:
    """SHA-256, in hex, of what a repeat must have in common with the first copy. `body_sha256`: hex, of the body.

    Each part is preceded by its length, so that two different requests cannot run together into one text.
    """
    parts = (method, target, content_type.strip(), body_sha256.lower())
    encoded = [part.encode("utf-8", "surrogateescape") for part in parts]
    return hashlib.sha256(b"".join(b"%d:%s," % (len(part), part) for part in encoded)).hexdigest()
