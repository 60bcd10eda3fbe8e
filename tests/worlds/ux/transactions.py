"""Transactions of the last hours: told through the hub's own services, with what participants would have said."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import transaction

from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import Coordination, Enlistment, Message
from messaging.profiles.wsat import asking, due, messages, receiving, registering
from messaging.profiles.wsat.opening import locked
from messaging.protocol.atomic.words import FAULT, FaultCode, Note, Protocol
from messaging.protocol.ws.messages import Body, EndpointReference, Fault, parameter
from messaging.protocol.ws.names import Soap, Style, Version
from messaging.protocol.ws.writing import compose, encode
from messaging.transports import Receipt
from partners import registry
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, Party
from partners.services.writing import writing
from partners.terms import Presented, Principal, Terms
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.worlds.ux.directory import Lane
from tests.worlds.ux.plan import OWN_ROOT, SECRET, Plan
from tests.worlds.ux.timeline import past

ERP = Actor("erp", "api")
# Who takes part: the slug of a trouble-free partner's services, and what these are.
PLACES = ("stock", "freight", "ledger")
_TAKEN = Receipt(ok=True, status=202, response=b"HTTP 202 Accepted\r\n\r\n")
_CLOSED = Receipt(ok=False, cause="connect_refused", detail="[Errno 111] Connection refused")


@dataclass(frozen=True, slots=True)
class Taker:
    """A participant in one transaction, as its own side sees it."""

    terms: Terms
    me: EndpointReference
    hub: EndpointReference

    def say(self, note: Note) -> None:
        self._post(note.value)

    def fault(self, code: FaultCode, reason: str) -> None:
        """The answer to what it was told last."""
        last = Message.objects.filter(agreement_version=self.terms.version_id, direction="out").order_by("-id")[0]
        self._post(FAULT, Fault(code, reason), last.message_id)

    def _post(self, kind: str, body: Body | None = None, relates_to: str = "") -> None:
        profile = Style(self.terms.addressing_profile)
        written = compose(
            kind,
            version=Version(self.terms.coordination_version),
            soap=Soap(self.terms.soap_version),
            profile=profile,
            to=self.hub,
            me=self.me,
            message_id=f"urn:uuid:{uuid.uuid4()}",
            body=body,
            relates_to=relates_to,
        )
        octets = encode(written, profile)
        receiving.receive(
            Arrival(octets.content_type, octets.body, Presented(), "127.0.0.1"),
            service=messages.COORDINATOR,
            soap_action=octets.soap_action,
            principal=Principal(self.terms.partner_id, self.terms.partner_name, uuid.UUID(int=0)),
        )


def happen(plan: Plan, lanes: list[Lane]) -> dict[str, object]:
    """One that committed, one that was voted down, one whose participant is silent, one with a contradiction.

    Returns what a visitor needs to know of them. Call when nothing else is due before `plan.now`.
    """
    terms = _agreements(plan, lanes)
    life = settings.RMHUB_TRANSACTION_SECONDS * 1000
    with past(plan.now - timedelta(hours=3)) as moving:
        one, takers = _begun("order-4001", terms, life)
        _voted(one, takers, moving)
        for taker in takers:
            moving.move(0.4)
            taker.say(Note.COMMITTED)
        committed = one
    with past(plan.now - timedelta(hours=2)) as moving:
        one, takers = _begun("order-4002", terms, life)
        _asked(one, moving)
        takers[0].say(Note.PREPARED)
        moving.move(0.7)
        takers[1].say(Note.ABORTED)
        _sent(_TAKEN)
        for taker in (takers[0], takers[2]):
            moving.move(0.3)
            taker.say(Note.ABORTED)
        aborted = one
    with past(plan.now - timedelta(minutes=50)) as moving:
        one, takers = _begun("order-4003", terms[:2], life)
        _voted(one, takers, moving)
        moving.move(0.4)
        takers[0].say(Note.COMMITTED)
        takers[1].fault(FaultCode.INCONSISTENT, "The booking was undone by hand at 14:02")
        doubtful = one
    with past(plan.now - timedelta(minutes=25)) as moving:
        one, takers = _begun("order-4004", terms, life)
        _voted(one, takers, moving, silent=takers[2].terms)
        for taker in takers[:2]:
            moving.move(0.4)
            taker.say(Note.COMMITTED)
        _resent(takers[2].terms, moving, plan.now)
        silent = one
    found = {"committed": committed, "aborted": aborted, "contradiction": doubtful, "silent": silent}
    return {"transactions": {key: one.public_id for key, one in found.items()}}


def _agreements(plan: Plan, lanes: list[Lane]) -> list[Terms]:
    """Partners without trouble get services for transactions, and an agreement about them."""
    chosen = [lane for lane in lanes if lane.trouble is None][: len(PLACES)]
    versions = []
    with writing():
        own = Party.objects.get(is_own=True)
        ours = Endpoint.objects.create(party=own, name="transactions", uri=f"{OWN_ROOT}/ws-tx")
        for name, lane in zip(PLACES, chosen, strict=True):
            theirs = Endpoint.objects.create(
                party=lane.partner,
                name=name,
                uri=f"http://{name}.{lane.slug}.example/ws-tx",
                address=f"http://127.0.0.1:{plan.port}/ok/{lane.slug}-{name}",
            )
            Credential.objects.create(
                party=lane.partner,
                direction="inbound",
                kind="basic",
                username=f"{name}.{lane.slug}",
                secret_hash=make_password(SECRET),
                label="transactions",
                valid_from=plan.now - timedelta(days=120),
            )
            agreement = Agreement.objects.create(
                tpa_id=f"tpa:ux:{name}", name=f"Transactions, {lane.partner.name}", own_party=own, partner=lane.partner
            )
            versions.append(
                AgreementVersion.objects.create(
                    agreement=agreement,
                    number=1,
                    state="active",
                    profile="wsat",
                    own_endpoint=ours,
                    partner_endpoint=theirs,
                    semantics="BestEffort",
                    retries=4,
                    repeat_interval=20,
                    repeat_interval_max=120,
                    activated_at=plan.now - timedelta(days=120),
                )
            )
    registry.reset()
    known = registry.current()
    return [known.version(version.pk) for version in versions]


def _begun(name: str, terms: list[Terms], life: int) -> tuple[Coordination, list[Taker]]:
    one = asking.transaction_begin(
        begun_by="erp", idempotency_key=name, expires_ms=life, version=Version.V2006.value
    ).coordination
    return one, [_enlisted(one, each, name) for each in terms]


def _enlisted(one: Coordination, terms: Terms, name: str) -> Taker:
    me = EndpointReference(f"{terms.partner_uri}/participant", (parameter("Work", name),))
    with transaction.atomic():
        row = registering.enlist(coordination=locked(one.pk), protocol=Protocol.DURABLE, peer=me, terms=terms)
    return Taker(terms, me, messages.coordinator_epr(row, terms))


def _asked(one: Coordination, moving: FrozenClock) -> None:
    moving.move(1.2)
    asking.transaction_ask(coordination_id=one.pk, verb="commit", actor=ERP)
    _sent(_TAKEN)
    moving.move(0.3)


def _voted(one: Coordination, takers: list[Taker], moving: FrozenClock, silent: Terms | None = None) -> None:
    """Everybody votes yes, and the commit goes out; a silent one's server takes nothing any more."""
    _asked(one, moving)
    for taker in takers:
        moving.move(0.2)
        taker.say(Note.PREPARED)
    due.run_due()
    _sent(_TAKEN, silent)


def _sent(receipt: Receipt, silent: Terms | None = None) -> None:
    """What is due goes out."""
    closed = set()
    if silent is not None:
        closed = set(Enlistment.objects.filter(agreement_version=silent.version_id).values_list("pair_id", flat=True))
    while jobs := claim_due(limit=64):
        record([(job, _CLOSED if job.pair_id in closed else receipt) for job in jobs])


def _resent(terms: Terms, moving: FrozenClock, until: datetime) -> None:
    """The same message again and again, up to now."""
    waiting = Message.objects.filter(agreement_version=terms.version_id, direction="out", due_at__isnull=False)
    while (first := waiting.order_by("due_at").first()) is not None and first.due_at is not None:
        if first.due_at >= until:
            return
        moving.move(max(0.0, (first.due_at - clock.now()).total_seconds()) + 0.02)
        _sent(_TAKEN, terms)
