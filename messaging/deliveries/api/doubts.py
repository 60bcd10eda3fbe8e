"""GET /in-doubt: what no rule can decide, by evidence group."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.endpoint import Endpoint, operation
from messaging.api.reading import Param, read_parameters
from messaging.api.references import pair_id_of, trigger_id_of
from messaging.deliveries.selectors import doubts
from messaging.deliveries.serializers.doubts import InDoubtSerializer
from rmhub import clock

FILTERS = (
    Param("trigger", "Id or name of a trigger: only its deliveries, and no messages and transactions."),
    Param("pair", "Id or code of a pair: only its messages and transactions, and no deliveries."),
)


class InDoubt(Endpoint):
    """/in-doubt"""

    @operation(
        id="in_doubt",
        tag="in-doubt",
        scope="deliveries:read",
        summary="What is in doubt, by evidence group",
        description=(
            "What is true of one document of a group is likely to be true of all. List a group with "
            "GET /deliveries (`trigger`, `doubt`) or GET /messages (`pair`, `state=in_doubt`); settle its documents "
            "one by one, or all at once by POST /bulk-operations with the group's `filter`. List a group of "
            "transactions with GET /transactions and the group's `filter`; settle these participant by participant."
        ),
        parameters=FILTERS,
        responses={200: InDoubtSerializer},
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, FILTERS)
        trigger_id, pair_id = trigger_id_of(values["trigger"]), pair_id_of(values["pair"])
        now = clock.now()
        outbound = doubts.outbound_groups(now, pair_id=pair_id) if pair_id or not trigger_id else []
        found = {
            "deliveries": doubts.groups(now, trigger_id=trigger_id) if trigger_id or not pair_id else [],
            "messages": outbound,
            "answers": doubts.by_answer(outbound),
            "transactions": doubts.transaction_groups(pair_id=pair_id) if pair_id or not trigger_id else [],
        }
        return Response(InDoubtSerializer(found).data)
