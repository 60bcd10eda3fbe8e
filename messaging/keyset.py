"""Pages by key: a list goes on after the last row that was seen, whatever was added meanwhile. No OFFSET, no COUNT.

A cursor is the place where a page ends, as a signed text. It carries a fingerprint of the list that it belongs to
(resource, filters, sort), so that it cannot be used with another one.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Generic, TypeVar

from django.core.signing import BadSignature, Signer
from django.db.models import Model, Q, QuerySet

from messaging.exceptions import ApplicationError
from rmhub.ids import floor_id as floor_id

Row = TypeVar("Row", bound=Model)
Shown = TypeVar("Shown")  # a row, or what a screen makes of it
_signer = Signer(salt="rmhub.cursor")
_MAX_CURSOR = 2000


class BadCursor(ApplicationError):
    """The text is no cursor of ours."""

    code = "invalid_cursor"


class CursorMismatch(ApplicationError):
    """The cursor belongs to a list with other filters or another sort."""

    code = "cursor_mismatch"


@dataclass(frozen=True, slots=True)
class Place:
    """Between two rows: behind the row with these sort values, or (`backwards`) before it."""

    values: tuple[Any, ...]
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[Shown]):
    """Rows in the list's order, and where its neighbours begin (None: there are none).

    `whole`: the list that it is a page of, not evaluated.
    """

    rows: list[Shown]
    following: Place | None
    previous: Place | None
    whole: QuerySet[Any] | None = None


def page(queryset: QuerySet[Row], *, order: Sequence[str], limit: int, place: Place | None = None) -> Page[Row]:
    """`limit` rows at `place` (None = the start), in one query.

    `order` names attributes that together are unique, all in one direction: ("-id",), ("severity", "code").
    """
    backwards = place is not None and place.backwards
    directed = [_turned(name) for name in order] if backwards else list(order)
    whole = queryset
    if place is not None:
        queryset = queryset.filter(_behind(directed, place.values))
    rows = list(queryset.order_by(*directed)[: limit + 1])
    more = len(rows) > limit
    rows = rows[:limit]
    if backwards:
        rows.reverse()
    if not rows:
        return Page([], None, None, whole)
    first, last = _values(rows[0], order), _values(rows[-1], order)
    has_following = more if not backwards else True
    has_previous = more if backwards else place is not None
    following, previous = Place(last) if has_following else None, Place(first, backwards=True) if has_previous else None
    return Page(rows, following, previous, whole)


def estimate(queryset: QuerySet) -> int:
    """About how many rows there are, by the statistics that the database plans with; nothing is counted."""
    plan = queryset.order_by().values("pk").explain(format="json")
    # Without a plan there is nothing to look for, such as no id that begins so.
    rows: int = json.loads(plan)[0]["Plan"]["Plan Rows"] if plan else 0
    return rows


def fingerprint(resource: str, filters: Mapping[str, object], sort: str) -> str:
    """Names a list: the same resource, filters and sort have the same fingerprint."""
    described = json.dumps([resource, sort, dict(filters)], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def write_cursor(place: Place, list_fingerprint: str) -> str:
    """The place as a signed text for URLs."""
    return _signer.sign_object([list_fingerprint, place.backwards, [_packed(value) for value in place.values]])


def read_cursor(text: str, list_fingerprint: str) -> Place:
    """The place behind a cursor. Raises BadCursor, CursorMismatch."""
    try:
        if len(text) > _MAX_CURSOR:
            raise ValueError
        name, backwards, values = _signer.unsign_object(text)
        place = Place(tuple(_unpacked(value) for value in values), bool(backwards))
    except (BadSignature, ValueError, TypeError) as error:
        # unsign_object decodes only what our key signed, so any other failure is a text that was cut or made up.
        raise BadCursor("This cursor is not one that this hub gave out: start again without a cursor.") from error
    if name != list_fingerprint:
        raise CursorMismatch(
            "This cursor belongs to a list with other filters, another sort or another path: "
            "use the same parameters as in the request that gave it, or start again without a cursor."
        )
    return place


def id_time(key: uuid.UUID) -> datetime:
    """When a UUIDv7 was made, to the millisecond."""
    return datetime.fromtimestamp((key.int >> 80) / 1000, UTC)


def _turned(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def _values(row: Model, order: Sequence[str]) -> tuple[Any, ...]:
    return tuple(getattr(row, name.lstrip("-")) for name in order)


def _behind(order: Sequence[str], values: Sequence[Any]) -> Q:
    """(a, b) > (x, y) in the order's direction, as a > x or (a = x and b > y)."""
    found, equal = Q(), Q()
    for name, value in zip(order, values, strict=True):
        column = name.lstrip("-")
        # Nothing is beyond None: lists with such columns are sorted by whether there is a value first.
        if value is not None:
            found |= equal & Q(**{f"{column}__{'lt' if name.startswith('-') else 'gt'}": value})
        equal &= Q(**{column: value})
    return found


def _packed(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return {"u": value.hex}
    if isinstance(value, datetime):
        return {"t": value.astimezone(UTC).isoformat()}
    if isinstance(value, date):
        return {"d": value.isoformat()}
    return value


def _unpacked(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "d" in value:
        return date.fromisoformat(value["d"])
    return uuid.UUID(value["u"]) if "u" in value else datetime.fromisoformat(value["t"])
