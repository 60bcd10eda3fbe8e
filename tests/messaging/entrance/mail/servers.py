"""Mail servers on loopback: the partner's relay, our own entrance, and certificates that are made for the test."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from messaging.entrance.smtp_server import Entrance, Options, serve

Answer = str | Callable[["Posted"], str]


@dataclass(frozen=True, slots=True)
class Certificates:
    """A CA and a certificate that it has issued for localhost."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, *, host: str = "localhost", days: int = 1) -> Certificates:
    """`days` below zero: one that has expired."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test CA")])

    def issue(name: x509.Name, of: ec.EllipticCurvePrivateKey, is_ca: bool, until: datetime.datetime) -> bytes:
        names: list[x509.GeneralName] = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(of.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        if is_ca:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    made.ca.write_bytes(issue(issuer, ca_key, True, now + datetime.timedelta(days=2)))
    made.certificate.write_bytes(issue(subject, key, False, now + datetime.timedelta(days=days)))
    made.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made


@dataclass(frozen=True, slots=True)
class Posted:
    """One mail that a server was handed."""

    sender: str
    recipients: tuple[str, ...]
    octets: bytes
    options: tuple[str, ...] = ()
    over_tls: bool = False
    user: str = ""


@dataclass(slots=True)
class Relay:
    """A mail server of somebody else: keeps every mail, and answers as it is told."""

    mails: list[Posted] = field(default_factory=list)
    on_mail: str = "250 OK"
    on_rcpt: str = "250 OK"
    on_data: Answer = "250 2.0.0 queued as 1"
    users: dict[str, str] = field(default_factory=dict)
    log_in_answer: str = "535 5.7.8 no"
    log_ins: int = 0
    port: int = 0

    def last(self) -> Posted:
        """The latest mail. No property: aiosmtpd reads those before there is one."""
        return self.mails[-1]

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.on_mail.startswith("250"):
            envelope.mail_from = address
            envelope.mail_options.extend(options)
        return self.on_mail

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.on_rcpt.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.on_rcpt

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        posted = Posted(
            envelope.mail_from or "",
            tuple(envelope.rcpt_tos),
            envelope.original_content or b"",
            tuple(envelope.mail_options),
            over_tls=session.ssl is not None,
            user=str(session.auth_data.login.decode()) if session.auth_data else "",
        )
        self.mails.append(posted)
        return self.on_data if isinstance(self.on_data, str) else self.on_data(posted)

    def check(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.log_ins += 1
        known = self.users.get(data.login.decode()) == data.password.decode()
        return AuthResult(success=known, handled=False, auth_data=data, message=None if known else self.log_in_answer)


@contextmanager
def relaying(
    relay: Relay | None = None, *, certificates: Certificates | None = None, implicit: bool = False
) -> Iterator[Relay]:
    """Runs the relay on loopback, with STARTTLS (or TLS from the start) when it has certificates."""
    relay = relay or Relay()
    context = None
    if certificates is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.certificate, certificates.key)

    def protocol() -> SMTP:
        return SMTP(
            relay,
            hostname="relay.example",
            tls_context=None if implicit else context,
            authenticator=relay.check,
            auth_require_tls=not implicit,
            loop=asyncio.get_running_loop(),
        )

    async def listen(started: Callable[[int], None], stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context if implicit else None)
        started(server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()

    with _in_a_thread(listen) as relay.port:
        yield relay


@dataclass(frozen=True, slots=True)
class Running:
    """Our own entrance, as it runs in its process."""

    entrance: Entrance
    port: int


@contextmanager
def entrance_running(options: Options) -> Iterator[Running]:
    """Runs our entrance on loopback."""
    entrance = Entrance(options)

    async def listen(started: Callable[[int], None], stop: asyncio.Event) -> None:
        await serve(entrance, "127.0.0.1", 0, stop, started=started)

    try:
        with _in_a_thread(listen) as port:
            yield Running(entrance, port)
    finally:
        entrance.close()


@contextmanager
def _in_a_thread(
    listen: Callable[[Callable[[int], None], asyncio.Event], Coroutine[None, None, None]],
) -> Iterator[int]:
    """An event loop in a thread, in which something listens; its port."""
    ports: list[int] = []
    begun = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def started(port: int) -> None:
        ports.append(port)
        begun.set()

    async def main() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        await listen(started, stop)

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            begun.set()

    thread = threading.Thread(target=run, name="mail-server")
    thread.start()
    assert begun.wait(120)
    try:
        yield ports[0]
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(120)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusting(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    """The machine trusts the test CA."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    return certificates
