"""Copying finished messages to the archive: all of it, proved, and nothing before its time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.db import connection

from messaging import storage
from messaging.archive.services import archived, message_rows, restoring
from messaging.exceptions import WrongState
from messaging.models import (
    ArchiveDay,
    ArchivedMessage,
    ArchiveFile,
    Delivery,
    Event,
    Incident,
    Message,
    Payload,
    PipelineRun,
    Signal,
)
from messaging.pipeline import archive_copying, archive_file, archiving, driver
from messaging.pipeline.archive_copying import Pace, Tally, spark_verify
from messaging.report_choices import PipelineJob
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from tests.messaging.conftest import static_folder, woken  # noqa: F401
from tests.messaging.factories import submit
from tests.pipeline import archives
from tests.pipeline.archives import ARCHIVE, PURGE, Scene, T

DAY = timedelta(days=1)


@pytest.fixture
def scene(db: None, settings: Any, tmp_path: Path) -> Iterator[Scene]:
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1_000
    with clock.frozen(T) as frozen:
        archives.switch_on()
        yield Scene(frozen)


def files() -> list[Path]:
    return sorted(path for path in archived.root().rglob("*") if path.is_file())


def test_finished_messages_are_copied_once_they_are_old_enough(scene: Scene) -> None:
    found_by = {"invoice": "4711"}
    Message.objects.filter(pk=scene.received.pk).update(document_id="order-1", attributes=found_by)
    scene.move(29 * DAY)
    assert archives.archive().facts()["archived"] == 0
    scene.move(2 * DAY)
    tally = archives.archive()
    assert tally.facts()["archived"] == 3
    (row,) = tally.table().to_pylist()
    assert row == {
        "day": T.date(),
        "messages": 3,
        "payloads": 3,
        "bytes": sum(message.size for message in scene.all),
        "purged": 0,
        "held": 0,
        "differing": 0,
    }
    entry = ArchivedMessage.objects.get(pk=scene.received.pk)
    assert (entry.state, entry.message_id, entry.direction) == ("copied", "in-1@partner", "in")
    assert (entry.document_id, entry.identifies) == ("order-1", "order-1")
    assert entry.attributes == found_by
    assert set(ArchivedMessage.objects.exclude(pk=entry.pk).values_list("attributes", flat=True)) == {None}
    assert entry.completed_at == scene.received.completed_at
    assert entry.contents == [hashlib.sha256(b"y" * 4_000).hexdigest()]
    (path,) = files()
    file = ArchiveFile.objects.get()
    assert (path.stat().st_size, archived.sha256_of(path)) == (file.bytes, file.sha256)
    assert (file.messages, file.payloads, file.day) == (3, 3, T.date())
    assert file.verified_at == clock.now()
    assert Message.objects.count() == 3, "nothing has left the store"
    assert archives.archive().facts()["archived"] == 0, "a second run finds nothing to do"


def test_a_file_holds_every_column_of_every_row(scene: Scene) -> None:
    Message.objects.filter(pk=scene.received.pk).update(tx_sequence_id=2**64 - 1, previous_number=0)
    before = message_rows.read([scene.received.pk])[scene.received.pk]
    scene.move(ARCHIVE)
    archives.archive()
    entry = ArchivedMessage.objects.select_related("file").get(pk=scene.received.pk)
    (found,) = archive_file.read(archived.root() / entry.file.path, [entry.row])
    stored = before.parts["payloads"][0]
    assert stored["content"] is None, "a large payload lies in a file of the store"
    stored["content"] = b"y" * 4_000
    assert found.message == before.message
    assert found.parts == before.parts
    assert found.proof == before.proof == (entry.written, entry.entries)


def _waiting_delivery(scene: Scene) -> Message:
    Delivery.objects.filter(message=scene.received).update(state="in_doubt")
    return scene.received


def _failed_delivery(scene: Scene) -> Message:
    Delivery.objects.filter(message=scene.received).update(state="failed")
    return scene.received


def _owed_acknowledgement(scene: Scene) -> Message:
    Signal.objects.filter(about=scene.received).update(state="pending", due_at=clock.now())
    return scene.received


def _on_the_wire(scene: Scene) -> Message:
    scene.delivered.transmissions.update(outcome="on_the_wire")
    return scene.delivered


def _failed(scene: Scene) -> Message:
    Message.objects.filter(pk=scene.delivered.pk).update(state="failed")
    return scene.delivered


def _in_flight(scene: Scene) -> Message:
    pair = scene.partner.outbound
    pair.in_flight = scene.delivered
    pair.save()
    return scene.delivered


def _incident(scene: Scene) -> Message:
    Incident.objects.create(
        number=1, cause="late_ack", message=scene.delivered, opened_at=clock.now(), last_seen_at=clock.now()
    )
    return scene.delivered


@pytest.mark.parametrize(
    "opened",
    [_waiting_delivery, _failed_delivery, _owed_acknowledgement, _on_the_wire, _failed, _in_flight, _incident],
)
def test_what_is_open_is_not_copied_however_old(scene: Scene, opened: Any) -> None:
    message = opened(scene)
    scene.move(ARCHIVE)
    assert archives.archive().facts()["archived"] == 2
    assert not ArchivedMessage.objects.filter(pk=message.pk).exists()


def test_a_message_that_is_not_what_was_recorded_stays_and_opens_an_incident(scene: Scene) -> None:
    other = submit(scene.partner)
    Message.objects.filter(pk=other.pk).update(state="cancelled", due_at=None, completed_at=clock.now())
    Payload.objects.filter(message=other).update(content=b"<Tampered/>")
    (Path(storage.settings.RMHUB_STORE_DIR) / Payload.objects.get(message=scene.received).stored_as).unlink()
    Message.objects.filter(pk=scene.repeated.pk).update(wire_frame=storage.pack_frame((b"a", b"b")))
    scene.move(ARCHIVE)
    tally = archives.archive()
    assert (tally.facts()["archived"], tally.days[T.date()].differing) == (1, 3)
    assert list(ArchivedMessage.objects.values_list("pk", flat=True)) == [scene.delivered.pk]
    outbound, inbound = (
        Incident.objects.get(pair=pair, cause="archive_differs").detail
        for pair in (scene.partner.outbound, scene.partner.inbound)
    )
    assert other.public_id in outbound
    assert "payload 1 is not that of its SHA-256" in outbound
    assert f"{scene.repeated.message_id} ({scene.repeated.public_id}): the octets are not those" in outbound
    assert "is missing" in inbound
    archives.lake_has_all()
    scene.move(60 * DAY)
    archives.purge()
    assert set(Message.objects.values_list("pk", flat=True)) == {other.pk, scene.repeated.pk, scene.received.pk}


def test_a_copy_that_reads_back_differently_is_not_entered(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk has lost something between writing and reading."""
    add = archive_file.Files.add

    def damaging(self: archive_file.Files, one: message_rows.MessageRows) -> None:
        proof = one.proof
        if one.message["id"] == scene.received.pk:
            one.parts["payloads"][0]["content"] = b"z" + one.parts["payloads"][0]["content"][1:]
        if one.message["id"] == scene.repeated.pk:
            one.parts["events"].pop()
        add(self, one)
        if one.message["id"] == scene.repeated.pk:
            entries = self._open[T.date()].entries
            entries[-1] = archive_file.Entry(
                entries[-1].message, proof, entries[-1].contents, entries[-1].payload_bytes
            )

    monkeypatch.setattr(archive_file.Files, "add", damaging)
    scene.move(ARCHIVE)
    tally = archives.archive()
    assert (tally.facts()["archived"], tally.days[T.date()].differing) == (1, 2)
    assert "other rows" in Incident.objects.get(pair=scene.partner.outbound).detail
    assert "payload 1 is not that of its SHA-256" in Incident.objects.get(pair=scene.partner.inbound).detail
    assert ArchiveFile.objects.get().messages == 1


def test_what_changes_after_the_copy_is_copied_anew_before_it_may_leave(scene: Scene) -> None:
    """A late repeat: its count, its event and one more acknowledgement are in no copy yet."""
    scene.move(ARCHIVE)
    archives.archive()
    first = ArchivedMessage.objects.get(pk=scene.received.pk)
    scene.move(60 * DAY)
    scene.partner.send(scene.arrivals["in-1@partner"])
    scene.settle_down()
    archives.lake_has_all()
    tally = archives.purge()
    assert tally.kept == {"changed": 1}
    assert Message.objects.get().pk == scene.received.pk
    before = archives.rows_of(scene.received)
    archives.archive()
    archives.lake_has_all()
    assert archives.purge().facts()["purged"] == 1
    assert ArchivedMessage.objects.get(pk=scene.received.pk).file_id != first.file_id
    archives.restore(message=scene.received.pk)
    assert archives.rows_of(scene.received) == before


def test_files_are_written_in_bounded_portions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        scene.arrive(f"more-{number}@partner", content=bytes([number]) * 2_000)
    monkeypatch.setattr(archive_copying, "PORTION_MESSAGES", 3)
    monkeypatch.setattr(archive_file, "GROUP_BYTES", 3_000)
    scene.move(ARCHIVE)
    assert archives.archive().facts()["archived"] == 8
    assert [pq.ParquetFile(path).metadata.num_rows for path in files()] == [3, 3, 2]
    assert max(pq.ParquetFile(path).metadata.num_row_groups for path in files()) > 1
    for entry in ArchivedMessage.objects.select_related("file"):
        (found,) = archive_file.read(archived.root() / entry.file.path, [entry.row])
        assert found.message["id"] == entry.pk


def test_each_day_has_files_of_its_own(scene: Scene) -> None:
    scene.move(DAY)
    scene.arrive("next-day@partner")
    scene.move(ARCHIVE)
    archives.archive()
    days = {file.day: file.messages for file in ArchiveFile.objects.all()}
    assert days == {T.date(): 3, T.date() + DAY: 1}
    assert {path.parent.name for path in files()} == {f"day={day}" for day in days}


def test_files_of_an_older_hub_get_the_defaults_of_columns_that_came_later(scene: Scene) -> None:
    scene.move(ARCHIVE)
    archives.archive()
    (path,) = files()
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["remind_at", "copies"]), path)
    (found,) = archive_file.read(path, [0])
    assert "copies" not in found.message
    Payload.objects.filter(message=found.message["id"]).delete()
    Message.objects.filter(pk=found.message["id"]).delete()
    message_rows.insert(Message, [found.message])
    message = Message.objects.get(pk=found.message["id"])
    assert (message.copies, message.remind_at) == (0, None)


def test_two_runs_at_once_are_refused(scene: Scene) -> None:
    with archiving.alone(), pytest.raises(WrongState), _elsewhere():
        pass


def _elsewhere() -> Any:
    """`alone` as another process would call it: over a connection of its own."""
    import threading
    from contextlib import contextmanager

    @contextmanager
    def trying() -> Iterator[None]:
        raised: list[BaseException] = []

        def attempt() -> None:
            try:
                with archiving.alone():
                    pass
            except WrongState as error:
                raised.append(error)
            finally:
                connection.close()

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join(120)
        if raised:
            raise raised[0]
        yield

    return trying()


def test_the_pace_leaves_most_of_the_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    moments = iter([10.0, 12.0])
    monkeypatch.setattr(archive_copying.time, "monotonic", lambda: next(moments))
    with Pace(share=0.25, pause=paused.append).work():
        pass
    assert paused == [6.0]


@pytest.mark.spark
def test_the_runs_archive_purge_and_restore_as_the_pipeline_makes_them(
    transactional_db: None, spark: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for, claimed and executed: with the lake brought up to date, Spark, the report, and what the run says."""
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    monkeypatch.setattr(archive_copying, "SHARE", 1.0)
    with clock.frozen(T) as frozen:
        scene = Scene(frozen)
        several = scene.several()
        before = {one.pk: archives.rows_of(one) for one in (*scene.all, several)}
        scene.move(PURGE)
        assert _executed(PipelineJob.ARCHIVE).facts["enabled"] is False
        assert not ArchivedMessage.objects.exists(), "nothing happens before the policy is switched on"
        archives.switch_on()
        run = _executed(PipelineJob.ARCHIVE)
        assert (run.facts["archived"], run.facts["purged"], run.facts["kept"]) == (4, 4, {})
        row = ArchiveDay.objects.get(run=run)
        assert (row.day, row.messages, row.purged, row.differing) == (T.date(), 4, 4, 0)
        assert not Message.objects.exists()
        asked = restoring.restore_request(actor=archives.ANN, reason="look", message=several.pk)
        done = _executed(PipelineJob.RESTORE, asked)
        assert (done.facts["restored"], done.rows) == ([several.public_id], 1)
        assert archives.rows_of(several) == before[several.pk]
        assert _executed(PipelineJob.EXTRACT).facts is not None
        assert Event.objects.filter(message=several.pk).count() == len(before[several.pk]["messaging_event"])


def _executed(job: PipelineJob, run: PipelineRun | None = None) -> PipelineRun:
    run = run or pipeline_runs.run_request(job=job, actor=archives.ANN)
    claimed = pipeline_runs.claim_run(run.pk, worker="test")
    assert claimed is not None
    assert driver.execute(claimed), PipelineRun.objects.get(pk=run.pk).error_detail
    return PipelineRun.objects.get(pk=run.pk)


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_back_what_hashlib_reads_back(scene: Scene, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies with several payloads, without any frame, payloads encoded in the frame; and each kind of damage."""
    scene.several()
    cancelled = submit(scene.partner)
    Message.objects.filter(pk=cancelled.pk).update(state="cancelled", due_at=None, completed_at=clock.now())
    damaged = [scene.arrive(f"damaged-{number}@partner", content=b"d" * 3_000) for number in range(4)]
    scene.move(ARCHIVE)
    found: list[Any] = []
    verify = spark_verify(lambda: spark)

    def both(paths: Any) -> Any:
        _damage(paths[0], [one.pk for one in damaged])
        found.extend([verify(paths), archives.read_back(paths)])
        return found[0]

    tally = Tally()
    archive_copying.copy(None, archives.nothing, both, tally, archives.unhurried())
    assert found[0] == found[1]
    assert len(found[0][files()[0]]) == 9
    assert (tally.facts()["archived"], tally.days[T.date()].differing) == (5, 4)
    detail = Incident.objects.get(cause="archive_differs").detail
    for said in ("payload 1 is not", "other rows", "do not fit together", "octets of the copy"):
        assert said in detail


def _damage(path: Path, ids: list[Any]) -> None:
    rows = pq.read_table(path).to_pylist()
    payload, events, frame, octets = (next(row for row in rows if row["id"] == str(key)) for key in ids)
    payload["payloads"][0]["content"] = b"e" * 3_000
    events["events"].pop()
    literals = storage.unpack_frame(frame["wire_frame"])
    frame["wire_frame"] = storage.pack_frame([*literals, b"more"])
    first, *rest = storage.unpack_frame(octets["wire_frame"])
    octets["wire_frame"] = storage.pack_frame([first.swapcase(), *rest])
    pq.write_table(archive_file.pa.Table.from_pylist(rows, schema=archive_file.schema()), path)
