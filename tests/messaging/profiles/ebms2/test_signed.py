"""Signatures on the wire: what we send, what comes in, and acknowledgements that prove what was received."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.entrance.refusals import Arrival
from messaging.exceptions import InvalidSubmission
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Incident, Message, Rejection, Signal
from messaging.pairs.services.operating import pair_resume
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import answered, signatures
from messaging.profiles.ebms2 import signed as signing
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Acknowledgment,
    AckRequest,
    Actor,
    DocumentReference,
    Envelope,
    PayloadPart,
)
from partners import registry, selectors, services
from partners.choices import CredentialKind
from partners.models import Credential
from partners.terms import Presented, Principal
from rmhub import clock
from rmhub.clock import frozen
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.factories import ACTION, ORDER, SERVICE, link, submit, work
from tests.messaging.profiles.ebms2 import test_sending
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side, decoded, ebms2_side, responding
from tests.messaging.profiles.ebms2.signed import Signer, signer

pytestmark = pytest.mark.django_db
RECEIPTS = replace(RELIABLE, ack_requests=(AckRequest(signed=True),))
STRONG = (signatures.SignatureMethod.RSA_SHA256, signatures.DigestMethod.SHA256)
WEAK = (signatures.SignatureMethod.RSA_SHA1, signatures.DigestMethod.SHA1)
Algorithms = tuple[signatures.SignatureMethod, signatures.DigestMethod]


@pytest.fixture(autouse=True)
def summer() -> Iterator[None]:
    """Within the time of the tests' certificates."""
    with frozen(datetime(2026, 7, 1, 9, tzinfo=UTC)):
        yield


def pem(one: Signer) -> str:
    return x509.load_der_x509_certificate(one.certificate).public_bytes(Encoding.PEM).decode()


def trust(side: Ebms2Side, one: Signer) -> None:
    """The partner may sign with this certificate from now on."""
    party = selectors.party(side.terms.partner_id)
    services.credential_issue(party=party, kind=CredentialKind.SIGNING, certificate=pem(one))
    registry.reset()


def own(side: Ebms2Side, one: Signer) -> None:
    """We sign with this."""
    party = selectors.party(side.terms.partner_id)
    services.credential_store_outbound(party=party, kind=CredentialKind.SIGNING, secret=one.key.decode() + pem(one))
    registry.reset()


def signing_side(**terms: Any) -> Ebms2Side:
    """A partner with signed messages and acknowledgements; both certificates are known."""
    side = ebms2_side(**{"signatures": "receipts", **terms})
    own(side, signer("us"))
    trust(side, signer("seller"))
    return side


def signed(side: Ebms2Side, envelope: Envelope, who: str = "seller", how: Algorithms = STRONG) -> Arrival:
    """What the partner sends, with its signature."""
    one = signer(who)
    parts = {payload.content_id: payload.content for payload in envelope.payloads}
    document = signatures.sign(ebms2.soap_document(envelope), parts, one.key, one.certificate, *how)
    wire = ebms2.enclose(envelope, document)
    body = wire.join([payload.content[:] for payload in envelope.payloads])
    return Arrival(wire.content_type, body, side.presented, "192.0.2.7")


def receipt(sent: Any, **changes: Any) -> Envelope:
    """The partner's acknowledgement of what we sent, with the digests of that."""
    envelope = decoded(sent)
    made = ebms2.acknowledgement(
        envelope,
        message_id="a1@partner.example",
        timestamp=clock.now(),
        received=clock.now(),
        digests=ebms2.digests_of(document_of(sent)),
    )
    assert made.ebms is not None
    (said,) = made.ebms.acknowledgments
    return replace(made, ebms=replace(made.ebms, acknowledgments=(replace(said, **changes),)))


def document_of(octets: Any) -> bytes:
    body = octets.body if isinstance(octets.body, bytes) else b"".join(octets.body)
    return ebms2.soap_of(octets.content_type, body)


def verified(octets: Any, who: str = "us") -> signatures.Verified:
    parts = {payload.content_id: payload.content for payload in decoded(octets).payloads}
    return signatures.verify(document_of(octets), parts, [signer(who).certificate], at=clock.now())


def test_a_message_is_signed_and_its_signed_acknowledgement_proves_that_it_came() -> None:
    side = signing_side(own_role="Buyer", partner_role="Seller")
    message = submit(side)
    with link() as wire:
        work()
    assert len(verified(wire.last).references) == 2
    asked = decoded(wire.last).ebms
    assert asked is not None
    assert ([one.signed for one in asked.ack_requests], asked.from_role, asked.to_role) == ([True], "Buyer", "Seller")
    assert side.bring(signed(side, receipt(wire.last))).status == 204
    assert test_sending.state(message) == MessageState.DELIVERED
    kept = Signal.objects.get(about=message)
    assert kept.state == SignalState.MATCHED
    assert kept.signed_by == x509.load_der_x509_certificate(signer("seller").certificate).fingerprint(SHA256()).hex()


def test_names_around_the_envelope_take_nothing_from_an_acknowledgement() -> None:
    """Headers stand before the envelope and behind it, among the octets that are read for its signature."""
    side = signing_side()
    payloads = [NewPayload(ORDER, "application/xml", filename="the last </soap:Envelope>.xml")]
    names = {"agreement": side.terms.tpa_id, "service": SERVICE, "action": ACTION, "document_id": "<?xml"}
    message = message_submit(**names, payloads=payloads).message  # type: ignore[arg-type]
    with link() as wire:
        work()
    assert b">&lt;?xml<" in wire.last.octets and b"the last </soap:Envelope>" in wire.last.octets
    side.bring(signed(side, receipt(wire.last)))
    assert test_sending.state(message) == MessageState.DELIVERED


def test_what_acknowledgements_are_compared_with_is_read_for_all_messages_at_once(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = signing_side()
    sent = [submit(side).pk for _ in range(3)]
    with link():
        work()

    def frames() -> set[bytes]:
        messages = Message.of_ids(sent).values()
        answered.read_frames(messages)
        return {bytes(message.wire_frame or b"") for message in messages}

    with django_assert_num_queries(2):
        small = frames()
    monkeypatch.setattr(answered, "_AT_ONCE", 100)
    with django_assert_num_queries(5):
        assert frames() == small, "large ones come one by one, so that not all are in memory"
    assert len(small) == 3


def test_a_message_that_goes_out_again_has_the_same_signature() -> None:
    side = signing_side(retry_interval=60)
    submit(side)
    with link() as wire:
        work()
        with frozen(datetime(2026, 7, 1, 10, tzinfo=UTC)):
            work()
    assert wire.parcels[0].octets == wire.parcels[1].octets


@pytest.mark.parametrize(
    ("changes", "who", "why"),
    [
        ({}, "", "no signature"),
        ({}, "stranger", "no certificate with which this is signed"),
        ({"digests": ()}, "seller", "other digests"),
        ({"actor": Actor.NEXT_MSH}, "seller", "next hop"),
    ],
    ids=["unsigned", "foreign", "nothing", "hop"],
)
def test_what_proves_nothing_is_no_acknowledgement(changes: dict[str, Any], who: str, why: str) -> None:
    side = signing_side()
    message = submit(side)
    with link() as wire:
        work()
    said = receipt(wire.last, **changes)
    side.bring(signed(side, said, who) if who else side.arrival(said))
    assert test_sending.state(message) == MessageState.AWAITING_ACK
    kept = Signal.objects.get(ref_to_message_id=message.message_id)
    assert (kept.state, why in kept.note) == (SignalState.IGNORED, True), kept.note
    assert Incident.objects.get(pair=side.outbound).cause == "receipt_refused"
    # The right one counts afterwards.
    side.bring(signed(side, replace(receipt(wire.last), message_id="a2@partner.example")))
    assert test_sending.state(message) == MessageState.DELIVERED


def test_the_digests_of_another_message_prove_nothing() -> None:
    side = signing_side()
    first, second = submit(side), submit(side, content=b"<Other/>")
    with link() as wire:
        work()
    one, other = sorted(wire.parcels, key=lambda parcel: decoded(parcel).message_id != first.message_id)
    side.bring(signed(side, receipt(one, digests=ebms2.digests_of(document_of(other)))))
    assert test_sending.state(first) == MessageState.AWAITING_ACK
    assert test_sending.state(second) == MessageState.AWAITING_ACK


def test_a_signed_acknowledgement_in_the_response_counts_and_an_unsigned_one_does_not() -> None:
    side = signing_side(sync_reply="mshSignalsOnly")
    message = submit(side)

    def unsigned(parcel: Any) -> Any:
        return responding(receipt(parcel))

    def right(parcel: Any) -> Any:
        arrival = signed(side, receipt(parcel))
        answer = responding(receipt(parcel))
        head = (("Content-Type", arrival.content_type),)
        return replace(answer, response=b"HTTP 200\r\n\r\n" + bytes(arrival.body), headers=head)  # type: ignore[arg-type]

    with link(unsigned):
        work()
    assert test_sending.state(message) != MessageState.DELIVERED
    with frozen(datetime(2026, 7, 1, 10, tzinfo=UTC)), link(right):
        work()
    assert test_sending.state(message) == MessageState.DELIVERED


def test_without_a_certificate_nothing_is_sent_and_a_person_is_told() -> None:
    side = ebms2_side(signatures="messages")
    message = submit(side)
    with link() as wire:
        work()
        assert wire.parcels == []
        assert (side.outbound.flow, side.outbound.cause) == ("suspended", "signing_impossible")
        assert Incident.objects.get(pair=side.outbound).cause == "signing_impossible"
        own(side, signer("us"))
        pair_resume(pair_id=side.outbound.pk, actor=test_sending.ACTOR, reason="Here is our certificate.")
        work()
    assert verified(wire.last).references
    assert decoded(wire.last).message_id == message.message_id


# ---- what comes in


def test_a_signed_message_is_taken_and_its_acknowledgement_is_signed_with_its_digests() -> None:
    side = signing_side()
    arrival = signed(side, side.envelope("m1@partner.example", ebms=RECEIPTS))
    side.bring(arrival)
    side.bring(arrival)  # a copy
    assert Message.objects.get(direction=Direction.IN).state == MessageState.RECEIVED
    with link() as wire:
        work()
        work()
    first, second = wire.parcels
    assert first.octets == second.octets
    assert [one.cid for one in verified(first).references] == [None]
    (said,) = _acknowledgments(first)
    assert signatures.covers(said.digests, ebms2.digests_of(document_of(arrival)))


@pytest.mark.parametrize("algorithm", ["rsa-sha256", "ecdsa-sha256"], ids=["no certificate", "a key of another kind"])
def test_what_cannot_be_acknowledged_with_a_signature_is_not_taken_and_comes_again(algorithm: str) -> None:
    """Not the others of its group, either: they are taken."""
    side = ebms2_side(signatures="receipts", signature_algorithm=algorithm)
    trust(side, signer("seller"))
    if algorithm == "ecdsa-sha256":
        own(side, signer("us"))
    arrival = signed(side, side.envelope(ebms=RECEIPTS))
    assert side.bring(arrival).status == 503
    assert Rejection.objects.get().reason == "signing_impossible"
    assert not Message.objects.filter(direction=Direction.IN).exists()
    own(side, signer("us", "SECP256R1" if algorithm == "ecdsa-sha256" else "rsa2048"))
    assert side.bring(arrival).status == 204
    assert Message.objects.filter(direction=Direction.IN).exists()


def test_whoever_asks_for_an_unsigned_acknowledgement_gets_that() -> None:
    side = signing_side()
    side.bring(signed(side, side.envelope()))
    with link() as wire:
        work()
    assert decoded(wire.last).ebms.signed is False  # type: ignore[union-attr]


def tampered(side: Ebms2Side) -> Arrival:
    arrival = signed(side, side.envelope(content=b"<Order>1</Order>"))
    assert isinstance(arrival.body, bytes)
    return replace(arrival, body=arrival.body.replace(b"<Order>1<", b"<Order>9<"))


def with_a_part_more(side: Ebms2Side) -> Arrival:
    envelope = side.envelope(content=b"<Order/>")
    more = replace(
        envelope,
        manifest=(*envelope.manifest, DocumentReference("", "cid:x@partner.example")),
        payloads=(*envelope.payloads, PayloadPart("x@partner.example", "text/plain", b"x")),
    )
    one = signer("seller")
    parts = {payload.content_id: payload.content for payload in envelope.payloads}
    document = signatures.sign(ebms2.soap_document(more), parts, one.key, one.certificate)
    wire = ebms2.enclose(more, document)
    return Arrival(wire.content_type, wire.join([one.content[:] for one in more.payloads]), side.presented, "")


_REFUSED: Mapping[str, tuple[Any, str]] = {
    "unsigned": (lambda side: side.business(), "no signature"),
    "foreign": (lambda side: signed(side, side.envelope(), "stranger"), "no certificate with which this is signed"),
    "weak": (lambda side: signed(side, side.envelope(), how=WEAK), "does not allow the algorithm"),
    "changed": (tampered, "changed after it was signed"),
    "more": (with_a_part_more, "is not signed"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_not_signed_as_agreed_is_refused_and_its_sender_told(name: str) -> None:
    side = signing_side(sync_reply="mshSignalsOnly")
    make, why = _REFUSED[name]
    side.bring(make(side))
    assert not Message.objects.filter(direction=Direction.IN).exists()
    told = Signal.objects.get(direction=Direction.OUT, kind=SignalKind.ERROR)
    assert told.error_code == "SecurityFailure"
    assert why in told.error_description


def test_sha1_is_taken_where_it_is_agreed() -> None:
    side = signing_side(signature_algorithm="rsa-sha1")
    side.bring(signed(side, side.envelope(), how=WEAK))
    assert Message.objects.filter(direction=Direction.IN).exists()
    submit(side)
    with link() as wire:
        work()
    assert any(b"rsa-sha1" in document_of(parcel) for parcel in wire.parcels)


def test_a_second_look_under_other_terms_forgets_what_the_first_has_found() -> None:
    """An acknowledgement on a business message is looked at under the terms of the message that it is about."""
    side = signing_side(signature_algorithm="rsa-sha1")
    came = signed(side, side.envelope(), how=WEAK)
    principal = Principal(side.terms.partner_id, "Partner", uuid.UUID(int=1))
    envelope = decoded(came)
    item = Item(envelope=envelope, body=came.body, content_type=came.content_type, principal=principal, digest="",
                terms=side.terms)  # fmt: skip
    first = signing.looked_at(item, (), DEFAULT_LIMITS, clock.now())
    assert first.signed_by and not first.unsigned
    strict = replace(first, terms=replace(side.terms, signature_algorithm="rsa-sha256"))
    second = signing.looked_at(strict, (), DEFAULT_LIMITS, clock.now())
    assert (second.signed_by, second.digests) == ("", ()) and "does not allow" in second.unsigned


def test_an_expired_certificate_is_refused() -> None:
    side = signing_side()
    arrival = signed(side, side.envelope())
    with frozen(datetime(2027, 2, 1, tzinfo=UTC)):
        registry.reset()
        side.bring(arrival)
    assert not Message.objects.filter(direction=Direction.IN).exists()


def test_a_copy_of_what_was_taken_is_acknowledged_again_when_its_certificate_was_replaced() -> None:
    side = signing_side()
    arrival = signed(side, side.envelope(ebms=RECEIPTS))
    side.bring(arrival)
    with link() as wire:
        work()
        services.credential_revoke(credential=Credential.objects.get(kind="signing", direction="inbound"))
        registry.reset()
        side.bring(arrival)
        work()
    first, second = wire.parcels
    assert first.octets == second.octets
    assert Message.objects.get(direction=Direction.IN).copies == 1
    assert not Signal.objects.filter(kind=SignalKind.ERROR).exists()


def test_other_octets_under_a_known_id_are_no_copy_of_what_was_taken() -> None:
    """Octets mean what the Content-Type says: another boundary makes another message of them, that nobody signed."""
    side = signing_side(signatures="messages", semantics="BestEffort", retries=0, sync_reply="mshSignalsOnly")
    said = replace(RELIABLE, ack_requests=())
    genuine = signed(side, side.envelope("m1@partner.example", ebms=said))
    forged = side.arrival(side.envelope("m1@partner.example", ebms=replace(said, duplicate_elimination=False)))
    assert isinstance(genuine.body, bytes) and isinstance(forged.body, bytes)
    other = {"content_type": forged.content_type.replace("ebms2-", "other-")}
    body = genuine.body + forged.body.replace(b"ebms2-", b"other-")
    side.bring(replace(genuine, body=body))
    side.bring(replace(forged, body=body, **other))
    assert Message.objects.get(direction=Direction.IN).content_type == genuine.content_type
    assert Signal.objects.get(kind=SignalKind.ERROR).error_code == "SecurityFailure"


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "in the response"])
@pytest.mark.parametrize("copy", ["other content", "unsigned"])
def test_a_copy_makes_no_acknowledgement_of_what_is_not_stored(copy: str, at_once: bool) -> None:
    """The first one asked for none: another document under its id would get the proof that it was received."""
    side = signing_side(sync_reply="mshSignalsOnly" if at_once else "none")
    first = side.envelope("m1@partner.example", ebms=replace(RELIABLE, ack_requests=()), content=b"<A/>")
    side.bring(signed(side, first))
    asks = replace(RECEIPTS, sync_reply=at_once)
    second = side.envelope("m1@partner.example", ebms=asks, content=b"<B/>" if copy == "other content" else b"<A/>")
    answer = side.bring(signed(side, second) if copy == "other content" else side.arrival(second))
    assert answer.status in (200, 204)
    assert not Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT).exists()
    assert Message.objects.get(direction=Direction.IN).message_id == "m1@partner.example"


def test_the_id_of_a_document_is_believed_where_the_signature_is_over_it() -> None:
    """It decides whether a document is thrown away as one that was processed already."""
    side = signing_side()
    plain = signed(side, side.envelope("m1@partner.example", ebms=RECEIPTS))
    assert isinstance(plain.body, bytes)
    added = plain.body.replace(b"Content-Type: text/xml", b"RM-Document-ID: D1\r\nContent-Type: text/xml", 1)
    assert added != plain.body
    side.bring(replace(plain, body=added))
    side.bring(signed(side, side.envelope("m2@partner.example", ebms=RECEIPTS, document_id="D2")))
    changed = signed(side, side.envelope("m3@partner.example", ebms=RECEIPTS, document_id="D3"))
    assert isinstance(changed.body, bytes) and b">D3<" in changed.body
    side.bring(replace(changed, body=changed.body.replace(b">D3<", b">D1<")))
    came = Message.objects.filter(direction=Direction.IN).order_by("message_id")
    assert list(came.values_list("message_id", "document_id")) == [
        ("m1@partner.example", ""),
        ("m2@partner.example", "D2"),
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_more_documents_than_can_be_signed_for_are_not_taken_and_not_sent(more: int) -> None:
    """What its acknowledgement cannot name came again and again otherwise, and ended in a 500."""
    side = signing_side()
    count = signing.MAX_DOCUMENTS + more
    parts = tuple(PayloadPart(f"p{number}@partner.example", "text/plain", b"x") for number in range(count))
    names = tuple(DocumentReference("", f"cid:{part.content_id}") for part in parts)
    both = replace(RELIABLE, ack_requests=(AckRequest(signed=True), AckRequest(Actor.NEXT_MSH, signed=True)))
    side.bring(signed(side, replace(side.envelope("m1@partner.example", ebms=both), payloads=parts, manifest=names)))
    assert Message.objects.filter(direction=Direction.IN).exists() is not bool(more)
    with link() as wire:
        work()
    said = decoded(wire.last).ebms
    assert said is not None
    if more:
        assert [one.code for one in said.errors] == ["NotSupported"]
    else:
        assert [len(one.digests) for one in said.acknowledgments] == [count + 1] * 2
        assert verified(wire.last)
    payloads = [NewPayload(b"x", "text/plain") for _ in range(count)]
    names_of_ours = {"agreement": side.terms.tpa_id, "service": SERVICE, "action": ACTION}
    if more:
        with pytest.raises(InvalidSubmission) as refused:
            message_submit(**names_of_ours, payloads=payloads)  # type: ignore[arg-type]
        assert "payloads" in refused.value.errors
    else:
        message_submit(**names_of_ours, payloads=payloads)  # type: ignore[arg-type]


def test_two_certificates_are_valid_while_one_follows_the_other() -> None:
    side = signing_side()
    trust(side, signer("successor"))
    for who in ("seller", "successor"):
        side.bring(signed(side, side.envelope(), who))
    assert Message.objects.filter(direction=Direction.IN).count() == 2


def test_an_agreement_without_signatures_does_not_look_at_them() -> None:
    side = ebms2_side()
    side.bring(signed(side, side.envelope()))
    assert Message.objects.filter(direction=Direction.IN).exists()


def test_a_role_that_is_not_agreed_is_refused() -> None:
    side = ebms2_side(partner_role="Seller")
    side.bring(side.business(ebms=replace(RELIABLE, from_role="Carrier")))
    assert not Message.objects.filter(direction=Direction.IN).exists()
    assert "role Carrier" in Signal.objects.get(kind=SignalKind.ERROR).error_description
    side.bring(side.business(ebms=replace(RELIABLE, from_role="Seller")))
    assert Message.objects.filter(direction=Direction.IN).exists()


def test_nobody_is_let_in_with_a_certificate_for_signatures() -> None:
    signing_side()
    fingerprint = x509.load_der_x509_certificate(signer("seller").certificate).fingerprint(SHA256()).hex()
    assert registry.current().authenticate(Presented(fingerprint=fingerprint), clock.now()) is None


def _acknowledgments(octets: Any) -> tuple[Acknowledgment, ...]:
    ebms = decoded(octets).ebms
    assert ebms is not None
    return ebms.acknowledgments


# ---- verified again


def proofs(message: Message) -> list[tuple[str, bool, str, str]]:
    found = Api(make_token(make_user(Role.VIEWER))).get(f"/messages/{message.public_id}/signatures").json["signatures"]
    return [
        ("message" if one["signal"] is None else "acknowledgement", one["theirs"], one["signer"], one["detail"])
        for one in found
    ]


def test_what_was_sent_and_acknowledged_is_verified_again_at_any_time() -> None:
    side = signing_side()
    message = submit(side)
    assert proofs(message) == []
    with link() as wire:
        work()
    side.bring(signed(side, receipt(wire.last)))
    good = [("message", False, "us", ""), ("acknowledgement", True, "seller", "")]
    assert proofs(message) == good
    with frozen(datetime(2028, 1, 1, tzinfo=UTC)):
        assert proofs(message) == good, "certificates of their time count"
    Credential.objects.update(revoked_at=clock.now())
    registry.reset()
    assert proofs(message) == good
    # A single octet of what is stored is another one.
    Signal.objects.filter(about=message).update(
        body=bytes(Signal.objects.get(about=message).body).replace(b"a1@", b"a9@")
    )
    assert proofs(message)[1][:3] == ("acknowledgement", True, "")


def test_what_came_is_verified_again_with_our_acknowledgement() -> None:
    side = signing_side()
    side.bring(signed(side, side.envelope(ebms=RECEIPTS)))
    (message,) = Message.objects.filter(direction=Direction.IN)
    assert proofs(message) == [("message", True, "seller", ""), ("acknowledgement", False, "us", "")]


def test_the_page_of_a_message_verifies_its_signatures() -> None:
    side = signing_side()
    message = submit(side)
    with link() as wire:
        work()
    side.bring(signed(side, receipt(wire.last)))
    console = browser(Role.VIEWER)
    page = f"/messages/{message.public_id}/"
    assert "proof of receipt" in console.get(page).content.decode()
    before = console.get(f"{page}?tab=wire").content.decode()
    assert "Verify again" in before and "seller" not in before
    after = console.get(f"{page}?tab=wire&verify=1").content.decode()
    assert "seller" in after and "the partner&#x27;s acknowledgement" in after
