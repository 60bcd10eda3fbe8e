"""Finds migrations that a hub under traffic cannot bear: long locks, and tables that the release before cannot use.

PostgreSQL's documentation of ALTER TABLE and CREATE INDEX says which lock each form takes, and what it rewrites or
reads through. During an upgrade the processes of the release before run on the new tables (docs/operations.md).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib.postgres import operations as postgres
from django.db import connection, migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models.functions import Now

OURS = ("partners", "messaging")
CONCURRENT = (postgres.AddIndexConcurrently, postgres.RemoveIndexConcurrently)
# Nothing of these is longer than a moment, and the release before does not notice.
HARMLESS = (
    migrations.CreateModel,
    migrations.RemoveIndex,
    migrations.RenameIndex,
    migrations.RemoveConstraint,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
    migrations.AlterModelTableComment,
    migrations.AlterConstraint,
    postgres.ValidateConstraint,
    *CONCURRENT,
)
_VOLATILE = r"gen_random_uuid|uuidv?[47]?|random|clock_timestamp|nextval|timeofday"
# What is looked for in a statement without its comments -> why not.
_SQL = {
    r"\bCREATE (UNIQUE )?INDEX (?!CONCURRENTLY)": "CREATE INDEX without CONCURRENTLY stops all writing",
    r"\bREINDEX (?!.*CONCURRENTLY)": "REINDEX without CONCURRENTLY stops all writing",
    r"\bADD CONSTRAINT .*\b(CHECK|FOREIGN KEY)\b(?!.*NOT VALID)": "without NOT VALID it reads the table under a lock",
    r"\bADD CONSTRAINT .*\b(UNIQUE|PRIMARY KEY|EXCLUDE)\b(?!.*USING INDEX)": "it builds an index under a lock",
    r"\bALTER (COLUMN )?\S+ (SET DATA )?TYPE\b": "another column type rewrites the table",
    r"\bRENAME\b": "the release before knows the old name only",
    r"\bADD (?!CONSTRAINT)(COLUMN )?\S+ (?!.*\bDEFAULT\b).*\bNOT NULL\b": "the release before leaves it empty: DEFAULT",
    rf"\bADD (COLUMN )?.*\bDEFAULT\b.*\b({_VOLATILE})\s*\(": "a volatile default rewrites the table",
    r"\b(UPDATE|DELETE FROM|INSERT INTO)\b": "rows are moved in batches, by a RunPython",
    r"\b(VACUUM FULL|CLUSTER|LOCK TABLE|TRUNCATE)\b": "locks the table, or empties it",
    r"\bSET (LOCAL )?(lock_timeout|statement_timeout)\b": "how long a lock is waited for is migrate's to say",
}


@dataclass(slots=True)
class Linter:
    """Reads migrations in their order, and keeps what earlier ones have prepared. `made`: tables of this migration."""

    state: ProjectState = field(default_factory=ProjectState)
    validated: set[str] = field(default_factory=set)  # tables with a constraint that was validated
    made: set[str] = field(default_factory=set)

    def read(self, migration: migrations.Migration) -> list[str]:
        """What is wrong with it, a line each; nothing is asked of an initial one, or of other people's."""
        asked = migration.app_label in OURS and not (migration.initial and migration.name.startswith("0001"))
        found = [f"{migration}: {fault}" for fault in self._faults(migration)] if asked else []
        self.validated |= {
            table for operation in migration.operations for table in _validates(self, migration, operation)
        }
        migration.mutate_state(self.state, preserve=False)
        return found

    def _faults(self, migration: migrations.Migration) -> Iterator[str]:
        self.made = set()
        operations = list(_of_the_database(migration.operations))
        alone = [
            one for one in operations if isinstance(one, (*CONCURRENT, migrations.RunPython)) or _is_concurrent(one)
        ]
        if alone and migration.atomic:
            yield "CONCURRENTLY, and rows in batches, need atomic = False"
        if not migration.atomic and (len(alone) != 1 or len(operations) != 1):
            yield "what is not atomic has one operation: an end in the middle must leave nothing to guess"
        new = {one.constraint.name for one in operations if isinstance(one, postgres.AddConstraintNotValid)}
        if any(isinstance(one, postgres.ValidateConstraint) and one.name in new for one in operations):
            yield "a constraint is validated by a later migration: this one still holds the lock of adding it"
        state = self.state.clone()
        for operation in operations:
            yield from self._of_one(operation, migration.app_label, state)
            operation.state_forwards(migration.app_label, state)

    def _of_one(self, operation: Operation, app: str, state: ProjectState) -> Iterator[str]:
        name = type(operation).__name__
        if isinstance(operation, migrations.CreateModel):
            self.made.add(_table(app, operation.name, operation.options))
        table = _table_of(operation, app, state)
        if table in self.made and not isinstance(operation, migrations.RunPython):
            return
        if isinstance(operation, migrations.RunSQL):
            yield from self._of_sql(operation, state)
        elif isinstance(operation, migrations.RunPython):
            if operation.atomic is not False or "atomic(" not in inspect.getsource(operation.code):
                yield "RunPython without batches: atomic=False, and a transaction for each thousand rows"
        elif isinstance(operation, migrations.AddIndex) and not isinstance(operation, CONCURRENT):
            yield "AddIndex stops all writing: AddIndexConcurrently"
        elif isinstance(operation, migrations.AddConstraint) and not isinstance(
            operation, postgres.AddConstraintNotValid
        ):
            yield "AddConstraint reads the table under a lock: AddConstraintNotValid, and ValidateConstraint later"
        elif isinstance(operation, migrations.AddField):
            yield from _of_new_field(operation.field)
        elif isinstance(operation, migrations.AlterField):
            yield from _of_changed_field(_field(operation, app, state), operation.field)
        elif isinstance(operation, (migrations.RemoveField, migrations.DeleteModel)):
            yield f"{name}: take it out of the state first (SeparateDatabaseAndState), and drop it a release later"
        elif isinstance(operation, (migrations.RenameField, migrations.RenameModel, migrations.AlterModelTable)):
            yield f"{name}: the release before knows the old name only"
        elif not isinstance(operation, (*HARMLESS, postgres.AddConstraintNotValid)):
            yield f"{name}: nobody has said yet what it locks"

    def _of_sql(self, operation: migrations.RunSQL, state: ProjectState) -> Iterator[str]:
        for statement in _statements(operation.sql):
            table = _named_table(statement)
            if table in self.made:
                continue
            for pattern, why in _SQL.items():
                if re.search(pattern, statement, re.IGNORECASE):
                    yield why
            if re.search(r"\bSET NOT NULL\b", statement, re.IGNORECASE) and table not in self.validated:
                yield "SET NOT NULL reads the table under a lock, unless a CHECK was added NOT VALID and validated"
            dropped = re.search(r"\bDROP (?:COLUMN|TABLE) (?:IF EXISTS )?\"?(\w+)", statement, re.IGNORECASE)
            if dropped and dropped[1] in _still_used(state, table):
                yield f"{dropped[1]} is still in the state: the release before uses it"
            if dropped is None and re.search(r"^\s*CREATE TABLE\b", statement, re.IGNORECASE):
                self.made.add(table)


def _of_the_database(operations: Collection[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from _of_the_database(operation.database_operations)
        else:
            yield operation


def _of_new_field(new: models.Field[Any, Any]) -> Iterator[str]:
    if new.many_to_many:
        return  # a table of its own
    if isinstance(new, models.GeneratedField):
        yield "a generated column rewrites the table"
        return
    if new.unique or new.db_index:
        yield "a new column with an index: add it without, and the index CONCURRENTLY"
    if new.remote_field is not None and getattr(new, "db_constraint", False):
        yield "a new foreign key reads the table under a lock: db_constraint=False, then NOT VALID, then validate"
    if new.has_db_default():
        default = new.db_default
        if hasattr(default, "resolve_expression") and not isinstance(default, (models.Value, Now)):
            yield "a volatile default rewrites the table"
    elif not new.null:
        yield "the release before does not fill in the column: null=True or db_default"


def _of_changed_field(old: models.Field[Any, Any], new: models.Field[Any, Any]) -> Iterator[str]:
    before, after = old.db_type(connection), new.db_type(connection)
    if before != after and not _is_wider(before, after):
        yield f"another column type rewrites the table: {before} to {after}"
    if old.null and not new.null:
        yield "NOT NULL reads the table under a lock: a CHECK that is NOT VALID, validate, then SET NOT NULL by SQL"
    if (new.unique and not old.unique) or (new.db_index and not old.db_index):
        yield "an index is built under a lock: CONCURRENTLY"
    if getattr(new, "db_collation", None) != getattr(old, "db_collation", None):
        yield "another collation rewrites the table's indexes"


def _is_wider(before: str | None, after: str | None) -> bool:
    sizes = [re.fullmatch(r"varchar\((\d+)\)", text or "") for text in (before, after)]
    if sizes[0] and after == "text":
        return True
    return bool(sizes[0] and sizes[1] and int(sizes[0][1]) <= int(sizes[1][1]))


def _statements(given: Any) -> Iterator[str]:
    parts = [given] if isinstance(given, str) else [one if isinstance(one, str) else one[0] for one in given]
    for part in parts:
        text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", part, flags=re.DOTALL)
        yield from (" ".join(one.split()) for one in text.split(";") if one.strip())


def _is_concurrent(operation: Operation) -> bool:
    return isinstance(operation, migrations.RunSQL) and any(
        re.search(r"\bCONCURRENTLY\b", one, re.IGNORECASE) for one in _statements(operation.sql)
    )


def _named_table(statement: str) -> str:
    found = re.search(
        r"\b(?:ALTER TABLE|CREATE TABLE|DROP TABLE)(?: IF (?:NOT )?EXISTS)?(?: ONLY)? \"?(\w+)|\bON (?:ONLY )?\"?(\w+)",
        statement,
        re.IGNORECASE,
    )
    return (found[1] or found[2]) if found else ""


def _table(app: str, model: str, options: dict[str, Any]) -> str:
    return options.get("db_table") or f"{app}_{model.lower()}"


def _table_of(operation: Operation, app: str, state: ProjectState) -> str:
    name = getattr(operation, "model_name", None)
    known = state.models.get((app, name.lower())) if name else None
    return _table(app, known.name, known.options) if known else ""


def _field(operation: migrations.AlterField, app: str, state: ProjectState) -> models.Field[Any, Any]:
    model = state.apps.get_model(app, operation.model_name)
    return model._meta.get_field(operation.name)  # type: ignore[return-value]


def _still_used(state: ProjectState, table: str) -> set[str]:
    """Names of tables, and of this table's columns, that the code of the release before knows."""
    found: set[str] = set()
    for model in state.apps.get_models(include_auto_created=True):
        found.add(model._meta.db_table)
        if model._meta.db_table == table:
            found |= {one.column for one in model._meta.local_fields}
    return found


def _validates(linter: Linter, migration: migrations.Migration, operation: Operation) -> Iterator[str]:
    if isinstance(operation, postgres.ValidateConstraint):
        yield _table_of(operation, migration.app_label, linter.state)
    if isinstance(operation, migrations.RunSQL):
        for statement in _statements(operation.sql):
            if re.search(r"\bVALIDATE CONSTRAINT\b", statement, re.IGNORECASE):
                yield _named_table(statement)
