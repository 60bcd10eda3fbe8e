"""The mail transport against a real SMTP server on loopback."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import LazySettings

import tests
from messaging.protocol.codecs import ebxml
from messaging.protocol.codecs.mail import entity, read_mail
from messaging.transports import send, smtp
from messaging.transports.base import Login, Parcel
from rmhub.clock import frozen
from tests.messaging.entrance.mail.servers import Certificates, Relay, make_certificates, relaying
from tests.messaging.http_server import serving

FIXTURES = tests.FIXTURES / "ebxml-2000"
AT = datetime(2026, 3, 1, 9, 5, 7, tzinfo=UTC)


def body_of(name: str = "01-normal.http") -> tuple[str, bytes]:
    """(Content-Type, body) of an example of the wire form."""
    head, _, body = (FIXTURES / name).read_bytes().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return next(line.partition(": ")[2] for line in lines if line.lower().startswith("content-type")), body


def parcel(relay: Relay | None = None, *, scheme: str = "smtp", host: str = "localhost", **more: object) -> Parcel:
    content_type, body = body_of()
    fields: dict[str, object] = {
        "address": "mailto:msh@seller.example",
        "content_type": content_type,
        "body": body,
        "origin": "mailto:msh@buyer.example",
        "target": "mailto:msh@seller.example",
        "server": f"{scheme}://{host}:{relay.port}" if relay else "",
        "attempt": "att_" + "0" * 31 + "1",
        "connect_timeout": 3,
        "read_timeout": 3,
        **more,
    }
    return Parcel(**fields)  # type: ignore[arg-type]


def test_one_mail_transaction_carries_the_stored_octets_in_base64() -> None:
    with relaying() as relay, frozen(AT):
        sent = parcel(relay)
        receipt = send("smtp", sent)
    assert receipt.ok
    assert b"queued as 1" in receipt.response
    assert (relay.last().sender, relay.last().recipients) == ("msh@buyer.example", ("msh@seller.example",))
    mail = read_mail(relay.last().octets)
    assert mail.first("from") == "msh@buyer.example"
    assert mail.first("to") == "msh@seller.example"
    assert mail.first("date") == "Sun, 01 Mar 2026 09:05:07 +0000"
    assert mail.first("message-id") == f"<{sent.attempt}@buyer.example>"
    assert mail.first("mime-version") == "1.0"
    assert max(len(line) for line in relay.last().octets.split(b"\r\n")) <= 200
    assert relay.last().octets.isascii()
    assert relay.last().octets.count(b"Content-Transfer-Encoding: base64") == 2
    # What the receiver makes of it is the stored message, octet by octet.
    assert entity(mail) == (sent.content_type, sent.body)
    assert ebxml.decode(*entity(mail)).message_id == "20001002-103000-0001@msh.buyer.example"


def test_x17_a_retry_is_the_same_mail_but_for_date_and_message_id() -> None:
    with relaying() as relay:
        with frozen(AT):
            send("smtp", parcel(relay))
        send("smtp", parcel(relay, attempt="att_" + "0" * 31 + "2"))
    first, second = (
        [line for line in posted.octets.split(b"\r\n") if not line.startswith((b"Date: ", b"Message-ID: "))]
        for posted in relay.mails
    )
    assert first == second
    assert len(relay.mails[0].octets.split(b"\r\n")) == len(first) + 2
    assert read_mail(relay.mails[0].octets).first("message-id") != read_mail(relay.last().octets).first("message-id")


def test_a_line_that_begins_with_a_dot_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    octets = b"Subject: x\r\n\r\n.\r\n..a\r\nb.\r\n"
    monkeypatch.setattr(smtp, "write_mail", lambda *_: octets)
    with relaying() as relay:
        assert send("smtp", parcel(relay)).ok
    assert relay.last().octets == octets


def test_starttls_and_log_in(trusting: Certificates) -> None:
    relay = Relay(users={"hub": "s3cret"})
    with relaying(relay, certificates=trusting):
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls", login=Login("hub", "s3cret")))
    assert receipt.ok, receipt
    assert relay.last().over_tls
    assert relay.last().user == "hub"
    assert b"s3cret" not in receipt.response
    assert b"czNjcmV0" not in receipt.response


def test_tls_from_the_start(trusting: Certificates) -> None:
    relay = Relay(users={"hub": "s3cret"})
    with relaying(relay, certificates=trusting, implicit=True):
        assert send("smtp", parcel(relay, scheme="smtps", login=Login("hub", "s3cret"))).ok
    assert relay.last().user == "hub"


def test_the_hubs_relay_is_used_without_a_server_and_has_its_own_log_in(
    trusting: Certificates, settings: LazySettings
) -> None:
    relay = Relay(users={"hub@us": "p:w"})
    with relaying(relay, certificates=trusting):
        settings.RMHUB_SMTP_RELAY = f"smtp+starttls://hub%40us:p%3Aw@localhost:{relay.port}"
        # The partner's password is nothing that our relay should see.
        assert send("smtp", parcel(None, login=Login("partner", "theirs"))).ok
    assert relay.last().user == "hub@us"
    assert relay.log_ins == 1


@pytest.mark.parametrize(
    ("how", "cause", "permanent"),
    [
        ({"on_mail": "530 5.7.0 Authentication required"}, "smtp_auth", True),
        ({"on_mail": "451 4.3.0 greylisted"}, "smtp_4xx", False),
        ({"on_rcpt": "450 4.2.2 mailbox full"}, "smtp_4xx", False),
        ({"on_rcpt": "550 5.1.1 no such user"}, "smtp_5xx", True),
        ({"on_data": "451 4.3.0 disk full"}, "smtp_4xx", False),
        ({"on_data": "554 5.7.1 looks like spam"}, "smtp_5xx", True),
    ],
)
def test_what_the_server_answers_is_the_cause(how: dict[str, str], cause: str, permanent: bool) -> None:
    with relaying(Relay(**how)) as relay:  # type: ignore[arg-type]
        receipt = send("smtp", parcel(relay))
    (answer,) = how.values()
    assert (receipt.ok, receipt.cause, receipt.permanent) == (False, cause, permanent)
    assert answer in receipt.detail
    assert answer.partition(" ")[0].encode() in receipt.response


@pytest.mark.parametrize(
    ("answer", "cause", "permanent"), [("535 5.7.8 no", "smtp_auth", True), ("454 4.7.0 later", "smtp_4xx", False)]
)
def test_a_log_in_that_is_refused(trusting: Certificates, answer: str, cause: str, permanent: bool) -> None:
    relay = Relay(users={"hub": "right"}, log_in_answer=answer)
    with relaying(relay, certificates=trusting):
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls", login=Login("hub", "wrong")))
    assert (receipt.cause, receipt.permanent) == (cause, permanent)
    assert not relay.mails


def test_no_starttls_no_mail() -> None:
    with relaying() as relay:
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls"))
    assert (receipt.cause, receipt.permanent, relay.mails) == ("starttls_unavailable", True, [])


def test_a_log_in_never_goes_over_an_open_connection() -> None:
    # The server would take it.
    with relaying(Relay(users={"hub": "s3cret"}), implicit=True) as relay:
        receipt = send("smtp", parcel(relay, login=Login("hub", "s3cret")))
    assert (receipt.cause, relay.mails, relay.log_ins) == ("smtp_auth", [], 0)


def test_a_certificate_that_nobody_vouches_for_ends_it(certificates: Certificates) -> None:
    with relaying(certificates=certificates) as relay:
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls"))
    assert (receipt.cause, receipt.permanent, relay.mails) == ("cert_untrusted", True, [])


def test_a_certificate_for_another_host_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path, host="elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    with relaying(certificates=made) as relay:
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls"))
    assert (receipt.cause, relay.mails) == ("cert_untrusted", [])


def test_an_expired_certificate_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_certificates(tmp_path, days=-1)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    with relaying(certificates=made) as relay:
        receipt = send("smtp", parcel(relay, scheme="smtp+starttls"))
    assert (receipt.cause, relay.mails) == ("cert_expired", [])


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    receipt = send("smtp", parcel(Relay(port=port), host="127.0.0.1"))
    assert receipt.cause == "connect_refused"


def test_a_server_that_says_nothing_costs_its_time_and_no_more() -> None:
    def silent(connection: socket.socket) -> None:
        while connection.recv(1024):
            pass

    with serving(silent) as server:
        receipt = send(
            "smtp", parcel(None, server=f"smtp://127.0.0.1:{server.port}", connect_timeout=0.1, read_timeout=0.2)
        )
    assert receipt.cause == "read_timeout"


def test_a_server_that_talks_without_end_is_cut_off() -> None:
    def endless(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"220-go on\r\n" * 1000)

    with serving(endless) as server:
        receipt = send("smtp", parcel(None, server=f"smtp://127.0.0.1:{server.port}"))
    assert not receipt.ok
    assert len(receipt.response) <= 8192


def test_a_connection_that_breaks_after_the_mail_leaves_it_open_whether_it_was_taken() -> None:
    def breaks(connection: socket.socket) -> None:
        connection.sendall(b"220 hello\r\n")
        data = b""
        while not data.endswith(b"\r\n.\r\n"):
            piece = connection.recv(65536)
            data += piece
            if not data.rstrip().endswith(b"DATA"):
                if b"\r\n\r\n" not in data and piece.endswith(b"\r\n"):
                    connection.sendall(b"250 OK\r\n")
            else:
                connection.sendall(b"354 go\r\n")

    with serving(breaks) as server:
        receipt = send("smtp", parcel(None, server=f"smtp://127.0.0.1:{server.port}"))
    assert (receipt.ok, receipt.cause) == (False, "connection_reset")


def test_a_mail_that_the_server_would_not_take_is_not_sent() -> None:
    with relaying() as relay:
        big = b"--x\r\n\r\n" + b"a" * 40_000_000 + b"\r\n--x--\r\n"
        receipt = send("smtp", parcel(relay, content_type='multipart/related; boundary="x"', body=big))
    assert (receipt.cause, receipt.permanent, relay.mails) == ("smtp_5xx", True, [])
    assert "33554432" in receipt.detail


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"server": ""}, "RMHUB_SMTP_RELAY"),
        ({"origin": "https://buyer.example/msh"}, "Our own"),
        ({"address": "mailto:a@b@c"}, "The partner's address"),
        ({"server": "https://relay.example"}, "smtp+starttls://"),
    ],
)
def test_what_is_not_set_up_is_said(more: dict[str, str], words: str) -> None:
    receipt = send("smtp", parcel(None, **{"server": "smtp://127.0.0.1:1", **more}))
    assert (receipt.cause, receipt.permanent) == ("mail_not_set_up", True)
    assert words in receipt.detail


def test_delivery_reports_are_asked_for_by_the_transmissions_id() -> None:
    said: list[bytes] = []

    def with_dsn(connection: socket.socket) -> None:
        connection.sendall(b"220 hello\r\n")
        reader = connection.makefile("rb")
        content = False
        for line in reader:
            said.append(line)
            if content:
                if line == b".\r\n":
                    content = False
                    connection.sendall(b"250 OK\r\n")
            elif line.upper().startswith(b"EHLO"):
                connection.sendall(b"250-hello\r\n250-SIZE 0\r\n250 DSN\r\n")
            elif line == b"DATA\r\n":
                content = True
                connection.sendall(b"354 go\r\n")
            else:
                connection.sendall(b"250 OK\r\n")
        reader.close()

    with serving(with_dsn) as server:
        sent = parcel(None, server=f"smtp://127.0.0.1:{server.port}")
        assert send("smtp", sent).ok
    (mail,) = (line for line in said if line.upper().startswith(b"MAIL"))
    (recipient,) = (line for line in said if line.upper().startswith(b"RCPT"))
    assert f"ENVID={sent.attempt}".encode() in mail
    assert b"RET=HDRS" in mail
    assert b"NOTIFY=FAILURE,DELAY" in recipient
