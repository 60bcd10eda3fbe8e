"""GET /live: the last hour as the live watch counted it."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.endpoint import Endpoint, operation
from messaging.api.pagination import PAGING, listing, read_list
from messaging.reports.selectors import live
from messaging.reports.serializers.live import LiveSerializer, represent
from rmhub import clock


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
        answer = listing(request, values, page, lambda rows: represent(live.hours(rows, shown)))
        answer.data = {
            "state": shown.state.value,
            "sentence": shown.sentence,
            "data_as_of": shown.as_of,
            "begin": shown.begin,
            "end": shown.end,
            **answer.data,
        }
        return answer
