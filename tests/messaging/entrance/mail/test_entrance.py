"""Our mail entrance with smtplib as the client: who may hand in what, and what each is answered with."""

from __future__ import annotations

import base64
import binascii
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.db import models

from messaging.entrance import mail as mail_service
from messaging.entrance.mail import is_trusted
from messaging.entrance.refusals import Arrival
from messaging.entrance.smtp_server import Entrance
from messaging.models import Incident, Message, Rejection, Signal
from messaging.models.message import Payload
from messaging.protocol.codecs.mail import entity, read_mail
from messaging.protocol.envelope import MessageType
from partners.terms import Presented
from tests import FIXTURES
from tests.messaging.entrance.mail.partners import (
    OUR_ERRORS,
    OURS,
    THEIRS,
    client,
    mail_of,
    mail_partner,
    options,
    password_of,
)
from tests.messaging.entrance.mail.servers import Certificates, Posted, entrance_running, make_certificates, relaying
from tests.messaging.factories import ORDER, PartnerSide, decoded, partner_side, submit, work
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_connection")]


def arrived(posted: Posted) -> Arrival:
    """What the partner's messaging service reads in a mail of ours."""
    content_type, body = entity(read_mail(posted.octets))
    return Arrival(content_type, body, Presented())


def test_a_message_by_mail_is_stored_and_acknowledged_by_mail() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        arrival = partner.message(1)
        with entrance_running(options()) as running, client(running) as other:
            assert other.transaction(mail_of(arrival)) == (250, "2.0.0 Taken")
        message = Message.objects.get()
        assert message.message_id == decoded(arrival).message_id
        assert bytes(Payload.objects.get().content or b"") == ORDER
        work()
    (mail,) = relay.mails
    assert (mail.sender, mail.recipients) == (OURS, (THEIRS,))
    acknowledgement = decoded(arrived(mail))
    assert acknowledgement.message_type is MessageType.ACKNOWLEDGEMENT
    assert acknowledgement.ref_to_message_id == message.message_id
    assert acknowledgement.message_id.endswith("@us.example")
    assert Signal.objects.get(direction="out").state == "sent"


def test_a_message_of_ours_is_complete_when_its_acknowledgement_comes_by_mail() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        first, second = submit(partner), submit(partner)
        with entrance_running(options()) as running, client(running) as other:
            for number, message in enumerate((first, second), start=1):
                work()
                # The next one waits until this one is acknowledged (invariant 2).
                assert len(relay.mails) == number
                received = decoded(arrived(relay.last()))
                assert (received.message_id, received.hop.sequence_number) == (message.message_id, number)
                assert received.payloads[0].content == ORDER
                message.refresh_from_db()
                assert message.state == "awaiting_ack"
                assert other.transaction(mail_of(partner.acknowledgement(arrived(relay.last()))))[0] == 250
                message.refresh_from_db()
                assert message.state == "delivered"
    assert partner.outbound.flow == "idle"


def test_an_error_message_goes_to_the_error_address_and_one_that_comes_is_taken_there() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        with entrance_running(options()) as running, client(running) as other:
            assert other.transaction(mail_of(partner.message(7)))[0] == 250
            work()
            assert relay.last().recipients == ("errors@partner.example",)
            submit(partner)
            (job,) = work()
            error = partner.error(job.parcel, "InvalidSequenceNumber")
            assert other.transaction(mail_of(error, recipient=OUR_ERRORS), recipients=(OUR_ERRORS,))[0] == 250
    assert partner.outbound.flow == "suspended"


def test_what_comes_by_mail_has_the_octets_of_the_senders_store() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        arrival = partner.message(1, content=bytes(range(256)) * 50)
        with entrance_running(options()) as running, client(running) as other:
            other.transaction(mail_of(arrival))
            # The same message by another road: nothing is different about it.
            assert partner.send(arrival) == 204
    message = Message.objects.get()
    assert message.copies == 1
    assert message.wire_frame is not None
    assert len(bytes(message.wire_frame)) < len(arrival.body) / 2, "the payload is a slice of the body"


# --- who may hand in mail ---


@pytest.mark.parametrize("plain", [True, False])
def test_a_partner_logs_in_over_tls(certificates: Certificates, plain: bool) -> None:
    partner = mail_partner()
    server = options(certificate=str(certificates.certificate), key=str(certificates.key), relays=())
    with (
        entrance_running(server) as running,
        client(running, tls=certificates, login=password_of(partner.presented), plain=plain) as other,
    ):
        # Who has sent it is known: the address in the envelope proves nothing and matters no more.
        assert other.transaction(mail_of(partner.message(1)), sender="bounces+17@elsewhere.example")[0] == 250
    assert Message.objects.count() == 1


def test_a_wrong_password_is_refused_and_slows_down(certificates: Certificates) -> None:
    partner = mail_partner()
    user, _ = password_of(partner.presented)
    server = options(certificate=str(certificates.certificate), key=str(certificates.key), relays=())
    codes = []
    with entrance_running(server) as running:
        for _ in range(11):
            with pytest.raises(smtplib.SMTPAuthenticationError) as refused:
                client(running, tls=certificates, login=(user, "wrong"))
            codes.append(refused.value.smtp_code)
            refused.value.__traceback__ = None
    assert codes == [535] * 10 + [454]


def test_no_log_in_without_tls(certificates: Certificates) -> None:
    server = options(certificate=str(certificates.certificate), key=str(certificates.key), relays=())
    with entrance_running(server) as running, client(running) as other:
        assert other.smtp.has_extn("starttls")
        assert not other.smtp.has_extn("auth")
        assert other.smtp.docmd("AUTH", "PLAIN AHgAeQ==")[0] == 538


def test_a_stranger_hands_in_nothing() -> None:
    partner = mail_partner()
    with entrance_running(options(relays=())) as running, client(running) as other:
        assert other.transaction(mail_of(partner.message(1))) == (530, "5.7.0 Log in first")
    assert not Message.objects.exists()


def test_a_trusted_relay_vouches_for_partners_only() -> None:
    partner = mail_partner()
    with entrance_running(options()) as running, client(running) as other:
        code, text = other.transaction(mail_of(partner.message(1)), sender="someone@else.example")
        assert (code, text) == (550, "5.7.1 Not the address of a partner")
        # Capitals are nothing that relays keep.
        assert other.transaction(mail_of(partner.message(1)), sender="MSH@Partner.Example")[0] == 250


def test_a_partner_cannot_speak_for_another() -> None:
    partner, other_partner = mail_partner(), _second_partner()
    with entrance_running(options()) as running, client(running) as other:
        code, _ = other.transaction(mail_of(partner.message(1)), sender="msh@third.example")
    assert code == 250, "as for an agreement that does not exist: an Error message says so"
    assert Rejection.objects.get().reason == "wrong_partner"
    assert Signal.objects.get().error_code == "ValueNotRecognized" and not Message.objects.exists()
    assert other_partner.inbound.done == 0


def _second_partner() -> PartnerSide:
    own, partner = make_party(own=True), make_party()
    return partner_side(
        make_agreement(
            own_endpoint=make_endpoint(own, "mailto:second@us.example", transport="smtp"),
            partner_endpoint=make_endpoint(partner, "mailto:msh@third.example", transport="smtp"),
        )
    )


def test_with_a_checker_its_word_counts_and_not_the_envelope() -> None:
    partner = mail_partner()
    octets = mail_of(partner.message(1))
    passed = b"Authentication-Results: mx.us.example; dkim=pass header.d=partner.example\r\n"
    forged = b"Authentication-Results: mx.us.example; dkim=fail header.d=partner.example\r\n" + passed
    with entrance_running(options(checker="mx.us.example")) as running, client(running) as other:
        assert other.transaction(octets)[0] == 550
        assert other.transaction(forged + octets)[0] == 550
        assert not Message.objects.exists()
        assert other.transaction(passed + octets, sender="srs0=x=partner.example@forwarder.example")[0] == 250
    assert [row.reason for row in Rejection.objects.all()] == ["sender_unproved"] * 2


@pytest.mark.parametrize("recipient", ["someone@us.example", "orders@elsewhere.example", "root@[127.0.0.1]"])
def test_it_is_no_open_relay(recipient: str) -> None:
    mail_partner()
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(b"", recipients=(recipient,)) == (550, "5.1.1 No such mailbox here")


def test_a_mail_to_us_and_to_others_is_for_us() -> None:
    partner = mail_partner()
    with entrance_running(options()) as running, client(running) as other:
        assert other.smtp.mail(THEIRS)[0] == 250
        assert other.smtp.rcpt("elsewhere@us.example")[0] == 550
        assert other.smtp.rcpt(OURS.upper())[0] == 250
        assert other.smtp.data(mail_of(partner.message(1)))[0] == 250


# --- what is answered ---


def test_a_mail_that_is_no_message_is_refused_for_good() -> None:
    mail_partner()
    with entrance_running(options()) as running, client(running) as other:
        octets = b"From: msh@partner.example\r\nSubject: lunch?\r\n\r\nToday at noon?\r\n"
        code, text = other.transaction(octets)
    assert (code, text.split()[0]) == (554, "5.6.0")
    rejection = Rejection.objects.get()
    assert (rejection.reason, rejection.remote_address) == ("not_mime", "127.0.0.1")


def test_a_message_inside_another_mail_is_not_looked_for() -> None:
    partner = mail_partner()
    inner = mail_of(partner.message(1))
    octets = (
        b'From: msh@partner.example\r\nContent-Type: multipart/mixed; boundary="o"\r\n\r\n'
        b"--o\r\nContent-Type: message/rfc822\r\n\r\n" + inner + b"\r\n--o--\r\n"
    )
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(octets)[0] == 554
    assert not Message.objects.exists()


def test_sizes_are_announced_and_kept() -> None:
    partner = mail_partner()
    with entrance_running(options(max_message_bytes=20_000)) as running, client(running) as other:
        announced = int(other.smtp.esmtp_features["size"])
        assert announced > 20_000 * 78 / 57
        assert other.smtp.mail(THEIRS, [f"SIZE={announced + 1}"])[0] == 552
        assert other.transaction(mail_of(partner.message(1, content=b"x" * 30_000)))[0] == 552
        assert other.transaction(mail_of(partner.message(1, content=b"x" * 15_000)))[0] == 250
        assert other.transaction(b"x" * 76 + b"\r\n" * announced)[0] == 552
    assert Rejection.objects.get().reason == "body_too_large"


@pytest.mark.django_db(transaction=True)
def test_nothing_is_said_before_the_commit(
    commit_fails: Callable[[type[models.Model]], AbstractContextManager[None]],
) -> None:
    partner = mail_partner()
    octets = mail_of(partner.message(1))
    with entrance_running(options()) as running, client(running) as other:
        with commit_fails(Message):
            assert other.transaction(octets)[0] == 451
        assert not Message.objects.exists()
        assert other.transaction(octets)[0] == 250
    assert Message.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_crash_between_commit_and_250_leads_to_a_duplicate_that_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        octets = mail_of(partner.message(1))
        taken = mail_service.ebxml.receive

        def dies(*arguments: object, **named: object) -> int:
            taken(*arguments, **named)  # type: ignore[arg-type]
            raise OSError("power cut")

        with entrance_running(options()) as running, client(running) as other:
            monkeypatch.setattr(mail_service.ebxml, "receive", dies)
            assert other.transaction(octets)[0] == 451
            assert Message.objects.count() == 1
            monkeypatch.setattr(mail_service.ebxml, "receive", taken)
            assert other.transaction(octets)[0] == 250
            work()
            work()
    message = Message.objects.get()
    assert message.copies == 1
    assert len(relay.mails) == 2, "each receipt is acknowledged"


def test_whatever_breaks_in_the_entrance_is_not_the_senders_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partner = mail_partner()

    def breaks(*arguments: object, **named: object) -> int:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(mail_service.ebxml, "receive", breaks)
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(mail_of(partner.message(1)))[0] == 451
        assert other.smtp.noop()[0] == 250
    assert "a mistake of ours" in caplog.text


# --- mail as relays leave it ---


def in_encoding(octets: bytes, content: bytes, name: bytes, written: bytes) -> bytes:
    """The mail with its payload part in another transfer encoding."""
    encoded = base64.encodebytes(content).replace(b"\n", b"\r\n")
    assert encoded in octets
    before, found, after = octets.rpartition(b"Content-Transfer-Encoding: base64")
    assert found
    return before + b"content-transfer-encoding: " + name + after.replace(encoded, written + b"\r\n")


def quoted_printable(octets: bytes, content: bytes) -> bytes:
    written = binascii.b2a_qp(content, quotetabs=True, istext=False).replace(b"\n", b"\r\n")
    return in_encoding(octets, content, b"Quoted-Printable", written)


def eight_bit(octets: bytes, content: bytes) -> bytes:
    return in_encoding(octets, content, b"8bit", content)


def folded(octets: bytes, content: bytes) -> bytes:
    head, blank, body = octets.partition(b"\r\n\r\n")
    lines = head.replace(b"\r\n type=", b"\r\n\ttype=").replace(b"Content-Type: ", b"Content-type:\r\n  ")
    assert lines != head
    traces = (
        b"Return-Path: <msh@partner.example>\r\nReceived: from a.example (a.example [192.0.2.1])\r\n\tby b.example\r\n"
        b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed;\r\n d=partner.example; b=abc\r\n\tdef=\r\n"
        b"X-Spam: no\r\n"
    )
    preamble = b"This is a multi-part message in MIME format.\r\n"
    return traces + lines + blank + preamble + body + b"\r\n-- \r\nThe footer of a list\r\n"


@pytest.mark.parametrize("mangle", [quoted_printable, eight_bit, folded])
def test_what_relays_do_to_a_mail_leaves_the_message_as_it_was(mangle: Callable[[bytes, bytes], bytes]) -> None:
    partner = mail_partner()
    content = "<Order>Grüße = 3 €; ein Tab:\t.\r\n.\r\n</Order>".encode()
    arrival = partner.message(1, content=content)
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(mangle(mail_of(arrival), content))[0] == 250
        # The copy that comes without a relay in between is the same message, and raises no alarm.
        assert other.transaction(mail_of(arrival))[0] == 250
    payload = Payload.objects.get()
    assert bytes(payload.content or b"") == content
    message = Message.objects.get()
    assert message.copies == 1
    assert not Incident.objects.exists()


def test_a_part_that_a_relay_damaged_is_answered_with_an_error() -> None:
    with relaying() as relay:
        partner = mail_partner(relay)
        octets = mail_of(partner.message(1)).replace(b"PE9yZGVyLz4=", b"PE9yZ!VyLz4=")
        with entrance_running(options()) as running, client(running) as other:
            assert other.transaction(octets)[0] == 250
            work()
    assert not Message.objects.exists()
    assert Rejection.objects.get().reason == "MimeProblem"
    assert relay.last().recipients == ("errors@partner.example",)


def test_the_example_of_the_wire_form_is_read_as_it_is() -> None:
    mail_partner()
    octets = (FIXTURES / "ebxml-2000" / "06-normal.smtp").read_bytes()
    with entrance_running(options()) as running, client(running) as other:
        assert other.transaction(octets)[0] == 250
    # It is a message, of an agreement that nobody here has: the sender is told so.
    assert Rejection.objects.get().reason == "unknown_agreement"


# --- connections ---


def test_a_stranger_cannot_take_all_connections() -> None:
    with entrance_running(options(relays=(), connections=8)) as running:
        held = [socket.create_connection(("127.0.0.1", running.port), timeout=120) for _ in range(2)]
        for each in held:
            assert each.recv(100).startswith(b"220 hub.example")
        with socket.create_connection(("127.0.0.1", running.port), timeout=120) as third:
            assert third.recv(100).startswith(b"421 4.3.2")
            assert third.recv(100) == b""
        for each in held:
            each.close()


def test_what_is_being_stored_when_it_stops_is_stored_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    partner = mail_partner()
    begun, go_on = threading.Event(), threading.Event()
    taken = mail_service.ebxml.receive

    def slow(*arguments: object, **named: object) -> int:
        begun.set()
        assert go_on.wait(120)
        return taken(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(mail_service.ebxml, "receive", slow)
    answers: list[tuple[int, str]] = []
    octets = mail_of(partner.message(1))
    with entrance_running(options()) as running:
        other = client(running)
        thread = threading.Thread(target=lambda: answers.append(other.transaction(octets)))
        thread.start()
        assert begun.wait(120)
        threading.Timer(0.1, go_on.set).start()
    thread.join(120)
    other.smtp.close()
    assert [code for code, _ in answers] == [250]


def test_a_renewed_certificate_counts_for_the_next_connection(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    with entrance_running(options(certificate=str(made.certificate), key=str(made.key))) as running:
        with client(running, tls=made):
            pass
        renewed = make_certificates(tmp_path)
        with client(running, tls=renewed) as other:
            assert isinstance(other.smtp.sock, ssl.SSLSocket)


def test_a_certificate_that_cannot_be_read_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        Entrance(options(certificate=str(tmp_path / "gone.pem"), key=""))


def test_mail_parameters_of_other_servers_are_taken() -> None:
    partner = mail_partner()
    with entrance_running(options()) as running, client(running) as other:
        assert other.smtp.docmd("MAIL", f"FROM:<{THEIRS}> BODY=8BITMIME AUTH=<> SIZE=100")[0] == 250
        assert other.smtp.rcpt(OURS)[0] == 250
        assert other.smtp.data(mail_of(partner.message(1)))[0] == 250


def test_a_connection_from_a_relay_with_a_mapped_address_is_known() -> None:
    networks = options().relays
    assert is_trusted("127.0.0.1", networks)
    assert is_trusted("::ffff:127.0.0.1", networks)
    assert not is_trusted("::1", networks)
    assert not is_trusted("", networks)
