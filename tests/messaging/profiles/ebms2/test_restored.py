"""What a hub does with ebXML 2.0 after its database became an older one: nothing twice or lost without a word.

The restore is that of `management.test_restored`; the partner of what we send goes by the rules of acceptance, with a
memory that no restore takes away.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.choices import MessageState
from messaging.journal.audit import Actor
from messaging.models import Delivery, Incident, Message, OrderedConversation, Transmission
from messaging.pairs.services import operating
from messaging.profiles.ebms2 import ordering
from messaging.protocol.ebms.acceptance import Conversation, Received, Verdict, decide, released
from messaging.transports import Parcel
from rmhub.clock import FrozenClock, now
from tests.messaging.deliveries.stage import application, make_trigger
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import LOST, link, submit, work
from tests.messaging.management.test_restored import Restore, rows_prove_the_invariants  # noqa: F401
from tests.messaging.profiles.ebms2.partner import Ebms2Side, decoded, ebms2_side

pytestmark = pytest.mark.django_db
ANN = Actor("ann")
NOBODY = "http://127.0.0.1:9/documents"  # the deliveries wait
EVIDENCE = "Their list of the night was compared: nothing is missing"


def received() -> list[tuple[str, str]]:
    """The partner's messages in the order in which they were handed on, then what is held."""
    rows = Message.objects.filter(direction="in").order_by("state", "position")
    return [(one.message_id, one.state) for one in sorted(rows, key=lambda one: one.state != "received")]


def doubts() -> dict[str, bool]:
    """Of each document whether it may have been processed before."""
    return dict(Delivery.objects.values_list("message__message_id", "memory_lost"))


def bring(partner: Ebms2Side, *numbers: int, conversation: str = "conv") -> None:
    for number in numbers:
        assert (
            partner.bring(partner.ordered(number, f"{conversation}-{number}", conversation=conversation)).status == 204
        )


def clear(partner: Ebms2Side) -> None:
    operating.pair_clear_resync(pair_id=partner.inbound.pk, actor=ANN, reason=EVIDENCE)


# What comes in


def test_a_conversation_goes_on_where_its_sender_is_and_then_numbers_count_again(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    make_trigger(kind="http", url=NOBODY)
    bring(partner, 0, 1)
    restore = Restore()
    bring(partner, 2, 3, 4)
    restore()
    bring(partner, 5, 7)
    assert received() == [("conv-0", "received"), ("conv-1", "received"), ("conv-5", "received"), ("conv-7", "held")]
    bring(partner, 6)
    assert received()[3:] == [("conv-6", "received"), ("conv-7", "received")]
    assert doubts() == {"conv-0": True, "conv-1": True, "conv-5": True, "conv-6": True, "conv-7": True}


def test_a_conversation_that_the_backup_does_not_know_goes_on_where_its_sender_is(clock: FrozenClock) -> None:
    """Otherwise all that comes of it is acknowledged, and waits for its beginning, which is forgotten, for ever."""
    partner = ebms2_side(message_order=True)
    make_trigger(kind="http", url=NOBODY)
    restore = Restore()
    bring(partner, 0, 1, 2)
    restore()
    bring(partner, 3, 4)
    assert received() == [("conv-3", "received"), ("conv-4", "received")]
    assert doubts() == {"conv-3": True, "conv-4": True}


def test_once_a_person_has_compared_a_conversation_begins_with_its_beginning(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    make_trigger(kind="http", url=NOBODY)
    bring(partner, 0)
    restore = Restore()
    restore()
    clear(partner)
    bring(partner, 1, conversation="new")
    assert received()[1:] == [("new-1", "held")]
    bring(partner, 0, conversation="new")
    assert received()[1:] == [("new-0", "received"), ("new-1", "received")]
    assert doubts() == {"conv-0": True, "new-0": False, "new-1": False}


def test_what_waited_in_the_backup_is_handed_on_when_its_sender_is_past_it(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    make_trigger(kind="http", url=NOBODY)
    bring(partner, 0, 2, 3, 6)
    restore = Restore()
    bring(partner, 1, 4)
    assert received()[-1] == ("conv-6", "held")
    restore()
    bring(partner, 5)
    handed = [(f"conv-{number}", "received") for number in (0, 2, 3, 5, 6)]
    assert received() == handed
    assert all(doubts().values())
    assert not Incident.objects.filter(cause="order_given_up").exists()
    row = OrderedConversation.objects.get()
    assert (row.number, row.gap_since) == (6, None)


def test_what_waited_may_be_a_repeat_even_if_its_turn_comes_after_the_comparison(clock: FrozenClock) -> None:
    """One waits in the backup, one comes while the pair needs resync; both turns come later."""
    partner = ebms2_side(message_order=True)
    make_trigger(kind="http", url=NOBODY)
    bring(partner, 0, 2)
    restore = Restore()
    restore()
    OrderedConversation.objects.update(restarts=False)  # as if a person knew which number is the next
    bring(partner, 3)
    clear(partner)
    bring(partner, 4)
    assert [state for _, state in received()] == ["received", "held", "held", "held"]
    bring(partner, 1)
    assert doubts() == {"conv-0": True, "conv-1": False, "conv-2": True, "conv-3": True, "conv-4": False}
    assert not Message.objects.exclude(cause="").exists()


def test_what_was_executed_after_the_backup_is_not_executed_twice_when_it_waited_there(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    with application() as app:
        make_trigger(app)
        bring(partner, 0, 2)
        deliver()
        restore = Restore()
        bring(partner, 1)
        deliver()
        assert app.documents == ["conv-0", "conv-1", "conv-2"]
        restore()
        bring(partner, 1)  # its acknowledgement was lost
        bring(partner, 3)
        deliver()
        assert app.documents == ["conv-0", "conv-1", "conv-2"]
    found = dict(Delivery.objects.values_list("message__message_id", "state"))
    assert found == {"conv-0": "completed", "conv-1": "in_doubt", "conv-2": "in_doubt", "conv-3": "in_doubt"}


def test_a_known_id_stays_a_repeat_and_does_not_say_where_its_sender_is(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, 0, 1)
    restore = Restore()
    restore()
    bring(partner, 1)
    assert OrderedConversation.objects.get().restarts
    bring(partner, 5)
    assert received() == [("conv-0", "received"), ("conv-1", "received"), ("conv-5", "received")]


def test_a_reset_is_a_beginning_after_a_restore_too(clock: FrozenClock) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, 0, 1)
    restore = Restore()
    bring(partner, 2)
    restore()
    partner.bring(partner.ordered(0, "again"))
    partner.bring(partner.ordered(2, "again-2"))
    assert received()[2:] == [("again", "received"), ("again-2", "held")]


def test_a_gap_of_the_backup_is_watched_from_where_it_began_and_ends_when_its_sender_goes_on(
    clock: FrozenClock,
) -> None:
    partner = ebms2_side(message_order=True)
    bring(partner, 0, 2)
    since = OrderedConversation.objects.get().gap_since
    restore = Restore()
    bring(partner, 1)
    assert OrderedConversation.objects.get().gap_since is None
    clock.move(ordering.GAP.total_seconds() + 1)
    restore()
    assert OrderedConversation.objects.get().gap_since == since
    assert ordering.watch(now()) == 1
    told = Incident.objects.get(cause="order_gap")
    assert (told.pair_id, told.state) == (partner.inbound.pk, "open")
    assert "waits for number 1 since" in told.detail
    bring(partner, 3)
    assert ordering.watch(now()) == 0
    told.refresh_from_db()
    assert told.state == "resolved"


# What goes out


class Other:
    """A partner that goes by the rules of acceptance, and remembers for ever. `stored`: what it has handed on."""

    def __init__(self, side: Ebms2Side, clock: FrozenClock) -> None:
        self.side, self.clock = side, clock
        self.ids: set[str] = set()
        self.places: dict[str, Conversation] = {}
        self.waits: dict[tuple[str, int], str] = {}
        self.stored: list[str] = []

    def take(self, parcel: Parcel) -> None:
        envelope = decoded(parcel)
        assert envelope.ebms is not None
        order, name = envelope.ebms.order, envelope.conversation_id
        received = Received(acknowledge=True, once=True, known=envelope.message_id in self.ids, order=order)
        found = decide(self.places.get(name, Conversation()), received)
        assert found.verdict is not Verdict.REJECT, f"{order} is refused: {found.error}"
        if found.verdict is not Verdict.DUPLICATE:
            assert order is not None
            self.ids.add(envelope.message_id)
            self.stored += [self.waits.pop((name, number)) for number in found.given_up]
            if found.verdict is Verdict.HOLD:
                self.waits[name, order.sequence_number] = envelope.message_id
            else:
                self.stored.append(envelope.message_id)
            self.places[name], turns = released(found.conversation)
            self.stored += [self.waits.pop((name, number)) for number in turns]
        self.clock.move(0.1)
        self.side.bring(self.side.acknowledging(parcel))

    def exchange(self) -> list[tuple[str, int, bool]]:
        """Takes all that goes out until nothing does. Returns ids, numbers and Reset."""
        went = []
        with link() as wire:
            work()
            while len(went) < len(wire.parcels):
                parcel = wire.parcels[len(went)]
                order = decoded(parcel).ebms.order  # type: ignore[union-attr]
                went.append((decoded(parcel).message_id, order.sequence_number, order.reset))
                self.take(parcel)
                work()
        return went


def ids(*messages: Message) -> list[str]:
    return [message.message_id for message in messages]


def states(*messages: Message) -> set[str]:
    return set(Message.objects.filter(pk__in=[one.pk for one in messages]).values_list("state", flat=True))


def test_numbers_that_the_partner_may_have_are_not_given_again(clock: FrozenClock) -> None:
    side = ebms2_side(message_order=True)
    other = Other(side, clock)
    first = submit(side, conversation_id="c")
    other.exchange()
    restore = Restore()
    lost = [submit(side, conversation_id="c") for _ in range(3)]
    assert [number for _, number, _ in other.exchange()] == [1, 2, 3]
    restore()
    new = [submit(side, conversation_id="c") for _ in range(2)]
    assert other.exchange() == [(new[0].message_id, 0, True), (new[1].message_id, 1, False)]
    assert other.stored == ids(first, *lost, *new)
    assert states(*new) == {"delivered"}


def test_what_waited_goes_out_under_its_id_and_only_what_is_certainly_new_is_a_beginning(clock: FrozenClock) -> None:
    """The partner has the first two and takes no Reset from them: with number 1 after them it would refuse the next."""
    side = ebms2_side(message_order=True)
    other = Other(side, clock)
    waiting = [submit(side, conversation_id="c") for _ in range(2)]
    restore = Restore()
    lost = submit(side, conversation_id="c")
    other.exchange()
    assert other.stored == ids(*waiting, lost)
    restore()
    new = [submit(side, conversation_id="c") for _ in range(3)]
    sent = other.exchange()
    assert [(number, reset) for _, number, reset in sent] == [(0, True)] * 3 + [(1, False), (2, False)]
    assert [name for name, _, _ in sent] == ids(*waiting, *new)
    assert other.stored == ids(*waiting, lost, *new)
    assert states(*waiting, *new) == {"delivered"}


def test_beginnings_of_one_conversation_go_out_one_after_the_other(clock: FrozenClock) -> None:
    """The partner takes each of them whatever came before, so two on the way could change places."""
    side = ebms2_side(message_order=True, max_in_flight=8)
    waiting = [submit(side, conversation_id="c") for _ in range(3)]
    Restore()()
    with link() as wire:
        for number, message in enumerate(waiting):
            work()
            clock.move(1)
            assert [decoded(parcel).message_id for parcel in wire.parcels] == ids(*waiting[: number + 1])
            side.bring(side.acknowledging(wire.last))
            assert states(message) == {"delivered"}
            clock.move(1)


def test_what_is_in_flight_keeps_its_id_and_octets_and_what_follows_begins_anew(clock: FrozenClock) -> None:
    side = ebms2_side(message_order=True, retry_interval=60)
    other = Other(side, clock)
    first, second = submit(side, conversation_id="c"), submit(side, conversation_id="c")
    with link(LOST) as wire:
        work()
        other.take(wire.last)
        work()
    before = wire.last.octets
    restore = Restore()
    clock.move(61)
    other.exchange()
    assert states(first, second) == {"delivered"}
    restore()
    assert states(second) == {"retrying"}
    third = submit(side, conversation_id="c")
    with link() as wire:
        work()
    assert [parcel.octets for parcel in wire.parcels] == [before]
    other.take(wire.last)
    assert other.exchange() == [(third.message_id, 0, True)]
    assert other.stored == ids(first, second, third)


def test_what_waited_is_sent_until_its_partner_may_have_forgotten_what_was_sent_right_after_the_backup(
    clock: FrozenClock,
) -> None:
    side = ebms2_side(partner_window=3600, retries=5, retry_interval=600)
    message = submit(side)
    restore = Restore()
    as_of = now()
    clock.move(1800)
    restore()
    message.refresh_from_db()
    assert message.expires_at == as_of + timedelta(seconds=3600)
    with link() as wire:
        for _ in range(8):
            work()
            clock.move(601)
    assert len(wire.parcels) == 3
    message.refresh_from_db()
    assert (message.state, message.cause) == (MessageState.IN_DOUBT, "outcome_unknown")
    assert Transmission.objects.filter(message=message, outcome="lost", cause="needs_resync").count() == 1


def test_the_attempt_that_may_have_been_made_uses_no_retry(clock: FrozenClock) -> None:
    side = ebms2_side(retries=1, retry_interval=60)
    submit(side)
    Restore()()
    with link() as wire:
        for _ in range(3):
            work()
            clock.move(61)
    assert (len(wire.parcels), side.outbound.flow) == (2, "suspended")


@pytest.mark.parametrize("terms", [{"partner_window": 3600}, {"time_to_live": 3600}], ids=["forgotten", "expired"])
def test_what_waited_and_is_out_of_time_is_in_doubt_and_not_failed(terms: dict[str, int], clock: FrozenClock) -> None:
    """It may have been delivered after the backup, in time."""
    side = ebms2_side(message_order=True, **terms)
    other = Other(side, clock)
    message = submit(side, conversation_id="c")
    restore = Restore()
    other.exchange()
    assert other.stored == ids(message)
    clock.move(3700)
    restore()
    with link() as wire:
        work()
    assert wire.parcels == []
    message.refresh_from_db()
    assert (message.state, message.cause) == (MessageState.IN_DOUBT, "outcome_unknown")
    pair = side.outbound
    assert (pair.queued, pair.out_now, pair.flow) == (0, 0, "suspended")
    operating.pair_resume(pair_id=pair.pk, actor=ANN, reason=EVIDENCE)
    new = submit(side, conversation_id="c")
    assert other.exchange() == [(new.message_id, 0, True)]


def test_what_is_submitted_after_the_restore_has_its_whole_time(clock: FrozenClock) -> None:
    side = ebms2_side(partner_window=3600)
    Restore()()
    clock.move(7200)
    message = submit(side)
    with link() as wire:
        work()
    message.refresh_from_db()
    assert (len(wire.parcels), message.expires_at) == (1, now() + timedelta(seconds=3600))
