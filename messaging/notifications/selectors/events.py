"""The event feed (`models.feed` says how it is ordered), and the history of one message or pair."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db.models import QuerySet

from messaging.models import Event, Pair
from messaging.models.feed import HORIZON, OLDEST, FeedPage, Position, latest, rows_behind
from partners.visibility import limit, visible

__all__ = ["HORIZON", "OLDEST", "FeedPage", "Position", "feed", "latest", "of_message", "of_pair"]

# Far more than one page: how many rows a look at rare types may pass over before it answers with a new position.
_SCAN = 10_000


def feed(*, after: Position, limit: int, types: Sequence[str] = ()) -> FeedPage:
    """The committed events behind `after`. Nothing is ever passed over, and nothing comes twice.

    Whoever is limited to some partners gets the events of their pairs and messages; the position moves on all the same.
    """
    chosen_pairs = _visible_pairs()
    choosy = bool(types) or chosen_pairs is not None
    rows = rows_behind(after, _SCAN + 1 if choosy else limit + 1)
    scanned, more = (_SCAN, len(rows) > _SCAN) if choosy else (limit, len(rows) > limit)
    rows = rows[:scanned]
    chosen = [row for row in rows if row.type in types] if types else rows
    if chosen_pairs is not None:
        chosen = [row for row in chosen if row.pair_id in chosen_pairs]
    if len(chosen) > limit:
        chosen, more = chosen[:limit], True
        last = Position(chosen[-1].xid, chosen[-1].pk)
    elif rows:
        last = Position(rows[-1].xid, rows[-1].pk)
    else:
        last = after
    return FeedPage(chosen, last, more)


def _visible_pairs() -> frozenset[uuid.UUID] | None:
    """The pairs whose events may be shown; None = all."""
    if visible() is None:
        return None
    return frozenset(limit(Pair.objects.all(), "partner").values_list("pk", flat=True))


def of_message(message_id: uuid.UUID) -> QuerySet[Event]:
    """A message's history, oldest first (by "id")."""
    return Event.objects.filter(message=message_id).order_by("id")


def of_pair(pair_id: uuid.UUID) -> QuerySet[Event]:
    """What happened to the pair itself (not to its messages), newest first (by "-id")."""
    return Event.objects.filter(pair=pair_id, message__isnull=True).order_by("-id")
