"""Partners and agreements by name in a form: the field completes what is typed, and a name of nothing is said so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messaging.console.filters import named
from messaging.console.rendering import posted
from messaging.exceptions import InvalidSubmission
from partners import selectors as partners
from rmhub.language import gettext_lazy, number

_MOST_SAID = 5  # lines of a text that are explained one by one
_HINTS = {"partner": gettext_lazy("Name or identifier"), "agreement": "TPAId"}


class Completing(forms.TextInput):
    """A text field that offers names as one types; without JavaScript it offers none. `of`: "partner", "agreement"."""

    def __init__(self, of: str, attrs: dict[str, Any] | None = None) -> None:
        typed = {"maxlength": "200", "autocomplete": "off", "spellcheck": "false", "placeholder": _HINTS[of]}
        asks = {"hx-trigger": "focus once, input changed delay:200ms", "hx-swap": "innerHTML"}
        super().__init__({**typed, **asks, **(attrs or {})})
        self.of = of

    def format_value(self, value: Any) -> str | None:
        """Return the name where a link gave an id."""
        text = str(value or "")
        if self.of == "partner" and text.startswith("par_"):
            party = named(text).party
            return party.name if party is not None else text
        if self.of == "agreement" and text.startswith("agr_"):
            agreement = partners.agreement_named(text)
            return agreement.tpa_id if agreement is not None else text
        return text or None

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        given = {"id": self.attrs.get("id", f"field-{name}"), **(attrs or {})}
        offered = f"{given['id']}-names"
        given |= {"list": offered, "hx-get": reverse(f"console:{self.of}-names"), "hx-target": f"#{offered}"}
        field = super().render(name, value, given, renderer or DjangoTemplates())
        return format_html('{}<datalist id="{}"></datalist>', field, offered)


def partner_key(text: str) -> uuid.UUID | None:
    """Return the key of the partner with this name, identifier or id, None for "". Raises ValidationError."""
    found = named(text)
    if found.party is None and found.text:
        raise ValidationError(with_alike(*partners.nobody(found.text)))
    return found.key


def agreement_key(text: str) -> uuid.UUID | None:
    """Return the key of the agreement with this TPAId or id, None for an empty text. Raises ValidationError."""
    text = text.strip()[:200].replace("\x00", "")
    if not text:
        return None
    found = partners.agreement_named(text)
    if found is None:
        raise ValidationError(with_alike(*partners.no_agreement(text)))
    return found.pk


def partners_in(text: str) -> dict[uuid.UUID, str]:
    """Return the names, by key, of the partners of which each line has the name, identifier or id.

    Raises ValidationError with a sentence for each line that means nobody or several.
    """
    lines = [line.strip()[:200] for line in text.replace("\r", "\n").split("\n") if line.strip()]
    found = partners.all_named(lines)
    wrong = [line for line, meant in found.items() if len(meant) != 1]
    if wrong:
        said = [_not_one(line, sorted(found[line].values())) for line in wrong[:_MOST_SAID]]
        if more := len(wrong) - len(said):
            said.append(ngettext("{count} more line is wrong.", "{count} more lines are wrong.", more))
            said[-1] = said[-1].format(count=number(more))
        raise ValidationError(said)
    return {key: name for meant in found.values() for key, name in meant.items()}


def _not_one(line: str, names: Sequence[str]) -> str:
    if not names:
        return with_alike(*partners.nobody(line))
    said = _("{text} means several partners: {names}. Give one of these names.")
    return said.format(text=line, names=", ".join(names))


def posted_key(request: HttpRequest, field: str, read: Callable[[str], uuid.UUID | None]) -> uuid.UUID | None:
    """Return what `read` makes of a posted field. Raises InvalidSubmission."""
    try:
        return read(posted(request, field))
    except ValidationError as error:
        raise InvalidSubmission({field: error.messages}) from error


def with_alike(said: str, alike: Sequence[str]) -> str:
    """Return the sentence with the names that may be meant."""
    meant = _(" Did you mean {names}?").format(names=", ".join(alike)) if alike else ""
    return f"{said}{meant}"
