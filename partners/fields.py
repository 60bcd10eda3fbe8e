"""Fields of settings that Django does not have: lengths of time as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext as _

# In every language of the console, whichever is read: days are "Tage" and "jours", hours "Stunden" and "heures".
_UNITS = {
    **dict.fromkeys(("d", "day", "days", "t", "tag", "tage", "tagen", "j", "jour", "jours"), 86_400),
    **dict.fromkeys(("h", "hour", "hours", "std", "stunde", "stunden", "heure", "heures"), 3600),
    **dict.fromkeys(("m", "min", "minute", "minutes", "minuten"), 60),
    **dict.fromkeys(("s", "sec", "second", "seconds", "sek", "sekunde", "sekunden", "seconde", "secondes", ""), 1),
}
_PART = re.compile(rf"([0-9]{{1,9}})\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![a-z])", re.ASCII)


def duration(seconds: int) -> str:
    """`7500` as `2 h 5 m`: exact, units that are zero left out."""
    parts = []
    for unit, said in ((86_400, _("{count} d")), (3600, _("{count} h")), (60, _("{count} m")), (1, _("{count} s"))):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(said.format(count=count))
    return " ".join(parts) or _("{count} s").format(count=0)


def read_duration(text: str) -> int:
    """Return the seconds of `30`, `30 s`, `5 m`, `2 h 30 m`, `400 d`. Raises ValueError with a sentence."""
    rest, total = text.strip().lower(), 0
    if not rest:
        raise ValueError(_("Enter a time, such as 30 s, 5 m, 2 h or 7 d."))
    while rest:
        match = _PART.match(rest)
        if match is None:
            raise ValueError(
                _("“{text}” is not a time: write it like 30 s, 5 m, 2 h 30 m or 7 d.").format(text=text[:40])
            )
        total += int(match[1]) * _UNITS[match[2]]
        rest = rest[match.end() :].lstrip(" ,")
    return total


class DurationField(forms.CharField):
    """A form field for a length of time: people write `2 h 30 m`, the value is in whole seconds."""

    def prepare_value(self, value: Any) -> Any:
        return duration(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        try:
            return read_duration(str(value or ""))
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {**super().widget_attrs(widget), "placeholder": _("30 s, 5 m, 2 h, 7 d")}


class Seconds(models.PositiveIntegerField):
    """A length of time in whole seconds: people write it as in DurationField, the API has the number."""

    @property
    def help_in_seconds(self) -> str:
        """Return the help text for those who write the number."""
        return f"{self.help_text} In seconds.".strip()

    def deconstruct(self) -> Any:
        name, __, args, kwargs = super().deconstruct()
        return name, "django.db.models.PositiveIntegerField", args, kwargs

    def formfield(self, **kwargs: Any) -> Any:
        return models.Field.formfield(self, form_class=DurationField, **kwargs)


def _check_percent(value: float) -> None:
    """Raise ValidationError for a share that is finer than hundredths of a per cent, or no number at all."""
    if not math.isfinite(value) or round(value * 100) != round(value * 100, 6):
        raise ValidationError(_("A percentage with at most two decimal places is needed here, such as 99.95."))


class PercentField(forms.CharField):
    """A form field for a share: people write `99.5`, or `99,5 %`; the value is a number."""

    def prepare_value(self, value: Any) -> Any:
        return f"{value:g}" if isinstance(value, float) else value

    def to_python(self, value: Any) -> Any:
        try:
            return float(str(value or "").strip().removesuffix("%").strip().replace(",", "."))
        except ValueError as error:
            raise ValidationError(_("A percentage is needed here, such as 99.5.")) from error

    def widget_attrs(self, widget: forms.Widget) -> dict[str, Any]:
        return {**super().widget_attrs(widget), "inputmode": "decimal", "placeholder": "99.5"}


class Percent(models.FloatField):
    """A share that is to be reached: 50 to 99.99 %. 100 % would leave no error budget to measure or to warn by."""

    default_validators = [MinValueValidator(50), MaxValueValidator(99.99), _check_percent]

    def formfield(self, **kwargs: Any) -> Any:
        return models.Field.formfield(self, form_class=PercentField, **kwargs)

    def deconstruct(self) -> Any:
        name, __, args, kwargs = super().deconstruct()
        return name, "django.db.models.FloatField", args, kwargs


def settings(model: type[models.Model], *life: str) -> tuple[str, ...]:
    """Return the names of the fields that people set: not the key, what it belongs to, its times, and `life`."""
    others = {"id", "created_at", "updated_at", *life}
    return tuple(
        field.name
        for field in model._meta.concrete_fields
        if field.name not in others and not isinstance(field, models.ForeignKey)
    )
