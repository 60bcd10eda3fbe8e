"""Texts and numbers in the language of whoever reads them: Django's catalogs in `rmhub/locale` (docs/languages.md).

The console and mails speak it. The API, commands, logs, what is stored and what goes over the wire are English, the
language that is active where nothing has activated another one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from django.utils import translation
from django.utils.formats import number_format


def gettext_lazy(text: str) -> str:
    """Return a text of a declaration, which is looked up whenever it is shown; typed as the text that it stands for."""
    return cast(str, translation.gettext_lazy(text))


def pgettext_lazy(context: str, text: str) -> str:
    """Return a text of a declaration that means something else elsewhere, as `gettext_lazy` does."""
    return cast(str, translation.pgettext_lazy(context, text))


def number(count: int | float, places: int = 0) -> str:
    """Return a number as the language writes it, rounded to `places` after the point: `1,234`, `1.234`."""
    return number_format(Decimal(f"{count:.{places}f}"), places, use_l10n=True, force_grouping=True)


def inside(text: str) -> str:
    """Return what begins a sentence as it stands inside one; German keeps the capital of its nouns."""
    text = str(text)
    german = (translation.get_language() or "").startswith("de")
    return text if german or text[1:2].isupper() else text[:1].lower() + text[1:]
