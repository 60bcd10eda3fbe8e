"""GET /live: the last hour as the live watch counted it."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut
from messaging.api.pagination import PAGING, listing, read_list
from messaging.choices import Direction
from messaging.reports.selectors import live
from messaging.reports.selectors.live import PairHour, WatchState
from rmhub import clock


class LiveRangeSerializer(serializers.Serializer):
    """What is usual by the pair's own past, and the limit above which an incident is opened."""

    usual = serializers.FloatField(source="middle")
    limit = serializers.FloatField()


class LiveMinuteSerializer(serializers.Serializer):
    """One minute of a pair."""

    at = serializers.DateTimeField()
    volume = serializers.IntegerField(help_text="Messages that were delivered (outbound), or that came (inbound).")
    failures = serializers.IntegerField(help_text="Attempts that failed, messages given up, messages refused.")
    acknowledgements = serializers.IntegerField(source="acks")
    seconds_to_acknowledge = serializers.FloatField(source="latency", allow_null=True, help_text="Mean.")


class LiveIncidentRef(serializers.Serializer):
    """An anomaly that is not resolved."""

    id = IdOut("inc")
    number = serializers.IntegerField()
    cause = serializers.CharField()
    detail = serializers.CharField()
    opened_at = serializers.DateTimeField()


class LivePairSerializer(serializers.Serializer):
    """The last hour of one pair."""

    pair = IdOut("pair", source="pair.pk")
    code = serializers.CharField(source="pair.code")
    direction = serializers.ChoiceField(choices=Direction.choices, source="pair.direction")
    partner = serializers.CharField(source="pair.partner.name")
    accepted = serializers.IntegerField(help_text="Submitted by our applications.")
    volume = serializers.IntegerField(help_text="Messages that were delivered (outbound), or that came (inbound).")
    failures = serializers.IntegerField()
    failure_rate = serializers.FloatField(allow_null=True)
    seconds_to_acknowledge = serializers.FloatField(source="latency", allow_null=True, help_text="Mean.")
    longest_to_acknowledge = serializers.FloatField(source="longest", allow_null=True)
    usual_seconds_to_acknowledge = LiveRangeSerializer(source="usual.latency", allow_null=True)
    usual_failure_rate = LiveRangeSerializer(source="usual.failure_rate", allow_null=True)
    silent_after_seconds = serializers.SerializerMethodField(
        help_text="How long an inbound pair may be silent before an incident is opened; null: no rhythm is known."
    )
    anomalies = LiveIncidentRef(many=True, source="incidents")
    minutes = LiveMinuteSerializer(many=True)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_silent_after_seconds(self, hour: PairHour) -> float | None:
        limit = hour.usual.silence_limit
        return None if limit is None else limit.total_seconds()


class LiveSerializer(serializers.Serializer):
    """A page of pairs with traffic in the last hour, and whether the counts are current."""

    state = serializers.ChoiceField(choices=[state.value for state in WatchState])
    sentence = serializers.CharField(help_text="What the state means, for a person.")
    data_as_of = serializers.DateTimeField(allow_null=True, help_text="All that was committed before is counted.")
    begin = serializers.DateTimeField(help_text="Of the hour that is shown.")
    end = serializers.DateTimeField()
    data = LivePairSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField(allow_null=True)
    prev_cursor = serializers.CharField(allow_null=True)
    has_more = serializers.BooleanField()


class Live(Endpoint):
    """/live"""

    @operation(
        id="live_read",
        tag="live",
        scope="reports:read",
        summary="The last hour by pair, beside what is usual",
        description="Pairs with traffic in the hour before `data_as_of`, those with anomalies first. While `state` is "
        "not `live`, the counts are old and no anomaly is raised.",
        parameters=PAGING,
        responses={200: LiveSerializer},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, ())
        shown = live.watch(clock.now())
        page = keyset.page(live.pairs(shown), order=("calm", "code"), limit=limit, place=place)
        answer = listing(
            request, values, page, lambda rows: list(LivePairSerializer(live.hours(rows, shown), many=True).data)
        )
        answer.data = {
            "state": shown.state.value,
            "sentence": shown.sentence,
            "data_as_of": shown.as_of,
            "begin": shown.begin,
            "end": shown.end,
            **answer.data,
        }
        return answer
