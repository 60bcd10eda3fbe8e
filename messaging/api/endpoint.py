"""What all views share: `Endpoint`, the base, and `operation`: a handler's scope and documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from messaging.access.selectors import reach
from messaging.api.authentication import Access
from messaging.api.catalogue import CODES
from messaging.api.examples import of as examples_of
from messaging.api.permissions import PUBLIC, scope_of
from messaging.api.problems import MEDIA_TYPE, Problem
from messaging.api.reading import Param, StrictJson, check_size
from messaging.entrance import rate_limits
from messaging.entrance.rate_limits import Bucket
from partners import visibility
from rmhub import traces
from rmhub.front.environ import CALLER

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Handler = TypeVar("Handler", bound=Callable[..., HttpResponseBase])
Status = int | tuple[int, str]  # with the media type, when it is not JSON
MAX_BODY = 1024 * 1024
# Downloads have the media type that the octets came with.
OCTETS: dict[Status, Any] = {(200, "*/*"): OpenApiTypes.BINARY, (206, "*/*"): OpenApiTypes.BINARY}
_OF_APPLICATIONS = ("messages:write", "deliveries:take", "transactions:write")
_COUNT = "rmhub.rate_count"  # in the environ of WSGI
_JSON = {"*/*", "application/*", "application/json", MEDIA_TYPE}
_ALWAYS = ("invalid_parameter", "unknown_parameter")
_GUARDED = (
    *("not_authenticated", "invalid_token", "token_expired", "token_revoked", "address_not_allowed", "missing_scope"),
    "too_many_requests",
)
_WITH_BODY = (
    *("malformed_body", "body_too_slow", "body_too_large", "unsupported_media_type", "invalid_submission"),
    "overloaded",
)


class ProblemSerializer(serializers.Serializer):
    """RFC 9457 problem details. `code` is stable; see /api/v1/problems for all of them."""

    type = serializers.CharField(help_text="Where this kind of problem is described, relative to the hub.")
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.ChoiceField(choices=sorted(CODES), help_text="Stable name of the kind of problem.")
    detail = serializers.CharField(help_text="What happened this time, and what to do.")
    instance = serializers.CharField(help_text="The path that was asked for.")
    request_id = serializers.CharField(help_text="Names this request in the hub's log.")
    retryable = serializers.BooleanField(help_text="The same request may succeed later.")
    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField(child=serializers.CharField()),
        required=False,
        help_text="Each wrong value: pointer (RFC 6901, into the body) or parameter (of the query), code, detail.",
    )
    required_scope = serializers.CharField(required=False, help_text="403: the scope that is missing.")
    current_state = serializers.CharField(required=False, help_text="409: the state that forbids it.")
    allowed_actions = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="409: what this state allows."
    )
    existing = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="409: id and href of what is there already."
    )
    offset = serializers.IntegerField(required=False, help_text="409: how many octets of the upload are here.")
    checks = serializers.DictField(required=False, help_text="503 of /health: what was looked at.")
    parts = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="503 of /health: how each part is, since when."
    )


class AnyJson(BaseContentNegotiation):
    """JSON for everybody who takes JSON (or says nothing); 406 for the rest."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        accept = request.headers.get("Accept", "").lower()
        kinds = {part.partition(";")[0].strip() for part in accept.split(",")} - {""}
        if kinds and not kinds & _JSON:
            raise NotAcceptable
        return JSONRenderer(), "application/json"


class AnyOctets(AnyJson):
    """For downloads: whatever was stored is what there is, so that Accept cannot refuse it."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return JSONRenderer(), "application/json"


class Endpoint(APIView):
    """Base of all views: JSON in and out, bodies of bounded size, no OPTIONS, nothing cached unless it says so."""

    http_method_names = ["get", "head", "post", "patch", "delete"]
    parser_classes: Sequence[type[BaseParser]] = (StrictJson,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class: type[BaseContentNegotiation] = AnyJson
    max_body = MAX_BODY
    count: rate_limits.Count | None = None  # where the caller of this request stands; a view serves one request
    span: Span | None = None  # of this request, in its caller's trace
    _span: ExitStack

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        # Threads are reused: what `initial` limits, and the span that it begins, end with the request.
        with visibility.only(None), ExitStack() as self._span:
            response = super().dispatch(request, *args, **kwargs)
            if visibility.visible() is not None and isinstance(response, StreamingHttpResponse):
                response.streaming_content = visibility.lasting(response.streaming_content)
        return response

    def perform_authentication(self, request: Request) -> None:
        super().perform_authentication(request)
        if isinstance(request.auth, Access):
            request.META[CALLER] = request.auth.name

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        check_size(request, self.body_limit())  # first: the check of a session's CSRF token may read a form
        super().initial(request, *args, **kwargs)
        caller = request.auth
        if isinstance(caller, Access) and caller.limited:
            visibility.set_visible(caller.partners, caller.owner)
            reach.check([*kwargs.values(), dict(request.query_params.lists())])
            if request.method in ("POST", "PATCH", "PUT"):
                reach.check(request.data)
        if isinstance(caller, Access) and (traceparent := traces.given(request.META)):
            self._join(request, traceparent)

    def _join(self, request: Request, traceparent: str) -> None:
        """Tells of this request in the trace of the application that makes it."""
        tracing, match = traces.active(), request.resolver_match
        if tracing is None or match is None:
            return
        said = {"http.request.method": request.method or "", "http.route": f"/{match.route}"}
        self.span = self._span.enter_context(tracing.joined(traceparent, " ".join(said.values()), said))

    def check_throttles(self, request: Request) -> None:
        """One more request of this caller. Raises Problem (429); what is left is said in the headers of each answer."""
        caller = request.auth
        if not isinstance(caller, Access):
            return
        # A request is begun again once its body is there; it counts once.
        if _COUNT not in request.META:
            bucket = _bucket(request.method or "", scope_of(self, request.method or ""))
            request.META[_COUNT] = rate_limits.take(bucket, caller.caller)
        self.count = request.META[_COUNT]
        if self.count is not None and self.count.exceeded:
            wait = str(self.count.reset)
            text = f"More than {self.count.limit} requests ({self.count.bucket}) in a minute: wait {wait} s."
            raise Problem("too_many_requests", text, headers={"Retry-After": wait})

    def body_limit(self) -> int:
        """Bytes of a request's body that this view takes."""
        return self.max_body

    def allowed_now(self, **kwargs: Any) -> list[str]:
        """What the state of the path's object allows: for a 409 whose service did not say."""
        return []

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[BaseRenderer, str]:
        if force:  # a problem is told as JSON, also to those who did not ask for JSON
            return JSONRenderer(), "application/json"
        return super().perform_content_negotiation(request, force)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers.setdefault("Cache-Control", "no-store")
        if self.span is not None:
            self.span.set_attribute("http.response.status_code", answer.status_code)
        if self.count is not None:
            # draft-ietf-httpapi-ratelimit-headers-10: the policy, and what is left of it.
            answer.headers["RateLimit-Policy"] = f'"{self.count.bucket}";q={self.count.limit};w={rate_limits.WINDOW}'
            answer.headers["RateLimit"] = f'"{self.count.bucket}";r={self.count.remaining};t={self.count.reset}'
        return answer


def _bucket(method: str, scope: str | None) -> Bucket:
    if method in ("GET", "HEAD"):
        return Bucket.READ
    return Bucket.SUBMIT if scope in _OF_APPLICATIONS else Bucket.OPERATE


def operation(
    *,
    id: str,
    tag: str,
    scope: str,
    summary: str,
    description: str = "",
    whole_hub: bool = False,
    request: Any = None,
    responses: Mapping[Status, Any] | None = None,
    problems: Sequence[str] = (),
    parameters: Sequence[Param | OpenApiParameter] = (),
    path: Mapping[str, str] | None = None,
    headers: Sequence[OpenApiParameter] = (),
    examples: Sequence[OpenApiExample] = (),
) -> Callable[[Handler], Handler]:
    """Declares a handler: the scope that it needs (checked by HasScope), and what the OpenAPI document says of it.

    `problems` are codes of the catalogue beside those that every such operation has; `path` describes path parameters.
    `examples` stand beside those that `messaging.api.examples` has for the id.
    `whole_hub`: it shows or changes what cannot be told apart by partner: closed to callers who are limited to some.
    """
    codes = [*_ALWAYS, *problems]
    if scope != PUBLIC:
        codes += _GUARDED
    if whole_hub:
        codes.append("limited_access")
    if request is not None:
        codes += _WITH_BODY
    if path:
        codes.append("not_found")
    said = f"Scope: `{scope}`." if scope != PUBLIC else "No authentication."
    described = [
        OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.PATH, description=text)
        for name, text in (path or {}).items()
    ]
    described += [_described(parameter) if isinstance(parameter, Param) else parameter for parameter in parameters]
    answers: dict[Any, Any] = {_key(status): _success(status, answer) for status, answer in (responses or {}).items()}
    documented = extend_schema(
        operation_id=id,
        tags=[tag],
        summary=summary,
        description=f"{description}\n\n{said}".strip(),
        request=request,
        responses={**answers, **_problem_responses(codes)},
        parameters=[*described, *headers],
        examples=[*examples, *examples_of(id)],
    )

    def declare(handler: Handler) -> Handler:
        declared: Handler = documented(handler)
        declared.operation_id = id  # type: ignore[attr-defined]
        declared.scope = scope  # type: ignore[attr-defined]
        declared.whole_hub = whole_hub  # type: ignore[attr-defined]
        return declared

    return declare


def _key(status: Status) -> Any:
    return str(status) if isinstance(status, int) else (str(status[0]), status[1])


def _success(status: Status, answer: Any) -> OpenApiResponse:
    code = status if isinstance(status, int) else status[0]
    return OpenApiResponse(answer, description=HTTPStatus(code).phrase)


def _problem_responses(codes: Sequence[str]) -> dict[Any, Any]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code].status, []).append(code)
    found: dict[Any, Any] = {}
    for status, names in sorted(by_status.items()):
        text = f"{HTTPStatus(status).phrase}: {', '.join(f'`{name}`' for name in names)}"
        found[(str(status), MEDIA_TYPE)] = OpenApiResponse(ProblemSerializer, description=text)
    found[("default", MEDIA_TYPE)] = OpenApiResponse(ProblemSerializer, description="Any other problem.")
    return found


def _described(param: Param) -> OpenApiParameter:
    kinds: dict[str, Any] = {
        "instant": OpenApiTypes.DATETIME,
        "flag": OpenApiTypes.BOOL,
        "number": {"type": "integer", "minimum": param.minimum, "maximum": param.maximum},
        "choice": {"type": "string", "enum": list(param.choices)},
        "choices": {"type": "array", "items": {"type": "string", "enum": list(param.choices)}},
    }
    if param.kind == "number" and param.default is not None:
        kinds["number"]["default"] = param.default
    if param.kind == "choice" and param.default is not None:
        kinds["choice"]["default"] = param.default
    return OpenApiParameter(
        param.name,
        kinds.get(param.kind, OpenApiTypes.STR),
        OpenApiParameter.QUERY,
        description=param.description,
        style="form" if param.kind == "choices" else None,
        explode=False if param.kind == "choices" else None,
    )
