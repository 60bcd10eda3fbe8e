"""Restoring from the archive: a message or a conversation, as it was, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from messaging.archive.services import archived, message_rows, restoring
from messaging.engine import preparing
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.models import (
    ArchivedMessage,
    ArchiveFile,
    AuditEntry,
    Event,
    Message,
    MessageIdentity,
    Payload,
    PipelineRun,
    Signal,
)
from messaging.notifications import selectors as events
from messaging.pipeline import archiving as reading
from messaging.pipeline import manifest
from messaging.pipeline.schemas import ENTITIES
from rmhub import clock
from tests.messaging.conftest import static_folder, woken  # noqa: F401
from tests.messaging.factories import submit
from tests.pipeline import archives, lakes
from tests.pipeline.archives import ANN, PURGE, WHY, Scene, T

DAY = timedelta(days=1)


@pytest.fixture
def scene(db: None, settings: Any, tmp_path: Path) -> Iterator[Scene]:
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1_000
    with clock.frozen(T) as frozen:
        archives.switch_on()
        yield Scene(frozen)


def body(message: Message) -> bytes:
    found = Message.objects.get(pk=message.pk)
    return preparing.stored_body(found, list(Payload.objects.filter(message=found).order_by("number")))


def test_a_restored_message_is_what_it_was_in_every_column_of_every_row(scene: Scene) -> None:
    messages = [*scene.all, scene.several()]
    before = {one.pk: (archives.rows_of(one), body(one)) for one in messages}
    scene.move(PURGE)
    archives.gone(*messages)
    assert all(not any(archives.rows_of(one).values()) for one in messages)
    for one in messages:
        result = archives.restore(message=one.pk)
        assert (result.restored, result.notes) == ([one.pk], [])
        assert (archives.rows_of(one), body(one)) == before[one.pk]
        assert archives.state(one) == "restored"
    entry = ArchivedMessage.objects.get(pk=scene.received.pk)
    assert (entry.restored_by, entry.restored_at, entry.purged_at) == ("ann", clock.now(), None)
    audited = AuditEntry.objects.filter(verb="archive.restore", object_id=scene.received.public_id).get()
    assert (audited.actor, audited.reason) == ("ann", WHY)
    assert audited.after["run"] == PipelineRun.objects.get(scope=scene.received.public_id).public_id


def test_a_conversation_comes_back_whole(scene: Scene) -> None:
    ours = scene.exchange(b"<A/>", conversation_id="c-1")
    theirs = scene.arrive("c-1-answer@partner", conversation_id="c-1", ref_to_message_id=ours.message_id)
    scene.move(PURGE)
    archives.gone(*scene.all, ours, theirs)
    result = archives.restore(conversation_id="c-1")
    assert result.restored == [ours.pk, theirs.pk]
    assert set(Message.objects.values_list("pk", flat=True)) == {ours.pk, theirs.pk}


@pytest.mark.django_db(transaction=True)  # the feed shows what is committed
def test_the_feed_and_the_lake_do_not_take_a_restored_message_for_a_new_one(scene: Scene) -> None:
    scene.move(PURGE)
    archives.gone(*scene.all)
    seen = events.latest()
    before = ArchivedMessage.objects.get(pk=scene.received.pk)
    archives.restore(message=scene.received.pk)
    assert events.feed(after=seen, limit=100).events == []
    assert message_rows.proofs([scene.received.pk])[scene.received.pk] == (before.written, before.entries)


def test_restoring_twice_is_harmless(scene: Scene) -> None:
    before = archives.rows_of(scene.delivered)
    scene.move(PURGE)
    archives.gone(*scene.all)
    run = restoring.restore_request(actor=ANN, reason=WHY, message=scene.delivered.pk)
    wanted = restoring.wanted(run)
    with pytest.raises(WrongState):
        restoring.restore_request(actor=ANN, reason=WHY, message=scene.delivered.pk)
    assert reading.restore(wanted, by="ann").restored == [scene.delivered.pk]
    again = reading.restore(wanted, by="bob")
    assert (again.restored, again.in_store) == ([], [scene.delivered.pk])
    assert restoring.wanted(run) == []
    assert archives.rows_of(scene.delivered) == before
    assert ArchivedMessage.objects.get(pk=scene.delivered.pk).restored_by == "ann"
    with pytest.raises(WrongState, match="nothing to restore"):
        restoring.restore_request(actor=ANN, reason=WHY, message=scene.delivered.pk)


def test_a_restored_message_stays_as_long_as_the_policy_keeps_one_that_ended_that_day(scene: Scene) -> None:
    scene.move(PURGE)
    archives.gone(*scene.all)
    archives.restore(message=scene.delivered.pk)
    scene.move(89 * DAY)
    assert archives.purge().facts()["purged"] == 0
    scene.move(2 * DAY)
    assert archives.purge().facts()["purged"] == 1
    assert archives.state(scene.delivered) == "archived"
    archives.restore(message=scene.delivered.pk)
    assert Message.objects.get() == scene.delivered


def test_what_happens_to_a_restored_message_is_archived_with_it(scene: Scene) -> None:
    scene.move(PURGE)
    archives.gone(*scene.all)
    archives.restore(message=scene.received.pk)
    scene.partner.send(scene.arrivals["in-1@partner"])
    scene.settle_down()
    assert Message.objects.get().copies == 1
    before = archives.rows_of(scene.received)
    scene.move(PURGE)
    archives.lake_has_all()
    assert archives.purge().kept == {"changed": 1}
    archives.archive()
    assert archives.state(scene.received) == "restored"
    archives.lake_has_all()
    assert archives.purge().facts()["purged"] == 1
    archives.restore(message=scene.received.pk)
    assert archives.rows_of(scene.received) == before


def test_the_acknowledgement_that_was_made_for_a_late_repeat_gives_way(scene: Scene) -> None:
    """A message has one of ours: the one that it had."""
    before = archives.rows_of(scene.received)
    scene.move(PURGE)
    archives.gone(*scene.all)
    scene.partner.send(scene.arrivals["in-1@partner"])
    (late,) = Signal.objects.all()
    archives.restore(message=scene.received.pk)
    late.refresh_from_db()
    assert (late.about_id, late.state) == (None, "pending"), "and goes out all the same"
    assert scene.settle_down()
    after = archives.rows_of(scene.received)
    assert after["messaging_event"][:-1] == before["messaging_event"], "the late repeat is in its history now"
    assert {**after, "messaging_event": []} == {**before, "messaging_event": []}


def test_an_idempotency_key_that_was_given_again_stays_with_the_later_submission(scene: Scene) -> None:
    message = scene.several()
    scene.move(PURGE)
    archives.gone(message)
    later = scene.several()
    assert later.pk != message.pk, "a key ends with the purge"
    result = archives.restore(message=message.pk)
    assert "Idempotency-Key 'k-1'" in result.notes[0]
    assert Message.objects.get(pk=message.pk).idempotency_key == ""
    assert Message.objects.get(pk=later.pk).idempotency_key == "k-1"


def test_numbers_of_another_server_are_not_taken_for_news(scene: Scene) -> None:
    """The database was restored elsewhere from an older backup: counts of transactions and rows began lower."""
    scene.move(PURGE)
    archives.gone(*scene.all)
    entry = ArchivedMessage.objects.select_related("file").get(pk=scene.received.pk)
    (found,) = reading.archive_file.read(archived.root() / entry.file.path, [entry.row])
    for row in (found.message, *found.parts["events"]):
        row["xid"] += 1_000_000_000
    for number, row in enumerate(found.parts["events"]):
        row["id"] = 10_000_000 + number
    taken = Event.objects.create(at=clock.now(), type="pair.paused")
    found.parts["events"][0]["id"] = taken.pk
    restoring.restore([found], by="ann")
    history = list(Event.objects.filter(message=scene.received.pk).order_by("id"))
    assert [event.type for event in history] == [row["type"] for row in found.parts["events"]]
    assert {event.xid for event in history} == {0}
    newer = Event.objects.create(at=clock.now(), type="pair.released")
    assert newer.pk > history[-1].pk, "the numbers go on behind them"


def test_a_damaged_file_is_told_and_restores_nothing(scene: Scene) -> None:
    scene.move(PURGE)
    archives.gone(*scene.all)
    path = archived.root() / ArchiveFile.objects.get().path
    octets = path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(octets[: len(octets) // 2])):
        damage()
        with pytest.raises(WrongState, match="Bring it back from the backup"):
            archives.restore(message=scene.received.pk)
        PipelineRun.objects.update(state="failed", due_at=None)
    assert not Message.objects.exists()
    path.write_bytes(octets)
    assert archives.restore(message=scene.received.pk).restored == [scene.received.pk]


def test_one_that_cannot_be_written_leaves_nothing_behind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.move(PURGE)
    archives.gone(*scene.all)

    class Dead(BaseException):
        pass

    insert = message_rows.insert

    def dies(model: Any, rows: Any, **named: Any) -> None:
        insert(model, rows, **named)
        if model is Signal:
            raise Dead

    monkeypatch.setattr(message_rows, "insert", dies)
    with pytest.raises(Dead):
        archives.restore(message=scene.received.pk)
    monkeypatch.undo()
    assert not any(archives.rows_of(scene.received).values())
    assert archives.state(scene.received) == "archived"


def test_large_conversations_come_back_in_portions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [scene.arrive(f"many-{number}@partner", conversation_id="many") for number in range(5)]
    before = [archives.rows_of(one) for one in messages]
    scene.move(PURGE)
    archives.gone(*messages)
    monkeypatch.setattr(reading, "MOST_MESSAGES", 2)
    assert archives.restore(conversation_id="many").restored == [one.pk for one in messages]
    assert [archives.rows_of(one) for one in messages] == before


def test_what_cannot_be_asked_for(scene: Scene) -> None:
    scene.move(PURGE)
    archives.archive()
    ask = restoring.restore_request
    with pytest.raises(InvalidSubmission, match="Say why"):
        ask(actor=ANN, reason="", message=scene.received.pk)
    with pytest.raises(InvalidSubmission, match="either a message or a conversation"):
        ask(actor=ANN, reason=WHY)
    with pytest.raises(InvalidSubmission, match="either a message or a conversation"):
        ask(actor=ANN, reason=WHY, message=scene.received.pk, conversation_id="c")
    with pytest.raises(NotFound):
        ask(actor=ANN, reason=WHY, message=submit(scene.partner).pk)
    with pytest.raises(NotFound):
        ask(actor=ANN, reason=WHY, conversation_id="nobody's")
    with pytest.raises(WrongState, match="is in the store"):
        ask(actor=ANN, reason=WHY, message=scene.received.pk)
    assert not PipelineRun.objects.filter(job="restore").exists()


def test_the_memory_of_ids_is_the_same_before_and_after(scene: Scene) -> None:
    def memory() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_jsonb(t)::text FROM messaging_messageidentity t ORDER BY id")
            return cursor.fetchall()

    before = memory()
    scene.move(PURGE)
    archives.gone(*scene.all)
    assert memory() == before
    archives.restore(message=scene.received.pk)
    assert memory() == before
    assert MessageIdentity.objects.get(message_id="in-1@partner").stored_id == scene.received.pk


@pytest.mark.django_db(transaction=True)
def test_what_was_purged_before_the_lake_began_again_is_in_the_lake_once_it_is_restored(
    settings: Any, tmp_path: Path
) -> None:
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    with clock.frozen(T) as frozen:
        archives.switch_on()
        scene = Scene(frozen)
        lakes.run()
        scene.move(PURGE)
        archives.gone(*scene.all)
        scene.move(PURGE + DAY)
        manifest.begin_again()
        lakes.run()
        assert str(scene.received.pk) not in lakes.lake(ENTITIES["messages"])
        archives.restore(message=scene.received.pk)
        lakes.run()
        assert str(scene.received.pk) in lakes.lake(ENTITIES["messages"])
