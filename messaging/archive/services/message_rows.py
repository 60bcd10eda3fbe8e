"""What belongs to a message, in all its tables: read whole, counted as proof, deleted, and put back as it was.

The archive copies what is here, purging deletes it, restoring writes it again: a table that names messages is entered
once, and all three know it. What stays when a message goes (`MessageIdentity`, remembered requests, document history,
incidents, the audit log) is not here.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from django.db import connection, models, transaction

from messaging.models import CoordinationMessage, Delivery, Event, Join, Message, Payload, Signal, Transmission
from messaging.models.base import OctetsField
from messaging.octets import OctetsDamaged, pack, unpack

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One table. `owner` is SQL that gives the message of a row of `t`; `where` finds those of messages `%(ids)s`."""

    name: str
    model: type[models.Model]
    owner: str
    where: str
    order: str

    @property
    def table(self) -> str:
        return str(self.model._meta.db_table)


_SIGNALS = "SELECT s.id FROM messaging_signal s WHERE s.about_id = ANY(%(ids)s)"
PAYLOADS = Part("payloads", Payload, "t.message_id", "t.message_id = ANY(%(ids)s)", "t.number")
SIGNALS = Part("signals", Signal, "t.about_id", "t.about_id = ANY(%(ids)s)", "t.id")
TRANSMISSIONS = Part(
    "transmissions",
    Transmission,
    "coalesce(t.message_id, (SELECT s.about_id FROM messaging_signal s WHERE s.id = t.signal_id))",
    f"(t.message_id = ANY(%(ids)s) OR t.signal_id = ANY(ARRAY({_SIGNALS})))",
    "t.id",
)
DELIVERIES = Part("deliveries", Delivery, "t.message_id", "t.message_id = ANY(%(ids)s)", "t.id")
EVENTS = Part("events", Event, "t.message_id", "t.message_id = ANY(%(ids)s)", "t.id")
COORDINATING = Part("coordinating", CoordinationMessage, "t.message_id", "t.message_id = ANY(%(ids)s)", "t.message_id")
# Transmissions of signals are found by the signals, so they come before them wherever rows are deleted.
PARTS = (PAYLOADS, TRANSMISSIONS, SIGNALS, DELIVERIES, EVENTS, COORDINATING)
# Those that a proof counts. What a message was to its transaction changes with the message, whose row says so.
_PROVED = (PAYLOADS, TRANSMISSIONS, SIGNALS, DELIVERIES, EVENTS)
# Those whose rows are changed or added to after the message was stored; all of them have `xid`.
_WRITTEN = (TRANSMISSIONS, SIGNALS, DELIVERIES, EVENTS)


class Proof(NamedTuple):
    """Two equal ones of a message say that none of its rows was changed, added or taken away in between."""

    written: int  # the highest transaction
    entries: int  # rows in all tables


@dataclass(slots=True)
class MessageRows:
    """A message with everything that belongs to it: column -> value, JSON as text, octets unpacked. `joins`: those of
    its deliveries. `damaged`: which octets cannot be unpacked; "" = none.
    """

    message: Row
    parts: dict[str, list[Row]] = field(default_factory=dict)
    joins: list[Row] = field(default_factory=list)
    damaged: str = ""

    @property
    def proof(self) -> Proof:
        rows = [row for part in _PROVED for row in self.parts.get(part.name, ())]
        return Proof(max(row.get("xid", 0) for row in (self.message, *rows)), 1 + len(rows))


@cache
def columns(model: type[models.Model]) -> tuple[models.Field[Any, Any], ...]:
    """All columns of a table, those with a database default and the keys too, but for those that are generated."""
    return tuple(field for field in model._meta.concrete_fields if not field.generated)


@contextmanager
def snapshot() -> Iterator[None]:
    """What is read within is of one moment. Not inside another transaction, but for that of a test."""
    outermost = not connection.in_atomic_block
    with transaction.atomic(durable=True):
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def read(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, MessageRows]:
    """Everything of these messages, as far as they are in the store. Within `snapshot`, or under their locks: else what
    is read of one message may be of two moments, and its proof none.
    """
    found = {row["id"]: MessageRows(row) for row in _rows(Message, "t.id = ANY(%(ids)s)", {"ids": list(ids)})}
    names = list(found)
    for one in found.values():
        one.parts = {part.name: [] for part in PARTS}
        one.damaged = one.message.pop("_damaged", "")
    for part in PARTS:
        for row in _rows(part.model, part.where, {"ids": names}, owner=part.owner, order=part.order):
            owner = found.get(row.pop("_owner"))
            if owner is not None:
                owner.damaged = row.pop("_damaged", "") or owner.damaged
                owner.parts[part.name].append(row)
    named = {
        row[column]
        for one in found.values()
        for row in one.parts["deliveries"]
        for column in ("join_id", "part_of_id")
        if row[column] is not None
    }
    joins = {row["id"]: row for row in _rows(Join, "t.id = ANY(%(ids)s)", {"ids": list(named)})} if named else {}
    for one in found.values():
        mine = {row[column] for row in one.parts["deliveries"] for column in ("join_id", "part_of_id")}
        one.joins = [joins[key] for key in sorted(mine - {None}) if key in joins]
    return found


def proofs(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Proof]:
    """The proofs of these messages as they are now, without reading their content."""
    if not ids:
        return {}
    counted = "\nUNION ALL\n".join(
        f"SELECT {part.owner} AS owner, {'t.xid' if part in _WRITTEN else '0'} AS xid FROM {part.table} t"  # noqa: S608
        f" WHERE {part.where}"
        for part in _PROVED
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT owner, max(xid), count(*) FROM ("  # noqa: S608
            f"SELECT t.id AS owner, t.xid FROM messaging_message t WHERE t.id = ANY(%(ids)s)\nUNION ALL\n{counted}"
            ") AS found GROUP BY owner",
            {"ids": list(ids)},
        )
        return {owner: Proof(written, entries) for owner, written, entries in cursor.fetchall()}


def delete(ids: Collection[uuid.UUID]) -> tuple[int, set[str]]:
    """Deletes the messages and all that belongs to them; returns how many rows those were (as `Proof` counts them) and
    the payload files that they named. Joins go with the last delivery that names them.
    """
    count = 0
    names = {"ids": list(ids)}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT j FROM messaging_delivery t, unnest(ARRAY[t.join_id, t.part_of_id]) AS j"
            " WHERE t.message_id = ANY(%(ids)s) AND j IS NOT NULL",
            names,
        )
        joins = [key for (key,) in cursor.fetchall()]
        cursor.execute("SELECT stored_as FROM messaging_payload t WHERE t.message_id = ANY(%(ids)s)", names)
        files = {name for (name,) in cursor.fetchall() if name}
        for part in PARTS:
            cursor.execute(f"DELETE FROM {part.table} t WHERE {part.where}", names)  # noqa: S608
            count += cursor.rowcount if part in _PROVED else 0
        cursor.execute("DELETE FROM messaging_message t WHERE t.id = ANY(%(ids)s)", names)
        count += cursor.rowcount
        if joins:
            cursor.execute(
                "DELETE FROM messaging_join j WHERE j.id = ANY(%(joins)s) AND NOT EXISTS"
                " (SELECT FROM messaging_delivery d WHERE d.join_id = j.id OR d.part_of_id = j.id)",
                {"joins": joins},
            )
    return count, files


def insert(model: type[models.Model], rows: Iterable[Mapping[str, Any]], *, or_leave: bool = False) -> None:
    """Writes rows with all their columns, keys and transaction numbers too. A column that a row does not have (it came
    with a later version of the hub) gets the model's default. `or_leave`: one that is there stays as it is.
    """
    rows = list(rows)
    if not rows:
        return
    known = columns(model)
    quote = connection.ops.quote_name
    places = ", ".join("%s::jsonb" if isinstance(one, models.JSONField) else "%s" for one in known)
    sql = (
        f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(quote(str(one.column)) for one in known)})"  # noqa: S608
        f" OVERRIDING SYSTEM VALUE VALUES ({places}){' ON CONFLICT DO NOTHING' if or_leave else ''}"
    )
    with connection.cursor() as cursor:
        cursor.executemany(sql, [[_value(row, one) for one in known] for row in rows])


def _value(row: Mapping[str, Any], column: models.Field[Any, Any]) -> Any:
    if str(column.column) in row:
        value = row[str(column.column)]
        return pack(value) if value is not None and isinstance(column, OctetsField) else value
    default = column.get_default()
    return column.get_db_prep_save(default, connection) if default is not None else None


def _rows(
    model: type[models.Model], where: str, names: Mapping[str, Any], *, owner: str = "", order: str = "t.id"
) -> list[Row]:
    listed = [
        f"t.{one.column}::text" if isinstance(one, models.JSONField) else f"t.{one.column}" for one in columns(model)
    ]
    titles = [str(one.column) for one in columns(model)]
    if owner:
        listed.append(owner)
        titles.append("_owner")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(listed)} FROM {model._meta.db_table} t WHERE {where} ORDER BY {order}",  # noqa: S608
            names,
        )
        rows = [dict(zip(titles, values, strict=True)) for values in cursor.fetchall()]
    for packed in (str(one.column) for one in columns(model) if isinstance(one, OctetsField)):
        for row in rows:
            if row[packed] is not None:
                try:
                    row[packed] = unpack(row[packed])
                except OctetsDamaged:
                    row[packed], row["_damaged"] = b"", f"the column {packed} of {row['message_id']} is damaged"
    return rows


def grouped_by_join(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, frozenset[uuid.UUID]]:
    """Each of the messages with all those that must leave together with it: those of its joins, and of theirs."""
    leader = {key: key for key in ids}

    def find(key: uuid.UUID) -> uuid.UUID:
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    seen: set[uuid.UUID] = set()
    fresh = set(ids)
    by_join: dict[uuid.UUID, uuid.UUID] = {}
    while fresh:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT t.message_id, j FROM messaging_delivery t,"
                " unnest(ARRAY[t.join_id, t.part_of_id]) AS j WHERE t.message_id = ANY(%s) AND j IS NOT NULL",
                [list(fresh)],
            )
            named = cursor.fetchall()
            joins = {join for _, join in named} - seen
            seen |= joins
            others: list[tuple[uuid.UUID, uuid.UUID]] = []
            if joins:
                cursor.execute(
                    "SELECT d.message_id, d.join_id FROM messaging_delivery d WHERE d.join_id = ANY(%(joins)s) UNION"
                    " SELECT d.message_id, d.part_of_id FROM messaging_delivery d WHERE d.part_of_id = ANY(%(joins)s)",
                    {"joins": list(joins)},
                )
                others = cursor.fetchall()
        fresh = set()
        for message, join in (*named, *others):
            if message not in leader:
                leader[message] = message
                fresh.add(message)
            leader[find(message)] = find(by_join.setdefault(join, message))
    groups: dict[uuid.UUID, set[uuid.UUID]] = defaultdict(set)
    for key in leader:
        groups[find(key)].add(key)
    return {key: frozenset(groups[find(key)]) for key in leader}
