"""A small IMAP server on loopback: what imaplib needs of RFC 3501, over TLS. Whatever it is asked is written down."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.messaging.entrance.mail.servers import Certificates


@dataclass(slots=True)
class Store:
    """The mailbox behind the server: mails and flags by UID."""

    user: str = "hub"
    password: str = "s3cret pass"
    name: str = "INBOX"
    validity: int = 1
    mails: dict[int, bytes] = field(default_factory=dict)
    flags: dict[int, set[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    read_only: bool = False
    breaks_at: str = ""  # a command (its beginning) at which the connection is cut
    plain: bool = True
    starttls: bool = False
    port: int = 0

    def add(self, octets: bytes) -> int:
        uid = max(self.mails, default=0) + 1
        self.mails[uid] = octets
        self.flags[uid] = set()
        return uid


@contextmanager
def imap_serving(store: Store, certificates: Certificates) -> Iterator[Store]:
    """Runs the server; `store.starttls`: TLS begins at the client's command, else at once."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.certificate, certificates.key)
    listener = socket.create_server(("127.0.0.1", 0))
    store.port = listener.getsockname()[1]
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(60)
            _Session(store, connection, context).run()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(connection,))
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield store
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(120)
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()


class _Session:
    def __init__(self, store: Store, connection: socket.socket, context: ssl.SSLContext) -> None:
        self.store, self.context = store, context
        self.plain_socket = connection
        self.connection: socket.socket = connection
        self.over_tls = not store.starttls
        if self.over_tls:
            self.connection = context.wrap_socket(connection, server_side=True)
        self.reader = self.connection.makefile("rb")
        self.logged_in = False

    def say(self, *lines: bytes | str) -> None:
        data = b"".join((line.encode() if isinstance(line, str) else line) + b"\r\n" for line in lines)
        self.connection.sendall(data)

    def run(self) -> None:
        try:
            self._run()
        finally:
            self.reader.close()
            self.connection.close()

    def _run(self) -> None:
        self.say("* OK ready")
        while line := self.reader.readline().decode():
            tag, _, command = line.strip().partition(" ")
            self.store.asked.append(command)
            if self.store.breaks_at and command.startswith(self.store.breaks_at):
                return
            if not self._do(tag, command):
                return

    def _do(self, tag: str, command: str) -> bool:
        store = self.store
        word = command.split(" ")[0].upper()
        if word == "CAPABILITY":
            offered = "STARTTLS LOGINDISABLED" if not self.over_tls else "AUTH=PLAIN" if store.plain else "IDLE"
            self.say(f"* CAPABILITY IMAP4rev1 {offered}", f"{tag} OK done")
        elif word == "STARTTLS":
            self.say(f"{tag} OK begin")
            self.reader.close()
            self.connection = self.context.wrap_socket(self.plain_socket, server_side=True)
            self.reader = self.connection.makefile("rb")
            self.over_tls = True
        elif word == "AUTHENTICATE":
            self.say("+ ")
            shown = base64.b64decode(self.reader.readline().strip()).decode()
            self._enter(tag, shown == f"\0{store.user}\0{store.password}")
        elif word == "LOGIN":
            self._enter(tag, command == f'LOGIN {store.user} "{store.password}"')
        elif word == "LOGOUT":
            self.say("* BYE", f"{tag} OK done")
            return False
        elif not self.logged_in:
            self.say(f"{tag} NO log in first")
        elif word in ("SELECT", "EXAMINE"):
            self._select(tag, command)
        elif word == "UID":
            self._uid(tag, command.split(" ", 3))
        else:
            self.say(f"{tag} BAD what?")
        return True

    def _enter(self, tag: str, known: bool) -> None:
        self.logged_in = known
        self.say(f"{tag} OK in" if known else f"{tag} NO [AUTHENTICATIONFAILED] no")

    def _select(self, tag: str, command: str) -> None:
        if command.partition(" ")[2] != f'"{self.store.name}"':
            self.say(f"{tag} NO [NONEXISTENT] no such mailbox")
            return
        mode = "READ-ONLY" if self.store.read_only else "READ-WRITE"
        self.say(
            f"* {len(self.store.mails)} EXISTS",
            f"* OK [UIDVALIDITY {self.store.validity}] valid",
            f"{tag} OK [{mode}] done",
        )

    def _uid(self, tag: str, words: list[str]) -> None:
        store = self.store
        if words[1] == "SEARCH":
            first = int(words[3].partition(":")[0])
            last = max(store.mails, default=0)
            found = [uid for uid in sorted(store.mails) if uid >= first] or ([last] if last else [])
            self.say("* SEARCH " + " ".join(map(str, found)), f"{tag} OK done")
            return
        uid, rest = int(words[2]), words[3]
        octets = store.mails.get(uid)
        if words[1] == "FETCH" and octets is not None:
            if "RFC822.SIZE" in rest:
                self.say(f"* 1 FETCH (UID {uid} RFC822.SIZE {len(octets)})")
            else:
                self.say("* 1 FETCH (FLAGS (\\Recent))")  # a server may say more than it is asked
                self.say(b"* 1 FETCH (UID %d BODY[] {%d}" % (uid, len(octets)))
                self.connection.sendall(octets)
                self.say(")")
        elif words[1] == "STORE":
            if store.read_only:
                self.say(f"{tag} NO [READ-ONLY] no")
                return
            store.flags[uid] |= set(re.findall(r"\\(\w+)", rest))
        self.say(f"{tag} OK done")
