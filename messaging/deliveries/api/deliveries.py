"""Deliveries of documents to triggers: what became of them, taking them from pull queues, and settling them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.handlers import shown
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of, pair_id_of, trigger_id_of
from messaging.choices import DeliveryState
from messaging.deliveries import serializers as shapes
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.deliveries.services import pulling
from messaging.deliveries.services.settling import delivery_settle
from messaging.engine import memory as hub_memory
from messaging.messages.services.disclosing import Masked, delivery_answer_open, payloads_open
from messaging.models import Delivery
from messaging.transports.base import printable
from rmhub import clock
from rmhub.roles import role_of

_PATH = {"delivery": "Id of the delivery (`del_...`)."}
_TRIGGER = {"trigger": "Id of the trigger (`trg_...`), or its name."}
MAX_INCLUDED = 64 * 1024
CONSUMER = Param("consumer", "As you named yourself when you took them.")
INCLUDE = Param("include", "payloads: their octets too, if they are small.", "choice", choices=("payloads",))
FILTERS = (
    Param("trigger", "Id or name of a trigger."),
    Param("state", "States, comma separated.", "choices", choices=tuple(DeliveryState.values)),
    Param("message", "Id of a message.", "id", prefix="msg"),
    Param("doubt", "Exact code: why it is in doubt."),
    Param("document", "Exact: the document id that the history uses."),
    Param("q", "Any exact id: del_..., msg_..., MessageId, document id."),
    Param("partner", "Id, name or identifier of a party.", "party"),
    sort_parameter(*deliveries.ORDERS),
)
_SETTLE = OpenApiExample(
    "The application has it",
    value={"decision": "duplicate", "reason": "Order 4711 is in the ERP since 10:04"},
    request_only=True,
)
_LEASE = OpenApiExample(
    "Up to ten documents", value={"limit": 10, "seconds": 120, "consumer": "import-1"}, request_only=True
)


class Deliveries(Endpoint):
    """/deliveries"""

    @operation(
        id="deliveries_list",
        tag="deliveries",
        scope="deliveries:read",
        summary="List deliveries, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.DeliverySerializer)},
        problems=("invalid_cursor", "cursor_mismatch", "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = deliveries.deliveries(
            trigger_id=trigger_id_of(values["trigger"]),
            partner_id=values["partner"],
            states=values["state"] or (),
            message_id=values["message"],
            doubt=values["doubt"] or "",
            document=values["document"] or "",
            q=values["q"] or "",
        )
        page = deliveries.delivery_page(
            found.select_related("join", "part_of"), order=deliveries.ORDERS[values["sort"]], limit=limit, place=place
        )
        return listing(request, values, page, shapes.DeliverySerializer)


class OneDelivery(Endpoint):
    """/deliveries/{delivery}"""

    @operation(
        id="deliveries_read",
        tag="deliveries",
        scope="deliveries:read",
        summary="One delivery, with the evidence of its decision",
        path=_PATH,
        responses={200: shapes.DeliveryDetailSerializer},
    )
    def get(self, request: Request, delivery: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("del", delivery))


class DeliveryAnswer(Endpoint):
    """/deliveries/{delivery}/answer"""

    content_negotiation_class = AnyOctets

    @operation(
        id="deliveries_answer",
        tag="deliveries",
        scope="payloads:read",
        summary="What the application's service answered last",
        description=(
            "Cut at 8 KiB; empty when there was no answer. It may be the document that goes to the partner: reading it "
            "is written to the audit log, and where masks hold for it, it is refused."
        ),
        path=_PATH,
        responses=OCTETS,
        problems=("range_not_satisfiable", "payload_masked"),
    )
    def get(self, request: Request, delivery: str) -> HttpResponseBase:
        read_parameters(request, ())
        found = deliveries.delivery(id_of("del", delivery))
        view = delivery_answer_open(delivery=found, actor=actor_of(request), role=role_of(request.user))
        if view.hidden:
            raise Masked(f"{', '.join(view.rules)} may cover parts of this answer: it needs the role {view.needed}.")
        return attachment(request, view.octets)


class Settle(Endpoint):
    """/deliveries/{delivery}/settle"""

    @operation(
        id="deliveries_settle",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="Decide about a delivery that is in doubt, or on which the application failed",
        description=(
            "`duplicate`: the application has processed it; later copies are duplicates. `resubmit`: it has not; a new "
            "delivery hands it over at its old place, once only. `later`: shown again in `remind_in` seconds. `ask`: "
            "the trigger's resolver is asked once more."
        ),
        path=_PATH,
        request=shapes.SettleBody,
        responses={200: shapes.DeliveryDetailSerializer},
        problems=(
            "wrong_state",
            "already_settled",
            "copy_in_work",
            "copy_completed",
            "stale",
            "precondition_required",
            "invalid_header",
        ),
        headers=(IF_MATCH,),
        examples=(_SETTLE,),
    )
    def post(self, request: Request, delivery: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.SettleBody, request.data)
        delivery_id = id_of("del", delivery)
        delivery_settle(delivery_id=delivery_id, actor=actor_of(request), expected_version=expected, **values)
        return _answer(request, delivery_id)


class Lease(Endpoint):
    """/triggers/{trigger}/lease"""

    @operation(
        id="triggers_lease",
        tag="deliveries",
        scope="deliveries:take",
        summary="Take documents from a pull queue",
        description=(
            "Each is yours until `lease_until`: complete, fail or release it with its `claim` before that, or extend "
            "the lease. One whose lease runs out is handed out again with a higher `redelivery_count`, or is in doubt "
            "when nobody can tell whether it was processed. After an answer that did not reach you, GET "
            "/triggers/{trigger}/leases tells what you hold. `include=payloads` needs the scope `payloads:read` too, "
            "and leaves out what is larger than 64 KiB, and what is covered in parts for your role."
        ),
        path=_TRIGGER,
        parameters=(INCLUDE,),
        request=shapes.LeaseBody,
        responses={200: shapes.LeaseSerializer},
        problems=("wrong_state", "not_a_pull_queue"),
        examples=(_LEASE,),
    )
    def post(self, request: Request, trigger: str) -> Response:
        with_payloads = _with_payloads(request, read_parameters(request, (INCLUDE,)))
        values = validated(shapes.LeaseBody, request.data)
        found = triggers.trigger(trigger)
        consumer = _consumer(request, values.pop("consumer"))
        hub_memory.look()
        leased = pulling.lease(found.pk, consumer=consumer, **values)
        return _taken(request, [one.delivery.pk for one in leased], with_payloads)


class Leases(Endpoint):
    """/triggers/{trigger}/leases"""

    @operation(
        id="triggers_leases",
        tag="deliveries",
        scope="deliveries:take",
        summary="What you hold of a pull queue, with its claims",
        description="After an answer that did not reach you, or a restart: go on with these before you take more.",
        path=_TRIGGER,
        parameters=(CONSUMER, INCLUDE),
        responses={200: shapes.LeaseSerializer},
    )
    def get(self, request: Request, trigger: str) -> Response:
        values = read_parameters(request, (CONSUMER, INCLUDE))
        with_payloads = _with_payloads(request, values)
        found = triggers.trigger(trigger)
        held = deliveries.held(found.pk, _consumer(request, values["consumer"] or ""))
        return _taken(request, held, with_payloads)


def _claimed(
    name: str,
    summary: str,
    description: str,
    service: Callable[..., Delivery],
    body: type[shapes.ClaimBody],
    problems: tuple[str, ...] = (),
) -> type[Endpoint]:
    """The view of something that the holder of a lease says."""

    class Said(Endpoint):
        """/deliveries/{delivery}/<verb>"""

        @operation(
            id=f"deliveries_{name}",
            tag="deliveries",
            scope="deliveries:take",
            summary=summary,
            description=description,
            path=_PATH,
            request=body,
            responses={200: shapes.DeliveryDetailSerializer},
            problems=("lease_over", "not_a_pull_queue", *problems),
        )
        def post(self, request: Request, delivery: str) -> Response:
            read_parameters(request, ())
            values: dict[str, Any] = validated(body, request.data)
            delivery_id = id_of("del", delivery)
            service(delivery_id, **values)
            return _answer(request, delivery_id)

    return Said


CLAIMED: dict[str, type[Endpoint]] = {
    "complete": _claimed(
        "complete",
        "Report the document as processed",
        "Copies of it are duplicates from now on. Repeat it when the answer did not reach you: the same claim gets the "
        "same answer.",
        pulling.complete,
        shapes.ClaimBody,
    ),
    "fail": _claimed(
        "fail",
        "Report that the application failed on the document",
        "The document counts as processed and is not handed out again; a person reads `detail` and decides. For what "
        "may succeed later there is release. It can be repeated like complete.",
        pulling.fail,
        shapes.FailBody,
    ),
    "release": _claimed(
        "release",
        "Return the document: nothing was done with it",
        "The next lease finds it new. Said again after an answer that did not reach you, it is `lease_over`.",
        pulling.release,
        shapes.ReleaseBody,
    ),
    "extend": _claimed(
        "extend",
        "Keep the document for longer",
        "The lease ends `seconds` from now.",
        pulling.extend,
        shapes.ExtendBody,
    ),
}


def _with_payloads(request: Request, values: dict[str, Any]) -> bool:
    """Whether octets are asked for. Raises Problem before anything is taken."""
    if values["include"] != "payloads":
        return False
    if "payloads:read" not in access_of(request).scopes:
        text = "include=payloads needs the scope payloads:read."
        raise Problem("missing_scope", text, required_scope="payloads:read")
    return True


def _consumer(request: Request, name: str) -> str:
    """Who takes documents, as deliveries tell it: the caller, and which of the caller's processes."""
    caller = printable(access_of(request).name)[: 150 - len(name) - 2]
    return f"{caller}: {name}" if name else caller


def _taken(request: Request, delivery_ids: list[uuid.UUID], with_payloads: bool) -> Response:
    found = deliveries.taken(delivery_ids)
    octets: dict[tuple[uuid.UUID, int], bytes] = {}
    if with_payloads:
        wanted = [message for taken in found for message in taken.messages]
        role = role_of(request.user)
        octets = payloads_open(messages=wanted, at_most=MAX_INCLUDED, actor=actor_of(request), role=role)
    return Response(shapes.represent_taken(found, octets))


def _answer(request: Request, delivery_id: uuid.UUID) -> Response:
    """With the tag that `settle` takes: its part before the dot counts what people do."""
    found = deliveries.delivery(delivery_id)
    found.resubmitted_as = deliveries.resubmitted_as(found.pk)  # type: ignore[attr-defined]
    first = deliveries.first_of(found)
    found.first_delivery = first.pk if first is not None else None  # type: ignore[attr-defined]
    return item(request, shapes.DeliveryDetailSerializer(found).data, revision=found.version)


IN_DOUBT_FILTERS = (
    Param("trigger", "Id or name of a trigger: only its deliveries, and no messages and transactions."),
    Param("pair", "Id or code of a pair: only its messages and transactions, and no deliveries."),
)


def _in_doubt(trigger: str | None, pair: str | None) -> dict[str, Any]:
    trigger_id, pair_id = trigger_id_of(trigger), pair_id_of(pair)
    now = clock.now()
    outbound = in_doubt.outbound_groups(now, pair_id=pair_id) if pair_id or not trigger_id else []
    return {
        "deliveries": in_doubt.groups(now, trigger_id=trigger_id) if trigger_id or not pair_id else [],
        "messages": outbound,
        "answers": in_doubt.by_answer(outbound),
        "transactions": in_doubt.transaction_groups(pair_id=pair_id) if pair_id or not trigger_id else [],
    }


class InDoubt(Endpoint):
    """/in-doubt"""

    get = shown(
        _in_doubt,
        shapes.InDoubtSerializer,
        id="in_doubt",
        tag="in-doubt",
        scope="deliveries:read",
        summary="What is in doubt, by evidence group",
        parameters=IN_DOUBT_FILTERS,
        description=(
            "What is true of one document of a group is likely to be true of all. List a group with "
            "GET /deliveries (`trigger`, `doubt`) or GET /messages (`pair`, `state=in_doubt`); settle its documents "
            "one by one, or all at once by POST /bulk-operations with the group's `filter`. List a group of "
            "transactions with GET /transactions and the group's `filter`; settle these participant by participant."
        ),
        etag=False,
    )
