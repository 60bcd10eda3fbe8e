"""Bulk jobs and their items: representations and bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.serializers.fields import IdOut, ReasonBody, StrictBody, Text, Whole
from messaging.choices import Interface, ItemState, JobState
from messaging.models import BulkJob, BulkJobItem
from messaging.services.jobs import ACTIONS, MAX_IDS, OPEN
from messaging.services.settling import MAX_REMIND, MIN_REMIND
from rmhub.ids import public_id

# Action -> what its objects are.
PREFIXES = {"settle_deliveries": "del", "redeliver_failed": "del", "settle_messages": "msg"}
DECISIONS = sorted({decision for action in ACTIONS.values() for decision in action.decisions})
_DECISION = "`settle_deliveries`: duplicate, resubmit, later, ask. `settle_messages`: delivered, resubmit, later."


class FilterBody(StrictBody):
    """One evidence group, as GET /in-doubt lists them."""

    trigger = Text(max_length=40, required=False, help_text="Deliveries: id of a trigger (`trg_...`).")
    doubt = Text(max_length=40, required=False, help_text="`settle_deliveries`: why they are in doubt.")
    pair = Text(max_length=40, required=False, help_text="`settle_messages`: id of a pair (`pair_...`).")
    cause = Text(max_length=60, required=False, help_text="`settle_messages`: why they are in doubt.")


class JobBody(ReasonBody):
    """One decision over many."""

    action = serializers.ChoiceField(choices=sorted(ACTIONS))
    decision = serializers.ChoiceField(choices=DECISIONS, required=False, help_text=_DECISION)
    remind_in = Whole(
        min_value=MIN_REMIND, max_value=MAX_REMIND, required=False, help_text="Decision `later`: seconds from now."
    )
    filter = FilterBody(required=False, help_text="All of one evidence group, as they are now.")
    ids = serializers.ListField(
        child=Text(max_length=40), required=False, allow_empty=False, max_length=MAX_IDS, help_text="Or these."
    )
    expected = Whole(min_value=1, max_value=2_147_483_647, required=False, help_text="How many you saw.")


class JobSerializer(serializers.Serializer):
    """A bulk job and how far it is."""

    id = IdOut("job")
    action = serializers.ChoiceField(choices=sorted(ACTIONS))
    decision = serializers.SerializerMethodField(help_text="Empty for an action that takes none.")
    remind_in = serializers.SerializerMethodField(help_text="Decision `later`: seconds.")
    what = serializers.CharField(help_text="Which objects, in words.")
    state = serializers.ChoiceField(choices=JobState.choices)
    actor = serializers.CharField()
    interface = serializers.ChoiceField(choices=Interface.choices)
    reason = serializers.CharField()
    total = serializers.IntegerField()
    done = serializers.IntegerField()
    refused = serializers.IntegerField(help_text="Could not be done; its item says why.")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    allowed_actions = serializers.SerializerMethodField()

    def get_decision(self, job: BulkJob) -> str:
        return str(job.parameters.get("decision", ""))

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_remind_in(self, job: BulkJob) -> int | None:
        found: int | None = job.parameters.get("remind_in")
        return found

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=["cancel"])))
    def get_allowed_actions(self, job: BulkJob) -> list[str]:
        return ["cancel"] if job.state in OPEN else []


class JobItemSerializer(serializers.Serializer):
    """One object of a bulk job, and what came of it."""

    object = serializers.CharField(help_text="Id of a delivery or a message.")
    state = serializers.ChoiceField(choices=ItemState.choices)
    detail = serializers.CharField(help_text="Refused: why.")


def represent_item(row: BulkJobItem, job: BulkJob) -> dict[str, Any]:
    """As JobItemSerializer shows it."""
    named = public_id(PREFIXES[job.action], row.object_id)
    data: dict[str, Any] = dict(JobItemSerializer({"object": named, "state": row.state, "detail": row.detail}).data)
    return data
