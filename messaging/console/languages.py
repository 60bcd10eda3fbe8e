"""In which language a person reads the console: the one that they have chosen, else the browser's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation

from messaging.console.preferences import preferences


def language_of(request: HttpRequest) -> str:
    """Return the code of the language of whoever looks."""
    return preferences(request).language or translation.get_language_from_request(request)


class Language:
    """Middleware: views of the console, and the error pages instead of them, speak their reader's language."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with translation.override(settings.LANGUAGE_CODE):
            return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        """Activates the language; the roads of machines keep English."""
        if hasattr(view, "scope"):
            translation.activate(language_of(request))
