"""Mail: to a mailbox, by the endpoint's own mail server or the hub's relay."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from partners.addresses import mailbox
from partners.choices import CredentialKind
from partners.transports.base import Fault, Transport
from rmhub.language import gettext_lazy

_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server of a URL. `scheme`: smtp (no encryption), smtp+starttls or smtps."""

    scheme: str
    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def starttls(self) -> bool:
        """Whether encryption begins after the greeting."""
        return self.scheme == "smtp+starttls"

    @property
    def tls(self) -> bool:
        """Whether encryption begins with the connection."""
        return self.scheme == "smtps"

    def login_refusal(self) -> str:
        """Why no log-in is sent to it, as a sentence; "" when one may be."""
        if self.starttls or self.tls:
            return ""
        return "The log-in was not sent, because smtp:// is not encrypted: use smtp+starttls:// or smtps://."


def mail_server(url: str) -> MailServer:
    """The server of `smtp://`, `smtp+starttls://` or `smtps://` with host, and port and user information if needed.

    Raises ValueError with a sentence for people, which does not repeat the URL: it may hold a password.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ValueError(_("The mail server's URL cannot be read: check its host and port.")) from None
    if parts.scheme not in _PORTS:
        raise ValueError(
            _("The mail server's URL must begin with smtp+starttls://, smtps:// or, in a network of your own, smtp://.")
        )
    if not parts.hostname or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(
            _(
                "The mail server's URL needs a host, may have a port, and has nothing after it: smtps://mail.example:465."
            )
        )
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], username, password)


def mail_server_fault(url: str) -> Fault | None:
    """(code, sentence) for the first thing wrong with an endpoint's mail server, or None. Empty is the hub's relay."""
    if not url:
        return None
    try:
        server = mail_server(url)
    except ValueError as error:
        return "server_malformed", str(error)
    if server.username or server.password:
        sentence = _(
            "The mail server's URL has a user name in it: remove it, and store an outbound credential instead."
        )
        return "server_userinfo", sentence
    return None


def _mailto_fault(uri: str) -> Fault | None:
    scheme, __, rest = uri.partition(":")
    if scheme.lower() != "mailto":
        return "uri_scheme", _("The mail transport needs a URI such as mailto:orders@partner.example.")
    if "?" in rest or "#" in rest:
        return "uri_fields", _("The URI says more than an address: leave out everything from the ? or # on.")
    if not mailbox(uri):
        sentence = _(
            "The URI names no mail address: enter one, such as mailto:orders@partner.example, without slashes."
        )
        return "uri_mailbox", sentence
    return None


def relay() -> str:
    """URL of the hub's own mail server."""
    return settings.RMHUB_SMTP_RELAY or "smtp://"


SMTP = Transport(
    name="smtp",
    label=gettext_lazy("Mail (SMTP)"),
    uri_fault=_mailto_fault,
    ports=_PORTS,
    fields=frozenset({"server", "trusted_certificates"}),
    server_help=gettext_lazy("Mail: smtp+starttls://relay.example:587, empty = the hub's own relay."),
    server_said="Mail: the server that takes it, e.g. smtp+starttls://relay.example:587; empty = the hub's relay.",
    server_fault=mail_server_fault,
    relayed=True,
    logins=(CredentialKind.BASIC,),
)
