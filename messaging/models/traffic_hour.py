"""Traffic by pair and hour, for the dashboard: kept up from the event feed, never counted from the store."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from messaging.models.pair import Pair

# Upper edges of the latency histogram, seconds; the last bucket has none.
LATENCY_EDGES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


def no_latencies() -> list[int]:
    """An empty histogram: one bucket more than there are edges."""
    return [0] * (len(LATENCY_EDGES) + 1)


class TrafficHour(models.Model):
    """What one pair did in one hour (UTC)."""

    pair = models.ForeignKey(Pair, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    hour = models.DateTimeField(help_text="Its beginning.")
    accepted = models.PositiveIntegerField(default=0)
    delivered = models.PositiveIntegerField(default=0)
    received = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    duplicates = models.PositiveIntegerField(default=0)
    latencies = ArrayField(
        models.PositiveIntegerField(), default=no_latencies, help_text="From first send to delivery."
    )

    class Meta:
        constraints = (models.UniqueConstraint(fields=("hour", "pair"), name="traffic_hour_unique"),)
        indexes = (models.Index(fields=("pair", "hour"), name="traffic_hour_by_pair"),)

    def __str__(self) -> str:
        return f"{self.pair_id} {self.hour:%Y-%m-%d %H}"


class TrafficCursor(models.Model):
    """How far the event feed was counted: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    xid = models.BigIntegerField(default=0)
    event_id = models.BigIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.xid}-{self.event_id}"
