"""From single runs to figures: medians with all runs beside them, and the goals that they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.benchmarks.arena import RECEIVER, SENDER
from tests.benchmarks.circuit import lost
from tests.benchmarks.signed import PROTECTIONS

Run = Mapping[str, Any]
GOAL_PAIRS = 100
TIMES_THE_PEER = 8.0
COMMITS = 3.0
CPU_MS = 3.5
WAL_BYTES = 9000.0
CONNECTIONS = 12.0
STREAM_DELAY = 20  # milliseconds each way
TIMES_ONE_BY_ONE = 20.0
LOST_PERCENT = 5.0
TIMES_ONE_SENDER = 3.0
CPU_MS_OF_ONE_PAIR = 12.0
UNLOADED_MS = 12.0
IDLE_PERCENT = 0.5
AT_REST = {SENDER: 3500.0, RECEIVER: 3200.0}
PER_SECOND = {"requests": 600.0, "deliveries": 500.0}
STREAM_PER_SECOND = 800.0


def figure(values: Iterable[float | None], digits: int = 1) -> dict[str, Any]:
    """The median and, in their order, all values that it is of."""
    known = [value for value in values if value is not None]
    median = round(statistics.median(known), digits) if known else None
    return {"median": median, "runs": [round(value, digits) for value in known]}


def summarise(raw: Run) -> dict[str, Any]:
    """What the table, the chart and the goals are made of. Parts that were not measured are empty."""
    ours, peer, limits = raw["ours"], raw["peer"], raw["limits"]
    found: dict[str, Any] = {
        "ours": [_ours(pairs, runs) for pairs, runs in _by(ours["steady"], "pairs")],
        "unloaded": _unloaded(ours["unloaded"]),
        "peer": [_peer(senders, runs) for senders, runs in _by(peer["steady"], "senders")],
        "race": peer["race"],
        "posts": [
            {
                "connections": connections,
                "per_second": figure(run["posts_per_second"] for run in runs),
                "p50_ms": figure((run["latency"]["p50_ms"] for run in runs), 2),
                "p99_ms": figure((run["latency"]["p99_ms"] for run in runs), 2),
                "cpu_ms": figure((run["server_cpu_ms_per_post"] for run in runs), 3),
            }
            for connections, runs in _by(limits["posts"], "connections")
        ],
        "commits": [
            {
                "connections": connections,
                "per_second": figure(run["commits_per_second"] for run in runs),
                "average_ms": figure((run["average_ms"] for run in runs), 2),
            }
            for connections, runs in _by(limits["commits"], "connections")
        ],
        "streams": _streams(raw["streams"]),
        "signed": [
            {"who": who, "protection": protection, **_common(runs, "first_transmission_to_ack")}
            for who in ("ours", "peer")
            for protection in PROTECTIONS
            if (runs := [run for run in raw["signed"] if (run["who"], run["protection"]) == (who, protection)])
        ],
        "machines": [
            {"machines": count, **_common(runs, "first_transmission_to_ack")}
            for count, runs in _by(raw["machines"], "machines")
        ],
        "idle": _idle(ours["idle"]),
        "at_rest": {
            name: figure((run["bytes_per_message"][name] for run in ours["at_rest"]), 0)
            for name in (SENDER, RECEIVER)
            if ours["at_rest"]
        },
        "applications": [
            {
                "kind": kind,
                "messages_per_second": figure(run["messages_per_second"] for run in runs),
                "cpu_ms": figure((run["cpu_ms_per_message"] for run in runs), 2),
                "wal_bytes": figure((run["wal_bytes_per_message"] for run in runs), 0),
            }
            for kind, runs in _by(raw["applications"], "kind")
        ],
        "circuit": {**raw["circuit"], "lost_percent": lost(raw["circuit"]["runs"])} if raw["circuit"] else {},
    }
    found["goals"] = goals(found)
    found["faults"] = faults(raw)
    return found


def _idle(runs: Sequence[Run]) -> dict[str, Any]:
    if not runs:
        return {}
    typical = sorted(runs, key=lambda run: run["percent_of_a_cpu"] or 0.0)[(len(runs) - 1) // 2]
    return {
        "percent_of_a_cpu": figure((run["percent_of_a_cpu"] for run in runs), 2),
        "by_process": typical["by_process"],
        "commits_per_second": typical["commits_per_second"],
    }


def _by(runs: Sequence[Run], key: str) -> list[tuple[Any, list[Run]]]:
    return [(value, [run for run in runs if run[key] == value]) for value in sorted({run[key] for run in runs})]


def _common(runs: Sequence[Run], latency: str) -> dict[str, Any]:
    def of(take: Callable[[Run], float | None], digits: int = 1) -> dict[str, Any]:
        return figure((take(run) for run in runs), digits)

    return {
        "messages_per_second": of(lambda run: run["messages_per_second"]),
        "p50_ms": of(lambda run: run[latency]["p50_ms"]),
        "p99_ms": of(lambda run: run[latency]["p99_ms"]),
        "cpu_ms": of(lambda run: run["cpu_ms_per_message"], 2),
        "cpu_ms_in_kernel": of(lambda run: run["cpu_ms_in_kernel"], 2),
        "cpu_ms_by_process": _typical(runs)["cpu_ms_by_process"],
        "commits": {
            name: of(lambda run, name=name: run["commits_per_message"][name], 2)  # type: ignore[misc]
            for name in runs[0]["commits_per_message"]
        },
        "wal_bytes": of(lambda run: run["wal_bytes_per_message"], 0),
        "wal_syncs": of(lambda run: run["wal_syncs_per_message"], 2),
        "cpus_used_by_others": of(lambda run: run["cpus_used_by_others"], 2),
    }


def _typical(runs: Sequence[Run]) -> Run:
    """The run whose CPU time is the median, so that its parts add up."""
    return sorted(runs, key=lambda run: run["cpu_ms_per_message"] or 0.0)[(len(runs) - 1) // 2]


def _ours(pairs: int, runs: Sequence[Run]) -> dict[str, Any]:
    most = [max(run["connections"].values(), default=0) for run in runs]
    return {"pairs": pairs, **_common(runs, "first_transmission_to_ack"), "connections": figure(most, 0)}


def _peer(senders: int, runs: Sequence[Run]) -> dict[str, Any]:
    return {"senders": senders, **_common(runs, "message")}


def _unloaded(runs: Sequence[Run]) -> dict[str, Any]:
    if not runs:
        return {}
    return {
        "pairs": runs[0]["pairs"],
        "messages": sum(run["messages"] for run in runs),
        **{
            f"{name}_{share}": figure(run[name][share] for run in runs)
            for name in ("submission_to_ack", "first_transmission_to_ack")
            for share in ("p50_ms", "p99_ms")
        },
    }


def _streams(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each delay both profiles, and how many times as much the stream carries."""
    rows = []
    for delay, pair in _by(runs, "delay_ms"):
        by_profile = {run["profile"]: run for run in pair}
        if by_profile.keys() >= {"ebxml", "stream"}:
            one, many = by_profile["ebxml"], by_profile["stream"]
            speed = one["messages_per_second"]
            fast = many["messages_per_second"]
            times = round(fast / speed, 1) if speed and fast is not None else None
            rows.append({"delay_ms": delay, "ebxml": one, "stream": many, "times": times})
    return rows


def goals(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The promises of `make bench`, at 100 pairs and on a slow link, as far as they were measured."""
    result = [
        _goal(
            f"messages of one pair as a stream, as a multiple of one by one, at {STREAM_DELAY} ms",
            row["times"],
            TIMES_ONE_BY_ONE,
            least=True,
        )
        for row in found["streams"]
        if row["delay_ms"] == STREAM_DELAY
    ]
    result += [
        _goal(
            f"messages per second of a stream, one pair, {STREAM_DELAY} ms each way",
            row["stream"]["messages_per_second"],
            STREAM_PER_SECOND,
            least=True,
        )
        for row in found["streams"]
        if row["delay_ms"] == STREAM_DELAY
    ]
    result += [
        _goal(f"{row['kind']} per second", row["messages_per_second"]["median"], PER_SECOND[row["kind"]], least=True)
        for row in found["applications"]
    ]
    speeds = {row["machines"]: row["messages_per_second"]["median"] for row in found["machines"]}
    if speeds.keys() >= {1, 2}:
        times = speeds[2] / speeds[1] if speeds[1] and speeds[2] is not None else None
        what = "messages per second with two machines of each hub, as a multiple of one"
        result.append(_goal(what, times, 1.0, least=True))
    if idle := found["idle"]:
        result.append(_goal("percent of a CPU of an idle hub", idle["percent_of_a_cpu"]["median"], IDLE_PERCENT))
    result += [
        _goal(f"bytes at rest per message on the {name}, without documents", bytes_of["median"], AT_REST[name])
        for name, bytes_of in found["at_rest"].items()
    ]
    if unloaded := found["unloaded"]:
        median = unloaded["submission_to_ack_p50_ms"]["median"]
        result.append(_goal("ms from submission to acknowledgement, unloaded, median", median, UNLOADED_MS))
    alone = next((row for row in found["ours"] if row["pairs"] == 1), None)
    if alone is not None:
        result.append(_goal("CPU ms per message of one pair", alone["cpu_ms"]["median"], CPU_MS_OF_ONE_PAIR))
        one_sender = next((row for row in found["peer"] if row["senders"] == 1), None)
        if one_sender is not None:
            theirs, own = one_sender["messages_per_second"]["median"], alone["messages_per_second"]["median"]
            times = own / theirs if theirs and own is not None else None
            result.append(
                _goal("one pair, as a multiple of the peer's one sender", times, TIMES_ONE_SENDER, least=True)
            )
    if dead := found["circuit"]:
        result += [
            _goal(
                f"percent that the others lose when one of {dead['partners']} partners is dead ({mode})",
                lost["median"],
                LOST_PERCENT,
                least=False,
            )
            for mode, lost in dead["lost_percent"].items()
        ]
    ours = next((row for row in found["ours"] if row["pairs"] == GOAL_PAIRS), None)
    if ours is None:
        return result
    if found["peer"]:
        best = max(row["messages_per_second"]["median"] or 0.0 for row in found["peer"])
        own = ours["messages_per_second"]["median"]
        times = own / best if best and own is not None else None
        result.append(_goal("messages per second, as a multiple of the peer's best", times, TIMES_THE_PEER, least=True))
    for side in (SENDER, RECEIVER):
        commits = ours["commits"].get(f"bench_{side}", figure([]))["median"]
        result.append(_goal(f"commits per message on the {side}", commits, COMMITS))
    result.append(_goal("CPU ms per message, everything together", ours["cpu_ms"]["median"], CPU_MS))
    result.append(_goal("bytes of WAL per message", ours["wal_bytes"]["median"], WAL_BYTES))
    result.append(_goal("connections of a hub", max(ours["connections"]["runs"], default=None), CONNECTIONS))
    return result


def _goal(name: str, value: float | None, bound: float, *, least: bool = False) -> dict[str, Any]:
    met = None if value is None else value >= bound if least else value <= bound
    return {
        "goal": name,
        "wanted": f"{'at least' if least else 'at most'} {bound:g}",
        "measured": None if value is None else round(value, 2),
        "met": met,
    }


def faults(raw: Run) -> list[str]:
    """What went wrong in the runs: then their speed says nothing."""
    found = [f"{part}: {reason}" for part, reason in raw["not_measured"].items()]
    found += [f"{name}: {line}" for name, run in _of_our_hubs(raw) for line in run["contradictions"]]
    signed = {who: [run for run in raw["signed"] if run["who"] == who] for who in ("ours", "peer")}
    for run in [*raw["ours"]["steady"], *raw["machines"], *signed["ours"]]:
        check = run["check"]
        broken = {name: check[name] for name in ("sent_again", "received_twice", "out_of_order") if check[name]}
        if check["delivered"] != check["submitted"] or check["received"] != check["submitted"]:
            broken |= {name: check[name] for name in ("submitted", "delivered", "received")}
        if broken:
            found.append(
                f"ours at {run['pairs']} pairs: " + ", ".join(f"{name} {count}" for name, count in broken.items())
            )
        if not run["drained"]:
            found.append(f"ours at {run['pairs']} pairs: messages were left over when the driver had stopped")
    for run in raw["streams"]:
        name, check = f"{run['profile']} at {run['delay_ms']} ms", run["check"]
        wrong = {key: check[key] for key in ("received_twice", "out_of_order") if check[key]}
        if wrong or check["delivered"] > check["received"]:
            found.append(f"{name}: " + ", ".join(f"{key} {count}" for key, count in check.items()))
        if run["ran_dry"]:
            found.append(f"{name}: the backlog ran dry, so the speed is more than was measured")
        if not run["drained"]:
            found.append(f"{name}: messages were left in flight")
    for run in raw["applications"]:
        if run.get("ran_dry"):
            found.append(f"{run['kind']}: the backlog ran dry, so the speed is more than was measured")
    for run in raw["circuit"].get("runs", ()):
        if not run["settled"]:
            found.append(f"circuit, {run['mode']}: messages were left over when all partners were well again")
        if run["mode"] != "well" and not run["attempts_at_the_dead_one"]:
            found.append(f"circuit, {run['mode']}: nothing was sent to the dead partner, so nothing was measured")
    for run in [*raw["peer"]["steady"], *signed["peer"]]:
        failed = sum(count for state, count in run["states"].items() if state != "S")
        if failed:
            found.append(
                f"the peer with {run['senders']} senders failed {failed} messages: {run['example_of_a_failure']}"
            )
    return found


def _of_our_hubs(raw: Run) -> Iterator[tuple[str, Run]]:
    """Every run of our hubs, by what it is called."""
    yield from ((f"ours at {run['pairs']} pairs", run) for run in raw["ours"]["steady"])
    yield from ((f"{run['machines']} machines of each hub", run) for run in raw["machines"])
    yield from (("ours unloaded", run) for run in raw["ours"]["unloaded"])
    yield from ((f"{run['profile']} at {run['delay_ms']} ms", run) for run in raw["streams"])
    yield from ((run["kind"], run) for run in raw["applications"])
    yield from ((f"circuit, {run['mode']}", run) for run in raw["circuit"].get("runs", ()))
    if "profile" in raw:
        yield "profile", raw["profile"]
