"""The other side of the wire: a server with participants and an initiator, by the participant's table and the codec.

What a participant must keep over a crash is in `Member.record`; `crash` forgets everything else.
"""

from __future__ import annotations

import itertools
import queue
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from lxml import etree

from messaging.protocol.atomic import participant
from messaging.protocol.atomic.participant import ActKind, Event, Kind, Taking
from messaging.protocol.atomic.words import FAULT, Note, Protocol, Request, Seat
from messaging.protocol.ws.messages import (
    Body,
    CoordinationContext,
    Create,
    EndpointReference,
    Fault,
    Notification,
    Register,
    WsMessage,
)
from messaging.protocol.ws.names import Soap, Style, Version, coordination_type
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import check
from messaging.protocol.ws.writing import compose, encode
from rmhub import clock
from tests.messaging.profiles.wsat.proxy import WAIT, Post, answer, read_post, serving

RESEND = 7.0  # seconds until a participant asks again for the outcome


@dataclass(slots=True)
class Member:
    """One participant. `effects`: each piece of work that was made permanent or undone, in its order."""

    own: EndpointReference
    hub: EndpointReference
    taking: Taking
    record: Taking | None = None
    effects: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    asks_at: datetime | None = None
    down: bool = False

    @property
    def marks(self) -> tuple[bytes, ...]:
        """What stands in every message between it and the hub, one or the other."""
        return tuple(f">{(etree.fromstring(one.parameters[0]).text or '')}<".encode() for one in (self.own, self.hub))


@dataclass(slots=True)
class Site:
    """`hub`: base URL of the hub's services as the agreement names it. `login`: the Authorization that it shows.

    `heard`: what came to the initiator.
    """

    url: str
    hub: str
    login: str
    profile: Style = Style.SEED
    version: Version = Version.V2006
    soap: Soap = Soap.V11
    inbox: queue.SimpleQueue[Post] = field(default_factory=queue.SimpleQueue)
    members: dict[str, Member] = field(default_factory=dict)
    replies: dict[str, Body | None] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # What applications do

    def create(self, expires_ms: int | None = None) -> str:
        """Asks for a context. Returns the MessageID, under which the reply will be found."""
        body = Create(coordination_type(self.version), expires_ms)
        return self._ask(Request.CREATE, EndpointReference(f"{self.hub}/activation"), body)

    def register(self, context: CoordinationContext, protocol: Protocol) -> tuple[str, EndpointReference]:
        own = self._place("initiator" if protocol is Protocol.COMPLETION else "member")
        return self._ask(Request.REGISTER, context.registration, Register(protocol, own)), own

    def join(self, own: EndpointReference, hub: EndpointReference, protocol: Protocol) -> Member:
        """A member from here on, with its work done and not yet prepared."""
        taking = Taking(protocol=protocol, version=self.version.value)
        self.members[own.parameters[0]] = member = Member(own, hub, taking)
        return member

    def say(self, note: Note, hub: EndpointReference, me: EndpointReference) -> int:
        return self._post(note.value, hub, me)

    def crash(self, member: Member) -> None:
        """It stops between two messages; what comes meanwhile is lost."""
        member.down, member.asks_at = True, None

    def restart(self, member: Member) -> None:
        member.down = False
        member.taking = member.record or Taking(Seat.NONE, member.taking.protocol, self.version.value)
        self._feed(member, Event(Kind.RESTARTED), "")

    # What the servers do

    def work(self) -> int:
        """Handles what came, and sends again what is due. Returns how much there was."""
        done = 0
        while not self.inbox.empty():
            self._take(self.inbox.get())
            done += 1
        for member in self.members.values():
            if member.asks_at is not None and member.asks_at <= clock.now():
                self._feed(member, Event(Kind.RESEND), "")
                done += 1
        return done

    def due_at(self) -> datetime | None:
        return min((one.asks_at for one in self.members.values() if one.asks_at is not None), default=None)

    def _take(self, post: Post) -> None:
        message = decode(
            post.headers["Content-Type"],
            post.body,
            max_bytes=65536,
            soap_action=post.headers.get("SOAPAction", ""),
        )
        broken = [one for one in check(message, strict=True, profile=self.profile) if one.fatal]
        assert not broken, broken
        member = next((self.members[text] for text in message.echoed if text in self.members), None)
        if member is None:
            self._reply(message)
        elif not member.down:
            self._hear(member, message)

    def _reply(self, message: WsMessage) -> None:
        if message.kind in (Request.CREATED, Request.REGISTERED):
            self.replies[message.addressing.relates_to] = message.body
        else:
            self.heard.append(_name(message))

    def _hear(self, member: Member, message: WsMessage) -> None:
        member.heard.append(_name(message))
        if isinstance(message.body, Fault):
            self._feed(member, Event(Kind.FAULT_RECEIVED, fault=message.body.code), "")
        elif isinstance(message.body, Notification):
            self._feed(member, Event(Kind.RECEIVED, note=message.body.note), message.addressing.message_id)

    def _feed(self, member: Member, event: Event, offender: str) -> None:
        step = participant.step(member.taking, event)
        member.taking = step.taking
        for act in step.acts:
            match act.kind:
                case ActKind.PREPARE_WORK:
                    self._feed(member, Event(Kind.WORK_PREPARED), "")
                case ActKind.COMMIT_WORK:
                    # Its effect and the end of its record are one transaction of its own database.
                    member.effects.append("committed")
                    self._feed(member, Event(Kind.WORK_COMMITTED), "")
                case ActKind.ROLL_BACK_WORK:
                    member.effects.append("rolled back")
                case ActKind.FORCE_WRITE:
                    member.record = member.taking
                case ActKind.FORGET:
                    member.record = None
                case ActKind.STOP:
                    member.asks_at = None
                case ActKind.SEND:
                    assert act.note is not None
                    member.asks_at = clock.now() + timedelta(seconds=RESEND) if act.awaits else None
                    self._post(act.note.value, member.hub, member.own)
                case ActKind.FAULT:
                    assert act.fault is not None
                    self._post(FAULT, member.hub, member.own, Fault(act.fault, act.reason), relates_to=offender)
                case _:
                    pass

    # The wire

    def _place(self, name: str) -> EndpointReference:
        seat = f'<p:Seat xmlns:p="urn:site">seat-{next(self._numbers)}</p:Seat>'
        return EndpointReference(f"{self.url}/{name}", (seat,))

    def _ask(self, kind: str, to: EndpointReference, body: Body) -> str:
        message_id = f"urn:uuid:{uuid.uuid4()}"
        # A request is repeated until it is taken: its MessageID makes it the same.
        while self._post(kind, to, EndpointReference(f"{self.url}/replies"), body, message_id=message_id) != 202:
            pass
        return message_id

    def _post(
        self,
        kind: str,
        to: EndpointReference,
        me: EndpointReference,
        body: Body | None = None,
        *,
        relates_to: str = "",
        message_id: str = "",
    ) -> int:
        """The HTTP status; 0 when the connection broke."""
        written = compose(
            kind,
            version=self.version,
            soap=self.soap,
            profile=self.profile,
            to=to,
            me=me,
            message_id=message_id or f"urn:uuid:{uuid.uuid4()}",
            body=body,
            relates_to=relates_to,
        )
        octets = encode(written, self.profile)
        parts = urlsplit(to.address)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT)
        try:
            headers = octets.headers | {"Authorization": self.login}
            connection.request("POST", parts.path, octets.body, headers)
            return connection.getresponse().status
        except (HTTPException, OSError):
            return 0
        finally:
            connection.close()


def _name(message: WsMessage) -> str:
    if isinstance(message.body, Fault):
        return message.body.code or message.body.name
    return message.kind


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        self.server.site.inbox.put(read_post(self))
        answer(self, 202)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def site_at(site: Site, port: int = 0) -> Iterator[str]:
    """Serves the site at this port (0: any); the URL under which it is reached directly."""
    with serving(_Handler, port) as server:
        server.site = site  # type: ignore[attr-defined]
        yield f"http://127.0.0.1:{server.server_address[1]}"
