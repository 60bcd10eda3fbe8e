"""The figures as a table: for the terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]


def table(raw: Figures, found: Figures) -> str:
    """Plain text for a terminal."""
    lines = [_title(raw), ""]
    for heading, columns, rows in _tables(raw, found):
        lines += [heading, *_aligned([columns, *rows]), ""]
    lines += [*_sentences(raw, found)]
    return "\n".join(lines).rstrip() + "\n"


def markdown(raw: Figures, found: Figures, chart: str) -> str:
    """The same as a page, with the chart beside it."""
    lines = ["# Benchmark", "", _title(raw), "", f"![messages per second, CPU per message, limits]({chart})", ""]
    for heading, columns, rows in _tables(raw, found):
        lines += [f"## {heading}", "", _row(columns), _row(["---"] * len(columns)), *map(_row, rows), ""]
    lines += [f"{sentence}  " if sentence else "" for sentence in _sentences(raw, found)]
    for name, profile in raw.get("profile", {}).get("profile", {}).items():
        lines += ["", f"## Profile: {name}, {profile['cpu_ms_per_message']:g} ms of CPU a message", ""]
        lines += [_row(["part", "ms a message"]), _row(["---", "---"])]
        lines += [_row([part, f"{value:.3f}"]) for part, value in profile["by_part"].items()]
        lines += ["", _row(["function, with what it calls", "ms a message"]), _row(["---", "---"])]
        lines += [_row([f"`{part}`", f"{value:.3f}"]) for part, value in profile["by_function_with_callees"].items()]
        lines += ["", _row(["function itself", "ms a message"]), _row(["---", "---"])]
        lines += [_row([f"`{part}`", f"{value:.3f}"]) for part, value in profile["by_function_itself"].items()]
    return "\n".join(lines).rstrip() + "\n"


def _title(raw: Figures) -> str:
    machine = raw["machine"]
    return (
        f"{raw['started']}, {raw['commit']}, {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gib']} GiB, "
        f"kernel {machine['kernel']}, Python {machine['python']}, PostgreSQL {raw['versions'].get('postgresql', '?')}"
    )


def _tables(raw: Figures, found: Figures) -> list[tuple[str, list[str], list[list[str]]]]:
    columns = ["", "messages/s", "p50 ms", "p99 ms", "CPU ms", "commits", "WAL KB", "others' CPUs", "all messages/s"]
    tables = []
    if found["ours"]:
        rows = [_costs(_plural(row["pairs"], "pair"), row) for row in found["ours"]]
        tables.append(
            ("Our hubs: acknowledged messages, from the first transmission to the acknowledgement", columns, rows)
        )
    if found["unloaded"]:
        one = found["unloaded"]
        rows = [
            [name.replace("_", " "), _number(one[f"{name}_p50_ms"]["median"]), _number(one[f"{name}_p99_ms"]["median"])]
            for name in ("submission_to_ack", "first_transmission_to_ack")
        ]
        tables.append((f"Our hubs unloaded: {one['messages']} messages, one at a time", ["", "p50 ms", "p99 ms"], rows))
    if found["peer"]:
        rows = [_costs(_plural(row["senders"], "sender"), row) for row in found["peer"]]
        tables.append(("The peer, django-pyas2: unsigned messages with a synchronous receipt", columns, rows))
    limits = [
        [
            "POST 4 KiB, " + _plural(row["connections"], "connection"),
            *_limit(row),
            _number(row["p50_ms"]["median"]),
            _all(row),
        ]
        for row in found["posts"]
    ] + [
        [
            "commit of one row, " + _plural(row["connections"], "connection"),
            *_limit(row),
            _number(row["average_ms"]["median"]),
            _all(row),
        ]
        for row in found["commits"]
    ]
    if limits:
        tables.append(("Limits of this machine", ["", "per second", "typical ms", "all per second"], limits))
    if found["machines"]:
        rows = [_costs(_plural(row["machines"], "machine"), row) for row in found["machines"]]
        tables.append(("Each hub on several machines, as processes on this one", columns, rows))
    if raw.get("forgetting"):
        tables.append(_forgetting(raw["forgetting"]))
    if found["streams"]:
        tables.append(_streams(found["streams"]))
    if found["signed"]:
        rows = [_costs(f"{_WHO[row['who']]}, {row['protection']}", row) for row in found["signed"]]
        tables.append(("ebXML Messaging 2.0 beside AS2: acknowledged in the response", columns, rows))
    if found["applications"]:
        tables.append(_applications(found["applications"]))
    if found["idle"] or found["at_rest"]:
        tables.append(_at_rest(found))
    if found["circuit"] and found["circuit"]["runs"]:
        tables.append(_circuit(found["circuit"]))
    if profile := raw.get("profile"):
        tables.append(_where(profile))
        tables.append(_sessions(profile["database_profile"]))
    if found["goals"]:
        rows = [[goal["goal"], goal["wanted"], _number(goal["measured"]), _met(goal["met"])] for goal in found["goals"]]
        tables.append(("Goals", ["", "wanted", "measured", ""], rows))
    if raw["not_measured"]:
        rows = [[part, " ".join(reason.split())[:200]] for part, reason in raw["not_measured"].items()]
        tables.append(("Not measured", ["part", "why"], rows))
    return tables


_WHO = {"ours": "our hubs, ebXML 2.0", "peer": "django-pyas2, AS2"}


def _met(met: bool | None) -> str:
    return "NOT MEASURED" if met is None else "met" if met else "NOT MET"


def _forgetting(days: Sequence[Figures]) -> tuple[str, list[str], list[list[str]]]:
    columns = [
        "ids of the day",
        "bytes an id",
        "known, p50 us",
        "p99 us",
        "unknown, p50 us",
        "p99 us",
        "forget ms",
        "remove ms",
        "others wait ms",
    ]
    rows = [
        [
            f"{day['ids']:,}",
            _number(day["bytes_per_id"]),
            *(
                _number(day[which][quantile])
                for which in ("look_up_known_us", "look_up_unknown_us")
                for quantile in ("p50", "p99")
            ),
            _number(day["forget_ms"]),
            _number(day["remove_ms"]),
            _number(day["others_longest_wait_ms"]),
        ]
        for day in days
    ]
    return f"Remembered ids: a day among {days[0]['days_probed']}, looked up and forgotten", columns, rows


def _streams(rows: Sequence[Figures]) -> tuple[str, list[str], list[list[str]]]:
    columns = ["ms each way", "one by one, messages/s", "stream, messages/s", "times", "CPU ms", "CPU ms, stream"]
    window = rows[0]["stream"]
    table = [
        [
            f"{row['delay_ms']}",
            _number(row["ebxml"]["messages_per_second"]),
            _number(row["stream"]["messages_per_second"]),
            _number(row["times"]),
            _number(row["ebxml"]["cpu_ms_per_message"]),
            _number(row["stream"]["cpu_ms_per_message"]),
        ]
        for row in rows
    ]
    title = f"One pair over a slow link: one message at a time, and a stream ({window['window']} in flight, "
    return f"{title}{window['concurrency']} on the wire)", columns, table


_APPLICATIONS = {
    "requests": "requests of 4 KiB, stored and answered",
    "deliveries": "documents that the application has processed",
}


def _applications(rows: Sequence[Figures]) -> tuple[str, list[str], list[list[str]]]:
    table = [
        [
            _APPLICATIONS[row["kind"]],
            _number(row["messages_per_second"]["median"]),
            _number(row["cpu_ms"]["median"]),
            _number((row["wal_bytes"]["median"] or 0) / 1000),
            " ".join(_number(value) for value in row["messages_per_second"]["runs"]),
        ]
        for row in rows
    ]
    return "One hub between a partner and an application", ["", "per second", "CPU ms", "WAL KB", "all"], table


def _at_rest(found: Figures) -> tuple[str, list[str], list[list[str]]]:
    rows = []
    if idle := found["idle"]:
        rows.append(
            ["percent of a CPU that a hub uses with nothing to do", _number(idle["percent_of_a_cpu"]["median"])]
        )
        rows += [[name, _number(value)] for name, value in idle["by_process"].items()]
    for name, row in found["at_rest"].items():
        rows.append([f"bytes of a message on the {name}, without its documents", _number(row["median"])])
    return "Our hubs at rest", ["", "median"], rows


def _circuit(dead: Figures) -> tuple[str, list[str], list[list[str]]]:
    columns = ["the last one is", "the others, messages/s", "attempts at it", "lost %"]
    lost = {mode: iter(each["runs"]) for mode, each in dead["lost_percent"].items()}
    rows = [
        [
            run["mode"],
            _number(run["messages_per_second"]),
            str(run["attempts_at_the_dead_one"]) if run["mode"] != "well" else "-",
            _number(next(lost[run["mode"]], None)) if run["mode"] in lost else "-",
        ]
        for run in dead["runs"]
    ]
    title = f"{dead['partners']} partners that answer after {dead['delay_ms']} ms, one of which is dead at times"
    return title, columns, rows


def _where(run: Figures) -> tuple[str, list[str], list[list[str]]]:
    """The profile in short: parts of the code by process."""
    processes = run["profile"]
    parts: dict[str, float] = {}
    for profile in processes.values():
        for part, value in profile["by_part"].items():
            parts[part] = parts.get(part, 0.0) + value
    rows = [
        [part, *(_number(each["by_part"].get(part)) for each in processes.values()), _number(total)]
        for part, total in sorted(parts.items(), key=lambda item: -item[1])
    ]
    totals = [_number(each["cpu_ms_per_message"]) for each in processes.values()]
    rows.append(["all", *totals, _number(sum(parts.values()))])
    return f"Where the CPU milliseconds go, {_plural(run['pairs'], 'pair')}", ["", *processes, "all"], rows


def _sessions(watched: Figures) -> tuple[str, list[str], list[list[str]]]:
    """What the database was at, in short."""
    rows = [[name, _number(value)] for name, value in list(watched["sessions_by_wait"].items())[:6]]
    rows += [[name, _number(value)] for name, value in list(watched["sessions_by_statement"].items())[:12]]
    return f"What the database is at ({watched['looks']} looks)", ["", "sessions"], rows


def _costs(name: str, row: Figures) -> list[str]:
    return [
        name,
        *(_number(row[key]["median"]) for key in ("messages_per_second", "p50_ms", "p99_ms", "cpu_ms")),
        " + ".join(_number(figure["median"]) for figure in row["commits"].values()),
        _number((row["wal_bytes"]["median"] or 0) / 1000),
        _number(row["cpus_used_by_others"]["median"]),
        " ".join(_number(value) for value in row["messages_per_second"]["runs"]),
    ]


def _limit(row: Figures) -> list[str]:
    return [_number(row["per_second"]["median"])]


def _all(row: Figures) -> str:
    return " ".join(_number(value) for value in row["per_second"]["runs"])


def _sentences(raw: Figures, found: Figures) -> list[str]:
    lines = [
        "Medians, with all runs beside them. CPU: all processes of both sides with PostgreSQL (and Valkey), the "
        "programs that hand the messages in included. Commits: of the sender's database + of the receiver's.",
    ]
    if race := found["race"]:
        lines.append(
            f"The same message posted to the peer twice at once, {race['trials']} trials: delivered twice in "
            f"{race['delivered_twice']}."
        )
    for row in found["ours"]:
        parts = ", ".join(f"{name} {_number(value)}" for name, value in row["cpu_ms_by_process"].items())
        kernel = _number(row["cpu_ms_in_kernel"]["median"])
        lines.append(
            f"CPU ms at {_plural(row['pairs'], 'pair')}: {parts}; {kernel} of it in the kernel. "
            f"Connections of a hub: {_number(max(row['connections']['runs'], default=None))} at most."
        )
    lines += [f"FAULT: {fault}" for fault in found["faults"]]
    lines += [f"Note: {note}" for note in raw["notes"]]
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
