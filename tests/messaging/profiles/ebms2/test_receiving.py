"""What partners send us as ebXML 2.0: once, in order, acknowledged in the response or by itself."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from messaging.choices import IncidentState, MessageState, SignalState
from messaging.models import AuditEntry, Delivery, Incident, Message, OrderedConversation, Rejection, Signal
from messaging.profiles.ebms2 import accepting, ordering
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Ebms2, Ebms2Kind, MessageStatus
from messaging.protocol.errors import ErrorCode
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Api
from tests.messaging.console.scenes import browser
from tests.messaging.factories import link, work
from tests.messaging.profiles.ebms2.partner import RELIABLE, decoded, ebms2_side, items
from tests.messaging.wire import post

pytestmark = pytest.mark.django_db
SYNC = replace(RELIABLE, sync_reply=True)


def states() -> list[tuple[str, str]]:
    return list(Message.objects.order_by("position").values_list("message_id", "state"))


def test_a_message_is_stored_and_acknowledged_by_a_message_of_its_own() -> None:
    partner = ebms2_side()
    arrival = partner.business("m1")
    assert post(arrival, "/ebms2/msh").status_code == 204
    assert states() == [("m1", "received")]
    with link() as wire:
        work()
    answer = decoded(wire.last)
    assert answer.ebms is not None
    assert (answer.ebms.kind, answer.ref_to_message_id) == (Ebms2Kind.ACKNOWLEDGMENT, "m1")
    assert answer.ebms.acknowledgments[0].ref_to_message_id == "m1"
    assert not answer.ebms.duplicate_elimination


def test_a_message_that_asks_for_it_is_acknowledged_in_the_response() -> None:
    partner = ebms2_side()
    response = post(partner.business("m1", ebms=SYNC), "/ebms2/msh")
    assert (response.status_code, response["SOAPAction"]) == (200, '"ebXML"')
    answer = ebms2.decode(response["Content-Type"], response.content)
    assert answer.ref_to_message_id == "m1"
    assert Signal.objects.get().state == SignalState.SENT
    with link() as wire:
        assert work() == []
    assert wire.parcels == []


@pytest.mark.parametrize("ebms", [RELIABLE, SYNC], ids=["later", "at once"])
def test_a_copy_is_discarded_and_acknowledged_with_the_same_octets(ebms: Ebms2) -> None:
    partner = ebms2_side()
    arrival = partner.business("m1", ebms=ebms)
    with link() as wire:
        first = partner.bring(arrival)
        work()
        second = partner.bring(arrival)
        work()
    answers = [parcel.octets for parcel in wire.parcels] or [first.body, second.body]
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert (Message.objects.count(), Message.objects.get().copies) == (1, 1)
    assert Signal.objects.get().sends == 2


def test_a_copy_with_other_content_is_no_copy() -> None:
    partner = ebms2_side()
    partner.bring(partner.business("m1"))
    partner.bring(partner.business("m1", content=b"<Other/>"))
    assert Message.objects.count() == 1
    assert Incident.objects.get().cause == "same_id_other_content"


def test_messages_are_handed_on_in_the_order_of_their_conversation() -> None:
    partner = ebms2_side(message_order=True)
    for number in (0, 3, 2):
        partner.bring(partner.ordered(number, f"m{number}"))
    assert states() == [("m0", "received"), ("m3", "held"), ("m2", "held")]
    assert OrderedConversation.objects.get().gap_since is not None
    partner.bring(partner.ordered(1, "m1"))
    assert states() == [(f"m{number}", "received") for number in range(4)]
    assert OrderedConversation.objects.get().gap_since is None
    assert Signal.objects.count() == 4


@pytest.mark.parametrize("seed", range(5))
def test_whatever_order_and_groups_they_come_in_each_is_handed_on_once_and_in_its_order(seed: int) -> None:
    chance = random.Random(seed)
    partner = ebms2_side(message_order=True)
    arrivals = [partner.ordered(number) for number in range(6)]
    queue = [*arrivals, *chance.choices(arrivals, k=6)]
    chance.shuffle(queue)
    while queue:
        group = [queue.pop() for _ in range(min(len(queue), chance.randint(1, 4)))]
        accepting.accept(items(partner, *group))
    numbers = Message.objects.order_by("position").values_list("order_number", "state")
    assert list(numbers) == [(number, "received") for number in range(6)]


def test_conversations_wait_for_themselves_only() -> None:
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(1, "a1", conversation="a"))
    partner.bring(partner.ordered(0, "b0", conversation="b"))
    assert dict(states()) == {"a1": "held", "b0": "received"}


def test_a_reset_hands_on_what_waited_and_tells_a_person() -> None:
    partner = ebms2_side(message_order=True)
    for number in (0, 2):
        partner.bring(partner.ordered(number, f"m{number}"))
    partner.bring(partner.ordered(0, "again"))
    assert states() == [("m0", "received"), ("m2", "received"), ("again", "received")]
    assert Incident.objects.get().cause == "order_given_up"


def test_a_number_that_was_taken_by_another_message_is_refused() -> None:
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(0, "m0"))
    with link() as wire:
        partner.bring(partner.ordered(0, "other", reset=False))
        work()
    answer = decoded(wire.last)
    assert answer.error is not None
    assert answer.error.code == ErrorCode.INCONSISTENT
    assert Message.objects.count() == 1


def test_what_comes_after_its_time_to_live_is_refused_and_a_copy_of_what_came_in_time_is_not() -> None:
    partner = ebms2_side()
    ended = replace(SYNC, time_to_live=clock.now() - timedelta(seconds=1))
    answer = decoded(partner.bring(partner.business("late", ebms=ended)))
    assert answer.error is not None
    assert answer.error.code == ErrorCode.TIME_TO_LIVE_EXPIRED
    assert Rejection.objects.get().reason == "TimeToLiveExpired"
    alive = replace(SYNC, time_to_live=clock.now() + timedelta(seconds=60))
    arrival = partner.business("m1", ebms=alive)
    assert decoded(partner.bring(arrival)).ebms.kind is Ebms2Kind.ACKNOWLEDGMENT


def test_what_the_agreement_does_not_cover_is_refused() -> None:
    partner = ebms2_side(allowed=[("urn:orders", "Other", "both")])
    answer = decoded(partner.bring(partner.business("m1", ebms=SYNC)))
    assert answer.error is not None
    assert answer.error.code == ErrorCode.VALUE_NOT_RECOGNIZED
    assert Message.objects.count() == 0


def test_an_agreement_that_is_not_in_force_earns_an_error_where_another_one_is() -> None:
    partner = ebms2_side()
    answer = decoded(partner.bring(partner.business("m1", ebms=SYNC, agreement_id="cpa:nobody")))
    assert answer.error is not None
    assert answer.error.code == ErrorCode.VALUE_NOT_RECOGNIZED


def test_a_ping_gets_a_pong_and_a_status_request_what_became_of_a_message() -> None:
    partner = ebms2_side()
    partner.bring(partner.business("m1"))
    like = partner.envelope("q")
    now = clock.now()
    ping = ebms2.ping(like, message_id="ping-1", timestamp=now)
    ping = replace(ping, ebms=replace(ping.ebms, sync_reply=True))
    answer = decoded(partner.bring(ping))
    assert (answer.ebms.kind, answer.ref_to_message_id) == (Ebms2Kind.PONG, "ping-1")
    for message_id, word in (("m1", MessageStatus.RECEIVED), ("never", MessageStatus.NOT_RECOGNIZED)):
        asked = ebms2.status_request(partner.envelope(message_id), message_id=f"ask-{message_id}", timestamp=now)
        asked = replace(asked, ebms=replace(asked.ebms, sync_reply=True))
        found = decoded(partner.bring(asked)).ebms.status
        assert (found.ref_to_message_id, found.status) == (message_id, word)


def test_an_acknowledgement_may_ride_on_a_business_message() -> None:
    from tests.messaging.factories import submit

    partner = ebms2_side()
    message = submit(partner)
    with link() as wire:
        work()
    acknowledgement = partner.acknowledging(wire.last).ebms.acknowledgments
    partner.bring(partner.business("answer", ebms=replace(RELIABLE, acknowledgments=acknowledgement)))
    assert Message.objects.get(pk=message.pk).state == MessageState.DELIVERED
    assert Message.objects.get(message_id="answer").state == MessageState.RECEIVED


def test_nothing_is_handed_on_while_it_waits_for_its_turn() -> None:
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(1, "m1"))
    assert not Delivery.objects.exists()


def test_a_person_hands_on_what_waits_without_what_is_missing(admin: Api) -> None:
    partner = ebms2_side(message_order=True)
    for number in (0, 2, 4, 3):
        partner.bring(partner.ordered(number, f"m{number}"))
    partner.bring(partner.ordered(7, "other", conversation="another"))
    later = clock.now() + timedelta(minutes=11)
    ordering.watch(later)
    assert Incident.objects.get().cause == "order_gap"
    path = f"/pairs/{partner.inbound.public_id}"
    assert "hand-on" in admin.get(path).json["allowed_actions"]
    reason = {"reason": "The partner says that number 1 was never sent."}
    assert admin.post(f"{path}/hand-on", reason, If_Match="*").status == 200
    done = [name for name, state in states() if state == "received"]
    assert ([name for name in done if name != "other"], len(done)) == (["m0", "m2", "m3", "m4"], 5)
    assert Incident.objects.get().state == IncidentState.RESOLVED
    assert AuditEntry.objects.get(verb="pair.hand_on").after == {"messages": 4}
    # From here on the order is the usual one; what was missing is refused.
    partner.bring(partner.ordered(5, "m5"))
    partner.bring(partner.ordered(1, "m1"))
    assert states()[-1] == ("m5", "received")
    assert Rejection.objects.get().reason == "Inconsistent"
    nothing = admin.post(f"{path}/hand-on", reason, If_Match="*")
    assert (nothing.status, nothing.code) == (409, "wrong_state")
    assert "hand-on" not in nothing.json["allowed_actions"]


def test_the_page_of_the_pair_offers_to_hand_on_what_waits() -> None:
    partner = ebms2_side(message_order=True)
    partner.bring(partner.ordered(1, "m1"))
    console, page = browser(Role.ADMIN), f"/pairs/{partner.inbound.code}/"
    assert "Hand on what waits" in console.get(page).content.decode()
    dialog = console.get(f"{page}actions/hand-on/").content.decode()
    assert "each conversation in its order" in dialog
    said = {"reason": "It will never come.", "version": partner.inbound.version, "confirm": partner.inbound.code}
    assert console.post(f"{page}actions/hand-on/", said).status_code == 303
    assert states() == [("m1", "received")]
    assert "Nothing waits for its turn." in console.get(page).content.decode()
