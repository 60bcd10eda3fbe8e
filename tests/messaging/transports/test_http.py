"""HTTP against a real server on loopback: what every answer, and every kind of silence, is called."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from messaging.transports import Parcel, Receipt, http, send
from messaging.transports.base import MAX_ANSWER
from messaging.transports.bounded import bounded_pool
from tests.messaging.http_server import WAIT, Handler, answering, read_request, serving


@pytest.fixture(autouse=True)
def no_old_connections() -> Iterator[None]:
    yield
    http._pool.clear()


def parcel(url: str, body: bytes = b"<Order/>", **fields: object) -> Parcel:
    return Parcel(url, 'multipart/related; boundary="b"', body, **{"connect_timeout": 2, "read_timeout": 2, **fields})


def post_to(handler: Handler, **fields: object) -> Receipt:
    with serving(handler) as server:
        return http.send(parcel(server.url, **fields))


def outcome(receipt: Receipt) -> tuple[bool, int | None, str, bool]:
    return receipt.ok, receipt.status, receipt.cause, receipt.permanent


def test_what_goes_out_is_exactly_the_parcel() -> None:
    seen: list[tuple[bytes, bytes]] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    body = bytes(range(256)) * 300
    with serving(handler=handle) as server:
        receipt = send("http", parcel(server.url, body, authorization="Basic c2VjcmV0"))
    assert outcome(receipt) == (True, 204, "", False)
    head, received = seen[0]
    assert received == body
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /msh HTTP/1.1"
    assert 'Content-Type: multipart/related; boundary="b"' in lines
    assert "Authorization: Basic c2VjcmV0" in lines
    assert f"Content-Length: {len(body)}" in lines
    assert not any(line.lower().startswith("transfer-encoding") for line in lines)


def test_a_parcel_does_not_show_its_credential() -> None:
    assert "secret" not in repr(parcel("http://x/", authorization="Bearer secret"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("200 OK", (True, 200, "", False)),
        ("202 Accepted", (True, 202, "", False)),
        ("299 Fine", (True, 299, "", False)),
        ("301 Moved", (False, 301, "http_3xx", False)),
        ("307 Temporary", (False, 307, "http_3xx", False)),
        ("400 Bad Request", (False, 400, "http_4xx", False)),
        ("401 Unauthorized", (False, 401, "http_401_403", True)),
        ("403 Forbidden", (False, 403, "http_401_403", True)),
        ("404 Not Found", (False, 404, "http_404", True)),
        ("405 Not Allowed", (False, 405, "http_4xx", True)),
        ("413 Too Large", (False, 413, "http_413", True)),
        ("429 Too Many", (False, 429, "http_429", False)),
        ("500 Oops", (False, 500, "http_5xx", False)),
        ("503 Later", (False, 503, "http_5xx", False)),
    ],
)
def test_each_status_has_its_name(status: str, expected: tuple[bool, int, str, bool]) -> None:
    receipt = post_to(answering(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()))
    assert outcome(receipt) == expected
    assert receipt.response.startswith(f"HTTP {status}\r\n".encode())
    assert bool(receipt.detail) != receipt.ok


def test_a_redirect_is_not_followed() -> None:
    """The bytes go where the agreement says, and a credential nowhere else."""
    with serving(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as elsewhere:
        redirect = f"HTTP/1.1 308 Permanent\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        receipt = post_to(answering(redirect))
        assert outcome(receipt) == (False, 308, "http_3xx", False)
        assert elsewhere.connections == []
        assert elsewhere.url.encode() in receipt.response, "a person sees where it points"


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7), ("0", 0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("9" * 9, None)]
)
def test_retry_after(value: str, seconds: int | None) -> None:
    answer = f"HTTP/1.1 503 Later\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode()
    assert post_to(answering(answer)).retry_after == seconds


def test_an_answer_with_a_body_is_kept_for_people() -> None:
    receipt = post_to(answering(b"HTTP/1.1 500 Oops\r\nX-A: b\r\nContent-Length: 9\r\n\r\nno space\xff"))
    assert receipt.response.endswith(b"X-A: b\r\nContent-Length: 9\r\n\r\nno space\xff")


def test_a_kept_alive_connection_is_used_again() -> None:
    with serving(answering(*[b"HTTP/1.1 204 No Content\r\n\r\n"] * 3)) as server:
        assert [http.send(parcel(server.url)).ok for _ in range(3)] == [True] * 3
        assert len(server.connections) == 1


def test_a_kept_alive_connection_that_the_partner_closed_costs_nothing() -> None:
    """It closes idle connections without a word; the next message must not fail for that."""
    with serving(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        assert http.send(parcel(server.url)).ok
        server._threads[1].join(WAIT)  # it has answered once and closed
        assert http.send(parcel(server.url)).ok
        assert len(server.connections) == 2


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert outcome(http.send(parcel(f"http://127.0.0.1:{port}/"))) == (False, None, "connect_refused", False)


def test_the_connection_is_reset_before_an_answer() -> None:
    def reset(connection: socket.socket) -> None:
        read_request(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    assert outcome(post_to(reset)) == (False, None, "connection_reset", False)


def test_the_connection_is_closed_before_an_answer() -> None:
    assert outcome(post_to(lambda connection: read_request(connection) and None)) == (
        False, None, "connection_reset", False,
    )  # fmt: skip


def test_an_answer_that_is_not_http() -> None:
    assert outcome(post_to(answering(b"220 smtp.example ESMTP\r\n\r\n"))) == (False, None, "connection_reset", False)


def test_a_name_that_nobody_knows() -> None:
    assert outcome(http.send(parcel("http://no-such-host.invalid/"))) == (False, None, "dns_error", False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://[::1/", "ftp://127.0.0.1/", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    receipt = http.send(parcel(url))
    assert (receipt.ok, receipt.status) == (False, None)
    assert receipt.cause
    assert receipt.detail


def test_a_credential_that_no_header_can_carry() -> None:
    receipt = post_to(answering(b""), authorization="Basic a\r\nX-Injected: b")
    assert outcome(receipt) == (False, None, "internal_error", True)


def test_a_tls_address_where_none_is_spoken() -> None:
    def plain(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with serving(plain) as server:
        receipt = http.send(parcel(server.url.replace("http:", "https:")))
    assert outcome(receipt) == (False, None, "tls_handshake", True)


def silent(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)  # until the other side goes


def dripping(before: bytes, ended: list[str] | None = None) -> Handler:
    """Sends a byte now and then, for two minutes: each single wait is short. `ended` says that nobody went."""

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(before)
        pause = threading.Event()
        for _ in range(4000):
            connection.sendall(b"x")
            pause.wait(0.03)
        if ended is not None:
            ended.append("nobody went")

    return handle


def test_no_answer_in_time() -> None:
    receipt = post_to(silent, read_timeout=0.2)
    assert outcome(receipt) == (False, None, "read_timeout", False)
    assert receipt.detail.startswith("Read timed out"), "and nothing of the pool that it went through"


@pytest.mark.parametrize("before", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX-A: "], ids=["status line", "header"])
def test_a_head_that_never_ends_is_no_answer(before: bytes) -> None:
    """Each byte comes in time, the answer never does: the whole of it has one time limit."""
    receipt = post_to(dripping(before), read_timeout=0.2)
    assert outcome(receipt) == (False, None, "read_timeout", False)


@pytest.mark.parametrize("length", [b"Content-Length: 100000000\r\n", b""], ids=["declared", "until it closes"])
def test_a_body_that_never_ends_is_cut_and_its_status_counts(length: bytes) -> None:
    ended: list[str] = []
    receipt = post_to(dripping(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n", ended), read_timeout=3)
    assert outcome(receipt) == (True, 200, "", False)
    assert ended == []


def test_an_endless_fast_body_is_cut() -> None:
    def flood(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 500 Oops\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with serving(flood) as server:
        receipt = http.send(parcel(server.url))
        assert outcome(receipt) == (False, 500, "http_5xx", False)
        assert len(receipt.response) <= MAX_ANSWER
        server._threads[1].join(WAIT)
        assert not server._threads[1].is_alive(), "the connection was closed, not kept with its flood"


def test_a_body_that_breaks_off_leaves_the_status() -> None:
    receipt = post_to(answering(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nhalf"))
    assert outcome(receipt) == (True, 202, "", False)


def test_a_slow_reader_of_a_large_message_has_the_read_timeout() -> None:
    """Connecting is quick or never; sending many megabytes over a narrow line is not connecting."""

    def slow(connection: socket.socket) -> None:
        threading.Event().wait(0.3)  # longer than the connect timeout
        read_request(connection)
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    receipt = post_to(slow, body=b"x" * 20_000_000, connect_timeout=0.1, read_timeout=60)
    assert outcome(receipt) == (True, 204, "", False)


def test_a_partner_that_reads_nothing_does_not_hold_us_for_ever() -> None:
    stuck = threading.Event()
    with serving(lambda connection: stuck.wait(WAIT) and None) as server:
        receipt = http.send(parcel(server.url, b"x" * 30_000_000, connect_timeout=0.2, read_timeout=0.3))
        stuck.set()
    assert (receipt.ok, receipt.cause) == (False, "read_timeout")


def test_many_threads_share_the_pool() -> None:
    with serving(answering(*[b"HTTP/1.1 204 No Content\r\n\r\n"] * 100)) as server:
        receipts: list[Receipt] = []

        def run() -> None:
            receipts.extend(http.send(parcel(server.url)) for _ in range(10))

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert [receipt.ok for receipt in receipts] == [True] * 80
        assert len(server.connections) <= 16


def certificate(folder: Path, *, days: int = 1) -> tuple[str, str]:
    """(certificate file, key file) of a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(certificate), str(private)


def over_tls(files: tuple[str, str], handler: Handler) -> Handler:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            handler(wrapped)

    return handle


def test_tls_with_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=files[0])
    monkeypatch.setattr(http, "_pool", bounded_pool(ssl_context=trusting))
    taken = b"HTTP/1.1 204 No Content\r\n\r\n"
    with serving(over_tls(files, answering(taken, taken))) as server:
        url = server.url.replace("http:", "https:")
        assert [http.send(parcel(url, b"x" * 3_000_000)).status for _ in range(2)] == [204, 204]
        assert len(server.connections) == 1
    with serving(over_tls(files, dripping(b"HTTP/1.1 2"))) as server:
        receipt = http.send(parcel(server.url.replace("http:", "https:"), read_timeout=0.2))
        assert outcome(receipt) == (False, None, "read_timeout", False)


@pytest.mark.parametrize(("days", "cause"), [(1, "cert_untrusted"), (-1, "cert_expired")])
def test_tls_with_a_certificate_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, cause: str
) -> None:
    files = certificate(tmp_path, days=days)
    if cause == "cert_expired":
        monkeypatch.setattr(http, "_pool", bounded_pool(ssl_context=ssl.create_default_context(cafile=files[0])))
    with serving(over_tls(files, answering(b""))) as server:
        receipt = http.send(parcel(server.url.replace("http:", "https:")))
    assert outcome(receipt) == (False, None, cause, True)


def damaged_answer(connection: socket.socket) -> None:
    """Takes the whole request, then answers with a record that cannot be decrypted."""
    read_request(connection)
    with socket.socket(fileno=connection.detach()) as bare:
        bare.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)


def closed_while_sending(connection: socket.socket) -> None:
    connection.recv(1000)


@pytest.mark.parametrize("handler", [damaged_answer, closed_while_sending])
def test_tls_trouble_after_the_handshake_may_have_had_an_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Handler
) -> None:
    """`tls_handshake` says that nothing was sent; whoever believes it would run an order twice."""
    files = certificate(tmp_path)
    monkeypatch.setattr(http, "_pool", bounded_pool(ssl_context=ssl.create_default_context(cafile=files[0])))
    with serving(over_tls(files, handler)) as server:
        receipt = http.send(parcel(server.url.replace("http:", "https:"), b"x" * 20_000_000))
    assert outcome(receipt) == (False, None, "connection_reset", False)
    assert "TLS" in receipt.detail


def test_further_headers_go_out_with_the_parcel_and_those_of_the_answer_come_back() -> None:
    seen: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        seen.append(read_request(connection)[0])
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nRepeatability-Result: accepted\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n"
        )

    with serving(handler=handle) as server:
        headers = (("Repeatability-Request-ID", "m-1"), ("RM-Service", "urn:a b"))
        receipt = http.send(parcel(server.url, headers=headers))
    lines = seen[0].decode().split("\r\n")
    assert "Repeatability-Request-ID: m-1" in lines and "RM-Service: urn:a b" in lines
    assert ("Repeatability-Result", "accepted") in receipt.headers
    assert [value for name, value in receipt.headers if name == "X-A"] in (["1", "2"], ["1, 2"])


def test_a_parcel_may_want_more_of_the_answer() -> None:
    body = b"y" * 65_536
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + body
    receipt = post_to(answering(answer), answer_bytes=72 * 1024)
    assert receipt.response.endswith(b"\r\n\r\n" + body)
    assert len(post_to(answering(answer)).response) == MAX_ANSWER


def test_an_answer_that_breaks_off_is_known_for_it() -> None:
    assert not post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")).complete
    assert post_to(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull")).complete


def test_nothing_is_sent_when_the_time_for_it_is_over() -> None:
    with serving(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        late = parcel(server.url, not_after=datetime.now(UTC) - timedelta(seconds=1))
        assert outcome(send("http", late)) == (False, None, "window_over", False)
        assert server.connections == []
        in_time = parcel(server.url, not_after=datetime.now(UTC) + timedelta(minutes=1))
        assert send("http", in_time).ok
