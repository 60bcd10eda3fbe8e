"""Applies the faults one after another under load, and counts after each what became of the promises."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg
import urllib3

from messaging.demo import effects, exchange, verdict
from messaging.demo.seeding import tpa_id
from rmhub.hubs import Hub
from tests.chaos.faults import Fault
from tests.chaos.world import AGREEMENTS, TAKES, World, world

Log = Callable[[str], None]
BEFORE, AFTER = 4.0, 2.0  # seconds of load before a fault, and after it
PAUSE = 6.0  # seconds between two documents of one pair: the application takes 4 for each
PATIENCE = 240.0  # seconds until everything has to be settled after a fault
RECOVERY = 5.0  # seconds that `make chaos` allows


@dataclass(frozen=True, slots=True)
class Row:
    """One fault. `recovery`: seconds from its end until both hubs send, and deliver, again. `told`: health named it
    while it lasted, with since when.
    """

    fault: Fault
    documents: int
    lost: int
    doubled: int
    out_of_order: int
    in_doubt: int
    unsettled: int
    recovery: float | None
    told: bool

    @property
    def falsely_in_doubt(self) -> int:
        return 0 if self.fault.cuts else self.in_doubt

    @property
    def kept(self) -> bool:
        return (
            not (self.lost or self.doubled or self.out_of_order or self.falsely_in_doubt or self.unsettled)
            and self.told
        )


@dataclass(frozen=True, slots=True)
class Total:
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    in_doubt: int = 0


@dataclass(slots=True)
class Load:
    """What hands over documents: one thread for each pair, so that their order is known."""

    world: World
    accepted: dict[str, set[str]] = field(default_factory=lambda: {"a": set(), "b": set()})
    refused: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()
        threads = [
            threading.Thread(target=self._lane, args=(over, hub, number))
            for hub in self.world.hubs
            for number in range(AGREEMENTS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _lane(self, over: threading.Event, hub: Hub, number: int) -> None:
        known = exchange.documents()
        over.wait(PAUSE * number / AGREEMENTS)
        for turn in itertools.count():
            if over.is_set():
                return
            errand = exchange.Errand(hub.name, tpa_id(number + 1), known[(turn + number) % len(known)])
            try:
                self.accepted[hub.name] |= exchange.submit(self.world.stage, [errand])[1]
            except Exception as error:  # told with the result; the lane goes on
                self.refused.append(f"{hub.name}: {error}"[:300])
            over.wait(PAUSE)


@dataclass(slots=True)
class Watch:
    """What health of the first hub says while a fault lasts: the parts in trouble, with since when."""

    url: str
    seen: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def looking(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._look, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _look(self, over: threading.Event) -> None:
        http = urllib3.PoolManager(retries=False, timeout=10.0)
        while not over.wait(0.5):
            try:
                parts = http.request("GET", f"{self.url}/api/v1/health").json()["parts"]
            except (urllib3.exceptions.HTTPError, ValueError, KeyError):
                continue  # its web server is away for a moment
            for part in parts:
                if part["state"] != "ok" and part["since"]:
                    self.seen[part["name"]] = part["detail"]


def run(
    profiles: Sequence[str], faults: Sequence[Fault], *, log: Log, logs: bool = False, rows: list[Row] | None = None
) -> list[Row]:
    """All faults under one pair of hubs, with traffic of all these profiles at once; they are added to `rows`.

    Raises AssertionError when the hubs' own checks find something.
    """
    rows = [] if rows is None else rows
    quiet: Log = log if logs else lambda line: None
    with world(profiles, quiet) as scene:
        scene.until_processes_work()
        load = Load(scene)
        before = Total()
        for fault in faults:
            known = sum(len(ids) for ids in load.accepted.values())
            watch = Watch(scene.hubs[0].url)
            with load.running():
                _pause(BEFORE)
                with watch.looking():
                    fault.happens(scene, fault.seconds)
                    ended = datetime.now(UTC)
                recovery = _recovery(scene, ended)
                _pause(AFTER)
            after, unsettled = _settled(scene, load)
            row = Row(
                fault,
                sum(len(ids) for ids in load.accepted.values()) - known,
                after.lost - before.lost,
                after.doubled - before.doubled,
                after.out_of_order - before.out_of_order,
                after.in_doubt - before.in_doubt,
                unsettled,
                recovery,
                not fault.told or fault.told in watch.seen,
            )
            before = after
            rows.append(row)
            log(line(row))
            if fault.told:
                log(f"  health: {watch.seen.get(fault.told, 'did not name it')}")
            if row.falsely_in_doubt:
                log("".join(f"  in doubt: {why}\n" for url in scene.judged for why in _doubts(url)))
        for said in load.refused:
            log(f"  not handed over: {said}")
        _check(scene)
    return rows


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _recovery(scene: World, ended: datetime) -> float | None:
    """Seconds until both hubs have sent something and begun to hand over something; None: not within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        moments = [_first_sent(url, ended) for url in scene.judged]
        moments.append(_first_effect(scene, ended))
        known = [moment for moment in moments if moment is not None]
        if len(known) == len(moments):
            return max(0.0, max((moment - ended).total_seconds() for moment in known))
        _pause(0.25)
    return None


def _first_sent(url: str, since: datetime) -> datetime | None:
    try:
        with psycopg.connect(url, connect_timeout=5) as database:
            row = database.execute(
                "SELECT min(completed_at) FROM messaging_message WHERE direction = 'out' AND state = 'delivered'"
                " AND completed_at > %s",
                [since],
            ).fetchone()
    except psycopg.OperationalError:
        return None
    return row[0] if row else None


def _first_effect(scene: World, since: datetime) -> datetime | None:
    """When the first document was begun with of which the application has an effect after that."""
    half = timedelta(seconds=TAKES / 2)
    with closing(sqlite3.connect(scene.stage.effects, timeout=30)) as file:
        found = [datetime.fromisoformat(at) for (at,) in file.execute("SELECT at FROM effect")]
    return min((at - half for at in found if at > since + half), default=None)


def _settled(scene: World, load: Load) -> tuple[Total, int]:
    """What both judges say when nothing is under way any more, and how much still is when patience is over."""
    first, second = scene.judged
    until = time.monotonic() + PATIENCE
    while True:
        sent = verdict.judge([(first, second, load.accepted["a"]), (second, first, load.accepted["b"])])
        applied = effects.judge([first, second], scene.stage.effects)
        total = sum(len(ids) for ids in load.accepted.values())
        unsettled = max(0, total - sent.completed - sent.messages_in_doubt) + applied.unsettled
        if not unsettled or time.monotonic() > until:
            break
        _pause(0.5)
    _pause(TAKES + 0.5)  # it may still be busy with a call that nobody waits for any more: what that does counts too
    applied = effects.judge([first, second], scene.stage.effects)
    return (
        Total(
            sent.lost + applied.effects_missing,
            sent.delivered_twice + applied.effects_twice + applied.effects_altered + applied.effects_strange,
            sent.out_of_order + applied.effects_out_of_order,
            applied.in_doubt + sent.messages_in_doubt,
        ),
        unsettled,
    )


def _doubts(url: str) -> list[str]:
    """What is in doubt in this database, and why."""
    with psycopg.connect(url) as database:
        found = database.execute(
            "SELECT 'delivery', document_id, doubt, cause_detail FROM messaging_delivery WHERE state = 'in_doubt' UNION"
            " SELECT 'message', message_id, cause, cause_detail FROM messaging_message WHERE state = 'in_doubt'"
        ).fetchall()
    return [" ".join(row) for row in found]


def _check(scene: World) -> None:
    """The hubs' own invariants, over each database."""
    for hub in scene.hubs:
        done = subprocess.run(
            hub.manage("check_invariants"), env=hub.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"check_invariants of {hub.name}: {done.stdout}{done.stderr}"


_COLUMNS = ("docs", "lost", "twice", "order", "doubt", "false")
HEAD = f"{'fault':26} " + " ".join(f"{name:>5}" for name in _COLUMNS) + f" {'s':>6}"


def line(row: Row) -> str:
    recovery = "never" if row.recovery is None else f"{row.recovery:.1f}"
    return (
        f"{row.fault.name:26} {row.documents:5} {row.lost:5} {row.doubled:5} {row.out_of_order:5}"
        f" {row.in_doubt:5} {row.falsely_in_doubt:5} {recovery:>6}"
        + (f"  {row.unsettled} still under way" if row.unsettled else "")
        + ("" if row.told else "  not told by health")
    )
