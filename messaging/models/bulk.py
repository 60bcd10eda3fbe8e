"""One statement for many rows: UPDATE ... FROM unnest(...), which Django's bulk_update (CASE WHEN) is no match for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connection, models


def bulk_set(rows: Sequence[models.Model], fields: Iterable[str]) -> int:
    """Writes `fields` of all rows (of one model) and returns how many rows the database found.

    Fields are named as attributes (`in_flight_id`). Sends nothing for no rows.
    """
    if not rows:
        return 0
    meta = rows[0]._meta
    assert meta.pk is not None
    by_name = {column.attname: column for column in meta.concrete_fields}
    columns = [by_name[name] for name in fields]
    key = meta.pk
    arrays: list[list[object]] = [[key.get_db_prep_value(row.pk, connection) for row in rows]]
    casts: list[str | None] = [key.db_type(connection)]
    for column in columns:
        arrays.append([column.get_db_prep_save(getattr(row, column.attname), connection) for row in rows])
        casts.append(column.db_type(connection))
    quote = connection.ops.quote_name
    names = ["k", *(f"c{i}" for i in range(len(columns)))]
    assignments = ", ".join(f"{quote(column.column)} = v.c{i}" for i, column in enumerate(columns))
    unnest = ", ".join(f"%s::{cast}[]" for cast in casts)
    sql = (
        f"UPDATE {quote(meta.db_table)} AS t SET {assignments} "  # noqa: S608  (names come from the model, not from input)
        f"FROM unnest({unnest}) AS v({', '.join(names)}) WHERE t.{quote(key.column)} = v.k"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, arrays)
        return int(cursor.rowcount)
