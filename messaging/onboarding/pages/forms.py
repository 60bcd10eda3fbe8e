"""The forms about partners: party, endpoint, credential, agreement and draft. The steps of the wizard add to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from messaging.console.forms import MOST_CHOICES, Group, SettingsForm
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from messaging.onboarding.pages.fields import (
    Choices,
    GroupsField,
    InstantField,
    NamedField,
    PemFile,
    RowsField,
    SecretText,
    ZoneField,
    radios,
    read_identifiers,
    read_services,
)
from partners import selectors, transports
from partners.choices import WITH_CERTIFICATE, CredentialDirection, CredentialKind
from partners.exceptions import InvalidInput, PartnersError
from partners.exceptions import WrongState as PartnersWrongState
from partners.models import ENDPOINT, RECOVERY, TERMS, AgreementVersion, Credential, Endpoint, PartnerGroup, Party
from partners.rules import BY_PROFILE
from rmhub.language import gettext_lazy, pgettext_lazy

Errors = dict[str, list[str]]
# What services refuse: for bad values, and because of the state that things are in.
INVALID = (InvalidSubmission, InvalidInput)
REFUSED = (Stale, WrongState, PartnersWrongState)
NUMBER = gettext_lazy("A whole number is needed here.")
_MOST_GROUPS = 100
_BASIC, _SSH_KEY = CredentialKind.BASIC, CredentialKind.SSH_KEY


def refusals(error: ApplicationError | PartnersError) -> Errors:
    """What a service refused, by field."""
    if isinstance(error, InvalidSubmission | InvalidInput):
        return error.errors
    return {"": [error.why if isinstance(error, PartnersWrongState) else str(error)]}


def reason_of(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")[:1000]


def way_back(request: HttpRequest, otherwise: str) -> str:
    """The `next` of a form, if it is a page of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    hosts = {request.get_host()}
    safe = url_has_allowed_host_and_scheme(wanted, allowed_hosts=hosts, require_https=request.is_secure())
    return wanted if safe and wanted.startswith("/") and not wanted.startswith("//") else otherwise


# ---- what all forms share


class PartnerForm(SettingsForm):
    """What is hidden beside what other fields hold is not read. `uploads`: file -> the field whose place it takes."""

    uploads: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if isinstance(field, forms.IntegerField):
                field.required, field.error_messages["required"] = True, NUMBER
            if isinstance(field.widget, forms.Textarea):
                field.css = f"{getattr(field, 'css', '')} form-wide"  # type: ignore[attr-defined]
            if isinstance(field, PemFile):
                field.widget.attrs["data-testid"] = name

    def offer(self, name: str, choices: Choices) -> None:
        """Offer these as the choices of a NamedField."""
        field = self.fields[name]
        assert isinstance(field, NamedField)
        field.offer(choices, self[name].value())

    def hidden(self, name: str) -> bool:
        """Whether the field is hidden beside what the others hold."""
        return name in self.only and self[self.only[name][0]].value() not in self.only[name][1:]

    def _clean_fields(self) -> None:
        super()._clean_fields()  # type: ignore[misc]
        for name in filter(self.hidden, self.only):
            self.cleaned_data.pop(name, None)
            self.errors.pop(name, None)

    def clean(self) -> dict[str, Any]:
        for file, name in self.uploads.items():
            if pem := self.cleaned_data.pop(file, ""):
                self.cleaned_data[name] = pem
        return self.cleaned_data

    @property
    def typed(self) -> dict[str, Any]:
        """What was read of the fields that are shown."""
        return {name: value for name, value in self.cleaned_data.items() if name != "reason"}

    @property
    def settings(self) -> dict[str, Any]:
        return self.typed

    def tell(self, errors: Errors) -> None:
        """Show these beside the fields, of a form that was not posted as well."""
        if not self.is_bound:
            self.cleaned_data = {}
        self.refuse(errors)


# ---- parties and their endpoints


class PartyForm(PartnerForm):
    """The form of a party."""

    groups: ClassVar[tuple[Group, ...]] = (
        Group(gettext_lazy("Who they are"), ("name", "identifiers")),
        Group(gettext_lazy("Contact"), ("contact", "time_zone", "hours")),
    )
    placeholders = {"identifiers": "DUNS 123456789", "hours": "Mon-Fri 8-17"}
    identifiers = RowsField(
        read_identifiers,
        " ",
        wanted=True,
        label=gettext_lazy("Party identifiers"),
        help_text=gettext_lazy(
            "One a line: type, space or colon, value. The first is the one that we write into messages."
        ),
    )

    time_zone = ZoneField()

    def refuse(self, errors: Mapping[str, list[str]]) -> None:
        """Beside an identifier that somebody else has stands the way to who that is."""
        given = self.cleaned_data.get("identifiers") or self.initial.get("identifiers")
        super().refuse(errors)
        if "identifiers" in errors:
            read = given if isinstance(given, list) else []  # else it is text that cannot be read
            others = selectors.owners(read).exclude(pk=self.instance.pk)
            found = [(one.name, reverse("console:partner", args=[one.public_id])) for one in others]
            self.fields["identifiers"].links = found  # type: ignore[attr-defined]

    class Meta:
        model = Party
        fields: tuple[str, ...] = ("name", "contact", "time_zone", "hours")


class NewPartyForm(PartyForm):
    """The form of a party and nothing else; the wizard makes a partner with all that belongs to it."""

    groups = (*PartyForm.groups, Group(gettext_lazy("Ownership"), ("is_own",)))

    class Meta(PartyForm.Meta):
        fields = (*PartyForm.Meta.fields, "is_own")


class ChangedPartyForm(PartyForm):
    """The form of a party that there is: its groups too."""

    def __init__(self, *args: Any, instance: Party, **kwargs: Any) -> None:
        super().__init__(*args, instance=instance, **kwargs)
        self.initial["identifiers"] = [(one.context, one.value) for one in instance.identifiers.all()]
        self.initial["groups"] = [group.public_id for group in instance.groups.all()]
        known = [(one.public_id, one.name) for one in PartnerGroup.objects.all()[:_MOST_GROUPS]]
        self.fields["groups"] = GroupsField(choices=known, required=False)


def _of_transports(name: str) -> tuple[str, ...]:
    """A setting that not every transport has, as `only` wants it."""
    return ("transport", *(one.name for one in transports.ALL if name in one.fields))


class EndpointForm(PartnerForm):
    """The form of an endpoint."""

    note = gettext_lazy(
        "Its URIs are fixed while an agreement in force uses it; all the rest takes effect within a second."
    )
    groups: ClassVar[tuple[Group, ...]] = (
        Group(gettext_lazy("Where messages go"), ("transport", "uri", "service_address")),
        Group(
            gettext_lazy("Trusted certificates"),
            ("trusted_certificates", "certificates_file", "host_key"),
            gettext_lazy("HTTPS and mail servers."),
        ),
        Group(
            gettext_lazy("Alternative addresses"),
            ("name", "address", "error_uri", "error_address", "server", "connect_timeout", "read_timeout"),
            gettext_lazy("Only where it differs from the URI: a proxy, a relay, errors that go elsewhere."),
            folded=True,
        ),
    )
    only: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "trusted_certificates": _of_transports("trusted_certificates"),
        "certificates_file": _of_transports("trusted_certificates"),
        "host_key": _of_transports("host_key"),
        "server": _of_transports("server"),
    }
    placeholders = {
        "uri": "https://msh.partner.example/ebxml",
        "service_address": "https://msh.partner.example/partner/",
        "host_key": "SHA256:…",
    }
    uploads = {"certificates_file": "trusted_certificates"}
    certificates_file = PemFile(
        label=gettext_lazy("… or from a file"), help_text=gettext_lazy("PEM or DER. It takes the place of the text.")
    )

    class Meta:
        model = Endpoint
        fields = ENDPOINT
        formfield_callback = radios

    @property
    def settings(self) -> dict[str, Any]:
        """What another transport has is hidden, and whoever changes the transport cannot empty it."""
        return {"trusted_certificates": "", "host_key": "", "server": "", **self.typed}


# ---- credentials


class CredentialForm(PartnerForm):
    """The form of a credential. What is posted as its secret is not sent back."""

    groups = (
        Group(
            gettext_lazy("Credential"),
            (
                *("direction", "kind", "label", "username", "secret"),
                *("certificate", "certificate_file", "fingerprint", "valid_from", "valid_until"),
            ),
        ),
    )
    only = {
        "username": ("kind", _BASIC, _SSH_KEY),
        "certificate": ("kind", *WITH_CERTIFICATE),
        "certificate_file": ("kind", *WITH_CERTIFICATE),
        "fingerprint": ("kind", CredentialKind.CERTIFICATE),
    }
    uploads = {"certificate_file": "certificate"}
    secret = forms.CharField(
        label=gettext_lazy("Password, token or key"),
        help_text=gettext_lazy(
            "What the partner gave us; an SSH key, or our certificate with its private key, as PEM. For one that "
            "the partner shows us leave it empty: the hub makes one up. Kept encrypted, never shown."
        ),
        widget=SecretText,
        strip=False,
    )
    certificate = forms.CharField(
        label=gettext_lazy("Their certificate"),
        help_text=gettext_lazy(
            "PEM text of the certificate that the partner shows us, signs with, or has documents encrypted for."
        ),
        widget=forms.Textarea,
    )
    certificate_file = PemFile(label=gettext_lazy("… or from a file"), help_text=gettext_lazy("PEM or DER."))
    fingerprint = forms.CharField(
        label=gettext_lazy("… or its SHA-256 fingerprint"), help_text=gettext_lazy("64 hexadecimal digits.")
    )

    class Meta:
        model = Credential
        fields = ("direction", "kind", "label", "username", "valid_from", "valid_until")
        field_classes = {"valid_from": InstantField, "valid_until": InstantField}
        formfield_callback = radios

    def __init__(self, *args: Any, zone: tzinfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("valid_from", "valid_until"):
            self.fields[name].zone = zone  # type: ignore[attr-defined]
        for name, value in (("direction", CredentialDirection.INBOUND), ("kind", _BASIC)):
            self.initial[name] = self.initial.get(name) or value


# ---- agreements


def _of_profiles() -> dict[str, tuple[str, ...]]:
    """Settings that not every profile has, as `only` wants them."""
    having = {name: [key for key, one in BY_PROFILE.items() if name in one.names] for name in ("services", *TERMS)}
    return {name: ("profile", *profiles) for name, profiles in having.items() if profiles}


_FINE_POINTS = (
    *(*RECOVERY, "max_in_flight", "clock_skew"),
    *("stream_concurrency", "inbound_quota", "detect_repeats", "strict_sequence"),
    *("write_namespace", "write_padded_numbers"),
)


def _and_the_rest(*groups: Group) -> tuple[Group, ...]:
    """The last group has the terms that none names."""
    named = {"note", *(name for group in groups for name in group.fields)}
    rest = tuple(name for name in TERMS if name not in named)
    return (*groups[:-1], replace(groups[-1], fields=(*groups[-1].fields, *rest)))


class TermsForm(PartnerForm):
    """The terms of an agreement version."""

    groups: ClassVar[tuple[Group, ...]] = _and_the_rest(
        Group(gettext_lazy("What is sent"), ("services", "profile", "semantics")),
        Group(
            gettext_lazy("Transactions"),
            ("coordination_version", "soap_version", "addressing_profile", "addressing_strict", "other_servers"),
            gettext_lazy("What both sides write. Everything is read."),
        ),
        Group(
            gettext_lazy("Reliability"),
            (
                *("timeout", "retries", "retry_interval", "repeat_interval", "repeat_interval_max", "partner_window"),
                *("resend_schedule", "time_to_live", "ordered", "memory_window", "max_message_bytes"),
            ),
        ),
        Group(
            gettext_lazy("Answers"),
            (
                *("exchange_mode", "exchange_identity", "final_receipt", "final_receipt_within"),
                *("order_ack_timeout", "max_order_ack_delay"),
            ),
            folded=True,
        ),
        Group(
            gettext_lazy("Service level"),
            ("acknowledged_within", "acknowledged_percent", "processed_within", "processed_percent"),
            gettext_lazy(
                "Targets for each calendar month (UTC). They change nothing of what is sent: they are measured."
            ),
            folded=True,
        ),
        Group(gettext_lazy("Advanced"), _FINE_POINTS, folded=True),
    )
    only = _of_profiles()
    placeholders = {"services": "urn:orders | * | both"}
    services = RowsField(
        read_services,
        " | ",
        label=gettext_lazy("Services and actions"),
        help_text=gettext_lazy(
            "One a line: the service, a bar, the action (* = every action), a bar, and send, receive or both."
        ),
    )

    class Meta:
        model = AgreementVersion
        fields = tuple(name for name in TERMS if name != "note")
        formfield_callback = radios

    @property
    def settings(self) -> dict[str, Any]:
        """Under the names of the services' arguments."""
        values = self.typed
        references = [name for name, field in self.fields.items() if isinstance(field, NamedField) and name in values]
        named = {f"{name}_id": values.pop(name) for name in references}
        allowed = values.pop("services", [])
        return {**values, **named, "allowed": allowed}

    def _offer_endpoints(self, own: Iterable[Party], partner: Party, through: Party | None) -> None:
        """Those of both parties, and of the partner whose hub passes messages on, if there is one."""
        found = selectors.endpoints().filter(party__archived_at__isnull=True)
        theirs = (partner,) if through is None else (partner, through)
        for name, parties in (("own_endpoint", own), ("partner_endpoint", theirs)):
            ends = found.filter(party__in=list(parties))[:MOST_CHOICES]
            self.offer(name, [(one.public_id, f"{one.party}: {one.uri}") for one in ends])


class NewAgreementForm(TermsForm):
    """The form of a new agreement."""

    ENDS = ("own_party", "partner", "own_endpoint", "partner_endpoint")
    groups = (
        Group(gettext_lazy("Agreement"), ("tpa_id", "name", *ENDS)),
        *TermsForm.groups,
    )
    tpa_id = forms.CharField(
        label="TPAId",
        help_text=gettext_lazy("It is in every message, so both sides must use the same one."),
    )
    name = forms.CharField(label=gettext_lazy("Name"))
    own_party = NamedField(gettext_lazy("Our party"), prefix="par", blank=gettext_lazy("Choose one"))
    partner = NamedField(gettext_lazy("Partner"), prefix="par")
    own_endpoint = NamedField(gettext_lazy("Our endpoint"), prefix="end", blank=gettext_lazy("Choose one"))
    partner_endpoint = NamedField(
        gettext_lazy("The partner's endpoint"), prefix="end", blank=gettext_lazy("Choose one")
    )

    def __init__(self, *args: Any, partner: Party, through: Party | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("tpa_id", *self.ENDS):
            self.fields[name].wanted = True  # type: ignore[attr-defined]
        ours = selectors.parties(is_own=True, archived=False)[:MOST_CHOICES]
        self.offer("own_party", [(one.public_id, one.name) for one in ours])
        self.offer("partner", [(partner.public_id, partner.name)])
        self._offer_endpoints(ours, partner, through)


class VersionForm(TermsForm):
    """The form of a draft."""

    groups = (Group(gettext_lazy("Endpoints"), ("own_endpoint", "partner_endpoint", "note")), *TermsForm.groups)
    own_endpoint = NamedField(gettext_lazy("Ours"), prefix="end")
    partner_endpoint = NamedField(pgettext_lazy("endpoint", "The partner's"), prefix="end")

    class Meta(TermsForm.Meta):
        fields = TERMS

    def __init__(self, *args: Any, instance: AgreementVersion, through: Party | None, **kwargs: Any) -> None:
        super().__init__(*args, instance=instance, **kwargs)
        self.initial["services"] = [(one.service, one.action, one.direction) for one in instance.services.all()]
        self.initial["own_endpoint"] = instance.own_endpoint.public_id
        self.initial["partner_endpoint"] = instance.partner_endpoint.public_id
        self._offer_endpoints((instance.agreement.own_party,), instance.agreement.partner, through)
