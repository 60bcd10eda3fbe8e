"""Atomic transactions: asking, joining, asking for the outcome and waiting for it, settling what is in doubt."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api import long_poll
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.handlers import listed, shown
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.messages.api.submissions import KEY_HEADER, LOCATION, REPLAYED, idempotency_key
from messaging.models import Coordination
from messaging.profiles.wsat import asking, settling
from messaging.protocol.atomic.words import Phase
from messaging.protocol.ws.names import Version
from messaging.protocol.ws.writing import write_context
from messaging.transactions import serializers as shapes
from messaging.transactions.resource import VERBS
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors import diagnosis as coordination_diagnosis
from rmhub import clock

_PATH = {"transaction": "Id of the transaction (`txn_...`)."}
_PARTICIPANT = {**_PATH, "participant": "Id of the participant (`enl_...`)."}
FILTERS = (
    Param("phase", "Phases, comma separated.", "choices", choices=tuple(one.value for one in Phase)),
    Param("doubtful", "Only those that need somebody, or only the others.", "flag"),
    Param("doubt", "Only those with somebody (of `party`) in doubt for this reason, as a cause's code."),
    Param("party", "Id, name or identifier of a party: it began the transaction, or takes part.", "party"),
    Param("role", "Of this hub.", "choice", choices=coordinations.ROLES),
    Param("q", "Any exact id: Identifier, txn_..., enl_..., del_..., msg_... or MessageID of one of its messages."),
    Param("begun_gte", "Not before this time.", "instant"),
    Param("begun_lt", "Before this time.", "instant"),
    sort_parameter(*coordinations.ORDERS),
)
WAIT = long_poll.wait_parameter(
    "Seconds to wait for the outcome while there is none. When many callers wait already, the answer comes at once."
)
AGREEMENT = Param("agreement", "TPAId of the agreement of the application that registers with it.")
_BEGIN = OpenApiExample("For a minute", value={"expires_ms": 60_000}, request_only=True)
_ENLIST = OpenApiExample(
    "A durable participant",
    value={
        "agreement": "tpa:acme-stock",
        "protocol": "Durable2PC",
        "address": "https://stock.acme.example/ws-tx/participant",
        "parameters": ['<s:Work xmlns:s="urn:acme:stock">4711</s:Work>'],
    },
    request_only=True,
)
_SETTLE = OpenApiExample(
    "It is permanently gone",
    value={"outcome": "forget", "reason": "The warehouse system was taken down in March, says their operator"},
    request_only=True,
)


class Transactions(Endpoint):
    """/transactions"""

    @operation(
        id="transactions_list",
        tag="transactions",
        scope="messages:read",
        summary="List atomic transactions, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.TransactionSerializer)},
        problems=("invalid_cursor", "cursor_mismatch", "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = coordinations.coordinations(
            phases=values["phase"] or (),
            doubtful=values["doubtful"],
            doubt=values["doubt"] or "",
            party_id=values["party"],
            role=values["role"] or "",
            q=values["q"] or "",
            begun_gte=values["begun_gte"],
            begun_lt=values["begun_lt"],
        )
        page = coordinations.coordination_page(
            found, order=coordinations.ORDERS[values["sort"]], limit=limit, place=place
        )
        return listing(request, values, page, shapes.TransactionSerializer)

    @operation(
        id="transactions_begin",
        tag="transactions",
        scope="transactions:write",
        summary="Begin an atomic transaction",
        description=(
            "Give its context (`GET /transactions/{transaction}/context`) to the applications that take part, or "
            "enlist them; then commit or roll back. Without either it is rolled back when its time is over. A repeat "
            "with the same Idempotency-Key answers the transaction that the first one began, as it is now. One user "
            "has at most RMHUB_TRANSACTIONS_OPEN (1000) that have not ended."
        ),
        request=shapes.TransactionBody,
        responses={201: shapes.TransactionDetailSerializer},
        problems=("idempotency_key_missing", "invalid_header", "idempotency_key_reused", "too_many_transactions"),
        headers=(KEY_HEADER, LOCATION, REPLAYED),
        examples=(_BEGIN,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        key = idempotency_key(request)
        values = validated(shapes.TransactionBody, request.data)
        begun = asking.transaction_begin(
            begun_by=access_of(request).owner,
            idempotency_key=key,
            expires_ms=values.get("expires_ms"),
            version=values["version"],
        )
        headers = {"Location": f"/api/v1/transactions/{begun.coordination.public_id}"}
        if begun.replayed:
            headers["Idempotent-Replayed"] = "true"
        return _answer(request, coordinations.coordination(begun.coordination.pk), status=201, **headers)


class OneTransaction(Endpoint):
    """/transactions/{transaction}"""

    @operation(
        id="transactions_read",
        tag="transactions",
        scope="messages:read",
        summary="One transaction, with its participants",
        description="With `wait`, the answer waits until `outcome` is known.",
        path=_PATH,
        parameters=(WAIT,),
        responses={200: shapes.TransactionDetailSerializer},
    )
    def get(self, request: Request, transaction: str) -> Response:
        values = read_parameters(request, (WAIT,))
        key = id_of("txn", transaction)

        def look(before: Coordination | None) -> Coordination:
            return coordinations.coordination(key)

        return _answer(request, long_poll.looked(look, lambda one: bool(coordinations.outcome(one)), values["wait"]))


def _context(transaction: str, agreement: str | None) -> dict[str, Any]:
    if not agreement:
        errors = [{"parameter": "agreement", "code": "required", "detail": "Say under which agreement it registers."}]
        raise Problem("invalid_parameter", "agreement: Say under which agreement it registers.", errors=errors)
    context, terms = asking.context_for(_mine(transaction), agreement)
    return {
        "identifier": context.identifier,
        "agreement": terms.tpa_id,
        "expires_in_ms": context.expires_ms,
        "registration": context.registration,
        "context_xml": write_context(context, Version(terms.coordination_version)).decode(),
    }


class Context(Endpoint):
    """/transactions/{transaction}/context"""

    get = shown(
        _context,
        shapes.TransactionContextSerializer,
        id="transactions_context",
        scope="transactions:write",
        summary="The CoordinationContext for an application that is to take part",
        path=_PATH,
        parameters=(AGREEMENT,),
        description="Send it with your request to that application: it registers at `registration` before it answers. "
        "The application that registers shows the credentials of the agreement's partner.",
        problems=("invalid_submission", "limited_access"),
        etag=False,
    )


class Participants(Endpoint):
    """/transactions/{transaction}/participants"""

    @operation(
        id="transactions_participants",
        tag="transactions",
        scope="messages:read",
        summary="Who takes part in a transaction",
        path=_PATH,
        responses={200: shapes.ParticipantListSerializer},
    )
    def get(self, request: Request, transaction: str) -> Response:
        read_parameters(request, ())
        one = coordinations.coordination(id_of("txn", transaction))
        takers = shapes.participants(coordinations.taking_part(one), coordinations.heard(one.pk))
        return Response(shapes.ParticipantListSerializer({"data": takers}).data)

    @operation(
        id="transactions_enlist",
        tag="transactions",
        scope="transactions:write",
        summary="Enlist a participant by its endpoint reference",
        description=(
            "As if it had registered by itself: it is sent Prepare when the outcome is asked for. A repeat of the same "
            "endpoint reference, protocol and agreement answers 201 with the same participant: no Idempotency-Key is "
            "needed. Durable participants can join until the durable ones are asked to prepare."
        ),
        path=_PATH,
        request=shapes.ParticipantBody,
        responses={201: shapes.EnlistedSerializer},
        problems=("wrong_state", "limited_access"),
        examples=(_ENLIST,),
    )
    def post(self, request: Request, transaction: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.ParticipantBody, request.data)
        one = _mine(transaction)
        made = asking.participant_enlist(
            coordination_id=one.pk,
            tpa_id=values["agreement"],
            protocol=values["protocol"],
            address=values["address"],
            parameters=values["parameters"],
            actor=actor_of(request),
        )
        taker = coordinations.enlistment(made.enlistment.pk)
        (row,) = shapes.participants([taker], coordinations.heard(one.pk))
        row.coordinator = made.coordinator  # type: ignore[attr-defined]
        return Response(shapes.EnlistedSerializer(row).data, status=201)

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return list(asking.allowed(coordinations.coordination(id_of("txn", kwargs["transaction"]))))


class Messages(Endpoint):
    """/messages"""

    get = listed(
        lambda transaction: coordinations.messages_of(coordinations.coordination(id_of("txn", transaction)).pk),
        shapes.TransactionMessageSerializer,
        id="transactions_messages",
        scope="messages:read",
        summary="The messages that were exchanged about a transaction, oldest first",
        order=("message_id",),
        path=_PATH,
        description="Octets are at `/messages/{message}/wire`, attempts at `/messages/{message}/transmissions`.",
    )


_ASKED = ("wrong_state", "stale", "precondition_required", "invalid_header", "limited_access")


def _verb(slug: str, body: type[serializers.Serializer], description: str) -> type[Endpoint]:
    """The view of what is asked for by a verb."""
    verb = VERBS[slug]

    class Ask(Endpoint):
        """/transactions/{transaction}/<verb>"""

        @operation(
            id=f"transactions_{slug}",
            tag="transactions",
            scope="transactions:write",
            summary=verb.summary,
            description=description,
            path=_PATH,
            request=body,
            responses={200: shapes.TransactionDetailSerializer},
            problems=_ASKED,
            headers=(IF_MATCH,),
        )
        def post(self, request: Request, transaction: str) -> Response:
            reason = validated(body, request.data)["reason"]
            read_parameters(request, ())
            expected = expected_version(request)
            one = _mine(transaction)
            verb.service(coordination_id=one.pk, actor=actor_of(request), expected_version=expected, reason=reason)
            return _answer(request, coordinations.coordination(one.pk))

    return Ask


Commit = _verb(
    "commit",
    shapes.AskBody,
    "All participants are asked for their votes; the outcome is known when all have voted: read the transaction with "
    "`wait`. Asked again it changes nothing. Only for transactions that were begun here.",
)
Rollback = _verb(
    "rollback",
    shapes.RollbackBody,
    "By its initiator; only while it is not decided. Asked again it changes nothing.",
)


class SettleParticipant(Endpoint):
    """/transactions/{transaction}/participants/{participant}/settle"""

    @operation(
        id="transactions_settle",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="Settle a participant that is in doubt",
        description=(
            "A decision that the other side may contradict; then data differs, and people have to fix it. `commit` "
            "and `rollback`: this hub has voted and its coordinator is gone. `forget`: a participant was told the "
            "outcome and never answers, or what was in doubt has been looked at. `allowed_settlements` says what is "
            "possible."
        ),
        path=_PARTICIPANT,
        request=shapes.TransactionSettleBody,
        responses={200: shapes.TransactionDetailSerializer},
        problems=_ASKED,
        headers=(IF_MATCH,),
        examples=(_SETTLE,),
    )
    def post(self, request: Request, transaction: str, participant: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.TransactionSettleBody, request.data)
        one, taker = _mine(transaction), coordinations.enlistment(id_of("enl", participant))
        if taker.coordination_id != one.pk:
            raise Problem("not_found", f"{participant} does not take part in {transaction}.")
        settling.enlistment_settle(enlistment_id=taker.pk, actor=actor_of(request), expected_version=expected, **values)
        return _answer(request, coordinations.coordination(one.pk))

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return list(settling.settlements(coordinations.enlistment(id_of("enl", kwargs["participant"]))))


def _mine(reference: str) -> Coordination:
    """A transaction to act upon: whoever does not see all who take part in it must not. Raises NotFound, Problem."""
    one = coordinations.coordination(id_of("txn", reference))
    if coordinations.hidden(one):
        raise Problem("limited_access", "Partners take part in it whom the caller may not see.")
    return one


def _answer(request: Request, one: Coordination, *, status: int = 200, **headers: str) -> Response:
    """With the tag that the verbs take: its part before the dot counts all changes."""
    hidden, takers = coordinations.hidden(one), coordinations.taking_part(one)
    diagnosis = coordination_diagnosis.diagnose(
        one, takers, clock.now(), pending=coordinations.pending(one.pk), hidden=hidden
    )
    data = shapes.represent(one, diagnosis, hidden=hidden, heard=coordinations.heard(one.pk))
    lasting = {name: value for name, value in data.items() if name != "diagnosis"}  # it says how long ago
    return item(request, data, revision=one.lock_version, digest_of=lasting, status=status, **headers)
