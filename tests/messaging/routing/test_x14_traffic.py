"""Traffic between two hubs through a network that loses, repeats and reorders, with workers and consumers that die.

The real entrances and services, on a clock in the test's hand; whoever is asked is asked of the rows in the middle of
it and at the end. INVARIANT_MESSAGES sets how many documents (`make invariants`: ten thousand).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection

from messaging import transports
from messaging.deliveries.services import claiming, pulling
from messaging.engine import subscriptions
from messaging.engine.claiming import claim_due
from messaging.exceptions import WrongState
from messaging.invariants import RULES, look
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Delivery, Message, Pair, Trigger
from messaging.pairs.services import operating
from messaging.profiles.repeatable import replies
from messaging.transports import Parcel
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import ACTION, SERVICE, link
from tests.messaging.profiles.repeatable.callers import T, remembering_since
from tests.messaging.routing import hubs
from tests.messaging.routing.hubs import WHO, WHY, Hub, Network, join, network, uri
from tests.sizes import ALL

MESSAGES = int(os.environ.get("INVARIANT_MESSAGES", "80" if ALL else "40"))
TPA = "tpa:A-B"
LOOK_EVERY = max(60, MESSAGES // 4)  # steps
TERMS = {
    "ebxml": {"timeout": 30, "retries": 3, "retry_interval": 10},
    "stream": {"profile": "stream", "resend_schedule": "30", "max_in_flight": 8, "stream_concurrency": 4},
    "repeatable": {"profile": "repeatable", "max_in_flight": 4, "repeat_interval": 5, "repeat_interval_max": 20},
    "in order": {"profile": "repeatable", "ordered": True, "repeat_interval": 5, "repeat_interval_max": 20},
}
PATHS = {"ebxml": "msh", "stream": "streams", "repeatable": f"exchange/{TPA}/", "in order": f"exchange/{TPA}/"}


@dataclass(slots=True)
class Weather:
    """What becomes of parcels, and who dies. `late` has overtaken copies on their way."""

    chance: random.Random
    calm: bool = False
    late: list[tuple[str, Parcel]] = field(default_factory=list)

    def faults(self, sender: str, receiver: str, parcel: Parcel) -> tuple[bool, ...]:
        roll = 1.0 if self.calm else self.chance.random()
        if roll < 0.10:
            return ()
        if roll < 0.20:
            return (False,)  # it arrives, and its answer does not
        if roll < 0.30:
            return (True, True)
        if roll < 0.40:
            self.late.append((receiver, parcel))  # ... and arrives later than what follows it
            return ()
        if roll < 0.45:
            self.late.append((receiver, parcel))
        return (True,)


@pytest.fixture(params=TERMS)
def net(request: pytest.FixtureRequest, time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    request.getfixturevalue("settings").RMHUB_STREAM_HOLD_MS = 0
    with network("AB") as made:
        for name, other in ("AB", "BA"):
            with made[name] as hub:
                path = PATHS[request.param]
                hub.agrees(other, TPA, ours=uri(name, path), theirs=uri(other, path), **TERMS[request.param])
                remembering_since(T.replace(month=1))
                Trigger.objects.create(name="orders", kind="pull", documents=[], lease_seconds=30)
                subscriptions.current.forget()
        join(made["A"], made["B"])
        yield made


def contradictions(net: Network) -> list[str]:
    found = []
    for hub in net.hubs.values():
        with hub, connection.cursor() as cursor:
            looked = [look(cursor, rule) for rule in RULES]
        found += [f"{hub.name} {one.rule.id} {one.count}: {one.rows[:2]}" for one in looked if one.count]
    return found


def _submit(hub: Hub, number: int) -> str:
    with hub:
        payload = NewPayload(b"<Order>%d</Order>" % number, "application/xml")
        return message_submit(agreement=TPA, service=SERVICE, action=ACTION, payloads=[payload]).message.message_id


def _work(net: Network, hub: Hub, weather: Weather) -> None:
    """A worker's round; it may die before it has sent what it claimed, or before it has recorded what came of it."""
    dies = 1.0 if weather.calm else weather.chance.random()
    if dies >= 0.15:
        net._at(hub)
        return
    with hub, link(lambda parcel: net._carry(hub, parcel)):
        jobs = claim_due(limit=64)
        for job in jobs if dies < 0.07 else ():
            transports.send(job.transport, job.parcel)


def _consume(hub: Hub, weather: Weather) -> None:
    """A consumer takes documents and may die with them."""
    with hub:
        (trigger,) = Trigger.objects.all()
        claiming.claim_due(limit=64)  # the worker that notices lost leases
        for leased in pulling.lease(trigger.pk, limit=3, consumer="erp"):
            if weather.calm or weather.chance.random() < 0.8:
                pulling.complete(leased.delivery.pk, leased.claim)


def _person(hub: Hub, skipped: set[str], weather: Weather) -> None:
    """Resumes what is suspended; now and then skips the message that it stopped at."""
    with hub:
        for pair in Pair.objects.filter(direction="out", flow="suspended"):
            if pair.in_flight_id is not None and weather.chance.random() < 0.3:
                skipped.add(Message.objects.get(pk=pair.in_flight_id).message_id)
                operating.pair_skip_head(pair_id=pair.pk, actor=WHO, reason="the partner has it by mail")
            elif pair.cause == "ebms_error_invalid_sequence_number" and pair.in_flight_id is not None:
                operating.pair_restart_sequence(pair_id=pair.pk, actor=WHO, reason=WHY)
            else:
                operating.pair_resume(pair_id=pair.pk, actor=WHO, reason=WHY)
        waiting = Message.objects.filter(direction="out", state="queued").order_by("-position").first()
        if waiting is not None and weather.chance.random() < 0.05:
            try:
                operating.message_cancel(message_id=waiting.pk, actor=WHO, reason="ordered twice by mistake")
            except WrongState:
                return
            skipped.add(waiting.message_id)


def _arrive_late(net: Network, weather: Weather) -> None:
    receiver, parcel = weather.late.pop(weather.chance.randrange(len(weather.late)))
    with net[receiver]:
        hubs._enter(parcel)


def _open(hub: Hub) -> int:
    with hub:
        messages = Message.objects.filter(direction="out", state__in=("queued", "sending", "awaiting_ack", "retrying"))
        deliveries = Delivery.objects.filter(state__in=("waiting", "running"))
        failed = Pair.objects.filter(direction="out", flow="suspended")
        return messages.count() + deliveries.count() + failed.count()


@pytest.mark.parametrize("seed", [1, 2])
def test_x14_whatever_is_lost_repeated_or_killed_the_rows_keep_their_invariants(
    net: Network, time: FrozenClock, seed: int
) -> None:
    chance = random.Random(seed)
    weather = Weather(chance)
    net.faults = weather.faults
    both = list(net.hubs.values())
    given: dict[str, str] = {}
    skipped: set[str] = set()
    steps = 0
    while len(given) < MESSAGES or any(_open(hub) for hub in both):
        steps += 1
        weather.calm = len(given) >= MESSAGES and steps % 3 > 0
        hub = chance.choice(both)
        if len(given) < MESSAGES and chance.random() < 0.4:
            given[_submit(hub, len(given))] = hub.name
        _work(net, hub, weather)
        if weather.late and chance.random() < 0.5:
            _arrive_late(net, weather)
        if chance.random() < 0.3:
            _consume(hub, weather)
        if chance.random() < 0.2:
            _person(hub, skipped, weather)
        time.move(chance.choice([0.1, 1, 5, 12]))
        if steps % LOOK_EVERY == 0:
            assert contradictions(net) == []
        assert steps < 60 * MESSAGES, "it never comes to rest"
    assert contradictions(net) == []
    for hub in both:
        with hub:
            came = Counter(Message.objects.filter(direction="in").values_list("message_id", flat=True))
        expected = {one for one, sender in given.items() if sender != hub.name}
        assert set(came.values()) <= {1}
        assert expected - skipped <= set(came) <= expected
    assert clock.now() - T < timedelta(days=2), "within every window"
