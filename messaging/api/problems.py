"""Errors as RFC 9457 problem details: one form for everything that is not 2xx, whoever raised it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core import exceptions as django_errors
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from rest_framework import exceptions as drf
from rest_framework.response import Response

from messaging.api.catalogue import CODES
from messaging.exceptions import (
    ApplicationError,
    DuplicateMessageId,
    InvalidSubmission,
    OutsideAgreement,
    PayloadRefused,
    WrongOffset,
    WrongState,
)
from messaging.onboarding.services.changing import InvalidAgreement
from messaging.storage import StoreUnavailable
from partners.exceptions import InvalidInput
from partners.exceptions import WrongState as PartnersWrongState
from rmhub.ids import BadPublicId, public_id

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = {
    "unavailable": "5",
    "store_full": "60",
    "overloaded": "5",
    "unhealthy": "10",
    "too_many_requests": "1",
    "pair_queue_full": "60",
}
Json = dict[str, Any]


class Problem(Exception):
    """An answer that is no success: a code of the catalogue, a sentence, further members, further headers."""

    def __init__(
        self, code: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail or CODES[code].meaning)
        self.code = code
        self.detail = detail or CODES[code].meaning
        self.headers = dict(headers or {})
        self.members = members


def exception_handler(error: Exception, context: Json) -> Response:
    """DRF's hook: whatever a view raised, as a problem. Never lets anything through."""
    request = context["request"]
    problem = _problem(error)
    if problem is None:
        log.exception(
            "API request failed",
            extra={"action": "api_failed", "path": request.path, "request_id": getattr(request, "request_id", "")},
            exc_info=error,
        )
        problem = Problem("internal_error")
    if problem.members.get("allowed_actions") == []:
        problem.members["allowed_actions"] = context["view"].allowed_now(**context["kwargs"])
    response = Response(
        body(problem, request),
        status=CODES[problem.code].status,
        content_type=MEDIA_TYPE,
        headers={**_headers(problem, error), **problem.headers},
    )
    if isinstance(error, drf.MethodNotAllowed):
        response["Allow"] = ", ".join(context["view"].allowed_methods)
    return response


def django_problem(request: HttpRequest, code: str, detail: str = "") -> HttpResponse:
    """The same for what fails before, or outside of, any API view (Django's handler400, 403, 404 and 500)."""
    problem = Problem(code, detail)
    answer = JsonResponse(body(problem, request), status=CODES[code].status, content_type=MEDIA_TYPE)
    for name, value in _headers(problem, None).items():
        answer[name] = value
    return answer


def body(problem: Problem, request: Any) -> Json:
    """The members, in the order in which a person reads them."""
    known = CODES[problem.code]
    members: Json = {
        "type": known.type,
        "title": known.title,
        "status": known.status,
        "code": known.code,
        "detail": problem.detail,
        "instance": request.path,
        "request_id": getattr(request, "request_id", ""),
        "retryable": known.retryable,
    }
    cleaned: Json = _printable({**members, **problem.members})
    return cleaned


def field_errors(errors: Mapping[str, Sequence[str]], code: str = "invalid") -> list[Json]:
    """`errors` of InvalidSubmission and InvalidInput as members: pointer, code, detail."""
    found = []
    for field, sentences in errors.items():
        pointer = "#" if field in ("__all__", "non_field_errors") else f"#/{_escaped(field)}"
        found += [{"pointer": pointer, "code": code, "detail": sentence} for sentence in sentences]
    return found


def _problem(error: Exception) -> Problem | None:
    if isinstance(error, Problem):
        return error
    if isinstance(error, ApplicationError):
        return _of_application(error)
    if isinstance(error, InvalidInput):
        return Problem("invalid_submission", errors=field_errors(error.errors))
    if isinstance(error, PartnersWrongState):
        said = _sentence(f"Cannot {error.verb}: {error.why}")
        return Problem("wrong_state", said, current_state=error.state, allowed_actions=[])
    if isinstance(error, drf.APIException):
        return _of_framework(error)
    if isinstance(error, Http404 | BadPublicId | drf.NotFound):
        return Problem("not_found", str(error) if isinstance(error, BadPublicId) else "")
    if isinstance(error, django_errors.PermissionDenied):
        return Problem("forbidden")
    if isinstance(error, django_errors.RequestDataTooBig):
        return Problem("body_too_large", "The text fields of the form are too large: send documents as files.")
    if isinstance(error, django_errors.TooManyFilesSent):
        most = settings.DATA_UPLOAD_MAX_NUMBER_FILES
        return Problem("body_too_large", f"A form carries at most {most} files.")
    if isinstance(error, django_errors.TooManyFieldsSent):
        return Problem("body_too_large", f"A form has at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS} fields.")
    if isinstance(error, django_errors.SuspiciousOperation):
        return Problem("malformed_body", _sentence(str(error)))
    if isinstance(error, UnreadablePostError):
        return Problem("malformed_body", "The body ended early.")
    if isinstance(error, StoreUnavailable):
        log.error("payload store takes nothing", extra={"action": "store_unavailable", "error": str(error)[:200]})
        if error.full:
            return Problem("store_full")
        return Problem("unavailable", "The hub's payload store accepts nothing now. Repeat after Retry-After.")
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("database not available", extra={"action": "api_unavailable", "error": str(error)[:200]})
        return Problem("unavailable")
    return None


def _of_application(error: ApplicationError) -> Problem:
    if isinstance(error, InvalidAgreement):
        errors = [
            {"pointer": f"#/{_escaped(problem.field)}", "code": problem.code, "detail": problem.sentence}
            for problem in error.problems
        ]
        return Problem("agreement_invalid", errors=errors)
    if isinstance(error, PayloadRefused):
        pointer = f"#/payloads/{error.position}/{error.member}"
        errors = [{"pointer": pointer, "code": error.fault, "detail": error.sentence}]
        return Problem("invalid_submission", errors=errors)
    if isinstance(error, WrongOffset):
        return Problem(error.code, error.detail, offset=error.offset, headers={"Upload-Offset": str(error.offset)})
    if isinstance(error, InvalidSubmission):
        return Problem("invalid_submission", errors=field_errors(error.errors))
    if isinstance(error, WrongState):
        code = error.code if error.code in CODES else "wrong_state"
        return Problem(code, error.detail, current_state=error.state, allowed_actions=list(error.allowed))
    if isinstance(error, DuplicateMessageId):
        identifier = public_id("msg", error.existing)
        link = f"/api/v1/messages/{identifier}"
        return Problem(error.code, error.detail, existing={"id": identifier, "href": link})
    if isinstance(error, OutsideAgreement):
        field = "#/agreement" if error.code == "unknown_agreement" else "#/service"
        errors = [{"pointer": field, "code": error.code, "detail": error.detail}]
        return Problem(error.code, error.detail, errors=errors)
    return Problem(error.code if error.code in CODES else "internal_error", error.detail)


def _of_framework(error: drf.APIException) -> Problem:
    if isinstance(error, drf.ValidationError):
        return Problem("invalid_submission", errors=_flattened(error.detail))
    if isinstance(error, drf.ParseError):
        return Problem("malformed_body", str(error.detail))
    if isinstance(error, drf.NotAuthenticated):
        return Problem("not_authenticated")
    if isinstance(error, drf.AuthenticationFailed):
        code = error.get_codes()
        return Problem(code if isinstance(code, str) and code in CODES else "invalid_token", str(error.detail))
    if isinstance(error, drf.NotFound):
        return Problem("not_found")
    if isinstance(error, drf.MethodNotAllowed):
        return Problem("method_not_allowed", str(error.detail))
    if isinstance(error, drf.NotAcceptable):
        return Problem("not_acceptable")
    if isinstance(error, drf.UnsupportedMediaType):
        return Problem("unsupported_media_type", str(error.detail))
    if isinstance(error, drf.Throttled):
        return Problem("too_many_requests")
    if isinstance(error, drf.PermissionDenied):
        return Problem("csrf_failed" if "CSRF" in str(error.detail) else "forbidden", str(error.detail))
    return Problem("internal_error")


def _flattened(detail: Any, pointer: str = "#") -> list[Json]:
    """DRF's tree of errors as a list, each with a JSON pointer to its place."""
    if isinstance(detail, Mapping):
        found: list[Json] = []
        for name, below in detail.items():
            found += _flattened(below, pointer if name == "non_field_errors" else f"{pointer}/{_escaped(str(name))}")
        return found
    if isinstance(detail, list | tuple):
        found = []
        for position, below in enumerate(detail):
            nested = isinstance(below, Mapping | list | tuple)
            found += _flattened(below, f"{pointer}/{position}" if nested else pointer)
        return found
    return [{"pointer": pointer, "code": getattr(detail, "code", "invalid"), "detail": str(detail)}]


def _headers(problem: Problem, error: Exception | None) -> dict[str, str]:
    found = {}
    if CODES[problem.code].status == 401:
        said = "" if problem.code == "not_authenticated" else ', error="invalid_token"'
        found["WWW-Authenticate"] = f'Bearer realm="RM Hub"{said}'
    if problem.code in RETRY_AFTER:
        wait = getattr(error, "wait", None)
        found["Retry-After"] = str(int(wait)) if wait else RETRY_AFTER[problem.code]
    return found


def _escaped(name: str) -> str:
    """A member's name in a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:300]


def _printable(value: Any) -> Any:
    """Text that quotes the request may hold halves of surrogate pairs, which UTF-8 cannot carry."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {name: _printable(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(below) for below in value]
    return value
