"""What a run of the archive has done, by day, and how fast it goes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    pass

# Share of the time in which the store is worked on; the rest is left to the live traffic.
SHARE = 0.25

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Day:
    """One row of the report."""

    messages: int = 0
    payloads: int = 0
    bytes: int = 0
    purged: int = 0
    held: int = 0
    differing: int = 0


@dataclass(slots=True)
class Tally:
    """What a run has done. `kept`: why messages that are old enough were not purged."""

    days: defaultdict[date, Day] = field(default_factory=lambda: defaultdict(Day))
    kept: Counter[str] = field(default_factory=Counter)
    files: int = 0
    payload_files: int = 0
    events: int = 0
    signals: int = 0
    expired: int = 0

    def table(self) -> pa.Table:
        """The report's rows, by day."""
        names = ("messages", "payloads", "bytes", "purged", "held", "differing")
        kinds = [("day", pa.date32()), *((name, pa.int64()) for name in names)]
        rows = [{"day": day, **{n: getattr(one, n) for n in names}} for day, one in sorted(self.days.items())]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))

    def facts(self) -> dict[str, object]:
        return {
            "archived": sum(day.messages for day in self.days.values()),
            "purged": sum(day.purged for day in self.days.values()),
            "files": self.files,
            "kept": dict(self.kept),
            "payload_files_removed": self.payload_files,
            "events_removed": self.events,
            "signals_removed": self.signals,
            "files_expired": self.expired,
        }


@dataclass(slots=True)
class Pace:
    """Leaves the store alone for most of the time, so that live traffic hardly notices. `share` in (0, 1]."""

    share: float = field(default_factory=lambda: SHARE)
    pause: Callable[[float], None] = time.sleep

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is done within is followed by a pause, in proportion to the time that it took."""
        begun = time.monotonic()
        yield
        self.pause((time.monotonic() - begun) * (1 / self.share - 1))
