"""The hub's state at a glance, its traffic by hour, and badges of pairs."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.html import format_html
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.conditional import item
from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.fields import page_of
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import pair_id_of
from messaging.choices import PAIR_LOOKS
from messaging.models import Pair
from messaging.overview.selectors.overview import status
from messaging.overview.selectors.traffic import traffic, traffic_hours
from messaging.overview.serializers import status as shapes
from messaging.pairs.selectors import pairs
from rmhub import clock

TRAFFIC_FILTERS = (
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id of a party.", "id", prefix="par"),
    Param("hour_gte", "Hours that begin at or after this time.", "instant"),
    Param("hour_lt", "Hours that begin before this time.", "instant"),
)
_COLOURS = {
    "red": "#c92a37",
    "orange": "#b4530f",
    "yellow": "#8a5a00",
    "green": "#1f7a4a",
    "azure": "#1f6db5",
    "purple": "#6f3fa8",
}
_GREY = "#5f6b79"


class Status(Endpoint):
    """/status"""

    @operation(
        id="status",
        tag="hub",
        scope="pairs:read",
        summary="Is anything broken? How many documents are blocked?",
        description="What the dashboard says first. /health is about the hub itself, and needs no token.",
        responses={200: shapes.StatusSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        now = clock.now()
        return Response(shapes.status_of(status(now), traffic(now)))


class Traffic(Endpoint):
    """/traffic"""

    @operation(
        id="traffic",
        tag="hub",
        scope="pairs:read",
        summary="What each pair did in each hour, newest first",
        description="Counted from the events every few seconds; hours without traffic have no row. Kept for 14 days.",
        parameters=(*TRAFFIC_FILTERS, *PAGING),
        responses={200: page_of(shapes.TrafficHourSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, TRAFFIC_FILTERS)
        found = traffic_hours(
            pair_id=pair_id_of(values["pair"]),
            partner_id=values["partner"],
            begin=values["hour_gte"],
            end=values["hour_lt"],
        )
        page = keyset.page(found, order=("-hour", "-id"), limit=limit, place=place)
        return listing(request, values, page, shapes.TrafficHourSerializer)


class Badge(Endpoint):
    """/pairs/{pair}/badge"""

    @operation(
        id="pairs_badge",
        tag="pairs",
        scope="pairs:read",
        summary="A pair's state in a few words",
        description="For dashboards elsewhere.",
        path={"pair": "Id of the pair (`pair_...`), or its code."},
        responses={200: shapes.BadgeSerializer},
    )
    def get(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        return item(request, _badge(pairs.pair(pair)))


class BadgeImage(Endpoint):
    """/pairs/{pair}/badge.svg"""

    content_negotiation_class = AnyOctets

    @operation(
        id="pairs_badge_image",
        tag="pairs",
        scope="pairs:read",
        summary="The same as an image",
        path={"pair": "Id of the pair (`pair_...`), or its code."},
        responses={(200, "image/svg+xml"): OpenApiTypes.STR},
    )
    def get(self, request: Request, pair: str) -> HttpResponse:
        read_parameters(request, ())
        answer = HttpResponse(_drawn(_badge(pairs.pair(pair))), content_type="image/svg+xml; charset=utf-8")
        # Opened by itself it is a document of this site: it may do nothing.
        answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
        answer["X-Content-Type-Options"] = "nosniff"
        answer["Cache-Control"] = "private, max-age=10"
        return answer


def _badge(pair: Pair) -> dict[str, object]:
    state = pairs.state_of(pair)
    look = PAIR_LOOKS[state]
    return {
        "pair": pair.code,
        "state": state,
        "label": look.label,
        "colour": look.colour,
        "blocked": pair.queued + pair.out_now + (pair.in_flight_id is not None),
        "since": pair.changed_at,
    }


def _drawn(badge: dict[str, object]) -> str:
    """A label with two halves; characters are taken for 7 units wide, which is enough for the common ones."""
    name = str(badge["pair"])[:48]
    word = f"{badge['label']}, {badge['blocked']:,} wait" if badge["blocked"] else str(badge["label"])
    left, right = 12 + 7 * len(name), 12 + 7 * len(word)
    return format_html(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{name}: {word}">'
        "<title>{name}: {word}</title>"
        '<rect width="{left}" height="20" fill="#3a424b"/><rect x="{left}" width="{right}" height="20" fill="{fill}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        '<text x="{first}" y="14">{name}</text><text x="{second}" y="14">{word}</text></g></svg>',
        total=left + right,
        left=left,
        right=right,
        first=left / 2,
        second=left + right / 2,
        name=name,
        word=word,
        fill=_COLOURS.get(str(badge["colour"]), _GREY),
    )
