"""GET /events: the pull alternative to webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.signing import BadSignature, Signer
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api import long_poll
from messaging.api.endpoint import Endpoint, operation
from messaging.api.pagination import LIMIT
from messaging.api.reading import Param, read_parameters
from messaging.journal.events import TYPES, body
from messaging.keyset import BadCursor
from messaging.models import Event
from messaging.notifications import selectors as events
from messaging.notifications.selectors import FeedPage, Position
from messaging.overview.serializers import EventFeedSerializer

_signer = Signer(salt="rmhub.feed")

PARAMETERS = (
    Param("cursor", "next_cursor of the page before."),
    Param("start", "Where to begin without a cursor.", "choice", choices=("oldest", "latest"), default="oldest"),
    Param("types", "Only these types, comma separated.", "choices", choices=TYPES),
    long_poll.wait_parameter("Seconds to wait for an event when there is none."),
    LIMIT,
)


class Events(Endpoint):
    """/events"""

    @operation(
        id="events_feed",
        tag="events",
        scope="events:read",
        summary="The event feed",
        description=(
            "Events in the order of their transactions. Keep `next_cursor` when you have processed a page, and go on "
            "from it: nothing is left out and nothing comes twice. An event shows as soon as every transaction that "
            "began before it has ended. With `wait`, the answer waits for the first event; when many callers wait "
            "already, it comes at once."
        ),
        parameters=PARAMETERS,
        responses={200: EventFeedSerializer},
        problems=("invalid_cursor",),
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, PARAMETERS)
        if values["cursor"]:
            after = _read_cursor(values["cursor"])
        else:
            after = events.latest() if values["start"] == "latest" else events.OLDEST
        page = _look(after, values["limit"], values["types"] or (), values["wait"])
        return Response(
            {"data": represent(page.events), "next_cursor": _write_cursor(page.position), "has_more": page.more}
        )


def represent(rows: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as EventSerializer describes them: a webhook's body, with an id."""
    return [{"id": f"evt_{row.pk}", **body(row)} for row in rows]


def _look(after: Position, limit: int, types: Sequence[str], wait: int) -> FeedPage:
    def look(before: FeedPage | None) -> FeedPage:
        return events.feed(after=before.position if before is not None else after, limit=limit, types=types)

    return long_poll.looked(look, lambda page: bool(page.events or page.more), wait)


def _write_cursor(position: Position) -> str:
    return _signer.sign(f"{position.xid}-{position.id}")


def _read_cursor(text: str) -> Position:
    try:
        xid, _, number = _signer.unsign(text).partition("-")
        return Position(int(xid), int(number))
    except (BadSignature, ValueError) as error:
        raise BadCursor("This cursor is not one that the feed gave out: start again with start=oldest.") from error
