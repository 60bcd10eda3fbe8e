"""The transports, each declared in a module of its own; forms, API, rules and checks ask them."""

from __future__ import annotations

from django.utils.translation import gettext as _

from partners.transports.base import Fault, Transport, characters_fault, url_fault
from partners.transports.http import HTTP
from partners.transports.sftp import SFTP
from partners.transports.smtp import SMTP, MailServer, mail_server, relay

__all__ = [
    "ALL",
    "HTTP",
    "PORTS",
    "SFTP",
    "SMTP",
    "Fault",
    "MailServer",
    "Transport",
    "choices",
    "mail_server",
    "named",
    "relay",
    "uri_fault",
]

# In the order in which they are offered.
ALL: tuple[Transport, ...] = (
    HTTP,
    SMTP,
    SFTP,
)
PORTS = {scheme: port for one in ALL for scheme, port in one.ports.items()}  # of each scheme
_NAMED = {one.name: one for one in ALL}


def named(name: str) -> Transport:
    """The transport that an endpoint names. Raises KeyError."""
    return _NAMED[name]


def choices() -> list[tuple[str, str]]:
    """Name and label of each, for a model's field."""
    return [(one.name, one.label) for one in ALL]


def uri_fault(uri: str, transport: str) -> Fault | None:
    """(code, sentence) for the first thing wrong with `uri` on this transport, or None."""
    if not uri:
        return "uri_missing", _("The URI is missing: enter one, such as https://msh.partner.example/ebxml.")
    known = _NAMED.get(transport)
    return characters_fault(uri) or (known.uri_fault(uri) if known is not None else url_fault(uri))
