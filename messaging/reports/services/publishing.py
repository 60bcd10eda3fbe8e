"""Publishes the results of a run: all its rows, and the switch to them, in one transaction.

Readers follow `PublishedReport`; they see the run before or this one, never half of either.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, models, transaction

from messaging.exceptions import InvalidSubmission
from messaging.models import PipelineRun, PublishedReport
from messaging.report_choices import RunState
from messaging.reports.catalogue import REPORTS, Report, Table
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

RUNS_KEPT = 10  # with their rows and files, for each job and scope; the runs themselves stay
_TIDIED_AT_ONCE = 20

Rows = Iterable[Sequence[Any]]


def publish(
    run: PipelineRun,
    tables: Mapping[str, Rows],
    *,
    data_as_of: datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    artifacts: list[dict[str, Any]] | None = None,
) -> int:
    """Writes the rows of each table of the run's report and makes the run the one that is shown; returns their number.

    `run` is the run as it was claimed; `tables`: name -> rows, whose values are in the order of `Table.columns`. Every
    table of the report must be there. Raises ClaimLost (cancelled, or the lease ended), InvalidSubmission for rows that
    do not fit; nothing is written then.
    """
    report = REPORTS.get(run.job)
    if report is None:
        raise InvalidSubmission({"job": [f"{run.get_job_display()} has no report."]})
    names = {table.name for table in report.tables}
    if names != set(tables):
        raise InvalidSubmission({"tables": [f"Needed: {', '.join(sorted(names))}; got: {', '.join(sorted(tables))}."]})
    with transaction.atomic(durable=not connection.in_atomic_block):
        # Rows first and the run's lock last: until then it can be cancelled, and its lease be renewed.
        rows = sum(_copy(run, table, tables[table.name]) for table in report.tables)
        row = pipeline_runs.lock_for_end(run)
        PublishedReport.objects.update_or_create(
            job=run.job, scope=run.scope, defaults={"run": row, "published_at": clock.now()}
        )
        pipeline_runs.run_succeed(run, rows=rows, data_as_of=data_as_of, facts=facts, artifacts=artifacts)
        _drop_older(run, report)
    return rows


def folder_of(run: PipelineRun) -> Path:
    """Where the files of a run's results lie: below the lake's folder."""
    return Path(settings.RMHUB_LAKE_DIR) / "reports" / run.id.hex


def _copy(run: PipelineRun, table: Table, rows: Rows) -> int:
    columns = table.columns
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in columns)
    count = 0
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {table.model._meta.db_table} (run_id, {names}) FROM STDIN") as copy,
    ):
        for values in _fitted(table, rows):
            copy.write_row((run.pk, *values))
            count += 1
    return count


def _fitted(table: Table, rows: Rows) -> Iterator[list[Any]]:
    columns = table.columns
    for number, values in enumerate(rows, 1):
        if len(values) != len(columns):
            raise InvalidSubmission({table.name: [f"Row {number} has {len(values)} values, not {len(columns)}."]})
        fitted = []
        for field, value in zip(columns, values, strict=True):
            try:
                fitted.append(_value(field, value))
            except ValueError as error:
                raise InvalidSubmission({table.name: [f"Row {number}, {field.name}: {error}"]}) from error
        yield fitted


def _value(field: models.Field, value: Any) -> Any:
    """What the column takes. Raises ValueError."""
    if value is None and not field.null:
        if not field.has_default():
            raise ValueError("empty, and the column is not")
        value = field.get_default()
    if value is None:
        return None
    if isinstance(field, models.JSONField):
        return json.dumps(_without_nul(value), default=str)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)  # Spark's sessions are in UTC
    if not isinstance(value, str):
        return value
    value = _without_nul(value)
    if isinstance(field, models.CharField) and field.max_length is not None and len(value) > field.max_length:
        raise ValueError(f"{len(value)} characters, and the column holds {field.max_length}")
    return value


def _without_nul(value: Any) -> Any:
    """PostgreSQL's texts cannot hold it."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    return [_without_nul(one) for one in value] if isinstance(value, list) else value


def _drop_older(run: PipelineRun, report: Report) -> None:
    """Rows and files of the runs that nobody is shown any more."""
    ended = PipelineRun.objects.filter(job=run.job, scope=run.scope, state=RunState.SUCCEEDED)
    older = list(ended.order_by("-finished_at", "-id")[RUNS_KEPT : RUNS_KEPT + _TIDIED_AT_ONCE])
    if not older:
        return
    keys = [each.pk for each in older]
    with connection.cursor() as cursor:
        for table in report.tables:
            name = table.model._meta.db_table
            cursor.execute(f"DELETE FROM {name} WHERE run_id = ANY(%s)", [keys])  # noqa: S608  (a model's name)
    PipelineRun.objects.filter(pk__in=keys).update(artifacts=[])
    for each in older:
        transaction.on_commit(partial(shutil.rmtree, folder_of(each), ignore_errors=True))
