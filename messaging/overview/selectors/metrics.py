"""What the database knows about the hub, as metrics: every web server of the hub says the same.

Counters come from the event feed (`services.traffic_hours`), so they survive restarts and crashes and count each event
once. Labels are words of the hub: states, profiles, kinds of events. A pair is a label only for whoever asks for it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from django.db import connection
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from messaging.choices import Outcome
from messaging.deliveries.selectors import in_doubt, triggers
from messaging.engine import handover
from messaging.exceptions import NotFound
from messaging.models import EventTotal, TrafficCursor, Transmission, WebhookDelivery
from messaging.models.traffic import LATENCY_EDGES
from messaging.overview.selectors import records
from messaging.overview.selectors.health import PartState, health
from messaging.pairs.selectors import pairs
from messaging.pairs.selectors.screens import UNRESOLVED
from messaging.transactions.selectors import coordinations
from partners import registry
from rmhub import clock

# So many pairs may be named in one question.
PAIRS_AT_MOST = 100
# What is counted stops there: nobody decides otherwise because of more.
_MOST = 10_000
_OLDEST = """
SELECT p.id, m.created_at FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL (
    SELECT created_at FROM messaging_message
    WHERE pair_id = p.id AND standing = 'open' ORDER BY position LIMIT 1) AS m
"""


def registry_of(codes: Collection[str] = ()) -> CollectorRegistry:
    """Everything about the hub, and about the pairs of these codes. Raises NotFound for a code that no pair has."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Hub(codes))
    return made


class _Hub(Collector):
    """One look at the database. Where that does not answer it says how the parts are, and nothing else."""

    def __init__(self, codes: Collection[str]) -> None:
        self._codes = codes

    def collect(self) -> Iterator[Metric]:
        now = clock.now()
        found = health()
        yield _gauge(
            "rmhub_part_up",
            "1: this part of the hub does its work; 0.5: not as it should; 0: not at all.",
            ("part",),
            [((part.name,), _UP[part.state]) for part in found.parts],
        )
        free = [] if found.store_free is None else [((), found.store_free)]
        yield _gauge("rmhub_store_free_bytes", "Free where the payload store lies.", (), free)
        if not found.database:
            return
        lost = len(found.lost_workers)
        yield _gauge(
            "rmhub_workers",
            "Workers that have not ended: there, or not heard of any more.",
            ("state",),
            [(("there",), len(found.workers) - lost), (("lost",), lost)],
        )
        yield _gauge(
            "rmhub_overdue_seconds",
            "How long the oldest work whose time has come waits.",
            (),
            [((), found.overdue_seconds)],
        )
        yield _gauge(
            "rmhub_circuits_open", "Partners' servers to which sending is stopped.", (), [((), found.circuits_open)]
        )
        yield from _pairs(self._codes, now)
        yield from _trouble(now)
        yield from _work()
        yield from _totals()


_UP = {PartState.OK: 1.0, PartState.DEGRADED: 0.5, PartState.DOWN: 0.0}
_Samples = Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, about: str, labels: Sequence[str], samples: _Samples) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _pairs(codes: Collection[str], now: datetime) -> Iterator[Metric]:
    """How many there are, what waits in them and for how long, by direction, state and profile in force."""
    rows = (
        pairs.pairs()
        .order_by()
        .values_list("pk", "code", "state", "direction", "sender_uri", "receiver_uri", "queued", "out_now", "in_flight")
    )
    versions = registry.current()
    number, waiting, oldest = Counter[tuple[str, ...]](), Counter[tuple[str, ...]](), dict[tuple[str, ...], float]()
    of: dict[uuid.UUID, tuple[str, ...]] = {}
    asked: dict[uuid.UUID, tuple[str, str, int]] = {}
    for pk, code, state, direction, sender, receiver, queued, out_now, in_flight in rows:
        inbound = direction == "in"
        terms = versions.by_uri_pair(*((sender, receiver) if inbound else (receiver, sender)))
        kind = (direction, state, terms[0].profile if terms else "")
        held = queued + out_now + (in_flight is not None)
        number[kind] += 1
        waiting[kind] += held
        if held:
            of[pk] = kind
        if code in codes:
            asked[pk] = (code, state, held)
    if missing := set(codes) - {code for code, _, _ in asked.values()}:
        raise NotFound(f"There is no pair {sorted(missing)[0]}.")
    ages: dict[uuid.UUID, float] = {}
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST, [list(of)])
        for pk, at in cursor.fetchall():
            ages[pk] = max(0.0, (now - at).total_seconds())
            oldest[of[pk]] = max(oldest.get(of[pk], 0.0), ages[pk])
    labels = ("direction", "state", "profile")
    yield _gauge("rmhub_pairs", "Pairs.", labels, number.items())
    yield _gauge("rmhub_waiting_messages", "Messages queued or on their way.", labels, waiting.items())
    yield _gauge("rmhub_oldest_message_seconds", "Age of the oldest of them.", labels, oldest.items())
    if asked:
        one = ("pair",)
        states = [((code, state), 1) for code, state, _ in asked.values()]
        held_by = [((code,), held) for code, _, held in asked.values()]
        old = [((code,), ages[pk]) for pk, (code, _, _) in asked.items() if pk in ages]
        yield _gauge("rmhub_pair_state", "1 for the state that the pair is in.", ("pair", "state"), states)
        yield _gauge("rmhub_pair_waiting_messages", "Messages of the pair, queued or on their way.", one, held_by)
        yield _gauge("rmhub_pair_oldest_message_seconds", "Age of the oldest of them.", one, old)


def _trouble(now: datetime) -> Iterator[Metric]:
    """What a person has to look at."""
    doubts = in_doubt.counts(now)
    yield _gauge(
        "rmhub_in_doubt",
        f"What waits for a decision, counted up to {_MOST:,}.",
        ("kind",),
        [
            (("delivery",), doubts.inbound),
            (("message",), doubts.outbound),
            (("transaction",), coordinations.doubtful_count()),
        ],
    )
    unresolved = records.incidents(states=UNRESOLVED, parts=False).order_by().values_list("state", flat=True)
    by_state = {state.value: 0 for state in UNRESOLVED} | dict(Counter(unresolved[:_MOST]))
    yield _gauge("rmhub_incidents", "Incidents that are not resolved.", ("state",), _by(by_state))
    yield _gauge("rmhub_triggers", "Triggers.", ("state",), _by(triggers.counts_by_state()))


def _by(numbers: Mapping[str, int]) -> _Samples:
    return [((name,), number) for name, number in numbers.items()]


def _work() -> Iterator[Metric]:
    """What workers have in hand, and what waits for them."""
    claimed = Transmission.objects.filter(outcome=Outcome.ON_THE_WIRE)[:_MOST].count()
    yield _gauge("rmhub_transmissions_claimed", "Attempts that a worker has in hand.", (), [((), claimed)])
    due = WebhookDelivery.objects.filter(due_at__isnull=False)[:_MOST].count()
    yield _gauge("rmhub_webhooks_waiting", "Webhook deliveries that are not done.", (), [((), due)])
    lengths = handover.lengths()
    yield _gauge("rmhub_mailbox_messages", "Hand-overs that no worker has taken yet.", (), [((), sum(lengths))])


def _totals() -> Iterator[Metric]:
    rows = list(EventTotal.objects.order_by("type", "profile"))
    events = CounterMetricFamily("rmhub_events", "What happened, each event once.", labels=("type", "profile"))
    took = HistogramMetricFamily(
        "rmhub_delivery_seconds", "From the first send of a message to its acknowledgement.", labels=("profile",)
    )
    for row in rows:
        events.add_metric((row.type, row.profile), row.number)
        if sum(row.latencies):
            below, buckets = 0, []
            for edge, number in zip((*map(str, LATENCY_EDGES), "+Inf"), row.latencies, strict=True):
                below += number
                buckets.append((edge, below))
            took.add_metric((row.profile,), buckets=buckets, sum_value=row.seconds)
    yield events
    yield took
    through = TrafficCursor.objects.values_list("through", flat=True).first()
    said = [((), through.timestamp())] if through else []
    yield _gauge("rmhub_events_counted_timestamp_seconds", "All events before this time are counted.", (), said)
