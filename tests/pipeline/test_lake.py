"""Reading the lake through Spark, and putting its small files together. The store is what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from messaging.models import LakeFile, LakeState
from messaging.pipeline import driver, extract, manifest, parts, schemas
from messaging.pipeline.schemas import EVENTS, MESSAGES, Column
from rmhub.clock import frozen
from tests.messaging.factories import link, partner_side, submit, work
from tests.pipeline import lakes
from tests.pipeline.lakes import T, Writer, assert_equal, quiet, run, store, writer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.spark]


@pytest.fixture(autouse=True)
def lake_folder(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from messaging import dispatch

    monkeypatch.setattr(dispatch, "wake", lambda name: None)
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    return settings.RMHUB_LAKE_DIR


@pytest.fixture
def first() -> Iterator[Writer]:
    partner = partner_side()
    message = submit(partner)
    with link() as wire:
        work()
        partner.send(partner.acknowledgement(wire.last))
    message.refresh_from_db()
    with writer(message) as made:
        yield made


def read(session: Any, entity: str, columns: list[str], **options: Any) -> Any:
    return driver.lake_inputs(session, {entity: columns}, **options)[0][entity]


def ids(frame: Any) -> list[Any]:
    """The ids in the frame, in order: one that is there twice shows."""
    return sorted(row["id"] for row in frame.select("id").collect())


def versions(session: Any, *names: str, **options: Any) -> dict[str, tuple[Any, ...]]:
    rows = read(session, "messages", ["id", *names], **options).collect()
    found = {row["id"]: tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows)
    return found


def test_reading_gives_each_row_once_in_its_last_version_and_within_the_range(spark, first: Writer) -> None:
    keys = [first.message(T + timedelta(hours=6 * number)) for number in range(8)]
    first.commit()
    run()
    assert LakeFile.objects.filter(entity="messages", unique_keys=False).count() == 0
    for key in keys[:3]:
        first.change(key, "queued")
        first.change(key, "failed")
    first.commit()
    with writer(first.pattern) as other:
        other.event()  # from here on rows are read ahead
        first.change(keys[0], "skipped")
        first.message(T)
        first.commit()
        run()
        again = LakeFile.objects.filter(entity="messages", replaced_at__isnull=True)
        assert {file.unique_keys for file in again} == {True, False}
        expected = {key: (row["state"], row["attempts"], row["created_at"]) for key, row in store(MESSAGES).items()}
        found = versions(spark, "state", "attempts", "created_at")
        assert {key: (state, n, at.astimezone(T.tzinfo)) for key, (state, n, at) in found.items()} == expected
        assert ids(read(spark, "events", ["id"])) == sorted(store(EVENTS))
        other.commit()
    # The range is that of the entity's day column: from inclusive, to exclusive; the column need not be asked for.
    begin, end = T + timedelta(hours=6), T + timedelta(hours=24)
    inside = {key for key, row in store(MESSAGES).items() if begin <= row["created_at"] < end}
    assert len(inside) == 3
    assert set(versions(spark, "state", begin=begin, end=end)) == inside
    frames, facts = driver.lake_inputs(
        spark, {"messages": ("id",), "pairs": ("code", "id"), "triggers": ("id",)}, begin, end
    )
    assert {row["id"] for row in frames["messages"].collect()} == inside
    assert frames["messages"].columns == ["id"] and frames["pairs"].columns == ["code", "id"]
    assert frames["pairs"].count() == len(store(schemas.PAIRS)) and frames["triggers"].count() == 0
    state = LakeState.objects.get()
    assert (facts["generation"], facts["through_xid"]) == (1, state.extracted_through)
    assert facts["as_of"] == state.extracted_at.isoformat()
    assert facts["entities"]["messages"]["files"] < LakeFile.objects.filter(entity="messages").count()


def test_events_that_were_read_ahead_count_once_while_a_backlog_is_taken_up(spark, first: Writer) -> None:
    run()
    with writer(first.pattern) as other:
        other.event()
        for _ in range(4):
            first.event(2)
            first.commit()
        run()
        other.commit()
    whole = sorted(store(EVENTS))
    passed = 0

    class Enough(Exception):
        pass

    def step(name: str) -> None:
        nonlocal passed
        passed += name == "committed"
        if passed == 3:
            raise Enough

    with pytest.raises(Enough):
        run(batch_rows=1, step=step)
    ahead = LakeFile.objects.get(entity="events", to_xid=lakes.OPEN_END, replaced_at__isnull=True)
    assert ahead.from_xid < LakeState.objects.get().extracted_through < first_xid_after(ahead)
    assert set(ids(read(spark, "events", ["id"]))) >= set(whole) - {max(whole)}
    assert len(ids(read(spark, "events", ["id"]))) == len(set(ids(read(spark, "events", ["id"]))))
    run()
    assert ids(read(spark, "events", ["id", "type"])) == whole


def first_xid_after(file: LakeFile) -> int:
    return 1 + max(pq.ParquetFile(manifest.root() / file.path).read(["xid"])["xid"].to_pylist())


@pytest.mark.long
def test_a_new_column_is_null_in_files_of_before(spark, first: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    newer = replace(MESSAGES, columns=(*MESSAGES.columns, Column("content_type", "string", since=2)))
    monkeypatch.setitem(schemas.ENTITIES, "messages", newer)
    monkeypatch.setattr(extract, "CHANGING", tuple(e if e.name != "messages" else newer for e in extract.CHANGING))
    key = first.message(T - timedelta(days=40))
    first.commit()
    run()
    old, new = str(first.pattern.pk), str(key)
    assert versions(spark, "content_type", "state") == {
        old: (None, "delivered"),
        new: (first.pattern.content_type, "delivered"),
    }
    assert first.pattern.content_type
    # Put together, the files are of the newer version, and the old rows still have no value.
    first.message(T - timedelta(days=40))
    first.commit()
    run()
    with frozen(T + timedelta(days=400)):
        parts.compact(spark, parts.waiting(least=2), quiet)
    assert versions(spark, "content_type")[old] == (None,)


def test_compaction_keeps_every_row_once_sorted_for_other_tools_too(spark, first: Writer, monkeypatch) -> None:
    keys = [first.message(T + timedelta(minutes=number)) for number in range(20)]
    first.commit()
    run()
    for number in range(3):
        for key in keys[number::3]:
            first.change(key, "failed")
        first.commit()
        run()
    with writer(first.pattern) as other, frozen(T + timedelta(days=400)):
        other.event()
        first.change(keys[5], "skipped")
        first.commit()
        with frozen(T + timedelta(days=401)):
            run()
        read_ahead = set(LakeFile.objects.filter(to_xid=lakes.OPEN_END, replaced_at__isnull=True))
        assert read_ahead
        days = parts.waiting(least=2)
        assert {(day.entity.name, str(day.day)) for day in days} >= {
            ("events", "2026-03-10"),
            ("messages", "2026-03-10"),
        }
        told: list[tuple[str, int, int]] = []
        result = parts.compact(spark, days, lambda *call: told.append(call))
        assert (result.days, result.files_after) == (len(days), len(days)) and result.files_before > len(days) * 2
        assert result.rows_after < result.rows_before, "outdated versions are gone"
        assert [call[1:] for call in told] == [(number, len(days)) for number in range(len(days))]
        assert parts.waiting(least=2) == []
        assert_equal()
        current = LakeFile.objects.filter(entity="messages", replaced_at__isnull=True, day="2026-03-10")
        assert sorted(file.unique_keys for file in current) == [False, False], "one row is newer in what was read ahead"
        assert set(LakeFile.objects.filter(to_xid=lakes.OPEN_END, replaced_at__isnull=True)) == read_ahead
        assert versions(spark, "state")[str(keys[5])] == ("skipped",)
        other.rollback()
    file = current.exclude(to_xid=lakes.OPEN_END).get()
    metadata = pq.read_metadata(manifest.root() / file.path)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert str(pq.read_schema(manifest.root() / file.path).field("created_at").type) == "timestamp[us, tz=UTC]"
    rows = pq.ParquetFile(manifest.root() / file.path).read(["pair_id", "position", "id"]).to_pylist()
    order = [(row["pair_id"], row["position"], row["id"]) for row in rows]
    assert order == sorted(order)
    assert not list(manifest.root().rglob(".compact-*"))
    run()
    assert_equal()
    # As a job, and of its own accord only for many files. Two days have two files each, of messages and of events.
    for _ in range(2):
        first.message(T - timedelta(days=3))
        first.commit()
        run()
    facts: dict[str, Any] = {}
    context: Any = SimpleNamespace(session=lambda: spark, progress=quiet, succeed=lambda **told: facts.update(told))
    with frozen(T + timedelta(days=400)):
        assert parts.when_useful(context) == 0
        parts.run_compaction(context)
        monkeypatch.setattr(parts, "SMALL", 2)
        monkeypatch.setattr(parts, "WORTH", 1)
        assert parts.when_useful(context) == 0, "there is nothing left"
    assert (facts["days"], facts["files_before"], facts["files_after"]) == (4, 8, 4)
    assert_equal()


def test_a_compaction_that_comes_too_late_or_dies_changes_nothing(spark, first: Writer) -> None:
    for _ in range(3):
        first.message()
        first.commit()
        run()
    before = lakes.on_disk()

    class Died(BaseException):
        pass

    def die(name: str) -> None:
        raise Died

    with frozen(T + timedelta(days=400)):
        days = parts.waiting(least=2)
        with pytest.raises(Died):
            parts.compact(spark, days, quiet, step=die)
        assert_equal()
        assert lakes.on_disk() > before, "what died left a file that nobody counts"
        taken: list[parts.Compacted] = []

        def faster(name: str) -> None:
            if name == "files_complete":
                taken.append(parts.compact(spark, days[:1], quiet))

        assert parts.compact(spark, days[:1], quiet, step=faster).days == 0
        assert taken[0].days == 1
        assert_equal()
        left = lakes.on_disk()

        def lake_begins_again(name: str) -> None:
            if name == "files_complete":
                manifest.begin_again()

        assert parts.compact(spark, days[1:2], quiet, step=lake_begins_again).days == 0
        assert lakes.on_disk() == left, "what came too late took its file along"
    run()
    assert_equal()
