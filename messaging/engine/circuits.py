"""Circuits of servers that could not be reached lately (spec 1, 2.5.4): `protocol.circuit` decides, here rows move.

Only servers that failed have a row. Each process reads all of them once a second at most and looks into that copy for
every attempt, so that an ordinary success costs nothing; what changes is written in the transaction that records the
attempts. Of several workers exactly one takes the probe: whoever moves `retry_at` on.

Says when the retries of a pair run out: at half of them, at 70 and at 90 percent, before anybody has to be woken.

Incidents about servers that have been left alone for minutes belong to a pair that sends to the server, and close when
the server answers, whoever asked (`answered`). One that a person resolves opens again only for a new outage. `watch` is
part of housekeeping; it is safe at any time and in several workers at once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from messaging import dispatch
from messaging.choices import Direction, IncidentState
from messaging.claim import Job
from messaging.exceptions import NotFound
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import Circuit, Event, Incident, Pair
from messaging.models.bulk import read
from messaging.protocol import circuit as core
from messaging.protocol.circuit import UNREACHABLE, Seen, State, Verdict
from messaging.protocol.pair_state import Flow
from messaging.servers import pairs_at
from messaging.transports import Receipt
from messaging.transports.base import server_of
from rmhub import clock

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
CAUSE = "circuit_open"


class _Known:
    """This process's copy of the rows, and the probes that it has under way."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.looked_at = float("-inf")  # monotonic seconds
        self.rows: dict[str, tuple[core.Circuit, str]] = {}  # server -> circuit, cause of the last failure
        self.probes: dict[uuid.UUID, str] = {}  # transmission -> server


_known = _Known()


def forget() -> None:
    """Forgets the copy (tests)."""
    global _known
    _known = _Known()


def refresh(*, at_once: bool = False) -> None:
    """Reads the rows again when the copy is older than a second. Never inside a transaction: it would read the past."""
    known = _known
    if not at_once and time.monotonic() - known.looked_at < LOOK_SECONDS:
        return
    rows = {row.address: (core_of(row), row.cause) for row in Circuit.objects.all()}
    with known.lock:
        known.rows = rows
        known.looked_at = time.monotonic()


def core_of(row: Circuit) -> core.Circuit:
    """The row as the decision table knows it."""
    return core.Circuit(State(row.state), row.failures, row.silent_since, row.opened_at, row.retry_at, row.opened_times)


def server_of_job(job: Job) -> str:
    """The server that the job's attempt goes to."""
    return server_of(job.parcel.address, job.parcel.server)


def left_alone() -> frozenset[str]:
    """Servers that nothing is sent to right now but probes, as far as this process knows."""
    return frozenset(server for server, found in _known.rows.items() if found[0].state is State.OPEN)


# --- before an attempt ---


def refuse(job: Job) -> Receipt | None:
    """What comes of an attempt that need not wait for a thread, because its server is left alone. None: it may go on.

    The last attempt of a message is never refused: nobody is given up on without having been asked.
    """
    if job.last:
        return None
    server = server_of_job(job)
    found = _known.rows.get(server)
    if found is None or core.verdict(found[0], clock.now()) is not Verdict.FAIL:
        return None
    return _stopped(server, *found)


def admit(job: Job) -> Receipt | None:
    """The same for an attempt that would begin now: takes the probe when it is time for one. None: it is sent."""
    server = server_of_job(job)
    found = _known.rows.get(server)
    if found is None:
        return None
    now = clock.now()
    verdict = core.verdict(found[0], now)
    if verdict is Verdict.SEND:
        return None
    if verdict is Verdict.PROBE:
        if _take_probe(job, server, found, now):
            return None
        found = _known.rows.get(server)
        if found is None or found[0].state is State.CLOSED:
            return None
    return None if job.last else _stopped(server, *found)


def _take_probe(job: Job, server: str, found: tuple[core.Circuit, str], now: datetime) -> bool:
    known = _known
    lease = job.parcel.connect_timeout + job.parcel.read_timeout + 15
    taken = core.take_probe(found[0], now, lease)
    free = Circuit.objects.filter(address=server, state=State.OPEN.value, retry_at__lte=now)
    if free.update(retry_at=taken.retry_at, updated_at=now):
        with known.lock:
            known.rows[server] = (taken, found[1])
            known.probes[job.transmission_id] = server
        return True
    refresh(at_once=True)
    return False


def _stopped(server: str, circuit: core.Circuit, cause: str) -> Receipt:
    assert circuit.opened_at is not None and circuit.retry_at is not None
    detail = (
        f"{server} could not be reached {circuit.failures} times in a row (last: {cause}): sending to it was stopped "
        f"at {circuit.opened_at:%Y-%m-%d %H:%M:%S} UTC, and this attempt was not made. One attempt is let through at "
        f"{circuit.retry_at:%H:%M:%S} UTC."
    )
    return Receipt(ok=False, cause=CAUSE, detail=detail)


# --- after attempts ---


def reached(receipt: Receipt) -> bool | None:
    """Whether the server answered; None = it was not asked."""
    what = core.seen(ok=receipt.ok, status=receipt.status, cause=receipt.cause)
    return None if what is None else what is Seen.REACHED


def record(outcomes: Sequence[tuple[Job, Receipt]], now: datetime) -> list[Event]:
    """Moves the circuits of these attempts' servers; returns the events to write. Call last in the transaction.

    No query unless something changes: a server failed, or one answered that has a row.
    """
    known = _known
    seen: dict[str, list[tuple[Seen, datetime, Receipt]]] = {}
    tried_for: dict[str, uuid.UUID] = {}
    for job, receipt in outcomes:
        if receipt.in_response:
            continue
        what = core.seen(ok=receipt.ok, status=receipt.status, cause=receipt.cause)
        if known.probes.pop(job.transmission_id, None) is not None:
            what = {None: Seen.PROBE_WITHOUT_WORD, Seen.UNREACHABLE: Seen.PROBE_FAILED}.get(what, what)
        server = server_of_job(job)
        if what is None or _is_known(what, known.rows.get(server)):
            continue
        seen.setdefault(server, []).append((what, now - _waited(job, receipt), receipt))
        if job.pair_id is not None:
            tried_for[server] = job.pair_id
    if not seen:
        return []
    written: list[Event] = []
    changed: dict[str, tuple[core.Circuit, str]] = {}
    gone: list[str] = []
    for row in _locked(sorted(seen), now):
        before = circuit = core_of(row)
        row.pair_id = tried_for.get(row.address, row.pair_id)
        for what, began, receipt in seen[row.address]:
            after = core.step(circuit, what, now, began=began)
            if after is not circuit and what is not Seen.REACHED and receipt.cause in core.UNREACHABLE:
                row.cause, row.detail = receipt.cause, receipt.detail[:1000]
            circuit = after
        if circuit.state is State.CLOSED and not circuit.failures:
            gone.append(row.address)
        else:
            _put(row, circuit, now)
            changed[row.address] = circuit, row.cause
        written += _events(row, before, circuit, now)
    if gone:
        Circuit.objects.filter(pk__in=gone).delete()
    transaction.on_commit(lambda: _note(known, changed, gone))
    return written


def _waited(job: Job, receipt: Receipt) -> timedelta:
    """How long an attempt that ran into a time limit has waited for the server, at least."""
    limits = {"connect_timeout": job.parcel.connect_timeout, "read_timeout": job.parcel.read_timeout}
    return timedelta(seconds=limits.get(receipt.cause, 0))


def heard(server: str) -> None:
    """The server has answered somebody beside the attempts (a ping, a question about a message): its circuit closes.

    Call it outside of any transaction.
    """
    now = clock.now()
    known = _known
    with transaction.atomic():
        row = Circuit.objects.select_for_update().filter(pk=server).first()
        if row is None:
            return
        after = core.step(core_of(row), Seen.REACHED, now)
        Circuit.objects.filter(pk=row.pk).delete()
        events.write(_events(row, core_of(row), after, now))
        transaction.on_commit(lambda: _note(known, {}, [server]))
        dispatch.wake_on_commit(dispatch.SEND)


def _is_known(what: Seen, found: tuple[core.Circuit, str] | None) -> bool:
    """Whether the copy says already what was seen: a server that answers has no row, and one that is dead is open."""
    if what is Seen.REACHED:
        return found is None
    return what is Seen.UNREACHABLE and found is not None and found[0].state is State.OPEN


def _locked(servers: list[str], now: datetime) -> list[Circuit]:
    """The rows of these servers, made where missing: in one order, so that two groups never wait for each other."""
    return read(
        Circuit,
        "INSERT INTO messaging_circuit AS c"
        " (address, state, failures, opened_times, cause, detail, updated_at)"
        " SELECT address, 'closed', 0, 0, '', '', %s FROM unnest(%s::text[]) WITH ORDINALITY AS s(address, place)"
        " ORDER BY place ON CONFLICT (address) DO UPDATE SET updated_at = excluded.updated_at RETURNING c.*",
        [now, servers],
    )


def _put(row: Circuit, circuit: core.Circuit, now: datetime) -> None:
    row.state = circuit.state.value
    row.failures, row.opened_times = circuit.failures, circuit.waits
    row.silent_since = circuit.silent_since
    row.opened_at, row.retry_at, row.updated_at = circuit.opened_at, circuit.retry_at, now
    row.save(update_fields=[field.attname for field in Circuit._meta.concrete_fields if not field.primary_key])


def _events(row: Circuit, before: core.Circuit, after: core.Circuit, now: datetime) -> list[Event]:
    if before.state is after.state:
        return []
    facts: dict[str, object] = {"server": row.address, "cause": row.cause}
    if after.state is State.OPEN:
        assert after.retry_at is not None
        log.warning("circuit opened", extra={"action": "circuit_opened", **facts})
        facts |= {"detail": row.detail, "failures": after.failures, "retry_at": after.retry_at.isoformat()}
        return [events.event("circuit.opened", now, data=facts)]
    assert before.opened_at is not None
    log.info("circuit closed", extra={"action": "circuit_closed", **facts})
    facts["open_seconds"] = int((now - before.opened_at).total_seconds())
    return [events.event("circuit.closed", now, data=facts)]


def _note(known: _Known, changed: Mapping[str, tuple[core.Circuit, str]], gone: Collection[str]) -> None:
    with known.lock:
        known.rows = {server: found for server, found in {**known.rows, **changed}.items() if server not in gone}


# --- people ---


def circuit_reset(*, circuit_id: str, actor: Actor, reason: str) -> Circuit:
    """A person wants the server tried now: the next attempt is let through, and the waits begin anew.

    Failures that were only counted are forgotten: then what is returned is closed, and has no row any more. Raises
    InvalidSubmission without a reason, and NotFound when no circuit has this id: it has closed, or there never was one.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        row = find(circuit_id, locked=True)
        now = clock.now()
        before = _facts(row)
        circuit = core.step(core_of(row), Seen.RESET, now)
        _put(row, circuit, now)
        audit.record(actor, "circuit.reset", row, reason=reason, before=before, after=_facts(row))
        if circuit.state is State.CLOSED:
            Circuit.objects.filter(pk=row.pk).delete()
        dispatch.wake_on_commit(dispatch.SEND)
    return row


def find(circuit_id: str, *, locked: bool = False) -> Circuit:
    """By public id. Raises NotFound. There are as many rows as servers that failed lately: few."""
    for row in Circuit.objects.all():
        if row.public_id == circuit_id:
            found = Circuit.objects.select_for_update().filter(pk=row.pk).first() if locked else row
            if found is not None:
                return found
    raise NotFound("This server answers again, or nothing was ever sent to it: there is no circuit to try.")


def _facts(row: Circuit) -> dict[str, object]:
    return {
        "server": row.address,
        "state": row.state,
        "failures": row.failures,
        "retry_at": row.retry_at.isoformat() if row.retry_at else None,
    }


STEPS = (50, 70, 90)  # percent


def told(pair: Pair, before: int, most: int, now: datetime) -> list[Event]:
    """The event for the highest step that `pair.retries` has reached since it was `before`, of `most`; none otherwise.

    Costs nothing but where a retry was used just now.
    """
    if pair.retries <= before or not most:
        return []
    reached = [step for step in STEPS if before * 100 < step * most <= pair.retries * 100]
    if not reached:
        return []
    data = {"percent": reached[-1], "used": pair.retries, "of": most, "cause": pair.cause}
    return [events.event("pair.retry_budget", now, pair=pair, data=data)]


SERVER_UNREACHABLE = "server_unreachable"
OPEN_FOR = timedelta(minutes=5)
UNUSED_FOR = timedelta(days=1)
# It answers, and is not used for what it shows: not "down".
_ANSWERS = frozenset({"tls_handshake", "cert_expired", "cert_untrusted", "host_key_mismatch"})
# What an answer of the server disproves, whatever it says.
_DISPROVED = frozenset({SERVER_UNREACHABLE, CAUSE, *UNREACHABLE})


def watch() -> int:
    """One round; returns how many servers have been unreachable for long."""
    now = clock.now()
    drop_unused(now)
    found: dict[uuid.UUID, Circuit] = {}
    for row in Circuit.objects.filter(state=State.OPEN.value, opened_at__lte=now - OPEN_FOR):
        keys = _pairs_of(row.address, row.pair_id)
        if row.cause in _ANSWERS and _is_told(keys):
            continue  # it is there, and what it shows has its own incident
        if keys:
            found[keys[0]] = row
    unresolved = Incident.objects.filter(cause=SERVER_UNREACHABLE).exclude(state=IncidentState.RESOLVED)
    known = {pair_id for pair_id in unresolved.values_list("pair_id", flat=True) if pair_id is not None}
    for pair_id, row in found.items():
        if pair_id not in known:
            _open(pair_id, row, now)
    for pair_id in known - found.keys():
        _resolve(pair_id, now)
    return len(found)


def answered(server: str) -> None:
    """The server has answered, whoever asked: its circuit closes, and what said that it cannot be reached is over.

    Pairs that gave up keep their incident: they stay suspended until a person resumes them. Call it outside of any
    transaction.
    """
    tried_for = Circuit.objects.filter(pk=server).values_list("pair_id", flat=True).first()
    heard(server)
    unresolved = Incident.objects.filter(cause__in=_DISPROVED, pair__in=_pairs_of(server, tried_for))
    concerned = set(unresolved.exclude(state=IncidentState.RESOLVED).values_list("pair_id", flat=True))
    if not concerned:
        return
    with transaction.atomic():
        now = clock.now()
        for pair in Pair.locked(concerned).values():
            causes = (SERVER_UNREACHABLE,) if pair.flow == Flow.SUSPENDED else _DISPROVED
            events.write(
                incidents.incidents_resolve_for_pair(
                    pair=pair, now=now, by="system", resolution="The server answers again.", causes=causes
                )
            )


def _pairs_of(server: str, tried_for: uuid.UUID | None) -> list[uuid.UUID]:
    """The outbound pairs that send there: by the agreements in force, and that of the last attempt."""
    keys = {*pairs_at(frozenset({server})), *([tried_for] if tried_for else ())}
    return list(Pair.objects.filter(pk__in=keys, direction=Direction.OUT).order_by("pk").values_list("pk", flat=True))


def _is_told(pairs: list[uuid.UUID]) -> bool:
    unresolved = Incident.objects.filter(pair__in=pairs, cause__in=_ANSWERS).exclude(state=IncidentState.RESOLVED)
    return unresolved.exists()


def drop_unused(now: datetime) -> int:
    """Forgets servers to which nothing was sent for a day: no attempt will ever close their circuits."""
    with transaction.atomic():
        unused = list(Circuit.objects.select_for_update(skip_locked=True).filter(updated_at__lte=now - UNUSED_FOR))
        Circuit.objects.filter(pk__in=[row.pk for row in unused]).delete()
        events.write(
            [
                events.event("circuit.closed", now, data={"server": row.address, "cause": row.cause, "unused": True})
                for row in unused
                if row.state == State.OPEN.value
            ]
        )
    return len(unused)


def _open(pair_id: uuid.UUID, row: Circuit, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        cause = row.cause if row.cause in _ANSWERS else SERVER_UNREACHABLE
        seen = Incident.objects.filter(cause=cause, pair=pair)
        if seen.exclude(state=IncidentState.RESOLVED).exists() or seen.filter(resolved_at__gte=row.opened_at).exists():
            return  # another worker's round was faster, or a person knows of this outage already
        since = row.silent_since or row.opened_at
        detail = f"{row.address} has not been reached since {since:%Y-%m-%d %H:%M:%S} UTC ({row.cause})."
        _, opened = incidents.incident_open(pair=pair, cause=cause, now=now, detail=f"{detail} {row.detail}".strip())
        events.write(opened)


def _resolve(pair_id: uuid.UUID, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        said = "The server answers again, or nothing is sent to it any more."
        events.write(
            incidents.incidents_resolve_for_pair(
                pair=pair, now=now, by="system", resolution=said, causes=(SERVER_UNREACHABLE,)
            )
        )
