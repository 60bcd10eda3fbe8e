"""What is measured on this machine: CPU time of process trees, the database's counters, and the machine's facts."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds (user and system) that each root process has used so far, with everything that it has started.

    A child that has ended and was waited for is in its parent's figures; one that lives is counted on its own.
    Resolution: a clock tick (10 ms) a process. A root that has ended counts 0.
    """
    table = _processes()

    def tree(pid: int) -> float:
        own = table[pid].seconds if pid in table else 0.0
        return own + sum(tree(child) for child in table if table[child].parent == pid)

    return {name: tree(pid) for name, pid in roots.items()}


def machine_seconds() -> float:
    """CPU seconds that all processors together have been busy since the boot."""
    fields = [int(field) for field in _lines("/proc/stat")[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / TICKS


def descendants(pid: int) -> list[int]:
    """The live processes that this one has started, directly or not; parents before their children."""
    table = _processes()
    found = [pid]
    for each in found:
        found += [child for child in table if table[child].parent == each]
    return found[1:]


def own_seconds(pid: int) -> float:
    """CPU seconds of one process without its children; 0 when it has ended."""
    row = _processes().get(pid)
    return row.own if row else 0.0


@dataclass(frozen=True)
class _Row:
    parent: int
    own: float
    seconds: float
    """Its own, and those of the children that have ended."""


def _processes() -> dict[int, _Row]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            content = Path(f"/proc/{entry}/stat").read_bytes()
        except OSError:
            continue  # it ended while we looked
        fields = content.rpartition(b")")[2].split()
        # utime, stime, cutime, cstime: fields 14 to 17 of proc(5), the number and the name being cut off here
        times = [int(field) / TICKS for field in fields[11:15]]
        found[int(entry)] = _Row(int(fields[1]), sum(times[:2]), sum(times))
    return found


@dataclass(frozen=True)
class Counters:
    """One look at everything: seconds since the epoch, CPU seconds, commits by database, bytes of WAL, its syncs."""

    at: float
    cpu: dict[str, float]
    machine: float
    """CPU seconds that the whole machine has been busy, with all that is not ours."""
    commits: dict[str, int]
    wal: int
    syncs: int


def look(connection: psycopg.Connection[Any], roots: Mapping[str, int], databases: Sequence[str]) -> Counters:
    """Takes a look. `connection` is to another database than those that are looked at: it commits, too.

    A busy session adds its commits to the counters once a second, so both ends of a window are late alike; over ten
    seconds and dozens of sessions that is less than a hundredth.
    """
    commits = connection.execute(
        "SELECT datname, xact_commit FROM pg_stat_database WHERE datname = ANY(%s)", [list(databases)]
    ).fetchall()
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return Counters(
        at=time.time(),
        cpu=cpu_seconds(roots),
        machine=machine_seconds(),
        commits={name: int(count) for name, count in commits},
        wal=int(row[0]),
        syncs=_wal_syncs(connection),
    )


def _wal_syncs(connection: psycopg.Connection[Any]) -> int:
    """fsyncs of the write-ahead log; the view that has them changed its name in PostgreSQL 18."""
    if connection.info.server_version >= 180000:
        text = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
    else:
        text = "SELECT wal_sync FROM pg_stat_wal"
    row = connection.execute(text).fetchone()
    return int(row[0]) if row else 0


def costs(before: Counters, after: Counters, messages: int) -> dict[str, Any]:
    """What one message cost between two looks: CPU ms by process and in all, commits by database, WAL bytes, syncs."""
    each = max(messages, 1)
    seconds = after.at - before.at
    ours = {name: after.cpu[name] - before.cpu[name] for name in before.cpu}
    used = sum(ours.values())
    return {
        "cpu_ms_per_message": round(used * 1000 / each, 3),
        "cpu_ms_by_process": {name: round(value * 1000 / each, 3) for name, value in ours.items()},
        "cpus_used": round(used / seconds, 3),
        "cpus_used_by_others": round(max(0.0, after.machine - before.machine - used) / seconds, 3),
        "commits_per_message": {
            name: round((after.commits[name] - before.commits[name]) / each, 3) for name in before.commits
        },
        "wal_bytes_per_message": round((after.wal - before.wal) / each),
        "wal_syncs_per_message": round((after.syncs - before.syncs) / each, 3),
    }


def percentile(values: Iterable[float], share: float) -> float | None:
    """The nearest-rank percentile (`share` 0.5: the median); None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def spread(milliseconds: Sequence[float]) -> dict[str, Any]:
    """Count, p50, p90, p99 and maximum."""
    return {
        "count": len(milliseconds),
        **{
            name: None if (value := percentile(milliseconds, share)) is None else round(value, 2)
            for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0))
        },
    }


def facts() -> dict[str, Any]:
    """The machine that the figures belong to."""
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "cpus": os.cpu_count(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "memory_gib": round(int(memory) / 1024 / 1024, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def commit(base: Path) -> str:
    """The version of the code that is measured: `git describe`, or "unknown" outside of a repository."""
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=base, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
