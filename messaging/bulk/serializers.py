"""Bulk operations and their items: representations and bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut, RowSerializer, StrictBody, Text, Whole
from messaging.bulk.services.jobs import ACTIONS, MAX_IDS, allowed_verbs
from messaging.bulk.services.plans import MAX_STAGGER, MODES
from messaging.choices import Interface, ItemState
from messaging.deliveries.services.settling import MAX_REMIND, MIN_REMIND
from messaging.models import BulkJob, BulkJobItem
from rmhub.ids import public_id

DECISIONS = sorted({decision for action in ACTIONS.values() for decision in action.decisions})
VERBS = ("execute", "discard", "cancel", "retry")
_DECISION = "`settle_deliveries`: duplicate, resubmit, later, ask. `settle_messages`: delivered, resubmit, later."
_FILTER = (
    "All that this means now. In doubt: one evidence group as GET /in-doubt lists them. Else the parameters of the "
    "list of these objects: GET /pairs, /messages, /incidents. Of messages, when nothing is said of time and nothing "
    "narrows it to a few, those of the newest 24 hours; `window`: `7d`, `30d`, or `all`."
)


class ParametersBody(StrictBody):
    """What actions take."""

    decision = serializers.ChoiceField(choices=DECISIONS, required=False, help_text=_DECISION)
    remind_in = Whole(
        min_value=MIN_REMIND, max_value=MAX_REMIND, required=False, help_text="Decision `later`: seconds from now."
    )
    mode = serializers.ChoiceField(choices=MODES, required=False, help_text="`pairs_resume`: how each pair begins.")
    stagger = Whole(
        min_value=0, max_value=MAX_STAGGER, required=False, help_text="`pairs_resume`: seconds between two pairs."
    )
    owner = Text(max_length=150, required=False, help_text="`incidents_assign`: a user name.")


PARAMETERS = ("decision", "remind_in", "mode", "stagger", "owner")


class PlanBody(ParametersBody):
    """One action over many objects."""

    action = serializers.ChoiceField(choices=sorted(ACTIONS))
    filter = serializers.DictField(child=Text(max_length=512), required=False, help_text=_FILTER)
    ids = serializers.ListField(
        child=Text(max_length=40), required=False, allow_empty=False, max_length=MAX_IDS, help_text="Or these."
    )
    reason = Text(
        max_length=2000, min_length=3, required=False, help_text="Given: executed at once, and not only planned."
    )
    expected = Whole(min_value=1, max_value=2_147_483_647, required=False, help_text="With `reason`: how many you saw.")


class ExecuteBody(ParametersBody):
    """The go-ahead for a plan. Parameters replace those of the plan."""

    expect_count = Whole(min_value=1, max_value=2_147_483_647, help_text="How many the plan matched.")
    reason = Text(max_length=2000, min_length=3, help_text="Why, for the audit log.")


class RetryBody(ParametersBody):
    """What is to be different this time, if anything."""


class PlanGroupSerializer(serializers.Serializer):
    """Objects of a plan that have these values in common."""

    values = serializers.DictField(child=serializers.CharField())
    count = serializers.IntegerField()


class JobSerializer(RowSerializer):
    """A bulk operation and how far it is."""

    id = IdOut("job")
    action = serializers.ChoiceField(choices=sorted(ACTIONS))
    decision = serializers.SerializerMethodField(help_text="Empty for an action that takes none.")
    remind_in = serializers.SerializerMethodField(help_text="Decision `later`: seconds.")
    parameters = serializers.DictField(read_only=True, help_text="All that the action takes.")
    interface = serializers.ChoiceField(choices=Interface.choices)
    matched = serializers.IntegerField(source="total", help_text="How many objects it means; the same as `total`.")
    left_out = serializers.SerializerMethodField(help_text="Chosen by id, and not in a state in which it can be done.")
    groups = serializers.SerializerMethodField(help_text="What they have in common, the largest first; 50 at most.")
    sample = serializers.SerializerMethodField(help_text="Ids of the first five.")
    allowed_actions = serializers.SerializerMethodField()

    class Meta:
        model = BulkJob
        fields = (
            *("id", "action", "decision", "remind_in", "parameters", "what", "state", "actor", "interface", "reason"),
            *("matched", "left_out", "groups", "sample", "total", "done", "refused", "created_at", "expires_at"),
            *("finished_at", "allowed_actions"),
        )
        extra_kwargs = {
            "what": {"help_text": "Which objects, in words."},
            "reason": {"help_text": "Empty while it is planned."},
            "refused": {"help_text": "Could not be done; its item says why."},
            "created_at": {"help_text": "When it was planned, then when it was begun."},
        }

    def get_decision(self, job: BulkJob) -> str:
        return str(job.parameters.get("decision", ""))

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_remind_in(self, job: BulkJob) -> int | None:
        found: int | None = job.parameters.get("remind_in")
        return found

    def get_left_out(self, job: BulkJob) -> int:
        return int(job.plan.get("left_out", 0))

    @extend_schema_field(PlanGroupSerializer(many=True))
    def get_groups(self, job: BulkJob) -> list[dict[str, Any]]:
        return list(job.plan.get("groups", []))

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_sample(self, job: BulkJob) -> list[str]:
        return list(job.plan.get("sample", []))

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=VERBS)))
    def get_allowed_actions(self, job: BulkJob) -> list[str]:
        return list(allowed_verbs(job))


class JobItemSerializer(serializers.Serializer):
    """One object of a bulk operation, and what came of it."""

    object = serializers.CharField(help_text="Its id.")
    state = serializers.ChoiceField(choices=ItemState.choices)
    detail = serializers.CharField(help_text="Refused: why. `ask_partner`: the answer.")
    not_before = serializers.DateTimeField(allow_null=True, help_text="Staggered: its turn is not before then.")


def represent_item(row: BulkJobItem, job: BulkJob) -> dict[str, Any]:
    """As JobItemSerializer shows it."""
    named = public_id(ACTIONS[job.action].prefix, row.object_id)
    shown = {"object": named, "state": row.state, "detail": row.detail, "not_before": row.not_before}
    data: dict[str, Any] = dict(JobItemSerializer(shown).data)
    return data
