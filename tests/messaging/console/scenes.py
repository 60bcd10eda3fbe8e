"""Situations in which the console's pages are looked at: pairs in trouble, messages of every kind, and people."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import Group, User
from django.test import Client

from messaging.models import (
    ApiToken,
    Incident,
    Message,
    Pair,
    Rejection,
    Signal,
    Transmission,
    WebhookDelivery,
    WebhookEndpoint,
)
from messaging.protocol.errors import ErrorCode
from messaging.services import tokens, webhooks
from messaging.services.audit import Actor
from messaging.services.receiving import Arrival
from messaging.transports import Receipt
from partners.models import Party
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import ADMIN_SCOPES, Role
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work

ANA = Actor("ana", "console")
PASSWORD = "correct horse battery"
EXPIRED = Receipt(
    ok=False, cause="cert_expired", detail="certificate has expired", permanent=True, response=b"HTTP 495\r\n\r\n"
)
_count = itertools.count(1)


def user(role: Role | None, name: str = "") -> User:
    """A user who can log in, with a role or without one."""
    made = User.objects.create_user(username=name or f"{role or 'nobody'}{next(_count)}", password=PASSWORD)
    if role is not None:
        made.groups.add(Group.objects.get_or_create(name=role)[0])
    return made


def browser(role: Role | None = Role.ADMIN, name: str = "", *, csrf: bool = False) -> Client:
    """A client that is logged in as a new user with this role."""
    client = Client(enforce_csrf_checks=csrf)
    client.force_login(user(role, name))
    return client


def delivered(partner: PartnerSide, count: int = 1) -> list[Message]:
    """Messages that the partner acknowledged."""
    made = []
    with link() as wire:
        for _ in range(count):
            made.append(submit(partner))
            work()
            partner.send(partner.acknowledgement(wire.last))
    return [Message.objects.get(pk=message.pk) for message in made]


def suspended(time: FrozenClock, *, waiting: int = 2, receipt: Receipt = EXPIRED) -> PartnerSide:
    """A partner whose server cannot be reached until the pair gave up, with messages waiting behind the first."""
    partner = partner_side(retries=1, timeout=60, retry_interval=60, transport_retries=0)
    submit(partner)
    with link(receipt):
        while partner.outbound.flow != "suspended":
            work()
            time.move(61)
    for _ in range(waiting):
        submit(partner)
    return partner


def refused(partner: PartnerSide, code: str = ErrorCode.INVALID_SEQUENCE_NUMBER) -> PartnerSide:
    """The partner answers the next message with an Error message."""
    submit(partner)
    with link() as wire:
        work()
        partner.send(partner.error(wire.last, code, description="last accepted 7 <b>so there</b>"))
    return partner


@dataclass(frozen=True, slots=True)
class World:
    """One of everything that has a page."""

    suspended: PartnerSide
    flowing: PartnerSide
    outbound: Message
    queued: Message
    inbound: Message
    transmission: Transmission
    signal: Signal
    incident: Incident
    rejection: Rejection
    partner: Party
    token: ApiToken
    webhook: WebhookEndpoint

    @property
    def pair(self) -> Pair:
        return self.suspended.outbound


def world(time: FrozenClock) -> World:
    """A suspended pair, one that flows both ways, refusals, a token, and a webhook endpoint that fails."""
    webhook, _ = webhooks.endpoint_create(url="http://127.0.0.1:9/hook", types=[], name="ERP", actor=ANA)
    stuck = suspended(time)
    flowing = partner_side()
    outbound = delivered(flowing)[0]
    arrival = flowing.message(1)
    flowing.send(arrival)
    flowing.send(arrival)
    with link():
        work()
    flowing.send(flowing.message(9))
    flowing.send(Arrival("text/plain", b"<script>alert(1)</script>", Presented(), "198.51.100.7"))
    owner = user(Role.OPERATOR, f"owner{next(_count)}")
    token, _ = tokens.token_create(
        owner=owner, name="ERP", scopes=["messages:read"], actor=ANA, granted_by=ADMIN_SCOPES
    )
    WebhookDelivery.objects.filter(endpoint=webhook).update(due_at=clock.now() + timedelta(seconds=5), attempts=1)
    return World(
        suspended=stuck,
        flowing=flowing,
        outbound=outbound,
        queued=Message.objects.filter(state="queued").order_by("position")[0],
        inbound=Message.objects.get(direction="in"),
        transmission=Transmission.objects.filter(message=outbound).get(),
        signal=Signal.objects.filter(about=outbound).get(),
        incident=Incident.objects.get(pair=stuck.outbound),
        rejection=Rejection.objects.order_by("-id")[0],
        partner=flowing.outbound.partner,
        token=token,
        webhook=webhook,
    )
