"""Plans of the statements that the code of a path sends, and whether every statement written by hand there has one.

`Plans.faults` runs something and has the server explain each statement of it, with its own values: no table that grows
is read from one end to the other, and what is sorted is bounded. Bounded is what a LIMIT cuts, what is found by unique
keys that the statement was given, and what is in tables that stay small. `Plans.missing` reads the modules of a room:
a statement in them that was never explained is named, so that whoever writes a new one has to show its plan.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from django.db import connection

from messaging.models.bulk import EVERY
from tests import ROOT

# Indexes of what is under way, or of one message: whatever is found by them is little, and why.
FEW = {
    "transmission_claimed": "what is on the wire: no more than the workers have in hand",
    "delivery_leased": "what is being processed: no more than the triggers' concurrency",
    "signal_by_message": "what was said about one message",
    "delivery_by_message": "one message's deliveries: one a trigger, and resubmissions",
    "delivery_parts": "the documents of one join",
    "transmission_by_message": "the attempts of the messages that it was given",
    "message_in_stream": "what is in flight of a stream: no more than its window",
}
_WORD = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_STATEMENT = re.compile(rf"\s*{_WORD.pattern}(?!\Z)")
_HOLE = "\0"  # in the text of a statement: what is put in when it runs
_FIELD = re.compile(r"\{\w*\}")
_MANY = 1000  # rows
# Reads its rows in an order, or all at once.
_SORTS = ("Sort", "Incremental Sort")


class Plans:
    """`big`: names of tables that grow, as regular expressions. `sorts`: statements (a part of their text) that sort
    what they find in such a table otherwise than by unique keys, with the reason why that is bounded all the same.
    """

    def __init__(self, big: Collection[str], sorts: Mapping[str, str] | None = None) -> None:
        self.big = list(big)
        self._sorts = {_even(part): reason for part, reason in (sorts or {}).items()}
        self._seen: set[str] = set()

    def faults(self, run: Callable[[], object], *, sorting: bool = False, whole: Collection[str] = ()) -> list[str]:
        """What is wrong with the plans of all statements that `run` sends, each with its statement. `sorting`: it may
        sort what it finds, as what people ask for now and then does. `whole`: tables of which it wants every row.
        """
        sent: list[tuple[str, Any]] = []

        def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if _STATEMENT.match(sql):
                sent.append((sql, params[0] if many and params else params))
            return execute(sql, params, many, context)

        with connection.execute_wrapper(note):
            run()
        assert sent, "it asked the database nothing"
        for sql, _ in sent:
            self._seen.add(_even(sql))
        wrong = [one for one in sent if self._judged(*one, sorting, whole)]
        if not wrong:
            return []
        # Statistics are samples: with fresh ones of all tables the answer is the planner's own. A small table may be
        # cheaper to scan where a jump costs four times a step, as on a disk that turns; the question is whether there
        # is an index that a large one can go by.
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE {', '.join(sorted(connection.introspection.table_names(cursor)))}")
            cursor.execute("SET LOCAL random_page_cost = 1.1")
            found = [
                f"{_even(sql)[:400]}\n{said}"
                for sql, params in wrong
                if (said := self._judged(sql, params, sorting, whole))
            ]
            cursor.execute("SET LOCAL random_page_cost TO DEFAULT")
        return found

    def forget(self) -> None:
        """Nothing was explained yet."""
        self._seen.clear()

    def missing(self, *rooms: str, elsewhere: Mapping[str, str] | None = None) -> list[str]:
        """Statements of these modules and folders that no `faults` has explained. `elsewhere`: parts of the text of
        those that have their plan in another test, or need none, with where or why; one that is true of none is told.
        """
        known = {_even(part).replace("…", _HOLE): part for part in elsewhere or {}}
        idle = set(known)
        found = []
        for place, text in _written(*rooms):
            if any(_pattern(text).search(sql) for sql in self._seen):
                continue
            named = {part for part in known if part in text}
            if not named:
                found.append(f"{place}: {text[:200].replace(_HOLE, '…')}")
            idle -= named
        return found + [f"no statement without a plan is {known[part]}" for part in idle]

    def _judged(self, sql: str, params: Any, sorting: bool, whole: Collection[str]) -> str:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
            ((plan,),) = cursor.fetchall()
        wrong = list(self._wrong(plan[0]["Plan"], sql, sorting, whole))
        return "\n".join([*wrong, _drawn(plan[0]["Plan"])]) if wrong else ""

    def _wrong(self, node: dict[str, Any], sql: str, sorting: bool, whole: Collection[str]) -> Iterator[str]:
        table = node.get("Relation Name", "")
        # Looked for in the whole table of pairs, so that no message writes into an index of it.
        is_pair = table == "messaging_pair" and re.search(r"due_at\"? <= |p\.transmission_id = u\.id", sql)
        if node["Node Type"] == "Seq Scan" and table not in whole and self._is_big(table) and not is_pair:
            yield f"reads all of {table}"
        below: list[dict[str, Any]] = node.get("Plans", [])
        # What Django writes here sorts the few rows of one object; the statements of the path are written by hand.
        unbounded = (
            not sorting
            and '"' not in sql
            and node["Node Type"] in _SORTS
            and not all(self._is_bounded(one) for one in below)
        )
        if unbounded and not any(part in _even(sql) for part in self._sorts):
            yield f"sorts what nothing bounds: {node['Sort Key']}"
        for one in below:
            yield from self._wrong(one, sql, sorting, whole)

    def _is_bounded(self, node: dict[str, Any]) -> bool:
        if node["Node Type"] == "Limit":
            return True
        index = node.get("Index Name")
        if index is not None:
            return index in FEW or ("Index Cond" in node and index in _unique_indexes())
        below: list[dict[str, Any]] = node.get("Plans", [])
        if node["Node Type"] == "Seq Scan":
            return not self._is_big(node["Relation Name"])
        return all(self._is_bounded(one) for one in below)

    def _is_big(self, table: str) -> bool:
        """Whether it grows, and has as many rows here that its plans mean something."""
        if not any(re.fullmatch(one, table) for one in self.big):
            return False
        with connection.cursor() as cursor:
            cursor.execute("SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)", [table])
            return bool(cursor.fetchone()[0] >= _MANY)


def modules(*rooms: str) -> list[str]:
    """The files of these modules and folders in which a statement is written by hand."""
    return sorted({place.rpartition(":")[0] for place, _ in _written(*rooms)})


def within(path: str, rooms: Iterable[str]) -> bool:
    """Whether a file is one of these modules, or in one of these folders."""
    return any(path == room or path.startswith(f"{room}/") for room in rooms)


def _unique_indexes() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE indisunique")
        return {name for (name,) in cursor.fetchall()}


def _drawn(node: dict[str, Any], depth: int = 0) -> str:
    words = [node["Node Type"], node.get("Relation Name", ""), node.get("Index Name", ""), node.get("Index Cond", "")]
    line = "  " * depth + " ".join(word for word in words if word) + f" ({node['Plan Rows']} rows)"
    return "\n".join([line, *(_drawn(one, depth + 1) for one in node.get("Plans", []))])


def _even(sql: str) -> str:
    return " ".join(sql.split())


def _pattern(text: str) -> re.Pattern[str]:
    """What the statement looks like when it runs: `read` has named the columns."""
    text = EVERY.sub(rf"\1 {_HOLE}", text)
    return re.compile(".*?".join(re.escape(part) for part in text.split(_HOLE)), re.DOTALL)


def _written(*rooms: str) -> Iterator[tuple[str, str]]:
    """Statements in the code: constants and f-strings whose text begins like one, with where they stand."""
    for room in rooms:
        start = ROOT / room
        paths = sorted(start.rglob("*.py")) if start.is_dir() else [start]
        assert paths, room
        for path in paths:
            source = path.read_text()
            if not _WORD.search(source):
                continue
            tree = ast.parse(source)
            parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                text = _text(node) if id(node) not in parts else None
                if text is None or not _STATEMENT.match(text) or len(text) < 20:
                    continue
                if re.search(rf"messaging_|partners_|{_HOLE}", text):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", _even(text)  # type: ignore[attr-defined]


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _FIELD.sub(_HOLE, node.value).replace("{{", "{").replace("}}", "}")
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else _HOLE for one in node.values)
    return None
