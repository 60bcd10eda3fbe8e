"""What many tables have in common: an id with a name for people, and the transaction that wrote a row last."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, TypeVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Func, QuerySet

from messaging import octets
from messaging.exceptions import NotFound
from rmhub.ids import public_id, uuid7


class Identified(models.Model):
    """A row with a UUIDv7, which people and interfaces know by its public id (`PREFIX`_...)."""

    PREFIX: ClassVar[str]

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)

    class Meta:
        abstract = True

    @property
    def public_id(self) -> str:
        return public_id(self.PREFIX, self.id)


Row = TypeVar("Row", bound=Identified)


def existing(rows: QuerySet[Row] | models.Manager[Row], key: uuid.UUID) -> Row:
    """Return the row with this id. Raises NotFound, in the words of its model."""
    row = rows.filter(pk=key).first()
    if row is None:
        raise NotFound(f"There is no {rows.model._meta.verbose_name} {public_id(rows.model.PREFIX, key)}.")
    return row


class CurrentTransaction(Func):
    """pg_current_xact_id() as a bigint: lets a reader tell which rows may still have earlier ones uncommitted."""

    template = "(pg_current_xact_id()::text::bigint)"
    arity = 0
    output_field = models.BigIntegerField()


def written_by() -> models.BigIntegerField:
    """The column `xid` of a table whose rows change; a database trigger keeps it true (migration 0001)."""
    return models.BigIntegerField(db_default=CurrentTransaction(), editable=False)


def written_index(name: str) -> BrinIndex:
    """The index on `xid`: the least and the greatest of each few pages. A change of a row may stay within its page."""
    return BrinIndex(fields=("xid",), name=name, pages_per_range=16, autosummarize=True)


class OctetsField(models.BinaryField):
    """Octets that are kept packed. SQL sees them packed: what reads a table itself calls `octets.unpack`."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> bytes | None:
        """Raises OctetsDamaged."""
        return None if value is None else octets.unpack(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return super().get_db_prep_value(None if value is None else octets.pack(value), connection, prepared)
