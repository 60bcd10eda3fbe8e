"""The extract: every change once, whatever commits when, whatever dies where, and whoever else extracts."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.db import OperationalError, connection, connections

from messaging.choices import DocumentKind
from messaging.journal.audit import Actor
from messaging.models import (
    ArchivedMessage,
    ArchiveFile,
    AttributeRule,
    Delivery,
    Event,
    LakeFile,
    LakeState,
    Message,
    Pair,
    PipelineRun,
    Signal,
    Transmission,
)
from messaging.models.bulk import bulk_set
from messaging.pipeline import driver, extract, manifest, parts, schemas
from messaging.pipeline.extract import STEPS
from messaging.pipeline.schemas import EVENTS, MESSAGES, PAIRS, Column
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from tests.messaging.factories import link, partner_side, submit, work
from tests.pipeline import lakes
from tests.pipeline.lakes import T, Writer, assert_equal, lake, run, store, writer
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class Died(BaseException):
    """The process is gone: nothing that it would have tidied up is tidied up."""


@pytest.fixture(autouse=True)
def lake_folder(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from messaging import dispatch

    monkeypatch.setattr(dispatch, "wake", lambda name: None)
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    return settings.RMHUB_LAKE_DIR


@pytest.fixture
def pattern() -> Message:
    """A message that was sent and acknowledged, one that came in, and all that belongs to them."""
    partner = partner_side()
    message = submit(partner)
    with link() as wire:
        work()
        partner.send(partner.acknowledgement(wire.last))
        partner.send(partner.message(1))
        work()
    message.refresh_from_db()
    return message


@pytest.fixture
def first(pattern: Message) -> Iterator[Writer]:
    with writer(pattern) as made:
        yield made


@pytest.fixture
def second(pattern: Message) -> Iterator[Writer]:
    with writer(pattern) as made:
        yield made


def dying_at(number: int, name: str = "") -> extract.Step:
    """Dies when the `number`th step is passed (or the `number`th of this name), counted from 0."""
    count = -1

    def step(passed: str) -> None:
        nonlocal count
        count += passed == name or not name
        if count == number and (passed == name or not name):
            raise Died(passed)

    return step


def settle() -> None:
    """Extracts until nothing is read again. A transaction of another database (other processes have their tests there)
    that ends while an extract looks at who runs is one whose rows it must expect.
    """
    eventually(lambda: not run().rows["events"])


def ended() -> None:
    """Waits until every transaction that has begun by now is over, those of other databases (other tests) too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        [now] = cursor.fetchone()

        def is_past() -> bool:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
            return bool(cursor.fetchone()[0] > now)

        eventually(is_past)


# ---- what a row becomes ----


def test_the_lake_is_the_store_value_by_value(pattern: Message) -> None:
    """Null is not the empty string; line breaks, quotes, separators and microseconds survive; days are UTC's."""
    odd = [
        "",
        None,
        '"',
        '""',
        "a,b",
        "a\nb",
        "a\r\nb",
        "\r",
        "\\N",
        "\\.",
        "NULL",
        " ",
        "ü😀\u2028",
        "\t",
        "'",
        "\x1f",
    ]
    for at in (T, T.replace(hour=23, minute=59, second=59, microsecond=999_999), T.replace(hour=0, microsecond=1)):
        for value in odd:
            Event.objects.create(type="message.failed", at=at, data={"cause": value, "sequence_number": 999_999_999})
    Event.objects.create(type="pair.paused", at=datetime(2026, 3, 10, 23, 30, tzinfo=UTC) + timedelta(hours=1), data={})
    Message.objects.filter(pk=pattern.pk).update(cause='a"\n,', service="")
    # In this database only: the role is every other worker's too.
    role = f"ALTER ROLE CURRENT_USER IN DATABASE {connection.ops.quote_name(connection.settings_dict['NAME'])}"
    with connection.cursor() as cursor:
        cursor.execute(f"{role} SET TimeZone TO 'Asia/Kolkata'")
        cursor.execute(f"{role} SET DateStyle TO 'SQL, DMY'")
    try:
        result = run()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"{role} RESET ALL")
    assert_equal()
    causes = {row["cause"] for row in lake(EVENTS).values() if row["type"] == "message.failed"}
    assert causes == set(odd), "and not only equal to what the statement gives"
    assert all(lake(entity) for entity in schemas.ENTITIES.values() if entity.name not in ("triggers", "deliveries"))
    assert result.rows["events"] == Event.objects.count()
    files = LakeFile.objects.filter(entity="events", day__isnull=False).order_by("day")
    assert [str(file.day) for file in files][:2] == ["2026-03-10", "2026-03-11"]
    assert all(f"g1/events/day={file.day}/" in file.path for file in files)
    schema = pq.read_schema(Path(manifest.root()) / files[0].path)
    assert schema.field("at").type == pa.timestamp("us", "UTC")
    assert schema.metadata[b"rmhub.schema_version"] == str(schemas.VERSION).encode()


def test_attributes_are_in_the_lake_but_for_those_that_are_shown_nowhere(pattern: Message) -> None:
    AttributeRule.objects.create(
        name="salary", kind=DocumentKind.XML, path="//Salary", shown=False, created_at=T, updated_at=T
    )
    Message.objects.filter(pk=pattern.pk).update(attributes={"invoice": "4711", "salary": "70000"})
    run()
    kept = {key: row["attributes"] for key, row in lake(MESSAGES).items()}
    assert json.loads(kept.pop(str(pattern.pk))) == {"invoice": "4711"}
    assert set(kept.values()) <= {None}


def test_what_is_there_already_is_not_read_again(first: Writer) -> None:
    settle()
    before = LakeFile.objects.filter(day__isnull=False, to_xid__lt=lakes.OPEN_END).count()
    first.message()
    first.commit()
    ended()
    result = run()
    assert (result.rows["events"], result.rows["messages"], result.rows["transmissions"]) == (1, 1, 0)
    assert LakeFile.objects.filter(day__isnull=False, to_xid__lt=lakes.OPEN_END).count() == before + 2
    settle()
    again = run()
    assert {name: rows for name, rows in again.rows.items() if rows and schemas.ENTITIES[name].day} == {}
    assert_equal()


def test_lists_are_written_whole_and_replaced(pattern: Message) -> None:
    run()
    Pair.objects.filter(pk=pattern.pair_id).update(code="renamed")
    run()
    assert lake(PAIRS)[str(pattern.pair_id)]["code"] == "renamed"
    assert LakeFile.objects.filter(entity="pairs", replaced_at__isnull=True).count() == 1
    assert_equal()


def test_progress_is_told_in_rows(first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "PARSED", 2000)
    first.event(500)
    first.commit()
    told: list[tuple[str, int, int]] = []
    extract.extract(lambda *call: told.append(call))
    done = [call[1] for call in told]
    assert done == sorted(done) and len(done) > 10
    assert all(0 < call[1] <= call[2] for call in told)
    assert {"Extract: events", "Extract: messages"} <= {call[0] for call in told}


def test_the_job_tells_its_lineage(first: Writer) -> None:
    first.message()
    first.commit()
    pipeline_runs.run_request(job=PipelineJob.EXTRACT, actor=Actor("ann"))
    claimed = pipeline_runs.claim_next(worker="test")
    assert claimed is not None and driver.execute(claimed)
    ended = PipelineRun.objects.get()
    state = LakeState.objects.get()
    assert (ended.state, ended.data_as_of) == (RunState.SUCCEEDED, state.extracted_at)
    assert (ended.facts["generation"], ended.facts["through_xid"]) == (1, state.extracted_through)
    assert ended.facts["entities"]["messages"] == Message.objects.count()
    assert ended.rows == sum(ended.facts["entities"].values()) == sum(file.rows for file in LakeFile.objects.all())
    assert ended.facts["days_compacted"] == 0
    assert_equal()


# ---- nothing lost, nothing doubled ----


def test_a_transaction_that_commits_late_is_neither_lost_nor_doubled(first: Writer, second: Writer) -> None:
    """The ids of the first are lower than those of the second, and come later."""
    settle()
    first.event(3)
    held = first.message()
    second.event(5)
    second.message()
    second.commit()
    run()
    assert_equal()
    assert str(held) not in lake(MESSAGES)
    second.event(2)
    second.change(second.pattern.pk, "failed")
    second.commit()
    run()
    assert_equal()
    first.commit()
    assert str(held) in store(MESSAGES)
    result = run()
    assert_equal()
    assert str(held) in lake(MESSAGES)
    assert result.rows["events"] == 4 + 6 + 3, "from the one that was held on"
    settle()


def test_what_is_rolled_back_never_shows(first: Writer, second: Writer) -> None:
    first.event(3)
    second.event(1)
    second.commit()
    run()
    first.rollback()
    run()
    assert_equal()


def test_a_row_that_is_being_changed_is_not_missing(first: Writer, second: Writer) -> None:
    """Written below the horizon, changed above it: the lake has the newer version at once, and not none."""
    key = first.message()
    first.commit()
    first.event()  # holds the horizon
    second.change(key, "failed")
    second.commit()
    through = run().through
    assert lake(MESSAGES)[str(key)]["state"] == "failed"
    assert lake(MESSAGES)[str(key)]["xid"] >= through
    assert_equal()
    first.commit()
    run()
    assert_equal()


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_of_a_row_that_changed_often_the_last_version_counts(first: Writer, rows: int) -> None:
    key = first.message()
    first.commit()
    run(batch_rows=rows)
    for state in ("queued", "failed", "cancelled"):
        first.change(key, state)
        first.commit()
    first.change(key, "skipped")
    first.change(key, "delivered")
    first.commit()
    run(batch_rows=rows)
    assert lake(MESSAGES)[str(key)]["state"] == "delivered"
    assert_equal()
    first.change(key, "failed")
    first.commit()
    run(batch_rows=rows)
    assert lake(MESSAGES)[str(key)]["state"] == "failed"
    assert_equal()


def test_a_batch_that_has_not_reached_the_present_keeps_what_was_read_ahead(first: Writer, second: Writer) -> None:
    """Between two batches the lake must not fall behind the moment that it says it is as of."""
    run()
    first.event()
    for _ in range(6):
        second.message()
        second.commit()
    run()
    files = LakeFile.objects.filter(replaced_at__isnull=True, to_xid=lakes.OPEN_END)
    assert {file.entity for file in files} == {"events", "messages"}
    as_of = LakeState.objects.get().extracted_at
    before = {entity.name: set(lake(entity)) for entity in (EVENTS, MESSAGES)}
    first.commit()
    looked = 0

    def step(name: str) -> None:
        nonlocal looked
        if name == "committed":
            looked += 1
            for entity in (EVENTS, MESSAGES):
                assert set(lake(entity)) >= before[entity.name]
            if looked == 3:
                assert LakeState.objects.get().extracted_at == as_of
                raise Died

    with pytest.raises(Died):
        run(batch_rows=1, step=step)
    assert set(lake(EVENTS)) >= before["events"]
    run()
    assert_equal()


def test_dying_anywhere_loses_and_doubles_nothing(first: Writer, second: Writer) -> None:
    """After every single step that an extract passes: the next one makes the lake whole, whatever lies about."""
    run()
    passed: list[str] = []

    def die(number: int, name: str = "") -> bool:
        key = first.message(T + timedelta(hours=6 * (number % 4)))
        first.commit()
        second.event()  # holds the horizon, so that there is something to read ahead
        first.change(key, "failed")
        first.commit()
        try:
            run(batch_rows=1, step=dying_at(number, name))
        except Died as died:
            passed.append(str(died))
        else:
            return False
        second.commit()
        run(batch_rows=2)
        assert_equal()
        return True

    for number in range(200):
        if not die(number):
            break
    second.commit()
    # How many steps one takes depends on what else the server has under way: a number may have stepped over a name.
    for name in set(STEPS) - set(passed):
        die(0, name)
    assert set(passed) == set(STEPS), "each is really passed"
    run()
    assert_equal()
    lying_about = lakes.on_disk() - lakes.entered()
    assert lying_about, "what died left files that nobody counts"
    _older_than_an_hour()
    manifest.sweep()
    assert lakes.on_disk() == lakes.entered()
    assert_equal()


@pytest.mark.parametrize("name", STEPS)
def test_what_is_new_is_whole_after_dying_in_the_very_first_extract(pattern: Message, name: str) -> None:
    with pytest.raises(Died):
        run(step=dying_at(0, name))
    run()
    assert_equal()
    assert LakeState.objects.get().generation == 1


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), OperationalError("gone")])
def test_what_fails_takes_its_files_along(first: Writer, failure: Exception) -> None:
    run()
    whole = lakes.on_disk()
    first.message()
    first.commit()

    def step(name: str) -> None:
        if name == "files_complete":
            assert lakes.on_disk() > whole
            raise failure

    with pytest.raises(type(failure)):
        run(step=step)
    assert lakes.on_disk() == whole
    run()
    assert_equal()


def test_two_extracts_at_once(first: Writer) -> None:
    for number in range(40):
        first.message(T + timedelta(hours=number))
        first.commit()
    barrier = threading.Barrier(2, timeout=120)
    errors: list[BaseException] = []

    def one() -> None:
        met = 0

        def step(name: str) -> None:
            nonlocal met
            # The first batches of both are certain to have begun at the same place.
            if name == "files_complete" and met < 1:
                met += 1
                barrier.wait()

        try:
            run(batch_rows=7, step=step)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert errors == []
    assert_equal()
    assert lakes.on_disk() == lakes.entered(), "the one that came too late took its files along"


PROCESS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "rmhub.settings"
import django
django.setup()
from messaging.pipeline.extract import extract
at, name = int(sys.argv[1]), sys.argv[2]
count = 0
def step(passed):
    global count
    count += passed == name
    if at and count == at:
        os._exit(9)
print("ready", flush=True)
sys.stdin.readline()
extract(lambda *told: None, batch_rows=9, step=step)
"""


def test_two_processes_at_once_and_one_that_is_killed(first: Writer, lake_folder: Path) -> None:
    for number in range(30):
        first.message(T + timedelta(hours=number % 30))
        first.commit()
    name = connection.settings_dict
    url = f"postgresql://{name['USER']}:{name['PASSWORD']}@{name['HOST']}:{name['PORT']}/{name['NAME']}"
    environment = {**os.environ, "DATABASE_URL": url, "RMHUB_LAKE_DIR": str(lake_folder), "RMHUB_LOG_LEVEL": "ERROR"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for arguments in (["0", ""], ["0", ""], ["4", "file_renamed"])
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    codes = []
    for process in processes:
        process.communicate(timeout=300)
        codes.append(process.returncode)
    assert codes[:2] == [0, 0] and codes[2] in (0, 9)
    assert_equal()


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_commits_changes_extracts_and_deaths(pattern: Message, seed: int) -> None:
    chance = random.Random(seed)
    keys: list[uuid.UUID] = []
    with writer(pattern) as one, writer(pattern) as two, writer(pattern) as three:
        touched: dict[uuid.UUID, Writer] = {}
        for _ in range(60):
            who = chance.choice((one, two, three))
            action = chance.random()
            if action < 0.25:
                who.event(chance.randint(1, 4), T + timedelta(hours=chance.randint(0, 40)))
            elif action < 0.4:
                key = who.message(T + timedelta(hours=chance.randint(0, 40)))
                keys.append(key)
                touched[key] = who
            elif action < 0.6 and keys:
                key = chance.choice(keys)
                if touched.get(key, who) is who:  # another one would wait for the lock
                    who.change(key, chance.choice(("failed", "delivered", "queued")))
                    touched[key] = who
            elif action < 0.8:
                (who.rollback if chance.random() < 0.2 else who.commit)()
                touched = {key: by for key, by in touched.items() if by is not who}
            elif action < 0.9:
                try:
                    run(batch_rows=chance.randint(1, 5), step=dying_at(chance.randint(0, 30)))
                except Died:
                    continue
                assert_equal()
            else:
                run(batch_rows=chance.choice((1, 3, 1000)))
                assert_equal()
        for who in (one, two, three):
            who.commit()
    run()
    assert_equal()
    settle()


# ---- memory, locks, plans ----


def test_a_transaction_of_any_size_is_streamed(first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a migration or a restore has written has one transaction number."""
    run()
    monkeypatch.setattr(extract, "PARSED", 100_000)
    monkeypatch.setattr(parts, "BUFFERED", 1_000_000)
    first.event(100_000)
    first.commit()
    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    most = 0

    def step(name: str) -> None:
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)

    result = run(batch_rows=1000, step=step)
    assert result.rows["events"] == 100_000
    assert most < 6_000_000, "a few times the limit, and not the 20 MB that the rows need"
    assert len(lake(EVENTS)) == Event.objects.count()


def test_a_backlog_is_taken_up_in_batches(first: Writer) -> None:
    settle()
    for _ in range(10):
        first.event(20)
        first.commit()
    result = run(batch_rows=50)
    assert 3 <= result.batches <= 12
    assert result.rows["events"] == 200
    assert_equal()


def test_days_in_any_order_need_a_bounded_number_of_files(first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "PARSED", 3000)
    monkeypatch.setattr(parts, "BUFFERED", 60_000)
    monkeypatch.setattr(parts, "OPEN_FILES", 5)
    first.raw.execute(
        "INSERT INTO messaging_event (at, type, data) SELECT %s + n * 37 %% 60 * interval '1 day', 'message.sent', '{}'"
        " FROM generate_series(1, 1000) AS n",
        [T],
    )
    first.commit()
    base, most = manifest.root(), 0

    def step(name: str) -> None:
        nonlocal most
        if name == "rows_written":
            most = max(most, sum(1 for _ in base.glob("g1/events/*/.*.part")))

    run(step=step)
    assert most == 5
    assert LakeFile.objects.filter(entity="events").values("day").distinct().count() >= 60
    assert_equal()


def test_live_tables_are_only_read(first: Writer, second: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at while rows are on their way: no lock that anybody but a migration waits for, no transaction number."""
    monkeypatch.setattr(extract, "PARSED", 1000)
    first.event(200)
    key = first.message()
    first.commit()
    seen: set[tuple[str, str]] = set()

    def step(name: str) -> None:
        if name != "rows_read":
            return
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT l.mode, c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
                " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
                " WHERE c.relname LIKE 'messaging_%%' AND c.relkind = 'r' AND l.pid <> pg_backend_pid()"
            )
            seen.update(cursor.fetchall())
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
                " AND datname = current_database() AND backend_type = 'client backend'"
            )
            assert cursor.fetchone() == (0,)
        second.change(key, "failed")
        second.commit()

    run(step=step)
    assert {mode for mode, _ in seen} == {"AccessShareLock"}
    assert {"messaging_event", "messaging_message"} <= {name for _, name in seen}
    run()
    assert_equal()


INDEXES = {
    "events": "event_feed",
    "messages": "message_written",
    "transmissions": "transmission_written",
    "signals": "signal_written",
    "deliveries": "delivery_written",
}


def plan(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        return "\n".join(row[0] for row in cursor.fetchall())


def test_new_rows_are_found_by_an_index(first: Writer) -> None:
    first.event(20_000)
    first.commit()
    begin = run().through
    first.event(10)
    first.commit()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_event")
    for entity in extract.CHANGING:
        if entity is not EVENTS:  # their tables are too small for the planner to bother: it shows what it could do
            with connection.cursor() as cursor:
                cursor.execute("SET enable_seqscan TO off")
        try:
            for sql in (
                extract.select(entity, f"t.xid >= {begin} AND t.xid < {begin + 1000}"),
                extract.select(entity, f"t.xid >= {begin}"),
                extract.CUTS.format(table=extract.table_of(entity)).replace("%%", "%").replace("%s", str(begin)),
            ):
                found = plan(sql)
                assert INDEXES[entity.name] in found, found
                assert "xid >=" in found, found
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET enable_seqscan")


# ---- `xid` is true ----


def _delivery(message: Message) -> Delivery:
    from tests.messaging.deliveries.stage import make_trigger

    return Delivery.objects.create(
        trigger=make_trigger(kind="pull"),
        message=message,
        pair_id=message.pair_id,
        sender=message.agreement_version.agreement.partner,
        position=1,
        created_at=T,
    )


def test_every_way_of_updating_gives_a_row_a_new_number(pattern: Message) -> None:
    """Whoever writes it and however: what the trigger does not see the lake would never take up."""
    rows = [pattern, Transmission.objects.first(), Signal.objects.first(), _delivery(pattern)]
    changes = {Message: "cause", Transmission: "cause", Signal: "note", Delivery: "cause"}
    for row in rows:
        assert row is not None
        model, name = type(row), changes[type(row)]

        def save(row=row, name=name) -> None:
            setattr(row, name, "save")
            row.save()

        def save_field(row=row, name=name) -> None:
            setattr(row, name, "field")
            row.save(update_fields=[name])

        def in_bulk(row=row, name=name) -> None:
            setattr(row, name, "bulk_set")
            bulk_set([row], [name])

        def queryset(row=row, name=name, model=model) -> None:
            model.objects.filter(pk=row.pk).update(**{name: "queryset"})

        def bulk_update(row=row, name=name, model=model) -> None:
            setattr(row, name, "bulk_update")
            model.objects.bulk_update([row], [name])

        def wrong_number(row=row, model=model) -> None:
            model.objects.filter(pk=row.pk).update(xid=5)

        for update in (save, save_field, in_bulk, queryset, bulk_update, wrong_number):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_current_xact_id()::text::bigint")
                before = cursor.fetchone()[0]
            update()
            xid = model.objects.values_list("xid", flat=True).get(pk=row.pk)
            assert xid > before, f"{model.__name__} {update.__name__}"
    run()
    assert_equal()


# ---- schemas, generations ----


def test_a_new_column_leaves_old_files_as_they_are(first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    now, following = schemas.VERSION, schemas.VERSION + 1
    newer = replace(MESSAGES, columns=(*MESSAGES.columns, Column("content_type", "string", since=following)))
    monkeypatch.setitem(schemas.ENTITIES, "messages", newer)
    monkeypatch.setattr(extract, "CHANGING", tuple(e if e.name != "messages" else newer for e in extract.CHANGING))
    monkeypatch.setattr(parts, "VERSION", following)
    monkeypatch.setattr(manifest, "VERSION", following)
    first.message()
    first.commit()
    result = run()
    assert (result.generation, result.rows["messages"]) == (1, 1), "nothing is read again"
    files = LakeFile.objects.filter(entity="messages", replaced_at__isnull=True).order_by("schema_version")
    assert {file.schema_version for file in files} == {now, following}
    widths = {file.schema_version: len(pq.read_schema(manifest.root() / file.path).names) for file in files}
    assert widths == {now: len(MESSAGES.columns), following: len(MESSAGES.columns) + 1}


def test_on_another_server_the_lake_begins_again(first: Writer) -> None:
    run()
    LakeState.objects.update(source="7000000000000000000/16384")
    first.message()
    first.commit()
    result = run()
    state = LakeState.objects.get()
    assert (result.generation, state.generation) == (2, 2)
    assert result.rows["events"] == Event.objects.count(), "everything is read again"
    assert state.source.partition("/")[0].isdigit() and state.source != "7000000000000000000/16384"
    assert not LakeFile.objects.filter(generation=1, replaced_at__isnull=True).exists()
    assert_equal()
    assert run().generation == 2


def test_numbers_that_the_server_has_not_given_out_yet_begin_the_lake_again(pattern: Message) -> None:
    """A physical backup of this very server was put back."""
    run()
    LakeState.objects.update(extracted_through=2**40)
    assert run().generation == 2
    assert_equal()


def test_a_horizon_that_falls_back_does_not(first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow transaction of another database is passed over while it is seen to run; when it ends between two looks, it
    counts, and the horizon is below where the lake is already.
    """
    through = run().through
    first.message()
    first.commit()
    monkeypatch.setattr(extract, "HORIZON", f"SELECT {through - 50}::bigint, false")
    result = run()
    assert (result.generation, result.through) == (1, through)
    assert_equal()
    monkeypatch.undo()


def test_a_lake_whose_files_are_gone_is_read_again(first: Writer, lake_folder: Path) -> None:
    run()
    lost = LakeFile.objects.filter(entity="messages").first()
    assert lost is not None
    (lake_folder / lost.path).unlink()
    with pytest.raises(manifest.LakeUnusable, match=lost.path):
        manifest.current()
    assert run().generation == 2
    assert_equal()
    assert manifest.current().generation == 2


def test_a_lake_that_holds_what_the_store_has_not_any_more_is_not_thrown_away(first: Writer, lake_folder: Path) -> None:
    """After a purge, one lost file must not cost the history of all that was purged."""
    run()
    day = ArchiveFile.objects.create(
        day=T, path="a", schema_version=1, messages=1, payloads=0, payload_bytes=0, bytes=1, sha256="", created_at=T
    )
    ArchivedMessage.objects.create(
        id=uuid.uuid4(),
        state="archived",
        file=day,
        row=0,
        pair_id=first.pattern.pair_id,
        size=1,
        created_at=T,
        purged_at=T,
    )
    lost = LakeFile.objects.filter(entity="messages").first()
    assert lost is not None
    (lake_folder / lost.path).rename(lake_folder / "aside")
    with pytest.raises(manifest.LakeUnusable, match=f"1 of .* files of the lake are gone .*{lost.path}"):
        run()
    (lake_folder / "aside").rename(lake_folder / lost.path)
    assert run().generation == 1
    shutil.rmtree(lake_folder / "g1")
    assert run().generation == 2, "somebody has decided so"
    assert_equal()


def test_a_lake_that_was_never_filled_cannot_be_read(pattern: Message) -> None:
    with pytest.raises(manifest.LakeUnusable, match="pipeline run extract"):
        manifest.current()
    with pytest.raises(Died):
        run(batch_rows=1, step=dying_at(1, "committed"))
    assert LakeFile.objects.exists()
    with pytest.raises(manifest.LakeUnusable, match="partly filled"):
        manifest.current()


def test_an_extract_of_the_generation_before_enters_nothing(first: Writer) -> None:
    run()
    first.message()
    first.commit()
    once = True

    def step(name: str) -> None:
        nonlocal once
        if name == "files_complete" and once:
            once = False
            manifest.begin_again()

    assert run(step=step).generation == 2
    assert_equal()
    assert not [path for path in lakes.on_disk() - lakes.entered() if path.startswith("g2")]


# ---- what is deleted ----


def _older_than_an_hour() -> None:
    for path in manifest.root().rglob("*"):
        os.utime(path, (0, 0))


def test_only_what_nobody_counts_or_reads_is_deleted(first: Writer, lake_folder: Path) -> None:
    run()
    Pair.objects.filter(pk=first.pattern.pair_id).update(code="renamed")
    run()
    replaced = set(LakeFile.objects.filter(replaced_at__isnull=False).values_list("path", flat=True))
    assert len(replaced) >= 2
    orphan = lake_folder / "g1" / "events" / "day=2026-01-01" / ".1-2-x.parquet.part"
    orphan.parent.mkdir()
    orphan.write_bytes(b"x")
    theirs = lake_folder / "partner-logs" / "plog_1.csv"
    theirs.parent.mkdir()
    theirs.write_bytes(b"x")
    assert manifest.sweep() == 0, "all of it is young"
    _older_than_an_hour()
    assert manifest.sweep() == 1
    assert not orphan.exists() and theirs.exists()
    later = clock.now() + timedelta(hours=2)
    reading = PipelineRun.objects.create(
        job=PipelineJob.AUDIT, state=RunState.RUNNING, started_at=T, created_at=T, requested_by="ann", interface="api"
    )
    assert manifest.sweep(later) == 0, "a run that began before may be reading them"
    reading.started_at = later - timedelta(minutes=1)
    reading.save()
    assert manifest.sweep(later) == len(replaced)
    assert lakes.on_disk() == lakes.entered()
    assert not replaced & lakes.on_disk()
    assert_equal()


def test_nothing_is_deleted_while_files_are_written(first: Writer, lake_folder: Path) -> None:
    """A large batch may take longer than an hour; its first files are old, and no row names them yet."""
    looked = 0

    def step(name: str) -> None:
        nonlocal looked
        if name == "files_complete":
            looked += 1
            _older_than_an_hour()
            assert lakes.on_disk() > lakes.entered()
            assert manifest.sweep(clock.now() + timedelta(hours=5)) == 0

    run(step=step)
    assert looked == 1
    assert_equal()
