"""Incidents: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdOut, Instant, OptionalReasonBody, ReasonBody, StrictBody, Text
from messaging.choices import IncidentState, NoteKind
from messaging.deliveries.serializers.triggers import TriggerRef
from messaging.journal.incidents import COMMENT_MOST
from messaging.messages.serializers.messages import PairRef
from messaging.overview.serializers import CauseDocumentation


class MessageRef(serializers.Serializer):
    """A message, by id and MessageId."""

    id = IdOut("msg")
    message_id = serializers.CharField()


class IncidentSerializer(serializers.Serializer):
    """Something that a person must look at."""

    id = IdOut("inc")
    number = serializers.IntegerField(help_text="INC-<number>")
    state = serializers.ChoiceField(choices=IncidentState.choices)
    cause = serializers.CharField()
    cause_documentation = CauseDocumentation()
    detail = serializers.CharField()
    pair = PairRef(allow_null=True)
    trigger = TriggerRef(allow_null=True)
    message = MessageRef(allow_null=True)
    transaction = IdOut("txn", source="coordination_id", allow_null=True, help_text="Atomic transaction, if any.")
    part_of = IdOut(
        "inc",
        source="part_of_id",
        allow_null=True,
        help_text="The incident about the same trouble that was there first, and with which this one closes.",
    )
    occurrences = serializers.IntegerField()
    opened_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(help_text="A user name; empty = nobody yet.")
    snoozed_until = serializers.DateTimeField(allow_null=True, help_text="Put off: it needs nobody before then.")
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_by = serializers.CharField()
    resolution = serializers.CharField()
    version = serializers.IntegerField(help_text="Counts the actions of people: what If-Match compares.")


class AssignBody(OptionalReasonBody):
    """Whom it is given to."""

    owner = Text(max_length=150, help_text="Name of an active user whose role is operator or admin.")


class SnoozeBody(ReasonBody):
    """Until when it is put off."""

    until = Instant(allow_null=True, help_text="At most 30 days away; null: no longer put off.")


class ResolveBody(ReasonBody):
    """What was done, and what it was."""

    found = Text(max_length=500, required=False, allow_blank=True, default="", help_text="What it was.")


class CommentBody(StrictBody):
    """Something to remember."""

    text = Text(max_length=COMMENT_MOST)


class CommentSerializer(serializers.Serializer):
    """What a person wrote to an incident, or did with it."""

    kind = serializers.ChoiceField(choices=NoteKind.choices)
    author = serializers.CharField()
    text = serializers.CharField()
    at = serializers.DateTimeField()


class IncidentMomentSerializer(serializers.Serializer):
    """One row of an incident's life."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=["event", "attempts", "comment", "person", "notification"])
    title = serializers.CharField()
    detail = serializers.CharField()
    by = serializers.CharField(help_text="Empty = the hub.")
    tone = serializers.ChoiceField(choices=["good", "watch", "bad", "plain"])


class PastIncidentSerializer(serializers.Serializer):
    """A resolved incident of the same cause."""

    nearness = serializers.CharField(help_text="same pair, same partner, same trigger, or empty.")
    incident = IncidentSerializer()


class RecoverySerializer(serializers.Serializer):
    """Why it seems to be over."""

    since = serializers.DateTimeField()
    sentence = serializers.CharField()


class IncidentStorySerializer(serializers.Serializer):
    """All that happened around an incident, oldest first, and what helped before."""

    moments = IncidentMomentSerializer(many=True)
    similar = PastIncidentSerializer(many=True)
    recovery = RecoverySerializer(allow_null=True, help_text="null: nothing says that it is over.")


class PartnerNoteSerializer(serializers.Serializer):
    """The beginning of a letter to the partner."""

    subject = serializers.CharField()
    text = serializers.CharField()
    contact = serializers.CharField(help_text="Whom we know there.")
