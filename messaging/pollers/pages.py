"""Pollers in the console: columns of the list, the form, and what a poller's page shows."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging.console.filters import Filter
from messaging.console.forms import MOST_CHOICES, Group, ReferenceField, SettingsForm
from messaging.console.resource import Column, ListPage, Pages
from messaging.pairs.selectors import screens
from messaging.pollers import selectors
from messaging.pollers.resource import POLLERS
from messaging.pollers.selectors import PollerRow
from messaging.templatetags.hub import ago, state, until
from partners import selectors as partners
from partners.choices import CredentialKind, PollerKind
from partners.models import Poller


def _name(row: PollerRow) -> SafeString:
    poller = row.poller
    said: SafeString | str = ""
    if row.sentence and row.cause is not None:
        css, since = ("text-soft", "; changed since") if row.changed else ("text-bad", "")
        said = format_html('<div class="{} wrap">{}{}</div>', css, row.cause.label, since)
    return format_html(
        '<a class="strong" id="poller-{0}" href="{1}">{2}</a><div class="text-faint mono wrap">{3}</div>{4}',
        poller.public_id,
        reverse("console:poller", args=[poller.public_id]),
        poller.name,
        poller.url,
        said,
    )


def _partner(row: PollerRow) -> SafeString:
    partner = row.poller.partner
    if partner is None:
        return format_html('<span class="text-soft">{}</span>', "identified by the sender's address")
    return format_html('<a href="{}">{}</a>', reverse("console:partner", args=[partner.public_id]), partner)


def _next_look(row: PollerRow) -> SafeString | str:
    if row.state in ("off", "looking"):
        return "—" if row.state == "off" else "now"
    if row.outlook[0]:
        return format_html('<span class="text-bad">{}</span>', "due")
    return until(row.next_look_at, "due")


LIST = ListPage(
    lead="Mailboxes and folders that the hub polls for what partners left there.",
    caption="Mailboxes and folders by name",
    columns=(
        Column("State", lambda row: state("poller", row.state), "nowrap"),
        Column("Poller", _name),
        Column("Partner", _partner),
        Column("Taken", lambda row: intcomma(row.progress.taken), "num"),
        Column("Last success", lambda row: ago(row.progress.last_success_at, "never"), "nowrap"),
        Column("Next poll", _next_look, "nowrap"),
    ),
    filters=(
        Filter("q", "Name or address", "q", kind="search"),
        Filter("party", "Partner", "party", kind="partner"),
        Filter(
            "kind",
            "Kind",
            "kind",
            {kind: (kind,) for kind in PollerKind.values},
            (("", "Every kind"), *((one.value, one.label) for one in PollerKind)),
        ),
    ),
    icon="download",
    none_yet="No poller yet.",
    what_then="Partners who leave mails or files somewhere need one: the hub polls there at its interval and takes "
    "what it finds.",
    row=selectors.row,
)


class PollerForm(SettingsForm):
    """The settings of a poller. Its secret is never shown; an empty one leaves what is stored."""

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
        "partner": ("kind", PollerKind.SFTP),
        "trusted_checker": ("kind", PollerKind.IMAP),
        "host_key": ("kind", PollerKind.SFTP),
        "password": ("secret_kind", CredentialKind.BASIC),
        "private_key": ("secret_kind", CredentialKind.SSH_KEY),
    }
    secrets = ("password", "private_key")
    endpoint = ReferenceField(
        Poller.endpoint, prefix="end", blank="Choose one", missing="Choose the endpoint that the messages are for."
    )
    partner = ReferenceField(Poller.partner, prefix="par", blank="Choose one")
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
        model = Poller
        fields = (
            *("name", "kind", "url", "endpoint", "partner", "trusted_checker"),
            *("username", "secret_kind", "host_key", "interval", "enabled"),
        )
        widgets = {"kind": forms.RadioSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["kind"] = self.initial.get("kind") or PollerKind.SFTP
        ours = partners.endpoints().filter(party__is_own=True)[:MOST_CHOICES]
        theirs = partners.parties(is_own=False)[:MOST_CHOICES]
        self.offer("endpoint", [(one.public_id, f"{one.party}: {one.uri}") for one in ours])
        self.offer("partner", [(one.public_id, one.name) for one in theirs])

    @property
    def settings(self) -> dict[str, Any]:
        """Without what the other kind has: its fields are hidden, and whoever changes the kind cannot empty them."""
        values = super().settings
        if values["kind"] == PollerKind.IMAP:
            values |= {"partner": None, "host_key": ""}
        else:
            values["trusted_checker"] = ""
        return {**values, "secret": self.cleaned_data[self._secret] or None}

    def refuse(self, errors: Any) -> None:
        super().refuse({self._secret if name == "secret" else name: texts for name, texts in errors.items()})

    @property
    def _secret(self) -> str:
        return "private_key" if self.cleaned_data.get("secret_kind") == CredentialKind.SSH_KEY else "password"


def _shown(poller: Poller) -> dict[str, Any]:
    return {"row": selectors.row(poller), "audit": screens.audit_of(poller)}


PAGES = Pages(
    resource=POLLERS,
    listing=LIST,
    form=PollerForm,
    template="console/pollers/poller.html",
    shown=_shown,
    now=lambda poller: format_html('<span class="mono wrap">{}</span>', poller.url),
    made="is created.",
)
