"""Pairs and their verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.reading import Param, read_parameters
from messaging.choices import Direction
from messaging.models import Pair
from messaging.pairs.selectors import pairs
from messaging.pairs.serializers.looks import PairSettingsBody, ResumeBody
from messaging.pairs.serializers.pairs import (
    ExpectSequenceBody,
    PairDetailSerializer,
    PairSerializer,
    represent,
    represent_one,
)
from messaging.pairs.services import operating
from messaging.pairs.services.settings import pair_update
from rmhub import clock

_PATH = {"pair": "Id of the pair (`pair_...`), or its code."}
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=pairs.STATE_NAMES),
    Param("direction", "out or in.", "choice", choices=tuple(Direction.values)),
    Param("partner", "Id of a party.", "id", prefix="par"),
    Param("resync", "true: those that need resync after a loss of memory, in whatever state.", "flag"),
    Param("q", "Part of the code or of a URI."),
    sort_parameter("code", "-code", "severity"),
)
_ORDERS = {"code": ("code",), "-code": ("-code",), "severity": ("severity", "code")}
IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="ETag of what you decided upon."
)
_ETAG = OpenApiParameter("ETag", str, OpenApiParameter.HEADER, response=[200], description="For If-Match.")
_REASON = OpenApiExample("With a reason", value={"reason": "New certificate installed by GLOBEX"}, request_only=True)


class Pairs(Endpoint):
    """/pairs"""

    @operation(
        id="pairs_list",
        tag="pairs",
        scope="pairs:read",
        summary="List pairs",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(PairSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = pairs.pairs(
            states=values["state"] or (),
            direction=values["direction"] or "",
            partner_id=values["partner"],
            search=values["q"] or "",
            resync=values["resync"],
        )
        page = keyset.page(found, order=_ORDERS[values["sort"]], limit=limit, place=place)
        now = clock.now()
        return listing(request, values, page, lambda rows: represent(rows, now))


class OnePair(Endpoint):
    """/pairs/{pair}"""

    @operation(
        id="pairs_read",
        tag="pairs",
        scope="pairs:read",
        summary="One pair, and what is the matter with it",
        description="The part of the ETag before the dot counts what people do to the pair: it is what the verbs' "
        "If-Match compares, so that traffic does not refuse an action.",
        path=_PATH,
        responses={200: PairDetailSerializer},
        headers=(_ETAG,),
    )
    def get(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        return _answer(request, pairs.pair(pair))

    @operation(
        id="pairs_update",
        tag="pairs",
        scope="pairs:operate",
        summary="Change a pair's rhythm, grace and run-book",
        description="A new rhythm counts from now. What is left out stays as it is.",
        path=_PATH,
        request=PairSettingsBody,
        responses={200: PairDetailSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
        headers=(IF_MATCH, _ETAG),
    )
    def patch(self, request: Request, pair: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values: dict[str, Any] = validated(PairSettingsBody, request.data)
        pair_update(pair_id=pairs.pair(pair).pk, actor=actor_of(request), expected_version=expected, **values)
        return _answer(request, pairs.pair(pair))


def _answer(request: Request, pair: Pair) -> Response:
    data = represent_one(pair, clock.now())
    lasting = {name: value for name, value in data.items() if name != "diagnosis"}  # its sentences count the minutes
    return item(request, data, revision=pair.version, digest_of=lasting)


def _verb(name: str, scope: str, summary: str, service: Callable[..., Pair], body: type = ReasonBody) -> type[Endpoint]:
    """The view of one verb."""

    class Verb(Endpoint):
        """/pairs/{pair}/<verb>"""

        def allowed_now(self, **kwargs: Any) -> list[str]:
            allowed: list[str] = represent_one(pairs.pair(kwargs["pair"]), clock.now())["allowed_actions"]
            return allowed

        @operation(
            id=f"pairs_{name.replace('-', '_')}",
            tag="pairs",
            scope=scope,
            summary=summary,
            description="Answers the pair as it is then, with its new ETag.",
            path=_PATH,
            request=body,
            responses={200: PairDetailSerializer},
            problems=("wrong_state", "agreement_missing", "stale", "precondition_required", "invalid_header"),
            headers=(IF_MATCH, _ETAG),
            examples=(_REASON,) if body is ReasonBody else (),
        )
        def post(self, request: Request, pair: str) -> Response:
            read_parameters(request, ())
            expected = expected_version(request)
            values: dict[str, Any] = validated(body, request.data)
            service(pair_id=pairs.pair(pair).pk, actor=actor_of(request), expected_version=expected, **values)
            return _answer(request, pairs.pair(pair))

    return Verb


VERBS: dict[str, type[Endpoint]] = {
    "resume": _verb(
        "resume",
        "pairs:operate",
        "Resume a suspended pair: the same octets again, with a fresh budget of retries",
        operating.pair_resume,
        ResumeBody,
    ),
    "retry-now": _verb(
        "retry-now",
        "pairs:operate",
        "Use the next attempt early; the budget is not reset",
        operating.pair_retry_now,
    ),
    "skip-head": _verb(
        "skip-head",
        "pairs:skip",
        "Give up the message in flight for good, and restart the sequence at 1",
        operating.pair_skip_head,
    ),
    "restart-sequence": _verb(
        "restart-sequence",
        "pairs:skip",
        "Forget the numbers: the message in flight, or the next, goes out as number 1",
        operating.pair_restart_sequence,
    ),
    "pause": _verb(
        "pause",
        "pairs:operate",
        "Hold the pair: it takes submissions and answers, and sends nothing",
        operating.pair_pause,
    ),
    "release": _verb("release", "pairs:operate", "End a pause", operating.pair_release),
    "expect-sequence": _verb(
        "expect-sequence",
        "pairs:skip",
        "Inbound: set the number that is taken as next, after one side lost its state",
        operating.pair_expect_sequence,
        ExpectSequenceBody,
    ),
    "clear-resync": _verb(
        "clear-resync",
        "pairs:skip",
        "After a loss of memory: both sides were compared (the reason is the evidence), and what comes is new again",
        operating.pair_clear_resync,
    ),
}
