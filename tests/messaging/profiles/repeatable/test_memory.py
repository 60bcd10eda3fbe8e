"""Since when ids are remembered: at the first boot, after a restart, after a restore. With the real file beside it."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections

from messaging.deliveries.services import pulling
from messaging.engine import memory as hub_memory
from messaging.journal.audit import SYSTEM
from messaging.models import AuditEntry, Delivery, Event, Incident, MemoryEpoch, Message, Pair
from messaging.overview.services import housekeeping
from partners import services
from partners.models import AgreementVersion
from rmhub import clock
from rmhub.ids import uuid7
from tests.messaging.deliveries.stage import arrive, make_trigger, work
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.callers import (
    HOUR,
    MINUTE,
    SKEW,
    Caller,
    T,
    application,
    brief,
    caller,
    new_id,
    remembering_since,
)

pytestmark = pytest.mark.django_db

ACCEPTED = (202, "accepted", "")
OUTSIDE = (412, "rejected", "outside-memory-window")
DAY = timedelta(days=1)


@pytest.fixture
def file(settings) -> Path:
    return Path(settings.RMHUB_STORE_DIR) / hub_memory.FILE


INSTANT = timedelta.resolution  # what was stamped the whole skew ahead was accepted before


def restarted() -> None:
    """Another process, which has seen nothing yet."""
    hub_memory.reset()


def backup() -> dict:
    return MemoryEpoch.objects.values().get()


def restore(row: dict) -> None:
    """The database is as it was then; the store folder is not."""
    MemoryEpoch.objects.all().delete()
    MemoryEpoch.objects.create(**row)
    restarted()


def test_the_first_boot_makes_row_and_file(now, file: Path) -> None:
    partner = caller()
    assert not MemoryEpoch.objects.exists()
    assert brief(partner.post("order-1")) == ACCEPTED, "memory starts with the tables, and not with the first request"
    row = MemoryEpoch.objects.get()
    assert row.memory_start <= T
    noted = json.loads(file.read_text())
    assert (noted["epoch"], noted["heartbeat"]) == (str(row.epoch), T.isoformat())
    assert not AuditEntry.objects.exists()


def test_g27_a_clean_restart_does_not_move_the_start_of_memory(partner: Caller, now) -> None:
    first = partner.post("order-1", T - 30 * MINUTE)
    before = backup()
    for _ in range(3):
        now.move(600)
        restarted()
        housekeeping.remember_and_forget()
    assert MemoryEpoch.objects.get().memory_start == before["memory_start"]
    again = partner.post("order-1", T - 30 * MINUTE)
    assert (brief(again), again.content) == (ACCEPTED, first.content)
    assert not AuditEntry.objects.exists()


def test_g26_after_a_restore_memory_starts_again(partner: Caller, now, file: Path) -> None:
    yesterday = backup()
    now.move(86_400)
    housekeeping.remember_and_forget()
    today = T + DAY
    assert brief(partner.post("order-1", today)) == ACCEPTED
    now.move(60)
    housekeeping.remember_and_forget()
    Message.objects.all().delete()  # what came after the backup is not in it
    restore(yesterday)
    at = today + MINUTE
    # A sender whose clock is fast may have stamped it with a time that is still to come here.
    for first_sent in (today, at, at + SKEW - timedelta(seconds=1), at + SKEW):
        assert brief(partner.post("order-1", first_sent)) == OUTSIDE
    assert not Message.objects.exists()
    assert MemoryEpoch.objects.get().memory_start == at + SKEW + INSTANT
    now.move(1)
    assert brief(partner.post("order-2", at + SKEW + timedelta(seconds=1))) == ACCEPTED
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb) == ("system", "memory.start_again")
    assert "restored from a backup" in entry.reason
    incident = Incident.objects.get(cause="memory_lost")
    assert "2026-03-11 12:06:00" in incident.detail
    assert Event.objects.filter(type="incident.opened", data__cause="memory_lost").exists()
    assert json.loads(file.read_text())["epoch"] == str(MemoryEpoch.objects.get().epoch) != str(yesterday["epoch"])
    restarted()
    assert brief(partner.post("order-3", at + SKEW + timedelta(seconds=1))) == ACCEPTED
    assert AuditEntry.objects.count() == 1, "it is noticed once"


def test_a_restore_under_a_running_hub_is_noticed_with_the_next_request(partner: Caller, now) -> None:
    row = backup()
    now.move(60)
    housekeeping.remember_and_forget()
    assert brief(partner.post("order-1", T + MINUTE)) == ACCEPTED
    MemoryEpoch.objects.all().delete()
    MemoryEpoch.objects.create(**row)
    assert brief(partner.post("order-1", T + MINUTE)) == OUTSIDE


@pytest.mark.parametrize("loss", ["row", "file", "other epoch", "file unreadable"])
def test_whatever_does_not_fit_together_is_a_loss(partner: Caller, now, file: Path, loss: str) -> None:
    now.move(60)
    if loss == "row":
        MemoryEpoch.objects.all().delete()
    elif loss == "file":
        file.unlink()
    elif loss == "other epoch":
        MemoryEpoch.objects.update(epoch=uuid7())
    else:
        file.write_text("{")
    restarted()
    assert brief(partner.post(new_id(), T)) == OUTSIDE
    assert MemoryEpoch.objects.get().memory_start == T + MINUTE + SKEW + INSTANT
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize("synchronous", [False, True], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("new", ["the process", "another process"])
def test_a_standby_that_has_taken_over_lacks_what_had_not_waited_for_it(
    partner: Caller, now, monkeypatch, file: Path, synchronous: bool, new: str
) -> None:
    """The heartbeat is the one that is noted: less than half a minute is missing, or nothing."""
    server = [hub_memory._Server(1, synchronous)]
    monkeypatch.setattr(hub_memory, "_server", lambda: server[0])
    monkeypatch.setattr(hub_memory, "timeline", lambda: server[0].timeline)
    now.move(60)
    hub_memory.check(T + MINUTE)
    noted = json.loads(file.read_text())
    assert (noted["timeline"], noted["synchronous"]) == (1, synchronous)
    assert brief(partner.post("order-1", T + MINUTE)) == ACCEPTED
    if new == "another process":
        restarted()
    server[0] = hub_memory._Server(2, False)
    before = MemoryEpoch.objects.get().epoch
    hub_memory.look()
    assert json.loads(file.read_text())["timeline"] == 2
    if synchronous:
        assert MemoryEpoch.objects.get().epoch == before
        assert not AuditEntry.objects.exists() and not Incident.objects.exists()
        return
    assert brief(partner.post("order-2", T + MINUTE)) == OUTSIDE
    assert "failed over" in AuditEntry.objects.get(verb="memory.start_again").reason
    assert not Pair.objects.filter(resync_since=None).exists()
    restarted()
    hub_memory.look()
    assert AuditEntry.objects.filter(verb="memory.start_again").count() == 1, "it is noticed once"


def test_a_server_that_tells_no_timeline_or_begins_at_1_again_is_no_loss(partner: Caller, now, monkeypatch) -> None:
    """pg_upgrade begins with timeline 1; some services are not quite PostgreSQL."""
    for timeline in (0, 5, 1):
        monkeypatch.setattr(hub_memory, "_server", lambda timeline=timeline: hub_memory._Server(timeline, False))
        restarted()
        hub_memory.look()
        assert not AuditEntry.objects.exists()


def test_the_start_is_after_everything_that_was_ever_seen(partner: Caller, now) -> None:
    """The clock at the restore may be behind that of the day before."""
    row = backup()
    now.move(3600)
    housekeeping.remember_and_forget()
    now.move(-1800)
    restore(row)
    assert hub_memory.ready(T + 30 * MINUTE).memory_start == T + HOUR + SKEW + INSTANT


def test_the_largest_clock_skew_of_all_agreements_counts(partner: Caller, now) -> None:
    caller(clock_skew=1800)
    assert hub_memory.lost(T, reason="a test", actor=hub_memory.SYSTEM).memory_start == T + 30 * MINUTE + INSTANT


def test_the_clock_skew_of_an_agreement_that_is_out_of_force_counts(partner: Caller, now) -> None:
    """What came under it may have been stamped so far ahead, and it may be put in force again."""
    wide = caller(clock_skew=1800)
    services.agreement_disable(agreement=AgreementVersion.objects.get(pk=wide.terms.version_id).agreement)
    assert hub_memory.lost(T, reason="A test.", actor=SYSTEM).memory_start == T + 30 * MINUTE + INSTANT


def test_a_restore_to_a_time_that_the_folder_does_not_know_is_noticed_by_who_has_seen_more(
    partner: Caller, now
) -> None:
    """The heartbeat went on in the database, and the folder's note is older than the restored row."""
    now.move(60)
    MemoryEpoch.objects.update(heartbeat=T + MINUTE)
    assert brief(partner.post("order-1")) == ACCEPTED
    MemoryEpoch.objects.update(heartbeat=T)
    assert brief(partner.post("order-2")) == OUTSIDE
    assert "restored from a backup" in AuditEntry.objects.get().reason


def test_a_file_that_is_older_than_the_row_is_no_loss(partner: Caller, now, file: Path) -> None:
    """Killed between the two: the row is written first."""
    before = file.read_text()
    now.move(60)
    housekeeping.remember_and_forget()
    file.write_text(before)
    restarted()
    assert brief(partner.post(new_id(), T)) == ACCEPTED
    assert not AuditEntry.objects.exists()


def test_a_heartbeat_that_cannot_be_noted_is_no_loss_later(partner: Caller, now, monkeypatch, file: Path) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    now.move(60)
    with monkeypatch.context() as broken:
        broken.setattr("os.replace", full)
        with pytest.raises(OSError, match="No space left"):
            hub_memory.check(T + MINUTE)
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".epoch")] == []
    restarted()
    assert brief(partner.post(new_id(), T)) == ACCEPTED
    assert not AuditEntry.objects.exists()


def test_after_restore_starts_memory_again_even_when_the_folder_was_restored_with_it(now) -> None:
    """Row and file of one backup fit together; only the command can know."""
    remembering_since(T.replace(month=1))
    partner = caller()
    output = StringIO()
    call_command("after_restore", stdout=output)
    assert "memory of request ids starts again at 2026-03-10 12:05:00 UTC" in output.getvalue()
    assert brief(partner.post(new_id(), T + SKEW - timedelta(seconds=1))) == OUTSIDE
    now.move(1)
    assert brief(partner.post(new_id(), T + SKEW + timedelta(seconds=1))) == ACCEPTED
    entry = AuditEntry.objects.get()
    assert (entry.actor.partition(":")[0], entry.interface, entry.verb) == ("command", "command", "memory.start_again")


def test_all_this_happens_by_the_clock_that_tests_can_stop() -> None:
    with clock.frozen(T):
        assert hub_memory.check(clock.now()).heartbeat == T


@pytest.mark.django_db(transaction=True)
def test_processes_that_boot_at_once_agree(file: Path) -> None:
    """None of them sees the row without the file."""
    MemoryEpoch.objects.all().delete()
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def boot() -> None:
        try:
            barrier.wait(120)
            for _ in range(5):
                hub_memory.check(clock.now())
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=boot) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert not AuditEntry.objects.exists()
    assert MemoryEpoch.objects.count() == 1


def test_what_waits_in_a_restored_database_may_have_been_processed_since(now) -> None:
    partner = partner_side()
    triggers = {
        "history": make_trigger(name="history", kind="pull"),
        "count": make_trigger(name="count", kind="pull", use_history=False),
        "repeats": make_trigger(name="repeats", kind="pull", detect_duplicates=False),
    }
    arrive(partner, "order-1")
    hub_memory.lost(T, reason="a test", actor=hub_memory.SYSTEM)
    taken = {name: pulling.lease(trigger.pk, limit=1, consumer="erp") for name, trigger in triggers.items()}
    assert {name: len(leased) for name, leased in taken.items()} == {"history": 0, "count": 0, "repeats": 1}
    doubts = dict(Delivery.objects.filter(state="in_doubt").values_list("trigger__name", "doubt"))
    assert doubts == {"history": "memory_lost", "count": "memory_lost"}
    Pair.objects.update(resync_since=None)
    arrive(partner, "order-2")
    assert len(pulling.lease(triggers["history"].pk, limit=1, consumer="erp")) == 1, "in sync again, what comes is new"


def test_what_a_callable_did_went_with_the_database(now) -> None:
    with application(answers=False) as app:
        arrive(partner_side(), "order-1")
        hub_memory.lost(T, reason="a test", actor=hub_memory.SYSTEM)
        work()
    assert (Delivery.objects.get().state, app.executions) == ("completed", 1)
