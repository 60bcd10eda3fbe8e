"""Whose data the present request may show: all partners', or those of some groups.

Set for one request by whoever authenticates it (`messaging.console.access`, `messaging.api.endpoint`), and obeyed by
the selectors through `limit`. Services do not look at it: what they change was found by a selector before. Workers and
commands have no limit. Our own parties are always visible.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from partners.models import Party

Row = TypeVar("Row", bound=Model)

_visible: ContextVar[frozenset[uuid.UUID] | None] = ContextVar("visible_partners", default=None)
_viewer: ContextVar[str] = ContextVar("viewer", default="")


def visible() -> frozenset[uuid.UUID] | None:
    """The partners that may be shown; None = all."""
    return _visible.get()


def viewer() -> str:
    """The user name of whoever is limited: of what belongs to no partner, they see what they made themselves."""
    return _viewer.get()


def set_visible(partners: frozenset[uuid.UUID] | None, viewer: str = "") -> None:
    """Limits everything that this context reads from now on. Threads are reused: call it inside of `only`."""
    _visible.set(partners)
    _viewer.set(viewer)


@contextmanager
def only(partners: frozenset[uuid.UUID] | None, viewer: str = "") -> Iterator[None]:
    """Limits what is read inside the block."""
    tokens = _visible.set(partners), _viewer.set(viewer)
    try:
        yield
    finally:
        _visible.reset(tokens[0])
        _viewer.reset(tokens[1])


def limit(queryset: QuerySet[Row], field: str) -> QuerySet[Row]:
    """The rows whose `field` (a lookup path to a party's key, such as `pair__partner`) may be shown.

    Rows in which it is empty belong to nobody and are not shown to whoever is limited.
    """
    allowed = _visible.get()
    return queryset if allowed is None else queryset.filter(**{f"{field}__in": allowed})


def either(queryset: QuerySet[Row], *fields: str) -> QuerySet[Row]:
    """The rows in which one of the fields may be shown."""
    allowed = _visible.get()
    if allowed is None:
        return queryset
    chosen = Q(pk__in=[])
    for field in fields:
        chosen |= Q(**{f"{field}__in": allowed})
    return queryset.filter(chosen)


def shared(queryset: QuerySet[Row], *fields: str) -> QuerySet[Row]:
    """The rows in which one of the fields may be shown, and those in which all are empty: they are for everybody."""
    allowed = _visible.get()
    if allowed is None:
        return queryset
    chosen, empty = Q(pk__in=[]), Q()
    for field in fields:
        chosen |= Q(**{f"{field}__in": allowed})
        empty &= Q(**{f"{field}__isnull": True})
    return queryset.filter(chosen | empty)


def own(queryset: QuerySet[Row], field: str) -> QuerySet[Row]:
    """What belongs to no partner: whoever is limited gets what they, or tokens of theirs, have made (`field`: who)."""
    if _visible.get() is None:
        return queryset
    me = _viewer.get()
    return queryset.filter(Q(**{field: me}) | Q(**{f"{field}__startswith": f"{me} (token "}))


def allows(partner_id: uuid.UUID | None) -> bool:
    """Whether things of this partner may be shown; of nobody: only without a limit."""
    allowed = _visible.get()
    return allowed is None or partner_id in allowed


def names() -> frozenset[str] | None:
    """The names of the partners that may be shown, our own parties left out; None = all."""
    allowed = _visible.get()
    if allowed is None:
        return None
    return frozenset(Party.objects.filter(pk__in=allowed, is_own=False).values_list("name", flat=True))


def of_groups(groups: Collection[uuid.UUID]) -> frozenset[uuid.UUID]:
    """The partners of these groups, and our own parties."""
    return frozenset(Party.objects.filter(Q(groups__in=groups) | Q(is_own=True)).values_list("pk", flat=True))


def of_partner(partner_id: uuid.UUID) -> frozenset[uuid.UUID]:
    """One partner, and our own parties."""
    return frozenset(Party.objects.filter(Q(pk=partner_id) | Q(is_own=True)).values_list("pk", flat=True))


def lasting(stream: Any) -> Iterator[Any]:
    """A stream whose parts are made under the limit of now, although they are made after the view has returned."""
    return _lasting(stream, _visible.get(), _viewer.get())


def _lasting(stream: Any, partners: frozenset[uuid.UUID] | None, viewer: str) -> Iterator[Any]:
    parts = iter(stream)
    while True:
        with only(partners, viewer):
            try:
                part = next(parts)
            except StopIteration:
                return
        yield part
