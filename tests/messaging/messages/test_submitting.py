"""Documents from our applications: stored whole or refused with a reason, once, in order, whatever comes at once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import connection

from messaging import storage
from messaging.choices import Direction, MessageState
from messaging.entrance.refusals import Arrival
from messaging.exceptions import (
    ApplicationError,
    DuplicateMessageId,
    IdempotencyMismatch,
    InvalidSubmission,
    OutsideAgreement,
    QueueFull,
    TooLarge,
)
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import NewPayload, Submission, message_submit
from messaging.models import Event, Message, MessageIdentity, Pair, Payload
from messaging.pairs.services import operating
from messaging.protocol.envelope import MAX_PAYLOADS, DocumentReference, PayloadPart
from messaging.protocol.errors import EncodeError
from partners import registry, services
from partners.models import Agreement
from rmhub.clock import frozen
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, decoded, link, partner_side, work
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
WAIT = 120.0


def hand_in(partner: PartnerSide, *contents: bytes, **fields: object) -> Submission:
    payloads = [NewPayload(content, "application/xml") for content in contents or (b"<Order/>",)]
    given = {"agreement": partner.terms.tpa_id, "service": SERVICE, "action": ACTION, "payloads": payloads}
    return message_submit(**{**given, **fields})  # type: ignore[arg-type]


def test_what_is_accepted_is_stored_with_all_that_it_needs(
    woken: list[str], django_capture_on_commit_callbacks
) -> None:
    partner = partner_side()
    with frozen(AT), django_capture_on_commit_callbacks(execute=True):
        result = hand_in(
            partner,
            b"<a/>",
            b"<b/>",
            message_id="m1@us.example",
            conversation_id="c1",
            ref_to_message_id="r1",
            submitted_by="token erp",
        )
    assert (result.replayed, result.warnings) == (False, ())
    message = Message.objects.get()
    assert message.pk == result.message.pk
    assert (message.direction, message.state, message.semantics) == ("out", "queued", "OnceAndOnlyOnce")
    assert (message.message_id, message.conversation_id, message.ref_to_message_id) == ("m1@us.example", "c1", "r1")
    assert (message.size, message.position, message.submitted_by, message.created_at) == (8, 1, "token erp", AT)
    assert message.sequence_number is None, "the number is given when it is prepared"
    assert [(p.number, bytes(p.content or b""), p.size) for p in message.payloads.all()] == [
        (1, b"<a/>", 4), (2, b"<b/>", 4),
    ]  # fmt: skip
    pair = partner.outbound
    assert (pair.queued, pair.due_at, pair.next_position) == (1, AT, 2)
    identity = MessageIdentity.objects.get()
    assert (identity.scope_id, identity.message_id) == (partner.terms.own_party_id, "m1@us.example")
    event = Event.objects.get()
    assert (event.type, event.data["message_id"], event.data["size"]) == ("message.accepted", "m1@us.example", 8)
    assert woken == ["messaging.send_due"]


def test_ids_are_made_when_none_are_given() -> None:
    partner = partner_side(make_agreement(own_uri="https://hub.us.example/msh"))
    first, second = hand_in(partner).message, hand_in(partner).message
    assert first.message_id.endswith("@hub.us.example")
    assert len({first.message_id, second.message_id, first.conversation_id, second.conversation_id}) == 4


def test_the_semantics_are_the_agreements_unless_the_submission_says_otherwise() -> None:
    reliable, best = partner_side(), partner_side(semantics="BestEffort", retries=0)
    assert hand_in(reliable).message.semantics == "OnceAndOnlyOnce"
    assert hand_in(best).message.semantics == "BestEffort"
    assert hand_in(reliable, semantics="AtMostOnce").message.semantics == "AtMostOnce"


def test_an_unreliable_message_stays_out_of_the_queue() -> None:
    partner = partner_side()
    with frozen(AT):
        message = hand_in(partner, semantics="BestEffort").message
    assert message.due_at == AT
    pair = partner.outbound
    assert (pair.queued, pair.due_at) == (0, None)


WRONG: dict[str, tuple[str, dict[str, object]]] = {
    "message_id with a blank": ("message_id", {"message_id": "a b@c"}),
    "message_id with brackets": ("message_id", {"message_id": "<a@c>"}),
    "message_id outside ASCII": ("message_id", {"message_id": "\u00e9@c"}),
    "message_id with NUL": ("message_id", {"message_id": "a\x00@c"}),
    "message_id too long": ("message_id", {"message_id": "a" * 401}),
    "conversation_id with a line break": ("conversation_id", {"conversation_id": "a\nb"}),
    "conversation_id with a blank at its end": ("conversation_id", {"conversation_id": "a "}),
    "conversation_id with a lone surrogate": ("conversation_id", {"conversation_id": "a\ud800"}),
    "conversation_id with a line separator": ("conversation_id", {"conversation_id": "a\u2028b"}),
    "conversation_id with U+FFFF": ("conversation_id", {"conversation_id": "a\uffff"}),
    "conversation_id with a C1 control": ("conversation_id", {"conversation_id": "a\x85b"}),
    "ref_to_message_id too long": ("ref_to_message_id", {"ref_to_message_id": "r" * 401}),
    "no service": ("service", {"service": ""}),
    "no action": ("action", {"action": ""}),
    "action with a control character": ("action", {"action": "a\x07"}),
    "semantics that are none": ("semantics", {"semantics": "TwiceAtLeast"}),
    "no payload": ("payloads", {"payloads": []}),
    "1,001 payloads": ("payloads", {"payloads": [NewPayload(b"x")] * 1001}),
    "content type that is none": ("payloads", {"payloads": [NewPayload(b"x", "xml")]}),
    "content type with a line break": ("payloads", {"payloads": [NewPayload(b"x", "a/b\r\nX-A: b")]}),
    "content type outside ASCII": ("payloads", {"payloads": [NewPayload(b"x", 'a/b; name="\u00e9"')]}),
    "content type parameter outside ASCII": ("payloads", {"payloads": [NewPayload(b"x", "a/b; name=\u00e9")]}),
    "content type with NUL": ("payloads", {"payloads": [NewPayload(b"x", 'a/b; name="\x00"')]}),
    "content type too long": ("payloads", {"payloads": [NewPayload(b"x", "a/" + "b" * 300)]}),
    "file name with NUL": ("payloads", {"payloads": [NewPayload(b"x", filename="a\x00.xml")]}),
    "file name with a lone surrogate": ("payloads", {"payloads": [NewPayload(b"x", filename="a\udcff.xml")]}),
    "file name too long": ("payloads", {"payloads": [NewPayload(b"x", filename="a" * 256)]}),
    "label with a blank at its end": ("payloads", {"payloads": [NewPayload(b"x", label="Order ")]}),
    "label of blanks": ("payloads", {"payloads": [NewPayload(b"x", label=" ")]}),
    "label with a line break": ("payloads", {"payloads": [NewPayload(b"x", label="a\nb")]}),
    "label too long": ("payloads", {"payloads": [NewPayload(b"x", label="a" * 121)]}),
    "idempotency key too long": ("idempotency_key", {"idempotency_key": "k" * 256}),
    "idempotency key with NUL": ("idempotency_key", {"idempotency_key": "k\x00"}),
}


def test_what_could_not_be_sent_is_refused_at_once_and_says_which_field() -> None:
    partner = partner_side()
    for name, (field, wrong) in WRONG.items():
        with pytest.raises(InvalidSubmission) as refused:
            pytest.fail(f"{name} was taken: {hand_in(partner, **wrong)}")
        assert list(refused.value.errors) == [field], name
        assert all(refused.value.errors[field])
    assert not Message.objects.exists()
    assert not Payload.objects.exists()


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidSubmission) as refused:
        hand_in(partner_side(), message_id="a b", conversation_id="\n", semantics="x", payloads=[])
    assert set(refused.value.errors) == {"message_id", "conversation_id", "semantics", "payloads"}


ODD_BUT_RIGHT: dict[str, dict[str, object]] = {
    "long ids": {"message_id": "m" * 400, "conversation_id": "\u20ac" * 400, "ref_to_message_id": "r" * 400},
    "markup": {"conversation_id": "<&>\"']]>", "action": "a&b<c>", "ref_to_message_id": "&amp;"},
    "punctuation": {"message_id": "!#$%&'*+-/=?^_`{|}~.\"()[]:;,\\@x"},
    "percent": {"message_id": "%41%00%zz@x"},
    "other planes": {"conversation_id": "\U0001f4e6 \u65e5\u672c\u8a9e", "action": "\u00dc bung"},
    "odd payload": {
        "payloads": [NewPayload(b"\x00--rm080", 'text/plain; charset="utf-8"', '\u00e9 "a".xml', "L\u00fc")]
    },
    "content like a delimiter": {"message_id": "m1@x", "payloads": [NewPayload(b"\r\n--rm080-m1--\r\n")]},
    "empty payload": {"payloads": [NewPayload(b"")]},
    "1,000 payloads": {
        "message_id": "&" * 400,
        "payloads": [NewPayload(b"x" * n, filename="\u20ac" * 255, label="&" * 120) for n in range(MAX_PAYLOADS)],
    },
}


@pytest.mark.parametrize("name", ODD_BUT_RIGHT)
def test_what_is_accepted_can_be_put_on_the_wire(name: str) -> None:
    """No submission may suspend its pair later: whatever gets in is encoded, and comes out as it went in."""
    partner = partner_side()
    given = ODD_BUT_RIGHT[name]
    message = hand_in(partner, **given).message
    with link() as wire:
        work()
    envelope = decoded(wire.last)
    assert envelope.defects == ()
    for field in ("message_id", "conversation_id", "ref_to_message_id", "action"):
        assert getattr(envelope, field) == getattr(message, field)
    payloads = given.get("payloads", [NewPayload(b"<Order/>")])
    assert [part.content for part in envelope.payloads] == [p.content for p in payloads]  # type: ignore[attr-defined]
    assert partner.outbound.flow == "awaiting_ack"


def test_as_many_payloads_as_we_send_are_received_and_no_more() -> None:
    partner = partner_side()

    def arrival(count: int, number: int) -> Arrival:
        parts = tuple(PayloadPart(f"p{n}@partner.example", "text/plain", b"%d" % n) for n in range(count))
        manifest = tuple(DocumentReference("Document", f"cid:{part.content_id}") for part in parts)
        return partner.message(number, manifest=manifest, payloads=parts)

    assert partner.send(arrival(MAX_PAYLOADS, 1)) == 204
    rows = Payload.objects.filter(message__direction="in").order_by("number")
    assert [bytes(row.content or b"") for row in rows] == [b"%d" % n for n in range(MAX_PAYLOADS)]
    with pytest.raises(EncodeError):  # a reader refuses it likewise (tests/protocol/codecs/test_mime.py)
        arrival(MAX_PAYLOADS + 1, 2)
    with pytest.raises(InvalidSubmission, match="At most 1,000 payloads"):
        hand_in(partner, payloads=[NewPayload(b"x")] * (MAX_PAYLOADS + 1))


def test_a_service_that_we_may_not_send_is_outside_the_agreement() -> None:
    partner = partner_side(make_agreement(allowed=[("urn:orders", "New", "receive"), ("urn:orders", "Old", "send")]))
    for action in ("New", "Other"):
        with pytest.raises(OutsideAgreement, match=f"urn:orders / {action}"):
            hand_in(partner, action=action)
    assert hand_in(partner, action="Old").message.action == "Old"


def test_an_agreement_that_is_not_in_force_takes_nothing() -> None:
    partner = partner_side()
    services.agreement_disable(agreement=Agreement.objects.get(pk=partner.terms.agreement_id))
    registry.reset()
    for tpa_id in (partner.terms.tpa_id, "tpa:unknown", "tpa\x00"):
        with pytest.raises(OutsideAgreement) as refused:
            hand_in(partner, agreement=tpa_id)
        assert refused.value.code == "unknown_agreement"


def test_more_than_the_agreement_or_the_hub_allows_is_too_large(settings) -> None:
    partner = partner_side(max_message_bytes=2000)
    assert hand_in(partner, b"x" * 1000, b"x" * 1000).message.size == 2000
    with pytest.raises(TooLarge, match="2000"):
        hand_in(partner, b"x" * 1000, b"x" * 1001)
    settings.RMHUB_MAX_MESSAGE_BYTES = 1500
    with pytest.raises(TooLarge, match="1500"):
        hand_in(partner, b"x" * 1501)
    assert Message.objects.count() == 1


def test_a_large_payload_lies_in_a_file_and_goes_out_byte_for_byte(settings) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    partner = partner_side()
    large = bytes(range(256)) * 20_000
    hand_in(partner, large, b"small")
    first, second = Payload.objects.order_by("number")
    assert (first.content, first.size, first.sha256) == (None, len(large), hashlib.sha256(large).hexdigest())
    assert storage.load(first.content, first.stored_as) == large
    assert (second.stored_as, bytes(second.content or b"")) == ("", b"small")
    with link() as wire:
        work()
    assert [part.content for part in decoded(wire.last).payloads] == [large, b"small"]
    assert Message.objects.get().digest == storage.digest(wire.last.body)


@pytest.mark.parametrize(
    ("hold", "code"),
    [
        (lambda pair: Pair.objects.filter(pk=pair.pk).update(flow="suspended", cause="ack_timeout"), "pair_suspended"),
        (lambda pair: operating.pair_pause(pair_id=pair.pk, actor=ANN, reason="test"), "pair_paused"),
        (lambda pair: Pair.objects.filter(pk=pair.pk).update(gate="disabled"), "pair_disabled"),
    ],
)
def test_a_pair_that_is_held_takes_submissions_and_says_so(
    hold: Callable[[Pair], object], code: str, woken: list[str], django_capture_on_commit_callbacks
) -> None:
    partner = partner_side()
    hold(partner.outbound)
    with django_capture_on_commit_callbacks(execute=True):
        result = hand_in(partner)
    [(warning, sentence)] = result.warnings
    assert warning == code
    assert partner.outbound.code in sentence
    assert partner.outbound.queued == 1
    assert woken == [], "there is nothing to do about it"
    with link() as wire:
        work()
    assert wire.parcels == []


def test_a_message_id_goes_out_once() -> None:
    partner = partner_side()
    first = hand_in(partner, message_id="m@x").message
    with pytest.raises(DuplicateMessageId) as refused:
        hand_in(partner, b"<Other/>", message_id="m@x")
    assert refused.value.existing == first.pk
    assert (Message.objects.count(), partner.outbound.queued, partner.outbound.next_position) == (1, 1, 2)
    assert hand_in(partner, message_id="m2@x").message.position == 2


def test_another_own_party_may_use_the_same_message_id() -> None:
    first, second = hand_in(partner_side(), message_id="m@x"), hand_in(partner_side(), message_id="m@x")
    assert first.message.pk != second.message.pk


def test_a_repeat_under_the_same_key_gives_the_first_message() -> None:
    partner = partner_side()
    first = hand_in(partner, idempotency_key="k", submitted_by="erp")
    again = hand_in(partner, idempotency_key="k", submitted_by="erp")
    assert (again.replayed, again.message.pk) == (True, first.message.pk)
    assert (Message.objects.count(), Event.objects.count()) == (1, 1)
    assert not hand_in(partner, idempotency_key="k", submitted_by="other").replayed, "keys are each sender's own"


@pytest.mark.parametrize(
    "change",
    [
        {"action": "Other"},
        {"message_id": "m@x"},
        {"conversation_id": "c"},
        {"semantics": "BestEffort"},
        {"payloads": [NewPayload(b"<Other/>", "application/xml")]},
        {"payloads": [NewPayload(b"<Order/>", "text/xml")]},
        {"payloads": [NewPayload(b"<Order/>", "application/xml", filename="x")]},
        {"payloads": [NewPayload(b"<Order/>", "application/xml")] * 2},
    ],
)
def test_another_submission_under_the_same_key_is_refused(change: dict[str, object]) -> None:
    partner = partner_side()
    hand_in(partner, idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        hand_in(partner, idempotency_key="k", **change)
    assert Message.objects.count() == 1


def test_a_repeat_is_recognised_even_when_the_agreement_has_ended_meanwhile() -> None:
    """Whoever lost our answer asks again: it must hear that the message was taken, not that it never could be."""
    partner = partner_side()
    first = hand_in(partner, idempotency_key="k")
    services.agreement_disable(agreement=Agreement.objects.get(pk=partner.terms.agreement_id))
    registry.reset()
    assert hand_in(partner, idempotency_key="k").message.pk == first.message.pk


# ---- many at once: real threads, real commits ----


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """Runs all calls at the same moment, each in a thread of its own. Results, or what they raised, in their order."""
    results: list[object] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def run(index: int) -> None:
        try:
            start.wait(WAIT)
            results[index] = calls[index]()
        except ApplicationError as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    return results


@pytest.mark.django_db(transaction=True)
def test_what_comes_at_once_is_queued_without_gaps_and_goes_out_in_that_order() -> None:
    first, second = partner_side(), partner_side()

    def several(partner: PartnerSide) -> list[Message]:
        return [hand_in(partner).message for _ in range(5)]

    results = at_once([lambda p=p: several(p) for p in (first, second) * 4])
    for partner, stored in ((first, results[0::2]), (second, results[1::2])):
        assert sorted(m.position for batch in stored for m in batch) == list(range(1, 21))  # type: ignore[attr-defined]
        assert all(sorted(batch, key=lambda m: m.position) == batch for batch in stored)  # type: ignore[call-overload]
        pair = partner.outbound
        assert (pair.queued, pair.next_position) == (20, 21)
    with link(name="http") as wire:
        for _ in range(40):
            if not work():
                break
            for parcel in wire.parcels:
                for partner in (first, second):
                    if decoded(parcel).agreement_id == partner.terms.tpa_id:
                        partner.send(partner.acknowledgement(parcel))
            wire.parcels.clear()
    for partner in (first, second):
        sent = Message.objects.filter(pair=partner.outbound).order_by("position")
        assert [message.sequence_number for message in sent] == list(range(1, 21))
        assert {message.state for message in sent} == {"delivered"}


@pytest.mark.django_db(transaction=True)
def test_the_same_key_at_once_stores_one_message() -> None:
    partner = partner_side()
    results = at_once([lambda: hand_in(partner, idempotency_key="k", submitted_by="erp")] * 8)
    assert {result.message.pk for result in results} == {Message.objects.get().pk}  # type: ignore[attr-defined]
    assert sorted(result.replayed for result in results) == [False] + [True] * 7  # type: ignore[attr-defined]
    pair = partner.outbound
    assert (pair.queued, pair.next_position, Payload.objects.count()) == (1, 2, 1)


@pytest.mark.django_db(transaction=True)
def test_the_same_message_id_at_once_is_taken_from_one() -> None:
    partner = partner_side()
    calls = [lambda n=n: hand_in(partner, b"<n/>" * n, message_id="m@x") for n in range(1, 7)]
    results = at_once([*calls, lambda: hand_in(partner, message_id="other@x")])
    taken = [result for result in results[:6] if isinstance(result, Submission)]
    refused = [result for result in results[:6] if isinstance(result, DuplicateMessageId)]
    assert (len(taken), len(refused)) == (1, 5)
    assert {error.existing for error in refused} == {taken[0].message.pk}
    assert isinstance(results[6], Submission), "whoever is in the same group is not harmed"
    assert partner.outbound.queued == 2


@pytest.mark.django_db(transaction=True)
def test_the_first_submissions_at_once_make_one_pair_each() -> None:
    """Agreements between the same two parties: both pairs are made at the same moment, with names of their own."""
    agreement = make_agreement().agreement
    partners = [
        partner_side(make_agreement(own_party=agreement.own_party, partner=agreement.partner)) for _ in range(3)
    ]
    results = at_once([lambda p=p: hand_in(p) for p in partners * 2])
    assert all(isinstance(result, Submission) for result in results), results
    made = Pair.objects.filter(direction=Direction.OUT)
    assert sorted(made.values_list("queued", flat=True)) == [2, 2, 2]
    assert len(set(made.values_list("code", flat=True))) == 3


@pytest.mark.django_db(transaction=True)
def test_a_commit_that_fails_accepts_nothing(commit_fails, woken: list[str]) -> None:
    """Invariant 1: what is not committed was not accepted, whoever waited for it."""
    partner = partner_side()
    with commit_fails(Message), pytest.raises(Exception, match="no commit today"):
        hand_in(partner)
    assert not Message.objects.exists()
    assert not MessageIdentity.objects.exists()
    assert (partner.outbound.queued, woken) == (0, [])
    assert hand_in(partner).message.state == MessageState.QUEUED


class TestAFullQueue:
    def test_more_than_may_wait_is_refused_and_leaves_nothing_behind(self, settings) -> None:
        settings.RMHUB_PAIR_QUEUE = 2
        partner = partner_side()
        for number in range(2):
            hand_in(partner, idempotency_key=f"key-{number}")
        before = Event.objects.count()
        with pytest.raises(QueueFull, match="2 messages of this pair wait already"):
            hand_in(partner, message_id="third@us.example", idempotency_key="key-2")
        assert Message.objects.count() == 2 and Event.objects.count() == before
        assert not MessageIdentity.objects.filter(message_id="third@us.example").exists()
        assert hand_in(partner, idempotency_key="key-0").replayed, "what was taken stays taken"
        settings.RMHUB_PAIR_QUEUE = 3
        third = hand_in(partner, message_id="third@us.example", idempotency_key="key-2")
        assert (third.replayed, third.message.position) == (False, 3)

    def test_other_pairs_are_not_concerned(self, settings) -> None:
        settings.RMHUB_PAIR_QUEUE = 1
        full, other = partner_side(), partner_side()
        hand_in(full)
        with pytest.raises(QueueFull):
            hand_in(full)
        hand_in(other)
        assert Message.objects.count() == 2
