"""Documents once more: outbound as a new message, inbound to the triggers that have not had them."""

from __future__ import annotations

import uuid

import pytest

from messaging.deliveries.services import triggering
from messaging.exceptions import InvalidSubmission, NotFound, OutsideAgreement, WrongState
from messaging.journal.audit import Actor
from messaging.messages.selectors import relatives
from messaging.messages.selectors.messages import message
from messaging.messages.services import resubmitting
from messaging.models import AuditEntry, Delivery, Event, Message
from messaging.pairs.services import operating
from partners import registry
from partners.services import agreement_disable
from rmhub.clock import FrozenClock
from tests.messaging.conftest import time as time
from tests.messaging.console.scenes import delivered, documents, doubtful, passed_on, suspended, trigger_for
from tests.messaging.factories import LOST, PartnerSide, decoded, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
OLGA = Actor("olga", "api")
WHY = "The partner lost it"


def resubmit(one: Message, key: str = "") -> Message:
    return resubmitting.message_resubmit(message_id=one.pk, actor=OLGA, reason=WHY, idempotency_key=key).message


def test_the_same_documents_go_out_under_a_new_id(db: None) -> None:
    partner = partner_side()
    old = delivered(partner)[0]
    made = resubmit(old)
    assert made.message_id != old.message_id
    assert (made.state, made.resubmitted_from_id, made.submitted_by) == ("queued", old.pk, "olga")
    assert (made.conversation_id, made.service, made.action) == (old.conversation_id, old.service, old.action)
    with link() as wire:
        work()
    assert decoded(wire.last).message_id == made.message_id
    assert [part.content for part in decoded(wire.last).payloads] == [b"<Order/>"]
    old.refresh_from_db()
    assert old.state == "delivered"
    entry = AuditEntry.objects.get(verb="message.resubmit")
    assert (entry.actor, entry.reason, entry.object_id) == ("olga", WHY, old.public_id)
    assert entry.after["resubmitted_as"] == made.public_id


def test_each_of_the_two_leads_to_the_other(db: None) -> None:
    old = delivered(partner_side())[0]
    made = resubmit(old)
    assert relatives.of_message(message(old.pk)).resubmitted_as == [made]
    assert relatives.of_message(message(made.pk)).resubmitted_from == old


def test_two_presses_of_one_button_make_one_message(db: None) -> None:
    old = delivered(partner_side())[0]
    assert resubmit(old, "k-1") == resubmit(old, "k-1")
    assert Message.objects.filter(resubmitted_from=old).count() == 1
    assert AuditEntry.objects.filter(verb="message.resubmit").count() == 1
    resubmit(old, "k-2")
    assert Message.objects.filter(resubmitted_from=old).count() == 2


def test_only_what_is_done_can_be_resubmitted(time: FrozenClock) -> None:
    stuck, partner = suspended(time), partner_side()
    failed = Message.objects.get(pk=stuck.outbound.in_flight_id)
    partner.send(partner.message(1))
    received = Message.objects.get(direction="in")
    went = passed_on(partner_side(), received)
    waiting = submit(partner)
    for one, why in (
        (waiting, "waits in the queue"),
        (failed, "resume, skip or cancel"),
        (received, "came from the partner"),
        (went, "passed on for another party"),
    ):
        with pytest.raises(WrongState, match=why):
            resubmit(one)
    operating.message_cancel(message_id=waiting.pk, actor=OLGA, reason="not wanted any more")
    assert resubmit(waiting).resubmitted_from_id == waiting.pk
    assert not Event.objects.filter(type="message.resubmitted").exists()


def test_a_request_that_failed_for_good_can_be_resubmitted(time: FrozenClock) -> None:
    partner = partner_side(profile="repeatable")
    one = submit(partner)
    with link(LOST):
        work()
    Message.objects.filter(pk=one.pk).update(state="failed", due_at=None)
    assert resubmit(one).message_id != one.message_id


def test_a_reason_and_an_agreement_in_force_are_needed(db: None) -> None:
    old = delivered(partner_side())[0]
    with pytest.raises(InvalidSubmission):
        resubmitting.message_resubmit(message_id=old.pk, actor=OLGA, reason="")
    with pytest.raises(NotFound):
        resubmitting.message_resubmit(message_id=uuid.uuid4(), actor=OLGA, reason=WHY)
    agreement_disable(agreement=old.agreement_version.agreement)
    registry.reset()
    with pytest.raises(OutsideAgreement):
        resubmit(old)


def redeliver(one: Message) -> resubmitting.Redelivery:
    return resubmitting.message_redeliver(message_id=one.pk, actor=OLGA, reason=WHY)


def _received(partner: PartnerSide) -> Message:
    partner.send(partner.message(partner.inbound.last_sequence + 1))
    return Message.objects.filter(direction="in").latest("id")


def test_a_trigger_that_was_made_later_gets_the_document(db: None) -> None:
    partner = partner_side()
    one = _received(partner)
    with pytest.raises(WrongState, match="No trigger wants this document"):
        redeliver(one)
    trigger = trigger_for(partner, "late")
    (made,) = redeliver(one).made
    assert (made.trigger, made.message, made.state, made.position) == (trigger, one, "waiting", one.position)
    with pytest.raises(WrongState, match="on its way"):
        redeliver(one)
    assert Delivery.objects.filter(message=one).count() == 1


def test_what_failed_gets_it_again_and_what_was_processed_does_not(time: FrozenClock) -> None:
    partner = partner_side()
    doubted, done = trigger_for(partner, "doubted", ordered=False), trigger_for(partner, "done")
    (delivery,) = doubtful(doubted, partner, "d-1@partner")
    Delivery.objects.filter(trigger=done).update(state="completed", due_at=None)
    result = redeliver(delivery.message)
    assert [made.resubmission_of for made in result.made] == [delivery]
    assert result.left_out == [("done", "The delivery is completed: a document is processed once.")]
    delivery.refresh_from_db()
    assert (delivery.state, delivery.decision) == ("settled", "resubmit")
    assert AuditEntry.objects.filter(verb="message.redeliver", reason=WHY).count() == 1


def test_a_disabled_trigger_gets_nothing(db: None) -> None:
    partner = partner_side()
    trigger = trigger_for(partner, "off")
    (delivery,) = documents(partner, "d-1@partner")
    Delivery.objects.filter(pk=delivery.pk).update(state="failed", due_at=None)
    triggering.trigger_disable(trigger_id=trigger.pk, actor=OLGA, reason="moved away")
    with pytest.raises(WrongState, match="enable it first"):
        redeliver(delivery.message)


def test_what_we_sent_or_pass_on_is_not_for_triggers(db: None) -> None:
    with pytest.raises(WrongState, match="resubmit it"):
        redeliver(delivered(partner_side())[0])
    came = _received(partner_side())
    passed_on(partner_side(), came)
    with pytest.raises(WrongState, match="next hop"):
        redeliver(came)
