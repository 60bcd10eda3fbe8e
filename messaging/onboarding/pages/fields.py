"""Fields of forms about partners that Django does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.console import zones
from partners import certificates
from partners.models import Party
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy

Choices = list[tuple[str, str]]


class RowsField(forms.CharField):
    """Rows of texts, one a line. `read` raises ValueError with a sentence that names the line.

    `wanted`: without one nothing comes of it.
    """

    widget = forms.Textarea

    def __init__(self, read: Callable[[str], list[Any]], between: str, *, wanted: bool = False, **kwargs: Any) -> None:
        self.read, self.between, self.wanted = read, between, wanted
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else "\n".join(self.between.join(row) for row in value or ())

    def to_python(self, value: Any) -> Any:
        try:
            return self.read(value or "")
        except ValueError as error:
            raise ValidationError(str(error)) from error


class PemFile(forms.FileField):
    """A file of certificates, as PEM text; "" without one."""

    widget = forms.FileInput

    def to_python(self, data: Any) -> Any:
        if data is None:
            return ""
        if data.size is None or data.size > certificates.MAX_TEXT:
            most = certificates.MAX_TEXT
            raise ValidationError(
                _("The file is too long: certificates have at most {most} bytes together.").format(most=most)
            )
        try:
            return certificates.read_upload(data.read())
        except ValueError as error:
            raise ValidationError(str(error)) from error


class InstantField(forms.CharField):
    """A date or time in the zone of whoever types it."""

    zone: tzinfo = UTC

    def to_python(self, value: Any) -> Any:
        if not str(value or "").strip():
            return None
        found = zones.read_local(value, self.zone)
        if found is None:
            raise ValidationError(_("Write a date, such as 2027-01-31, or with a time: 2027-01-31T12:00."))
        return found


class NamedField(forms.ChoiceField):
    """A choice of a row, by public id. With `prefix` one has to be chosen, and the value is its key."""

    def __init__(self, label: str, *, prefix: str = "", blank: str = "", help_text: str = "") -> None:
        self.prefix, self.blank = prefix, blank
        super().__init__(label=label, help_text=help_text)
        self.widget.attrs["translate"] = "no"  # names

    def to_python(self, value: Any) -> Any:
        if not self.prefix:
            return value or ""
        try:
            return read_id(self.prefix, value or "")
        except BadPublicId as error:
            raise ValidationError(_("Choose one of the list.")) from error

    def valid_value(self, value: object) -> bool:
        return True  # the service looks for it

    def offer(self, choices: Choices, present: Any) -> None:
        """Offer these, and what is chosen at present: whoever changes something else must not take it away unawares."""
        offered = [*([("", self.blank)] if self.blank else []), *choices]
        if (present or "") not in dict(offered):
            offered.append((present or "", present or ""))
        self.choices = offered


class ZoneField(forms.ChoiceField):
    """The time zone of a place, from the list of those that there are; one that is set stays, whatever it is."""

    def __init__(self) -> None:
        model = Party._meta.get_field("time_zone")
        super().__init__(required=False, label=capfirst(model.verbose_name), help_text=model.help_text)
        self.known = [("", gettext_lazy("Not known")), *((name, name) for name in zones.names())]
        self.choices = self.known

    def prepare_value(self, value: Any) -> Any:
        if value and (value, value) not in self.known:
            self.choices = [*self.known, (value, value)]
        return value

    def valid_value(self, value: object) -> bool:
        return True  # the service knows which there are


class SecretText(forms.Textarea):
    """What was posted in it is not sent back."""

    def format_value(self, value: Any) -> str:
        return ""


def read_identifiers(text: str) -> list[tuple[str, str]]:
    """`DUNS 123456789` or `DUNS:123456789` a line. Raises ValueError with a sentence that names the line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        scheme, blank, value = line.strip().partition(" ")
        if not blank:
            scheme, blank, value = line.strip().rpartition(":")
        scheme = scheme.removesuffix(":")
        if not scheme or not value.strip():
            raise ValueError(
                _("Line {number}: write the type, a space or a colon, and the value, such as DUNS 123456789.").format(
                    number=number
                )
            )
        found.append((scheme, value.strip()))
    return found


def read_services(text: str) -> list[tuple[str, str, str]]:
    """`service | action | send` a line; action and direction may be left out. Raises ValueError."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("|")]
        service, action, direction = (*parts, "", "")[:3] if len(parts) < 4 else ("", "", "")
        direction = direction or "both"
        if not service or direction not in ("send", "receive", "both"):
            raise ValueError(
                _(
                    "Line {number}: write the service, a bar, the action, a bar and send, receive or both, "
                    "such as urn:orders | * | both."
                ).format(number=number)
            )
        found.append((service, action or "*", direction))
    return found


class GroupsField(forms.MultipleChoiceField):
    """Partner groups, by public id; the value is their keys."""

    widget = forms.CheckboxSelectMultiple

    def to_python(self, value: Any) -> Any:
        try:
            return [read_id("grp", one) for one in value or ()]
        except BadPublicId as error:
            raise ValidationError(_("There is no such group.")) from error

    def valid_value(self, value: object) -> bool:
        return True


def radios(field: Any, **kwargs: Any) -> Any:
    """Return the form's field of a model's; choices are buttons beside each other."""
    return field.formfield(**({"widget": forms.RadioSelect} if field.choices else {}), **kwargs)


def choice(label: str, choices: Sequence[tuple[str, str]]) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=choices, widget=forms.RadioSelect)
