"""Encrypted documents (S/MIME): what we send, what comes in, and what is kept of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.ciphers.algorithms import AES128
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs7 import PKCS7EnvelopeBuilder, PKCS7Options, pkcs7_decrypt_der

from messaging.choices import Direction, MessageState, SignalKind
from messaging.engine import preparing
from messaging.entrance.refusals import Arrival
from messaging.messages.selectors import wire_parts
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Incident, Message, Payload, Rejection, Signal
from messaging.pairs.services.operating import pair_resume
from messaging.profile import of
from messaging.profiles.ebms2 import encrypted, signatures
from messaging.protocol.codecs import ebms2, mime
from messaging.protocol.envelope import Envelope, PayloadPart
from messaging.transports import Receipt
from partners import registry, selectors, services
from partners.choices import CredentialKind
from partners.exceptions import InvalidInput
from rmhub import clock
from rmhub.clock import frozen
from tests import FIXTURES
from tests.messaging.factories import ACTION, ORDER, SERVICE, link, submit, work
from tests.messaging.profiles.ebms2 import test_sending
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side, decoded, ebms2_side
from tests.messaging.profiles.ebms2.signed import Signer, signer
from tests.messaging.profiles.ebms2.test_signed import (
    RECEIPTS,
    document_of,
    own,
    pem,
    proofs,
    receipt,
    signed,
    trust,
    verified,
)

pytestmark = pytest.mark.django_db
TYPE = 'application/pkcs7-mime; smime-type=enveloped-data; name="smime.p7m"'


@pytest.fixture(autouse=True)
def summer() -> Iterator[None]:
    """Within the time of the tests' certificates."""
    with frozen(datetime(2026, 7, 1, 9, tzinfo=UTC)):
        yield


def theirs(side: Ebms2Side, one: Signer) -> None:
    """We encrypt for this certificate of the partner from now on."""
    party = selectors.party(side.terms.partner_id)
    services.credential_issue(party=party, kind=CredentialKind.ENCRYPTION, certificate=pem(one))
    registry.reset()


def ours(side: Ebms2Side, one: Signer) -> None:
    """The partner may encrypt for this certificate of ours from now on."""
    party = selectors.party(side.terms.partner_id)
    services.credential_store_outbound(party=party, kind=CredentialKind.ENCRYPTION, secret=one.key.decode() + pem(one))
    registry.reset()


def encrypting_side(**terms: Any) -> Ebms2Side:
    """A partner with encrypted documents; both certificates are known."""
    side = ebms2_side(**{"encryption": "smime-aes256", **terms})
    theirs(side, signer("them"))
    ours(side, signer("us, to decrypt"))
    if "signatures" in terms:
        own(side, signer("us"))
        trust(side, signer("seller"))
    return side


def sealed(
    envelope: Envelope, who: str = "us, to decrypt", head: bytes = b"Content-Type: application/xml\r\n"
) -> Envelope:
    """What the partner sends, with its documents encrypted."""

    def content(part: PayloadPart) -> bytes:
        certificate = x509.load_der_x509_certificate(signer(who).certificate)
        builder = PKCS7EnvelopeBuilder().add_recipient(certificate).set_content_encryption_algorithm(AES128)
        entity = head + b"\r\n" + part.content[:] if head else part.content[:]
        return builder.set_data(entity).encrypt(Encoding.DER, [PKCS7Options.Binary])

    return replace(
        envelope, payloads=tuple(PayloadPart(part.content_id, TYPE, content(part)) for part in envelope.payloads)
    )


def read(octets: Any, who: str = "them") -> list[tuple[str, str, bytes]]:
    """(Content-Type, file name, document) of what we sent, decrypted by the partner."""
    one, found = signer(who), []
    key = load_pem_private_key(one.key, None)
    for part in decoded(octets).payloads:
        assert part.content_type == TYPE
        certificate = x509.load_der_x509_certificate(one.certificate)
        entity = pkcs7_decrypt_der(part.content[:], certificate, key, [])  # type: ignore[arg-type]
        headers, begin = mime.decode_entity_head(entity)
        inner = mime.Part(headers, entity[begin:], None)
        found.append((inner.content_type, inner.filename, inner.octets))
    return found


def bodies(message: Message) -> list[bytes]:
    """The documents that are kept of a message."""
    return [bytes(row.content) for row in Payload.objects.filter(message=message).order_by("number")]


# ---- what goes out


def test_documents_go_out_encrypted_and_are_kept_in_clear() -> None:
    side = encrypting_side(retry_interval=60)
    document = NewPayload(ORDER, "application/xml", filename="größe.xml")
    message = message_submit(agreement=side.terms.tpa_id, service=SERVICE, action=ACTION, payloads=[document]).message
    with link() as wire:
        work()
        with frozen(datetime(2026, 7, 1, 10, tzinfo=UTC)):
            work()
    first, again = wire.parcels
    assert ORDER not in first.octets
    assert read(first) == [("application/xml", "größe.xml", ORDER)]
    assert first.octets == again.octets, "encrypted once: repeats are the same octets"
    assert bodies(message) == [ORDER]
    message.refresh_from_db()
    parts = wire_parts.shape(message, list(Payload.objects.filter(message=message))).parts
    assert [one.size for one in parts[2:]] == [len(part.content) for part in decoded(first).payloads]
    assert preparing.stored_body(message, list(Payload.objects.filter(message=message))) == first.octets
    side.bring(side.acknowledging(first))
    assert test_sending.state(message) == MessageState.DELIVERED


def test_a_document_that_lies_in_the_store_is_encrypted_before_its_pair_is_locked() -> None:
    side = encrypting_side(signatures="messages")
    content = bytes(range(256)) * 8_000
    message = submit(side, content=content)
    assert Payload.objects.get(message=message).stored_as
    with link() as wire:
        work()
    assert [document for *_, document in read(wire.last)] == [content]
    message.refresh_from_db()
    assert preparing.stored_body(message, list(Payload.objects.filter(message=message))) == wire.last.octets
    side.bring(signed(side, sealed(side.envelope("large@partner.example", content=content))))
    (came,) = Payload.objects.filter(message__direction=Direction.IN)
    assert (came.size, bool(came.stored_as), came.in_frame) == (len(content), True, True)
    assert preparing.received(came.message_id)[1]


def test_a_best_effort_message_is_encrypted_as_well() -> None:
    side = encrypting_side(semantics="BestEffort", retries=0)
    submit(side, content=ORDER)
    with link() as wire:
        work()
    assert [document for *_, document in read(wire.last)] == [ORDER]


def test_a_signature_is_over_the_plain_documents_and_proves_what_was_received() -> None:
    side = encrypting_side(signatures="receipts")
    message = submit(side, content=ORDER)
    with link() as wire:
        work()
    parts = {one.content_id: ORDER for one in decoded(wire.last).payloads}
    assert signatures.verify(document_of(wire.last), parts, [signer("us").certificate], at=clock.now()).references
    with pytest.raises(signatures.SignatureRefused):
        verified(wire.last)
    side.bring(signed(side, receipt(wire.last)))
    assert test_sending.state(message) == MessageState.DELIVERED
    assert proofs(message) == [("message", False, "us", ""), ("acknowledgement", True, "seller", "")]


def test_the_newest_certificate_that_is_valid_counts() -> None:
    side = encrypting_side()
    theirs(side, signer("their next one"))
    submit(side, content=ORDER)
    with link() as wire:
        work()
    assert read(wire.last, "their next one")


def test_without_a_certificate_of_the_partner_nothing_is_sent_and_a_person_is_told() -> None:
    side = ebms2_side(encryption="smime-aes128")
    message = submit(side)
    with link() as wire:
        work()
        assert wire.parcels == []
        assert (side.outbound.flow, side.outbound.cause) == ("suspended", "encryption_impossible")
        assert Incident.objects.get(pair=side.outbound).cause == "encryption_impossible"
        theirs(side, signer("them"))
        pair_resume(pair_id=side.outbound.pk, actor=test_sending.ACTOR, reason="Here is their certificate.")
        work()
    assert decoded(wire.last).message_id == message.message_id
    assert read(wire.last)


def test_an_agreement_of_another_profile_does_not_encrypt() -> None:
    side = ebms2_side(encryption="smime-aes256")
    assert side.terms.encrypts
    assert not replace(side.terms, profile="ebxml").encrypts


# ---- what comes in


@pytest.mark.parametrize("how", ["unsigned", "over the documents", "over what is encrypted"])
def test_an_encrypted_document_is_decrypted_and_its_octets_are_kept(how: str) -> None:
    side = encrypting_side(**({} if how == "unsigned" else {"signatures": "receipts"}))
    plain = side.envelope(content=ORDER, ebms=RECEIPTS if how != "unsigned" else side.reliable())
    wire = sealed(plain)
    arrival = {
        "unsigned": lambda: side.arrival(wire),
        "over the documents": lambda: carrying(signed(side, plain), plain, wire, side),
        "over what is encrypted": lambda: signed(side, wire),
    }[how]()
    assert side.bring(arrival).status == 204
    assert side.bring(arrival).status == 204  # a copy
    (message,) = Message.objects.filter(direction=Direction.IN)
    (row,) = Payload.objects.filter(message=message)
    assert (bytes(row.content), row.content_type, row.in_frame) == (ORDER, "application/xml", True)
    assert (message.size, message.state) == (len(ORDER), MessageState.RECEIVED)
    assert preparing.received(message.pk)[1] == arrival.body
    with link() as link_:
        work()
    acks = [one for one in link_.parcels if decoded(one).ebms.acknowledgments]  # type: ignore[union-attr]
    assert acks
    if how != "unsigned":
        assert proofs(message) == [("message", True, "seller", ""), ("acknowledgement", False, "us", "")]


def carrying(arrival: Arrival, plain: Envelope, wire: Envelope, side: Ebms2Side) -> Arrival:
    """A message whose signature is over its plain documents, with the encrypted ones in it."""
    made = ebms2.enclose(wire, document_of(arrival))
    return replace(arrival, content_type=made.content_type, body=made.join([one.content[:] for one in wire.payloads]))


@pytest.mark.parametrize("encryption", ["none", "smime-aes128"])
def test_a_signed_acknowledgement_on_a_response_is_proof_and_is_verified_again(
    encryption: str, django_capture_on_commit_callbacks: Any
) -> None:
    """Its signature is over the documents of the response as well."""
    side = encrypting_side(signatures="receipts", sync_reply="signalsAndResponse", encryption=encryption)
    message = submit(side)

    def responds(parcel: Any) -> Any:
        said = receipt(parcel).ebms
        assert said is not None
        ebms = replace(RELIABLE, acknowledgments=said.acknowledgments)
        plain = side.envelope("r1@partner.example", ebms=ebms, ref_to_message_id=message.message_id)
        arrival = signed(side, plain)
        if encryption != "none":
            arrival = carrying(arrival, plain, sealed(plain), side)
        head = (("Content-Type", arrival.content_type),)
        return Receipt(ok=True, status=200, response=b"HTTP 200\r\n\r\n" + arrival.body[:], headers=head)

    with link(responds), django_capture_on_commit_callbacks(execute=True):
        work()
    message.refresh_from_db()
    carrier = Message.objects.get(direction=Direction.IN)
    assert (message.state, carrier.state) == (MessageState.DELIVERED, MessageState.RECEIVED)
    assert [(what, theirs, refused) for what, theirs, _, refused in proofs(message)] == [
        ("message", False, ""),
        ("acknowledgement", True, ""),
    ]
    Payload.objects.filter(message=carrier).delete()
    assert proofs(message)[1][3]


@pytest.mark.parametrize(
    ("head", "content", "kept"),
    [
        (b"", b"<Order/>", ("application/xml", b"<Order/>")),
        (b"", b"\x00\x01", ("application/octet-stream", b"\x00\x01")),
        (b"content-type: text/plain\n", b"abc", ("text/plain", b"abc")),
        (
            b"MIME-Version: 1.0\r\nContent-Type: text/csv\r\nContent-Transfer-Encoding: base64\r\n",
            b"YTtiCg==\r\n",
            ("text/csv", b"a;b\n"),
        ),
    ],
    ids=["xml alone", "octets alone", "bare line feeds", "base64"],
)
def test_what_others_put_into_an_entity_is_read(head: bytes, content: bytes, kept: tuple[str, bytes]) -> None:
    side = encrypting_side()
    if head.endswith(b"\n") and not head.endswith(b"\r\n"):
        content, head = head + b"\n" + content, b""
    side.bring(side.arrival(sealed(side.envelope(content=content), head=head)))
    (row,) = Payload.objects.filter(message__direction=Direction.IN)
    assert (row.content_type, bytes(row.content)) == kept


def test_what_openssl_encrypted_is_read() -> None:
    folder = FIXTURES / "smime"
    side = ebms2_side(encryption="smime-aes128")
    party = selectors.party(side.terms.partner_id)
    secret = (folder / "key.pem").read_text() + (folder / "certificate.pem").read_text()
    services.credential_store_outbound(party=party, kind=CredentialKind.ENCRYPTION, secret=secret)
    registry.reset()
    made = side.envelope()
    content = (folder / "order.p7m").read_bytes()
    side.bring(side.arrival(replace(made, payloads=(PayloadPart(made.payloads[0].content_id, TYPE, content),))))
    (row,) = Payload.objects.filter(message__direction=Direction.IN)
    assert (row.content_type, row.filename) == ("application/xml", "order.xml")
    assert bytes(row.content) == (folder / "order.xml").read_bytes()


def test_two_certificates_of_ours_are_valid_while_one_follows_the_other() -> None:
    side = encrypting_side()
    ours(side, signer("our next one"))
    for who in ("us, to decrypt", "our next one"):
        side.bring(side.arrival(sealed(side.envelope(), who)))
    assert Message.objects.filter(direction=Direction.IN).count() == 2


def _damaged(side: Ebms2Side) -> Envelope:
    made = sealed(side.envelope())
    part = made.payloads[0]
    assert isinstance(part.content, bytes)
    return replace(made, payloads=(replace(part, content=part.content[:-40] + bytes(40)),))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda side: side.envelope(), "is not encrypted, as agreement"),
        (lambda side: sealed(side.envelope(), "somebody else"), encrypted.UNREADABLE),
        (_damaged, encrypted.UNREADABLE),
        (
            lambda side: replace(made := side.envelope(), payloads=(replace(made.payloads[0], content_type=TYPE),)),
            encrypted.UNREADABLE,
        ),
        (
            lambda side: sealed(side.envelope(), head=b"Content-Transfer-Encoding: base64\r\n"),
            encrypted.UNREADABLE,
        ),
    ],
    ids=["plain", "for another", "damaged", "no CMS", "no base64"],
)
@pytest.mark.parametrize("signatures", ["none", "messages"])
def test_what_cannot_be_decrypted_is_refused_and_its_sender_told(make: Any, why: str, signatures: str) -> None:
    """In the same words, however far it was read: they are of no use to who tries."""
    side = encrypting_side(sync_reply="mshSignalsOnly", **({} if signatures == "none" else {"signatures": signatures}))
    made = make(side)
    side.bring(side.arrival(made) if signatures == "none" else signed(side, made))
    assert not Message.objects.filter(direction=Direction.IN).exists()
    told = Signal.objects.get(direction=Direction.OUT, kind=SignalKind.ERROR)
    assert told.error_code == "SecurityFailure"
    assert why in told.error_description


def test_what_nothing_of_ours_can_decrypt_is_not_taken_and_comes_again() -> None:
    side = ebms2_side(encryption="smime-aes256")
    arrival = side.arrival(sealed(side.envelope()))
    assert side.bring(arrival).status == 503
    assert Rejection.objects.get().reason == "decryption_impossible"
    assert not Message.objects.filter(direction=Direction.IN).exists()
    assert isinstance(arrival.body, bytes)
    told = of(side.terms).bench.understand(arrival.content_type, {}, arrival.body, lambda: [side.terms])
    assert "no certificate of ours" in told.problems[0]
    ours(side, signer("us, to decrypt"))
    assert side.bring(arrival).status == 204
    assert Message.objects.filter(direction=Direction.IN).exists()


def test_another_document_than_was_signed_is_refused_in_those_words() -> None:
    side = encrypting_side(signatures="messages", sync_reply="mshSignalsOnly")
    plain = side.envelope(content=ORDER)
    other = sealed(replace(plain, payloads=(replace(plain.payloads[0], content=b"<Other/>"),)))
    side.bring(carrying(signed(side, plain), plain, other, side))
    assert not Message.objects.filter(direction=Direction.IN).exists()
    assert encrypted.UNREADABLE in Signal.objects.get(kind=SignalKind.ERROR).error_description


def test_without_encryption_in_the_agreement_it_is_a_document_like_any_other() -> None:
    side = ebms2_side()
    made = sealed(side.envelope())
    side.bring(side.arrival(made))
    (row,) = Payload.objects.filter(message__direction=Direction.IN)
    assert (bytes(row.content), row.content_type) == (made.payloads[0].content, TYPE)


def test_a_certificate_for_encryption_has_an_rsa_key() -> None:
    side = ebms2_side()
    with pytest.raises(InvalidInput, match="RSA"):
        ours(side, signer("us", "SECP256R1"))
    with pytest.raises(InvalidInput, match="RSA"):
        theirs(side, signer("them", "SECP256R1"))


# ---- the test bench


def test_the_bench_tries_an_agreement_that_encrypts_and_reads_what_its_partner_would() -> None:
    side = encrypting_side()
    found = of(side.terms).bench.round_trip(side.terms, clock.now())
    assert (found.verdict, "one encrypted document" in found.detail) == ("ok", True), found.detail
    arrival = side.arrival(sealed(side.envelope(content=ORDER)))
    assert isinstance(arrival.body, bytes)
    told = of(side.terms).bench.understand(arrival.content_type, {}, arrival.body, lambda: [side.terms])
    assert (told.problems, told.payloads[0]["bytes"]) == ([], len(ORDER))
    damaged = side.arrival(_damaged(side))
    assert isinstance(damaged.body, bytes)
    told = of(side.terms).bench.understand(damaged.content_type, {}, damaged.body, lambda: [side.terms])
    assert told.problems == [encrypted.UNREADABLE]
