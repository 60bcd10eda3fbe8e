"""What the live watch counts and raises: each batch once, whatever comes again; anomalies once, and gone when gone."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from messaging import anomalies
from messaging.choices import IncidentState, Interface
from messaging.journal import incidents
from messaging.journal.audit import SYSTEM, Actor
from messaging.models import Event, Incident, LiveMinute, LiveState, Pair
from messaging.reports.services import live_watch
from messaging.reports.services.live_watch import Gap, Memory, Minute, Place, Superseded
from rmhub import clock
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PERSON = Actor("ann", Interface.CONSOLE)


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


@pytest.fixture
def place() -> Place:
    with clock.frozen(NOON):
        return live_watch.begin(lambda epoch: False)


def count(place: Place, *minutes: Minute, batch: int, begin: int, through: int, as_of: datetime = NOON) -> bool:
    counted = live_watch.counted_through(place.query, place.epoch)
    return live_watch.apply(
        query=place.query,
        epoch=place.epoch,
        batch=batch,
        begin=begin,
        counted=counted,
        through=through,
        as_of=as_of,
        minutes=minutes,
    )


def test_a_batch_that_comes_again_changes_nothing(partner: PartnerSide, place: Place) -> None:
    pair = partner.outbound
    first = Minute(pair.pk, NOON, accepted=3, acks=2, ack_seconds=1.5, ack_longest=1.0)
    assert count(place, first, batch=0, begin=0, through=100)
    assert not count(place, first, batch=0, begin=0, through=100)
    second = Minute(pair.pk, NOON, accepted=1, acks=1, ack_seconds=2.0, ack_longest=2.0)
    assert count(place, second, batch=1, begin=100, through=120)
    assert not count(place, second, batch=1, begin=100, through=120)
    row = LiveMinute.objects.get()
    assert (row.accepted, row.acks, row.ack_seconds, row.ack_longest) == (4, 3, 3.5, 2.0)


def test_a_lost_checkpoint_counts_on_where_the_counts_end(partner: PartnerSide, place: Place) -> None:
    pair = partner.outbound
    count(place, Minute(pair.pk, NOON, accepted=3), batch=0, begin=0, through=100)
    anew = live_watch.begin(lambda epoch: False)
    assert anew.epoch != place.epoch
    assert anew.through == 100
    assert count(anew, Minute(pair.pk, NOON, accepted=2), batch=0, begin=100, through=150)
    assert LiveMinute.objects.get().accepted == 5
    with pytest.raises(Superseded):  # the one whose checkpoint was lost still runs somewhere
        live_watch.counted_through(place.query, place.epoch)
    with pytest.raises(Superseded):
        live_watch.apply(
            query=place.query,
            epoch=place.epoch,
            batch=1,
            begin=100,
            counted=150,
            through=200,
            as_of=NOON,
            minutes=[Minute(pair.pk, NOON, accepted=9)],
        )
    assert live_watch.begin(lambda epoch: True) == Place(anew.query, anew.epoch, 150)


def test_what_two_watches_read_at_once_counts_once(partner: PartnerSide, place: Place) -> None:
    pair = partner.outbound
    stale = live_watch.counted_through(place.query, place.epoch)
    count(place, Minute(pair.pk, NOON, accepted=3), batch=0, begin=0, through=100)
    with pytest.raises(Superseded):
        live_watch.apply(
            query=place.query,
            epoch=place.epoch,
            batch=0,
            begin=0,
            counted=stale,
            through=120,
            as_of=NOON,
            minutes=[Minute(pair.pk, NOON, accepted=4)],
        )
    assert LiveMinute.objects.get().accepted == 3


def test_a_checkpoint_ahead_of_a_restored_database_is_noticed(partner: PartnerSide, place: Place) -> None:
    count(place, batch=0, begin=0, through=100)
    with pytest.raises(Gap):
        count(place, Minute(partner.outbound.pk, NOON, accepted=1), batch=9, begin=500, through=600)


def test_on_another_server_the_kept_days_are_counted_anew(partner: PartnerSide, place: Place) -> None:
    count(place, Minute(partner.outbound.pk, NOON, accepted=3), batch=0, begin=0, through=10**15)
    LiveState.objects.filter(pk=place.query).update(query="live 1/1")
    old = Event.objects.create(at=NOON - timedelta(days=40), type="message.accepted", data={})
    Event.objects.filter(pk=old.pk).update(xid=20)
    young = Event.objects.create(at=NOON - timedelta(days=3), type="message.accepted", data={})
    Event.objects.filter(pk=young.pk).update(xid=90)
    with clock.frozen(NOON):
        anew = live_watch.begin(lambda epoch: True)
    assert 20 < anew.through <= 90
    assert not LiveMinute.objects.exists()
    assert [state.query for state in LiveState.objects.all()] == [place.query]


def test_events_renumbered_by_a_restore_are_counted(partner: PartnerSide) -> None:
    event = Event.objects.create(at=NOON - timedelta(hours=2), type="message.accepted", data={})
    Event.objects.filter(pk=event.pk).update(xid=0)
    with clock.frozen(NOON):
        assert live_watch.begin(lambda epoch: False).through == 0


def test_minutes_are_kept_for_fourteen_days(partner: PartnerSide, place: Place) -> None:
    pair = partner.outbound
    old = Minute(pair.pk, NOON - timedelta(days=15), accepted=1)
    count(place, old, Minute(pair.pk, NOON, accepted=1), batch=0, begin=0, through=100)
    assert LiveMinute.objects.get().minute == NOON
    live_watch.judge(NOON + timedelta(days=15), Memory())
    assert not LiveMinute.objects.exists()


def test_data_are_as_of_now_only_when_nothing_waits(place: Place) -> None:
    through = live_watch.counted_through(place.query, place.epoch)
    with clock.frozen(NOON + timedelta(hours=1)) as time:
        live_watch.look(place, Memory())
        assert LiveState.objects.get().applied_at == clock.now()
        event = Event.objects.create(at=NOON, type="message.accepted", data={})
        assert event.pk
        assert Event.objects.get().xid >= through
        time.move(60)
        live_watch.look(place, Memory())
        assert LiveState.objects.get().applied_at == NOON + timedelta(hours=1)


# ---- anomalies ----


def past(pair: Pair, until: datetime, *, hours: int = 4, **counts: float) -> None:
    """Five-minute windows with these counts, the last one just before `until`."""
    start = until - timedelta(hours=hours)
    LiveMinute.objects.bulk_create(
        LiveMinute(pair=pair, minute=start + anomalies.WINDOW * number, **counts)
        for number in range(int(timedelta(hours=hours) / anomalies.WINDOW))
    )


def now(pair: Pair, minute: datetime, **counts: float) -> None:
    LiveMinute.objects.create(pair=pair, minute=minute, **counts)


def unresolved() -> list[str]:
    return list(
        Incident.objects.exclude(state=IncidentState.RESOLVED).order_by("cause").values_list("cause", flat=True)
    )


def test_slow_acknowledgements_are_raised_once_and_resolved_by_the_watch(partner: PartnerSide) -> None:
    pair = partner.outbound
    past(pair, NOON, delivered=20, acks=20, ack_seconds=8.0)
    now(pair, NOON, delivered=20, acks=20, ack_seconds=60.0)
    memory = Memory()
    at = NOON + anomalies.WINDOW
    opened = live_watch.judge(at, memory)
    assert [incident.cause for incident in opened] == [anomalies.ACK_SLOW]
    assert "3.00 s on average" in opened[0].detail and "usual is 0.40 s" in opened[0].detail
    assert live_watch.judge(at + timedelta(minutes=1), memory) == []
    assert live_watch.judge(at + timedelta(minutes=1), Memory()) == []  # nor after a restart
    incident = Incident.objects.get()
    assert incident.occurrences == 1 and incident.pair == pair
    # Back in range for one window only: it may come and go.
    now(pair, at, delivered=20, acks=20, ack_seconds=8.0)
    live_watch.judge(at + anomalies.WINDOW, memory)
    assert unresolved() == [anomalies.ACK_SLOW]
    now(pair, at + anomalies.WINDOW, delivered=20, acks=20, ack_seconds=8.0)
    live_watch.judge(at + 2 * anomalies.WINDOW, memory)
    incident.refresh_from_db()
    assert incident.state == IncidentState.RESOLVED and incident.resolved_by == SYSTEM.name
    kinds = list(Event.objects.order_by("id").values_list("type", flat=True))
    assert kinds == ["incident.opened", "incident.resolved"]


def test_failures_are_judged_by_their_share(partner: PartnerSide) -> None:
    pair = partner.outbound
    past(pair, NOON, delivered=20, retried=1)
    now(pair, NOON, delivered=10, retried=9, failed=1)
    assert [i.cause for i in live_watch.judge(NOON + anomalies.WINDOW, Memory())] == [anomalies.FAILURE_RATE]
    assert "10 failures, 50% of what ended" in Incident.objects.get().detail


def test_refused_messages_are_failures_of_a_pair_that_receives(partner: PartnerSide) -> None:
    pair = partner.inbound
    past(pair, NOON, received=20)
    now(pair, NOON, received=10, rejected=10)
    assert [i.cause for i in live_watch.judge(NOON + anomalies.WINDOW, Memory())] == [anomalies.FAILURE_RATE]


@pytest.mark.parametrize(
    ("known", "present"),
    [
        pytest.param({"hours": 0}, {"delivered": 30, "acks": 30, "ack_seconds": 900.0, "failed": 30}, id="no past"),
        pytest.param(
            {"hours": 4, "delivered": 1, "acks": 1, "ack_seconds": 0.1},
            {"delivered": 30, "acks": 30, "ack_seconds": 900.0},
            id="little past",
        ),
        pytest.param(
            {"hours": 4, "delivered": 30, "acks": 30, "ack_seconds": 3.0},
            {"delivered": 2, "acks": 2, "ack_seconds": 60.0, "failed": 2},
            id="little now",
        ),
        pytest.param(
            {"hours": 4, "delivered": 30, "acks": 30, "ack_seconds": 3.0},
            {"delivered": 30, "acks": 30, "ack_seconds": 8.0},
            id="a bit slower",
        ),
    ],
)
def test_no_alarm_on_little_data_or_little_difference(
    partner: PartnerSide, known: dict[str, float], present: dict[str, float]
) -> None:
    pair = partner.outbound
    hours = int(known.pop("hours"))
    past(pair, NOON, hours=hours, **known)
    now(pair, NOON, **present)
    assert live_watch.judge(NOON + anomalies.WINDOW, Memory()) == []


def test_a_partner_that_is_heard_steadily_and_falls_silent(partner: PartnerSide) -> None:
    pair = partner.inbound
    past(pair, NOON, received=5)
    heard = NOON - anomalies.WINDOW + timedelta(minutes=1)
    assert live_watch.judge(heard + timedelta(minutes=20), Memory()) == []  # twice the pause of 5 minutes, and grace
    opened = live_watch.judge(heard + timedelta(minutes=21), Memory())
    assert [incident.cause for incident in opened] == [anomalies.PARTNER_SILENT]
    assert opened[0].detail == "Nothing since 2026-11-20 11:56 UTC; the longest pause of the past week was 5 minutes."
    now(pair, heard + timedelta(minutes=24), received=1)
    live_watch.judge(heard + timedelta(minutes=26), Memory())
    assert unresolved() == []


def test_while_the_hub_was_down_nobody_could_be_heard(partner: PartnerSide) -> None:
    past(partner.inbound, NOON, received=5)
    begun = NOON + timedelta(hours=9)
    assert live_watch.judge(begun + timedelta(minutes=1), Memory(since=begun)) == []
    assert live_watch.judge(begun + timedelta(minutes=30), Memory(since=begun)) != []


def test_a_partner_with_few_messages_has_no_rhythm(partner: PartnerSide) -> None:
    past(partner.inbound, NOON, hours=1, received=0)
    now(partner.inbound, NOON, received=3)
    assert live_watch.judge(NOON + timedelta(days=2), Memory()) == []


def test_nothing_is_raised_by_stale_counts(partner: PartnerSide, place: Place) -> None:
    past(partner.inbound, NOON, received=5)
    Event.objects.create(at=NOON, type="message.received", data={}, pair=partner.inbound)  # waits to be counted
    with clock.frozen(NOON + timedelta(hours=3)):
        assert live_watch.look(place, Memory()) == []
    assert unresolved() == []


def test_what_a_person_resolved_is_quiet_for_an_hour(partner: PartnerSide) -> None:
    past(partner.inbound, NOON, received=5)
    at = NOON + timedelta(minutes=30)
    (incident,) = live_watch.judge(at, Memory())
    with clock.frozen(at + timedelta(minutes=1)):
        incidents.incident_resolve(incident_id=incident.pk, actor=PERSON, reason="Holiday over there")
    assert live_watch.judge(at + timedelta(minutes=50), Memory()) == []
    assert len(live_watch.judge(at + timedelta(minutes=62), Memory())) == 1


def test_a_suspended_pair_raises_nothing_more(partner: PartnerSide) -> None:
    pair = partner.outbound
    past(pair, NOON, delivered=20, retried=1)
    now(pair, NOON, delivered=10, retried=10)
    Pair.objects.filter(pk=pair.pk).update(flow="suspended")
    assert live_watch.judge(NOON + anomalies.WINDOW, Memory()) == []


def test_an_unknown_pair_is_passed_over(place: Place) -> None:
    assert count(place, Minute(uuid.uuid4(), NOON, accepted=1), batch=0, begin=0, through=100)
    assert not LiveMinute.objects.exists()
