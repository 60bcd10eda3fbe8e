"""About how many messages: the counters of the dashboard know it where the planner only guesses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection

from messaging.choices import Direction
from messaging.messages.selectors import finding
from messaging.messages.selectors.finding import MessageFilters
from messaging.models import TrafficHour
from messaging.overview.services.traffic_hours import KEEP
from partners import visibility
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON, time  # noqa: F401  (a fixture)
from tests.messaging.console.scenes import browser
from tests.messaging.factories import PartnerSide, partner_side, submit

pytestmark = pytest.mark.django_db
DAY = MessageFilters(created_gte=NOON - timedelta(hours=24))


@pytest.fixture
def busy(time: FrozenClock) -> PartnerSide:  # noqa: F811
    """A pair that sent 100 and received 20 in each of the last 30 hours; the store itself has next to nothing."""
    partner = partner_side()
    for hours in range(1, 31):
        at = NOON - timedelta(hours=hours)
        TrafficHour.objects.create(pair=partner.outbound, hour=at, accepted=100)
        TrafficHour.objects.create(pair=partner.inbound, hour=at, received=20, duplicates=7)
    return partner


def test_a_day_is_what_the_counters_say(busy: PartnerSide) -> None:
    assert finding.estimate(DAY) == 24 * 120
    assert finding.estimate(replace(DAY, direction=Direction.OUT)) == 24 * 100
    assert finding.estimate(replace(DAY, direction=Direction.IN)) == 24 * 20
    assert finding.estimate(replace(DAY, pair_id=busy.inbound.pk)) == 24 * 20
    assert finding.estimate(replace(DAY, partner_id=busy.terms.partner_id)) == 24 * 120
    assert finding.estimate(replace(DAY, created_lt=NOON - timedelta(hours=23, minutes=30))) == 60
    with visibility.only(frozenset()):
        assert finding.estimate(DAY) < 10, "what may not be seen is not counted either"


def test_the_hour_under_way_is_whole_although_it_is_not_over(busy: PartnerSide, time: FrozenClock) -> None:  # noqa: F811
    TrafficHour.objects.create(pair=busy.outbound, hour=NOON, accepted=50)
    time.move(600)
    assert finding.estimate(MessageFilters(created_gte=NOON)) == 50


def test_where_the_counters_know_nothing_the_planner_is_asked(busy: PartnerSide) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message")  # else it guesses by the room that rows of earlier tests took
    guess = replace(DAY, states=("failed",))
    assert finding.estimate(guess) < 100
    assert finding.estimate(MessageFilters()) < 100
    assert finding.estimate(replace(DAY, created_gte=NOON - KEEP - timedelta(days=1))) < 100


def test_the_list_says_about_as_many_as_the_dashboard(busy: PartnerSide) -> None:
    for _ in range(60):
        submit(busy)
    assert "about 2.9 k" in browser().get("/messages/?window=24h").content.decode()


def test_a_range_that_runs_backwards_is_refused_beside_its_field(busy: PartnerSide) -> None:
    submit(busy)
    client = browser()
    for url in (
        "/messages/?since=2026-03-02T00:00&before=2026-03-01T00:00",
        "/audit/?after=2026-03-02&before=2026-03-01",
        "/transactions/?from=2026-03-02T00:00&to=2026-03-01T00:00",
    ):
        said = client.get(url).content.decode()
        field = "to" if "/transactions/" in url else "before"
        assert f'id="error-{field}"' in said and "It must be later than" in said, url
        assert "runs backwards" in said
    right = client.get("/messages/?since=2026-02-01T00:00&before=2026-03-02T00:00").content.decode()
    assert 'id="error-before"' not in right
    assert clock.now() == NOON
