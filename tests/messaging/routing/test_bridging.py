"""Routes between wire profiles: A by ebXML to router B, by a stream to router C, by HTTP requests to receiver D."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from messaging.choices import Direction
from messaging.deliveries.services import settling
from messaging.engine import subscriptions
from messaging.entrance import authentication
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Delivery, Message, MessageIdentity, Payload, Rejection, Signal, Trigger
from messaging.pairs.services import operating
from messaging.profiles.repeatable import exchanging, replies
from messaging.profiles.repeatable.reading import Request
from messaging.protocol.codecs import ebxml, stream
from messaging.protocol.envelope import PartyId
from messaging.protocol.errors import ErrorCode
from messaging.transports import Parcel
from partners import registry, services
from partners.choices import FOR_MESSAGES
from partners.terms import Presented
from rmhub.clock import FrozenClock
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side
from tests.messaging.profiles.ebms2.signed import signer
from tests.messaging.profiles.ebms2.test_signed import pem
from tests.messaging.profiles.repeatable.callers import T, remembering_since
from tests.messaging.routing.hubs import SERVICE, WHO, WHY, Hub, Network, join, network, uri
from tests.messaging.routing.test_store_and_forward import errors, states, submit
from tests.partners.factories import basic, make_credential

D_AGREEMENT = "tpa:D-C"


@pytest.fixture
def chain(time: FrozenClock, monkeypatch: pytest.MonkeyPatch, settings: object) -> Iterator[Network]:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    settings.RMHUB_STREAM_HOLD_MS = 0  # type: ignore[attr-defined]
    at_b, at_c = uri("B", "streams"), uri("C", "streams")
    c_out, d_in = uri("C", "exchange/out"), f"https://d.example/exchange/{D_AGREEMENT}/"
    with network("ABCD") as made:
        with made["A"] as a:
            a.agrees("D", "tpa:A-D", hop="B", timeout=60, retries=20, retry_interval=60)
        with made["B"] as b:
            b.agrees("A", "tpa:B-A")
            onward = b.agrees("C", "tpa:B-C", profile="stream", ours=at_b, theirs=at_c, resend_schedule="30")
            b.routes_to("D", onward, min_retry_secs=40)
        with made["C"] as c:
            c.agrees("B", "tpa:C-B", profile="stream", ours=at_c, theirs=at_b)
            onward = c.agrees("D", "tpa:C-D", profile="repeatable", ours=c_out, theirs=d_in)
            c.routes_to("D", onward)
            remembering_since(T.replace(month=1))
        with made["D"] as d:
            d.agrees("C", D_AGREEMENT, profile="repeatable", ours=d_in, theirs=c_out)
            remembering_since(T.replace(month=1))
            Trigger.objects.create(name="orders", kind="pull", documents=[])
            subscriptions.current.forget()
        for one, other in ("AB", "BC", "CD"):
            join(made[one], made[other])
        yield made


def settle(net: Network, time: FrozenClock, rounds: int = 30) -> None:
    for _ in range(rounds):
        net.work()
        if all(set(states(net[name])) == {"delivered"} for name in "ABC"):
            return
        time.move(61)


@pytest.mark.parametrize("copies", [1, 2, 3], ids=["X20-once", "X20-twice", "X20-thrice"])
def test_every_document_is_executed_once_under_duplication_at_each_hop(
    chain: Network, time: FrozenClock, copies: int
) -> None:
    turns = iter(range(10_000))

    def repeated(sender: str, receiver: str, parcel: Parcel) -> list[bool]:
        # Each hop repeats everything, and now and then nobody hears the answer.
        return [True] * (copies - 1) + [copies == 1 or next(turns) % 3 > 0]

    chain.faults = repeated
    with chain["A"]:
        sent = [
            submit(b"<Order n='%d'/>" % number, "tpa:A-D", conversation_id=f"c{number % 2}@a.example")
            for number in range(3)
        ]
    settle(chain, time)
    ids = [message.message_id for message in sent]
    with chain["D"] as d:
        got = d.received()
        assert sorted(message.message_id for message in got) == sorted(ids)
        assert Delivery.objects.count() == len(ids)  # exec=1, for each of them
        assert {(message.service, message.action) for message in got} == {(SERVICE, "NewOrder")}
        said = {message.message_id: message.conversation_id for message in got}
        assert said == {message.message_id: message.conversation_id for message in sent}
        contents = {payload.message.message_id: bytes(payload.content) for payload in Payload.objects.all()}
        assert contents == {message_id: b"<Order n='%d'/>" % number for number, message_id in enumerate(ids)}
        assert MessageIdentity.objects.filter(direction=Direction.OUT).count() == 0
    for name in "ABC":
        assert set(states(chain[name])) == {"delivered"}, name
        with chain[name] as hub:
            assert [message.message_id for message in hub.sent()] == ids
    if copies > 1:
        for name in "BC":
            with chain[name] as hub:
                assert sum(message.copies for message in hub.received()) >= len(ids)


ROADS = {
    "ebxml": ("msh", {}),
    "ebms2": ("ebms2/msh", {}),
    "ebms2, signed and encrypted": ("ebms2/msh", {"signatures": "receipts", "encryption": "smime-aes256"}),
    "stream": ("streams", {}),
    "repeatable": ("exchange/{}/", {}),
}


def certify(one: Hub, other: Hub) -> None:
    """Gives both hubs the certificates with which they sign, and for which they encrypt."""
    for here, there in ((one, other), (other, one)):
        ours, theirs = signer(here.name), signer(there.name)
        with here:
            for kind in FOR_MESSAGES:
                secret = ours.key.decode() + pem(ours)
                services.credential_store_outbound(party=here.knows(there.name), kind=kind, secret=secret)
                services.credential_issue(party=here.knows(there.name), kind=kind, certificate=pem(theirs))


@pytest.mark.parametrize("onward", ROADS)
@pytest.mark.parametrize("came", ROADS)
def test_whatever_it_comes_by_and_leaves_by_a_document_is_executed_once(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch, settings: object, came: str, onward: str
) -> None:
    """Each hop repeats everything, and each third answer is lost."""
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    settings.RMHUB_STREAM_HOLD_MS = 0  # type: ignore[attr-defined]

    def ends(sender: str, receiver: str, road: str, tpa_id: str) -> dict[str, str]:
        path, terms = ROADS[road]
        return {
            "ours": uri(sender, "exchange/out" if road == "repeatable" else path),
            "theirs": uri(receiver, path.format(tpa_id)),
            "profile": road.partition(",")[0],
            **terms,
        }

    def back(way: dict[str, str]) -> dict[str, str]:
        return way | {"ours": way["theirs"], "theirs": way["ours"]}

    end = "B" if onward == "repeatable" else "A"
    first, second = ends("A", "B", came, "tpa:B-A"), ends("B", "C", onward, "tpa:A-C")
    patient: dict[str, int] = {"timeout": 60, "retries": 20, "retry_interval": 60}
    with network("ABC") as net:
        with net["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", **first, **(patient if first["profile"] in ("ebxml", "ebms2") else {}))
        with net["B"] as b:
            b.agrees("A", "tpa:B-A", **back(first))
            b.routes_to("C", b.agrees("C", "tpa:B-C", **second), min_retry_secs=40)
            remembering_since(T.replace(month=1))
        with net["C"] as c:
            # Requests name no agreement: what came by them is under the one that B has with C.
            known = ("B", "tpa:B-C") if came == "repeatable" and onward != "repeatable" else (end, "tpa:A-C")
            c.agrees(*known, hop="B", **back(second))
            remembering_since(T.replace(month=1))
            Trigger.objects.create(name="orders", kind="pull", documents=[])
            subscriptions.current.forget()
        for one, other in ("AB", "BC"):
            join(net[one], net[other])
            certify(net[one], net[other])
        turns = iter(range(10_000))
        net.faults = lambda sender, receiver, parcel: [True, next(turns) % 3 > 0]
        with net["A"]:
            sent = [submit(b"<Order n='%d'/>" % number, "tpa:A-C", conversation_id=f"c{number}") for number in range(3)]
        for _ in range(30):
            net.work()
            if all(set(states(net[name])) == {"delivered"} for name in "AB"):
                break
            time.move(61)
        assert [set(states(net[name])) for name in "AB"] == [{"delivered"}, {"delivered"}]
        with net["C"] as c:
            got = c.received()
            assert sorted(one.message_id for one in got) == sorted(one.message_id for one in sent)
            assert Delivery.objects.count() == len(sent)
            assert {(one.service, one.action) for one in got} == {(SERVICE, "NewOrder")}
            assert {one.conversation_id for one in got} == {one.conversation_id for one in sent}
            kept = {row.message.message_id: bytes(row.content) for row in Payload.objects.all()}
            assert kept == {one.message_id: b"<Order n='%d'/>" % number for number, one in enumerate(sent)}


def test_the_stream_carries_whose_a_message_is_and_for_whom(chain: Network, time: FrozenClock) -> None:
    with chain["A"]:
        message = submit(b"<Order/>", "tpa:A-D")
    settle(chain, time, 2)
    [first] = [parcel for parcel in chain.between("A", "B") if ebxml.decode(parcel.content_type, parcel.body).service]
    said = stream.decode(chain.between("B", "C")[0].content_type, chain.between("B", "C")[0].body)
    came = ebxml.decode(first.content_type, first.body)
    assert said.message_id == message.message_id
    assert (said.from_parties, said.to_parties) == (came.from_parties, came.to_parties)
    assert (said.agreement_id, said.conversation_id) == ("tpa:A-D", message.conversation_id)


def test_while_the_way_onward_is_shut_the_stream_does_not_move(chain: Network, time: FrozenClock) -> None:
    with chain["C"] as c:
        operating.pair_pause(pair_id=c.outbound("tpa:C-D").pk, actor=WHO, reason=WHY)
    with chain["A"]:
        submit(b"<Order/>", "tpa:A-D")
    chain.work()
    with chain["C"] as c:
        assert c.received() == c.sent() == []
        assert c.inbound("tpa:C-B").last_sequence == 0
        assert Rejection.objects.get().http_status == 503
    assert states(chain["A"]) == ["delivered"]  # stored and forwarded: B has it
    with chain["C"] as c:
        operating.pair_release(pair_id=c.outbound("tpa:C-D").pk, actor=WHO, reason=WHY)
    settle(chain, time, 4)
    with chain["D"] as d:
        assert len(d.received()) == 1


@pytest.mark.parametrize("decision", ["delivered", "resubmit"])
def test_what_is_in_doubt_at_the_next_hop_is_told_until_a_person_has_settled_it(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    theirs, ours = f"https://d.example/exchange/{D_AGREEMENT}/", uri("B", "exchange/out")
    with network("ABD") as net:
        with net["A"] as a:
            a.agrees("D", "tpa:A-D", hop="B", timeout=60, retries=50, retry_interval=60)
        with net["B"] as b:
            b.agrees("A", "tpa:B-A")
            terms = {"profile": "repeatable", "partner_window": 120, "ours": ours, "theirs": theirs}
            b.routes_to("D", b.agrees("D", "tpa:B-D", **terms), mode="confirm_through", min_retry_secs=50)
        with net["D"] as d:
            d.agrees("B", D_AGREEMENT, profile="repeatable", ours=theirs, theirs=ours)
            remembering_since(T.replace(month=1))
        join(net["A"], net["B"])
        join(net["B"], net["D"])
        net.faults = lambda sender, receiver, parcel: [False] if receiver == "D" else [True]
        with net["A"]:
            submit(b"<Order/>", "tpa:A-D")
        while states(net["B"]) != ["in_doubt"]:
            net.work()
            time.move(30)
        for _ in range(3):
            net.work()
            time.move(61)
        told = [one.error.min_retry_secs for one in errors(net.between("B", "A")) if one.error]
        assert told and set(told) == {50}
        net.faults = lambda sender, receiver, parcel: [True]
        with net["B"] as b:
            settling.message_settle(message_id=b.sent()[0].pk, decision=decision, actor=WHO, reason=WHY)
        net.work()
        assert states(net["A"]) == ["delivered"]
        assert states(net["B"]) == (["delivered"] if decision == "delivered" else ["skipped", "delivered"])


@pytest.mark.parametrize("given_up", [False, True], ids=["delivered", "given up"])
def test_the_final_receipt_of_a_stream_waits_for_the_next_hop(
    time: FrozenClock, settings: object, given_up: bool
) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 0  # type: ignore[attr-defined]
    at_a, at_b = uri("A", "streams"), uri("B", "streams")
    with network("ABC") as net:
        with net["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", profile="stream", ours=at_a, theirs=at_b, final_receipt=True)
        with net["B"] as b:
            b.agrees("A", "tpa:B-A", profile="stream", ours=at_b, theirs=at_a, final_receipt=True)
            b.routes_to("C", b.agrees("C", "tpa:B-C"))
        with net["C"] as c:
            c.agrees("A", "tpa:A-C", hop="B")
        join(net["A"], net["B"])
        join(net["B"], net["C"])
        net.down = {"C"}
        with net["A"]:
            message = submit(b"<Order/>")
        for _ in range(3):
            net.work()
            time.move(1)
        assert states(net["A"]) == ["confirming"]  # B has it, and says no more than that
        with net["B"] as b:
            assert Signal.objects.get(kind="final").state == "held"
            if given_up:
                operating.pair_skip_head(pair_id=b.outbound("tpa:B-C").pk, actor=WHO, reason=WHY)
        net.down = set()
        time.move(61)
        net.work()
        assert states(net["A"]) == ["failed" if given_up else "delivered"]
        with net["C"] as c:
            assert [received.message_id for received in c.received()] == [message.message_id][given_up:]


@pytest.mark.parametrize("given_up", [False, True], ids=["delivered", "given up"])
def test_who_came_by_ebxml_2_waits_for_the_next_hop_too(time: FrozenClock, given_up: bool) -> None:
    """A route that confirms through. ebXML 2.0 has no words for a trouble that passes: its copies are not answered."""
    at_a, at_b = uri("A", "ebms2/msh"), uri("B", "ebms2/msh")
    with network("ABC") as net:
        with net["A"] as a:
            terms = {"retries": 20, "retry_interval": 60}
            a.agrees("C", "tpa:A-C", hop="B", profile="ebms2", ours=at_a, theirs=at_b, **terms)
        with net["B"] as b:
            b.agrees("A", "tpa:B-A", profile="ebms2", ours=at_b, theirs=at_a)
            onward = b.agrees("C", "tpa:B-C", retries=1, transport_retries=1, timeout=30, retry_interval=30)
            b.routes_to("C", onward, mode="confirm_through")
        with net["C"] as c:
            c.agrees("A", "tpa:A-C", hop="B")
        join(net["A"], net["B"])
        join(net["B"], net["C"])
        net.down = {"C"}
        with net["A"]:
            message = submit(b"<Order/>")
        for _ in range(6):
            net.work()
            time.move(61)
        assert states(net["B"]) == ["failed"]
        assert states(net["A"])[0] in ("awaiting_ack", "retrying")
        assert net.between("B", "A") == []
        with net["B"] as b:
            assert Signal.objects.get().state == "held"
            assert b.received()[0].copies >= 3
            pair_id = b.outbound("tpa:B-C").pk
            if given_up:
                operating.pair_skip_head(pair_id=pair_id, actor=WHO, reason=WHY)
            else:
                operating.pair_resume(pair_id=pair_id, actor=WHO, reason=WHY)
        net.down = set()
        for _ in range(3):
            net.work()
            time.move(61)
        assert states(net["A"]) == ["failed" if given_up else "delivered"]
        with net["C"] as c:
            assert [received.message_id for received in c.received()] == [message.message_id][given_up:]


def test_who_waits_for_the_next_hop_is_told_that_a_message_was_never_sent(time: FrozenClock) -> None:
    """Its TimeToLive ended while the pair to the next hop was shut."""
    at_b, at_c = uri("B", "ebms2/msh"), uri("C", "ebms2/msh")
    with network("ABC") as net:
        with net["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", timeout=60, retries=20, retry_interval=60)
        with net["B"] as b:
            b.agrees("A", "tpa:B-A")
            onward = b.agrees("C", "tpa:B-C", profile="ebms2", ours=at_b, theirs=at_c, time_to_live=100)
            b.routes_to("C", onward, mode="confirm_through")
        join(net["A"], net["B"])
        with net["A"]:
            submit(b"<Order/>")
        net.work("A")
        with net["B"] as b:
            pair_id = b.outbound("tpa:B-C").pk
            operating.pair_pause(pair_id=pair_id, actor=WHO, reason=WHY)
        time.move(200)
        net.work("B")
        with net["B"] as b:
            operating.pair_release(pair_id=pair_id, actor=WHO, reason=WHY)
        net.work("B")
        assert states(net["B"]) == ["failed"]
        told = [one.error.code for one in errors(net.between("B", "A")) if one.error]
        assert ErrorCode.DELIVERY_FAILURE in told


def test_a_signed_acknowledgement_that_is_not_agreed_is_refused_at_the_door(time: FrozenClock) -> None:
    with network("ABC") as net, net["B"] as b:
        b.agrees("A", "tpa:B-A", profile="ebms2", ours=uri("B", "ebms2/msh"), theirs=uri("A", "ebms2/msh"))
        b.routes_to("C", b.agrees("C", "tpa:B-C"))
        known, password = make_credential(b.knows("A"))
        registry.reset()
        side = Ebms2Side(b.terms("tpa:B-A"), Presented(authorization=basic(known.username, password)))
        asks = replace(RELIABLE, ack_requests=(side.signed(),))
        for_c = {"to_parties": (PartyId("C-1", "DUNS"),), "agreement_id": "tpa:A-C"}
        assert side.bring(side.envelope("m1", ebms=asks, **for_c)).status == 204
        assert Signal.objects.get().error_code == ErrorCode.NOT_SUPPORTED
        assert not Message.objects.exists()
        assert side.bring(side.envelope("m2", **for_c)).status == 204
        assert {message.message_id for message in Message.objects.all()} == {"m2"}


def test_a_message_that_requests_cannot_carry_is_refused_at_the_door(time: FrozenClock) -> None:
    with network("AB") as net:
        with net["A"] as a:
            a.agrees("D", "tpa:A-D", hop="B")
        with net["B"] as b:
            b.agrees("A", "tpa:B-A")
            theirs, ours = "https://d.example/exchange/x/", uri("B", "exchange/out")
            b.routes_to("D", b.agrees("D", "tpa:B-D", profile="repeatable", ours=ours, theirs=theirs))
        join(net["A"], net["B"])
        with net["A"]:
            two = [NewPayload(b"<Order/>", "application/xml"), NewPayload(b"%PDF", "application/pdf")]
            message_submit(agreement="tpa:A-D", service=SERVICE, action="NewOrder", payloads=two)
        net.work()
        [error] = errors(net.between("B", "A"))
        assert error.error is not None and error.error.code == ErrorCode.NOT_SUPPORTED
        assert error.error.description.startswith("2 payloads; the way to D is by HTTP requests, which carry one")


def test_requests_are_passed_on_to_ebxml(time: FrozenClock) -> None:
    """The other way: A by HTTP requests to B, which says by RM-To whom they are for; B by ebXML to C."""
    at_b = "https://b.example/exchange/tpa:B-A/"
    with network("ABC") as net:
        with net["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", profile="repeatable", ours=uri("A", "exchange/out"), theirs=at_b)
        with net["B"] as b:
            b.agrees("A", "tpa:B-A", profile="repeatable", ours=at_b, theirs=uri("A", "exchange/out"))
            b.routes_to("C", b.agrees("C", "tpa:B-C"))
            remembering_since(T.replace(month=1))
        with net["C"] as c:
            c.agrees("B", "tpa:B-C")
        join(net["A"], net["B"])
        join(net["B"], net["C"])
        with net["A"]:
            message = submit(b"<Order/>")
        net.faults = lambda sender, receiver, parcel: [True, True]
        net.work()
        assert states(net["A"]) == states(net["B"]) == ["delivered"]
        with net["C"] as c:
            [received] = c.received()
            assert received.message_id == message.message_id
            assert received.conversation_id == message.conversation_id
            assert received.copies == 1
        with net["B"] as b:
            assert b.received()[0].copies == 1


@pytest.mark.parametrize(
    ("to", "problem"),
    [("DUNS:X-1", (404, "not-routed")), ("C-1", (400, "malformed-header")), (":C-1", (400, "malformed-header"))],
)
def test_a_request_for_a_party_to_which_nothing_leads_is_refused(
    time: FrozenClock, to: str, problem: tuple[int, str]
) -> None:
    with network("AB") as net, net["B"] as b:
        b.agrees("A", "tpa:B-A", profile="repeatable", ours="https://b.example/exchange/tpa:B-A/", theirs=uri("A"))
        remembering_since(T.replace(month=1))
        known, password = make_credential(b.knows("A"))
        registry.reset()
        headers = {
            "rm-to": (to,),
            "rm-service": ("urn:anything",),
            "rm-action": ("Order",),
            "repeatability-request-id": ("r1",),
            "repeatability-first-sent": ("Tue, 10 Mar 2026 12:00:00 GMT",),
        }
        path = "tpa:B-A/"
        shown = Presented(authorization=basic(known.username, password))
        request = Request("application/xml", b"<Order/>", shown, method="POST", path=path, target=path, headers=headers)
        answer = exchanging.exchange(request, authentication.enter(shown, "").principal)
        assert answer.status == problem[0]
        assert problem[1].encode() in answer.body
        assert not Message.objects.exists() and not Signal.objects.exists()
