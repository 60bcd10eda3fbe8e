"""Reconciliation from end to end: our export, a partner's log with planted faults, what is published."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from django.core.management import call_command

from messaging import dispatch
from messaging.journal.audit import Actor
from messaging.models import Message, PartnerLog, Payload, PipelineRun, ReconciliationFinding, ReconciliationSummary
from messaging.profiles.repeatable import replies
from messaging.reports.selectors import pipeline
from messaging.reports.services import partner_logs
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from rmhub.ids import public_id
from tests.messaging.factories import PartnerSide, link, partner_side, submit
from tests.pipeline.traffic import EBXML, T, Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANA = Actor("ana", "console")
NAMES = {"message_id": "MsgId", "direction": "Way", "at": "LoggedAt", "digest": "Hash", "status": "Result"}
MAPPING = {**NAMES, "sent_values": ["TX"], "received_values": ["RX"]}
Row = dict[str, str]


@pytest.fixture
def hub(
    spark: SparkSession, settings: Any, monkeypatch: pytest.MonkeyPatch, static_folder: None
) -> Iterator[PartnerSide]:
    """A hub after some hours of traffic with the partner, and with another one."""
    from messaging.pipeline import session

    monkeypatch.setattr(dispatch, "wake", lambda task: None)
    monkeypatch.setattr(session, "get", lambda name="", *, rows: spark)
    monkeypatch.setattr(session, "current", lambda: spark)
    with clock.frozen(T) as time, ExitStack() as stack:
        stack.enter_context(mock.patch.object(replies, "jitter", lambda: 1.0))
        traffic = Traffic(time, stack.enter_context(link()), random.Random(7))
        partner, other = partner_side(**EBXML), partner_side(**EBXML)
        for _ in range(12):
            traffic.exchange(partner, 0.5)
            traffic.exchange(other, 0.5)
            traffic.pause(1800)
        traffic.suspended(partner)
        submit(partner)  # waits behind it, and never went out
        for number in range(12):
            traffic.arrive(partner, f"=in-{number}@partner", [2.0] if number == 3 else [])
            traffic.pause(1800)
    yield partner


@pytest.fixture
def static_folder(settings: Any) -> None:
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns when it is missing


def worked(run: PipelineRun) -> PipelineRun:
    """The run, after a pipeline process has worked on it."""
    from messaging.pipeline import driver

    claimed = pipeline_runs.claim_run(run.pk, worker="test")
    assert claimed is not None
    driver.execute(claimed)
    return PipelineRun.objects.get(pk=run.pk)


def lines_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def handed_in(partner: PartnerSide, rows: Sequence[Row], columns: dict[str, Any] = MAPPING) -> PartnerLog:
    """The partner's log in the partner's own form: semicolons, a byte order mark, their own names and words."""
    file = io.StringIO()
    writer = csv.DictWriter(file, ["Nr", *NAMES.values()], delimiter=";", lineterminator="\r\n")
    writer.writeheader()
    for number, row in enumerate(rows):
        named = {NAMES[name]: value for name, value in row.items() if name in NAMES}
        way = {"in": "TX", "out": "RX"}.get(row["direction"], row["direction"])
        writer.writerow({**named, "Nr": number, "Way": way})
    content = b"\xef\xbb\xbf" + file.getvalue().encode()
    return partner_logs.log_receive(
        party_id=partner.terms.partner_id, chunks=[content], filename="partner.csv", actor=ANA, columns=columns
    ).log


def compared(log: PartnerLog, **options: Any) -> tuple[PipelineRun, Counter[tuple[str, str]]]:
    """The run, and how many messages have which verdict."""
    run = worked(partner_logs.log_reconcile(log_id=log.pk, actor=ANA, **options))
    log.refresh_from_db()
    counted = ReconciliationSummary.objects.filter(run=run).values_list("direction", "verdict", "messages")
    return run, Counter({(direction, verdict): messages for direction, verdict, messages in counted})


@pytest.mark.spark
@pytest.mark.django_db(transaction=True)
def test_what_the_two_books_say(hub: PartnerSide, tmp_path: Path) -> None:
    said = io.StringIO()
    with mock.patch("messaging.pipeline.session.stop"):
        party = public_id("par", hub.terms.partner_id)
        call_command("pipeline", "export-log", party, "--into", str(tmp_path / "out"), stdout=said)
    run = PipelineRun.objects.get()
    assert (run.job, run.state, run.error) == ("export", "succeeded", "")
    ours = lines_of(pipeline.artifact(run, "log.csv"))
    assert lines_of(tmp_path / "out" / "log.csv") == ours and f"{len(ours)} rows, sha256" in said.getvalue()
    _the_export_is_the_store(hub, ours)
    whole = [{**row, "message_id": row["message_id"].removeprefix("'")} for row in ours]
    _our_own_export_mirrored_agrees(hub, pipeline.artifact(run, "log.parquet").read_bytes(), whole)
    _planted_faults_are_found_and_nothing_else(hub, whole)
    _digests_of_payloads_and_a_row_that_cannot_be_read(hub, whole)


def _the_export_is_the_store(hub: PartnerSide, ours: list[Row]) -> None:
    """The partner's messages that went out or came in, in the order of time; not the one that waits."""
    status = {"delivered": "acknowledged", "received": "received", "failed": "failed"}
    wanted = [
        {
            "message_id": f"'{message.message_id}" if message.direction == "in" else message.message_id,
            "direction": message.direction,
            "at": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
            "digest": message.digest,
            "status": status[message.state],
            "sequence_number": str(message.sequence_number),
        }
        for at, message in sorted(
            (message.first_sent_at or message.created_at, message)
            for message in Message.objects.filter(pair__partner=hub.terms.partner_id).exclude(
                direction="out", first_sent_at=None
            )
        )
    ]
    assert ours == wanted and len(ours) == 25
    assert [row["status"] for row in ours].count("failed") == 1


def _our_own_export_mirrored_agrees(hub: PartnerSide, parquet: bytes, ours: list[Row]) -> None:
    """What we write, a hub on the other side would write too: the same columns, seen from there."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(parquet))
    turned = pc.if_else(pc.equal(table["direction"], "out"), "in", "out")
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(1, "direction", turned), sink)
    log = partner_logs.log_receive(
        party_id=hub.terms.partner_id, chunks=[sink.getvalue().to_pybytes()], filename="theirs.parquet", actor=ANA
    ).log
    run, verdicts = compared(log)
    assert run.state == "succeeded", run.error
    # The message that their pair was suspended on is in both logs: it is undecided here, and arrived.
    assert sum(verdicts.values()) == len(ours) and verdicts["in", "agreed"] == 12
    assert ReconciliationFinding.objects.get(run=run).verdict == "in_doubt_arrived"
    assert (log.state, log.rows, log.error) == ("reconciled", 25, "")
    assert (run.range_from, run.range_to) == (log.range_from, log.range_to)
    assert log.range_from == min(datetime.fromisoformat(row["at"]) for row in ours)


def _planted_faults_are_found_and_nothing_else(hub: PartnerSide, ours: list[Row]) -> None:
    out = [row for row in ours if row["direction"] == "out" and row["status"] == "acknowledged"]
    came = [row for row in ours if row["direction"] == "in"]
    (stuck,) = [row for row in ours if row["status"] == "failed"]
    lost, doubled, tampered = out[5], came[6], came[8]
    ghost = {**came[7], "message_id": "ghost@partner"}
    timeless = {**came[7], "message_id": "timeless@partner", "at": ""}
    outside = {**came[7], "message_id": "next-month@partner", "at": "2026-04-20T00:00:00Z"}
    theirs = [row for row in [*out, *came] if row is not lost]
    theirs = [{**row, "digest": "0" * 64} if row is tampered else row for row in theirs]
    log = handed_in(hub, [*theirs, ghost, doubled, outside, timeless])
    day = T.replace(hour=0, minute=0, second=0, microsecond=0)
    run, verdicts = compared(log, covers=(day, day + timedelta(days=1)))
    assert run.state == "succeeded", run.error
    found = ReconciliationFinding.objects.filter(run=run)
    assert {(row.verdict, row.direction, row.message_id) for row in found} == {
        ("lost", "out", lost["message_id"]),
        ("doubled", "in", doubled["message_id"]),
        ("differs", "in", tampered["message_id"]),
        ("unknown_here", "in", "ghost@partner"),
        ("unknown_here", "in", "timeless@partner"),
        ("in_doubt", "out", stuck["message_id"]),
    }
    assert (verdicts["out", "agreed"], verdicts["in", "agreed"]) == (len(out) - 1, len(came) - 2)
    told = run.facts["log"]
    assert (told["rows"], told["unreadable"], told["sha256"]) == (len(theirs) + 4, 0, log.sha256)
    assert (run.scope, log.state) == (log.public_id, "reconciled")
    assert {entry["name"] for entry in run.artifacts} == {
        "summary.parquet",
        "findings.parquet",
        "partner-log.parquet",
    }


def _digests_of_payloads_and_a_row_that_cannot_be_read(hub: PartnerSide, ours: list[Row]) -> None:
    """A partner that keeps digests of documents, and not of what was on the wire; and with a slip of the pen."""
    of_payload = dict(Payload.objects.filter(number=1).values_list("message__message_id", "sha256"))
    rows = [{**row, "digest": of_payload[row["message_id"]]} for row in ours if row["status"] != "failed"]
    rows[4]["direction"] = "sideways"
    log = handed_in(hub, rows, {**MAPPING, "digest_of": "payload"})
    run, _ = compared(log)
    assert (run.state, log.state) == ("failed", "failed")
    sentence = "1 of 24 rows cannot be read: row 6: the direction “sideways” means neither sent nor received."
    assert run.error == log.error == f"{sentence} Fix them, or compare without them."
    assert not ReconciliationSummary.objects.filter(run=run).exists()
    run, verdicts = compared(log, skip_unreadable=True)
    assert (run.state, log.state, log.error) == ("succeeded", "reconciled", "")
    assert verdicts["out", "agreed"] + verdicts["in", "agreed"] == 23
    assert json.dumps(run.facts["log"]["errors"]).count("sideways") == 1 and run.facts["log"]["unreadable"] == 1


def test_a_log_without_times_needs_a_range() -> None:
    from messaging.pipeline.partner_logs import Normalised, UnreadableLog
    from messaging.pipeline.reconciling import covered

    log = PartnerLog()
    with pytest.raises(UnreadableLog, match="say from when to when"):
        covered(log, Normalised(rows=1))
    log.range_from, log.range_to = T, T + timedelta(days=1)
    assert covered(log, Normalised(rows=1)) == (log.range_from, log.range_to)
    log.range_to = None
    with pytest.raises(UnreadableLog, match="do not meet"):
        covered(log, Normalised(rows=1, first_at=T - timedelta(2), last_at=T - timedelta(1)))
