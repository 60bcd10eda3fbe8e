"""Whether a server is tried at all: a circuit breaker below transport recovery (spec 1, 2.5.4).

Pure: `step(circuit, seen, now, policy)` is what one outcome changes, `verdict(circuit, now)` what the next attempt may
do. A server that could not be reached several times in a row, over some seconds, is left alone for a while; then one
attempt is let through as a probe, and everybody waits for what becomes of it. Any answer, a refusal too, shows that the
server is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


class State(StrEnum):
    CLOSED = "closed"  # used like any other; `failures` in a row may have been counted
    OPEN = "open"  # left alone until retry_at


class Seen(StrEnum):
    """What happened to a circuit."""

    REACHED = "reached"  # the server answered, whatever it said
    UNREACHABLE = "unreachable"  # no connection, or no answer on it
    PROBE_FAILED = "probe_failed"  # UNREACHABLE, and it was the one attempt that was let through
    PROBE_WITHOUT_WORD = "probe_without_word"  # the probe was not put on the wire after all
    RESET = "reset"  # a person wants it tried now


class Verdict(StrEnum):
    """What the next attempt to this server may do."""

    SEND = "send"
    PROBE = "probe"  # whoever takes it (`take_probe`) sends; everybody else fails at once
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Policy:
    """So many `failures` in a row open it, once it has been silent for `silence` seconds: a link that loses one request
    in five loses three in a row every few seconds, and is no reason to stop everybody. It is tried again after
    `first_wait` seconds, then each time after a quarter of the time that it has been away, up to `longest`: whoever
    comes back is found soon, measured by the outage.
    """

    failures: int = 3  # as many as one message makes by the usual transport recovery
    silence: float = 3
    first_wait: float = 3
    longest: float = 60


@dataclass(frozen=True, slots=True)
class Circuit:
    """One server. `silent_since`: when the first of its failures in a row began. `opened_at`: since when it is left
    alone. `waits`: how often in a row it was.

    `retry_at`: when one attempt is let through; while a probe is under way, when its word is no longer waited for.
    """

    state: State = State.CLOSED
    failures: int = 0
    silent_since: datetime | None = None
    opened_at: datetime | None = None
    retry_at: datetime | None = None
    waits: int = 0


POLICY = Policy()
UNTOUCHED = Circuit()

# Attempts that say that the server was not reached, of all transports (docs/causes.md). An answer has a status, and
# says the opposite whatever it is: 503 with Retry-After is about one message (streams say "not in this order" by it).
UNREACHABLE = frozenset(
    {
        "dns_error",
        "connect_refused",
        "connect_timeout",
        "connection_reset",
        "read_timeout",
        "proxy_error",
        "tls_handshake",
        "cert_expired",
        "cert_untrusted",
        "host_key_mismatch",
    }
)
# Attempts that never got as far as the server: they say nothing about it.
SILENT = frozenset(
    {
        "circuit_open",
        "not_begun",
        "window_over",
        "worker_lost",
        "internal_error",
        "login_missing",
        "host_key_missing",
        "mail_not_set_up",
    }
)


def seen(*, ok: bool, status: int | None, cause: str) -> Seen | None:
    """What an attempt tells about the server; None = nothing."""
    if ok or status is not None:
        return Seen.REACHED
    if cause in UNREACHABLE:
        return Seen.UNREACHABLE
    return None if cause in SILENT or not cause else Seen.REACHED


def wait(away: timedelta, policy: Policy = POLICY) -> timedelta:
    """How long a server is left alone that has been away for so long."""
    return min(timedelta(seconds=policy.longest), max(timedelta(seconds=policy.first_wait), away / 4))


def _open(circuit: Circuit, began: datetime, now: datetime, policy: Policy) -> Circuit:
    opened_at = circuit.opened_at or now
    return replace(
        circuit,
        state=State.OPEN,
        failures=circuit.failures + 1,
        opened_at=opened_at,
        # After a reset the waits begin anew.
        retry_at=now + wait(now - opened_at if circuit.waits else timedelta(0), policy),
        waits=circuit.waits + 1,
    )


def _count(circuit: Circuit, began: datetime, now: datetime, policy: Policy) -> Circuit:
    since = min(circuit.silent_since or began, began)
    circuit = replace(circuit, silent_since=since)
    if circuit.failures + 1 >= policy.failures and now - since >= timedelta(seconds=policy.silence):
        return _open(circuit, began, now, policy)
    return replace(circuit, failures=circuit.failures + 1)


def _close(circuit: Circuit, began: datetime, now: datetime, policy: Policy) -> Circuit:
    return UNTOUCHED


def _keep(circuit: Circuit, began: datetime, now: datetime, policy: Policy) -> Circuit:
    return circuit


def _try_now(circuit: Circuit, began: datetime, now: datetime, policy: Policy) -> Circuit:
    return replace(circuit, retry_at=now, waits=0)


Move = Callable[[Circuit, datetime, datetime, Policy], Circuit]  # when the attempt began, and now

# Every state has a row, every row a cell for all that can happen.
TABLE: Mapping[State, Mapping[Seen, Move]] = {
    State.CLOSED: {
        Seen.REACHED: _close,
        Seen.UNREACHABLE: _count,
        # The probe of a circuit that somebody else has closed meanwhile is an attempt like any other.
        Seen.PROBE_FAILED: _count,
        Seen.PROBE_WITHOUT_WORD: _keep,
        Seen.RESET: _close,
    },
    State.OPEN: {
        Seen.REACHED: _close,
        # Begun before it opened, or the last try of a message: neither says more than is known, nor moves the probe.
        Seen.UNREACHABLE: _keep,
        Seen.PROBE_FAILED: _open,
        Seen.PROBE_WITHOUT_WORD: lambda circuit, began, now, policy: replace(circuit, retry_at=now),
        Seen.RESET: _try_now,
    },
}


def step(
    circuit: Circuit, seen: Seen, now: datetime, policy: Policy = POLICY, *, began: datetime | None = None
) -> Circuit:
    """The circuit after what was seen of an attempt that `began` then (None = now); the same one when nothing changes.

    An attempt that ran into a time limit has waited for the server all that time.
    """
    return TABLE[circuit.state][seen](circuit, began or now, now, policy)


def verdict(circuit: Circuit, now: datetime) -> Verdict:
    """What an attempt at this moment may do."""
    if circuit.state is State.CLOSED:
        return Verdict.SEND
    return Verdict.PROBE if circuit.retry_at is None or now >= circuit.retry_at else Verdict.FAIL


def take_probe(circuit: Circuit, now: datetime, lease: float) -> Circuit:
    """The open circuit while its probe is under way, for `lease` seconds at most.

    A probe of which nothing is heard by then (its worker died) is followed by another.
    """
    return replace(circuit, retry_at=now + timedelta(seconds=lease))
