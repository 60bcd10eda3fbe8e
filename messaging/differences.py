"""What is different between two descriptions of a thing: versions of agreements, and what a bundle would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from partners.fields import Seconds, duration
from partners.models import AgreementVersion, Endpoint

_TIMES = frozenset(
    field.name
    for model in (AgreementVersion, Endpoint)
    for field in model._meta.concrete_fields
    if isinstance(field, Seconds)
)
_NOT_TERMS = frozenset({"number", "state"})


@dataclass(frozen=True, slots=True)
class Change:
    """One field that is not the same: how it is called, and both values as people read them ("" = absent)."""

    field: str
    label: str
    before: str
    after: str


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The fields in which the two differ, in the order of `after`."""
    names = [*after, *(name for name in before if name not in after)]
    return [
        Change(name, label(name), said(name, before.get(name)), said(name, after.get(name)))
        for name in names
        if name not in _NOT_TERMS and before.get(name) != after.get(name)
    ]


def label(name: str) -> str:
    """`retry_interval` as the model calls it, else its words."""
    try:
        verbose = str(getattr(AgreementVersion._meta.get_field(name), "verbose_name", ""))
    except FieldDoesNotExist:
        verbose = ""
    verbose = verbose or name.replace("_", " ")
    text = verbose.removesuffix(", s").removesuffix(", ms")
    return text[:1].upper() + text[1:]


def said(name: str, value: Any) -> str:
    """A value as people read it."""
    if value is None or value in ("", [], ()):
        return ""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, float):
        return number_format(f"{value:g}")
    if name in _TIMES and isinstance(value, int):
        return duration(value)
    if isinstance(value, list | tuple):
        return "; ".join(_part(part) for part in value)
    return str(value)


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        return str(part.get("title") or ", ".join(str(one) for one in part.values()))
    return " ".join(str(one) for one in part) if isinstance(part, list | tuple) else str(part)
