"""A peer of the hub in atomic transactions, for tests: it writes through the real codec, and posts to the entrance.

`peer()` makes a party with an agreement of profile `wsat` and a credential. Its methods post messages to /ws-tx/
(Django's client); what the hub answers lies in its outbox: `Peer.sent()` reads all of it, `Place.heard()` what is for
one place.

    app, shop = peer(), peer()
    begun = app.create()                       # CoordinationContext
    initiator = app.register(begun, Protocol.COMPLETION)
    member = shop.register(begun, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    assert member.heard() == ["Prepare"]
    member.say(Note.PREPARED)
    assert member.heard() == ["Prepare", "Commit"]
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from lxml import etree

from messaging.choices import Direction
from messaging.engine.preparing import stored_body
from messaging.models import Coordination, CoordinationMessage, Enlistment, Message
from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Protocol, Request
from messaging.protocol.ws.messages import (
    Body,
    CoordinationContext,
    Create,
    Created,
    EndpointReference,
    Fault,
    Octets,
    Register,
    Registered,
    WsMessage,
)
from messaging.protocol.ws.names import Soap, Style, Version, coordination_type
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.writing import compose, encode
from partners import registry
from partners.choices import CredentialKind
from partners.models import Endpoint, Party
from partners.terms import Terms
from tests.partners.factories import make_agreement, make_credential, make_endpoint, make_party

HUB = "https://hub.example/ws-tx"
LIMIT = 64 * 1024
_count = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that the hub put into its outbox, as it is on the wire."""

    message: Message
    facts: CoordinationMessage
    ws: WsMessage

    @property
    def kind(self) -> str:
        return self.ws.kind

    @property
    def body(self) -> Body | None:
        return self.ws.body

    @property
    def fault(self) -> FaultCode | None:
        return self.ws.body.code if isinstance(self.ws.body, Fault) else None


@dataclass(slots=True)
class Place:
    """One relationship with the hub, seen from the peer: where it is reached, and where it reaches the hub."""

    peer: Peer
    own: EndpointReference
    hub: EndpointReference
    protocol: Protocol | None = None

    def say(self, note: Note, **changes: Any) -> int:
        """Posts one notification. Returns the HTTP status. `changes` are fields of the headers (see `Peer.write`)."""
        return self.peer.post(self.hub.address, self.peer.write(note.value, to=self.hub, me=self.own, **changes))

    def fault(self, code: FaultCode, relates_to: str = "", **changes: Any) -> int:
        """Posts one fault."""
        octets = self.peer.write(
            FAULT, to=self.hub, me=self.own, body=Fault(code, "From the test."), relates_to=relates_to, **changes
        )
        return self.peer.post(self.hub.address, octets)

    def sent(self) -> list[Sent]:
        """What the hub put into its outbox for this place, oldest first."""
        mine = set(self.own.parameters)
        return [
            one for one in self.peer.sent() if mine <= set(one.ws.echoed) and one.ws.addressing.to == self.own.address
        ]

    def heard(self) -> list[str]:
        """Their kinds; a fault as its code."""
        return [one.fault.value if one.fault is not None else one.kind for one in self.sent()]

    @property
    def enlistment(self) -> Enlistment:
        """The hub's row for it."""
        text = etree.fromstring(self.hub.parameters[0]).text or ""
        return Enlistment.objects.get(pk=uuid.UUID(text.removeprefix("enl_")))


@dataclass(slots=True)
class Peer:
    terms: Terms
    headers: dict[str, str]
    client: Client = field(default_factory=Client)

    @property
    def base(self) -> str:
        return self.terms.partner_uri

    def place(self, name: str = "", parameter: bool = True) -> EndpointReference:
        """A new endpoint reference of this peer."""
        number = next(_count)
        parameters = (f'<p:Seat xmlns:p="urn:peer">{number}</p:Seat>',) if parameter else ()
        return EndpointReference(f"{self.base}/{name or 'seat'}", parameters)

    def write(
        self,
        kind: str,
        *,
        to: EndpointReference,
        me: EndpointReference | None = None,
        body: Body | None = None,
        relates_to: str = "",
        message_id: str | None = None,
        profile: Style | None = None,
        version: Version | None = None,
        fault_to: EndpointReference | None = None,
        without: tuple[str, ...] = (),
        replace: tuple[tuple[str, str], ...] = (),
    ) -> Octets:
        """The octets of one message. `without`: names of addressing headers to leave out; `replace`: text for text."""
        profile = profile or Style(self.terms.addressing_profile)
        version = version or Version(self.terms.coordination_version)
        written = compose(
            kind,
            version=version,
            soap=Soap(self.terms.soap_version),
            profile=profile,
            to=to,
            me=me,
            message_id=f"urn:uuid:{uuid.uuid4()}" if message_id is None else message_id,
            body=body,
            relates_to=relates_to,
        )
        octets = encode(written, profile)
        root = etree.fromstring(octets.body)
        header = root[0]
        for block in list(header):
            if etree.QName(block).localname in without:
                header.remove(block)
        if fault_to is not None:
            wsa = next(etree.QName(one).namespace for one in header if etree.QName(one).localname == "Action")
            made = etree.SubElement(header, f"{{{wsa}}}FaultTo")
            etree.SubElement(made, f"{{{wsa}}}Address").text = fault_to.address
            if fault_to.parameters:
                inner = etree.SubElement(made, f"{{{wsa}}}ReferenceParameters")
                inner.extend(etree.fromstring(one) for one in fault_to.parameters)
        data = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
        for old, new in replace:
            assert old.encode() in data, old
            data = data.replace(old.encode(), new.encode())
        return Octets(octets.content_type, data, octets.soap_action)

    def post(self, service: str, octets: Octets, **headers: str) -> int:
        """Posts to a service (its name, or its whole address). Returns the HTTP status; a body would be an error."""
        answer = self.client.post(
            f"/ws-tx/{service.removeprefix(self.terms.own_uri).strip('/')}",
            data=octets.body,
            content_type=octets.content_type,
            headers={**self.headers, **({"SOAPAction": octets.soap_action} if octets.soap_action else {}), **headers},
        )
        assert answer.content == b""
        return answer.status_code

    def create(
        self,
        *,
        expires_ms: int | None = None,
        current: CoordinationContext | None = None,
        kind: str = "",
        reply_to: EndpointReference | None = None,
        message_id: str | None = None,
        **changes: Any,
    ) -> CoordinationContext:
        """CreateCoordinationContext; returns the context of the response."""
        message_id = message_id or f"urn:uuid:{uuid.uuid4()}"
        assert self.ask_create(expires_ms, current, kind, reply_to, message_id, **changes) == 202
        created = [one for one in self.sent() if one.facts.relates_to == message_id][-1].body
        assert isinstance(created, Created), created
        return created.context

    def ask_create(
        self,
        expires_ms: int | None = None,
        current: CoordinationContext | None = None,
        kind: str = "",
        reply_to: EndpointReference | None = None,
        message_id: str | None = None,
        **changes: Any,
    ) -> int:
        """Posts CreateCoordinationContext. Returns the HTTP status."""
        return self.post(
            "activation", self.creating(expires_ms, current, kind, reply_to, message_id=message_id, **changes)
        )

    def creating(
        self,
        expires_ms: int | None = None,
        current: CoordinationContext | None = None,
        kind: str = "",
        reply_to: EndpointReference | None = None,
        **changes: Any,
    ) -> Octets:
        """A CreateCoordinationContext."""
        version = changes.get("version") or Version(self.terms.coordination_version)
        body = Create(coordination_type(version), expires_ms, current)
        octets = self.write(
            Request.CREATE,
            to=EndpointReference(f"{self.terms.own_uri}/activation"),
            me=reply_to or self.place("requester"),
            body=body,
            **changes,
        )
        if kind:
            octets = Octets(
                octets.content_type,
                octets.body.replace(body.coordination_type.encode() + b"<", kind.encode() + b"<"),
                octets.soap_action,
            )
        return octets

    def register(
        self,
        context: CoordinationContext,
        protocol: Protocol,
        *,
        own: EndpointReference | None = None,
        message_id: str | None = None,
        **changes: Any,
    ) -> Place:
        """Register; returns the place with the coordinator's endpoint reference from the RegisterResponse."""
        own = own or self.place()
        message_id = message_id or f"urn:uuid:{uuid.uuid4()}"
        assert self.ask_register(context, protocol, own=own, message_id=message_id, **changes) == 202
        answers = [one for one in self.sent() if one.facts.relates_to == message_id]
        body = answers[-1].body if answers else None
        assert isinstance(body, Registered), body
        return Place(self, own, body.coordinator, protocol)

    def ask_register(
        self,
        context: CoordinationContext,
        protocol: Protocol,
        *,
        own: EndpointReference | None = None,
        reply_to: EndpointReference | None = None,
        message_id: str | None = None,
        **changes: Any,
    ) -> int:
        """Posts Register. Returns the HTTP status."""
        octets = self.registering(context, protocol, own, reply_to, message_id=message_id, **changes)
        return self.post(context.registration.address, octets)

    def registering(
        self,
        context: CoordinationContext,
        protocol: Protocol,
        own: EndpointReference | None = None,
        reply_to: EndpointReference | None = None,
        **changes: Any,
    ) -> Octets:
        """A Register."""
        return self.write(
            Request.REGISTER,
            to=context.registration,
            me=reply_to or self.place("requester"),
            body=Register(protocol, own or self.place()),
            **changes,
        )

    def registered(
        self, register: Sent, *, fault: FaultCode | None = None, own: EndpointReference | None = None
    ) -> int:
        """Answers a Register of the hub: with `own` (or a new place) as coordinator, or with a fault."""
        assert isinstance(register.body, Register) and register.ws.addressing.reply_to is not None
        octets = self.write(
            FAULT if fault is not None else Request.REGISTERED,
            to=register.ws.addressing.reply_to,
            body=Fault(fault, "No.") if fault is not None else Registered(own or self.place("coordinator")),
            relates_to=register.message.message_id,
        )
        return self.post(register.ws.addressing.reply_to.address, octets)

    def sent(self) -> list[Sent]:
        """Everything that the hub put into its outbox for this peer, oldest first."""
        rows = (
            CoordinationMessage.objects.filter(
                message__direction=Direction.OUT, message__agreement_version_id=self.terms.version_id
            )
            .select_related("message")
            .order_by("message__id")
        )
        return [Sent(row.message, row, read(row.message, row.soap_action)) for row in rows]

    def answers_to(self, message_id: str) -> list[Sent]:
        """What the hub answered to the message with this MessageID."""
        return [one for one in self.sent() if one.facts.relates_to == message_id]


def read(message: Message, soap_action: str = "") -> WsMessage:
    """A stored message, decoded."""
    return decode(message.content_type, stored_body(message, []), max_bytes=LIMIT, soap_action=soap_action)


def peer(name: str = "", **terms: Any) -> Peer:
    """A party with an agreement for atomic transactions with the hub's own party, and a bearer token.

    `terms` are settings of the agreement, such as coordination_version="2004/10" or repeat_interval=5.
    """
    number = next(_count)
    endpoint = Endpoint.objects.filter(uri=HUB).first()
    if endpoint is None:
        endpoint = make_endpoint(make_party(f"Hub {number}", own=True), HUB)
    terms.setdefault("allowed", ())
    version = make_agreement(
        profile="wsat",
        own_endpoint=endpoint,
        partner_name=name or f"Peer {number}",
        partner_uri=terms.pop("partner_uri", "") or f"https://peer{number}.example/tx",
        tpa_id=terms.pop("tpa_id", "") or f"tx:{number}",
        **terms,
    )
    _, token = make_credential(version.agreement.partner, kind=CredentialKind.BEARER)
    return Peer(registry.current().version(version.pk), {"Authorization": f"Bearer {token}"})


def party_of(one: Peer) -> Party:
    return Party.objects.get(pk=one.terms.partner_id)


def coordination_of(context: CoordinationContext) -> Coordination:
    """The hub's row of a transaction (the newest one with this Identifier)."""
    return Coordination.objects.filter(identifier=context.identifier).latest("id")
