"""Pairs: representation, and the bodies of their verbs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers

from messaging.api.serializers.fields import IdOut, ReasonBody, Whole
from messaging.api.serializers.messages import PartyRef
from messaging.choices import Direction
from messaging.models import Pair
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.sender import Flow, Gate
from messaging.selectors.diagnosis import diagnose, verb_states
from messaging.selectors.pairs import STATE_NAMES
from messaging.selectors.screens import terms_of

ACTIONS = ("resume", "retry-now", "skip-head", "restart-sequence", "pause", "release", "expect-sequence")


class ExpectSequenceBody(ReasonBody):
    """Which sequence number is taken as next."""

    expected = Whole(min_value=1, max_value=MAX_SEQUENCE_NUMBER)


class CauseSerializer(serializers.Serializer):
    """A cause of the closed list in docs/causes.md."""

    code = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    sentence = serializers.CharField(help_text="What happened.")
    action = serializers.CharField(help_text="What to do.")
    retryable = serializers.BooleanField(help_text="Whether time alone may mend it.")


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
    version = serializers.IntegerField(
        help_text="Counts what people do to it, and suspensions: what If-Match compares."
    )
    allowed_actions = serializers.ListField(child=serializers.ChoiceField(choices=ACTIONS))


def represent(pair: Pair, now: datetime) -> dict[str, Any]:
    """A pair that `selectors.pairs` read, as PairSerializer shows it. Makes no query."""
    terms = terms_of(pair)
    pair.diagnosis = diagnose(pair, pair.in_flight, terms, now)  # type: ignore[attr-defined]
    pair.allowed_actions = [verb.slug for verb in verb_states(pair, terms) if verb.enabled]  # type: ignore[attr-defined]
    data: dict[str, Any] = dict(PairSerializer(pair).data)
    return data
