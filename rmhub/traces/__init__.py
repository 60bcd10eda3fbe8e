"""What happens to messages, as OpenTelemetry spans, for the collector that RMHUB_TRACES_URL names.

The trace of a message has the message's own id: the trace of `msg_0192f3f2...` is `0192f3f2...`. So each process that
goes on with it, whatever died in between and however much later, knows the trace, its first span (`root`), and whether
it is traced at all (`of`); nothing is stored. docs/decisions.md says why.

Without the setting we import nothing of OpenTelemetry (`rmhub.traces.otlp` is what does), and each question here ends
at one `if`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings

if TYPE_CHECKING:
    from rmhub.traces.otlp import Tracing

HEADER = "traceparent"  # W3C Trace Context, 3.2
_LONGEST = 100  # characters of such a header that are kept; today's have 55
NOTHING: AbstractContextManager[None] = nullcontext()
# The last eight octets of an id: chance, but for two bits (UUIDv7).
_LAST = (1 << 64) - 1
# Spreads them: ids that a process makes within a millisecond may follow each other (2^64 by the golden ratio; Knuth,
# The Art of Computer Programming 3, 6.4).
_SPREAD = 0x9E3779B97F4A7C15

_tracing: Tracing | None = None
_lock = threading.Lock()


class Kind(StrEnum):
    """Of a span: OpenTelemetry Tracing API, "SpanKind"."""

    CLIENT = "client"
    CONSUMER = "consumer"
    INTERNAL = "internal"
    PRODUCER = "producer"
    SERVER = "server"


def active() -> Tracing | None:
    """Return what takes spans, made at first use; None when nothing is traced."""
    if _tracing is not None or not settings.RMHUB_TRACES_URL:
        return _tracing
    return _begun()


def _begun() -> Tracing:
    global _tracing
    with _lock:
        if _tracing is None:
            from rmhub.traces.otlp import Tracing

            _tracing = Tracing()
        return _tracing


def of(key: uuid.UUID | None) -> Tracing | None:
    """Return what takes the spans of this trace; None when it is none of those that are told (RMHUB_TRACES_SHARE).

    Every process comes to the same answer.
    """
    tracing = active()
    if tracing is None or key is None or not is_chosen(key.int, settings.RMHUB_TRACES_SHARE):
        return None
    return tracing


def is_chosen(trace_id: int, share: float) -> bool:
    """Whether a trace is in the share of all that are told, by the random part of its id."""
    return (trace_id * _SPREAD) & _LAST < share * (_LAST + 1)


def endpoint() -> str:
    """Where spans go: a RMHUB_TRACES_URL without a path gets that of OTLP (1.x, "OTLP/HTTP Request")."""
    url: str = settings.RMHUB_TRACES_URL
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"


def given(environ: Mapping[str, Any]) -> str:
    """What a request says of the span that it belongs to (WSGI's environ); "" where nothing is traced."""
    return str(environ.get("HTTP_TRACEPARENT", ""))[:_LONGEST] if active() is not None else ""


def root_span(key: uuid.UUID) -> int:
    """The id of the first span of a message's trace."""
    return key.int & _LAST


def root(key: uuid.UUID) -> str:
    """The `traceparent` that names the first span of a message's trace; "" when that is not told."""
    return f"00-{key.hex}-{root_span(key):016x}-01" if of(key) is not None else ""


def current() -> str:
    """The `traceparent` of the span that this thread is in; "" without one."""
    return "" if _tracing is None else _tracing.current()


def headers() -> dict[str, str]:
    """The header that tells another server which span a request of this thread belongs to; none without a span."""
    return {HEADER: parent} if _tracing is not None and (parent := _tracing.current()) else {}


def refer(key: uuid.UUID) -> None:
    """Links the span that this thread is in, if it is in one, to the trace of a message."""
    if _tracing is not None and (traceparent := root(key)):
        _tracing.refer(traceparent)


def close() -> None:
    """Hands over the spans that are left, which takes no longer than `otlp.FLUSH_SECONDS`; nothing, where none are."""
    global _tracing
    with _lock:
        ended, _tracing = _tracing, None
    if ended is not None:
        ended.close()
