"""Forms of settings: Django's ModelForm reads what was typed, the services check what it means."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Field
from django.forms.renderers import DjangoTemplates
from django.template.loader import get_template
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.console.naming import Completing, agreement_key, partner_key
from partners.fields import DurationField
from rmhub.ids import BadPublicId

MOST_CHOICES = 500


@dataclass(frozen=True, slots=True)
class Group:
    """Fields under one heading. `folded`: closed as long as nothing in it is set or wrong; `css`: see `grouped`."""

    title: str
    fields: tuple[str, ...]
    lead: str = ""
    folded: bool = False
    css: str = ""


class Renderer(DjangoTemplates):
    """Fields as they look on every page of the console; the widgets in them are Django's."""

    field_template_name = "console/parts/field.html"

    def get_template(self, template_name: str) -> Any:
        return (
            get_template(template_name) if template_name.startswith("console/") else super().get_template(template_name)
        )


class Bound(forms.BoundField):
    """A field with its id, and the class by which the style sheet knows its kind and whether it is wrong."""

    @property
    def wanted(self) -> bool:
        """Whether it must be filled in: nothing is taken in its place."""
        if self.field.required or getattr(self.field, "wanted", False):
            return True
        try:
            of = self.form._meta.model._meta.get_field(self.name.removesuffix("_id"))  # type: ignore[attr-defined]
        except FieldDoesNotExist:
            return False
        return isinstance(of, Field) and not (of.blank or of.null or of.has_default())

    def build_widget_attrs(self, attrs: Any, widget: forms.Widget | None = None) -> dict[str, Any]:
        built: dict[str, Any] = super().build_widget_attrs(attrs, widget)
        shown = widget or self.field.widget
        if self.wanted and not isinstance(
            shown, forms.CheckboxInput | forms.RadioSelect | forms.CheckboxSelectMultiple
        ):
            built = {"aria-required": "true", **built}
        if isinstance(shown, forms.CheckboxInput | forms.RadioSelect):
            return {"class": "form-check-input", **built}
        kind = "form-select" if isinstance(shown, forms.Select) else "form-control"
        if isinstance(shown, forms.Textarea):
            kind, built = "form-control mono", {"rows": 3, "spellcheck": "false", **built}
        elif isinstance(shown, forms.TextInput):
            built = {"autocomplete": "off", "spellcheck": "false", **built}
        if isinstance(self.field, forms.IntegerField | DurationField):
            kind += " number-field"
        return {"class": f"{kind} is-invalid" if self.errors else kind, **built}


class ReferenceField(forms.ChoiceField):
    """A choice of an object by its public id; the value is its key. Label and help are those of the foreign key."""

    def __init__(self, of: Any, *, prefix: str, blank: str, missing: str = "") -> None:
        self.prefix, self.blank, self.needed = prefix, blank, bool(missing)
        label = capfirst(of.field.verbose_name)
        super().__init__(label=label, help_text=of.field.help_text, error_messages={"required": missing})

    def to_python(self, value: Any) -> Any:
        if not value:
            return None
        try:
            return read_id(self.prefix, value)
        except BadPublicId as error:
            raise ValidationError(str(error)) from error

    def valid_value(self, value: object) -> bool:
        return True  # the service looks for it; what is chosen may have gone out of force since

    def offer(self, choices: list[tuple[str, str]], present: str) -> None:
        """Offer these, and what is chosen at present: whoever changes something else must not take it away unawares."""
        if present and present not in {one for one, _ in choices}:
            choices = [*choices, (present, _("{name} (not in force)").format(name=present))]
        self.choices = [("", self.blank), *choices]


class CompletedField(forms.CharField):
    """A choice among many by name, which completes itself. The value is the key, None for nothing."""

    of_kind: ClassVar[str]
    read: ClassVar[Callable[[str], uuid.UUID | None]]

    def __init__(self, of: Any, *, blank: str = "", missing: str = "") -> None:
        self.needed = bool(missing)
        super().__init__(
            label=capfirst(of.field.verbose_name),
            help_text=of.field.help_text,
            error_messages={"required": missing},
            widget=Completing(self.of_kind, {"placeholder": blank} if blank else None),
        )

    def to_python(self, value: Any) -> Any:
        return type(self).read(str(value or ""))


class PartnerField(CompletedField):
    """A partner by name, identifier or id."""

    of_kind = "partner"
    read = partner_key


class AgreementField(CompletedField):
    """An agreement by TPAId or id."""

    of_kind = "agreement"
    read = agreement_key


class SettingsForm(forms.ModelForm):
    """The form of an object that people set up. `groups`: its fields under their headings, in the order of the page.

    A subclass names model and fields; labels, help, bounds and choices are the model's. Nothing is validated beyond
    what cannot be read: `refuse` puts what the service says beside the fields.
    """

    groups: ClassVar[tuple[Group, ...]] = ()
    note: ClassVar[str] = ""  # above the fields of one that is changed
    placeholders: ClassVar[Mapping[str, str]] = {}
    only: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # shown for values of another field: (that field, *values)
    secrets: ClassVar[tuple[str, ...]] = ()  # what is posted in these is neither logged nor sent back
    default_renderer = Renderer
    use_required_attribute = False  # what is missing is said beside the field, with all that is wrong
    bound_field_class = Bound
    reason = forms.CharField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", "field-%s")
        if kwargs.get("instance") is None:
            kwargs["instance"] = self._meta.model()  # with the defaults of its fields
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.required = getattr(field, "needed", False)
            if isinstance(field, ReferenceField):
                row = name.removesuffix("_id")
                known = getattr(self.instance, row) if getattr(self.instance, f"{row}_id") else None
                given = (kwargs.get("initial") or {}).get(name, "")
                self.initial[name] = known.public_id if known is not None else given
            if isinstance(field, CompletedField):
                known = getattr(self.instance, name.removesuffix("_id"), None)
                given = (kwargs.get("initial") or {}).get(name, "")
                self.initial[name] = known.public_id if known is not None else given
            if isinstance(field, forms.CharField):
                field.max_length, field.validators = None, []  # the model says it, in the service
            if isinstance(field, forms.IntegerField):
                field.validators = []
                field.error_messages["invalid"] = _("A whole number is needed here.")
                field.widget = forms.TextInput({"inputmode": "numeric"})
            if isinstance(field, forms.TypedChoiceField) and not self._meta.model._meta.get_field(name).blank:
                offered: Any = field.choices
                field.choices = [choice for choice in offered if choice[0] != ""]
            if name in self.only:
                chooser, *values = self.only[name]
                field.css = " ".join(["", f"only-{chooser}", *(f"{chooser}-{one}" for one in values)])  # type: ignore[attr-defined]
            if name in self.placeholders:
                field.widget.attrs["placeholder"] = self.placeholders[name]

    def offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        """Offer these objects as the choices of a ReferenceField."""
        field = self.fields[name]
        assert isinstance(field, ReferenceField)
        field.offer(choices, self.initial[name])

    def full_clean(self) -> None:
        """Read what was posted. What is empty is said together with what cannot be read; else the service says it."""
        super().full_clean()
        if not self.is_bound or not self.errors:
            return
        for name in self.fields:
            bound = self[name]
            empty = self.cleaned_data.get(name, "none") in (None, "", [])
            if empty and isinstance(bound, Bound) and bound.wanted:
                self.add_error(name, _("This must be filled in."))

    def _post_clean(self) -> None:
        """Leave the instance alone: the service sets and checks what was read."""

    @property
    def settings(self) -> dict[str, Any]:
        """The values that were read, as services take them."""
        return {name: self.cleaned_data[name] for name in self._meta.fields or ()}

    def refuse(self, errors: Mapping[str, list[str]]) -> None:
        """Put each sentence beside its field, or above all of them."""
        for name, sentences in errors.items():
            self.add_error(name if name in self.fields else None, sentences)

    def grouped(self) -> Iterator[tuple[Group, list[forms.BoundField]]]:
        """Each group with its fields; one whose fields are all hidden beside another field is hidden with them."""
        for group in self.groups:
            rules = [self.only.get(name, ("",)) for name in group.fields]
            chooser, *_ = {rule[0] for rule in rules} if len({rule[0] for rule in rules}) == 1 else {""}
            values = dict.fromkeys(value for _, *shown in rules for value in shown)
            css = f" only-{chooser} {' '.join(f'{chooser}-{one}' for one in values)}" if chooser else ""
            yield replace(group, css=css), [self[name] for name in group.fields]

    @property
    def opened(self) -> list[str]:
        """Titles of the folded groups that are open."""
        defaults = {field.name: field.get_default() for field in self._meta.model._meta.concrete_fields}

        def touched(name: str) -> bool:
            unset = self.fields[name].prepare_value(defaults.get(name, ""))
            return bool(self[name].errors) or str(self[name].value()) != str(unset)  # posted: a text

        return [group.title for group in self.groups if group.folded and any(map(touched, group.fields))]

    def wrong(self) -> list[tuple[str, str]]:
        """(field or "", sentence) of all that is wrong, for the summary above the form."""
        shown = {name: self[name].label for group in self.groups for name in group.fields}
        return [
            (name if name in shown or name == "reason" else "", f"{shown[name]}: {text}" if name in shown else text)
            for name, texts in self.errors.items()
            for text in map(str, texts)
        ]
