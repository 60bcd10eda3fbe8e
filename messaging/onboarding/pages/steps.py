"""The forms of the onboarding wizard's steps, and how what stands in them is kept in a draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.console.forms import MOST_CHOICES, Group
from messaging.console.naming import Completing, partner_key
from messaging.models import OnboardingDraft
from messaging.onboarding.pages.fields import NamedField, SecretText, choice
from messaging.onboarding.pages.forms import EndpointForm, Errors, PartnerForm, PartyForm, TermsForm
from messaging.onboarding.services.making import FIELDS, values_of
from partners import selectors
from partners.choices import WITH_CERTIFICATE, CredentialKind, Profile, Semantics
from partners.rules import BY_PROFILE
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, inside

NONE = "none"  # of a choice: what the draft keeps as ""
_KINDS = ("outbound_kind", "inbound_kind")


class KnownField(forms.CharField):
    """A partner by name, identifier or id. The value is the id, as the draft keeps it."""

    def to_python(self, value: Any) -> str:
        key = partner_key(str(value or ""))
        return public_id("par", key) if key is not None else ""


class IdentityForm(PartyForm):
    """Step 2: who the partner is."""

    groups = (Group(gettext_lazy("New or known"), ("existing",)), *PartyForm.groups)
    existing = KnownField(
        label=gettext_lazy("Partner"),
        help_text=gettext_lazy("A known partner stays as it is; only an endpoint and an agreement are added."),
        widget=Completing("partner", {"placeholder": gettext_lazy("A new partner")}),
    )


class TransportForm(EndpointForm):
    """Step 3: where messages go, and what both sides show each other."""

    groups = (
        *EndpointForm.groups,
        Group(
            gettext_lazy("Our credentials"),
            ("outbound_kind", "outbound_username", "secret"),
            gettext_lazy("Stored as soon as the partner is tested."),
        ),
        Group(
            gettext_lazy("Their credentials"),
            ("inbound_kind", "inbound_username", "inbound_certificate"),
            gettext_lazy("Created when the agreement is activated, and shown once."),
        ),
    )
    only = {
        **EndpointForm.only,
        "outbound_username": ("outbound_kind", CredentialKind.BASIC, CredentialKind.SSH_KEY),
        "secret": ("outbound_kind", *CredentialKind),
        "inbound_username": ("inbound_kind", CredentialKind.BASIC),
        "inbound_certificate": ("inbound_kind", *WITH_CERTIFICATE),
    }
    outbound_kind = choice(gettext_lazy("Kind"), ((NONE, gettext_lazy("Nothing")), *CredentialKind.choices))
    outbound_username = forms.CharField(label=gettext_lazy("User name"))
    secret = forms.CharField(
        label=gettext_lazy("Password, token or key"),
        help_text=gettext_lazy(
            "What they gave us; for a certificate of ours both the certificate and its private key, as PEM."
        ),
        widget=SecretText,
        strip=False,
    )
    inbound_kind = choice(
        gettext_lazy("Kind"),
        (
            (NONE, gettext_lazy("Nothing new")),
            *((one.value, one.label) for one in CredentialKind if one is not CredentialKind.SSH_KEY),
        ),
    )
    inbound_username = forms.CharField(label=gettext_lazy("User name"))
    inbound_certificate = forms.CharField(
        label=gettext_lazy("Their certificate"), help_text=gettext_lazy("PEM text."), widget=forms.Textarea
    )


class AgreementForm(TermsForm):
    """Step 4: what is agreed."""

    groups = (Group(gettext_lazy("Agreement"), ("tpa_id", "title", "own_endpoint")), *TermsForm.groups)
    tpa_id = forms.CharField(
        label="TPAId",
        help_text=gettext_lazy("It is in every message, so both sides must use the same one."),
    )
    title = forms.CharField(label=gettext_lazy("Name"))
    own_endpoint = NamedField(gettext_lazy("Our endpoint"), blank=gettext_lazy("Choose one"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ours = selectors.endpoints().filter(party__is_own=True, party__archived_at__isnull=True)[:MOST_CHOICES]
        self.offer("own_endpoint", [(one.public_id, f"{one.party}: {one.uri}") for one in ours])

    def hidden(self, name: str) -> bool:
        return name != "services" and super().hidden(name)  # kept for when the profile is changed back


FORMS: Mapping[str, type[PartnerForm]] = {
    "identity": IdentityForm,
    "transport": TransportForm,
    "agreement": AgreementForm,
}
# Sets of terms that are often agreed: (name, words, what it sets).
PRESETS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("usual", gettext_lazy("Usual"), {"timeout": 60, "retries": 5, "retry_interval": 300}),
    ("quick", gettext_lazy("Quick"), {"timeout": 10, "retries": 4, "retry_interval": 30}),
    ("patient", gettext_lazy("Patient"), {"timeout": 300, "retries": 24, "retry_interval": 3600}),
    ("mail", gettext_lazy("For mail"), {"timeout": 1800, "retries": 12, "retry_interval": 7200}),
    (
        "transactions",
        gettext_lazy("Atomic transactions"),
        {"profile": Profile.WSAT.value, **BY_PROFILE[Profile.WSAT].defaults},
    ),
)
# What both sides have to know of an agreement; of the rest, whatever is not as usual.
_ALWAYS_SAID = ("profile", "semantics", "timeout", "retries", "retry_interval", "services")
_RELIABLE = {"profile": Profile.EBXML.value, "semantics": Semantics.ONCE_AND_ONLY_ONCE.value}


def shown(step: str, given: Mapping[str, Any], errors: Errors | None = None) -> PartnerForm:
    """The form of a step with what is given in its fields, and what is wrong beside them."""
    form = FORMS[step](initial=dict.fromkeys(_KINDS, NONE) | dict(given))
    form.tell(errors or {})
    return form


def kept(draft: OnboardingDraft, step: str) -> dict[str, Any]:
    """What stands in a step's fields: what was typed. Never the secret."""
    values = values_of(draft, step)
    values |= {name: values[name] or NONE for name in _KINDS if name in values}
    return values | {name: text for name, text in draft.data.get(step, {}).get("unread", {}).items() if text}


@sensitive_variables("form", "values", "texts")
def read(
    step: str, posted: QueryDict, files: MultiValueDict[str, Any], preset: str = ""
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str], dict[str, list[str]]]:
    """(what stood in the fields, values, what cannot be read, why) of a step as it was posted. The secret is left out.

    `preset`: the set of terms that takes the place of what was typed.
    """
    for name, __, terms in PRESETS:
        if name == preset:
            posted = posted.copy()
            for key, value in (_RELIABLE | dict(terms)).items():
                posted[key] = str(AgreementForm.base_fields[key].prepare_value(value))
    form = FORMS[step](posted, files)
    form.full_clean()
    values = {name: value for name, value in form.typed.items() if name in FIELDS[step]}
    values |= {name: "" for name in _KINDS if values.get(name) == NONE}
    for name in ("identifiers", "services"):
        if name in values:
            values[name] = [list(row) for row in values[name]]
    texts = {name: form[name].value() for name in form.fields if name in FIELDS[step]}
    texts |= {name: values[name] for name in form.uploads.values() if name in values}
    why = {name: [str(text) for text in found] for name, found in form.errors.items()}
    unread = {name: str(texts[name] or "") for name in why if name in FIELDS[step]}
    return texts, values, unread, why


def facts(draft: OnboardingDraft, step: str) -> list[tuple[str, str]]:
    """(label, value) of everything in a step that tells something, as people read it."""
    form, usual = shown(step, kept(draft, step)), shown(step, {})
    fields = [form[name] for group in form.groups for name in group.fields if name in FIELDS[step]]
    return [
        (_titled(one), _said(one))
        for one in fields
        if not (one.value() is None or one.value() is False or one.value() == "")
        and (step != "agreement" or one.name in _ALWAYS_SAID or one.value() != usual[one.name].value())
    ]


def _titled(one: forms.BoundField) -> str:
    """Without the headings of the form, what we show and what they show have the same names."""
    whose = {"outbound": _("We show: {what}"), "inbound": _("They show: {what}")}
    side, __, rest = one.name.partition("_")
    if side not in whose or rest not in ("kind", "username", "certificate"):
        return str(one.label)
    return whose[side].format(what=inside(str(one.label)))


def _said(one: forms.BoundField) -> str:
    if isinstance(one.field, forms.BooleanField):
        return _("yes")
    if isinstance(one.field, KnownField):
        return str(one.field.widget.format_value(one.value()))
    offered: Any = one.field.choices if isinstance(one.field, forms.ChoiceField) else ()
    labels = dict(offered)
    return str(labels.get(one.value(), one.value()))
