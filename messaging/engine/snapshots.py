"""Rows to the protocol core's frozen values and back."""

from __future__ import annotations

import uuid
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from messaging.claim import lease_seconds
from messaging.models import Pair
from messaging.protocol.acceptance import AcceptancePolicy, InboundState
from messaging.protocol.envelope import PartyId, WriterOptions
from messaging.protocol.pair_state import Flow, Gate, PairState, SenderPolicy
from messaging.protocol.repeating import Policy
from messaging.protocol.streams.outgoing import Policy as StreamPolicy
from partners.terms import Terms

OUTBOUND_FIELDS = (
    "flow",
    "gate",
    "in_flight_id",
    "transmission_id",
    "retries",
    "transport_attempts",
    "last_sequence",
    "due_at",
    "holding_since",
    "cause",
    "cause_detail",
    "queued",
    "done",
    "changed_at",
    "last_success_at",
    "version",
    "probing",
)
REPEATABLE_FIELDS = (*OUTBOUND_FIELDS, "out_now")
INBOUND_FIELDS = (
    "last_sequence",
    "last_message_id",
    "takes_any_number",
    "done",
    "duplicates",
    "rejected",
    "last_success_at",
)


def outbound_state(pair: Pair) -> PairState:
    """The sender machine's view of an outbound pair."""
    return PairState(
        flow=Flow(pair.flow),
        gate=Gate(pair.gate),
        in_flight=str(pair.in_flight_id) if pair.in_flight_id else "",
        retries=pair.retries,
        transport_attempts=pair.transport_attempts,
        queued=pair.queued,
        last_sequence=pair.last_sequence,
        due_at=pair.due_at,
        holding_since=pair.holding_since,
        cause=pair.cause,
    )


def apply_outbound(pair: Pair, state: PairState, now: datetime) -> None:
    """Writes a machine state into the row (in memory). `changed_at` and `version` follow suspension and release."""
    if (pair.flow == Flow.SUSPENDED) != (state.flow is Flow.SUSPENDED) or pair.gate != state.gate:
        pair.changed_at = now
        pair.version += 1
    pair.flow = state.flow.value
    pair.gate = state.gate.value
    pair.in_flight_id = uuid.UUID(state.in_flight) if state.in_flight else None
    pair.retries = state.retries
    pair.transport_attempts = state.transport_attempts
    pair.queued = state.queued
    pair.last_sequence = state.last_sequence
    pair.due_at = state.due_at
    pair.holding_since = state.holding_since
    pair.cause = state.cause
    if not state.cause:
        pair.cause_detail = ""


def inbound_state(pair: Pair) -> InboundState:
    """The acceptance rules' view of an inbound pair."""
    return InboundState(pair.last_sequence or None, pair.last_message_id, pair.takes_any_number)


@cache
def _shared(policy: type) -> tuple[str, ...]:
    known = {one.name for one in fields(Terms)}
    return tuple(one.name for one in fields(policy) if one.name in known)


def _said(policy: type, terms: Terms) -> dict[str, Any]:
    """The parameters of a policy that the terms have under the same names."""
    return {name: getattr(terms, name) for name in _shared(policy)}


def sender_policy(terms: Terms, *, probing: bool = False) -> SenderPolicy:
    """TPA parameters for the sender machine. The lease outlasts every time limit of the transport.

    `probing`: of a pair that was resumed with one message first, which is not retried.
    """
    said = _said(SenderPolicy, terms)
    if probing:
        said["retries"] = 0
    return SenderPolicy(**said, lease=lease_seconds(terms), probe=probing)


def repeat_policy(terms: Terms) -> Policy:
    """The agreement's parameters for the machine of a repeatable request."""
    return Policy(
        window=timedelta(seconds=terms.partner_window),
        initial=terms.repeat_interval,
        maximum=terms.repeat_interval_max,
        lease=lease_seconds(terms),
    )


def stream_policy(terms: Terms, *, probing: bool = False) -> StreamPolicy:
    """The agreement's parameters for the sender of a transactional stream.

    `probing`: one message at a time, none of those that wait, and no resends.
    """
    said = _said(StreamPolicy, terms)
    lease = lease_seconds(terms)
    if probing:
        said["retries"] = 0
        return StreamPolicy(**said, window=1, concurrency=1, lease=lease).unrecovered()
    return StreamPolicy(**said, window=terms.max_in_flight, concurrency=terms.stream_concurrency, lease=lease)


def acceptance_policy(terms: Terms) -> AcceptancePolicy:
    """The agreement's switches for the acceptance rules."""
    return AcceptancePolicy(strict_sequence=terms.strict_sequence, detect_repeats=terms.detect_repeats)


def writer_options(terms: Terms) -> WriterOptions:
    """The agreement's switches for the strict writer."""
    return WriterOptions(namespace=terms.write_namespace, padded_sequence_number=terms.write_padded_numbers)


def party_ids(identifiers: tuple[tuple[str, str], ...]) -> tuple[PartyId, ...]:
    """(type, value) pairs of an agreement as wire identifiers."""
    return tuple(PartyId(value=value, context=context) for context, value in identifiers)
