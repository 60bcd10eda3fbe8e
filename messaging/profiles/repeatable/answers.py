"""What the entrance of repeatable requests (spec 2) says: acknowledgements, stored answers, problems.

What a partner may ask about the memory of repeatable requests (spec 2, "Memory Window Sizes and Repeat Intervals").

A weak promise: a sender must not rely on it, because windows change and memory may be lost; the window check is what
protects it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from messaging.engine import memory as hub_memory
from messaging.models import MemoryEpoch
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.profiles.repeatable.remembering import Answered
from messaging.protocol.codecs.repeatable import RESULT, imf_fixdate
from messaging.protocol.memory import Memory, Refusal, horizon
from partners import registry
from partners.choices import Profile
from partners.terms import Terms

Json = dict[str, Any]

ACCEPTED, REJECTED = "accepted", "rejected"
# What these say is true of this moment only.
_NEVER_KEPT = ("Cache-Control", "no-store")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response. Headers are names and values; a name may come several times."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


def problem(
    code: str,
    detail: str = "",
    *,
    status: int | None = None,
    result: str = REJECTED,
    retry_after: int | None = None,
    headers: Mapping[str, str] | None = None,
    **members: object,
) -> Answer:
    """An error as RFC 9457 problem details, with `Repeatability-Result`; "" leaves that header out."""
    kind = PROBLEMS[code]
    status = kind.status if status is None else status
    body: Json = {"type": kind.type, "title": kind.title, "status": status, "detail": detail or kind.meaning}
    named: dict[str, str] = {"Link": f'<{kind.type}>; rel="help"'}
    if result:
        named[RESULT] = result
    if retry_after is not None:
        named["Retry-After"] = str(max(1, retry_after))
    named.update(headers or {})
    return _json(status, {**body, **members}, named, "application/problem+json")


def window_problem(code: str, memory: Memory, first_sent: datetime, now: datetime) -> Answer:
    """412 for a first-instance time that is not in the memory: names the window, our time and where memory starts."""
    earliest = horizon(memory, now)
    return problem(
        code,
        window_detail(code, memory, first_sent, now),
        headers=window_headers(memory, now),
        window_seconds=_seconds(memory.window),
        server_time=instant(now),
        memory_start=instant(memory.memory_start),
        earliest_accepted_first_sent=instant(earliest),
        max_skew_seconds=_seconds(memory.skew),
    )


def window_detail(code: str, memory: Memory, first_sent: datetime, now: datetime) -> str:
    """The sentence for a first-instance time that is not in the memory."""
    if code == Refusal.FIRST_SENT_IN_FUTURE:
        return (
            f"First sent {imf_fixdate(first_sent)}, but it is {imf_fixdate(now)} here, and the agreement allows"
            f" {_seconds(memory.skew)} s of difference. Compare the clocks."
        )
    return (
        f"First sent {imf_fixdate(first_sent)}, but ids are remembered from"
        f" {imf_fixdate(_next_second(horizon(memory, now)))} on (window {_seconds(memory.window)} s, memory since"
        f" {imf_fixdate(memory.memory_start)}, now {imf_fixdate(now)}). Whether the request was executed before"
        " cannot be said: find out, before you send it under a new id."
    )


def window_headers(memory: Memory, now: datetime) -> dict[str, str]:
    """The hint that goes with every 412 (protocols 2.5). The time is rounded up: from then on requests are taken."""
    return {
        "Repeatability-Window": str(_seconds(memory.window)),
        "Repeatability-Earliest": imf_fixdate(_next_second(horizon(memory, now))),
    }


def acknowledgement(message_id: str, received_at: datetime | None, *, remembered: bool = True) -> Answer:
    """202: stored. The same for every copy. `received_at` is None when the message itself is no longer kept."""
    body: Json = {"message_id": message_id, "status": "stored"}
    if received_at is not None:
        body["received_at"] = instant(received_at)
    return _json(202, body, {RESULT: ACCEPTED} if remembered else {}, "application/json")


def replay(answered: Answered, *, remembered: bool = True) -> Answer:
    """The application's answer, to the first copy and to every repeat."""
    theirs = tuple(pair for pair in answered.headers if pair[0].lower() != "x-content-type-options")
    own = (("X-Content-Type-Options", "nosniff"), *(((RESULT, ACCEPTED),) if remembered else ()))
    return Answer(answered.status, (*theirs, *own), answered.body)


def told(body: Json, headers: Mapping[str, str] | None = None) -> Answer:
    """200 with what somebody asked for."""
    return _json(200, body, headers or {}, "application/json")


def instant(value: datetime) -> str:
    """RFC 3339, in UTC."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _json(status: int, body: Json, headers: Mapping[str, str], media_type: str) -> Answer:
    content = json.dumps(body).encode()
    return Answer(status, (("Content-Type", media_type), _NEVER_KEPT, *headers.items()), content)


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())


def _next_second(value: datetime) -> datetime:
    """An IMF-fixdate has no fractions, and a fraction cut off would name a time that is refused."""
    return value if value.microsecond == 0 else value.replace(microsecond=0) + timedelta(seconds=1)


BACK_OFF = 2  # the factor of the exponential back-off that spec 2 asks for


def of_agreement(terms: Terms, row: MemoryEpoch, now: datetime) -> Json:
    """What holds for requests under one agreement."""
    return {
        "agreement": terms.tpa_id,
        **_memory(terms, row, now),
        "exchange": terms.exchange_mode,
        "identity": terms.exchange_identity,
        "max_message_bytes": terms.max_message_bytes,
        "services": [
            {"service": service, "action": action} for service, action, way in terms.services if way != "send"
        ],
    }


def of_hub(row: MemoryEpoch, now: datetime) -> Json | None:
    """What holds for every agreement of this kind, whoever asks; None while none is in force."""
    agreements = [terms for terms in registry.current().active() if terms.profile == Profile.REPEATABLE]
    if not agreements:
        return None
    strictest = min(agreements, key=lambda terms: terms.memory_window)
    told = _memory(strictest, row, now)
    told["max_skew_seconds"] = min(terms.clock_skew for terms in agreements)
    told["suggested_retry"] = {
        "initial": max(terms.repeat_interval for terms in agreements),
        "factor": BACK_OFF,
        "max": max(terms.repeat_interval_max for terms in agreements),
    }
    return told


def _memory(terms: Terms, row: MemoryEpoch, now: datetime) -> Json:
    return {
        "window_seconds": terms.memory_window,
        "memory_start": instant(row.memory_start),
        "earliest_accepted_first_sent": instant(horizon(hub_memory.memory(row, terms), now)),
        "now": instant(now),
        "max_skew_seconds": terms.clock_skew,
        "suggested_retry": {
            "initial": terms.repeat_interval,
            "factor": BACK_OFF,
            "max": terms.repeat_interval_max,
        },
    }
