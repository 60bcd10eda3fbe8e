"""What the console's pages show, put together: rows of pairs, and all that a pair's page holds.

The same facts as the API's, from the same tables; counts come from the pairs (thousands), never from the message store.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, Q

from messaging import profile
from messaging.choices import PAIR_LOOKS, Direction, IncidentState, Look, TriggerState
from messaging.deliveries.selectors import in_doubt, triggers
from messaging.messages.selectors import messages
from messaging.models import (
    AuditEntry,
    Event,
    Incident,
    Message,
    Pair,
    Transmission,
)
from messaging.notifications import selectors as events
from messaging.overview.selectors import records
from messaging.pairs.selectors import newer, pairs
from messaging.pairs.selectors.diagnosis import diagnose
from messaging.pairs.selectors.diagnosis_parts import Diagnosis
from messaging.pairs.selectors.sequence import StreamState, flight, stream_state
from messaging.pairs.selectors.verbs import VerbState, verb_states
from messaging.profile import terms_in_force
from messaging.transactions.selectors import coordinations
from partners import registry, visibility
from partners.models import Agreement
from partners.terms import Terms
from rmhub import clock

# States in which documents do not flow until somebody, or the partner, does something.
TROUBLED = ("suspended", "holding", "retrying", "paused", "silent")
UNRESOLVED = (IncidentState.OPEN, IncidentState.ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class NavCounts:
    """Counters of the navigation: only what somebody must act on. `in_doubt` has the `transactions` in it."""

    suspended: int
    incidents: int
    triggers: int
    in_doubt: int
    transactions: int


@dataclass(frozen=True, slots=True)
class PairRow:
    """A pair with what is the matter with it. `incident`: the newest that is unresolved; its owner is the pair's."""

    pair: Pair
    look: Look
    diagnosis: Diagnosis
    terms: Terms | None = None
    incident: Incident | None = None

    @property
    def head(self) -> Message | None:
        return self.pair.in_flight


@dataclass(frozen=True, slots=True)
class PairScreen:
    """All of a pair's page. Lists are cut; the full ones have pages of their own.

    `requests`: its messages are in flight one by one, and `flying` those that are on the way, the first ones first, in
    `retried` pairs with retries; or those of its stream, if it has `streams`; or messages of `transactions`, of which
    `unanswered` are not done.
    """

    pair: Pair
    look: Look
    diagnosis: Diagnosis
    head: Message | None
    terms: Terms | None
    verbs: list[VerbState]
    queue: list[Message]
    attempts: list[Transmission]
    recent: list[Message]
    events: list[Event]
    incidents: list[Incident]
    audit: list[AuditEntry]
    requests: bool = False
    retried: bool = False
    flying: list[Message] = field(default_factory=list)
    streams: StreamState = field(default_factory=StreamState)
    transactions: bool = False
    unanswered: int = 0


def nav_counts() -> NavCounts:
    """One query; a few for whoever is limited to some partners."""
    if visibility.visible() is not None:
        doubtful = coordinations.doubtful_count()
        return NavCounts(
            pairs.pairs(states=("suspended",)).count(),
            records.incidents(states=UNRESOLVED, snoozed=False, parts=False).count(),
            triggers.triggers(state=(TriggerState.SUSPENDED,)).count(),
            in_doubt.counts(clock.now()).all + doubtful,
            doubtful,
        )
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM messaging_pair WHERE flow = 'suspended'),"  # noqa: S608  (constants)
            " (SELECT count(*) FROM messaging_incident"
            "   WHERE state <> 'resolved' AND part_of_id IS NULL AND (snoozed_until IS NULL OR snoozed_until <= %s)),"
            f" (SELECT count(*) FROM messaging_trigger WHERE state = 'suspended'), {in_doubt.COUNTS},"
            f" {coordinations.COUNT}",
            [clock.now(), *in_doubt.count_parameters(clock.now())],
        )
        suspended, incidents, stopped, inbound, outbound, doubtful = cursor.fetchone()
    return NavCounts(suspended, incidents, stopped, inbound + outbound + doubtful, doubtful)


def pair_rows(found: Iterable[Pair], now: datetime) -> list[PairRow]:
    """Rows for pairs that `pairs.pairs` read; one query for all of them, two when some carry requests."""
    chosen = [(pair, terms_of(pair)) for pair in found]
    unresolved: dict[uuid.UUID, list[Incident]] = {pair.pk: [] for pair, _ in chosen}
    if chosen:
        open_ones = Incident.objects.filter(pair__in=list(unresolved)).exclude(state=IncidentState.RESOLVED)
        for one in open_ones.order_by("-number"):
            if one.pair_id is not None:
                unresolved[one.pair_id].append(one)
    said = diagnoses((pair for pair, _ in chosen), now)
    rows = []
    for pair, terms in chosen:
        incident = incident_of(pair, unresolved[pair.pk])
        rows.append(PairRow(pair, PAIR_LOOKS[pairs.state_of(pair)], said[pair.pk], terms, incident))
    return rows


def incident_of(pair: Pair, incidents: Iterable[Incident]) -> Incident | None:
    """Of a pair's incidents, the newest first: the unresolved one about what is the matter now, else the newest."""
    unresolved = [one for one in incidents if one.state != IncidentState.RESOLVED]
    cause = {"silent": "silent", "resync": "needs_resync"}.get(pairs.state_of(pair), pair.cause)
    return next((one for one in unresolved if one.cause == cause), unresolved[0] if unresolved else None)


def terms_of(pair: Pair) -> Terms | None:
    """The terms of the message in flight, else those in force for the pair's URIs; None when there are none."""
    if pair.in_flight is not None:
        return registry.current().version(pair.in_flight.agreement_version_id)
    return terms_in_force(pair)


def diagnosis_of(pair: Pair, terms: Terms | None, now: datetime) -> Diagnosis:
    """The diagnosis as the pair's page has it, for the API. Ten queries at most."""
    head = pair.in_flight
    if head is None and pair.flow == "suspended":
        head = pairs.queue(pair.pk).first()
    return _diagnosed(pair, head, terms, now, audit_of(pair) if pair.gate == "paused" else [])


def _diagnosed(
    pair: Pair, head: Message | None, terms: Terms | None, now: datetime, audit: list[AuditEntry]
) -> Diagnosis:
    paused = next((entry for entry in audit if entry.verb == "pair.pause"), None)
    return diagnose(
        pair,
        head,
        terms,
        now,
        paused=(paused.actor, paused.reason) if paused is not None else None,
        repeat_at=pairs.next_repeat(pair.pk) if pair.out_now else None,
        in_doubt=_in_doubt([(pair, terms)]).get(pair.pk, 0),
        signs=newer.signs([(pair, terms)], now).get(pair.pk, ()),
    )


def diagnoses(found: Iterable[Pair], now: datetime) -> dict[uuid.UUID, Diagnosis]:
    """What a list says of each of these pairs: one query when some carry requests, five when some have a cause."""
    chosen = [(pair, terms_of(pair)) for pair in found]
    doubtful = _in_doubt(chosen)
    signs = newer.signs(chosen, now)
    return {
        pair.pk: diagnose(
            pair, pair.in_flight, terms, now, in_doubt=doubtful.get(pair.pk, 0), signs=signs.get(pair.pk, ())
        )
        for pair, terms in chosen
    }


def _in_doubt(chosen: Iterable[tuple[Pair, Terms | None]]) -> dict[uuid.UUID, int]:
    """How many requests of each outbound pair are in doubt, as `diagnose` takes it. One query when some carry any."""
    return in_doubt.outbound_counts(
        pair.pk for pair, terms in chosen if pair.direction == Direction.OUT and profile.carried(pair, terms).one_by_one
    )


def counts_by_state() -> dict[str, int]:
    """How many pairs are in each state, in the order of severity. One query."""
    found = dict(pairs.pairs().order_by().values_list("state").annotate(number=Count("pk")))
    return {state: found.get(state, 0) for state in pairs.STATE_NAMES}


def pair_screen(pair: Pair, now: datetime) -> PairScreen:
    """Everything about one pair that `pairs.pair` read. A fixed number of queries."""
    inbound = pair.direction == Direction.IN
    terms = terms_of(pair)
    audit = audit_of(pair)
    queue = [] if inbound else list(pairs.queue(pair.pk)[:10])
    head = pair.in_flight or (queue[0] if queue and pair.flow == "suspended" else None)
    speaks = profile.carried(pair, terms)
    requests = speaks.one_by_one
    streams = stream_state(pair, terms)
    transactions = not speaks.carries_documents
    if streams.outgoing is not None:
        flying = list(flight(pair.pk)[:10])
    elif transactions:
        flying = list(pairs.unanswered(pair.pk)[:10])
    else:
        flying = list(pairs.in_flight(pair.pk)[:10]) if pair.out_now else []
    return PairScreen(
        pair=pair,
        look=PAIR_LOOKS[pairs.state_of(pair)],
        diagnosis=_diagnosed(pair, head, terms, now, audit),
        head=head,
        terms=terms,
        verbs=verb_states(pair, terms),
        queue=queue,
        attempts=[] if inbound else list(pairs.transmissions(pair.pk)[:15]),
        recent=list(messages.with_names(Message.objects.filter(pair=pair).order_by("-id"))[:20]) if inbound else [],
        events=list(events.of_pair(pair.pk)[:15]),
        incidents=list(records.incidents(pair_id=pair.pk).order_by("-number")[:8]),
        audit=audit,
        requests=requests,
        retried=speaks.acknowledged_singly,
        flying=flying,
        streams=streams,
        transactions=transactions,
        unanswered=pairs.unanswered(pair.pk).count() if transactions and not inbound else 0,
    )


def audit_of(target: Any, limit: int = 15) -> list[AuditEntry]:
    """What people did to one object that has a public id, newest first."""
    kind = target._meta.model_name
    return list(records.audit_entries(object_type=kind, object_id=target.public_id).order_by("-id")[:limit])


def audit_of_agreement(agreement: Agreement, limit: int = 15) -> list[AuditEntry]:
    """What people did to an agreement and to its versions, newest first: those are edited and put in force."""
    keys = [str(one.pk) for one in agreement.versions.all()]
    about = Q(object_type="agreement", object_id=agreement.public_id)
    about |= Q(object_type="agreementversion", object_id__in=keys)
    return list(records.audit_entries().filter(about).order_by("-id")[:limit])
