"""What is due, met, missed and open: counted once from the feed, by the time at which the limit ends."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.choices import SlaTarget
from messaging.deliveries.services import pulling
from messaging.deliveries.services.settling import delivery_settle
from messaging.messages.services import cancelling
from messaging.models import Event, Message, SlaMonth, SlaSpan, TrafficCursor, Trigger
from messaging.overview.services import traffic_hours
from messaging.protocol.envelope import Semantics
from messaging.protocol.streams.final import ACK_RECEIVE
from messaging.sla import selectors as sla
from messaging.sla.services import counting
from partners import registry, selectors, services
from partners.models import Agreement, AgreementVersion
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import PERSON, arrive, make_trigger
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.messaging.profiles.stream import test_sending as streams
from tests.messaging.profiles.stream.partner import StreamSide, stream_side

pytestmark = pytest.mark.django_db

TARGET = {"acknowledged_within": 900, "timeout": 7200}


def deliver(partner: PartnerSide, time: FrozenClock, seconds: float) -> Message:
    with link() as wire:
        message = submit(partner)
        work()
        time.move(seconds)
        partner.send(partner.acknowledgement(wire.last))
    return message


def take(trigger: Trigger) -> None:
    while leases := pulling.lease(trigger.pk, limit=10, consumer="erp"):
        for one in leases:
            pulling.complete(one.delivery.pk, one.claim)


def this_month(partner: PartnerSide | StreamSide, target: str = "acknowledged") -> sla.Attainment:
    agreement = selectors.agreement(partner.terms.agreement_id)
    return next(one for one in sla.attainments([agreement], clock.now()) if one.target == target)


def numbers(one: sla.Attainment) -> tuple[int, int, int, int]:
    return one.due, one.met, one.missed, one.open


def test_met_late_open_and_overdue(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    for seconds in (1, 900, 901):
        deliver(partner, time, seconds)
    submit(partner)
    traffic_hours.count_due()
    # The limit of the third ended within the present five minutes: it is judged when they are over.
    assert numbers(this_month(partner)) == (4, 2, 0, 2)
    time.move(300)
    traffic_hours.count_due()
    assert numbers(this_month(partner)) == (4, 2, 1, 1)
    time.move(900)
    traffic_hours.count_due()
    one = this_month(partner)
    assert numbers(one) == (4, 2, 2, 0)  # never acknowledged: missed as soon as its limit is past
    assert (one.attained, one.allowed, one.left, one.used, one.state) == (50.0, 0, -2, None, "missed")


def test_a_limit_that_ends_at_the_very_end_is_kept(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    deliver(partner, time, 900)
    time.move(600)
    traffic_hours.count_due()
    assert numbers(this_month(partner)) == (1, 1, 0, 0)


def test_a_document_belongs_to_the_month_in_which_its_limit_ends(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    end = datetime(2026, 4, 1, tzinfo=UTC)
    time.move((end - timedelta(seconds=901) - clock.now()).total_seconds())
    deliver(partner, time, 1)  # 23:59:59, although it is done long before
    submit(partner)  # at midnight sharp
    traffic_hours.count_due()
    assert dict(SlaMonth.objects.values_list("month", "due")) == {date(2026, 3, 1): 1, date(2026, 4, 1): 1}
    assert numbers(this_month(partner)) == (1, 1, 0, 0)
    time.move((end - clock.now()).total_seconds())
    traffic_hours.count_due()
    one = this_month(partner)
    assert (one.month, numbers(one)) == (date(2026, 4, 1), (1, 0, 0, 1))
    agreement = selectors.agreement(partner.terms.agreement_id)
    assert [(row.month, numbers(row)) for row in sla.history(agreement, clock.now())] == [
        (date(2026, 4, 1), (1, 0, 0, 1)),
        (date(2026, 3, 1), (1, 1, 0, 0)),
    ]


def test_months_are_those_of_utc_wherever_a_clock_stands() -> None:
    berlin = datetime.fromisoformat("2026-04-01T01:30:00+02:00")
    assert counting.month_of(berlin) == date(2026, 3, 1)
    assert counting.span_of(berlin) == datetime(2026, 3, 31, 23, 30, tzinfo=UTC)


def test_what_is_cancelled_in_time_is_not_due(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    in_time, late = submit(partner), submit(partner)
    cancelling.message_cancel(message_id=in_time.pk, actor=PERSON, reason="sent by mistake")
    time.move(1000)
    cancelling.message_cancel(message_id=late.pk, actor=PERSON, reason="nobody waits for it")
    time.move(300)
    traffic_hours.count_due()
    assert numbers(this_month(partner)) == (1, 0, 1, 0)


def test_a_failure_in_the_middle_counts_nothing_twice(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    deliver(partner, time, 1)
    real = TrafficCursor.save

    def dies(self: TrafficCursor, *args: object, **kwargs: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(TrafficCursor, "save", dies)
    with pytest.raises(OSError, match="killed"):
        traffic_hours.count_due()
    assert not SlaMonth.objects.exists() and not SlaSpan.objects.exists()
    monkeypatch.setattr(TrafficCursor, "save", real)
    for _ in range(2):
        traffic_hours.count_due()
    assert numbers(this_month(partner)) == (1, 1, 0, 0)


def test_what_is_not_counted_yet_is_not_late(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was away for an hour: what it has not read yet may have been in time."""
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    deliver(partner, time, 1)
    monkeypatch.setattr(traffic_hours, "_AT_ONCE", 1)
    monkeypatch.setattr(traffic_hours, "_ROUNDS", 1)
    time.move(3600)
    while not SlaMonth.objects.exists():
        traffic_hours.count_due()
    assert numbers(this_month(partner)) == (1, 0, 0, 1)
    monkeypatch.setattr(traffic_hours, "_ROUNDS", 20)
    traffic_hours.count_due()
    assert numbers(this_month(partner)) == (1, 1, 0, 0)


def test_inbound_documents_are_processed_when_all_services_are_done(time: FrozenClock) -> None:
    partner = partner_side(processed_within=600)
    traffic_hours.count_due()
    partner.send(partner.message(1, "for nobody"))
    first, second = make_trigger(kind="pull", concurrency=10), make_trigger(kind="pull", concurrency=10)
    arrive(partner, "a", "b")
    take(first)
    traffic_hours.count_due()
    assert numbers(this_month(partner, "processed")) == (2, 0, 0, 2)
    take(second)
    traffic_hours.count_due()
    assert numbers(this_month(partner, "processed")) == (2, 2, 0, 0)


def test_a_new_share_holds_from_its_first_document(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    deliver(partner, time, 1)
    traffic_hours.count_due()
    agreement = Agreement.objects.get(pk=partner.terms.agreement_id)
    draft = services.version_new(agreement=agreement)
    services.version_edit(version=draft, acknowledged_percent=95.5, acknowledged_within=60)
    services.version_activate(version=AgreementVersion.objects.get(pk=draft.pk))
    registry.reset()
    assert this_month(partner).percent == 99
    deliver(partner, time, 70)
    time.move(300)
    traffic_hours.count_due()
    one = this_month(partner)
    assert (one.percent, one.within, numbers(one)) == (95.5, 60, (2, 1, 1, 0))


def test_without_a_target_nothing_is_counted_and_no_message_is_read(time: FrozenClock) -> None:
    partner = partner_side()
    traffic_hours.count_due()
    deliver(partner, time, 1)
    events = list(Event.objects.all())
    with CaptureQueriesContext(connection) as queries:
        counting.count(events)
    assert len(queries) == 1
    assert not SlaMonth.objects.exists()


def test_a_batch_costs_as_many_statements_as_one_document(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()

    def statements(documents: int) -> int:
        for _ in range(documents):
            deliver(partner, time, 1)
        events = list(Event.objects.order_by("-id")[: 4 * documents])
        with CaptureQueriesContext(connection) as queries:
            counting.count(events)
        return len(queries)

    assert statements(1) == statements(5) <= 6


def test_old_spans_go_and_months_stay(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    deliver(partner, time, 1)
    traffic_hours.count_due()
    assert SlaSpan.objects.exists()
    time.move(3 * 86_400)
    traffic_hours.count_due()
    assert not SlaSpan.objects.exists()
    assert numbers(this_month(partner)) == (1, 1, 0, 0)
    assert SlaMonth.objects.get().target == SlaTarget.ACKNOWLEDGED


def test_with_final_receipts_a_document_that_is_sent_is_processed_by_its_receipt(time: FrozenClock) -> None:
    side = stream_side(final_receipt=True, final_receipt_within=3600, processed_within=600)
    traffic_hours.count_due()
    with link():
        messages = streams.submit(side, 2)
        work()
        time.move(5)
        streams.acknowledge(side, 2)
        traffic_hours.count_due()
        assert numbers(this_month(side, "processed")) == (2, 0, 0, 2)  # the acknowledgement is not what was promised
        streams.finalise(side, messages[0], ACK_RECEIVE)
        time.move(900)
        streams.finalise(side, messages[1], ACK_RECEIVE)
    traffic_hours.count_due()
    assert numbers(this_month(side, "processed")) == (2, 1, 1, 0)


def test_a_delivery_that_a_person_made_anew_does_not_save_the_target(time: FrozenClock) -> None:
    partner = partner_side(processed_within=600)
    traffic_hours.count_due()
    trigger = make_trigger(kind="pull")
    arrive(partner, "a")
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="erp")
    pulling.fail(leased.delivery.pk, leased.claim, "no such customer")
    delivery_settle(
        delivery_id=leased.delivery.pk, decision="resubmit", actor=PERSON, reason="the customer is there now"
    )
    take(trigger)
    time.move(900)
    traffic_hours.count_due()
    assert numbers(this_month(partner, "processed")) == (1, 0, 1, 0)


def test_messages_that_nobody_acknowledges_are_not_due(time: FrozenClock) -> None:
    partner = partner_side(**TARGET)
    traffic_hours.count_due()
    with link():
        submit(partner, semantics=Semantics.BEST_EFFORT)
        work()
    traffic_hours.count_due()
    assert not SlaMonth.objects.exists()
