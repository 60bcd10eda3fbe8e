"""The hub's state at a glance, and its traffic by hour: representations."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.models import TrafficHour
from messaging.models.traffic import LATENCY_EDGES
from messaging.overview.selectors.overview import Status
from messaging.overview.selectors.traffic import Traffic, quantile


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


class TrafficHourSerializer(serializers.ModelSerializer):
    """What one pair did in one hour."""

    pair = IdOut("pair", source="pair_id")
    pair_code = serializers.CharField(source="pair.code")
    partner = IdOut("par", source="pair.partner_id")
    hour = serializers.DateTimeField(help_text="Its beginning.")
    delivered = serializers.IntegerField(help_text="Acknowledged, or handed over where no acknowledgement is awaited.")
    ack_p95_seconds = serializers.SerializerMethodField(help_text="As far as the buckets tell; null: none came.")
    latencies = serializers.ListField(
        child=serializers.IntegerField(),
        help_text=f"Acknowledgements by seconds since first send: up to {', '.join(map(str, LATENCY_EDGES))}, more.",
    )

    class Meta:
        model = TrafficHour
        fields = (
            "pair",
            "pair_code",
            "partner",
            "hour",
            "accepted",
            "delivered",
            "received",
            "failed",
            "duplicates",
            "ack_p95_seconds",
            "latencies",
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


def status_of(found: Status, recent: Traffic) -> dict[str, Any]:
    """What StatusSerializer describes."""
    data = {
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
    return dict(StatusSerializer(data).data)
