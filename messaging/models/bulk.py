"""One statement for many rows: INSERT and UPDATE from unnest(...) arrays, and rows of a SELECT that is written by hand.

The text of a statement does not depend on the number of rows, so the server prepares it once; and values skip the
per-row work of Django's insert compiler, of bulk_update's CASE WHEN and of a model's constructor. Used where a group of
messages is read and written: with the models' own fields, so that these say what a column is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cache, partial
from typing import Any, TypeVar

from django.db import connection, models
from django.db.models.base import ModelState
from psycopg.pq import PipelineStatus

from messaging.models.base import OctetsField
from messaging.octets import pack

EVERY = re.compile(r"\b(SELECT|RETURNING) (\w+\.)?\*")
Convert = Callable[[Any], Any]
Row = TypeVar("Row", bound=models.Model)


@contextmanager
def together() -> Iterator[None]:
    """Sends the statements of the block without waiting for each: one round trip to the server instead of one each.

    For functions of this module, and within a transaction. What the database refuses is raised at the end of the block
    at the latest (django.db.Error). Reading within the block works, and waits; but what the driver says of a statement
    that has no rows (`rowcount`, and so `save(update_fields=...)`) is not known in it.
    """
    connection.ensure_connection()
    raw = connection.connection
    if raw.pgconn.pipeline_status != PipelineStatus.OFF:
        yield  # part of a larger block
        return
    with connection.wrap_database_errors, raw.pipeline():
        yield


def read(model: type[Row], sql: str, params: Sequence[Any] = ()) -> list[Row]:
    """The rows that a statement returns, which has to name the columns of the table `model`; what it leaves out is
    deferred. The first statement of a transaction goes with its BEGIN.

    `SELECT *` (or `RETURNING t.*`) means the columns that the model knows, and is sent as these: the migrations of a
    later release may add some while this code runs, and the server refuses prepared statements whose rows change.
    """
    with connection.cursor() as cursor:
        with together():
            cursor.execute(_named(model, sql), params)
        found = cursor.fetchall()
        names, converters = _read(model, tuple(column.name for column in cursor.description))
        return [_made(model, names, converters, values) for values in found]


@cache
def _named(model: type[models.Model], sql: str) -> str:
    """The statement with the model's columns for the first `*`: those below it are its own affair."""

    def named(found: re.Match[str]) -> str:
        of = found[2] or ""
        return f"{found[1]} " + ", ".join(f"{of}{field.column}" for field in model._meta.concrete_fields)

    return EVERY.sub(named, sql, count=1)


def _made(
    model: type[Row], names: Sequence[str], converters: Sequence[tuple[str, Convert]], values: Sequence[Any]
) -> Row:
    """As `Model.from_db`, without the work of a constructor that looks at each field."""
    row = model.__new__(model)
    fields = row.__dict__
    fields["_state"] = state = ModelState()
    state.adding, state.db = False, connection.alias
    fields.update(zip(names, values, strict=True))
    for name, convert in converters:
        fields[name] = convert(fields[name])
    return row


@cache
def _read(model: type[models.Model], columns: tuple[str, ...]) -> tuple[list[str], list[tuple[str, Convert]]]:
    """The attributes of these columns, and what makes the values of some."""
    fields = {field.column: field for field in model._meta.concrete_fields}
    converters: list[tuple[str, Convert]] = [
        (fields[name].attname, partial(made, expression=None, connection=connection))
        for name in columns
        for made in fields[name].get_db_converters(connection)
    ]
    return [fields[name].attname for name in columns], converters


def bulk_set(rows: Sequence[models.Model], fields: Iterable[str]) -> None:
    """Writes `fields` of all rows (of one model).

    Fields are named as attributes (`in_flight_id`). Sends nothing for no rows.
    """
    if not rows:
        return
    sql, columns = _update(type(rows[0]), tuple(fields))
    with connection.cursor() as cursor:
        cursor.execute(sql, _arrays(rows, columns))


def update_in_order(rows: models.QuerySet[Any], *, skip_locked: bool = False, **values: Any) -> int:
    """Locks the rows in the order of their keys, then writes `values` to all of them; returns how many rows these are.

    Call it in a transaction. An UPDATE alone locks its rows in any order, and so may deadlock with whoever waits for
    the same rows in order. `skip_locked`: passes over rows that somebody else holds.
    """
    locked = rows.order_by("pk").select_for_update(skip_locked=skip_locked)
    keys = list(locked.values_list("pk", flat=True))
    return int(rows.model._default_manager.filter(pk__in=keys).update(**values))


def bulk_insert(rows: Sequence[models.Model], *, returning_key: bool = False, asking: str = "NULL") -> Any:
    """Inserts all rows (of one model), whose defaults in Python are filled in; columns with a database default are left
    to it. With `returning_key` the rows get the keys that the database made, and the value of the SQL expression
    `asking`, which the same statement evaluates, is returned. Raises IntegrityError like any insert.
    """
    if not rows:
        return None
    sql, columns = _insert(type(rows[0]), asking if returning_key else None)
    answer = None
    with connection.cursor() as cursor:
        cursor.execute(sql, _arrays(rows, columns))
        if returning_key:
            for row, (key, answer) in zip(rows, cursor.fetchall(), strict=True):  # noqa: B007  (the same in each)
                row.pk = key
    for row in rows:
        row._state.adding = False
    return answer


def _arrays(rows: Sequence[models.Model], columns: tuple[tuple[str, Convert | None], ...]) -> list[list[Any]]:
    return [
        [getattr(row, name) for row in rows] if convert is None else [convert(getattr(row, name)) for row in rows]
        for name, convert in columns
    ]


@cache
def _update(model: type[models.Model], fields: tuple[str, ...]) -> tuple[str, tuple[tuple[str, Convert | None], ...]]:
    meta = model._meta
    key = meta.pk
    assert key is not None
    by_name = {column.attname: column for column in meta.concrete_fields}
    columns = [key, *(by_name[name] for name in fields)]
    quote = connection.ops.quote_name
    names = [f"c{i}" for i in range(len(columns))]
    assignments = ", ".join(f"{quote(str(c.column))} = v.{n}" for c, n in zip(columns[1:], names[1:], strict=True))
    sql = (
        f"UPDATE {quote(meta.db_table)} AS t SET {assignments} "  # noqa: S608  (names come from the model)
        f"FROM unnest({_casts(columns)}) AS v({', '.join(names)}) WHERE t.{quote(str(key.column))} = v.c0"
    )
    return sql, tuple((column.attname, _converter(column)) for column in columns)


@cache
def _insert(model: type[models.Model], asking: str | None) -> tuple[str, tuple[tuple[str, Convert | None], ...]]:
    meta = model._meta
    columns = [
        column
        for column in meta.concrete_fields
        if not isinstance(column, models.AutoField)
        and column.db_default is models.NOT_PROVIDED
        and not column.generated
    ]
    quote = connection.ops.quote_name
    names = ", ".join(quote(str(column.column)) for column in columns)
    sql = (
        f"INSERT INTO {quote(meta.db_table)} ({names}) "  # noqa: S608  (names come from the model)
        f"SELECT * FROM unnest({_casts(columns)})"
    )
    if asking is not None:
        assert meta.pk is not None
        sql += f" RETURNING {quote(str(meta.pk.column))}, {asking}"
    return sql, tuple((column.attname, _converter(column)) for column in columns)


def _casts(columns: Sequence[models.Field[Any, Any]]) -> str:
    return ", ".join(f"%b::{column.db_type(connection)}[]" for column in columns)


def _converter(column: models.Field[Any, Any]) -> Convert | None:
    """What makes a field's value one that the driver knows; None when it is already (UUID, number, instant, bytes)."""
    if isinstance(column, models.ForeignKey):
        return _converter(column.target_field)
    if isinstance(column, models.CharField | models.TextField):
        return _text
    if isinstance(column, models.JSONField):
        return lambda value: column.get_db_prep_save(value, connection)
    if isinstance(column, models.DecimalField):
        return lambda value: None if value is None else Decimal(value)
    if isinstance(column, OctetsField):
        return lambda value: None if value is None else pack(value)
    plain = (models.UUIDField, models.IntegerField, models.BooleanField, models.DateField, models.BinaryField)
    if isinstance(column, plain):
        return None
    raise TypeError(f"{column} cannot be written in bulk")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)  # members of a StrEnum become their value
