"""The live watch through Spark: events of the real source are counted once, whatever order they commit in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from messaging.models import LiveMinute, LiveState
from messaging.reports.services import live_watch
from tests import ROOT
from tests.messaging.factories import partner_side
from tests.rmhub.conditions import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

# What plain SQL says of the events: the counts must be these, to the last one.
EXPECTED = """
SELECT e.pair_id, date_trunc('minute', e.at),
       count(*) FILTER (WHERE e.type = 'message.accepted'),
       count(*) FILTER (WHERE e.type IN ('message.delivered', 'message.sent')),
       count(*) FILTER (WHERE e.type = 'message.retrying'),
       count(*) FILTER (WHERE e.type = 'message.received'),
       count(*) FILTER (WHERE e.type = 'message.delivered' AND m.first_sent_at IS NOT NULL),
       coalesce(round(sum(extract(epoch FROM e.at - m.first_sent_at))
                      FILTER (WHERE e.type = 'message.delivered'), 3), 0),
       coalesce(round(max(extract(epoch FROM e.at - m.first_sent_at))
                      FILTER (WHERE e.type = 'message.delivered'), 3), 0)
FROM messaging_event e LEFT JOIN messaging_message m ON m.id = e.message_id
WHERE e.type IN ('message.accepted', 'message.delivered', 'message.sent', 'message.retrying', 'message.received')
AND e.pair_id IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, 2
"""
COUNTED = """
SELECT pair_id, minute, accepted, delivered, retried, received, acks,
       round(ack_seconds::numeric, 3), round(ack_longest::numeric, 3)
FROM messaging_liveminute ORDER BY 1, 2
"""
# Transactions of a hundred events each, as fast as the server can write them.
MANY = """
CREATE PROCEDURE many_events(pairs uuid[], transactions int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..transactions LOOP
        INSERT INTO messaging_event (at, type, data, pair_id)
        SELECT now() - interval '1 minute' * (n % 40),
               (ARRAY['message.accepted', 'message.delivered', 'message.received', 'delivery.completed'])[1 + n % 4],
               '{}', pairs[1 + i % array_length(pairs, 1)]
        FROM generate_series(1, 100) n;
        COMMIT;
    END LOOP;
END $$
"""


def rows(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


@pytest.fixture
def lake(settings: Any, tmp_path: Path) -> Path:
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    return tmp_path / "lake"


@pytest.fixture
def other() -> Iterator[psycopg.Connection]:
    """A second connection: what it writes is not committed until the test says so."""
    database = connection.settings_dict
    dsn = make_conninfo(
        host=database["HOST"],
        port=database["PORT"],
        dbname=database["NAME"],
        user=database["USER"],
        password=database["PASSWORD"] or None,
    )
    with psycopg.connect(dsn) as made:
        yield made


def message(cursor: Any, partner: Any, seconds: float) -> str:
    """A message that went out so many seconds ago."""
    cursor.execute(
        "INSERT INTO messaging_message (id, direction, state, pair_id, agreement_version_id, semantics, message_id,"
        " conversation_id, ref_to_message_id, service, action, position, content_type, digest, size, attempts, cause,"
        " cause_detail, copies, created_at, first_sent_at, submitted_by, idempotency_key, idempotency_fingerprint,"
        " document_id)"
        " VALUES (gen_random_uuid(), 'out', 'delivered', %s, %s, 'OnceAndOnlyOnce', 'm', 'c', '', 's', 'a', 1, '', '',"
        " 0, 1, '', '', 0, now(), now() - %s * interval '1 second', '', '', '', '') RETURNING id",
        [partner.outbound.pk, partner.terms.version_id, seconds],
    )
    return str(cursor.fetchone()[0])


def event(cursor: Any, kind: str, pair: Any, message_pk: str | None = None) -> None:
    cursor.execute(
        "INSERT INTO messaging_event (at, type, data, pair_id, message_id) VALUES (now(), %s, '{}', %s, %s)",
        [kind, pair.pk if pair else None, message_pk],
    )


def test_counts_are_those_of_the_events_in_whatever_order_they_commit(
    spark: SparkSession, lake: Path, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from messaging.pipeline.live import query

    partner, second = partner_side(), partner_side()
    count = live_watch.apply

    def watch(stop: threading.Event | None = None) -> None:
        query.run(lambda: spark, once=True, stop=stop or threading.Event(), say=lambda line: None)

    with connection.cursor() as cursor:
        for number in range(3):
            event(cursor, "message.accepted", partner.outbound)
            event(cursor, "message.delivered", partner.outbound, message(cursor, partner, 1.5 + number))
            event(cursor, "message.retrying", second.outbound)
            event(cursor, "message.received", second.inbound)
            event(cursor, "trigger.suspended", None)
        event(cursor, "message.delivered", second.outbound)  # its message is gone: counted, and no latency is known
        monkeypatch.setattr(query, "EVERY_SECONDS", 0)
        place = live_watch.begin(lambda epoch: False)
        running = query.start(spark, place, [], once=False, rows=6)
        try:
            running.processAllAvailable()
            assert rows(COUNTED) == rows(EXPECTED)
            assert sum(minute.acks for minute in LiveMinute.objects.all()) == 3
            state = LiveState.objects.get()
            assert state.batch == 2  # 6 of 16 rows each

            # A transaction that is open has earlier numbers than what commits meanwhile.
            with other.cursor() as early:
                event(early, "message.accepted", second.outbound)
            event(cursor, "message.accepted", partner.outbound)
            before = rows(COUNTED)
            running.processAllAvailable()
            assert rows(COUNTED) == before
            assert LiveState.objects.get().through == state.through
            other.commit()
            running.processAllAvailable()
            assert rows(COUNTED) == rows(EXPECTED)
        finally:
            running.stop()
        assert LiveState.objects.get().batch == 3  # and none for nothing

        # It ends between the commit of the counts and Spark's own note of the batch, which comes again.
        stop = threading.Event()

        def counted_and_gone(**batch: Any) -> None:
            assert count(**batch)
            stop.set()
            raise SystemError("gone")

        event(cursor, "message.accepted", partner.outbound)
        monkeypatch.setattr(live_watch, "apply", counted_and_gone)
        watch(stop)
        assert rows(COUNTED) == rows(EXPECTED)
        again: list[bool] = []
        monkeypatch.setattr(live_watch, "apply", lambda **batch: again.append(count(**batch)))
        event(cursor, "message.received", partner.inbound)
        watch()
        assert again == [False, True]
        assert rows(COUNTED) == rows(EXPECTED)
        assert LiveState.objects.get().epoch == place.epoch

        # The checkpoint is lost; then a batch cannot be counted, and the watch ends with what was the matter.
        def refused(**batch: Any) -> None:
            raise ValueError("not today")

        shutil.rmtree(lake)
        event(cursor, "message.accepted", partner.outbound)
        monkeypatch.setattr(live_watch, "apply", refused)
        with pytest.raises(ValueError, match="not today"):
            watch()
        monkeypatch.setattr(live_watch, "apply", count)
        watch()
        assert rows(COUNTED) == rows(EXPECTED)
        assert LiveState.objects.get().epoch != place.epoch


@pytest.mark.long
@pytest.mark.acceptance
def test_a_watch_whose_python_process_starts_too_late_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from messaging.pipeline.live import query

    tried: list[int] = []
    said: list[str] = []

    def watch(*failures: Exception) -> None:
        left = list(failures)

        def tries(*args: object, **options: object) -> None:
            tried.append(1)
            if left:
                raise left.pop(0)

        monkeypatch.setattr(query, "_watch", tries)
        query.run(lambda: pytest.fail("no session is made"), once=True, stop=threading.Event(), say=said.append)

    late = RuntimeError(f"{query.NOT_STARTED}.")
    watch(late, late)
    assert (len(tried), len(said)) == (3, 2)
    with pytest.raises(RuntimeError, match="connect back"):
        watch(*[late] * query.STARTS)
    assert len(tried) == 3 + query.STARTS
    with pytest.raises(ValueError):
        watch(ValueError("another one"))
    assert len(tried) == 4 + query.STARTS


def test_killed_in_the_middle_it_has_counted_each_event_once(lake: Path, tmp_path: Path) -> None:
    partner = partner_side()
    with connection.cursor() as cursor:
        cursor.execute(MANY)
        try:
            cursor.execute("CALL many_events(%s, 250)", [[partner.outbound.pk, partner.inbound.pk]])
        finally:
            cursor.execute("DROP PROCEDURE many_events")
    killed = _begin(lake, tmp_path)
    try:
        _until(lambda: LiveState.objects.filter(batch__gte=0).exists(), killed)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)  # Python, the JVM and its workers
        killed.communicate()
    counted = sum(minute.accepted for minute in LiveMinute.objects.all())
    assert 0 < counted < 6_250, "it was to be killed in the middle"
    epoch = LiveState.objects.get().epoch
    again = _begin(lake, tmp_path)
    try:
        _until(lambda: sum(minute.accepted for minute in LiveMinute.objects.all()) >= 6_250, again)
    finally:
        again.terminate()
        output, _ = again.communicate(timeout=60)
    assert again.returncode == 0, output
    assert "The live watch has ended." in output
    assert rows(COUNTED) == rows(EXPECTED)
    assert sum(minute.accepted for minute in LiveMinute.objects.all()) == 6_250
    assert LiveState.objects.get().epoch == epoch  # it went on from its checkpoint


def _begin(lake: Path, folder: Path) -> subprocess.Popen[str]:
    database = connection.settings_dict
    password = f":{quote(database['PASSWORD'])}" if database["PASSWORD"] else ""
    url = f"postgresql://{database['USER']}{password}@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    return subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "pipeline", "live"],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "rmhub.settings",
            "DATABASE_URL": url,
            "RMHUB_VAR": str(folder / "var"),
            "RMHUB_LAKE_DIR": str(lake),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _until(condition: Any, process: subprocess.Popen[str], seconds: float = 300) -> None:
    def holds() -> Any:
        value = condition()
        assert value or process.poll() is None, process.communicate()[0]
        return value

    eventually(holds, seconds)


@pytest.mark.django_db
def test_sparks_workers_reach_the_database_as_its_url_says(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from messaging.pipeline.live import query

    options = {**connection.settings_dict["OPTIONS"], "sslmode": "verify-full", "target_session_attrs": "read-write"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    monkeypatch.setitem(connection.settings_dict, "HOST", "db1,db2")
    monkeypatch.setitem(connection.settings_dict, "PORT", "5433,5434")
    found = conninfo_to_dict(query._dsn())
    assert (found["host"], found["port"]) == ("db1,db2", "5433,5434")
    assert (found["sslmode"], found["target_session_attrs"]) == ("verify-full", "read-write")
    assert not {"prepare_threshold", "server_side_binding"} & set(found)
