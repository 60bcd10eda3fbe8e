"""The partners' mail entrance: an SMTP server that takes mail for our own endpoints and nothing else (RFC 5321).

The protocol is aiosmtpd's, in one event loop; whatever asks the database runs in a few threads. A mail is answered
with 250 after the commit, with 4yz when nothing could be stored, with 5yz when it is refused for good. Nothing is ever
passed on to another server.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from messaging.engine import memory as hub_memory
from messaging.entrance import mail
from messaging.entrance.mail import Network
from messaging.protocol.codecs.mail import read_mail
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import NotAMessage
from messaging.transports.base import printable
from partners.terms import Principal
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)
T = TypeVar("T")

COMMAND_SECONDS = 300.0
DATA_SECONDS = 600.0  # for all of a mail
BOUNCE_BYTES = 2 * 1024 * 1024  # of a report that a stranger brings
LONGEST_LINE = 64 * 1024  # more than RFC 5321 allows: some send unwrapped XML as 8bit
MOST_RECIPIENTS = 100
MOST_LOG_INS = 5  # of one connection
_THREADS = 8
_SIZE_OVERHEAD = 256 * 1024  # headers of the mail and its parts
_AUTH_PARAMETER = re.compile(r"\sAUTH=\S*", re.IGNORECASE)  # RFC 4954, 5: who wrote it; we do not use it
_NULL_SENDER = ("", "<>")

_CANNOT_NOW = "451 4.3.0 Cannot store it now, try again later"
_ANSWERS = {
    204: "250 2.0.0 Taken",
    400: "554 5.6.0 Not a message that this hub reads",
    401: "550 5.7.1 Sender not proved",
    403: "550 5.7.1 Not of an agreement that is in force",
    413: "552 5.3.4 Larger than the agreement allows",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the entrance is set up (docs/mail.md). `certificate`, `key`: paths; without them there is no log-in."""

    name: str
    max_message_bytes: int
    certificate: str = ""
    key: str = ""
    relays: Sequence[Network] = ()
    checker: str = ""
    connections: int = 50

    @property
    def max_mail_bytes(self) -> int:
        """Base64 makes 78 bytes of 57."""
        return self.max_message_bytes * 78 // 57 + _SIZE_OVERHEAD


class Entrance:
    """What all connections share: threads, certificate, counts. `server()` makes the protocol of one connection."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.busy = 0  # mails that are being stored
        self.open: Counter[str] = Counter()  # connections by address
        self.receivers: set[Receiver] = set()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")
        self._context: ssl.SSLContext | None = None
        self._loaded = (0, 0)
        self.tls()  # a certificate that cannot be read is said at the start

    def server(self) -> Receiver:
        """The protocol of one connection."""
        return Receiver(self)

    def tls(self) -> ssl.SSLContext | None:
        """The certificate as it is on disk now: a renewed one counts for the next connection.

        Raises OSError or ssl.SSLError at the first time; later the one before stays in use.
        """
        certificate, key = self.options.certificate, self.options.key
        if not certificate:
            return None
        try:
            changed = (Path(certificate).stat().st_mtime_ns, Path(key or certificate).stat().st_mtime_ns)
            if self._context is None or changed != self._loaded:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                context.load_cert_chain(certificate, key or None)
                self._context, self._loaded = context, changed
        except OSError:
            if self._context is None:
                raise
            log.exception("cannot read the certificate", extra={"action": "mail_certificate_unreadable"})
        return self._context

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs it where the database may be asked."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, _in_thread, work, *arguments)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(wait=True)

    # What aiosmtpd calls; the names are its own.

    async def handle_MAIL(
        self, server: Receiver, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        stranger = not session.authenticated and not server.trusted
        bounce = address in _NULL_SENDER
        if stranger and not bounce:
            return _refused(server.peer, "530 5.7.0 Log in first", address)
        server.data_size_limit = min(BOUNCE_BYTES, self.options.max_mail_bytes) if stranger else None
        server.data_size_limit = server.data_size_limit or self.options.max_mail_bytes
        if server.trusted and not session.authenticated and not bounce and not self.options.checker:
            server.sender = await self.run(mail.partner_at, address)
            if server.sender is None:
                return _refused(server.peer, "550 5.7.1 Not the address of a partner", address)
        envelope.mail_from = address or "<>"
        envelope.mail_options.extend(options)
        return "250 2.1.0 Sender taken"

    async def handle_RCPT(
        self, server: Receiver, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if len(envelope.rcpt_tos) >= MOST_RECIPIENTS:
            return "452 4.5.3 Too many recipients"
        if not await self.run(mail.is_ours, address):
            return _refused(server.peer, "550 5.1.1 No such mailbox here", address)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Recipient taken"

    async def handle_DATA(self, server: Receiver, session: Session, envelope: Envelope) -> str:
        octets = envelope.original_content or b""
        envelope.content = envelope.original_content = None
        principal = session.auth_data if session.authenticated else server.sender
        server.storing = True
        self.busy += 1
        try:
            return await self.run(self._take, octets, principal, server.trusted, server.peer)
        except Exception as error:
            # Nothing was stored, or what was stored will be recognised; the sender keeps its copy and tries again.
            return await self.handle_exception(error)

    async def handle_exception(self, error: Exception) -> str:
        """Nothing that goes wrong here is the sender's fault for good."""
        log.error("cannot take mail now", exc_info=error, extra={"action": "mail_failed"})
        return _CANNOT_NOW

    def _take(self, octets: bytes, principal: Principal | None, trusted: bool, peer: str) -> str:
        limits = Limits(body=self.options.max_message_bytes)
        try:
            read = read_mail(octets, limits)
            if principal is None and trusted and self.options.checker:
                principal = mail.author_of(read, self.options.checker)
            taken = mail.take(read, principal=principal, remote_address=peer, limits=limits)
        except NotAMessage as error:
            return _line(_ANSWERS[400], error.detail)
        return _line(_ANSWERS.get(taken.status, _CANNOT_NOW), taken.sentence)


class Receiver(SMTP):
    """aiosmtpd's protocol with our log-in, a bound on connections, and what it has of the sender."""

    line_length_limit = LONGEST_LINE

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._counted = self._refused = False
        self.peer = ""
        self.trusted = False
        self.sender: Principal | None = None  # by a trusted relay's word
        self.storing = False
        super().__init__(
            entrance,
            hostname=entrance.options.name,
            ident="RM Hub",
            data_size_limit=entrance.options.max_mail_bytes,
            tls_context=entrance.tls(),
            timeout=COMMAND_SECONDS,
            auth_require_tls=True,
            command_call_limit={"AUTH": MOST_LOG_INS, "*": 10_000},
            loop=asyncio.get_running_loop(),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._counted:
            self._counted = True
            self.peer = str((transport.get_extra_info("peername") or ("",))[0])
            self.trusted = mail.is_trusted(self.peer, self._entrance.options.relays)
            held, most = self._entrance.open, self._entrance.options.connections
            held[self.peer] += 1
            # A stranger may not keep everybody else out.
            if held.total() > most or (not self.trusted and held[self.peer] > max(1, most // 4)):
                self._refused = True
                assert isinstance(transport, asyncio.WriteTransport)
                transport.write(b"421 4.3.2 Too many connections, try again later\r\n")
                transport.close()
                return
        self._entrance.receivers.add(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._refused else super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if self._counted:
            self._counted = False
            self._entrance.open[self.peer] -= 1
            if not self._entrance.open[self.peer]:
                del self._entrance.open[self.peer]
        self._entrance.receivers.discard(self)
        if not self._refused:
            super().connection_lost(error)

    def _set_post_data_state(self) -> None:
        self.sender = None
        super()._set_post_data_state()  # type: ignore[no-untyped-call]

    async def smtp_MAIL(self, arg: str | None) -> None:
        await super().smtp_MAIL(_AUTH_PARAMETER.sub("", arg) if arg else arg)

    async def smtp_DATA(self, arg: str) -> None:
        self._reset_timeout(DATA_SECONDS)
        try:
            await super().smtp_DATA(arg)
        finally:
            if self.storing:
                self.storing = False
                self._entrance.busy -= 1

    # Both read user name and password and hand them to `_authenticate`, which is not asynchronous: it only passes them
    # on, and they are checked where that may take its time.

    async def auth_PLAIN(self, _: Any, args: list[str]) -> AuthResult:
        return await self._proved(await super().auth_PLAIN(_, args))

    async def auth_LOGIN(self, _: Any, args: list[str]) -> AuthResult:
        return await self._proved(await super().auth_LOGIN(_, args))

    def _authenticate(self, mechanism: str, auth_data: Any) -> AuthResult:
        return AuthResult(success=False, handled=False, auth_data=auth_data)

    async def _proved(self, read: AuthResult) -> AuthResult:
        shown = read.auth_data
        if not isinstance(shown, LoginPassword):
            return read
        found = await self._entrance.run(mail.log_in, shown.login, shown.password, self.peer)
        if found.principal is None:
            answer = "535 5.7.8 User name or password is wrong"
            if found.later:
                answer = "454 4.7.0 Too many wrong log-ins, try again later"
            return AuthResult(success=False, handled=False, message=_refused(self.peer, answer))
        return AuthResult(success=True, auth_data=found.principal)


def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    try:
        hub_memory.look()
        return work(*arguments)
    finally:
        give_back()


def _refused(peer: str, answer: str, address: str = "") -> str:
    """Logs a refusal and returns its answer. What is refused for its content leaves a `Rejection` instead."""
    log.warning(
        "refused",
        extra={"action": "mail_refused", "remote": peer, "answer": answer, "address": printable(address[:254])},
    )
    return answer


def _line(answer: str, sentence: str) -> str:
    """One line of an SMTP answer: ASCII, and not longer than it may be (RFC 5321, 4.5.3.1.5)."""
    text = f"{answer}: {sentence}" if sentence else answer
    text = "".join(character if character.isprintable() else " " for character in text)
    return text.encode("ascii", "replace").decode()[:400]


async def serve(
    entrance: Entrance,
    host: str,
    port: int,
    stop: asyncio.Event,
    *,
    grace: float = 8.0,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Listens until `stop` is set; what is being stored then is stored and answered before it returns.

    `started` is told the port, which may be given as 0. Raises OSError when the port cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(entrance.server, host or None, port)
    port = int(server.sockets[0].getsockname()[1])
    started(port)
    log.info("mail entrance open", extra={"action": "mail_listening", "host": host, "port": port})
    try:
        await stop.wait()
    finally:
        server.close()
        end = loop.time() + grace
        while entrance.busy and loop.time() < end:
            await asyncio.sleep(0.02)
        for receiver in tuple(entrance.receivers):
            if receiver.transport is not None:
                receiver.transport.close()
        await asyncio.sleep(0)
