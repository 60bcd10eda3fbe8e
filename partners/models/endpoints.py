"""Where messages go, and the mailboxes and folders that the hub looks into."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.functional import lazy

from partners import transports
from partners.choices import CredentialKind, PollerKind
from partners.fields import Seconds, settings
from partners.models.parties import Party
from rmhub.ids import public_id, uuid7
from rmhub.language import gettext_lazy

# What forms say of an endpoint's own server: a sentence of each transport that has one.
_server_help = lazy(lambda: " ".join(str(one.server_help) for one in transports.ALL if one.server_help), str)()


class Endpoint(models.Model):
    """A messaging service of a party: its logical URIs, and where its bytes really go."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="endpoints")
    name = models.CharField(
        gettext_lazy("name"),
        max_length=80,
        default="main",
        help_text=gettext_lazy("To tell several endpoints of a party apart."),
    )
    transport = models.CharField(
        gettext_lazy("transport"), max_length=10, choices=transports.choices, default=transports.HTTP.name
    )
    uri = models.CharField(  # spec 1, 2.2.2
        gettext_lazy("messaging service URI"),
        max_length=500,
        help_text=gettext_lazy(
            "The SenderURI and ReceiverURI on the wire. Mail: mailto:orders@partner.example, files: "
            "sftp://files.partner.example/inbox/"
        ),
    )
    error_uri = models.CharField(
        gettext_lazy("error URI"), max_length=500, help_text=gettext_lazy("Where errors go. Empty: to the URI.")
    )
    address = models.CharField(
        gettext_lazy("transport address"),
        max_length=500,
        blank=True,
        help_text=gettext_lazy("Bytes go here instead of to the URI."),
    )
    error_address = models.CharField(gettext_lazy("transport address for errors"), max_length=500, blank=True)
    server = models.CharField(
        gettext_lazy("mail or file server"),
        max_length=500,
        blank=True,
        help_text=_server_help,
    )
    host_key = models.CharField(
        gettext_lazy("key of the file server"),
        max_length=200,
        blank=True,
        help_text=gettext_lazy("Its fingerprint, as ssh-keygen -l prints it. Several are separated by spaces."),
    )
    trusted_certificates = models.TextField(
        gettext_lazy("trusted certificates"),
        blank=True,
        default="",
        help_text=gettext_lazy(
            "PEM text. The server may show only what these vouch for: an authority's, or its own certificate. "
            "Empty: every authority that this machine trusts."
        ),
    )
    service_address = models.CharField(
        gettext_lazy("address of test services"),  # docs/partner-services.md
        max_length=500,
        blank=True,
        default="",
        help_text=gettext_lazy("The partner answers at “status” and “echo” below this address. Empty: they have none."),
    )
    connect_timeout = Seconds(gettext_lazy("connect within"), default=10, validators=[MinValueValidator(1)])
    read_timeout = Seconds(gettext_lazy("answer within"), default=30, validators=[MinValueValidator(1)])
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("party_id", "name")
        verbose_name = gettext_lazy("endpoint")
        constraints = (models.UniqueConstraint(fields=("uri",), name="endpoint_uri_unique"),)

    def __str__(self) -> str:
        return f"{self.party}: {self.uri}"

    @property
    def public_id(self) -> str:
        return public_id("end", self.id)


ENDPOINT = settings(Endpoint)


class Poller(models.Model):
    """A mailbox or folder that the hub looks into for what partners left there.

    Whatever lies in a folder comes from `partner`; who sent a mail is told by its sender's address (spec 1, 2.5.2).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(
        Endpoint,
        on_delete=models.CASCADE,
        related_name="pollers",
        verbose_name=gettext_lazy("endpoint of ours"),
        help_text=gettext_lazy("The messages are for its URI; its timeouts hold for the server too."),
    )
    partner = models.ForeignKey(
        Party,
        verbose_name=gettext_lazy("partner"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=gettext_lazy("Folders: who puts files there; whatever lies in the folder counts as sent by them."),
    )
    name = models.CharField(
        gettext_lazy("name"), max_length=80, help_text=gettext_lazy("What people call it. It appears on every page.")
    )
    kind = models.CharField(gettext_lazy("kind"), max_length=10, choices=PollerKind)
    url = models.CharField(
        gettext_lazy("address"),
        max_length=500,
        help_text=gettext_lazy("Mailbox: imaps://mail.example.org/INBOX. Folder: sftp://files.example.org/outgoing/"),
    )
    username = models.CharField(gettext_lazy("user name"), max_length=120, blank=True)
    secret_encrypted = models.BinaryField(blank=True, default=b"")
    secret_kind = models.CharField(
        gettext_lazy("secret kind"), max_length=12, choices=CredentialKind, default=CredentialKind.BASIC
    )
    host_key = models.CharField(
        gettext_lazy("key of the server"),
        max_length=200,
        blank=True,
        help_text=gettext_lazy(
            "Folders: its fingerprint, as ssh-keygen -l prints it. Several, while a key is replaced, are "
            "separated by spaces."
        ),
    )
    trusted_checker = models.CharField(
        gettext_lazy("trusted authentication server"),
        max_length=255,
        blank=True,
        help_text=gettext_lazy(
            "Mailboxes: the name in Authentication-Results by which your mail server says that it has checked a "
            "sender (RFC 8601). Mails that it has not checked are not taken."
        ),
    )
    interval = Seconds(
        gettext_lazy("poll every"), default=30, validators=[MinValueValidator(5), MaxValueValidator(86_400)]
    )
    enabled = models.BooleanField(
        gettext_lazy("poll it"), default=True, help_text=gettext_lazy("Off: what lies there waits.")
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name = gettext_lazy("poller")
        constraints = (models.UniqueConstraint(fields=("name",), name="poller_name_unique"),)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("poll", self.id)


POLLER = settings(Poller, "secret_encrypted")
