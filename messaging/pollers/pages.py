"""Pollers in the console: columns of the list, the form, and what a poller's page shows."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.console.filters import Filter
from messaging.console.forms import MOST_CHOICES, Group, PartnerField, ReferenceField, SettingsForm
from messaging.console.resource import Column, ListPage, Pages
from messaging.pairs.selectors import screens
from messaging.pollers import selectors
from messaging.pollers.resource import POLLERS
from messaging.pollers.selectors import PollerRow
from messaging.templatetags.hub import ago, state, until
from partners import selectors as partners
from partners.choices import CredentialKind, PollerKind
from partners.models import Poller
from rmhub.language import gettext_lazy, number


def _name(row: PollerRow) -> SafeString:
    poller = row.poller
    said: SafeString | str = ""
    if row.sentence and row.cause is not None:
        label = _("{cause}; changed since").format(cause=row.cause.label) if row.changed else row.cause.label
        css = "text-soft" if row.changed else "text-bad"
        said = format_html('<div class="{} wrap">{}</div>', css, label)
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
        return format_html('<span class="text-soft">{}</span>', _("identified by the sender's address"))
    return format_html('<a href="{}">{}</a>', reverse("console:partner", args=[partner.public_id]), partner)


def _next_look(row: PollerRow) -> SafeString | str:
    if row.state in ("off", "looking"):
        return "—" if row.state == "off" else _("now")
    if row.outlook[0]:
        return format_html('<span class="text-bad">{}</span>', _("due"))
    return until(row.next_look_at, _("due"))


LIST = ListPage(
    lead=gettext_lazy("Mailboxes and folders that the hub polls for what partners left there."),
    caption=gettext_lazy("Mailboxes and folders by name"),
    columns=(
        Column(gettext_lazy("State"), lambda row: state("poller", row.state), "nowrap"),
        Column(gettext_lazy("Poller"), _name),
        Column(gettext_lazy("Partner"), _partner),
        Column(gettext_lazy("Taken"), lambda row: number(row.progress.taken), "num"),
        Column(gettext_lazy("Last success"), lambda row: ago(row.progress.last_success_at, _("never")), "nowrap"),
        Column(gettext_lazy("Next poll"), _next_look, "nowrap"),
    ),
    filters=(
        Filter("q", gettext_lazy("Name or address"), "q", kind="search"),
        Filter("party", gettext_lazy("Partner"), "party", kind="partner"),
        Filter(
            "kind",
            gettext_lazy("Kind"),
            "kind",
            {kind: (kind,) for kind in PollerKind.values},
            (("", gettext_lazy("Every kind")), *((one.value, one.label) for one in PollerKind)),
        ),
    ),
    icon="download",
    none_yet=gettext_lazy("No poller yet."),
    what_then=gettext_lazy(
        "Partners who leave mails or files somewhere need one: the hub polls there at its interval and takes what it "
        "finds."
    ),
    row=selectors.row,
)


class PollerForm(SettingsForm):
    """The settings of a poller. Its secret is never shown; an empty one leaves what is stored."""

    groups = (
        Group(gettext_lazy("Mailbox or folder"), ("name", "kind", "url", "endpoint", "partner", "trusted_checker")),
        Group(gettext_lazy("How the hub logs in"), ("username", "secret_kind", "password", "private_key", "host_key")),
        Group(gettext_lazy("When"), ("interval", "enabled")),
    )
    note = gettext_lazy(
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
        Poller.endpoint,
        prefix="end",
        blank=gettext_lazy("Choose one"),
        missing=gettext_lazy("Choose the endpoint that the messages are for."),
    )
    partner = PartnerField(Poller.partner)
    secret_kind = forms.ChoiceField(
        label=gettext_lazy("With"),
        help_text=gettext_lazy("Mail servers take a password."),
        choices=(
            (CredentialKind.BASIC.value, gettext_lazy("a password")),
            (CredentialKind.SSH_KEY.value, gettext_lazy("a private key")),
        ),
        widget=forms.RadioSelect,
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        help_text=gettext_lazy("Kept encrypted and never shown. Empty: the one that is stored stays."),
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        strip=False,
    )
    private_key = forms.CharField(
        label=gettext_lazy("Private key"),
        help_text=gettext_lazy(
            "PEM text without a passphrase. Kept encrypted and never shown. Empty: the one that is stored stays."
        ),
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
        self.offer("endpoint", [(one.public_id, f"{one.party}: {one.uri}") for one in ours])

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
    made=gettext_lazy("is created."),
)
