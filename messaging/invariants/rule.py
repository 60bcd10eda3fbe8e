"""A rule: a query that finds what contradicts an invariant. Rules are run over a database in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

Row = dict[str, Any]

SHOWN = 20
# The planner guesses at joins of whole tables; nothing here waits for a lock, so nothing needs a limit of time.
_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL jit = off",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """`id`: stable, for `--rule`. `title`: what holds. `source`: where that is said (I: conformance, D: DESIGN.md).

    `sql` takes no parameters and returns a row for each violation: the ids that name it, and what contradicts what.
    Where SQL alone cannot tell, `wrong` makes the violation of a row that it returns, or None. It is run in one
    snapshot, so rows of one transaction are all there or not at all. It must be silent about whatever a purge, a
    restore, a person's decision or a changed agreement leaves behind.
    """

    id: str
    title: str
    source: str
    sql: str
    wrong: Callable[[Row], Row | None] | None = None


# How an object of a table is named in the audit log.
def named(prefix: str, column: str) -> str:
    """SQL for `rmhub.ids.public_id`."""
    return f"'{prefix}_' || replace({column}::text, '-', '')"


# A clock of another machine, or a wait for a lock, may put times of neighbours in another order.
NEAR = "interval '1 minute'"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found. `rows`: the first violations, by column; `count`: all of them."""

    rule: Rule
    count: int
    rows: tuple[Row, ...]


class Cursor(Protocol):
    """What of a cursor is needed: psycopg's, or Django's."""

    @property
    def description(self) -> Any: ...

    def execute(self, query: Any, params: Any = None) -> Any: ...
    def fetchall(self) -> list[Any]: ...


def check(connection: psycopg.Connection[Any], rules: Iterable[Rule], *, shown: int = SHOWN) -> Iterator[Finding]:
    """What each rule finds, all in one snapshot. The connection must be idle; it is left without a transaction."""
    with connection.transaction(), connection.cursor() as cursor:
        for setting in _SETTINGS:
            cursor.execute(setting)
        for rule in rules:
            yield look(cursor, rule, shown=shown)


def check_url(url: str, rules: Iterable[Rule], *, shown: int = SHOWN) -> list[Finding]:
    """What rules find in the database of this URL; only those that found something."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        return [found for found in check(connection, rules, shown=shown) if found.count]


def look(cursor: Cursor, rule: Rule, *, shown: int = SHOWN) -> Finding:
    """What one rule finds, in the cursor's transaction."""
    if rule.wrong is not None:
        cursor.execute(rule.sql)
        names = [column[0] for column in cursor.description]
        looked = (rule.wrong(dict(zip(names, values, strict=True))) for values in cursor.fetchall())
        wrong = [row for row in looked if row is not None]
        return Finding(rule, len(wrong), tuple(wrong[:shown]))
    cursor.execute(f"SELECT count(*) OVER () AS violations, found.* FROM ({rule.sql}) AS found LIMIT {shown:d}")
    names = [column[0] for column in cursor.description][1:]
    rows = cursor.fetchall()
    count = rows[0][0] if rows else 0
    return Finding(rule, count, tuple(dict(zip(names, values[1:], strict=True)) for values in rows))
