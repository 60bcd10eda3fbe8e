"""Purging: only what the archive has, the policy lets go and nobody needs; a death between two steps is harmless."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from messaging import storage
from messaging.archive.services import archived, holds, message_rows, purging
from messaging.deliveries.services import handing_over, settling
from messaging.models import (
    ArchivedMessage,
    ArchiveFile,
    AuditEntry,
    Delivery,
    Event,
    Incident,
    Join,
    LakeState,
    Message,
    MessageIdentity,
    Payload,
    Signal,
    Transmission,
)
from messaging.pairs.services import operating
from messaging.pipeline import archive_file
from messaging.protocol.envelope import MessageType
from rmhub import clock
from tests.messaging.conftest import static_folder, woken  # noqa: F401
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import ORDER, decoded, link, submit, work
from tests.messaging.profiles.repeatable.callers import brief, caller
from tests.messaging.profiles.repeatable.test_x01_same_id_by_ebxml import both
from tests.pipeline import archives
from tests.pipeline.archives import ANN, PURGE, WHY, Scene, T

DAY = timedelta(days=1)


def _scene(settings: Any, tmp_path: Path) -> Iterator[Scene]:
    settings.RMHUB_ARCHIVE_DIR = tmp_path / "archive"
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1_000
    with clock.frozen(T) as frozen:
        archives.switch_on()
        yield Scene(frozen)


@pytest.fixture
def scene(db: None, settings: Any, tmp_path: Path) -> Iterator[Scene]:
    yield from _scene(settings, tmp_path)


@pytest.fixture
def committed(transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Scene]:
    """The same, in a database in which several connections see each other's commits."""
    yield from _scene(settings, tmp_path)


def payload_files() -> set[str]:
    root = Path(storage.settings.RMHUB_STORE_DIR)
    return {f"{path.parent.name}/{path.name}" for path in root.glob("??/*")}


def grown_old() -> None:
    """Nobody has wanted the payload files for a long time."""
    for name in payload_files():
        os.utime(Path(storage.settings.RMHUB_STORE_DIR) / name, (1, 1))


def in_store(*tables: type[Any]) -> list[int]:
    return [table.objects.count() for table in tables]


# --- what may go, and what goes with it ---


def test_what_is_old_enough_leaves_with_all_that_belongs_to_it(scene: Scene) -> None:
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    grown_old()
    tally = archives.purge()
    assert tally.facts()["purged"] == tally.days[T.date()].purged == 3
    assert in_store(Message, Payload, Transmission, Signal, Delivery, Event) == [0] * 6
    assert set(ArchivedMessage.objects.values_list("state", "purged_at")) == {("archived", clock.now())}
    assert payload_files() == set()
    assert MessageIdentity.objects.count() == 3, "the memory of ids stays"


def test_what_is_too_young_stays(scene: Scene) -> None:
    scene.move(89 * DAY)
    archives.archive()
    archives.lake_has_all()
    assert archives.purge().facts()["purged"] == 0
    scene.move(2 * DAY)
    archives.switch_on(purge_after=120)
    assert archives.purge().facts()["purged"] == 0, "the policy is asked again"


def test_nothing_leaves_that_is_not_in_the_archive(scene: Scene) -> None:
    scene.move(PURGE)
    archives.lake_has_all()
    assert purging.purge([one.pk for one in scene.all]).kept == {"not archived": 3}
    assert Message.objects.count() == 3


def test_nothing_leaves_before_the_lake_has_it(scene: Scene) -> None:
    scene.move(PURGE)
    archives.archive()
    assert archives.purge().kept == {"not in the lake": 3}
    archives.lake_has_all()
    through = LakeState.objects.get().extracted_through
    newest = max(ArchivedMessage.objects.values_list("written", flat=True))
    LakeState.objects.update(extracted_through=newest)
    assert archives.purge().kept == {"not in the lake": 3}, "the transaction itself is not in"
    LakeState.objects.update(extracted_through=through, source="another server/1")
    assert archives.purge().kept == {"not in the lake": 3}, "another server's numbers mean nothing here"


def test_nothing_leaves_whose_file_is_missing_or_was_changed(scene: Scene) -> None:
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    (path,) = archived.root().rglob("*.parquet")
    octets = path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(octets[:-1] + b"!")):
        damage()
        assert archives.purge().kept == {"archive damaged": 3}
    incident = Incident.objects.get(cause="archive_damaged")
    assert (incident.occurrences, path.name in incident.detail) == (2, True)
    path.write_bytes(octets)
    assert archives.purge().facts()["purged"] == 3


@pytest.mark.parametrize("what", ["partner", "own", "pair", "conversation", "message", "time"])
def test_a_hold_keeps_what_it_covers_until_it_is_released(scene: Scene, what: str) -> None:
    other = scene.exchange(b"<Other/>")
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    message, pair = scene.received, scene.partner.inbound
    criteria: dict[str, Any] = {
        "partner": {"party_id": pair.partner_id},
        "own": {"party_id": pair.own_party_id},
        "pair": {"pair_id": pair.pk},
        "conversation": {"conversation_id": message.conversation_id},
        "message": {"message_id": message.message_id},
        "time": {"range_from": message.created_at, "range_to": message.created_at + timedelta(seconds=1)},
    }
    hold = holds.hold_place(name="Case 7", actor=ANN, reason=WHY, **criteria[what])
    covered = 4 if what in ("partner", "own") else 1
    tally = archives.purge()
    assert (tally.days[T.date()].purged, tally.days[T.date()].held) == (4 - covered, covered)
    assert tally.kept == {"held": covered}
    assert Message.objects.filter(pk=message.pk).exists()
    assert Message.objects.filter(pk=other.pk).exists() == (covered == 4)
    holds.hold_release(hold_id=hold.pk, actor=ANN, reason="the case is closed")
    tally = archives.purge()
    assert (tally.facts()["purged"], tally.kept) == (covered, {})
    verbs = list(AuditEntry.objects.filter(object_type="legalhold").order_by("id").values_list("verb", flat=True))
    assert verbs == ["hold.place", "hold.release"]


def test_a_hold_that_is_placed_while_a_purge_is_under_way_waits_and_then_holds(committed: Scene) -> None:
    """The purge has looked at the holds, and deletes; after that the hold is placed, and the next purge sees it."""
    scene = committed
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    placed = threading.Event()

    def place() -> None:
        try:
            holds.hold_place(name="Case 8", actor=ANN, reason=WHY, pair_id=scene.partner.outbound.pk)
            placed.set()
        finally:
            connection.close()

    thread = threading.Thread(target=place)
    with transaction.atomic():
        holds.wait_for_none()
        thread.start()
        assert not placed.wait(0.3)
    thread.join(120)
    assert placed.is_set()
    assert archives.purge().kept == {"held": 2}


def test_what_opened_again_after_the_copy_stays(scene: Scene) -> None:
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    Incident.objects.create(
        number=1, cause="late_ack", message=scene.delivered, opened_at=clock.now(), last_seen_at=clock.now()
    )
    assert archives.purge().kept == {"open": 1}
    assert Message.objects.get() == scene.delivered
    Incident.objects.update(state="resolved")
    assert archives.purge().facts()["purged"] == 1


def test_rows_that_somebody_else_has_locked_are_passed_over(committed: Scene) -> None:
    scene = committed
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    locked, done = threading.Event(), threading.Event()

    def hold_rows() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT FROM messaging_message WHERE id = %s FOR UPDATE", [scene.delivered.pk])
                cursor.execute("SELECT FROM messaging_signal WHERE about_id = %s FOR UPDATE", [scene.received.pk])
                locked.set()
                assert done.wait(120)
        finally:
            connection.close()

    thread = threading.Thread(target=hold_rows)
    thread.start()
    assert locked.wait(120)
    tally = archives.purge()
    done.set()
    thread.join(120)
    assert (tally.facts()["purged"], tally.kept) == (1, {"locked": 2})
    assert archives.purge().facts()["purged"] == 2


def test_an_answer_that_comes_in_the_very_moment_of_the_purge_is_not_lost(
    committed: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the pair's lock and not the message's, so it can be committed between the look and the deletion."""
    scene = committed
    message = submit(scene.partner)
    with link() as wire:
        work()
        parcel = wire.last
        scene.partner.send(scene.partner.acknowledgement(parcel))
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    look = archived.unfinished

    def looked(ids: Any) -> Any:
        found = look(ids)
        if Signal.objects.filter(about=message).count() != 2:
            thread = threading.Thread(target=answer)
            thread.start()
            thread.join(120)
        return found

    def answer() -> None:
        try:
            scene.partner.send(scene.partner.acknowledgement(parcel))
        finally:
            connection.close()

    monkeypatch.setattr(archived, "unfinished", looked)
    assert archives.purge().facts()["purged"] == 0
    assert Signal.objects.filter(about=message).count() == 2
    monkeypatch.undo()
    assert archives.purge().kept == {"changed": 1}
    archives.archive()
    archives.lake_has_all()
    archives.purge()
    archives.restore(message=message.pk)
    assert Signal.objects.filter(about=message).count() == 2


# --- what refers to it ---


def test_a_late_repeat_of_a_purged_message_is_discarded_and_acknowledged(scene: Scene) -> None:
    """ebXML: the id is remembered, and the acknowledgement is made again, once."""
    scene.move(PURGE)
    archives.gone(scene.received)
    for copies in (1, 2):
        assert scene.partner.send(scene.arrivals["in-1@partner"]) == 204
        (parcel,) = scene.settle_down()
        answer = decoded(parcel)
        assert (answer.message_type, answer.ref_to_message_id) == (MessageType.ACKNOWLEDGEMENT, "in-1@partner")
        assert Signal.objects.filter(about=scene.received.pk).count() == 1
        assert Event.objects.filter(type="message.duplicate", message=scene.received.pk).count() == copies
    assert not Message.objects.exists()
    assert Delivery.objects.count() == 0
    assert not Incident.objects.exists()
    changed = scene.partner.message(1, "in-1@partner", content=b"<Other/>")
    assert scene.partner.send(changed) == 204
    assert Incident.objects.get().cause == "same_id_other_content", "the digest is remembered with the id"


def test_what_late_repeats_leave_behind_goes_in_its_time(scene: Scene) -> None:
    scene.move(PURGE)
    archives.gone(scene.received)
    scene.partner.send(scene.arrivals["in-1@partner"])
    scene.settle_down()
    archives.lake_has_all()
    archives.purge()
    assert in_store(Signal, Transmission) == [1, 1], "too young"
    scene.move(PURGE)
    LakeState.objects.update(extracted_through=0)
    archives.purge()
    assert in_store(Signal, Transmission) == [1, 1], "not in the lake"
    archives.lake_has_all()
    archives.purge()
    assert in_store(Signal, Transmission, Event) == [0, 0, 0]


def test_a_late_repeat_of_a_purged_request_gets_the_same_answer(scene: Scene) -> None:
    requests = caller(memory_window=200 * 86_400)
    first = requests.post("order-1", clock.now())
    scene.settle_down()
    sent = clock.now()
    scene.move(PURGE)
    archives.gone(Message.objects.get(message_id="order-1"))
    again = requests.post("order-1", sent)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert brief(requests.post("order-1", sent, body=b"<Other/>"))[2] == "content-differs"
    assert not Message.objects.filter(message_id="order-1").exists()


def test_both_roads_know_a_purged_message_by_its_content(scene: Scene) -> None:
    partner = both(memory_window=400 * 86_400)
    sent = clock.now()
    assert brief(partner.http.post("by-http", sent)) == (202, "accepted", "")
    assert partner.ebxml.send(partner.ebxml.message(1, "by-ebxml")) == 204
    scene.settle_down()
    scene.move(PURGE)
    archives.gone(*Message.objects.filter(message_id__startswith="by-"))
    assert partner.ebxml.send(partner.ebxml.message(2, "by-http", content=ORDER)) == 204
    assert brief(partner.http.post("by-ebxml", sent)) == (202, "accepted", "")
    assert not Incident.objects.exists()
    assert brief(partner.http.post("by-ebxml-2", sent)) == (202, "accepted", ""), "others are taken as ever"
    assert Message.objects.filter(message_id__startswith="by-").count() == 1


def test_an_incident_and_a_pair_keep_their_names_of_a_purged_message(scene: Scene) -> None:
    incident = Incident.objects.create(
        number=1,
        cause="late_ack",
        state="resolved",
        pair=scene.partner.outbound,
        message=scene.delivered,
        opened_at=clock.now(),
        last_seen_at=clock.now(),
    )
    scene.move(PURGE)
    archives.gone(scene.delivered)
    incident.refresh_from_db()
    assert incident.message_id == scene.delivered.pk
    assert scene.partner.outbound.last_message_id == ""
    scene.partner.outbound.full_clean(exclude=["in_flight"])


def test_messages_of_one_join_leave_together_or_not_at_all(scene: Scene) -> None:
    Delivery.objects.all().delete()
    make_trigger(
        kind="callable",
        callable_name="archives.erp",
        documents=[{"service": "urn:orders", "action": one} for one in "AB"],
        join_type="all",
        join_timeout=3_600,
    )
    a = scene.arrive("a@partner", action="A", conversation_id="c1")
    b = scene.arrive("b@partner", action="B", conversation_id="c1")
    assert Join.objects.get().state == "fired"
    before = archives.rows_of(a), archives.rows_of(b)
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    hold = holds.hold_place(name="one of them", actor=ANN, reason=WHY, message_id="a@partner")
    tally = archives.purge()
    assert tally.kept == {"held": 1, "together": 1}
    assert set(Message.objects.values_list("message_id", flat=True)) == {"a@partner", "b@partner"}
    holds.hold_release(hold_id=hold.pk, actor=ANN, reason=WHY)
    assert archives.purge().facts()["purged"] == 2
    assert in_store(Message, Delivery, Join) == [0, 0, 0]
    archives.restore(message=b.pk)
    assert archives.rows_of(b) == before[1], "with its join, though the other document is still away"
    archives.restore(message=a.pk)
    assert (archives.rows_of(a), archives.rows_of(b)) == before
    assert len(handing_over.parts(Join.objects.get().pk)) == 2


def test_a_delivery_leaves_with_its_resubmission(scene: Scene) -> None:
    delivery = Delivery.objects.get(message=scene.received, state="completed")
    Delivery.objects.filter(pk=delivery.pk).update(state="failed")
    settling.delivery_settle(
        delivery_id=delivery.pk, decision="resubmit", actor=ANN, reason="It is not in their system"
    )
    scene.move(PURGE)
    archives.archive()
    assert not ArchivedMessage.objects.filter(pk=scene.received.pk).exists(), "it waits for the application"
    deliver()
    before = archives.rows_of(scene.received)
    assert len(before["messaging_delivery"]) == 2
    archives.gone(scene.received)
    archives.restore(message=scene.received.pk)
    assert archives.rows_of(scene.received) == before


def test_old_events_of_pairs_and_incidents_go_too(scene: Scene) -> None:
    operating.pair_pause(pair_id=scene.partner.outbound.pk, actor=ANN, reason=WHY)
    operating.pair_release(pair_id=scene.partner.outbound.pk, actor=ANN, reason=WHY)
    kept = submit(scene.partner)
    scene.move(PURGE)
    operating.pair_pause(pair_id=scene.partner.outbound.pk, actor=ANN, reason=WHY)
    hold = holds.hold_place(name="pair", actor=ANN, reason=WHY, pair_id=scene.partner.outbound.pk)
    archives.gone(scene.received)
    assert Event.objects.filter(message=None).count() == 3
    holds.hold_release(hold_id=hold.pk, actor=ANN, reason=WHY)
    archives.purge()
    (event,) = Event.objects.filter(message=None)
    assert (event.type, event.at) == ("pair.paused", clock.now())
    assert Event.objects.filter(message=kept).exists(), "those of messages that are in the store stay"


# --- payload files ---


def test_a_payload_file_stays_as_long_as_any_payload_names_it(scene: Scene) -> None:
    young = scene.arrive("same-octets@partner", content=b"y" * 4_000)
    Message.objects.filter(pk=young.pk).update(state="failed")
    scene.move(PURGE)
    archives.archive()
    archives.lake_has_all()
    grown_old()
    archives.purge()
    assert payload_files() == {Payload.objects.get(message=young).stored_as}
    assert storage.load(None, Payload.objects.get(message=young).stored_as) == b"y" * 4_000


def test_bytes_that_are_kept_again_while_their_file_is_about_to_go_stay(scene: Scene) -> None:
    """Its row is not committed yet, so nobody can see that the file is wanted."""
    scene.move(PURGE)
    name = Payload.objects.get(message=scene.received).stored_as
    grown_old()
    kept = storage.keep(b"y" * 4_000)
    assert kept.stored_as == name
    archives.gone(scene.received)
    assert name in payload_files()
    os.utime(Path(storage.settings.RMHUB_STORE_DIR) / name, (1, 1))
    archives.purge()
    assert name not in payload_files(), "a row never came: swept in its time"


def test_of_keeping_and_removing_at_once_the_bytes_survive(scene: Scene) -> None:
    name = storage.keep(b"k" * 2_000).stored_as
    path = Path(storage.settings.RMHUB_STORE_DIR) / name
    os.utime(path, (1, 1))
    asked, kept = threading.Event(), threading.Event()

    def is_named() -> bool:
        asked.set()
        assert not kept.wait(0.3), "whoever keeps waits for whoever removes"
        return False

    def keep() -> None:
        assert asked.wait(120)
        storage.keep(b"k" * 2_000)
        kept.set()

    thread = threading.Thread(target=keep)
    thread.start()
    assert storage.remove(name, is_named)
    thread.join(120)
    assert path.read_bytes() == b"k" * 2_000


def test_files_that_no_row_names_are_swept(scene: Scene) -> None:
    storage.keep(b"o" * 2_000)
    root = Path(storage.settings.RMHUB_STORE_DIR)
    half = root / "ab" / ".incoming-half"
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"")
    named = {payload.stored_as for payload in Payload.objects.exclude(stored_as="")}
    assert list(purging.sweep_files()) == [0] * len(list(root.glob("??"))), "too young"
    grown_old()
    os.utime(half, (1, 1))
    assert sum(purging.sweep_files()) == 2
    assert payload_files() == named


# --- the end of the archive itself ---


def test_files_of_the_archive_end_when_the_policy_says_so(scene: Scene) -> None:
    archives.switch_on(keep_archive=365)
    scene.move(PURGE)
    archives.gone(*scene.all)
    file = ArchiveFile.objects.get()
    scene.move(200 * DAY)
    archives.restore(message=scene.delivered.pk)
    scene.move(80 * DAY)
    assert archives.purge().expired == 0, "one of its messages is in the store"
    scene.move(20 * DAY)
    hold = holds.hold_place(name="Case 9", actor=ANN, reason=WHY, message_id=scene.received.message_id)
    archives.lake_has_all()
    tally = archives.purge()
    assert (tally.facts()["purged"], tally.expired) == (1, 0), "and one is held"
    holds.hold_release(hold_id=hold.pk, actor=ANN, reason=WHY)
    assert archives.purge().expired == 1
    assert in_store(ArchiveFile, ArchivedMessage) == [0, 0]
    assert not (archived.root() / file.path).exists()
    entry = AuditEntry.objects.get(verb="archive.expire")
    assert (entry.actor, entry.object_name, entry.after["messages"]) == ("system", file.path, 3)
    assert scene.partner.send(scene.arrivals["in-1@partner"]) == 204
    assert not Message.objects.exists(), "the id is remembered all the same"


# --- deaths ---


class Killed(BaseException):
    """The process is gone."""


def _dies(*arguments: Any, **named: Any) -> Any:
    raise Killed


def _dies_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def done(*arguments: Any, **named: Any) -> Any:
        function(*arguments, **named)
        raise Killed

    return done


STEPS: dict[str, tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "reading": (message_rows, "read", lambda function: _dies),
    "writing": (archive_file.Files, "finish", lambda function: _dies),
    "naming": (archive_file.os, "replace", lambda function: _dies),
    "named, not read back": (archives, "read_back", lambda function: _dies),
    "read back, not entered": (archived, "register", lambda function: _dies),
    "while entering": (archived.ArchivedMessage.objects, "bulk_create", _dies_after),
    "entered": (archived, "register", _dies_after),
    "before the purge": (purging, "purge", lambda function: _dies),
    "in the middle of the purge": (message_rows, "delete", _dies_after),
    "purged": (purging, "purge", _dies_after),
    "files removed": (purging, "remove_files", _dies_after),
    "sweeping": (purging, "purge_events", lambda function: _dies),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_death_between_any_two_steps_loses_nothing_and_doubles_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    where, name, dying = STEPS[step]
    scene.move(PURGE)
    grown_old()
    before = {str(one.pk): archives.rows_of(one) for one in scene.all}

    def everything() -> None:
        archives.archive()
        archives.lake_has_all()
        archives.purge()

    with monkeypatch.context() as patch:
        patch.setattr(where, name, dying(getattr(where, name)))
        with pytest.raises(Killed):
            everything()
    for key, rows in before.items():
        entry = ArchivedMessage.objects.filter(pk=key).select_related("file").first()
        left = entry is not None and entry.state == "archived"
        assert archives.rows_of(uuid.UUID(key)) == ({name: [] for name in rows} if left else rows), "all or nothing"
        assert not left or archived.is_whole(entry.file)
    everything()
    assert in_store(Message, Payload, Transmission, Signal, Delivery, Event) == [0] * 6
    assert set(ArchivedMessage.objects.values_list("state", flat=True)) == {"archived"}
    assert sorted(
        path.relative_to(archived.root()).as_posix() for path in archived.root().rglob("*.parquet")
    ) == sorted(ArchiveFile.objects.values_list("path", flat=True)), (
        "no file without an entry, no entry without its file"
    )
    assert payload_files() == set()
    foreign = archived.root() / "day=2026-03-10" / f"{uuid.uuid4().hex}-0.parquet"
    foreign.write_bytes(b"of a run that this database has never heard of")
    os.utime(foreign, (1, 1))
    archives.archive()
    assert foreign.exists()
    for one in scene.all:
        archives.restore(message=one.pk)
    assert {str(one.pk): archives.rows_of(one) for one in scene.all} == before
