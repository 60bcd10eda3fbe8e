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


@dataclass(frozen=True)
class Cpu:
    """CPU seconds in programs and in the kernel on their behalf."""

    user: float = 0.0
    system: float = 0.0

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.user + other.user, self.system + other.system)

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.user - other.user, self.system - other.system)

    @property
    def both(self) -> float:
        """User and system time."""
        return self.user + self.system


@dataclass(frozen=True)
class _Process:
    parent: int
    own: Cpu
    ended_children: Cpu


def processes() -> dict[int, _Process]:
    """All live processes of the machine, with what they have used so far. Resolution: a clock tick (10 ms) each."""
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
        user, system, children_user, children_system = (int(field) / TICKS for field in fields[11:15])
        found[int(entry)] = _Process(int(fields[1]), Cpu(user, system), Cpu(children_user, children_system))
    return found


def trees(roots: Mapping[str, int]) -> dict[str, Cpu]:
    """What each root process has used so far, with everything that it has started.

    A child that has ended and was waited for is in its parent's figures; one that lives is counted on its own. A root
    that has ended counts nothing.
    """
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)

    def tree(pid: int) -> Cpu:
        if pid not in table:
            return Cpu()
        return sum((tree(child) for child in children.get(pid, ())), table[pid].own + table[pid].ended_children)

    return {name: tree(pid) for name, pid in roots.items()}


def descendants(pid: int) -> list[int]:
    """The live processes that this one has started, directly or not; parents before their children."""
    table = processes()
    found = [pid]
    for each in found:
        found += [child for child in table if table[child].parent == each]
    return found[1:]


def busiest(roots: Mapping[str, int], seconds: float = 1.0) -> dict[str, int]:
    """In each tree the process that uses most CPU within the next seconds: the one that does the work."""
    members = {name: [root, *descendants(root)] for name, root in roots.items()}
    before = processes()
    time.sleep(seconds)
    after = processes()

    def used(pid: int) -> float:
        return (after[pid].own - before[pid].own).both if pid in after and pid in before else 0.0

    return {name: max(pids, key=used) for name, pids in members.items()}


def machine_seconds() -> float:
    """CPU seconds that all processors together have been busy since the boot, whoever used them."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / TICKS


@dataclass(frozen=True)
class Counters:
    """One look at everything: seconds since the epoch, CPU time, commits by database, bytes of WAL and its syncs."""

    at: float
    cpu: dict[str, Cpu]
    machine: float
    """CPU seconds that the whole machine has been busy, with all that is not ours."""
    commits: dict[str, int]
    wal: int
    syncs: int


def look(connection: psycopg.Connection[Any], roots: Mapping[str, int], databases: Sequence[str]) -> Counters:
    """Takes a look. `connection` is to another database than those that are looked at: it commits, too.

    A busy session adds its commits to the counters about once a second, so both ends of a window are late alike.
    """
    commits = connection.execute(
        "SELECT datname, xact_commit FROM pg_stat_database WHERE datname = ANY(%s)", [list(databases)]
    ).fetchall()
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return Counters(
        at=time.time(),
        cpu=trees(roots),
        machine=machine_seconds(),
        commits={name: int(count) for name, count in commits},
        wal=int(row[0]),
        syncs=_wal_syncs(connection),
    )


def _wal_syncs(connection: psycopg.Connection[Any]) -> int:
    """How often the write-ahead log was synced; PostgreSQL 18 moved the count to another view."""
    if connection.info.server_version >= 180000:
        text = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
    else:
        text = "SELECT wal_sync FROM pg_stat_wal"
    row = connection.execute(text).fetchone()
    return int(row[0]) if row else 0


def costs(before: Counters, after: Counters, messages: int) -> dict[str, Any]:
    """What one message cost between two looks: CPU ms (all, by process, in the kernel), commits, WAL bytes, syncs."""
    each = max(messages, 1)
    seconds = after.at - before.at
    ours = {name: after.cpu[name] - before.cpu[name] for name in before.cpu}
    used = sum(ours.values(), Cpu())
    return {
        "cpu_ms_per_message": round(used.both * 1000 / each, 3),
        "cpu_ms_in_kernel": round(used.system * 1000 / each, 3),
        "cpu_ms_by_process": {name: round(value.both * 1000 / each, 3) for name, value in ours.items()},
        "cpus_used": round(used.both / seconds, 3),
        "cpus_used_by_others": round(max(0.0, after.machine - before.machine - used.both) / seconds, 3),
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
    shares = (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0))
    found = {name: percentile(milliseconds, share) for name, share in shares}
    return {
        "count": len(milliseconds),
        **{name: None if value is None else round(value, 2) for name, value in found.items()},
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
