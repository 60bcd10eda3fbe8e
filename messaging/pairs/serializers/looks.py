"""What is looked at closely on a pair or a message: timeline, sequence, diagnosis, probes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import IdOut, StrictBody, Text, Whole
from messaging.messages.selectors.diagram import SCOPES, Diagram
from messaging.models import Pair, ProbeReport
from messaging.pairs.selectors.sequence import WORDS
from messaging.pairs.serializers.pairs import DiagnosisSerializer
from messaging.pairs.services import settings as pair_settings
from messaging.pairs.services.operating import MODES

_KINDS = ("message", "answer", "probe", "wait", "mark")
_OUTCOMES = ("arrived", "lost", "refused", "open", "unknown", "")


class ResumeBody(StrictBody):
    """How a pair is resumed, and why."""

    reason = Text(max_length=2000, min_length=3, help_text="Why, for the audit log.")
    mode = serializers.ChoiceField(
        choices=MODES,
        required=False,
        default="all",
        help_text="probe: one message first, without retries; its first failure suspends the pair again.",
    )


class PairSettingsBody(StrictBody):
    """What is changed of a pair's settings; what is left out stays."""

    reason = Text(max_length=2000, min_length=3, help_text="Why, for the audit log.")
    expected_every = Whole(
        min_value=0, max_value=pair_settings.LONGEST, required=False, help_text="Seconds; 0 = no rhythm is known."
    )
    silence_grace = Whole(min_value=0, max_value=pair_settings.LONGEST, required=False, help_text="Seconds.")
    runbook = Text(
        max_length=pair_settings.RUNBOOK_MOST,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Markdown; shown when the pair is in trouble.",
    )


class TimelineStepSerializer(serializers.Serializer):
    """One row of a timeline."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(
        choices=_KINDS, help_text="message, answer and probe go from source to target; wait and mark stand at the hub."
    )
    source = serializers.ChoiceField(choices=("app", "hub", "partner"))  # type: ignore[assignment]
    target = serializers.ChoiceField(choices=("app", "hub", "partner"))
    outcome = serializers.ChoiceField(choices=_OUTCOMES, allow_blank=True, help_text="Of what goes over the wire.")
    label = serializers.CharField(allow_blank=True)  # type: ignore[assignment]
    result = serializers.CharField(allow_blank=True, help_text="What came of it, in words.")
    by = serializers.CharField(allow_blank=True, help_text="Who did it, of what people do.")
    attempt = serializers.IntegerField(source="number", help_text="0 for what is no attempt.")
    max_attempts = serializers.IntegerField(source="most", help_text="0 when there is no such number.")
    http_status = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True, help_text="How long it took, or the wait lasted.")
    size = serializers.IntegerField(allow_null=True, help_text="Bytes of the payloads.")
    message = serializers.CharField(allow_blank=True, help_text="Id of the message.")
    transmission = serializers.CharField(allow_blank=True, help_text="Id of the attempt.")
    signal = serializers.CharField(allow_blank=True, help_text="Id of the acknowledgement or error message.")
    delivery = serializers.CharField(allow_blank=True)
    probe = serializers.CharField(allow_blank=True)
    repeated = serializers.IntegerField(help_text="How many alike this row stands for.")
    until = serializers.DateTimeField(allow_null=True, help_text="When the last of them was, or the wait ended.")


class TimelineSerializer(serializers.Serializer):
    """What happened between application, hub and partner, in the order of time."""

    scope = serializers.ChoiceField(choices=tuple(SCOPES))
    about = serializers.CharField(allow_null=True, help_text="Id of the message, when it is about one.")
    failed_only = serializers.BooleanField()
    cut = serializers.BooleanField(help_text="There was more.")
    folded = serializers.BooleanField(help_text="What went alike stands together.")
    steps = TimelineStepSerializer(many=True)


class CellSerializer(serializers.Serializer):
    """One message by its number."""

    number = serializers.IntegerField(help_text="Of one that waits: the number that it will get.")
    state = serializers.ChoiceField(choices=tuple(WORDS), source="what")
    message = serializers.CharField(allow_blank=True)
    action = serializers.CharField(source="name", allow_blank=True)


class GapSerializer(serializers.Serializer):
    """Numbers that no message has."""

    first = serializers.IntegerField()
    last = serializers.IntegerField()


class SequenceSerializer(serializers.Serializer):
    """The numbers of a pair around the message that goes first."""

    applies = serializers.BooleanField(help_text="False for repeatable requests, which have no numbers.")
    next_number = serializers.IntegerField(help_text="Given, or expected, next.")
    acknowledged = serializers.IntegerField(help_text="Known to have arrived, up to this number; 0 = none.")
    waiting = serializers.IntegerField()
    duplicates = serializers.IntegerField(help_text="Copies that were dropped.")
    refused = serializers.IntegerField()
    gaps = GapSerializer(many=True)
    messages = CellSerializer(many=True, source="cells")


class PairChangeSerializer(serializers.Serializer):
    """Something at a pair's ends that is not as it was at the last success."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=("certificate", "endpoint", "agreement", "credential"))
    what = serializers.CharField()
    by = serializers.CharField(allow_blank=True, help_text="Empty when nobody here did it.")
    reason = serializers.CharField(allow_blank=True)


class PairDiagnosisSerializer(DiagnosisSerializer):
    """Why the pair is as it is, and what changed since it last worked."""

    state = serializers.CharField()
    changed_since_last_success = PairChangeSerializer(many=True)


class ProbeStepSerializer(serializers.Serializer):
    """One rung of a look at an endpoint."""

    name = serializers.CharField(help_text="dns, tcp, tls, certificate, http, echo, smtp, sftp, host_key.")
    verdict = serializers.ChoiceField(choices=("ok", "warning", "failed", "skipped"))
    detail = serializers.CharField(allow_blank=True)
    cause = serializers.CharField(allow_blank=True, required=False, help_text="Code of docs/causes.md.")
    seconds = serializers.FloatField()
    facts = serializers.DictField(help_text="What was seen: addresses, TLS version, the certificate's dates.")


class ProbeSerializer(serializers.Serializer):
    """What a look at an endpoint found."""

    id = IdOut("prb")
    endpoint = IdOut("end", source="endpoint_id")
    pair = IdOut("pair", source="pair_id", allow_null=True)
    address = serializers.CharField()
    ok = serializers.BooleanField()
    cause = serializers.CharField(allow_blank=True)
    steps = ProbeStepSerializer(many=True)
    actor = serializers.CharField()
    at = serializers.DateTimeField()


class QueuedSerializer(serializers.Serializer):
    """A message that waits on a pair."""

    id = IdOut("msg")
    message_id = serializers.CharField()
    conversation_id = serializers.CharField()
    service = serializers.CharField()
    action = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the payloads.")
    position = serializers.IntegerField(help_text="Place in the order of submission.")
    created_at = serializers.DateTimeField()


def timeline(diagram: Diagram) -> dict[str, Any]:
    """A diagram's rows as TimelineSerializer shows them."""
    about = diagram.about.public_id if diagram.about is not None else None
    shown = {
        "scope": diagram.scope,
        "about": about,
        "failed_only": diagram.failed_only,
        "cut": diagram.cut,
        "folded": diagram.folded,
        "steps": diagram.steps,
    }
    return dict(TimelineSerializer(shown).data)


def settings(pair: Pair) -> dict[str, object]:
    """Rhythm and run-book."""
    return pair_settings.described(pair)


def probe(report: ProbeReport) -> dict[str, Any]:
    """One report."""
    return dict(ProbeSerializer(report).data)
