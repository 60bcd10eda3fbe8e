"""Whose data the present request may show: all partners', or those of some groups.

Set once for a request by whoever authenticates it (`messaging.console.access`, `messaging.api.authentication`), and
obeyed by the selectors through `limit`. Workers and commands have no limit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)

_visible: ContextVar[frozenset[uuid.UUID] | None] = ContextVar("visible_partners", default=None)


def visible() -> frozenset[uuid.UUID] | None:
    """The partners that may be shown; None = all."""
    return _visible.get()


def set_visible(partners: frozenset[uuid.UUID] | None) -> None:
    """Limits everything that this context reads from now on. A request starts without a limit: see `unlimited`."""
    _visible.set(partners)


@contextmanager
def only(partners: frozenset[uuid.UUID] | None) -> Iterator[None]:
    """Limits what is read inside the block."""
    token = _visible.set(partners)
    try:
        yield
    finally:
        _visible.reset(token)


def limit(queryset: QuerySet[Row], field: str) -> QuerySet[Row]:
    """The rows whose `field` (a lookup path to a party's key, such as `pair__partner`) may be shown."""
    allowed = _visible.get()
    return queryset if allowed is None else queryset.filter(**{f"{field}__in": allowed})
