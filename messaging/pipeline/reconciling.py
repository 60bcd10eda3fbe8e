"""The job RECONCILE: a partner's log against ours. The log is read into our columns first, then Spark compares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from messaging.models import PartnerLog, PipelineRun
from messaging.models.base import existing
from messaging.pipeline import partner_logs
from messaging.pipeline.jobs import reconcile
from messaging.pipeline.jobs.frames import schema
from messaging.pipeline.partner_logs import EXPORTED, Normalised, UnreadableLog
from messaging.reports.services import partner_logs as logs
from messaging.reports.services import publishing
from rmhub.ids import public_id, read_public_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from messaging.pipeline.driver import Context

# Our messages are read from so long before the range and after it. What the partner received in the range may have come
# to us long before that, and waited for a suspended pair.
BEFORE, AFTER = timedelta(days=31), timedelta(days=7)


def run(context: Context) -> None:
    """Compares the log that the run names (`log`: plog_...) and publishes what was found under the log's id.

    A row that cannot be read fails the run, since its message would count as lost; with `skip_unreadable` the log is
    compared without such rows, and the run's facts say how many there were.
    """
    log = _log(context.run)
    try:
        _compare(context, log)
    except UnreadableLog as error:
        logs.log_ended(log, error=error.detail)
        raise
    logs.log_ended(log)


def _compare(context: Context, log: PartnerLog) -> None:
    target = publishing.folder_of(context.run) / "partner-log.parquet"
    context.progress("Reading the partner's log")
    read = partner_logs.normalise(
        logs.path_of(log), log.columns, target, lambda rows: context.progress("Reading the partner's log", rows)
    )
    if read.unreadable and not context.run.parameters.get("skip_unreadable"):
        target.unlink(missing_ok=True)
        raise UnreadableLog(f"{read.sentence()} Fix them, or compare without them.")
    begin, end = covered(log, read)
    logs.log_read(log, context.run, rows=read.rows, range_from=begin, range_to=end)
    context.extract()
    inputs, facts = context.inputs(_needed(), begin - BEFORE, end + AFTER)
    inputs = ours(inputs, log)
    inputs["log"] = within(their_log(context.session(), target), begin, end)
    as_of = datetime.fromisoformat(str(facts["as_of"]))
    tables = reconcile.run(inputs, context.parameters(as_of))
    context.artifact("partner-log.parquet", target, read.rows)
    context.publish(
        tables,
        data_as_of=as_of,
        log={
            "id": log.public_id,
            "sha256": log.sha256,
            "rows": read.rows,
            "unreadable": read.unreadable,
            "errors": read.errors,
            "columns": log.columns,
            "from": begin.isoformat(),
            "to": end.isoformat(),
        },
        **facts,
    )


def covered(log: PartnerLog, read: Normalised) -> tuple[datetime, datetime]:
    """What time the log covers: as it was said, else from its first row to its last. Raises UnreadableLog."""
    begin = log.range_from or read.first_at
    end = log.range_to or (read.last_at + timedelta(microseconds=1) if read.last_at else None)
    if begin is None or end is None:
        raise UnreadableLog("The log has no times: say from when to when it covers what was exchanged.")
    if begin >= end:
        raise UnreadableLog(
            "The range that was given and the times in the log do not meet: correct the range, or the column of `at`."
        )
    return begin, end


def ours(inputs: Mapping[str, DataFrame], log: PartnerLog) -> dict[str, DataFrame]:
    """Our side: messages with the partner (and under the agreement), with the digest that the partner's log has."""
    parameters = {"party": log.party.public_id}
    if log.agreement_id is not None:
        parameters["agreement"] = public_id("agr", log.agreement_id)
    found = partner_logs.of_partner(inputs, parameters)
    if log.columns.get("digest_of") == "payload":
        from pyspark.sql import functions as F

        found["messages"] = found["messages"].withColumn("digest", F.col("payload_digest"))
    return found


def their_log(spark: SparkSession, path: Path) -> DataFrame:
    """The normalised log."""
    columns = "message_id string, direction string, at timestamp, digest string, status string, sequence_number long"
    return spark.read.schema(schema(columns)).parquet(str(path.resolve()))


def within(log: DataFrame, begin: datetime, end: datetime) -> DataFrame:
    """The rows of the range, and those without a time: of the others our side was not read."""
    from pyspark.sql import functions as F

    return log.where(F.col("at").isNull() | ((F.col("at") >= F.lit(begin)) & (F.col("at") < F.lit(end))))


def _needed() -> dict[str, tuple[str, ...]]:
    """What the job reads, and what its messages are chosen by."""
    mine = {**EXPORTED, "messages": (*EXPORTED["messages"], "payload_digest")}
    wanted: dict[str, tuple[str, ...]] = {}
    for source in (reconcile.INPUTS, mine):
        for entity, columns in source.items():
            if entity != "log":
                wanted[entity] = tuple(dict.fromkeys((*wanted.get(entity, ()), *columns)))
    return wanted


def _log(run: PipelineRun) -> PartnerLog:
    key = read_public_id("plog", str(run.parameters.get("log") or run.scope))
    return existing(PartnerLog.objects.select_related("party"), key)
