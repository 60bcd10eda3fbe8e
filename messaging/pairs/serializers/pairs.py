"""Pairs: representation, and the bodies of their verbs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework import serializers

from messaging.api.fields import IdOut, ReasonBody, Whole
from messaging.choices import Direction
from messaging.messages.serializers.messages import PartyRef
from messaging.models import Pair
from messaging.overview.serializers import CauseSerializer
from messaging.pairs.selectors.diagnosis import verb_states
from messaging.pairs.selectors.diagnosis_parts import Diagnosis
from messaging.pairs.selectors.pairs import STATE_NAMES
from messaging.pairs.selectors.screens import diagnoses, diagnosis_of, terms_of
from messaging.pairs.selectors.streams import StreamState, stream_state
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.pair_state import Flow, Gate

ACTIONS = (
    "resume",
    "retry-now",
    "skip-head",
    "restart-sequence",
    "pause",
    "release",
    "expect-sequence",
    "clear-resync",
)


class ExpectSequenceBody(ReasonBody):
    """Which sequence number is taken as next."""

    expected = Whole(min_value=1, max_value=MAX_SEQUENCE_NUMBER)


class DiagnosisSerializer(serializers.Serializer):
    """Why the pair is as it is, and what happens next."""

    sentence = serializers.CharField(help_text="All of it, for a person.")
    headline = serializers.CharField()
    why = serializers.CharField()
    outlook = serializers.CharField(help_text="What the hub does next by itself.")
    advice = serializers.CharField(help_text="What a person can do.")
    cause = CauseSerializer(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    next_attempt_at = serializers.DateTimeField(allow_null=True, source="next_at")
    attempt = serializers.IntegerField()
    max_attempts = serializers.IntegerField(help_text="1 send and the Retries of the agreement.")
    blocked = serializers.IntegerField(help_text="Documents that cannot go, the one in flight included.")


class HeadSerializer(serializers.Serializer):
    """The message in flight: everything else of the pair waits behind it."""

    id = IdOut("msg")
    message_id = serializers.CharField()
    state = serializers.CharField()
    sequence_number = serializers.IntegerField(allow_null=True)
    attempts = serializers.IntegerField()


class PairSerializer(serializers.Serializer):
    """A Sender-Receiver pair of messaging service URIs."""

    id = IdOut("pair")
    code = serializers.CharField()
    direction = serializers.ChoiceField(choices=Direction.choices)
    sender_uri = serializers.CharField()
    receiver_uri = serializers.CharField()
    own_party = PartyRef()
    partner = PartyRef()
    state = serializers.ChoiceField(choices=STATE_NAMES, help_text="Flow and gate in one word.")
    flow = serializers.ChoiceField(choices=[flow.value for flow in Flow])
    gate = serializers.ChoiceField(choices=[gate.value for gate in Gate])
    cause = serializers.CharField()
    cause_detail = serializers.CharField()
    diagnosis = DiagnosisSerializer()
    head = HeadSerializer(allow_null=True, source="in_flight")
    queued = serializers.IntegerField(help_text="Messages that wait behind the one in flight.")
    out_now = serializers.IntegerField(help_text="Repeatable requests: messages on the way at this moment.")
    last_sequence = serializers.IntegerField(help_text="The sequence number that was given, or accepted, last.")
    done = serializers.IntegerField(help_text="Delivered, or accepted.")
    duplicates = serializers.IntegerField()
    rejected = serializers.IntegerField()
    changed_at = serializers.DateTimeField(allow_null=True)
    last_success_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    probing = serializers.BooleanField(
        help_text="Resumed with one message first: until it is delivered the first failure suspends."
    )
    expected_every = serializers.IntegerField(help_text="A document is expected every so many seconds; 0 = no rhythm.")
    silence_grace = serializers.IntegerField(help_text="Seconds beyond that before the pair is called silent.")
    silent_since = serializers.DateTimeField(allow_null=True, help_text="When the awaited document was due.")
    resync_since = serializers.DateTimeField(
        allow_null=True,
        help_text="The hub's memory was lost then, and nobody has compared both sides yet: what comes in may be a "
        "repeat. Null: nothing is missing.",
    )
    resync_from = serializers.DateTimeField(
        allow_null=True, help_text="From when on things may be missing here; null when that is not known."
    )
    takes_any_number = serializers.BooleanField(
        help_text="Inbound: the number that should come next was lost, so the next message is taken with its own."
    )
    version = serializers.IntegerField(
        help_text="Counts what people do to it, and suspensions: what If-Match compares."
    )
    allowed_actions = serializers.ListField(child=serializers.ChoiceField(choices=ACTIONS))


class OutgoingStreamSerializer(serializers.Serializer):
    """The stream that an outbound pair sends under."""

    guid = serializers.CharField(source="stream.source", help_text="Ours, in streamId.")
    tx_sequence_id = serializers.CharField(help_text="OutgoingTxSequenceID: an unsigned 64-bit number in decimal.")
    next_number = serializers.IntegerField(source="stream.next_number", help_text="OutgoingTxSequenceNumber.")
    acked_number = serializers.IntegerField(
        source="stream.acked_number", help_text="Covered by order acknowledgements."
    )
    in_flight = serializers.IntegerField(help_text="Sent and not acknowledged.")
    window = serializers.IntegerField(help_text="How many may be.")
    lanes = serializers.IntegerField(help_text="How many requests of it may be on the wire at once.")
    confirming = serializers.IntegerField(help_text="Acknowledged, and waiting for their final receipts.")
    resend_index = serializers.IntegerField(
        source="stream.resend_index", help_text="How often all unacknowledged went out again without progress."
    )
    next_resend_at = serializers.DateTimeField(allow_null=True, help_text="Null when nothing is unacknowledged.")
    started_at = serializers.DateTimeField(source="stream.started_at")


class IncomingStreamSerializer(serializers.Serializer):
    """How far one sender of an inbound pair is."""

    guid = serializers.CharField(source="source", help_text="The sender's, in streamId.")
    tx_sequence_id = serializers.CharField(help_text="IncomingTxSequenceID, in decimal; 0 before the first.")
    number = serializers.IntegerField(help_text="IncomingTxSequenceNumber: accepted last.")
    reject_count = serializers.IntegerField(help_text="Refused since the last that was accepted.")
    last_access_at = serializers.DateTimeField(allow_null=True)
    last_order_ack_at = serializers.DateTimeField(allow_null=True)
    order_ack_due_at = serializers.DateTimeField(allow_null=True, help_text="Null: the timer is off.")
    receipts_to = serializers.CharField(help_text="Where it wants receipts; never used as an address.")


class StreamStateSerializer(serializers.Serializer):
    """Transactional streams of a pair (spec 3)."""

    outgoing = OutgoingStreamSerializer(allow_null=True, help_text="Null before the first message.")
    incoming = IncomingStreamSerializer(many=True, help_text="The sender that sent last first; 50 at most.")


class PairDetailSerializer(PairSerializer):
    """A pair with its streams and its run-book."""

    runbook = serializers.CharField(allow_blank=True, help_text="Markdown; shown when the pair is in trouble.")
    stream = StreamStateSerializer(allow_null=True, help_text="Null for pairs of other profiles.")


def represent(found: Sequence[Pair], now: datetime) -> list[dict[str, Any]]:
    """Pairs that `selectors.pairs` read, as PairSerializer shows them. One query at most."""
    said = diagnoses(found, now)
    return [_represented(pair, said[pair.pk]) for pair in found]


def _represented(pair: Pair, diagnosis: Diagnosis) -> dict[str, Any]:
    terms = terms_of(pair)
    pair.diagnosis = diagnosis  # type: ignore[attr-defined]
    pair.allowed_actions = [verb.slug for verb in verb_states(pair, terms) if verb.enabled]  # type: ignore[attr-defined]
    data: dict[str, Any] = dict(PairSerializer(pair).data)
    return data


def represent_one(pair: Pair, now: datetime) -> dict[str, Any]:
    """One of them with its streams, as PairDetailSerializer shows it, and all that its page says of it."""
    terms = terms_of(pair)
    state = stream_state(pair, terms)
    shown = StreamStateSerializer(_decimal(state)).data if state.applies else None
    return {**_represented(pair, diagnosis_of(pair, terms, now)), "runbook": pair.runbook, "stream": shown}


def _decimal(state: StreamState) -> StreamState:
    """With ids that are written as integers, whatever the database makes of them."""
    for row in state.incoming:
        row.tx_sequence_id = int(row.tx_sequence_id)
    return state
