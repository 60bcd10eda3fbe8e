"""In which language a person reads the console: the one that they have chosen, else the browser's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import gettext as _

from messaging.console.preferences import preferences


def script_texts() -> str:
    """Return what the scripts of `static/console` write by themselves, as JSON: name -> text."""
    return json.dumps(
        {
            **{"days": _("{count} d"), "hours": _("{count} h"), "minutes": _("{count} m"), "seconds": _("{count} s")},
            **{"ago": _("{time} ago"), "in": _("in {time}"), "now": _("now")},
            **{"live": _("Live"), "paused": _("Paused {time}"), "stale": _("Stale {time}")},
            **{
                "pause": _("Pause"),
                "go_on": _("Go on"),
                "close": _("Close"),
                "here": _("Here"),
                "copied": _("Copied."),
            },
            "held_dialog": _("Held by the dialog"),
            "held_pointing": _("Held while you point"),
            "held_reading": _("Held while you read"),
            "new": _("{count} new, press . to load"),
            "new_more": _("{count} or more new, press . to load"),
            "failed": _("This did not work. Reload the page and try again."),
            "no_list": _("You did not come here from a list."),
            "first": _("This is the first of the list."),
            "last": _("This is the last of the list."),
        },
        ensure_ascii=False,
    )


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
