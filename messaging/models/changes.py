"""The transaction that wrote a row last: how a reader takes up changes without a gap and without a lock."""

from __future__ import annotations

from django.db import models
from django.db.models import Func


class CurrentTransaction(Func):
    """pg_current_xact_id() as a bigint: lets a reader tell which rows may still have earlier ones uncommitted."""

    template = "(pg_current_xact_id()::text::bigint)"
    arity = 0
    output_field = models.BigIntegerField()


def written_by() -> models.BigIntegerField:
    """The column `xid` of a table whose rows change; a database trigger keeps it true (migration 0005)."""
    return models.BigIntegerField(db_default=CurrentTransaction(), editable=False)
