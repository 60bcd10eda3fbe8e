"""A mailbox on an IMAP server, over TLS (RFC 9051 and 3501): what came since the look before, one mail at a time."""

from __future__ import annotations

import base64
import imaplib
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from messaging.transports.base import Login, printable
from messaging.transports.bounded import bounded_handshake, bounded_reader, bounded_send, time_limit
from messaging.transports.connecting import NotReached, connect, tls_context
from messaging.transports.http import cause_of, sentence_of

MAIL_SECONDS = 100.0  # for reading one mail, so that a look ends before its lease does
_PORTS = {"imaps": 993, "imap+starttls": 143}
_SIZE = re.compile(rb"RFC822\.SIZE (\d{1,18})")
_NOT_ASCII = re.compile(r"[^ -~]+")


class MailboxTrouble(Exception):
    """What kept us from looking. `cause`: stable code; `str()`: one printable line; `permanent`: a person is needed."""

    def __init__(self, cause: str, detail: str, *, permanent: bool = False) -> None:
        super().__init__(printable(detail)[:500])
        self.cause = cause
        self.permanent = permanent


@dataclass(slots=True)
class Mailbox:
    """An open mailbox. `validity`: UIDVALIDITY; as long as it stays the same a UID means the same mail."""

    validity: int
    _client: _Client
    _seconds: float

    def after(self, uid: int) -> list[int]:
        """UIDs of mails that came after the one with this UID, lowest first."""
        with time_limit(self._seconds):
            found = _answer(self._client.uid("SEARCH", f"UID {uid + 1}:*"))
        numbers = {int(word) for line in found if isinstance(line, bytes) for word in line.split() if word.isdigit()}
        return sorted(number for number in numbers if number > uid)  # `n:*` has the last mail even below n

    def size(self, uid: int) -> int | None:
        """Bytes of a mail; None when it is gone."""
        with time_limit(self._seconds):
            found = _answer(self._client.uid("FETCH", str(uid), "(RFC822.SIZE)"))
        matches = (_SIZE.search(line) for line in found if isinstance(line, bytes))
        return next((int(match[1]) for match in matches if match), None)

    def fetch(self, uid: int) -> bytes | None:
        """The whole mail, unread as it was; None when it is gone."""
        with time_limit(MAIL_SECONDS):
            found = _answer(self._client.uid("FETCH", str(uid), "(BODY.PEEK[])"))
        return next((bytes(item[1]) for item in found if isinstance(item, tuple)), None)

    def mark(self, uid: int, *, refused: bool) -> None:
        """Marks a mail as read, and flags one that was refused. A mailbox that may not be changed is left as it is."""
        flags = r"(\Seen \Flagged)" if refused else r"(\Seen)"
        with time_limit(self._seconds), suppress(MailboxTrouble):
            _answer(self._client.uid("STORE", str(uid), "+FLAGS.SILENT", flags))


@contextmanager
def opened(url: str, login: Login, *, connect_timeout: float, read_timeout: float) -> Iterator[Mailbox]:
    """The mailbox of `imaps://host[:port]/name` or `imap+starttls://`; without a name it is INBOX.

    Raises MailboxTrouble, also in the place of what network and server do while it is open.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        host = parts.hostname or ""
    except (ValueError, KeyError):
        raise MailboxTrouble("mailbox_failed", "The mailbox's URL cannot be read.", permanent=True) from None
    client: _Client | None = None
    try:
        with time_limit(connect_timeout + read_timeout):
            client = _Client(host, port, connect_timeout, at_once=parts.scheme == "imaps")
            if parts.scheme == "imap+starttls":
                client.upgrade()
            client.enter(login)
            validity = client.choose(unquote(parts.path.strip("/")) or "INBOX")
        yield Mailbox(validity, client, read_timeout)
    except NotReached as error:
        raise MailboxTrouble(error.cause, str(error)) from None
    except (OSError, ValueError) as error:
        cause, permanent = cause_of(error)
        raise MailboxTrouble(cause, sentence_of(error), permanent=permanent) from None
    except imaplib.IMAP4.abort as error:
        raise MailboxTrouble("connection_reset", f"The mail server broke off: {error}") from None
    except imaplib.IMAP4.error as error:
        raise MailboxTrouble("mailbox_failed", f"The mail server says: {error}") from None
    finally:
        if client is not None:
            with suppress(OSError, imaplib.IMAP4.error), time_limit(read_timeout):
                client.logout()
            client.shutdown()


class _Client(imaplib.IMAP4):
    """imaplib's client under `time_limit`, with checked certificates."""

    def __init__(self, host: str, port: int, connect_timeout: float, *, at_once: bool) -> None:
        self._at_once = at_once
        super().__init__(host, port, connect_timeout)

    def open(self, host: str = "", port: int = 0, timeout: float | None = None) -> None:
        self.host, self.port = host, port
        self.sock: socket.socket = connect(host, port, timeout or 10)
        if self._at_once:
            self._encrypt()
        self.file = bounded_reader(self.sock)

    def _encrypt(self) -> None:
        try:
            self.sock = bounded_handshake(self.sock, tls_context(), self.host)
        except OSError:
            self.sock.close()
            raise

    def upgrade(self) -> None:
        """STARTTLS. What was said before it counts for nothing."""
        if "STARTTLS" not in self.capabilities:
            detail = "The mail server offers no STARTTLS, and no password is sent without encryption."
            raise MailboxTrouble("starttls_unavailable", detail, permanent=True)
        kind, answer = self._simple_command("STARTTLS")
        if kind != "OK":
            raise MailboxTrouble("starttls_unavailable", f"The mail server says: {_words(answer)}", permanent=True)
        self.file.close()
        self._encrypt()
        self.file = bounded_reader(self.sock)
        self._get_capabilities()

    def send(self, data: Any) -> None:
        bounded_send(self.sock, bytes(data))

    def shutdown(self) -> None:
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.sock.close()

    def enter(self, login: Login) -> None:
        """Logs in. Raises MailboxTrouble."""
        try:
            if "AUTH=PLAIN" in self.capabilities:
                self.authenticate("PLAIN", lambda _: f"\0{login.username}\0{login.secret}".encode())
            else:
                self.login(login.username, login.secret)
        except imaplib.IMAP4.abort:
            raise
        except (imaplib.IMAP4.error, UnicodeEncodeError) as error:
            detail = f"The mail server refused the log-in: {error}"
            raise MailboxTrouble("login_refused", detail, permanent=True) from None

    def choose(self, name: str) -> int:
        """Opens the mailbox of this name; its UIDVALIDITY. Raises MailboxTrouble."""
        quoted = '"' + mailbox_name(name).replace("\\", r"\\").replace('"', r"\"") + '"'
        try:
            kind, answer = self.select(quoted)
        except imaplib.IMAP4.readonly:
            kind, answer = self.select(quoted, readonly=True)
        if kind != "OK":
            raise MailboxTrouble("folder_missing", f"The mail server says: {_words(answer)}", permanent=True)
        _, validity = self.response("UIDVALIDITY")
        if not validity or not isinstance(validity[0], bytes) or not validity[0].isdigit():
            raise MailboxTrouble("mailbox_failed", "The mail server tells no UIDVALIDITY.")
        return int(validity[0])


def mailbox_name(name: str) -> str:
    """The name of a mailbox in modified UTF-7 (RFC 3501, 5.1.3)."""

    def shifted(match: re.Match[str]) -> str:
        encoded = base64.b64encode(match[0].encode("utf-16-be")).decode().rstrip("=").replace("/", ",")
        return f"&{encoded}-"

    return _NOT_ASCII.sub(shifted, name.replace("&", "&-"))


def _answer(answer: tuple[str, list[Any]]) -> list[Any]:
    kind, data = answer
    if kind != "OK":
        raise MailboxTrouble("mailbox_failed", f"The mail server says: {_words(data)}")
    return data


def _words(data: list[Any]) -> str:
    return " ".join(item.decode("utf-8", "replace") for item in data if isinstance(item, bytes))
