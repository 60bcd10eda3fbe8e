"""The benchmark measures what it says: its arithmetic on made-up runs, and a short run of everything."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import pytest
from django.core.management import CommandError, call_command
from psycopg.conninfo import make_conninfo

from messaging.models import Pair
from rmhub import hubs
from tests.benchmarks import (
    arena,
    chart,
    circuit,
    database_profile,
    hub_runs,
    limits,
    machine,
    peer_environment,
    profiling,
    report,
    results,
    run,
)
from tests.benchmarks.hub_runs import Window
from tests.messaging.factories import partner_side
from tests.servers import database_url

SVG = "{http://www.w3.org/2000/svg}"


def steady(pairs: int, speed: float, cpu: float = 10.0, **changes: Any) -> dict[str, Any]:
    """One run of our hubs."""
    return {
        "pairs": pairs,
        "messages_per_second": speed,
        "first_transmission_to_ack": {"p50_ms": 5.0, "p99_ms": 20.0},
        "cpu_ms_per_message": cpu,
        "cpu_ms_in_kernel": cpu / 4,
        "cpu_ms_by_process": {"sender web": cpu / 2, "postgres": cpu / 2},
        "commits_per_message": {"bench_sender": 2.0, "bench_receiver": 1.5},
        "wal_bytes_per_message": 20_000,
        "wal_syncs_per_message": 1.5,
        "connections": {"sender": 9, "receiver": 10},
        "cpus_used_by_others": 0.1,
        "drained": True,
        "contradictions": [],
        "check": {
            "submitted": 50,
            "delivered": 50,
            "received": 50,
            "sent_again": 0,
            "received_twice": 0,
            "out_of_order": 0,
        },
        **changes,
    }


def peer_run(senders: int, speed: float, **changes: Any) -> dict[str, Any]:
    """One run of the peer."""
    ours = steady(1, speed)
    return {
        **ours,
        "senders": senders,
        "message": ours["first_transmission_to_ack"],
        "states": {"S": 100},
        "example_of_a_failure": "",
        **changes,
    }


def raw(ours: list[dict[str, Any]], peers: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Everything that a benchmark hands to the summary."""
    return {
        "started": "2026-01-02 03:04:05 UTC",
        "commit": "abc",
        "took_seconds": 1.0,
        "machine": {"cpus": 2, "cpu": "x", "memory_gib": 8, "kernel": "6", "python": "3.11", "load_at_start": 0.1},
        "versions": {},
        "ours": {"steady": ours, "unloaded": [], "idle": [], "at_rest": []},
        "peer": {"steady": peers, "race": None},
        "limits": {"posts": [], "commits": []},
        "machines": [],
        "forgetting": [],
        "streams": [],
        "signed": [],
        "applications": [],
        "circuit": {},
        "not_measured": {},
        "notes": [],
        **changes,
    }


def over_a_link(profile: str, speed: float, delay: int = 20, **changes: Any) -> dict[str, Any]:
    """One run of one pair over a slow link."""
    check = {"delivered": 5, "received": 5, "received_twice": 0, "out_of_order": 0}
    return {
        "profile": profile,
        "delay_ms": delay,
        "window": 64,
        "concurrency": 16,
        "messages_per_second": speed,
        "cpu_ms_per_message": 5.0,
        "ran_dry": False,
        "drained": True,
        "contradictions": [],
        "check": check | changes,
    }


def with_a_dead_one(mode: str, speed: float, **changes: Any) -> dict[str, Any]:
    """One run of the others."""
    attempts = 0 if mode == "well" else 5
    run = {"mode": mode, "messages_per_second": speed, "attempts_at_the_dead_one": attempts, "settled": True}
    return run | {"contradictions": []} | changes


def test_a_dead_partner_is_held_against_what_was_before_and_after_it() -> None:
    speeds = [("well", 100.0), ("blackhole", 95.0), ("well", 110.0), ("mute", 88.0), ("well", 90.0)]
    runs = [with_a_dead_one(mode, speed) for mode, speed in speeds]
    lost = circuit.lost(runs)
    assert lost == {"blackhole": {"median": 9.5, "runs": [9.5]}, "mute": {"median": 12.0, "runs": [12.0]}}
    content = raw([], [], circuit={"partners": 100, "delay_ms": 150, "runs": runs, "lost_percent": lost})
    found = results.summarise(content)
    assert [(goal["measured"], goal["met"]) for goal in found["goals"]] == [(9.5, False), (12.0, False)]
    assert "one of which is dead" in report.table(content, found)
    assert found["faults"] == []
    runs[1] |= {"settled": False, "attempts_at_the_dead_one": 0}
    assert len(results.summarise(content)["faults"]) == 2


def test_a_stream_is_held_against_one_message_at_a_time() -> None:
    runs = [over_a_link("ebxml", 16.0), over_a_link("stream", 336.0), over_a_link("ebxml", 4.0, 100)]
    found = results.summarise(raw([], [], streams=runs))
    assert [(row["delay_ms"], row["times"]) for row in found["streams"]] == [(20, 21.0)]
    assert [(goal["measured"], goal["met"]) for goal in found["goals"]] == [(21.0, True), (336.0, False)]
    assert found["faults"] == []
    table = report.table(raw([], [], streams=runs), found)
    assert "One pair over a slow link" in table and "21.0" in table
    slow = results.summarise(raw([], [], streams=[over_a_link("ebxml", 16.0), over_a_link("stream", 300.0)]))
    assert [goal["met"] for goal in slow["goals"]] == [False, False]


def test_signatures_are_measured_beside_the_peers() -> None:
    runs = [
        {**steady(10, 160.0, 8.0), "who": "ours", "protection": "unsigned"},
        {**steady(10, 40.0, 20.0), "who": "ours", "protection": "signed"},
        {**peer_run(4, 36.0), "who": "peer", "protection": "unsigned"},
        {**peer_run(4, 12.0), "who": "peer", "protection": "signed", "states": {"S": 9, "E": 1}},
    ]
    found = results.summarise(raw([], [], signed=runs))
    speeds = [(row["who"], row["protection"], row["messages_per_second"]["median"]) for row in found["signed"]]
    assert speeds == [
        ("ours", "unsigned", 160.0),
        ("ours", "signed", 40.0),
        ("peer", "unsigned", 36.0),
        ("peer", "signed", 12.0),
    ]
    assert "our hubs, ebXML 2.0, signed" in report.table(raw([], [], signed=runs), found)
    assert found["faults"] == ["the peer with 4 senders failed 1 messages: "]


def test_a_stream_that_lost_its_order_is_a_fault() -> None:
    found = results.summarise(raw([], [], streams=[over_a_link("stream", 300.0, out_of_order=2)]))
    assert found["faults"] == ["stream at 20 ms: delivered 5, received 5, received_twice 0, out_of_order 2"]


def test_cpu_time_counts_children_that_live_and_children_that_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint('x', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        through_us = machine.trees({"us": os.getpid(), "child": child.pid})
        assert child.pid in machine.descendants(os.getpid())
        child.stdin.write(b"\n")
        child.stdin.flush()
    assert through_us["child"].both >= 0.29  # its own child has ended: a tick less at most
    assert through_us["us"].both >= through_us["child"].both


def test_cpu_time_of_a_process_that_has_ended_is_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert machine.trees({"gone": child.pid}) == {"gone": machine.Cpu()}


def test_costs_are_the_differences_by_message() -> None:
    before = machine.Counters(100.0, {"a": machine.Cpu(1, 1), "b": machine.Cpu()}, 10.0, {"db": 5}, 1000, 7)
    after = machine.Counters(102.0, {"a": machine.Cpu(2, 1.5), "b": machine.Cpu(0.5)}, 13.0, {"db": 35}, 6000, 17)
    assert machine.costs(before, after, 10) == {
        "cpu_ms_per_message": 200.0,
        "cpu_ms_in_kernel": 50.0,
        "cpu_ms_by_process": {"a": 150.0, "b": 50.0},
        "cpus_used": 1.0,
        "cpus_used_by_others": 0.5,
        "commits_per_message": {"db": 3.0},
        "wal_bytes_per_message": 500,
        "wal_syncs_per_message": 1.0,
    }


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentiles_are_values_that_occurred(share: float, expected: int) -> None:
    assert machine.percentile(range(100, 0, -1), share) == expected


def test_no_messages_have_no_percentiles() -> None:
    assert machine.spread([]) == {"count": 0, "p50_ms": None, "p90_ms": None, "p99_ms": None, "max_ms": None}


def test_a_profile_names_parts_from_the_innermost_frame() -> None:
    site = "/srv/.venv/lib/python3.11/site-packages"
    text = (
        f"view (messaging/views.py:3);get ({site}/django/db/models/query.py:9);wait ({site}/psycopg/x.py:1) 6\n"
        f"view (messaging/views.py:3);get ({site}/django/db/models/query.py:12) 3\n"
        "view (messaging/views.py:8) 1\n"
    )
    profile = profiling.parse("sender web", text)
    found = profiling.summary(profile, cpu_ms_per_message=2.0)
    assert profile.samples == 10
    assert found["by_part"] == {"psycopg and libpq": 1.2, "Django ORM": 0.6, "services": 0.2}
    assert found["by_function_itself"]["wait (psycopg/x.py)"] == 1.2
    assert found["by_function_with_callees"]["get (django/db/models/query.py)"] == 1.8  # two lines of one function
    assert found["by_function_with_callees"]["view (messaging/views.py)"] == 2.0


def test_statements_are_told_apart_by_their_shape_and_not_by_their_values() -> None:
    one = database_profile.shape("UPDATE \"messaging_pair\"  SET cause = 'it''s 1' WHERE id IN (1, 22)")
    other = database_profile.shape('UPDATE "messaging_pair" SET cause = $1\nWHERE id IN (3, 4)')
    assert one == other == "UPDATE messaging_pair SET cause = ? WHERE id IN (?, ?)"
    long = (
        'SELECT "messaging_message"."id", "messaging_message"."direction", "a"."b" FROM "messaging_message" WHERE x = 1'
    )
    assert database_profile.shape(long).endswith("... FROM messaging_message WHERE x = ?")


def test_the_summary_gives_medians_with_all_runs() -> None:
    runs = [steady(100, 300.0, 7.0), steady(1, 50.0), steady(100, 100.0, 9.0), steady(100, 280.0, 8.5)]
    found = results.summarise(raw(runs, []))
    assert [row["pairs"] for row in found["ours"]] == [1, 100]
    assert found["ours"][1]["messages_per_second"] == {"median": 280.0, "runs": [300.0, 100.0, 280.0]}
    assert found["ours"][1]["cpu_ms"]["median"] == 8.5
    assert sum(found["ours"][1]["cpu_ms_by_process"].values()) == 8.5  # of one run, so that the parts add up


def test_the_goals_hold_us_against_the_peers_best() -> None:
    ours = [steady(100, 410.0, 3.4)]
    met = results.summarise(raw(ours, [peer_run(1, 30.0), peer_run(4, 50.0)]))["goals"]
    assert [(goal["measured"], goal["met"]) for goal in met] == [
        (8.2, True),
        (2.0, True),
        (1.5, True),
        (3.4, True),
        (20_000, False),
        (10, True),
    ]
    missed = results.summarise(raw([steady(100, 390.0, 3.6)], [peer_run(1, 30.0), peer_run(4, 50.0)]))["goals"]
    assert [goal["met"] for goal in missed] == [False, True, True, False, False, True]


def test_there_are_no_goals_for_what_was_not_measured() -> None:
    assert results.summarise(raw([steady(10, 100.0)], [peer_run(1, 30.0)]))["goals"] == []
    assert len(results.summarise(raw([steady(100, 100.0)], []))["goals"]) == 5  # without the peer, no multiple of it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"received_twice": 1}, "received_twice 1"),
        ({"out_of_order": 2}, "out_of_order 2"),
        ({"sent_again": 3}, "sent_again 3"),
        ({"delivered": 49}, "delivered 49"),
        ({"received": 49}, "received 49"),
    ],
)
def test_a_run_that_broke_a_promise_is_a_fault(changes: dict[str, int], words: str) -> None:
    run_ = steady(10, 100.0)
    run_["check"] |= changes
    (fault,) = results.summarise(raw([run_], []))["faults"]
    assert fault.startswith("ours at 10 pairs: ") and words in fault


def test_what_was_left_over_or_failed_or_could_not_be_measured_is_a_fault() -> None:
    content = raw(
        [steady(10, 100.0, drained=False)],
        [peer_run(2, 10.0, states={"S": 3, "E": 2}, example_of_a_failure="no receipt")],
        not_measured={"limits": "there is no pgbench"},
    )
    assert results.summarise(content)["faults"] == [
        "limits: there is no pgbench",
        "ours at 10 pairs: messages were left over when the driver had stopped",
        "the peer with 2 senders failed 2 messages: no receipt",
    ]


def test_rows_that_contradict_the_invariants_are_faults_of_the_run_after_which_they_were_found() -> None:
    content = everything()
    content["profile"] = steady(100, 250.0)
    ours, others = content["ours"], (content["streams"][1], content["circuit"]["runs"][0], content["profile"])
    for run_ in (ours["steady"][1], ours["unloaded"][0], *others):
        run_["contradictions"] = ["sender: queued, 1 times: {}"]
    assert results.summarise(content)["faults"] == [
        f"{name}: sender: queued, 1 times: {{}}"
        for name in ("ours at 100 pairs", "ours unloaded", "stream at 20 ms", "circuit, well", "profile")
    ]


@pytest.mark.django_db(transaction=True)
def test_whatever_a_look_at_the_rows_finds_or_does_not_the_run_is_kept(tmp_path: Path) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    there, away = database_url(), make_conninfo(database_url(), host=str(tmp_path))
    sender, receiver = (hubs.Hub(name, url, "", tmp_path, 0) for name, url in (("sender", there), ("receiver", away)))
    assert hub_runs.contradictions(sender) == []
    Pair.objects.update(last_sequence=7)
    (found,) = hub_runs.contradictions(sender)
    assert found.startswith("sender: last-number-in, 1 times: ")
    (found,) = hub_runs.contradictions(receiver)
    assert found.startswith("nobody could look: ")


def test_the_chart_is_svg_that_a_strict_policy_lets_through() -> None:
    runs = [steady(1, 50.0), steady(100, 250.0), steady(100, 260.0)]
    found = results.summarise(raw(runs, [peer_run(2, 40.0)]))
    picture = ElementTree.fromstring(chart.svg(found, "A & B <1>"))
    texts = ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]
    assert {"A & B <1>", "1 pair", "100 pairs", "peer, 2 senders", "255"} <= set(texts)
    assert len(list(picture.iter(f"{SVG}circle"))) == 4  # one for every run
    assert all("style" not in element.attrib for element in picture.iter())
    assert not list(picture.iter(f"{SVG}style")) and not list(picture.iter(f"{SVG}script"))


def test_the_chart_and_the_table_do_with_one_part_alone() -> None:
    posts = {
        "kind": "posts",
        "connections": 16,
        "posts_per_second": 20_000.0,
        "latency": {"p50_ms": 0.4, "p99_ms": 2.0},
        "server_cpu_ms_per_post": 0.03,
    }
    content = raw([], [], limits={"posts": [posts], "commits": []})
    found = results.summarise(content)
    ElementTree.fromstring(chart.svg(found, "limits"))
    assert "20,000" in report.table(content, found)
    assert "Our hubs" not in report.table(content, found)


def test_the_table_says_what_was_not_met() -> None:
    content = raw([steady(100, 240.0, 8.1)], [peer_run(4, 50.0)], notes=["2 of 3 rounds were run."])
    found = results.summarise(content)
    for text in (report.table(content, found), report.markdown(content, found, "x.svg")):
        assert text.count("NOT MET") == 3
        assert "2.00 + 1.50" in text  # commits of both sides
        assert "2 of 3 rounds were run." in text


def test_oscrypto_is_mended_once(tmp_path: Path) -> None:
    file = tmp_path / "lib/python3.11/site-packages/oscrypto/_openssl/_libcrypto_ctypes.py"
    file.parent.mkdir(parents=True)
    file.write_text(r"version_match = re.search('\\b(\\d\\.\\d\\.\\d[a-z]*)\\b', version_string)")
    assert peer_environment.mend_oscrypto(tmp_path) == [file]
    assert file.read_text() == r"version_match = re.search('\\b(\\d\\.\\d\\.\\d+[a-z]*)\\b', version_string)"
    assert peer_environment.mend_oscrypto(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pairs", "0"),
        ("--pairs", "1,x"),
        ("--pairs", "1001"),
        ("--seconds", "0"),
        ("--seconds", "61"),
        ("--only", "x"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        call_command("bench", *arguments)


def test_a_profile_needs_our_hubs() -> None:
    with pytest.raises(CommandError, match="--only ours"):
        call_command("bench", "--profile", "--only", "limits")


def everything() -> dict[str, Any]:
    """One run of every part."""
    posts = {"connections": 16, "posts_per_second": 9.0, "latency": {"p50_ms": 1.0, "p99_ms": 2.0}}
    spread = {"p50_ms": 5.0, "p99_ms": 20.0}
    look_up = {"p50": 480.0, "p99": 900.0}
    day = {"ids": 1000, "days_probed": 7, "bytes_per_id": 288.0, "forget_ms": 9.0, "remove_ms": 86.0}
    dead = [with_a_dead_one(mode, 100.0) for mode in ("well", "blackhole", "well", "mute", "well")]
    unloaded = {"pairs": 10, "messages": 3, "submission_to_ack": spread, "first_transmission_to_ack": spread}
    unloaded["contradictions"] = []
    content = raw(
        [steady(1, 50.0), steady(100, 250.0)],
        [peer_run(2, 40.0)],
        limits={
            "posts": [{**posts, "server_cpu_ms_per_post": 0.03}],
            "commits": [{"connections": 4, "commits_per_second": 800.0, "average_ms": 5.0}],
        },
        forgetting=[{**day, "look_up_known_us": look_up, "look_up_unknown_us": look_up, "others_longest_wait_ms": 4.0}],
        streams=[over_a_link("ebxml", 16.0), over_a_link("stream", 336.0)],
        circuit={"partners": 100, "delay_ms": 150, "runs": dead},
    )
    content["ours"]["unloaded"].append(unloaded)
    content["machines"] += [steady(100, 250.0, machines=1), steady(100, 240.0, machines=2)]
    by_process = {"sender web": 0.1, "sender worker": 0.3, "postgres": 0.4}
    idle = {"percent_of_a_cpu": 0.4, "by_process": by_process, "commits_per_second": {"bench_sender": 2.0}}
    content["ours"]["idle"].append(idle)
    content["ours"]["at_rest"].append({"bytes_per_message": {"sender": 3400.0, "receiver": 3100.0}})
    for kind, speed in (("requests", 610.0), ("deliveries", 520.0)):
        costs = {"cpu_ms_per_message": 1.7, "wal_bytes_per_message": 9000.0, "contradictions": []}
        content["applications"].append({"kind": kind, "messages_per_second": speed, **costs})
    return content


def test_the_report_shows_every_part() -> None:
    content = everything()
    found = results.summarise(content)
    table = report.table(content, found)
    for words in (
        "at rest",
        "on several machines",
        "between a partner and an application",
        "Our hubs unloaded",
        "The peer",
        "Limits",
        "Remembered ids",
        "One pair over",
        "one of which is dead",
    ):
        assert words in table
    assert "86.0" in table  # removing the day's files, the column between forgetting and waiting
    report.markdown(content, found, "x.svg")


def figures(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all measured figures: what may be None where nothing could be measured."""
    if isinstance(value, dict):
        return [place for key, each in value.items() for place in figures(each, (*path, key))]
    if isinstance(value, list):
        return [place for at, each in enumerate(value) for place in figures(each, (*path, at))]
    return [path] if isinstance(value, float) else []


def shown(content: dict[str, Any]) -> str:
    found = results.summarise(content)
    ElementTree.fromstring(chart.svg(found, "x"))
    report.markdown(content, found, "x.svg")
    return report.table(content, found)


PLACES = [place for place in figures(everything()) if place[0] not in ("took_seconds", "machine")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_a_figure_that_is_missing_takes_no_other_with_it(place: tuple[Any, ...]) -> None:
    content = everything()
    inside: Any = content
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = None
    assert "2026-01-02" in shown(content)


def test_a_part_that_ended_early_is_shown_as_far_as_it_came() -> None:
    whole = everything()
    for part, name in (("streams", None), ("circuit", "runs"), ("ours", "steady"), ("limits", "posts")):
        full = whole[part] if name is None else whole[part][name]
        for count in range(len(full)):
            cut = full[:count]
            assert "2026-01-02" in shown({**whole, part: cut if name is None else {**whole[part], name: cut}})


def test_what_was_measured_outlives_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commits(*args: Any) -> Any:
        yield {"connections": 1, "commits_per_second": 800.0, "average_ms": 5.0}
        raise psycopg.OperationalError("FATAL:  sorry, too many clients already")

    def killed(*args: Any) -> Any:
        yield {"connections": 1, "posts_per_second": 9.0, "latency": {"p50_ms": 1.0, "p99_ms": 2.0}}
        raise KeyboardInterrupt

    servers = contextlib.nullcontext(arena.Servers("", "", {}, tmp_path, "18"))
    monkeypatch.setattr(arena, "servers", lambda var, say: servers)
    monkeypatch.setattr(limits, "posts", lambda *args: iter(()))
    monkeypatch.setattr(limits, "commits", commits)
    plan = run.Plan(parts=("limits",), rounds=2)
    measured, found = run.run(plan, tmp_path, lambda line: None)
    files = run.save(measured, found)
    kept = json.loads(files["json"].read_text())
    assert [row["commits_per_second"] for row in kept["limits"]["commits"]] == [800.0, 800.0]
    assert set(kept["not_measured"]) == {"round 1 of 2: commits", "round 2 of 2: commits"}
    assert "too many clients already" in report.table(measured.content, found)
    assert "too many clients already" in files["md"].read_text()
    files["json"].unlink()

    monkeypatch.setattr(limits, "posts", killed)
    with pytest.raises(KeyboardInterrupt):
        run.run(plan, tmp_path, lambda line: None)
    (file,) = tmp_path.glob("*.json")
    assert [row["posts_per_second"] for row in json.loads(file.read_text())["limits"]["posts"]] == [9.0]


@pytest.mark.long
@pytest.mark.acceptance
def test_a_short_run_measures_everything(tmp_path: Path) -> None:
    plan = run.Plan(
        pairs=(2,),
        senders=(1,),
        window=Window(0.5, 2.0),
        limit_seconds=1.0,
        unloaded=3,
        idle=2.0,
        rounds=1,
        race=3,
        days=(1000, 20_000),
        delays=(20,),
        partners=4,
    )
    said: list[str] = []
    measured, found = run.run(plan, tmp_path, said.append)
    files = run.save(measured, found)
    content = json.loads(files["json"].read_text())

    # Without a network the peer cannot be installed; then the report has to say so.
    without_peer = set(content["not_measured"]) == {"the peer's environment"}
    assert without_peer or not content["not_measured"], content["not_measured"]
    assert without_peer or not found["faults"], found["faults"]

    (ours,) = content["ours"]["steady"]
    assert ours["pairs"] == 2 and ours["drained"]
    assert ours["check"]["delivered"] == ours["check"]["received"] == ours["check"]["submitted"] > 0
    assert ours["messages"] > 0 and ours["seconds"] >= 1.9
    assert ours["messages_per_second"] == pytest.approx(ours["messages"] / ours["seconds"], abs=0.1)
    assert sum(ours["per_second"]) == ours["messages"]
    assert 0 < ours["first_transmission_to_ack"]["p50_ms"] <= ours["first_transmission_to_ack"]["p99_ms"]
    assert set(ours["cpu_ms_by_process"]) == {
        *(f"{side} {process}" for side in ("sender", "receiver") for process in ("web", "worker", "beat")),
        *("postgres", "valkey", "driver"),
    }
    assert ours["cpu_ms_per_message"] == pytest.approx(sum(ours["cpu_ms_by_process"].values()), abs=0.01)
    assert 0 < ours["cpu_ms_in_kernel"] < ours["cpu_ms_per_message"]
    assert set(ours["commits_per_message"]) == {"bench_sender", "bench_receiver"}
    assert ours["wal_bytes_per_message"] > 2 * 4096  # both hubs keep the document
    assert ours["driver"]["submitted"] >= ours["messages"]

    (unloaded,) = content["ours"]["unloaded"]
    assert unloaded["messages"] == 3
    assert unloaded["submission_to_ack"]["p50_ms"] >= unloaded["first_transmission_to_ack"]["p50_ms"] > 0

    (idle,) = content["ours"]["idle"]
    assert 0 <= idle["percent_of_a_cpu"] < 100 and set(idle["by_process"]) >= {"sender worker", "postgres"}
    one, two = content["machines"]
    assert (one["machines"], two["machines"]) == (1, 2) and min(one["messages"], two["messages"]) > 0
    (rest,) = content["ours"]["at_rest"]
    assert rest["messages"]["sender"] == rest["messages"]["receiver"] > 0
    assert all(size > 500 for size in rest["bytes_per_message"].values())
    requests, deliveries = content["applications"]
    assert (requests["kind"], deliveries["kind"]) == ("requests", "deliveries")
    assert requests["messages_per_second"] > 0 and deliveries["messages"] > 0
    assert requests["contradictions"] == deliveries["contradictions"] == []

    for day, size in zip(content["forgetting"], (1000, 20_000), strict=True):
        assert day["ids"] == size and 100 < day["bytes_per_id"] < 2000 and day["forget_ms"] > 0
        assert 0 < day["look_up_known_us"]["p50"] <= day["look_up_known_us"]["p99"]

    one, many = content["streams"]
    assert (one["profile"], many["profile"]) == ("ebxml", "stream")
    assert one["messages"] > 0 and many["messages"] > 0
    for stream in content["streams"]:
        assert stream["check"]["received_twice"] == stream["check"]["out_of_order"] == 0

    assert [row["connections"] for row in content["limits"]["posts"]] == [1, 16]
    assert [row["connections"] for row in content["limits"]["commits"]] == [1, 4, 16]
    assert all(row["posts_per_second"] > 0 for row in content["limits"]["posts"])
    for row in content["limits"]["commits"]:
        assert row["commits_per_second"] > 0
        assert row["settings"]["fsync"] == row["settings"]["synchronous_commit"] == "on"

    if not without_peer:
        (peer,) = content["peer"]["steady"]
        assert peer["senders"] == 1 and set(peer["states"]) == {"S"}
        assert peer["messages"] > 0 and peer["cpu_ms_per_message"] > 0
        assert set(peer["commits_per_message"]) == {"bench_peer_sender", "bench_peer_receiver"}
        assert content["peer"]["race"]["trials"] == sum(content["peer"]["race"]["answers"].values()) == 3
        assert content["versions"]["peer django-pyas2"] == "1.2.3"

    assert content["versions"]["postgresql"] and content["commit"] and content["machine"]["cpus"] > 0
    assert content["summary"] == json.loads(json.dumps(found))
    assert "2 pairs" in files["md"].read_text()
    ElementTree.fromstring(files["svg"].read_text())
    assert not (tmp_path / "servers").exists()  # nothing of the databases is left
