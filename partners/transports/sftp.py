"""Files: put into a folder of an SFTP server, which is known by its host key."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from django.utils.translation import gettext as _

from partners.choices import CredentialKind
from partners.transports.base import Fault, Transport, characters_fault, url_fault
from rmhub.language import gettext_lazy


def _folder_fault(uri: str) -> Fault | None:
    if fault := url_fault(uri):
        return fault
    parts = urlsplit(uri)
    if parts.scheme != "sftp":
        return "uri_scheme", _("The file transport needs a URI such as sftp://files.partner.example/inbox/.")
    folder = unquote(parts.path, errors="replace")
    if parts.query or any(sign < " " or sign in "\x7f\ufffd\\" for sign in folder):
        return "uri_folder", _("The URI names no folder: leave out ?, backslashes and control characters.")
    if not folder.endswith("/"):
        return "uri_folder", _("The URI of a folder ends in a slash, such as sftp://files.partner.example/inbox/.")
    if any(part in ("..", ".") or (part == "" and number) for number, part in enumerate(folder[:-1].split("/"))):
        return "uri_folder", _("The URI's path must name the folder itself, without // and without . or .. in it.")
    return None


def _server_fault(url: str) -> Fault | None:
    """Empty is the server of the URI."""
    if not url:
        return None
    folder = url if url.endswith("/") else f"{url}/"
    fault = characters_fault(folder) or _folder_fault(folder)
    if fault is None and urlsplit(url).path not in ("", "/"):
        return "server_path", _(
            "The file server is a host and a port; the folder comes from the URI: leave out the path."
        )
    return fault


SFTP = Transport(
    name="sftp",
    label=gettext_lazy("Files (SFTP)"),
    uri_fault=_folder_fault,
    ports={"sftp": 22},
    fields=frozenset({"server", "host_key"}),
    server_help=gettext_lazy("Files: sftp://host:port."),
    server_said="Files: sftp://host:port, if not that of the URI.",
    server_fault=_server_fault,
    logins=(CredentialKind.BASIC, CredentialKind.SSH_KEY),
    needs_login=True,
)
