"""Traffic by hour: each event is counted once, in its own hour, with how long the partner took."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from messaging.models import Event, TrafficCursor, TrafficHour
from messaging.models.traffic import LATENCY_EDGES
from messaging.overview.selectors.traffic import quantile, traffic
from messaging.overview.services import traffic_hours
from partners import visibility
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with clock.frozen(datetime(2026, 3, 1, 12, 10, tzinfo=UTC)) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page remembers for a moment; and what a test writes is of a transaction that is still open."""
    cache.clear()
    monkeypatch.setattr("messaging.models.feed.horizon", lambda: 1 << 40)
    monkeypatch.setattr("messaging.models.feed.is_ahead", lambda place: False)


def _deliver(partner: PartnerSide, time: FrozenClock, seconds: float) -> None:
    with link() as wire:
        submit(partner)
        work()
        time.move(seconds)
        partner.send(partner.acknowledgement(wire.last))


def _row(partner: PartnerSide, hour: int) -> TrafficHour:
    return TrafficHour.objects.get(pair=partner.outbound, hour=datetime(2026, 3, 1, hour, tzinfo=UTC))


def test_what_happened_is_counted_once_in_its_hour(time: FrozenClock) -> None:
    partner = partner_side()
    traffic_hours.count_due()
    _deliver(partner, time, 0.3)
    _deliver(partner, time, 7)
    assert traffic_hours.count_due() > 0
    assert traffic_hours.count_due() == 0
    row = _row(partner, 12)
    assert (row.accepted, row.delivered, row.failed) == (2, 2, 0)
    taken = {edge: row.latencies[number] for number, edge in enumerate(LATENCY_EDGES)}
    assert (taken[0.5], taken[10]) == (1, 1)
    assert sum(row.latencies) == 2

    time.move(3600)
    _deliver(partner, time, 0)
    traffic_hours.count_due()
    assert (_row(partner, 12).delivered, _row(partner, 13).delivered) == (2, 1)
    _deliver(partner, time, 0)
    traffic_hours.count_due()
    assert (_row(partner, 13).delivered, sum(_row(partner, 13).latencies)) == (2, 2)


def test_what_comes_is_counted_and_so_are_its_copies(time: FrozenClock) -> None:
    partner = partner_side()
    arrival = partner.message(1)
    partner.send(arrival)
    partner.send(arrival)
    traffic_hours.count_due()
    row = TrafficHour.objects.get(pair=partner.inbound)
    assert (row.received, row.duplicates, row.delivered) == (1, 1, 0)


def test_a_failure_in_the_middle_counts_nothing_twice(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    partner = partner_side()
    traffic_hours.count_due()
    _deliver(partner, time, 1)
    real = TrafficCursor.save

    def dies(self: TrafficCursor, *args: object, **kwargs: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(TrafficCursor, "save", dies)
    with pytest.raises(OSError, match="killed"):
        traffic_hours.count_due()
    assert not TrafficHour.objects.exists()
    monkeypatch.setattr(TrafficCursor, "save", real)
    traffic_hours.count_due()
    assert _row(partner, 12).delivered == 1


def test_many_events_are_read_piece_by_piece(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    partner = partner_side()
    monkeypatch.setattr(traffic_hours, "_AT_ONCE", 2)
    for _ in range(3):
        _deliver(partner, time, 1)
    assert traffic_hours.count_due() == Event.objects.count()
    assert _row(partner, 12).delivered == 3


def test_hours_of_long_ago_go(time: FrozenClock) -> None:
    partner = partner_side()
    traffic_hours.count_due()
    old = datetime(2026, 2, 1, 5, tzinfo=UTC)
    TrafficHour.objects.create(pair=partner.outbound, hour=old, delivered=1)
    time.move(3600)
    traffic_hours.count_due()
    assert not TrafficHour.objects.filter(hour=old).exists()


def test_the_last_day_by_hour_and_by_partner(time: FrozenClock) -> None:
    big, small = partner_side(), partner_side()
    now = clock.now()
    last = now.replace(minute=0)
    slow = [0] * 9 + [10, 0, 0, 0]
    TrafficHour.objects.create(pair=big.outbound, hour=last, delivered=90, failed=10, accepted=100, latencies=slow)
    TrafficHour.objects.create(pair=small.inbound, hour=last - timedelta(hours=1), received=5)
    TrafficHour.objects.create(pair=small.inbound, hour=last - timedelta(hours=24), received=500)
    found = traffic(now)
    assert len(found.hours) == 24
    assert (found.hours[-1].delivered, found.hours[-2].received) == (90, 5)
    assert found.success == 90.0
    assert found.p95 is not None
    assert 60 < found.p95 <= 300
    assert [one.partner_id for one in found.partners] == [big.terms.partner_id, small.terms.partner_id]
    assert found.per_minute(now) == pytest.approx(90 / 70)
    with visibility.only(frozenset({small.terms.partner_id})):
        mine = traffic(now)
    assert [one.partner_id for one in mine.partners] == [small.terms.partner_id]
    assert mine.delivered == 0


def test_quantiles_come_from_the_buckets() -> None:
    assert quantile([0] * 13, 0.95) is None
    assert quantile([100, *[0] * 12], 0.95) == pytest.approx(0.095)
    assert quantile([*[0] * 12, 3], 0.95) == LATENCY_EDGES[-1], "there is no upper edge: the lower one is sure"
