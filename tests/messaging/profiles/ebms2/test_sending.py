"""What we send as ebXML 2.0: several in flight, retries, what the partner says of them, and the end of their time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.choices import MessageState, SignalState
from messaging.engine.claiming import claim_due
from messaging.engine.kinds import give_back
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.models import Incident, Message, OrderedConversation, Signal
from messaging.onboarding.services.changing import agreement_disable
from messaging.pairs.selectors import pairs
from messaging.pairs.services.operating import (
    message_cancel,
    pair_pause,
    pair_release,
    pair_resume,
    pair_retry_now,
    pair_skip_head,
)
from messaging.protocol.errors import ErrorCode, Severity
from messaging.transports import Receipt
from partners.models import AgreementVersion
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.console.scenes import browser
from tests.messaging.factories import LOST, REFUSED, TAKEN, Link, link, submit, work
from tests.messaging.profiles.ebms2.partner import Ebms2Side, decoded, ebms2_side, responding

pytestmark = pytest.mark.django_db
REASON = "The partner says that they are back."
ACTOR = Actor("ann")
NOT_MADE = Receipt(ok=False, cause="circuit_open", detail="Left alone.")


def state(message: Message) -> str:
    return Message.objects.get(pk=message.pk).state


def test_a_message_asks_for_an_acknowledgement_and_is_done_when_that_comes() -> None:
    partner = ebms2_side()
    message = submit(partner)
    with link() as wire:
        work()
    sent = decoded(wire.last)
    assert sent.ebms is not None
    assert (sent.ebms.duplicate_elimination, len(sent.ebms.ack_requests), sent.ebms.order) == (True, 1, None)
    assert dict(wire.last.headers)["SOAPAction"] == '"ebXML"'
    assert state(message) == MessageState.AWAITING_ACK
    assert partner.bring(partner.acknowledging(wire.last)).status == 204
    assert state(message) == MessageState.DELIVERED
    assert partner.outbound.out_now == 0
    assert Signal.objects.get(about=message).state == SignalState.MATCHED


def test_several_are_in_flight_at_once_up_to_the_limit() -> None:
    partner = ebms2_side(max_in_flight=3)
    for _ in range(5):
        submit(partner)
    with link() as wire:
        work()
    assert (len(wire.parcels), partner.outbound.out_now, partner.outbound.queued) == (3, 3, 2)
    with link() as later:
        partner.bring(partner.acknowledging(wire.parcels[1]))
        work()
    assert len(later.parcels) == 1


def test_what_nobody_acknowledges_goes_out_again_with_the_same_octets(clock: FrozenClock) -> None:
    partner = ebms2_side(retry_interval=60)
    message = submit(partner)
    with link() as wire:
        work()
        clock.move(59)
        work()
        assert len(wire.parcels) == 1
        clock.move(2)
        work()
    assert len(wire.parcels) == 2
    assert wire.parcels[0].octets == wire.parcels[1].octets
    assert state(message) == MessageState.AWAITING_ACK


@pytest.mark.parametrize("outcome", [TAKEN, LOST, REFUSED], ids=["taken", "lost", "refused"])
def test_after_the_last_retry_the_pair_is_suspended_and_a_resume_gives_a_new_budget(
    outcome: Receipt, clock: FrozenClock
) -> None:
    partner = ebms2_side(retries=1, retry_interval=60)
    message = submit(partner)
    with link(outcome) as wire:
        for _ in range(4):
            work()
            clock.move(61)
    assert len(wire.parcels) == 2
    pair = partner.outbound
    assert (pair.flow, pair.out_now) == ("suspended", 1)
    assert Incident.objects.filter(pair=pair).exists()
    pair_resume(pair_id=pair.pk, actor=ACTOR, reason=REASON)
    with link() as wire:
        work()
        clock.move(61)
        work()
        partner.bring(partner.acknowledging(wire.last))
    assert len(wire.parcels) == 2
    assert state(message) == MessageState.DELIVERED


def test_an_attempt_that_was_not_made_uses_no_retry(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=1, retry_interval=60)
    message = submit(partner)
    with link(NOT_MADE):
        for _ in range(4):
            work()
            clock.move(61)
    assert partner.outbound.flow == "idle"
    with link() as wire:
        work()
        partner.bring(partner.acknowledging(wire.last))
    assert state(message) == MessageState.DELIVERED


def suspended(clock: FrozenClock, count: int = 3, **terms: object) -> tuple[Ebms2Side, list[Message]]:
    """A pair that stands still, since nobody acknowledged any of its messages."""
    partner = ebms2_side(retries=1, retry_interval=60, **terms)
    messages = [submit(partner) for _ in range(count)]
    with link():
        for _ in range(3):
            work()
            clock.move(61)
    assert (partner.outbound.flow, partner.outbound.out_now) == ("suspended", count)
    return partner, messages


@pytest.mark.parametrize("how", ["acknowledged", "skipped", "cancelled"])
def test_after_a_probe_the_others_have_their_retries_again(how: str, clock: FrozenClock) -> None:
    partner, (first, *others) = suspended(clock)
    pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON, mode="probe")
    with link() as wire:
        work()
        assert [decoded(parcel).message_id for parcel in wire.parcels] == [first.message_id]
        if how == "acknowledged":
            partner.bring(partner.acknowledging(wire.last))
        elif how == "skipped":
            pair_skip_head(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        else:
            message_cancel(message_id=first.pk, actor=ACTOR, reason=REASON)
        work()
        if how != "acknowledged":
            partner.bring(partner.acknowledging(wire.last))  # the next one is the probe
            work()
    assert partner.outbound.flow == "idle"
    assert {decoded(parcel).message_id for parcel in wire.parcels[1:]} == {one.message_id for one in others}
    assert not Incident.objects.filter(state="open").exists()


def test_a_probe_that_nobody_acknowledges_suspends_the_pair_again(clock: FrozenClock) -> None:
    partner, _ = suspended(clock)
    pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON, mode="probe")
    with link() as wire:
        for _ in range(3):
            work()
            clock.move(61)
    assert len(wire.parcels) == 1
    assert partner.outbound.flow == "suspended"


def test_a_probe_that_is_told_not_now_is_made_again(clock: FrozenClock) -> None:
    partner, (first, *_) = suspended(clock)
    pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON, mode="probe")
    with link(Receipt(ok=False, status=503, cause="http_503")):
        work()
    assert pairs.next_repeat(partner.outbound.pk) is not None
    clock.move(61)
    with link() as wire:
        work()
    assert [decoded(parcel).message_id for parcel in wire.parcels] == [first.message_id]
    assert (partner.outbound.flow, pairs.next_repeat(partner.outbound.pk)) == ("idle", None)


def test_a_probe_is_made_although_its_server_is_left_alone(clock: FrozenClock) -> None:
    partner, _ = suspended(clock)
    pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON, mode="probe")
    [job] = claim_due(limit=10)
    assert job.last
    record([(job, NOT_MADE)])  # its worker knew no better
    assert partner.outbound.flow == "idle"


def test_what_a_worker_gives_back_uses_no_retry(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=60)
    message = submit(partner)
    give_back(claim_due(limit=10))
    with link() as wire:
        work()
    assert [decoded(parcel).message_id for parcel in wire.parcels] == [message.message_id]
    assert partner.outbound.flow == "idle"


def test_a_last_attempt_whose_worker_died_is_waited_for_like_any_other(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=600)
    message = submit(partner)
    claim_due(limit=10)
    clock.move(200)  # its lease is over
    assert claim_due(limit=10) == []
    assert (partner.outbound.flow, state(message)) == ("idle", MessageState.RETRYING)
    clock.move(601)
    assert claim_due(limit=10) == []
    assert partner.outbound.flow == "suspended"


def test_a_release_sends_what_came_due_meanwhile_and_nothing_else(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=1, retry_interval=60)
    first = submit(partner)
    with link() as wire:
        work()
        clock.move(30)
        second = submit(partner)
        work()
        pair_pause(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        clock.move(31)
        work()
        pair_release(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        work()
        assert [decoded(parcel).message_id for parcel in wire.parcels[2:]] == [first.message_id]
        clock.move(31)
        work()
        assert [decoded(parcel).message_id for parcel in wire.parcels[3:]] == [second.message_id]
        # Both have used their retries, and wait for the last time.
        pair_pause(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        pair_release(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        work()
    assert partner.outbound.flow == "idle"


def test_a_release_leaves_the_last_wait_of_a_message_alone_that_its_end_cuts_short(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=600)
    message = submit(partner, time_to_live=300)
    with link():
        work()
        pair_pause(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        pair_release(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        work()
        assert (partner.outbound.flow, state(message)) == ("idle", MessageState.AWAITING_ACK)
        clock.move(301)
        work()
    assert state(message) == MessageState.IN_DOUBT


def test_retry_now_is_an_attempt_more(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=60)
    submit(partner)
    with link() as wire:
        work()
        clock.move(30)
        for _ in range(3):
            pair_retry_now(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        work()
        assert (len(wire.parcels), partner.outbound.flow) == (2, "idle")
        clock.move(61)
        work()
    assert (len(wire.parcels), partner.outbound.flow) == (2, "suspended")


def test_an_acknowledgement_in_the_response_counts() -> None:
    partner = ebms2_side(sync_reply="mshSignalsOnly")
    message = submit(partner)
    with link(lambda parcel: responding(partner.acknowledging(parcel))) as wire:
        work()
    sent = decoded(wire.last)
    assert sent.ebms is not None
    assert sent.ebms.sync_reply
    assert state(message) == MessageState.DELIVERED
    assert Signal.objects.get(about=message).state == SignalState.MATCHED


def test_an_error_about_the_agreement_stops_the_pair_and_one_about_the_message_only_that() -> None:
    partner = ebms2_side()
    bad, good = submit(partner), submit(partner)
    with link() as wire:
        work()
    first, second = sorted(wire.parcels, key=lambda parcel: decoded(parcel).message_id != bad.message_id)
    partner.bring(partner.refusing(first, ErrorCode.MIME_PROBLEM))
    assert (state(bad), partner.outbound.flow) == (MessageState.FAILED, "idle")
    partner.bring(partner.refusing(second, ErrorCode.SECURITY_FAILURE))
    assert (state(good), partner.outbound.flow) == (MessageState.RETRYING, "suspended")
    assert partner.outbound.cause == "ebms_error_security_failure"


def test_a_warning_moves_nothing() -> None:
    partner = ebms2_side()
    message = submit(partner)
    with link() as wire:
        work()
    partner.bring(partner.refusing(wire.last, severity=Severity.WARNING))
    assert state(message) == MessageState.AWAITING_ACK


def test_a_message_is_never_sent_after_its_partner_may_have_forgotten_its_id(clock: FrozenClock) -> None:
    """The second trap of a resume: a copy that comes after the PersistDuration would be delivered twice."""
    partner = ebms2_side(retries=1, retry_interval=60, partner_window=600)
    message = submit(partner)
    with link() as wire:
        for _ in range(4):
            work()
            clock.move(61)
        clock.move(600)
        pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        sent = len(wire.parcels)
        work()
    assert len(wire.parcels) == sent
    assert state(message) == MessageState.IN_DOUBT
    assert partner.outbound.out_now == 0


def test_a_message_is_never_sent_after_its_time_to_live(clock: FrozenClock) -> None:
    """The first trap of a resume: the partner would refuse it, and may have taken an earlier copy."""
    partner = ebms2_side(retries=1, retry_interval=60, time_to_live=300)
    message = submit(partner)
    with link() as wire:
        for _ in range(4):
            work()
            clock.move(61)
        sent = decoded(wire.last)
        assert sent.ebms is not None
        assert sent.ebms.time_to_live == message.created_at + timedelta(seconds=300)
        clock.move(300)
        pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
        work()
    assert len(wire.parcels) == 2
    assert state(message) == MessageState.IN_DOUBT


def test_a_message_that_never_reached_the_partner_is_failed_and_not_in_doubt(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=60, time_to_live=300)
    message = submit(partner)
    with link(REFUSED):
        work()
        clock.move(301)
        work()
    stored = Message.objects.get(pk=message.pk)
    assert (stored.state, stored.cause) == (MessageState.FAILED, "never_sent")


def test_what_expires_in_the_queue_is_a_dead_letter_and_the_next_goes_out(clock: FrozenClock) -> None:
    partner = ebms2_side(time_to_live=300)
    old = submit(partner)
    clock.move(301)
    new = submit(partner)
    with link() as wire:
        work()
    assert [decoded(parcel).message_id for parcel in wire.parcels] == [new.message_id]
    assert state(old) == MessageState.FAILED


def test_a_late_acknowledgement_settles_what_is_in_doubt(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=0, retry_interval=60, partner_window=60)
    message = submit(partner)
    with link() as wire:
        work()
        clock.move(62)
        work()
    assert state(message) == MessageState.IN_DOUBT
    partner.bring(partner.acknowledging(wire.last))
    assert state(message) == MessageState.DELIVERED


def test_a_late_acknowledgement_leaves_the_incident_of_a_pair_that_stands_still(clock: FrozenClock) -> None:
    """Nobody would look at it otherwise, and what waits would wait for ever."""
    partner = ebms2_side(retries=0, retry_interval=60, partner_window=60, message_order=True)
    message = submit(partner)
    with link() as wire:
        work()
        clock.move(62)
        work()
    assert (partner.outbound.flow, state(message)) == ("suspended", MessageState.IN_DOUBT)
    partner.bring(partner.acknowledging(wire.last))
    assert state(message) == MessageState.DELIVERED
    assert Incident.objects.get().state == "open"
    pair_resume(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
    assert Incident.objects.get().state == "resolved"


def test_ordered_messages_have_numbers_of_their_conversation() -> None:
    """Nothing follows a beginning that is not acknowledged; then several of a conversation are in flight."""
    partner = ebms2_side(message_order=True)
    for conversation in ("one", "two", "one", "one", "two"):
        submit(partner, conversation_id=conversation)
    with link() as wire:
        work()
        assert places(wire) == [("one", 0, True), ("two", 0, True)]
        partner.bring(partner.acknowledging(wire.parcels[0]))
        work()
        assert places(wire)[2:] == [("one", 1, False), ("one", 2, False)]
        partner.bring(partner.acknowledging(wire.parcels[1]))
        work()
    assert places(wire)[4:] == [("two", 1, False)]


def places(wire: Link) -> list[tuple[str, int, bool]]:
    """Conversation, number and Reset of everything that went out."""
    found = []
    for parcel in wire.parcels:
        sent = decoded(parcel)
        assert sent.ebms is not None
        assert sent.ebms.order is not None
        found.append((sent.conversation_id, sent.ebms.order.sequence_number, sent.ebms.order.reset))
    return found


def test_after_a_skipped_message_its_conversation_begins_anew(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True, max_in_flight=1)
    first, second = submit(partner, conversation_id="c"), submit(partner, conversation_id="c")
    with link() as wire:
        work()
        partner.bring(partner.acknowledging(wire.last))
        clock.move(1)
        work()
        pair_skip_head(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON + " Skip it.")
        third = submit(partner, conversation_id="c")
        work()
    assert (state(first), state(second)) == (MessageState.DELIVERED, MessageState.SKIPPED)
    sent = decoded(wire.last)
    assert sent.ebms is not None
    assert sent.ebms.order is not None
    assert (sent.message_id, sent.ebms.order.sequence_number, sent.ebms.order.reset) == (third.message_id, 0, True)


@pytest.mark.parametrize("waits", [False, True], ids=["to go out again", "for its acknowledgement"])
def test_a_message_is_skipped_by_its_own_rules_while_its_agreement_is_disabled(waits: bool, clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True, retry_interval=60)
    skipped = submit(partner, conversation_id="c")
    with link(TAKEN if waits else LOST):
        work()
    agreement = AgreementVersion.objects.get(pk=partner.terms.version_id).agreement
    agreement_disable(agreement_id=agreement.pk, actor=ACTOR, reason=REASON)
    pair_skip_head(pair_id=partner.outbound.pk, actor=ACTOR, reason=REASON)
    assert state(skipped) == MessageState.SKIPPED
    assert OrderedConversation.objects.get().restarts, "nothing follows a number that is missing"


def test_what_failed_is_over_when_nothing_is_on_its_way(clock: FrozenClock) -> None:
    partner = ebms2_side(retry_interval=60)
    message = submit(partner)
    with link(Receipt(ok=False, cause="cert_expired", permanent=True)):
        work()
    assert (partner.outbound.retries, partner.outbound.cause) == (1, "cert_expired")
    message_cancel(message_id=message.pk, actor=ACTOR, reason=REASON)
    assert (partner.outbound.retries, partner.outbound.cause) == (0, "")
    assert Incident.objects.get().state == "resolved"


def test_pages_show_what_waits_for_its_acknowledgement_and_when_it_goes_out_again(clock: FrozenClock) -> None:
    partner = ebms2_side(retries=1, retry_interval=60)
    message = submit(partner)
    viewer = browser(Role.VIEWER)
    seen: list[tuple[bool, bool]] = []
    with link():
        for _ in range(2):
            work()
            page = viewer.get(f"/pairs/{partner.outbound.code}/").content.decode()
            assert "On the way" in page and message.public_id in page
            repeats = "Next repeat" in viewer.get(f"/messages/{message.public_id}/").content.decode()
            seen.append((pairs.next_repeat(partner.outbound.pk) is not None, repeats))
            clock.move(61)
    assert seen == [(True, True), (False, False)], "after its last retry it goes out no more by itself"


def test_an_unreliable_message_is_sent_once() -> None:
    partner = ebms2_side(semantics="BestEffort", retries=0)
    message = submit(partner)
    with link() as wire:
        work()
        work()
    sent = decoded(wire.last)
    assert sent.ebms is not None
    assert (len(wire.parcels), sent.ebms.ack_requests, sent.ebms.duplicate_elimination) == (1, (), False)
    assert state(message) == MessageState.SENT


def test_a_message_that_is_sent_once_is_cancelled_without_a_place_in_the_queue() -> None:
    side = ebms2_side()
    pair_pause(pair_id=side.outbound.pk, actor=ACTOR, reason=REASON)
    once, reliable = submit(side, semantics="BestEffort"), submit(side)
    message_cancel(message_id=once.pk, actor=ACTOR, reason="not wanted any more")
    assert (state(once), side.outbound.queued) == (MessageState.CANCELLED, 1)
    pair_release(pair_id=side.outbound.pk, actor=ACTOR, reason=REASON)
    with link():
        work()
    assert state(reliable) == MessageState.AWAITING_ACK
