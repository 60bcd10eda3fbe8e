"""Pickups in the console: columns of the list, the form, and what a pickup's page shows."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging.console.forms import MOST_CHOICES, Group, ReferenceField, SettingsForm
from messaging.console.resource import Column, Filter, ListPage, Pages
from messaging.pairs.selectors import screens
from messaging.pollers import selectors
from messaging.pollers.resource import PICKUPS
from messaging.pollers.selectors import PickupRow
from messaging.templatetags.hub import ago, state, until
from partners import selectors as partners
from partners.choices import CredentialKind, PickupKind
from partners.models import Pickup


def _name(row: PickupRow) -> SafeString:
    pickup = row.pickup
    said: SafeString | str = ""
    if row.sentence and row.cause is not None:
        css, since = ("text-soft", "; changed since") if row.changed else ("text-bad", "")
        said = format_html('<div class="{} wrap">{}{}</div>', css, row.cause.label, since)
    return format_html(
        '<a class="strong" id="pickup-{0}" href="{1}">{2}</a><div class="text-faint mono wrap">{3}</div>{4}',
        pickup.public_id,
        reverse("console:pickup", args=[pickup.public_id]),
        pickup.name,
        pickup.url,
        said,
    )


def _partner(row: PickupRow) -> SafeString:
    partner = row.pickup.partner
    if partner is None:
        return format_html('<span class="text-soft">{}</span>', "told by the sender's address")
    return format_html('<a href="{}">{}</a>', reverse("console:partner", args=[partner.public_id]), partner)


def _next_look(row: PickupRow) -> SafeString | str:
    if row.state in ("off", "looking"):
        return "—" if row.state == "off" else "now"
    if row.outlook[0]:
        return format_html('<span class="text-bad">{}</span>', "due")
    return until(row.next_look_at, "due")


LIST = ListPage(
    lead="Mailboxes and folders that the hub looks into for what partners left there.",
    caption="Mailboxes and folders by name",
    columns=(
        Column("State", lambda row: state("pickup", row.state), "nowrap"),
        Column("Pickup", _name),
        Column("Partner", _partner),
        Column("Taken", lambda row: intcomma(row.progress.taken), "num"),
        Column("Last success", lambda row: ago(row.progress.last_success_at, "never"), "nowrap"),
        Column("Next look", _next_look, "nowrap"),
    ),
    filters=(
        Filter("q", "Name or address", "q"),
        Filter(
            "kind",
            "Kind",
            "kind",
            {kind: (kind,) for kind in PickupKind.values},
            (("", "Every kind"), *((one.value, one.label) for one in PickupKind)),
        ),
    ),
    icon="download",
    none_yet="No pickup yet.",
    what_then="Partners who leave mails or files somewhere need one: the hub looks there at its interval and takes "
    "what it finds.",
    row=selectors.row,
)


class PickupForm(SettingsForm):
    """The settings of a pickup. Its secret is never shown; an empty one leaves what is stored."""

    groups = (
        Group("Mailbox or folder", ("name", "kind", "url", "endpoint", "partner", "trusted_checker")),
        Group("How the hub logs in", ("username", "secret_kind", "password", "private_key", "host_key")),
        Group("When", ("interval", "enabled")),
    )
    note = (
        "Another server, host key or user name needs the password or key again: a stored one is shown to nobody else."
    )
    placeholders = {"trusted_checker": "mx.example.org", "host_key": "SHA256:…"}
    only = {
        "partner": ("kind", PickupKind.SFTP),
        "trusted_checker": ("kind", PickupKind.IMAP),
        "host_key": ("kind", PickupKind.SFTP),
        "password": ("secret_kind", CredentialKind.BASIC),
        "private_key": ("secret_kind", CredentialKind.SSH_KEY),
    }
    secrets = ("password", "private_key")
    endpoint = ReferenceField(
        Pickup.endpoint, prefix="end", blank="Choose one", missing="Choose the endpoint that the messages are for."
    )
    partner = ReferenceField(Pickup.partner, prefix="par", blank="Choose one")
    secret_kind = forms.ChoiceField(
        label="With",
        help_text="Mail servers take a password.",
        choices=((CredentialKind.BASIC.value, "a password"), (CredentialKind.SSH_KEY.value, "a private key")),
        widget=forms.RadioSelect,
    )
    password = forms.CharField(
        help_text="Kept encrypted and never shown. Empty: the one that is stored stays.",
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        strip=False,
    )
    private_key = forms.CharField(
        help_text="PEM text without a passphrase. Kept encrypted and never shown. Empty: the one that is stored stays.",
        widget=forms.Textarea,
        strip=False,
    )

    class Meta:
        model = Pickup
        fields = (
            *("name", "kind", "url", "endpoint", "partner", "trusted_checker"),
            *("username", "secret_kind", "host_key", "interval", "enabled"),
        )
        widgets = {"kind": forms.RadioSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["kind"] = self.initial.get("kind") or PickupKind.SFTP
        ours = partners.endpoints().filter(party__is_own=True)[:MOST_CHOICES]
        theirs = partners.parties(is_own=False)[:MOST_CHOICES]
        self.offer("endpoint", [(one.public_id, f"{one.party}: {one.uri}") for one in ours])
        self.offer("partner", [(one.public_id, one.name) for one in theirs])

    @property
    def settings(self) -> dict[str, Any]:
        """Without what the other kind has: its fields are hidden, and whoever changes the kind cannot empty them."""
        values = super().settings
        if values["kind"] == PickupKind.IMAP:
            values |= {"partner": None, "host_key": ""}
        else:
            values["trusted_checker"] = ""
        return {**values, "secret": self.cleaned_data[self._secret] or None}

    def refuse(self, errors: Any) -> None:
        super().refuse({self._secret if name == "secret" else name: texts for name, texts in errors.items()})

    @property
    def _secret(self) -> str:
        return "private_key" if self.cleaned_data.get("secret_kind") == CredentialKind.SSH_KEY else "password"


def _shown(pickup: Pickup) -> dict[str, Any]:
    return {"row": selectors.row(pickup), "audit": screens.audit_of(pickup)}


PAGES = Pages(
    resource=PICKUPS,
    listing=LIST,
    form=PickupForm,
    template="console/pollers/pickup.html",
    shown=_shown,
    now=lambda pickup: format_html('<span class="mono wrap">{}</span>', pickup.url),
    made="is made.",
)
