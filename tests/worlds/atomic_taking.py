"""A participant in atomic transactions as an application would write it: its log, its effects and its outbox.

Everything that one message or one start changes is one transaction of a SQLite file which is forced to the disk before
anything is sent: so a participant that was killed goes on where its file says, and says Prepared again (protocols 5.6).
What each state does is in `messaging.protocol.atomic.participant`; here is only what an application has to add.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from messaging.protocol.atomic import participant
from messaging.protocol.atomic.participant import Act, ActKind, Event, Kind, Taking
from messaging.protocol.atomic.words import FAULT, Note, Protocol, Request, Seat
from messaging.protocol.ws import rules
from messaging.protocol.ws.messages import (
    Body,
    CoordinationContext,
    EndpointReference,
    Fault,
    Notification,
    Octets,
    Register,
    Registered,
    WsMessage,
    parameter,
    read_parameter,
)
from messaging.protocol.ws.names import Soap, Style, Version
from messaging.protocol.ws.writing import compose, encode

FIRST, MOST = 0.5, 5.0  # seconds between repeats
KEY = "Taking"
_TABLES = """
CREATE TABLE IF NOT EXISTS taking (
    key TEXT PRIMARY KEY, identifier TEXT NOT NULL, document_id TEXT NOT NULL, redelivery INTEGER NOT NULL,
    version TEXT NOT NULL, seat TEXT NOT NULL, register_id TEXT NOT NULL, address TEXT, parameters TEXT
);
CREATE TABLE IF NOT EXISTS ended (key TEXT PRIMARY KEY, identifier TEXT NOT NULL, outcome TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS effect (
    number INTEGER PRIMARY KEY AUTOINCREMENT, document_id TEXT NOT NULL, identifier TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, kind TEXT NOT NULL, address TEXT NOT NULL,
    content_type TEXT NOT NULL, soap_action TEXT NOT NULL, body BLOB NOT NULL, awaits INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Votes:
    """How the participants of a demo vote, by chance, the same at every run with one `seed`.

    `no` and `read_only`: shares of hand-overs in which one of the `count` participants votes so; we are the one with
    this `place`.
    """

    seed: int = 1
    no: float = 0.0
    read_only: float = 0.0
    place: int = 0
    count: int = 1

    def of(self, document_id: str, redelivery: int) -> Kind:
        """What this participant's work comes to."""
        digest = hashlib.sha256(f"{self.seed} {document_id} {redelivery}".encode()).digest()
        first, second = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (0, 4))
        if first < self.no and digest[8] % self.count == self.place:
            return Kind.WORK_FAILED
        if second < self.read_only and digest[9] % self.count == self.place:
            return Kind.WORK_READ_ONLY
        return Kind.WORK_PREPARED


@dataclass(frozen=True, slots=True)
class Letter:
    """One message of the outbox that is due."""

    number: int
    address: str
    octets: Octets
    awaits: bool
    attempts: int


@dataclass(slots=True)
class Application:
    """The participant. `url`: the root of its own addresses. Safe to be used by several threads."""

    path: Path
    url: str
    votes: Votes = field(default_factory=Votes)
    soap: Soap = Soap.V11
    profile: Style = Style.SEED
    changed: threading.Condition = field(default_factory=threading.Condition)

    def open(self) -> None:
        """Makes the tables, and goes on with what the file says after a stop of any kind."""
        with self._write() as file:
            file.executescript(_TABLES)
        with self._write() as file:
            for row in file.execute("SELECT key FROM taking").fetchall():
                self._step(file, row[0], Event(Kind.RESTARTED))

    # --- documents ---

    def take(self, context: CoordinationContext, version: Version, document_id: str, redelivery: int) -> str:
        """The document came with this context: asks its coordinator to take us in. Returns our key for it."""
        key, request = uuid.uuid4().hex, f"urn:uuid:{uuid.uuid4()}"
        with self._write() as file:
            file.execute(
                "INSERT INTO taking VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
                (key, context.identifier, document_id, redelivery, version.value, Seat.ACTIVE.value, request),
            )
            body = Register(Protocol.DURABLE, EndpointReference(f"{self.url}/participant", (parameter(KEY, key),)))
            me = EndpointReference(f"{self.url}/requester")
            self._post(file, key, Request.REGISTER, version, context.registration, me, request, body, awaits=True)
        return key

    def registered(self, key: str, seconds: float) -> bool:
        """Waits until the coordinator has answered; whether it has taken us in."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                row = self._read("SELECT address FROM taking WHERE key = ?", key)
                if row is None or row[0] is not None:
                    return row is not None
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(left)

    # --- messages ---

    def receive(self, message: WsMessage) -> None:
        """One message of the coordinator: an answer to Register, a notification, or a fault."""
        body = message.body
        with self._write() as file:
            key = self._key_of(file, message)
            if isinstance(body, Registered):
                self._is_registered(file, key, body)
            elif isinstance(body, Fault):
                self._fault(file, key, message, body)
            elif isinstance(body, Notification):
                self._notification(file, key, message, body.note)

    def _key_of(self, file: sqlite3.Connection, message: WsMessage) -> str:
        key = read_parameter(message.echoed, KEY)
        if not key:
            asked = (message.addressing.relates_to,)
            row = file.execute("SELECT key FROM taking WHERE register_id = ?", asked).fetchone()
            key = row[0] if row is not None else ""
        return key

    def _is_registered(self, file: sqlite3.Connection, key: str, body: Registered) -> None:
        there = body.coordinator
        file.execute(
            "UPDATE taking SET address = ?, parameters = ? WHERE key = ? AND address IS NULL",
            (there.address, json.dumps(there.parameters), key),
        )
        file.execute("DELETE FROM outbox WHERE key = ? AND kind = ?", (key, Request.REGISTER.value))

    def _fault(self, file: sqlite3.Connection, key: str, message: WsMessage, body: Fault) -> None:
        row = file.execute("SELECT address, register_id FROM taking WHERE key = ?", (key,)).fetchone()
        if row is None:
            return
        if message.addressing.relates_to == row[1]:  # it does not want us: nothing was begun
            self._forget(file, key, "aborted")
        else:
            self._step(file, key, Event(Kind.FAULT_RECEIVED, fault=body.code))

    def _notification(self, file: sqlite3.Connection, key: str, message: WsMessage, note: Note) -> None:
        if file.execute("SELECT 1 FROM taking WHERE key = ?", (key,)).fetchone() is not None:
            self._step(file, key, Event(Kind.RECEIVED, note=note), message)
            return
        target = next(iter(rules.reply_targets(message, None)), None)
        if target is None:
            return
        for act in participant.unknown(note):
            if act.kind is ActKind.SEND and act.note is not None:
                self._tell(file, key, act.note, message.version, target, awaits=act.awaits)

    # --- the tables of the protocol, and what this application does for their acts ---

    def _step(self, file: sqlite3.Connection, key: str, event: Event, message: WsMessage | None = None) -> None:
        row = file.execute(
            "SELECT seat, version, address, parameters, document_id, redelivery FROM taking WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return
        seat, version, address, parameters, document_id, redelivery = row
        there = EndpointReference(address, tuple(json.loads(parameters))) if address else None
        if there is None and message is not None:
            there = next(iter(rules.reply_targets(message, None)), None)
        done = participant.step(Taking(Seat(seat), version=version), event)
        file.execute("UPDATE taking SET seat = ? WHERE key = ?", (done.taking.seat.value, key))
        for act in done.acts:
            if act.kind is ActKind.PREPARE_WORK:
                self._step(file, key, Event(self.votes.of(document_id, redelivery)), message)
            elif act.kind is ActKind.COMMIT_WORK:
                self._commit(file, key)
                self._step(file, key, Event(Kind.WORK_COMMITTED), message)
            elif act.kind is ActKind.FORGET:
                self._forget(file, key, _outcome(Seat(seat), event))
            elif act.kind is ActKind.STOP:
                file.execute("DELETE FROM outbox WHERE key = ? AND awaits", (key,))
            else:
                self._answer(file, key, act, Version(version), there, message)

    def _answer(
        self,
        file: sqlite3.Connection,
        key: str,
        act: Act,
        version: Version,
        there: EndpointReference | None,
        message: WsMessage | None,
    ) -> None:
        if there is None:
            return
        if act.kind is ActKind.SEND and act.note is not None:
            self._tell(file, key, act.note, version, there, awaits=act.awaits)
        elif act.kind is ActKind.FAULT and message is not None:
            asked, body = message.addressing.message_id, Fault(act.fault, act.reason)
            self._post(file, key, FAULT, version, there, None, f"urn:uuid:{uuid.uuid4()}", body, relates_to=asked)

    def _commit(self, file: sqlite3.Connection, key: str) -> None:
        """The effect that was promised. With the seat COMMITTING in the same transaction it happens once."""
        file.execute(
            "INSERT INTO effect (document_id, identifier) SELECT document_id, identifier FROM taking WHERE key = ?"
            " AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.identifier = taking.identifier)",
            (key,),
        )

    def _forget(self, file: sqlite3.Connection, key: str, outcome: str) -> None:
        file.execute("DELETE FROM outbox WHERE key = ? AND awaits", (key,))
        file.execute("INSERT OR IGNORE INTO ended SELECT key, identifier, ? FROM taking WHERE key = ?", (outcome, key))
        file.execute("DELETE FROM taking WHERE key = ?", (key,))

    # --- the outbox ---

    def _tell(
        self,
        file: sqlite3.Connection,
        key: str,
        note: Note,
        version: Version,
        there: EndpointReference,
        *,
        awaits: bool = False,
    ) -> None:
        if awaits:  # said again at once, in the same octets, when it was said before
            again = "UPDATE outbox SET due = ? WHERE key = ? AND kind = ?"
            if file.execute(again, (time.time(), key, note.value)).rowcount:
                return
        me = EndpointReference(f"{self.url}/participant", (parameter(KEY, key),) if key else ())
        self._post(file, key, note, version, there, me, f"urn:uuid:{uuid.uuid4()}", awaits=awaits)

    def _post(
        self,
        file: sqlite3.Connection,
        key: str,
        kind: str,
        version: Version,
        there: EndpointReference,
        me: EndpointReference | None,
        message_id: str,
        body: Body | None = None,
        *,
        relates_to: str = "",
        awaits: bool = False,
    ) -> None:
        message = compose(
            kind,
            version=version,
            soap=self.soap,
            profile=self.profile,
            to=there,
            me=me,
            message_id=message_id,
            body=body,
            relates_to=relates_to,
        )
        octets = encode(message, self.profile)
        file.execute(
            "INSERT INTO outbox (key, kind, address, content_type, soap_action, body, awaits, due)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (key, str(kind), there.address, octets.content_type, octets.soap_action, octets.body, awaits, time.time()),
        )

    def due(self) -> list[Letter]:
        """What has to go out now."""
        with self._open() as file:
            rows = file.execute(
                "SELECT number, address, content_type, body, soap_action, awaits, attempts FROM outbox WHERE due <= ?"
                " ORDER BY number LIMIT 50",
                (time.time(),),
            ).fetchall()
        return [Letter(row[0], row[1], Octets(row[2], row[3], row[4]), bool(row[5]), row[6]) for row in rows]

    def sent(self, letter: Letter, taken: bool) -> None:
        """What is taken and awaits nothing is done with; all else goes out again, after longer and longer pauses."""
        with self._write() as file:
            if taken and not letter.awaits:
                file.execute("DELETE FROM outbox WHERE number = ?", (letter.number,))
                return
            pause = min(FIRST * 1.4**letter.attempts, MOST)
            again = "UPDATE outbox SET attempts = attempts + 1, due = ? WHERE number = ?"
            file.execute(again, (time.time() + pause, letter.number))

    # --- the file ---

    def _read(self, query: str, *values: object) -> tuple[object, ...] | None:
        with self._open() as file:
            row: tuple[object, ...] | None = file.execute(query, values).fetchone()
        return row

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        file = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = FULL")
            yield file
        finally:
            file.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; what waits for a change is woken when it is on the disk."""
        with self._open() as file:
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise
            if file.in_transaction:
                file.execute("COMMIT")
        with self.changed:
            self.changed.notify_all()


def _outcome(seat: Seat, event: Event) -> str:
    """What a relationship that ends came to."""
    if event.kind is Kind.WORK_COMMITTED:
        return "committed"
    return "read_only" if event.kind is Kind.WORK_READ_ONLY else "aborted"
