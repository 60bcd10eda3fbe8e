"""What the front itself refuses, said in the form of the road it came by."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse

from messaging.api.problems import django_problem
from messaging.entrance.urls import EXCHANGE, is_entrance
from messaging.entrance.views import respond
from messaging.profiles.repeatable.answers import problem
from messaging.profiles.repeatable.problems import PROBLEMS
from rmhub.front.application import WSGI, Environ, Refusal, StartResponse
from rmhub.middleware import request_id


def refusing(refusal: Refusal) -> WSGI:
    """A WSGI application that answers every request with this refusal."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = _answer(request, refusal)
        if refusal.retry_after:
            response["Retry-After"] = str(refusal.retry_after)
        return response

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        response = request_id(answer)(WSGIRequest(environ))
        start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
        return (response.content,)

    return application


def _answer(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    path = request.path_info
    if path.startswith("/api/"):
        return django_problem(request, refusal.code, refusal.detail)
    if path.startswith(EXCHANGE):
        code = refusal.code.replace("_", "-")
        assert code in PROBLEMS, "both catalogues have it"
        return respond(request, problem(code, refusal.detail, retry_after=refusal.retry_after or None))
    if is_entrance(path):
        response = HttpResponse(status=refusal.status)
        del response["Content-Type"]
        response["Content-Length"] = "0"
        return response
    return HttpResponse(refusal.detail + "\n", status=refusal.status, content_type="text/plain; charset=utf-8")
