"""No migration but the initial ones may hold up a hub under traffic; bad ones are found."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, ValidateConstraint
from django.db import migrations, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState
from django.db.models.functions import Now, Random

from tests.rmhub.migrations_lint import Linter

INDEX = models.Index(fields=["created_at"], name="by_time")
CHECK = models.CheckConstraint(condition=models.Q(name__gt=""), name="named")


def _in_order() -> list[Migration]:
    graph = MigrationLoader(None).graph
    keys = dict.fromkeys(key for leaf in graph.leaf_nodes() for key in graph.forwards_plan(leaf))
    return [graph.nodes[key] for key in keys]


@cache
def _today() -> ProjectState:
    linter = Linter()
    for one in _in_order():
        linter.read(one)
    return linter.state


def after_all() -> Linter:
    """A linter that knows the tables as all migrations leave them."""
    return Linter(_today().clone())


def test_no_migration_holds_up_the_hub() -> None:
    linter = Linter()
    assert [fault for one in _in_order() for fault in linter.read(one)] == []


def migration(*operations: Any, atomic: bool = True, name: str = "0002_next") -> Migration:
    made = Migration(name, "partners")
    made.operations, made.atomic, made.initial = list(operations), atomic, None
    return made


def in_one_go(apps: Any, editor: Any) -> None:
    apps.get_model("partners", "Party").objects.update(name="x")


def in_batches(apps: Any, editor: Any) -> None:
    with transaction.atomic():
        apps.get_model("partners", "Party").objects.filter(pk__in=[1]).update(name="x")


def field(new: Any) -> Any:
    return migrations.AddField("Agreement", "more", new)


def sql(text: str) -> Any:
    return migrations.RunSQL(text, migrations.RunSQL.noop)


BAD = {
    "an index under a lock": (migrations.AddIndex("Agreement", INDEX), "AddIndexConcurrently"),
    "an index under a lock, by SQL": (sql("CREATE INDEX x ON partners_agreement (name)"), "without CONCURRENTLY"),
    "concurrently in a transaction": (AddIndexConcurrently("Agreement", INDEX), "atomic = False"),
    "all rows at once": (migrations.RunPython(in_one_go), "batches"),
    "all rows at once, by SQL": (sql("UPDATE partners_agreement SET name = ''"), "batches"),
    "a column type": (migrations.AlterField("Agreement", "name", models.IntegerField()), "another column type"),
    "a shorter text": (migrations.AlterField("Agreement", "name", models.CharField(max_length=10)), "column type"),
    "a column type, by SQL": (sql("ALTER TABLE partners_agreement ALTER COLUMN name TYPE text"), "column type"),
    "a unique column": (
        migrations.AlterField("Agreement", "name", models.CharField(max_length=120, unique=True)),
        "index",
    ),
    "NOT NULL, by SQL": (sql("ALTER TABLE partners_agreement ALTER name SET NOT NULL"), "SET NOT NULL"),
    "a check that is valid at once": (migrations.AddConstraint("Agreement", CHECK), "NotValid"),
    "a check, by SQL": (sql("ALTER TABLE partners_agreement ADD CONSTRAINT c CHECK (name > '')"), "NOT VALID"),
    "a column that old code leaves out": (field(models.TextField()), "does not fill in"),
    "a default of the code": (field(models.IntegerField(default=0)), "does not fill in"),
    "a column that old code leaves out, by SQL": (
        sql("ALTER TABLE partners_agreement ADD COLUMN x text NOT NULL"),
        "DEFAULT",
    ),
    "a volatile default": (field(models.FloatField(db_default=Random())), "volatile"),
    "a volatile default, by SQL": (
        sql("ALTER TABLE partners_agreement ADD x uuid NOT NULL DEFAULT gen_random_uuid()"),
        "volatile",
    ),
    "a column with an index": (field(models.TextField(null=True, db_index=True)), "index CONCURRENTLY"),
    "a foreign key": (
        field(models.ForeignKey("partners.Party", models.PROTECT, null=True, db_index=False)),
        "foreign key",
    ),
    "another name": (migrations.RenameField("Agreement", "name", "title"), "old name"),
    "another name, by SQL": (sql("ALTER TABLE partners_agreement RENAME COLUMN name TO title"), "old name"),
    "another table": (migrations.AlterModelTable("Agreement", "treaty"), "old name"),
    "a field that is used": (migrations.RemoveField("Agreement", "name"), "a release later"),
    "a field that is used, by SQL": (sql("ALTER TABLE partners_agreement DROP COLUMN name"), "still in the state"),
    "a model that is used": (migrations.DeleteModel("Agreement"), "a release later"),
    "a lock by name": (sql("LOCK TABLE partners_agreement"), "locks the table"),
    "longer than migrate waits": (sql("SET lock_timeout = 0"), "migrate's to say"),
    "in a wrapper": (
        migrations.SeparateDatabaseAndState(database_operations=[migrations.AddIndex("Agreement", INDEX)]),
        "AddIndexConcurrently",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_migration_is_found(what: str) -> None:
    operation, why = BAD[what]
    found = after_all().read(migration(operation))
    assert any(why in fault for fault in found), found


def test_two_steps_are_two_migrations() -> None:
    together = migration(AddConstraintNotValid("Agreement", CHECK), ValidateConstraint("Agreement", "named"))
    assert any("later migration" in fault for fault in after_all().read(together))
    several = migration(AddIndexConcurrently("Agreement", INDEX), sql("SELECT 1"), atomic=False)
    assert any("one operation" in fault for fault in after_all().read(several))


GOOD = {
    "a column for both": [migration(field(models.TextField(null=True)))],
    "a column with a default of the database": [migration(field(models.TextField(db_default="")))],
    "a time": [migration(field(models.DateTimeField(db_default=Now())))],
    "longer text": [migration(migrations.AlterField("Agreement", "name", models.CharField(max_length=200)))],
    "an index beside the traffic": [migration(AddIndexConcurrently("Agreement", INDEX), atomic=False)],
    "rows in batches": [migration(migrations.RunPython(in_batches, atomic=False), atomic=False)],
    "a new table with its index": [
        migration(
            migrations.CreateModel(
                "New", [("id", models.BigAutoField(primary_key=True)), ("created_at", models.TextField())]
            ),
            migrations.AddIndex("New", INDEX),
        )
    ],
    "a check that is validated later, by SQL": [
        migration(sql("ALTER TABLE partners_agreement ADD CONSTRAINT c CHECK (name IS NOT NULL) NOT VALID")),
        migration(sql("ALTER TABLE partners_agreement VALIDATE CONSTRAINT c"), name="0003"),
        migration(sql("ALTER TABLE partners_agreement ALTER COLUMN name SET NOT NULL"), name="0004"),
    ],
    "NOT NULL in three steps": [
        migration(AddConstraintNotValid("Agreement", CHECK)),
        migration(ValidateConstraint("Agreement", "named"), name="0003"),
        migration(sql("ALTER TABLE partners_agreement ALTER name SET NOT NULL"), name="0004"),
    ],
    "a field out of the code, and a release later out of the table": [
        migration(
            migrations.SeparateDatabaseAndState(
                database_operations=[sql("ALTER TABLE partners_agreement ALTER name DROP NOT NULL")],
                state_operations=[migrations.RemoveField("Agreement", "name")],
            )
        ),
        migration(sql("ALTER TABLE partners_agreement DROP COLUMN name"), name="0003"),
    ],
}


@pytest.mark.parametrize("what", GOOD)
def test_what_a_hub_under_traffic_bears_is_let_through(what: str) -> None:
    linter = after_all()
    assert [fault for one in GOOD[what] for fault in linter.read(one)] == []
