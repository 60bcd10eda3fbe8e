"""A document is known by its own id, whatever message brings it, by whatever profile: W18, W19 and W44."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from messaging import applications
from messaging.deliveries.services import pulling
from messaging.entrance.refusals import Arrival
from messaging.messages.services import resubmitting
from messaging.models import Coordination, Delivery, Event, Join, Message, Rejection, Signal, Trigger
from messaging.profiles.stream import receiving as streams
from messaging.protocol.codecs import entity_file, mail
from messaging.protocol.envelope import PayloadPart
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.documents import SERVICE
from tests.messaging.deliveries.stage import PERSON, Application, arrive, make_trigger, now_of, states, verdict, work
from tests.messaging.deliveries.together import atomic, decide
from tests.messaging.entrance.mail.partners import mail_of
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.profiles.repeatable.callers import Caller, T, application, caller, new_id, remembering_since
from tests.messaging.profiles.stream.partner import StreamSide, stream_side
from tests.messaging.wire import edited

pytestmark = pytest.mark.django_db


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    """A moment at which all profiles take what is sent now."""
    with clock.frozen(T) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def nothing_is_held_back(settings: Any) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 0


Bring = Callable[[str, str], None]  # MessageId, document id


def by_http() -> Bring:
    partner = partner_side()

    def bring(message_id: str, document_id: str) -> None:
        arrive(partner, message_id, document_id=document_id)

    return bring


def _through(form: Callable[[Arrival], tuple[str, bytes]]) -> Callable[[], Bring]:
    """ebXML in another transfer form: what comes out of it is brought to the same entrance."""

    def make() -> Bring:
        partner = partner_side()
        numbers = iter(range(1, 100))

        def bring(message_id: str, document_id: str) -> None:
            arrival = partner.message(next(numbers), message_id, document_id=document_id)
            content_type, body = form(arrival)
            assert partner.send(Arrival(content_type, body, partner.presented)) == 204
            assert Message.objects.get(message_id=message_id).digest  # the octets were taken as they are

        return bring

    return make


def _mailed(arrival: Arrival) -> tuple[str, bytes]:
    found = mail.entity(mail.read_mail(mail_of(arrival)))
    assert found == (arrival.content_type, arrival.body)  # mail keeps the octets, the id's header too
    return found


def _filed(arrival: Arrival) -> tuple[str, bytes]:
    found = entity_file.unpack(entity_file.pack(arrival.content_type, arrival.body))
    return found.content_type, found.body


def by_stream() -> Bring:
    streams.reset()
    partner: StreamSide = stream_side()
    numbers = iter(range(1, 100))

    def bring(message_id: str, document_id: str) -> None:
        assert partner.send(partner.message(next(numbers), message_id, document_id=document_id)).status == 202

    return bring


def by_requests() -> Bring:
    remembering_since(T.replace(month=1))
    partner: Caller = caller()

    def bring(message_id: str, document_id: str) -> None:
        assert partner.post(message_id, T, headers={"RM-Document-ID": document_id}).status_code == 202

    return bring


@pytest.mark.parametrize(
    "road",
    [
        pytest.param(by_http, id="W44-ebxml"),
        pytest.param(_through(_mailed), id="W44-mail"),
        pytest.param(_through(_filed), id="W44-files"),
        pytest.param(by_stream, id="W44-stream"),
        pytest.param(by_requests, id="W44-repeatable"),
    ],
)
def test_the_same_document_under_a_new_message_id_is_a_duplicate(
    time: FrozenClock, app: Application, road: Callable[[], Bring]
) -> None:
    make_trigger(app)
    bring = road()
    first, second, other = new_id(), new_id(), new_id()
    bring(first, "order-1")
    work()
    bring(second, "order-1")
    bring(other, "order-2")
    work()
    assert app.documents == ["order-1", "order-2"]
    messages = {message.message_id: message for message in Message.objects.filter(direction="in")}
    assert set(messages) == {first, second, other}, "what was accepted is stored, the duplicate too"
    assert messages[second].identifies == "order-1"
    kept = Delivery.objects.get(message=messages[second])
    assert (kept.state, kept.document_id, kept.document_id_from) == ("duplicate", "order-1", "sender")
    assert kept.evidence[-1]["finding"] == "completed"
    told = Event.objects.get(type="delivery.duplicate")
    assert told.data["document_id"] == "order-1"
    received = Event.objects.filter(type="message.received").order_by("id")
    assert [event.data["document_id"] for event in received] == ["order-1", "order-1", "order-2"]


def test_w44_the_duplicate_is_acknowledged_like_any_message(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    make_trigger(app)
    arrive(partner, "first", document_id="order-1")
    work()
    arrive(partner, "second", document_id="order-1")
    assert set(Signal.objects.filter(direction="out").values_list("ref_to_message_id", flat=True)) == {
        "first",
        "second",
    }
    assert not Rejection.objects.exists()


def test_w44_a_pull_queue_hands_out_no_second_message_with_the_id_of_the_first(
    partner: PartnerSide, time: FrozenClock
) -> None:
    queue = make_trigger(kind="pull")
    arrive(partner, "first")
    (leased,) = pulling.lease(queue.pk, limit=10, consumer="erp", seconds=60)
    pulling.complete(leased.delivery.pk, leased.claim)
    (second,) = arrive(partner, "second", document_id="first")
    assert pulling.lease(queue.pk, limit=10, consumer="erp", seconds=60) == []
    assert (*states(second), now_of(second).document_id) == ("duplicate", "first")


def test_w44_an_atomic_trigger_begins_no_transaction_for_a_document_that_all_members_have(
    partner: PartnerSide, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setitem(applications.SERVICES, "books", lambda document: seen.append(document.message_id))
    atomic(callables=("books",))
    arrive(partner, "first")
    work()
    decide()
    (second,) = arrive(partner, "second", document_id="first")
    work()
    decide()
    assert (seen, states(second)) == (["first"], ["duplicate"])
    assert Coordination.objects.count() == 1


def test_w44_a_join_takes_a_document_once_whatever_message_brings_it(
    partner: PartnerSide, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[str]] = []

    def run(document: applications.Document) -> None:
        runs.append([other.message_id for other in document.others] + [document.message_id])

    monkeypatch.setitem(applications.SERVICES, "joined", run)
    wanted = [{"service": SERVICE, "action": action} for action in "AB"]
    make_trigger(kind="callable", callable_name="joined", documents=wanted, join_type="all", join_timeout=3600)
    arrive(partner, "first", action="A", conversation_id="c1")
    work()
    waiting = arrive(partner, "second", action="A", conversation_id="c1", document_id="first")
    work()
    arrive(partner, "other", action="B", conversation_id="c1")
    work()
    fired = arrive(partner, "third", action="A", conversation_id="c1", document_id="first")
    work()
    assert runs == [["first", "other"]]
    assert states(*waiting, *fired) == ["duplicate", "duplicate"]
    assert Join.objects.count() == 1


def test_w44_a_partner_cannot_use_up_the_ids_of_another(app: Application, time: FrozenClock) -> None:
    make_trigger(app)
    poisoner, honest = partner_side(), partner_side()
    arrive(poisoner, "poison", document_id="order-1")
    arrive(honest, "honest", document_id="order-1")
    work()
    assert app.documents == ["order-1", "order-1"]
    assert set(Delivery.objects.values_list("state", flat=True)) == {"completed"}


def test_w44_each_trigger_has_its_own_history(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    make_trigger(app)
    arrive(partner, "first", document_id="order-1")
    work()
    make_trigger(app)
    arrive(partner, "second", document_id="order-1")
    work()
    assert app.documents == ["order-1", "order-1"]
    assert sorted(Delivery.objects.values_list("state", flat=True)) == ["completed", "completed", "duplicate"]


def test_w44_a_document_that_is_still_in_work_goes_to_the_resolver(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", verdict("DUPLICATE"))
    make_trigger(app, resolver="http", ordered=False)
    arrive(partner, "first", document_id="order-1")
    arrive(partner, "second", document_id="order-1")
    work()
    assert app.documents == ["order-1"]
    [question] = app.at("/resolver")
    assert question.json["uuid"] == "order-1"
    assert question.json["document"]["document_id"] == "order-1"
    assert question.json["document"]["message_id"] == "second"
    assert list(Delivery.objects.order_by("position").values_list("state", flat=True)) == ["completed", "duplicate"]


def test_w44_a_synchronous_request_is_answered_without_being_executed_again(time: FrozenClock) -> None:
    remembering_since(T.replace(month=1))
    partner = caller(exchange_mode="synchronous")
    with application() as made:
        first = partner.post(new_id(), T, headers={"RM-Document-ID": "order-1"})
        second = partner.post(new_id(), T, headers={"RM-Document-ID": "order-1"})
        assert (first.status_code, second.status_code, made.executions) == (200, 204, 1)
        assert second["Repeatability-Result"] == "accepted"


# --- which id: in the document (uuid), given by its sender (trackID), the MessageId (eventID) ---

ORDER = b'<o:Order xmlns:o="urn:o" number="47"><ID> 4711 </ID><Empty/></o:Order>'
JSON = b'{"order": {"number": 4711, "text": "A 1", "none": null}}'
EDI = b"UNB+UNOC:3+A+B'UNH+1+ORDERS:D:96A'BGM+220+47?+11+9'UNT+3+1'"


@pytest.mark.parametrize(
    ("path", "content", "given", "known_as", "source"),
    [
        pytest.param("//Order/ID", ORDER, "t1", "4711", "document", id="W18-the-document-says-it-itself"),
        pytest.param("//Order/@number", ORDER, "t1", "47", "document", id="W18-an-attribute"),
        pytest.param("//Order/Empty", ORDER, "t1", "t1", "sender", id="W18-empty-so-as-its-sender-says"),
        pytest.param("//Invoice/ID", ORDER, "", "m1", "message", id="W18-none-given-so-the-message"),
        pytest.param("", ORDER, "t1", "t1", "sender", id="W18-no-rule"),
        pytest.param("", ORDER, "", "m1", "message", id="W18-nothing-at-all"),
        pytest.param("", ORDER, "m1", "m1", "message", id="W18-its-own-MessageId"),
        pytest.param("$.order.number", JSON, "t1", "4711", "document", id="W18-json-number"),
        pytest.param("$..text", JSON, "", "A 1", "document", id="W18-json-text"),
        pytest.param("$.order.none", JSON, "t1", "t1", "sender", id="W18-json-null"),
        pytest.param("BGM+2", EDI, "", "47+11", "document", id="W18-edi"),
        pytest.param("//Order/ID", b"<Order><ID>4711</ID>", "t1", "t1", "sender", id="W18-not-well-formed"),
        pytest.param("$.order.number", ORDER, "t1", "t1", "sender", id="W18-another-kind-of-document"),
        pytest.param("//ID", b"<ID>%b</ID>" % (b"x" * 96), "t1", "x" * 96, "document", id="W19-96"),
        pytest.param("//ID", b"<ID>%b</ID>" % (b"x" * 97), "t1", "", "document", id="W19-97-in-the-document"),
        pytest.param("$.id", rb'{"id": "a\u0000b"}', "t1", "", "document", id="W19-what-no-table-holds"),
        pytest.param("", ORDER, "x" * 97, "", "sender", id="W19-97-on-the-wire"),
    ],
)
def test_the_id_that_the_history_goes_by(
    partner: PartnerSide,
    app: Application,
    time: FrozenClock,
    path: str,
    content: bytes,
    given: str,
    known_as: str,
    source: str,
) -> None:
    make_trigger(app, document_id_path=path)
    payloads = (PayloadPart("p1@partner.example", "text/plain", content),)
    as_sent = {"payloads": payloads, "manifest": ()}
    assert partner.send(partner.message(1, "m1", document_id=given, **as_sent)) == 204
    work()
    first = Delivery.objects.get()
    assert (first.document_id, first.document_id_from) == (known_as, source)
    assert first.state == ("completed" if known_as else "in_doubt")
    assert app.documents == ([known_as] if known_as else [])
    if source == "document" and known_as:
        assert partner.send(partner.message(2, "m2", document_id="another", **as_sent)) == 204
        work()
        assert states(*Delivery.objects.order_by("position")) == ["completed", "duplicate"]


def test_w18_listeners_and_redeliveries_go_by_the_documents_own_id(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    make_trigger(app, documents=[{"service": "urn:other", "action": "*"}])
    assert partner.send(partner.message(1, "m1", content=ORDER)) == 204
    late = make_trigger(app, document_id_path="//ID")
    resubmitting.message_redeliver(message_id=Message.objects.get().pk, actor=PERSON, reason="it came too early")
    work()
    made = Delivery.objects.get(trigger=late)
    assert (made.document_id, made.document_id_from, made.state) == ("4711", "document", "completed")


def test_w19_a_resolver_decides_about_an_id_that_cannot_be_used(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, resolver="http")
    [delivery] = arrive(partner, "m1", document_id="x" * 97)
    work()
    assert (now_of(delivery).state, len(app.at("/documents"))) == ("completed", 1)


# --- what is no id is refused, with a word that says what is wrong ---


@pytest.mark.parametrize("bad", ["a%09b", "x" * 513, "%FF", "caf%C3%A9"])
def test_w44_an_ebxml_message_with_a_bad_id_is_refused(partner: PartnerSide, time: FrozenClock, bad: str) -> None:
    arrival = edited(partner.message(1, "m1", document_id="PLACE"), ("RM-Document-ID: PLACE", f"RM-Document-ID: {bad}"))
    partner.send(arrival)
    assert not Message.objects.filter(direction="in").exists()
    refused = Signal.objects.get(direction="out")
    assert (refused.kind, refused.error_code) == ("error", "ValueNotRecognized")
    assert b"document id" in bytes(refused.body)
    assert b"RM-Document-ID" in bytes(refused.body)


@pytest.mark.parametrize("bad", ["a\tb", "x" * 513, "café"], ids=["control character", "too long", "not ASCII"])
def test_w44_a_message_of_a_stream_with_a_bad_id_is_refused_and_the_stream_stays_where_it_is(
    time: FrozenClock, bad: str
) -> None:
    streams.reset()
    partner = stream_side()
    whole = partner.message(1, "m1", document_id="PLACE")
    assert partner.send(edited(whole, ("DocumentId>PLACE<", f"DocumentId>{bad}<"))).status == 400
    assert not Message.objects.exists()
    refused = Rejection.objects.get()
    assert "document id" in refused.detail and "DocumentId" in refused.detail
    assert partner.send(whole).status == 202, "the sender fixes it under the same number"
    assert Message.objects.get().document_id == "PLACE"


@pytest.mark.parametrize("bad", ["a%09b", "x" * 513, "caf%C3%A9"])
def test_w44_a_request_with_a_bad_id_is_refused(time: FrozenClock, bad: str) -> None:
    remembering_since(T.replace(month=1))
    answer = caller().post(new_id(), T, headers={"RM-Document-ID": bad})
    problem = json.loads(answer.content)
    assert (answer.status_code, problem["type"].rpartition("/")[2]) == (400, "malformed-header")
    assert "RM-Document-ID" in problem["detail"]


def test_w44_a_repeat_of_a_request_with_another_document_id_is_another_request(time: FrozenClock) -> None:
    remembering_since(T.replace(month=1))
    partner, request_id = caller(), new_id()
    assert partner.post(request_id, T, headers={"RM-Document-ID": "order-1"}).status_code == 202
    assert partner.post(request_id, T, headers={"RM-Document-ID": "order-1"}).status_code == 202
    assert partner.post(request_id, T, headers={"RM-Document-ID": "order-2"}).status_code == 400


def test_w44_a_callable_sees_the_id(partner: PartnerSide, time: FrozenClock) -> None:
    seen: list[str] = []
    applications.service("ids")(lambda document: seen.append(document.document_id))
    try:
        make_trigger(kind="callable", callable_name="ids")
        arrive(partner, "m1", document_id="order-1")
        arrive(partner, "m2", document_id="order-1")
        work()
    finally:
        applications.SERVICES.pop("ids")
    assert seen == ["order-1"]
    assert Trigger.objects.count() == 1
    assert "duplicate" in set(Delivery.objects.values_list("state", flat=True))
