"""The streaming query: events of one micro batch to counts by pair and minute, and those to
`reports.services.live_watch`."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, connections
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo
from pyspark import cloudpickle
from pyspark.sql import functions as f

from messaging.models.feed import HORIZON
from messaging.models.traffic import COUNTED
from messaging.pipeline import session
from messaging.pipeline.live import source
from messaging.reports.services import live_watch
from messaging.reports.services.live_watch import Memory, Minute, Place
from rmhub import clock
from rmhub.postgresql.base import Lock, locked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MASTER = "local[1]"
BATCH_ROWS = 20_000
EVERY_SECONDS = 5
LOOK_SECONDS = 30
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK = 0x524D4858  # key of the advisory lock that keeps a second watch from starting


class Busy(Exception):
    """Another live watch runs on this database."""


def minutes(batch: DataFrame, counted: int) -> DataFrame:
    """Counts by pair and minute of the events of transactions from `counted` on.

    Columns: those of LiveMinute, and of the whole batch `begin`, `through` and `as_of` (see `source.SCHEMA`). Times are
    microseconds since 1970: collected timestamps would be in the time zone of this process.
    """
    fresh = f.col("xid") >= f.lit(counted)

    def count(condition: Column) -> Column:
        return f.count(f.when(fresh & condition, f.lit(1)))

    # Of events before `counted`, too, a row is made, so that a batch without news says how far it went.
    return (
        batch.coalesce(1)
        .groupBy("pair_id", f.unix_micros(f.date_trunc("minute", "at")).alias("minute"))
        .agg(
            *(count(f.col("type").isin(*types)).alias(name) for name, types in COUNTED.items()),
            count(f.col("ack_seconds").isNotNull()).alias("acks"),
            f.coalesce(f.sum(f.when(fresh, f.col("ack_seconds"))), f.lit(0.0)).alias("ack_seconds"),
            f.coalesce(f.max(f.when(fresh, f.col("ack_seconds"))), f.lit(0.0)).alias("ack_longest"),
            f.min("begin").alias("begin"),
            f.max("through").alias("through"),
            f.unix_micros(f.max("as_of")).alias("as_of"),
        )
    )


def counting(place: Place, failures: list[Exception]) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls: counts a batch in one transaction. `failures`: where it puts what it raises."""

    def count(batch: DataFrame, number: int) -> None:
        try:
            counted = live_watch.counted_through(place.query, place.epoch)
            rows = minutes(batch, counted).collect()
            if rows:
                live_watch.apply(
                    query=place.query,
                    epoch=place.epoch,
                    batch=number,
                    begin=min(row["begin"] for row in rows),
                    counted=counted,
                    through=max(row["through"] for row in rows),
                    as_of=max(_instant(row["as_of"]) for row in rows),
                    minutes=[_minute(row) for row in rows if row["pair_id"] is not None and any(row[2:11])],
                )
        except Exception as error:
            failures.append(error)
            raise
        finally:
            connections.close_all()  # of the thread that Spark called us on

    return count


def _minute(row: Any) -> Minute:
    values = row.asDict()
    return Minute(
        **{name: values[name] for name in Minute._fields}
        | {"pair_id": uuid.UUID(values["pair_id"]), "minute": _instant(values["minute"])}
    )


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def small_session() -> SparkSession:
    """A session for one thread's work in little memory, whatever SPARK_MASTER says: batches are small."""
    session.prepare_environment(MASTER)
    from pyspark.sql import SparkSession

    # It says so whenever a batch is counted, and prints what `_follow` raises.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    options = session.configuration(MASTER, rows=0)
    options |= {
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
    }
    made = SparkSession.builder.master(MASTER).appName("rmhub live").config(map=dict(options)).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def end_session() -> None:
    """Ends the session and its JVM; does nothing when there is none."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        with suppress(Exception):  # it may be the JVM that has died
            active.stop()
    session.stop()


def folder() -> Path:
    """Where checkpoints lie."""
    return Path(settings.RMHUB_LAKE_DIR) / "live"


def checkpoint(epoch: uuid.UUID) -> Path:
    """The folder of one checkpoint."""
    return folder() / f"checkpoint-{epoch}"


def start(
    spark: SparkSession, place: Place, failures: list[Exception], *, once: bool, rows: int = BATCH_ROWS
) -> StreamingQuery:
    """Begins, or goes on where the checkpoint says."""
    # By value: workers need not have the hub's own code on their path.
    cloudpickle.register_pickle_by_value(source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(source.HubEvents)
    stream = (
        spark.readStream.format(source.NAME)
        .option("dsn", _dsn())
        .option("horizon", HORIZON)
        .option("first", str(place.through))
        .option("rows", str(rows))
        .load()
    )
    writer = stream.writeStream.queryName("live").foreachBatch(counting(place, failures))
    writer = writer.option("checkpointLocation", checkpoint(place.epoch).as_uri())
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{EVERY_SECONDS} seconds")
    return writer.start()


# Spark gives the Python process of a source ten seconds to start, whatever is configured; a busy machine needs longer.
NOT_STARTED = "Python worker failed to connect back"
STARTS = 5


def run(
    spark: Callable[[], SparkSession],
    *,
    once: bool,
    stop: Flag,
    say: Callable[[str], None],
    rows: int = BATCH_ROWS,
) -> None:
    """Watches until `stop` is set; `once`: counts what is there, judges, and returns.

    Raises Busy, and what the query failed with; then the next watch begins with a new checkpoint, which is always safe.
    """
    for left in reversed(range(STARTS)):
        try:
            _watch(spark, once=once, stop=stop, say=say, rows=rows)
            return
        except Exception as error:
            if not left or NOT_STARTED not in str(error):
                raise
            say("Spark's Python process did not start in time; the watch begins again.")


def _watch(spark: Callable[[], SparkSession], *, once: bool, stop: Flag, say: Callable[[str], None], rows: int) -> None:
    with _alone() as alone:
        folder().mkdir(parents=True, exist_ok=True)
        place = live_watch.begin(lambda epoch: (checkpoint(epoch) / "offsets").is_dir())
        for other in folder().glob("checkpoint-*"):
            if other != checkpoint(place.epoch):
                shutil.rmtree(other, ignore_errors=True)
        checkpoint(place.epoch).mkdir(exist_ok=True)
        failures: list[Exception] = []
        query = start(spark(), place, failures, once=once, rows=rows)
        say(f"Counting from transaction {place.through:,} on.")
        memory = Memory(since=None if once else clock.now())
        try:
            _follow(query, place, memory, failures, alone, once=once, stop=stop, say=say)
        except Exception:
            if stop.is_set():  # the JVM got the signal too, and was faster
                return
            shutil.rmtree(checkpoint(place.epoch), ignore_errors=True)
            raise


def _follow(
    query: StreamingQuery,
    place: Place,
    memory: Memory,
    failures: list[Exception],
    alone: Lock,
    *,
    once: bool,
    stop: Flag,
    say: Callable[[str], None],
) -> None:
    looked = clock.now()
    while query.isActive and not stop.is_set() and not failures:
        stop.wait(0.2 if once else 1.0)
        if not once and (clock.now() - looked).total_seconds() >= LOOK_SECONDS:
            looked = clock.now()
            alone.check()  # else another watch may run by now
            _look(place, memory, say)
    if stop.is_set():
        _end(query)
        return
    if failures:
        raise failures[0]  # in its own words, without Spark's around it
    failed = query.exception()
    if failed is not None:
        raise failed
    if once:
        _look(place, memory, say)


def _look(place: Place, memory: Memory, say: Callable[[str], None]) -> None:
    for incident in live_watch.look(place, memory):
        say(f"{incident}: {incident.detail}")


def _end(query: StreamingQuery) -> None:
    """Lets a batch that is being counted come to its end; were it cut off, it would be counted at the next start."""
    waited = Flag()
    for _ in range(100):
        if not query.isActive or not query.status["isTriggerActive"]:
            break
        waited.wait(0.1)
    query.stop()


@contextmanager
def _alone() -> Iterator[Lock]:
    with locked(_LOCK, wait=False) as lock:
        if lock is None:
            raise Busy("Another live watch runs on this database. One is enough.")
        yield lock


def _dsn() -> str:
    """The hub's database for Spark's workers; a password goes to a file that only this user reads."""
    database = connection.settings_dict
    libpq = {option.keyword.decode() for option in Conninfo.get_defaults()}
    given = {
        **{name: value for name, value in database["OPTIONS"].items() if name in libpq},
        "host": database["HOST"],
        "port": database["PORT"],
        "dbname": database["NAME"],
        "user": database["USER"],
        "application_name": "rmhub live source",
    }
    if database["PASSWORD"]:
        path = folder() / "passfile"
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            escaped = str(database["PASSWORD"]).replace("\\", "\\\\").replace(":", "\\:")
            file.write(f"*:*:*:*:{escaped}\n")
        given["passfile"] = str(path)
    return make_conninfo(**{name: value for name, value in given.items() if value})
