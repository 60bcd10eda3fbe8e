"""What a transport says of itself: its name on screens, what an address on it looks like, which fields it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from partners.choices import CredentialKind

Fault = tuple[str, str]  # (code, sentence); the sentence does not repeat the URI, which may hold a password


def _no_fault(server: str) -> Fault | None:
    return None


@dataclass(frozen=True, slots=True)
class Transport:
    """How bytes reach an endpoint. `messaging.transports` has a module of the same name, which puts them on the wire.

    `uri_fault`: what is wrong with a URI of ASCII characters, or None. `ports`: of each URL scheme of its servers.
    `fields`: which of an endpoint's `server`, `host_key` and `trusted_certificates` it has. `server_help`,
    `server_said`, `server_fault`: what forms and the API say of its own server, and what is wrong with one. `relayed`:
    where the endpoint names none, the hub's own takes it, which partners' log-ins and certificates are not for.
    `logins`: the kinds of credential that its servers take in the place of an Authorization header; `needs_login`: they
    take nothing without one.
    """

    name: str
    label: str
    uri_fault: Callable[[str], Fault | None]
    ports: Mapping[str, int] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    server_help: str = ""
    server_said: str = ""
    server_fault: Callable[[str], Fault | None] = _no_fault
    relayed: bool = False
    logins: tuple[CredentialKind, ...] = ()
    needs_login: bool = False


def characters_fault(uri: str) -> Fault | None:
    """What no URI may have in it."""
    if all("!" <= character <= "~" for character in uri):
        return None
    return "uri_characters", _("The URI has a space or a sign outside ASCII in it: percent-encode it.")


def url_fault(uri: str) -> Fault | None:
    """What is wrong with a URL that names a host, whatever its scheme; None when nothing is."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return "uri_malformed", _("The URI cannot be read: check its host and port.")
    if "@" in parts.netloc:
        return "uri_userinfo", _("The URI has a user name in it: remove it, and store a credential instead.")
    if not parts.hostname:
        return "uri_host", _("The URI names no host: enter it in full, such as https://msh.partner.example/ebxml.")
    if port == 0:
        return "uri_port", _("Port 0 cannot be connected to: enter another port, or none.")
    if "#" in uri:
        return "uri_fragment", _("The URI has a fragment (#...), which is never sent: remove it.")
    return None
