"""The hub's state at a glance, its traffic by hour, and badges of pairs."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.utils.html import format_html
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request

from messaging.api.endpoint import AnyOctets, Endpoint, operation
from messaging.api.fields import IdOut, RowSerializer
from messaging.api.handlers import listed, shown
from messaging.api.reading import Param, read_parameters
from messaging.api.references import pair_id_of
from messaging.choices import PAIR_LOOKS
from messaging.models import Pair, TrafficHour
from messaging.models.traffic import LATENCY_EDGES
from messaging.overview.selectors.overview import Status as Found
from messaging.overview.selectors.overview import status
from messaging.overview.selectors.traffic import Traffic as Recent
from messaging.overview.selectors.traffic import quantile, traffic, traffic_hours
from messaging.pairs.selectors import pairs
from rmhub import clock

TRAFFIC_FILTERS = (
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id, name or identifier of a party.", "party"),
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
_PAIR = {"pair": "Id of the pair (`pair_...`), or its code."}


class RecentSerializer(serializers.Serializer):
    """The last 24 hours."""

    delivered = serializers.IntegerField()
    failed = serializers.IntegerField()
    delivered_per_minute = serializers.FloatField(help_text="Over the running hour and the one before.")
    success_percent = serializers.FloatField(allow_null=True, help_text="Of what ended outbound; null: nothing did.")
    ack_p95_seconds = serializers.FloatField(
        allow_null=True, help_text="From first send to acknowledgement: 95 % stayed below, as far as the buckets tell."
    )
    counted_at = serializers.DateTimeField(allow_null=True, help_text="What happened before is counted; null: not yet.")


class WorkerSerializer(serializers.Serializer):
    """One worker process that has not ended."""

    name = serializers.CharField(help_text="The machine and the number of the process there.")
    held_since = serializers.DateTimeField(help_text="Since when its presence is unbroken.")
    lost_since = serializers.DateTimeField(
        allow_null=True, help_text="It was last heard of then, and too long ago; null: it is there."
    )


class StatusSerializer(serializers.Serializer):
    """What the dashboard says first. Of the partners that the caller may see."""

    level = serializers.ChoiceField(choices=("good", "watch", "bad"))
    sentence = serializers.CharField()
    broken_pairs = serializers.IntegerField(help_text="Suspended.")
    blocked_documents = serializers.IntegerField(help_text="On pairs that are suspended, paused or disabled.")
    waiting_documents = serializers.IntegerField(help_text="Queued or in flight, on all pairs.")
    oldest_suspended_at = serializers.DateTimeField(allow_null=True)
    pairs = serializers.DictField(child=serializers.IntegerField(), help_text="State -> how many.")
    open_incidents = serializers.IntegerField()
    in_doubt = serializers.IntegerField()
    transactions_in_doubt = serializers.IntegerField()
    suspended_triggers = serializers.IntegerField()
    recent = RecentSerializer()
    workers = WorkerSerializer(many=True, help_text="Those that are not heard of any more first.")


class TrafficHourSerializer(RowSerializer):
    """What one pair did in one hour."""

    pair = IdOut("pair", source="pair_id")
    pair_code = serializers.CharField(source="pair.code")
    partner = IdOut("par", source="pair.partner_id")
    ack_p95_seconds = serializers.SerializerMethodField(help_text="As far as the buckets tell; null: none came.")
    latencies = serializers.ListField(
        child=serializers.IntegerField(),
        help_text=f"Acknowledgements by seconds since first send: up to {', '.join(map(str, LATENCY_EDGES))}, more.",
    )

    class Meta:
        model = TrafficHour
        fields = (
            *("pair", "pair_code", "partner", "hour", "accepted", "delivered", "received", "failed", "duplicates"),
            *("ack_p95_seconds", "latencies"),
        )

    def get_ack_p95_seconds(self, row: TrafficHour) -> float | None:
        return quantile(row.latencies, 0.95)


class BadgeSerializer(serializers.Serializer):
    """A pair's state for pages elsewhere."""

    pair = serializers.CharField(help_text="Its code.")
    state = serializers.CharField()
    label = serializers.CharField(help_text="The state as a word.")  # type: ignore[assignment]
    colour = serializers.CharField()
    blocked = serializers.IntegerField(help_text="Documents queued or in flight.")
    since = serializers.DateTimeField(allow_null=True, help_text="When it last changed.")


class Status(Endpoint):
    """/status"""

    get = shown(
        lambda: _status_of(status(clock.now()), traffic(clock.now())),
        StatusSerializer,
        etag=False,
        id="status",
        tag="hub",
        scope="pairs:read",
        summary="Is anything broken? How many documents are blocked?",
        description="What the dashboard says first. /health is about the hub itself, and needs no token.",
    )


class Traffic(Endpoint):
    """/traffic"""

    get = listed(
        lambda pair=None, **given: traffic_hours(pair_id=pair_id_of(pair), **given),
        TrafficHourSerializer,
        order=("-hour", "-id"),
        filters=TRAFFIC_FILTERS,
        id="traffic",
        tag="hub",
        scope="pairs:read",
        summary="What each pair did in each hour, newest first",
        description="Counted from the events every few seconds; hours without traffic have no row. Kept for 14 days.",
    )


class Badge(Endpoint):
    """/pairs/{pair}/badge"""

    get = shown(
        lambda pair: _badge(pairs.pair(pair)),
        BadgeSerializer,
        id="pairs_badge",
        scope="pairs:read",
        summary="A pair's state in a few words",
        description="For dashboards elsewhere.",
        path=_PAIR,
    )


class BadgeImage(Endpoint):
    """/pairs/{pair}/badge.svg"""

    content_negotiation_class = AnyOctets

    @operation(
        id="pairs_badge_image",
        tag="pairs",
        scope="pairs:read",
        summary="The same as an image",
        path=_PAIR,
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


def _status_of(found: Found, recent: Recent) -> dict[str, Any]:
    """What StatusSerializer describes."""
    return {
        "level": found.level,
        "sentence": found.sentence,
        "broken_pairs": found.broken,
        "blocked_documents": found.totals.blocked,
        "waiting_documents": found.totals.waiting,
        "oldest_suspended_at": found.oldest_at,
        "pairs": found.by_state,
        "open_incidents": found.open_incidents,
        "in_doubt": found.in_doubt,
        "transactions_in_doubt": found.doubtful_transactions,
        "suspended_triggers": found.suspended_triggers,
        "recent": {
            "delivered": recent.delivered,
            "failed": recent.failed,
            "delivered_per_minute": round(recent.per_minute(found.at), 3),
            "success_percent": recent.success,
            "ack_p95_seconds": recent.p95,
            "counted_at": recent.counted_at,
        },
        "workers": found.health.workers,
    }


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
