"""What a router does with a message that it passed on in the time that a restore took away, and that comes again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from messaging.messages.selectors.timeline import message_screen
from messaging.models import Event, Message, Transmission
from messaging.protocol.envelope import MessageType
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import answered, link, work
from tests.messaging.management.test_restored import Restore
from tests.messaging.profiles.repeatable.callers import remembering_since
from tests.messaging.routing.hubs import join, network, uri
from tests.messaging.routing.test_store_and_forward import submit

EBXML: dict[str, object] = {}
REQUESTS: dict[str, object] = {"profile": "repeatable", "partner_window": 3600, "ours": uri("B", "exchange/out")}


EBMS2: dict[str, object] = {"profile": "ebms2", "partner_window": 3600, "retries": 0, "retry_interval": 60}


@pytest.mark.parametrize(
    "onward", [EBXML, REQUESTS, EBMS2], ids=["X22-route-ebxml", "X22-route-requests", "X22-route-ebms2"]
)
def test_what_goes_on_a_second_time_after_a_restore_is_marked(onward: dict[str, object], time: FrozenClock) -> None:
    with network("AB") as net:
        with net["A"] as a:
            a.agrees("D", "tpa:A-D", hop="B")
            sent = submit(tpa_id="tpa:A-D")
        with net["B"] as b:
            b.agrees("A", "tpa:B-A")
            b.routes_to("D", b.agrees("D", "tpa:B-D", **onward))
            remembering_since(clock.now() - timedelta(days=30))
        join(net["A"], net["B"])
        with net["B"]:
            restore = Restore()
        as_of = clock.now()
        net.work("A")
        time.move(600)
        with net["B"], link(answered()):
            work()
            assert Message.objects.get(direction="out").message_id == sent.message_id
        with net["B"]:
            restore()
            assert not Message.objects.exists()
        net.work("A")
        with net["B"], link(answered(400, "rejected")) as wire:
            event = Event.objects.get(type="message.forwarded")
            assert "the database was restored" in event.data["detail"].lower()
            work()
            came, gone = Message.objects.get(direction="in"), Message.objects.get(direction="out")
            moments = {moment.title: moment.detail for moment in message_screen(came).moments}
            assert "restored" in moments["Passed on to the next hop"]
            if onward is EBXML:
                assert gone.message_id == sent.message_id and len(wire.of(MessageType.NORMAL)) == 1
                assert not Transmission.objects.filter(outcome="lost").exists(), "the next hop knows it by its id"
            elif onward is EBMS2:
                assert (gone.message_id, gone.state) == (sent.message_id, "retrying")
                assert gone.expires_at == as_of + timedelta(hours=1), "the next hop knows it by its id until then"
                assert Transmission.objects.filter(message=gone, outcome="lost", cause="needs_resync").count() == 1
            else:
                assert gone.first_sent_at == as_of
                assert (gone.state, gone.cause) == ("in_doubt", "outcome_unknown"), "it may have been executed before"
                assert Transmission.objects.filter(message=gone, outcome="lost", cause="needs_resync").count() == 1


def test_what_goes_on_in_a_hub_that_has_forgotten_nothing_carries_no_mark(time: FrozenClock) -> None:
    with network("AB") as net:
        with net["A"] as a:
            a.agrees("D", "tpa:A-D", hop="B")
            submit(tpa_id="tpa:A-D")
        with net["B"] as b:
            b.agrees("A", "tpa:B-A")
            b.routes_to("D", b.agrees("D", "tpa:B-D", **REQUESTS))
        join(net["A"], net["B"])
        net.work("A")
        with net["B"], link(answered(400, "rejected")):
            work()
            assert "detail" not in Event.objects.get(type="message.forwarded").data
            assert Message.objects.get(direction="out").state == "failed"
