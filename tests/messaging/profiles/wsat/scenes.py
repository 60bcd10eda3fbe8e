"""Transactions in every situation that a page shows, made by peers through the real entrance."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction

from messaging.journal import events
from messaging.journal.audit import Actor
from messaging.models import Coordination, Enlistment, Event, Message
from messaging.profiles.wsat import in_doubt, opening
from messaging.profiles.wsat.asking import coordination_rollback, participant_enlist, transaction_ask, transaction_begin
from messaging.protocol.atomic.words import Note, Protocol
from rmhub import clock
from tests.messaging.profiles.wsat.kit import Peer, Place, coordination_of, peer

ANA = Actor("ana", "console")


def prepared(*names: str, app: Peer | None = None) -> tuple[Coordination, list[Place]]:
    """Begun by one partner, whose initiator asked for the commit; each of these partners is asked to prepare."""
    app = app or peer()
    begun = app.create()
    initiator = app.register(begun, Protocol.COMPLETION)
    places = [peer(name).register(begun, Protocol.DURABLE) for name in names]
    assert initiator.say(Note.COMMIT) == 202
    return coordination_of(begun), places


def committing(*names: str, app: Peer | None = None) -> tuple[Coordination, list[Place]]:
    """All voted yes, and nobody has confirmed the commit yet."""
    one, places = prepared(*names, app=app)
    for place in places:
        assert place.say(Note.PREPARED) == 202
    return fresh(one), places


def committed(*names: str) -> Coordination:
    """All voted yes and committed."""
    one, places = committing(*names)
    for place in places:
        assert place.say(Note.COMMITTED) == 202
    return fresh(one)


def voted_no(*names: str) -> Coordination:
    """The first of these voted no."""
    one, places = prepared(*names)
    assert places[0].say(Note.ABORTED) == 202
    return fresh(one)


def rolled_back() -> Coordination:
    """An application began it, and gave it up."""
    begun = transaction_begin(begun_by="erp", idempotency_key="k-1", expires_ms=None, version="2006/06").coordination
    return coordination_rollback(coordination_id=begun.pk, actor=ANA, reason="The order was cancelled")


def doubtful(*names: str, app: Peer | None = None) -> tuple[Coordination, Enlistment]:
    """All voted yes, and the first one answered the commit with a contradiction."""
    one, places = committing(*names, app=app)
    taker = places[0].enlistment
    _doubt(one, taker)
    quiet()
    return fresh(one), Enlistment.objects.get(pk=taker.pk)


def _doubt(one: Coordination, taker: Enlistment) -> None:
    written: list[Event] = []
    with transaction.atomic():
        locked = opening.locked(one.pk)
        in_doubt.doubt(
            locked,
            taker,
            in_doubt.HEURISTIC,
            "It rolled back <b>by itself</b>: disk full.",
            clock.now(),
            written,
        )
        events.write(written)
    Coordination.objects.filter(pk=one.pk).update(doubtful_since=clock.now() - timedelta(minutes=5))


def doubtful_here(*names: str) -> tuple[Coordination, Enlistment]:
    """The same for one that an application began and to which it enlisted its participants: with few messages."""
    one, places = begun_here("shop"), []
    for shop in map(peer, names):
        own = shop.place()
        made = participant_enlist(
            coordination_id=one.pk,
            tpa_id=shop.terms.tpa_id,
            protocol=Protocol.DURABLE,
            address=own.address,
            parameters=own.parameters,
            actor=ANA,
        )
        places.append(Place(shop, own, made.coordinator, Protocol.DURABLE))
    transaction_ask(coordination_id=one.pk, verb="commit", actor=ANA, reason="The shop asks for it")
    for place in places:
        assert place.say(Note.PREPARED) == 202
    taker = places[0].enlistment
    _doubt(one, taker)
    quiet()
    return fresh(one), Enlistment.objects.get(pk=taker.pk)


def begun_here(name: str = "erp") -> Coordination:
    """Begun through the API, and still open."""
    key = f"key-{Coordination.objects.count()}"
    return transaction_begin(begun_by=name, idempotency_key=key, expires_ms=60_000, version="2006/06").coordination


def fresh(one: Coordination) -> Coordination:
    return Coordination.objects.get(pk=one.pk)


def quiet() -> None:
    """The peers' servers have taken what is in the outbox, and nothing is sent again for the rest of the test."""
    ours = Message.objects.filter(agreement_version__profile="wsat", direction="out", attempts=0)
    sent: dict[str, Any] = {"attempts": 1, "first_sent_at": clock.now(), "due_at": None}
    ours.filter(state="queued", coordinating__awaits=True).update(state="awaiting_ack", **sent)
    ours.filter(state="queued").update(state="sent", **sent)
