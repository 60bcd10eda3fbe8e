"""Mail by SMTP: one mail transaction a message (spec 1, 2.5.2; RFC 5321, 3207 and 4954). docs/mail.md.

Certificates are always checked. A log-in is sent only over TLS. All of one transmission takes no longer than connect
and read timeout together, which is less than its lease.
"""

from __future__ import annotations

import smtplib
import socket
from dataclasses import replace
from io import BufferedReader

from django.conf import settings

from messaging.protocol.codecs.mail import Heading, write_mail
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import EncodeError
from messaging.transports.base import MAX_ANSWER, Login, Parcel, Receipt, printable
from messaging.transports.bounded import bounded_handshake, bounded_reader, bounded_send, time_limit
from messaging.transports.connecting import NotReached, connect, context_for
from messaging.transports.http import cause_of, sentence_of
from messaging.transports.probe import Failed, Look, line_of, reach, secure
from partners.addresses import mailbox
from partners.transports import MailServer, mail_server
from rmhub import clock

_AUTHENTICATION_NEEDED = 530
_LONGEST_LINE = 8192
_MOST_LINES = 200  # of one answer


class _Refused(Exception):
    """An answer of the mail server, or something that is missing before it is asked."""

    def __init__(self, cause: str, detail: str, *, permanent: bool) -> None:
        super().__init__(detail)
        self.receipt = Receipt(ok=False, cause=cause, detail=detail, permanent=permanent)


def send(parcel: Parcel) -> Receipt:
    """Sends one parcel as a mail and reports what came of it. Never raises for anything that the network can do.

    `ok`: the mail server has taken it (250 after its last octet); whether it reaches the partner is told by the
    partner's acknowledgement, or by a bounce (`profiles.ebxml.bounces`).
    """
    transcript: list[bytes] = []
    try:
        server, login = _server(parcel)
        octets = _mail(parcel)
        with time_limit(parcel.connect_timeout + parcel.read_timeout):
            _transaction(parcel, server, login, octets, transcript)
    except _Refused as refused:
        return _with(refused.receipt, transcript)
    except NotReached as error:
        return _with(Receipt(ok=False, cause=error.cause, detail=str(error)), transcript)
    except smtplib.SMTPServerDisconnected as error:
        detail = printable(str(error)[:500])
        return _with(Receipt(ok=False, cause="connection_reset", detail=detail), transcript)
    except smtplib.SMTPException as error:
        detail = f"The mail server's answer cannot be understood: {printable(str(error)[:400])}"
        return _with(Receipt(ok=False, cause="smtp_4xx", detail=detail), transcript)
    except (OSError, ValueError) as error:
        cause, permanent = cause_of(error)
        return _with(Receipt(ok=False, cause=cause, detail=sentence_of(error), permanent=permanent), transcript)
    return Receipt(ok=True, response=b"".join(transcript)[:MAX_ANSWER])


def look(found: Look) -> None:
    """Looks at a mail server as far as its encryption. Nothing of a mail is sent."""
    scheme, host, sock = reach(found)
    if scheme == "smtps":
        sock = secure(found, sock, host)
    with sock:
        with found.step("smtp") as step:
            greeting = _answer(found, sock, "220")
            step.facts = {"greeting": greeting}
            step.detail = f"The mail server greets: {greeting[4:200]}"
            if scheme == "smtp+starttls":
                sock.sendall(b"EHLO rmhub\r\n")
                while _answer(found, sock, "250")[3:4] == "-":
                    pass
                sock.sendall(b"STARTTLS\r\n")
                _answer(found, sock, "220")
        if scheme == "smtp+starttls":
            secure(found, sock, host).close()
        elif scheme == "smtp":
            found.skip("tls", "The server's address has no TLS: anyone on the network path can read the traffic.")


def _answer(found: Look, sock: socket.socket, wanted: str) -> str:
    """The mail server's next line. Raises Failed when it does not begin with the wanted code."""
    line = line_of(found, sock)
    if not line.startswith(wanted):
        raise Failed("smtp_4xx" if line.startswith("4") else "smtp_5xx", f"The mail server says: {line[:200]}")
    return line


def message_id(parcel: Parcel) -> str:
    """The Message-ID of this transmission, without brackets: another one for each copy.

    Mailboxes drop a second mail with the same Message-ID as a duplicate, and a retry has to arrive.
    """
    return f"{parcel.attempt}@{mailbox(parcel.origin).rpartition('@')[2]}"


def _with(receipt: Receipt, transcript: list[bytes]) -> Receipt:
    return replace(receipt, response=b"".join(transcript)[:MAX_ANSWER])


def _server(parcel: Parcel) -> tuple[MailServer, Login | None]:
    """The endpoint's mail server with the partner's log-in, else the hub's relay with its own."""
    url = parcel.server or settings.RMHUB_SMTP_RELAY
    if not url:
        detail = "Neither the endpoint nor RMHUB_SMTP_RELAY names a mail server."
        raise _Refused("mail_not_set_up", detail, permanent=True)
    try:
        server = mail_server(url)
    except ValueError as error:
        raise _Refused("mail_not_set_up", str(error), permanent=True) from None
    login = parcel.login if parcel.server else None
    if login is None and server.username:
        login = Login(server.username, server.password)
    if login is not None and (detail := server.login_refusal()):
        raise _Refused("smtp_auth", detail, permanent=True)
    return server, login


def _mail(parcel: Parcel) -> bytes:
    sender, recipient = mailbox(parcel.origin), mailbox(parcel.address)
    if not sender or not recipient:
        which = "Our own messaging service URI" if not sender else "The partner's address"
        raise _Refused("mail_not_set_up", f"{which} is not a mailto: URI.", permanent=True)
    heading = Heading(
        sender=sender,
        recipient=mailbox(parcel.target) or recipient,
        message_id=message_id(parcel),
        date=clock.now(),
    )
    try:
        return write_mail(heading, parcel.content_type, parcel.octets, Limits(body=max(len(parcel.body), 1)))
    except EncodeError as error:
        raise _Refused("payload_invalid", str(error)[:500], permanent=True) from None


def _transaction(
    parcel: Parcel, server: MailServer, login: Login | None, octets: bytes, transcript: list[bytes]
) -> None:
    """Connects, sends one mail, says goodbye. Raises _Refused, SMTPException or OSError; returns when it was taken."""
    # The endpoint's certificates are of the endpoint's server; the hub's own relay is another one.
    trusted = parcel.trusted_certificates if parcel.server else ""
    connection = _Connection(server, parcel.connect_timeout, transcript, trusted)
    try:
        _expect(connection.getreply())
        _hello(connection)
        if server.scheme == "smtp+starttls":
            _encrypt(connection)
        if login is not None:
            _log_in(connection, login)
        _hand_over(connection, parcel, octets)
        # It was taken: whatever happens to the connection now changes nothing.
        try:
            connection.quit()
        except (OSError, smtplib.SMTPException):
            return
    finally:
        connection.close()


def _expect(answer: tuple[int, bytes], wanted: int = 2) -> None:
    """Raises _Refused for an answer of another class of codes than the wanted one."""
    code, text = answer
    if code // 100 == wanted:
        return
    cause = "smtp_5xx" if code >= 500 else "smtp_4xx"
    if code == _AUTHENTICATION_NEEDED:
        cause = "smtp_auth"
    raise _Refused(cause, f"The mail server answered {_said(code, text)}", permanent=code >= 500)


def _said(code: int, text: bytes) -> str:
    return f"{code} {printable(text.decode('utf-8', 'replace'))[:400]}"


def _hello(connection: _Connection) -> None:
    code, _ = connection.ehlo()
    if code // 100 != 2:
        _expect(connection.helo())


def _encrypt(connection: _Connection) -> None:
    if not connection.has_extn("starttls"):
        detail = "The mail server offers no STARTTLS, and the mail was not sent without encryption."
        raise _Refused("starttls_unavailable", detail, permanent=True)
    code, text = connection.upgrade()
    if code != 220:
        detail = f"The mail server refused STARTTLS: {_said(code, text)}"
        raise _Refused("starttls_unavailable", detail, permanent=code >= 500)
    _hello(connection)


def _log_in(connection: _Connection, login: Login) -> None:
    if login.is_key:
        raise _Refused("smtp_auth", "The partner's outbound credential is an SSH key.", permanent=True)
    if not connection.has_extn("auth"):
        raise _Refused("smtp_auth", "The mail server offers no log-in (AUTH).", permanent=True)
    try:
        connection.login(login.username, login.secret)
    except smtplib.SMTPAuthenticationError as error:
        text = error.smtp_error if isinstance(error.smtp_error, bytes) else str(error.smtp_error).encode()
        temporary = 400 <= error.smtp_code < 500
        raise _Refused(
            "smtp_4xx" if temporary else "smtp_auth",
            f"The mail server refused the log-in: {_said(error.smtp_code, text)}",
            permanent=not temporary,
        ) from None
    except smtplib.SMTPNotSupportedError:
        raise _Refused("smtp_auth", "The mail server offers no way to log in that we know.", permanent=True) from None
    except UnicodeEncodeError:
        detail = "User name or password have characters outside ASCII, which SMTP servers do not take."
        raise _Refused("smtp_auth", detail, permanent=True) from None


def _hand_over(connection: _Connection, parcel: Parcel, octets: bytes) -> None:
    options: list[str] = []
    if connection.has_extn("size"):
        most = connection.esmtp_features.get("size", "").strip()
        if most.isascii() and most.isdigit() and 0 < int(most[:15]) < len(octets):
            detail = f"The mail has {len(octets)} bytes, and the mail server takes {most} at most."
            raise _Refused("smtp_5xx", detail, permanent=True)
        options.append(f"SIZE={len(octets)}")
    told: list[str] = []
    if connection.has_extn("dsn") and parcel.attempt:
        options += ["RET=HDRS", f"ENVID={parcel.attempt}"]
        told.append("NOTIFY=FAILURE,DELAY")
    _expect(connection.mail(mailbox(parcel.origin), options))
    _expect(connection.rcpt(mailbox(parcel.address), told))
    _expect(connection.docmd("DATA"), 3)
    _expect(connection.content(octets))


class _Connection(smtplib.SMTP):
    """smtplib's client with one time limit for all of it (`bounded`), and with what the server said kept."""

    def __init__(self, server: MailServer, connect_timeout: float, transcript: list[bytes], trusted: str = "") -> None:
        self._transcript = transcript
        self._trusted = trusted
        self._reader: BufferedReader | None = None
        super().__init__(local_hostname=settings.RMHUB_SMTP_NAME)
        self._server = server
        self.sock: socket.socket | None = connect(server.host, server.port, connect_timeout)
        if server.scheme == "smtps":
            self._encrypt()

    def _encrypt(self) -> None:
        assert self.sock is not None
        try:
            self.sock = bounded_handshake(self.sock, context_for(self._trusted), self._server.host)
        except OSError:
            self.close()
            raise
        self._reader = None  # what was said before TLS counts for nothing (RFC 3207, 4.2)
        self.ehlo_resp = self.helo_resp = None
        self.esmtp_features = {}

    def upgrade(self) -> tuple[int, bytes]:
        """STARTTLS; the answer to it. Raises ssl.SSLError when the handshake fails."""
        answer = self.docmd("STARTTLS")
        if answer[0] == 220:
            self._encrypt()
        return answer

    def content(self, octets: bytes) -> tuple[int, bytes]:
        """The mail itself, with the dots at line beginnings doubled, and the end of it (RFC 5321, 4.5.2)."""
        stuffed = octets.replace(b"\r\n.", b"\r\n..")
        self.send(stuffed if stuffed.endswith(b"\r\n") else stuffed + b"\r\n")
        self.send(b".\r\n")
        return self.getreply()

    def send(self, data: str | bytes) -> None:  # type: ignore[override]
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("The connection is closed.")
        bounded_send(self.sock, data.encode("ascii") if isinstance(data, str) else data)

    def getreply(self) -> tuple[int, bytes]:
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("The connection is closed.")
        if self._reader is None:
            self._reader = bounded_reader(self.sock)
        lines: list[bytes] = []
        while True:
            line = self._reader.readline(_LONGEST_LINE)
            if not line:
                raise smtplib.SMTPServerDisconnected("The mail server closed the connection.")
            lines.append(line[4:].strip())
            if not line[:3].isdigit() or not line.endswith(b"\n") or len(lines) > _MOST_LINES:
                raise smtplib.SMTPResponseException(500, b"no SMTP: " + line[:100])
            if line[3:4] != b"-":
                break
        code, text = int(line[:3]), b"\n".join(lines)
        self._transcript.append(b"%d %s\r\n" % (code, text.replace(b"\n", b"\r\n    ")))
        return code, text

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        super().close()
