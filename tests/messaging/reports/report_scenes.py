"""Reports to look at: published by the real services, with numbers such as a hub with some partners would have."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from messaging.choices import SlaTarget
from messaging.journal.audit import Actor
from messaging.models import PipelineRun
from messaging.report_choices import AuditKind, PipelineJob, TimingOption, Verdict, WindowBasis
from messaging.reports.catalogue import REPORTS, Table
from messaging.reports.services import publishing
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

OLGA = Actor("olga", "console")
PARTNERS = ("Globex Corporation", "Initech Logistics", "Umbrella Pharma", "Wayne Freight")
LAST = datetime(2026, 2, 27, tzinfo=UTC)  # the last whole day
HOUR = timedelta(hours=1)
DAYS = 40
PLOG = "plog_0192f3a1b2c37d4ea5f60718293a4b5c"
AGREEMENTS = {name: uuid.UUID(int=0xA000 + number) for number, name in enumerate(PARTNERS)}
FACTS = {
    "generation": 1,
    "through_xid": 4_812_377,
    "as_of": "2026-02-28T03:15:02+00:00",
    "entities": {
        "messages": {"files": 41, "rows": 1_204_332, "bytes": 88_123_456},
        "transmissions": {"files": 41, "rows": 1_611_208, "bytes": 61_002_113},
        "events": {"files": 41, "rows": 4_402_118, "bytes": 141_883_010},
    },
}


def row(table: Table, **values: Any) -> list[Any]:
    """One row in the order of the table's columns; what is not said is the column's default, or nothing."""
    known = {field.name for field in table.columns}
    assert set(values) <= known, set(values) - known
    return [values.get(field.name, field.get_default() if field.has_default() else None) for field in table.columns]


def publish(
    job: str,
    rows: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    scope: str = "",
    begin: datetime | None = None,
    end: datetime | None = None,
    as_of: datetime | None = None,
    files: bool = False,
) -> PipelineRun:
    """A run of this job that succeeded with these rows (table -> columns); tables that are not named are empty."""
    run = queued(job, scope=scope, begin=begin, end=end)
    return finish(run, rows, as_of=as_of, files=files)


def queued(job: str, *, scope: str = "", begin: datetime | None = None, end: datetime | None = None) -> PipelineRun:
    return pipeline_runs.run_request(job=job, actor=OLGA, scope=scope, range_from=begin, range_to=end, reason="look")


def claimed(run: PipelineRun) -> PipelineRun:
    taken = pipeline_runs.claim_run(run.pk, worker="hub-1:4711")
    assert taken is not None
    return taken


def finish(
    run: PipelineRun, rows: Mapping[str, Iterable[Mapping[str, Any]]], *, as_of: datetime | None, files: bool = False
) -> PipelineRun:
    """Claims a waiting run and publishes it."""
    return publish_claimed(claimed(run), rows, as_of=as_of, files=files)


def publish_claimed(
    taken: PipelineRun, rows: Mapping[str, Iterable[Mapping[str, Any]]], *, as_of: datetime | None, files: bool = False
) -> PipelineRun:
    """Publishes a run that is in progress."""
    report = REPORTS[taken.job]
    tables = {table.name: [row(table, **values) for values in rows.get(table.name, ())] for table in report.tables}
    artifacts = [_file(taken, table.name, len(tables[table.name])) for table in report.tables] if files else []
    steps = {"Reading the lake": 0.31, "Computing findings": 5.82, "Writing files": 0.12, "Publishing": 0.4}
    facts = {**FACTS, "code": "3fa91c20be77", "spark": "local[*]", "seconds": steps}
    publishing.publish(taken, tables, data_as_of=as_of or clock.now(), facts=facts, artifacts=artifacts)
    return PipelineRun.objects.get(pk=taken.pk)


def failed(job: str, error: str = "Spark ran out of memory: give it more with RMHUB_SPARK_MEMORY.") -> PipelineRun:
    """A run that ended badly."""
    run = claimed(queued(job))
    assert pipeline_runs.run_fail(run, error, "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark...")
    return PipelineRun.objects.get(pk=run.pk)


def _file(run: PipelineRun, name: str, rows: int) -> dict[str, Any]:
    folder: Path = publishing.folder_of(run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.parquet").write_bytes(b"PAR1" + name.encode())
    path = f"reports/{run.id.hex}/{name}.parquet"
    return {"name": f"{name}.parquet", "path": path, "rows": rows, "bytes": 4 + len(name), "sha256": "ab" * 32}


def audit_rows(*, violations: bool = True, notices: int = 7) -> dict[str, list[dict[str, Any]]]:
    """Pairs of all partners, and findings of several kinds."""
    pairs, findings = [], []
    for number, partner in enumerate(PARTNERS):
        for direction in ("out", "in"):
            code = f"ACME>{partner.split()[0].upper()}" if direction == "out" else f"{partner.split()[0].upper()}>ACME"
            pairs.append(
                {
                    "pair_id": uuid.UUID(int=number + (500 if direction == "in" else 0)),
                    "pair": code,
                    "direction": direction,
                    "partner": partner,
                    "messages": 120_000 + 31_337 * number,
                    "first_number": 1,
                    "last_number": 120_000 + 31_337 * number,
                    "first_at": LAST - timedelta(days=DAYS),
                    "last_at": LAST - timedelta(minutes=7),
                    "missing": 2 if violations and number == 1 and direction == "in" else 0,
                }
            )
    pair = "INITECH>ACME"
    if violations:
        ids = [f"20260214-{number:06d}@edi.initech.example" for number in range(3)]
        for kind, count, numbers, proof, detail in (
            (AuditKind.GAP, 2, (80_112, 80_113), ids[:2], "80,111 was stored at 09:14:02, 80,114 at 09:14:05."),
            (AuditKind.DELIVERED_TWICE, 1, (80_200, None), ids[2:], "Two deliveries to ERP orders completed."),
            (AuditKind.ACK_WITHOUT_STORAGE, 5, (80_300, 80_304), [*ids, *(f"x{n}@y" for n in range(2))], ""),
        ):
            findings.append(
                {
                    "kind": kind.value,
                    "violation": True,
                    "pair_id": uuid.UUID(int=501),
                    "pair": pair,
                    "partner": PARTNERS[1],
                    "first_number": numbers[0],
                    "last_number": numbers[1],
                    "count": count,
                    "message_ids": proof,
                    "at": LAST - timedelta(days=13, hours=14),
                    "detail": detail,
                }
            )
    for number in range(notices):
        findings.append(
            {
                "kind": (AuditKind.RESET if number % 2 else AuditKind.BRIDGE).value,
                "violation": False,
                "pair": "ACME>UMBRELLA",
                "partner": PARTNERS[2],
                "first_number": 1,
                "last_number": 1,
                "count": 1,
                "message_ids": [f"reset-{number}@acme.example"],
                "at": LAST - timedelta(days=number),
            }
        )
    return {"pairs": pairs, "findings": findings}


def level_rows(*, days: int = DAYS, seed: int = 7) -> dict[str, list[dict[str, Any]]]:
    """Levels by hour, day and whole range with the rhythm of working days; one partner has a bad afternoon."""
    chance = random.Random(seed)
    levels: list[dict[str, Any]] = []
    sums: dict[tuple[str, Any, str, str], dict[str, Any]] = {}
    for day in range(days):
        midnight = LAST - timedelta(days=days - 1 - day)
        for hour in range(24):
            for number, partner in enumerate(PARTNERS):
                for direction in ("out", "in"):
                    one = _hour(chance, midnight + HOUR * hour, number, direction)
                    for who in (partner, ""):
                        for grain, at in (("hour", midnight + HOUR * hour), ("day", midnight), ("total", None)):
                            key = (grain, at, who, direction)
                            _add(
                                sums.setdefault(
                                    key, {"grain": grain, "at": at, "partner": who, "direction": direction}
                                ),
                                one,
                            )
    levels = list(sums.values())
    for one in levels:
        sent = one["messages"] if one["direction"] == "out" else 0
        one["retries_per_message"] = (one["attempts"] - sent) / sent if sent else None
    errors, doubts = [], []
    for partner in ("", *PARTNERS):
        share = 1 if not partner else 0.3
        counts = [("attempt", "read_timeout", 1412), ("attempt", "connect_refused", 640), ("attempt", "http_503", 388)]
        counts += [
            ("rejection", "unauthenticated", 121),
            ("message", "ack_timeout", 14),
            ("delivery", "service_error", 9),
        ]
        total, so_far = sum(int(count * share) for _, _, count in counts), 0
        for kind, cause, count in counts:
            so_far += int(count * share)
            errors.append(
                {
                    "partner": partner,
                    "kind": kind,
                    "cause": cause,
                    "count": int(count * share),
                    "share": int(count * share) / total,
                    "cumulative": so_far / total,
                }
            )
        for what, doubt, outcome, count in (
            ("delivery", "started_not_completed", "duplicate", 31),
            ("delivery", "started_not_completed", "resubmit", 6),
            ("delivery", "resolver_unsure", "open", 2),
            ("message", "outcome_unknown", "answered", 4),
        ):
            doubts.append({"partner": partner, "what": what, "doubt": doubt, "outcome": outcome, "count": count})
    return {"levels": levels, "errors": errors, "doubts": doubts}


def _hour(chance: random.Random, at: datetime, number: int, direction: str) -> dict[str, Any]:
    working = at.weekday() < 5
    rhythm = math.exp(-((at.hour - 11 - number) ** 2) / 18) * (1 if working else 0.12) + 0.04
    messages = int(160 * rhythm * (1 + number / 2) * chance.uniform(0.8, 1.2))
    bad = number == 1 and at.date() == (LAST - timedelta(days=3)).date() and 13 <= at.hour < 17
    failed = int(messages * (0.2 if bad else 0.0004) + chance.random() * 0.02 * (messages > 50))
    slow = (6 if bad else 1) * chance.uniform(0.85, 1.3)
    found: dict[str, Any] = {
        "messages": messages,
        "bytes": messages * 6144,
        "succeeded": messages - failed,
        "failed": failed,
        "in_doubt": 0,
        "under_way": 0,
        "attempts": int(messages * (1.6 if bad else 1.01)) if direction == "out" else 0,
        "duplicates": int(messages * 0.004) if direction == "in" else 0,
        "suspensions": int(bad and at.hour == 14),
        "resumed": int(bad and at.hour == 14),
    }
    if direction == "out" and messages:
        found |= {"ack_p50": 0.21 * slow * (1 + number / 3), "ack_p95": 0.9 * slow, "ack_p99": 2.6 * slow}
    if found["resumed"]:
        found["mean_seconds_to_resume"] = 4210.0
    return found


def _add(total: dict[str, Any], one: Mapping[str, Any]) -> None:
    for name, value in one.items():
        if name.startswith(("ack_", "mean_")):
            total[name] = max(total.get(name) or 0.0, value)
        else:
            total[name] = total.get(name, 0) + value


def window_rows() -> dict[str, list[dict[str, Any]]]:
    """Windows for three risks; one partner's is too short."""
    advice, delays, histogram = [], [], []
    for number, partner in enumerate(PARTNERS):
        short = number == 2
        for power, window in ((10_000, 5400), (1_000_000, 86_400 * (9 if short else 2)), (10**9, 86_400 * 21)):
            measured = WindowBasis.MEASURED if power == 10_000 else WindowBasis.EXTRAPOLATED
            advice.append(
                {
                    "partner": partner,
                    "profile": "ebxml",
                    "one_in": power,
                    "basis": (WindowBasis.AGREED if number == 3 else measured).value,
                    "window": window,
                    "ids": window // 3,
                    "bytes": window * 48,
                    "cost": window * 48 / 1e9 * 0.12,
                    "in_force": 86_400 * 7,
                    "suffices": window <= 86_400 * 7,
                }
            )
        delays.append(
            {
                "partner": partner,
                "profile": "ebxml",
                "messages": 410_221,
                "repeats": 1804 - number,
                "p50": 61.2,
                "p90": 188.0,
                "p99": 3712.4,
                "p999": 41_020.0,
                "longest": 88_120.0,
            }
        )
        counts = (3, 9, 22, 61, 130, 402, 655, 301, 140, 52, 18, 6, 2, 0, 1, 0, 2)
        if number != 3:
            histogram += [
                {"partner": partner, "profile": "ebxml", "upper": 2**power, "repeats": count}
                for power, count in enumerate(counts, 1)
                if count
            ]
    return {"advice": advice, "delays": delays, "histogram": histogram}


def timing_rows(agreements: Sequence[tuple[uuid.UUID, str, str]] = ()) -> dict[str, list[dict[str, Any]]]:
    """In force and proposed for each agreement (id, TPAId, partner); the first one's could be better."""
    advice, latencies, failures = [], [], []
    known = agreements or [(key, f"urn:tpa:acme-{name.split()[0].lower()}", name) for name, key in AGREEMENTS.items()]
    for number, (key, tpa, partner) in enumerate(known):
        same = {"agreement_id": key, "agreement": tpa, "partner": partner}
        advice.append(
            {
                **same,
                "option": TimingOption.IN_FORCE.value,
                "timeout": 30,
                "retries": 3,
                "retry_interval": 60,
                "messages": 61_204,
                "attempts": 70_312,
                "needless": 8120,
                "given_up": 14,
                "mean_seconds": 4.21,
                "p95_seconds": 12.4,
                "gives_up_after": 300,
            }
        )
        proposal = {"timeout": 75, "retries": 5, "retry_interval": 90} if number == 0 else {}
        better = {"attempts": 62_480, "needless": 211, "given_up": 1, "mean_seconds": 5.07, "gives_up_after": 975}
        advice.append({**advice[-1], "option": TimingOption.PROPOSED.value, **proposal, **(better if proposal else {})})
        latencies.append(
            {
                **same,
                "messages": 61_204,
                "attempts": 70_312,
                "unanswered": 9108,
                "p50": 1.84,
                "p90": 28.2,
                "p99": 66.0,
                "p999": 171.3,
                "longest": 402.1,
                "longest_outage": 8112.0,
            }
        )
        for cause, attempts in (("read_timeout", 7021), ("connect_refused", 1790), ("http_503", 297)):
            failures.append({**same, "cause": cause, "attempts": attempts, "share": attempts / 9108})
    return {"advice": advice, "latencies": latencies, "failures": failures}


def sla_rows() -> dict[str, list[dict[str, Any]]]:
    """Two months of a target for each partner; in the newer one the first partner's is missed."""
    months = []
    for number, (name, key) in enumerate(AGREEMENTS.items()):
        same = {"agreement_id": key, "agreement": f"urn:tpa:acme-{name.split()[0].lower()}", "partner": name}
        for month, missed in ((2, 3), (1, 0)):
            late = missed * 40 if number == 0 else missed
            months.append(
                {
                    **same,
                    "target": SlaTarget.ACKNOWLEDGED.value,
                    "month": datetime(2026, month, 1, tzinfo=UTC),
                    "percent": 99.0,
                    "due": 10_000,
                    "met": 9_990 - late,
                    "missed": late,
                    "open": 10,
                    "attained": 100 * (9_990 - late) / 9_990,
                    "allowed": 100,
                    "used": float(late),
                }
            )
    return {"months": months}


def reconcile_rows() -> dict[str, list[dict[str, Any]]]:
    """Two million messages of which a handful differ."""
    summary = [
        {"direction": direction, "verdict": verdict.value, "messages": number}
        for direction, verdict, number in (
            ("out", Verdict.AGREED, 1_004_112),
            ("out", Verdict.LOST, 7),
            ("out", Verdict.DIFFERS, 2),
            ("out", Verdict.IN_DOUBT_ARRIVED, 1),
            ("in", Verdict.AGREED, 998_041),
            ("in", Verdict.UNKNOWN_HERE, 4),
            ("in", Verdict.DOUBLED, 3),
        )
    ]
    findings = []
    for one in summary:
        if one["verdict"] == Verdict.AGREED:
            continue
        for number in range(int(one["messages"])):
            ours = one["verdict"] != Verdict.UNKNOWN_HERE
            findings.append(
                {
                    "direction": one["direction"],
                    "verdict": one["verdict"],
                    "message_id": f"20260220-{number:05d}.{one['verdict']}@acme.example",
                    "pair": "ACME>GLOBEX" if one["direction"] == "out" else "GLOBEX>ACME",
                    "sequence_number": 44_000 + number,
                    "our_state": "delivered" if ours else "",
                    "our_at": LAST - timedelta(days=2, minutes=number) if ours else None,
                    "our_digest": "5e" * 32 if ours else "",
                    "our_copies": int(ours),
                    "their_digest": "" if one["verdict"] == Verdict.LOST else "9c" * 32,
                    "their_copies": 2 if one["verdict"] == Verdict.DOUBLED else int(one["verdict"] != Verdict.LOST),
                }
            )
    return {"summary": summary, "findings": findings}


def archive_rows() -> dict[str, list[dict[str, Any]]]:
    """Ten days."""
    return {
        "days": [
            {
                "day": (LAST - timedelta(days=number)).date(),
                "messages": 30_000 + 517 * number,
                "payloads": 41_000 + 517 * number,
                "bytes": 188_000_000 + number,
                "purged": 0 if number < 5 else 29_000,
                "held": 12 if number == 6 else 0,
                "differing": 0,
            }
            for number in range(10)
        ]
    }


def all_reports(agreements: Sequence[tuple[uuid.UUID, str, str]] = (), *, files: bool = True) -> dict[str, PipelineRun]:
    """Every report, published."""
    as_of = LAST + timedelta(days=1, hours=3, minutes=15)
    tables = {
        PipelineJob.AUDIT: audit_rows(),
        PipelineJob.RECONCILE: reconcile_rows(),
        PipelineJob.WINDOW: window_rows(),
        PipelineJob.TIMING: timing_rows(agreements),
        PipelineJob.LEVELS: level_rows(),
        PipelineJob.SLA: sla_rows(),
        PipelineJob.ARCHIVE: archive_rows(),
    }
    return {
        job.value: publish(job, rows, scope=PLOG if job == PipelineJob.RECONCILE else "", as_of=as_of, files=files)
        for job, rows in tables.items()
    }
