"""Causes of file servers and of the mailboxes and folders that the hub looks into: rows of `messaging.causes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from django.utils.text import format_lazy

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

FILES: tuple[Row, ...] = (
    (
        "host_key_mismatch",
        _("Server key changed"),
        _(
            "The file server shows a key that is not the one that was entered: it was replaced, or somebody is in "
            "between."
        ),
        _(
            "Ask the server's operator for the new fingerprint, by telephone. Enter it only when they name the same "
            "one."
        ),
        False,
    ),
    (
        "host_key_missing",
        _("Server key not configured"),
        _("No fingerprint of the file server's key was entered, so nothing is sent there."),
        _("Ask the server's operator for its fingerprint (ssh-keygen -l) and enter it as the host key."),
        False,
    ),
    (
        "login_missing",
        _("No log-in stored"),
        _("The server wants to know who we are, and no user name with password or key is stored for it."),
        _("Store an outbound credential of the partner: a user name with a password, or with an SSH private key."),
        False,
    ),
    (
        "login_refused",
        _("Log-in refused"),
        _("The server does not accept our user name, password or key."),
        _("Compare the stored credential with what the server's owner has for us, replace it, then retry."),
        False,
    ),
    (
        "folder_missing",
        _("Folder not found"),
        _("The folder does not exist on the file server, or is not visible to our log-in."),
        _("Check the path of the address, and ask the server's owner to create the folder."),
        False,
    ),
    (
        "folder_closed",
        _("No permission in the folder"),
        _("The file server does not let our log-in list, write, rename or remove files in the folder."),
        _("Ask the server's owner for the rights that docs/ftp-binding.md names."),
        False,
    ),
    (
        "file_failed",
        _("File server failed"),
        _("The file server could not carry out an operation on a file; its disk may be full."),
        _("It is retried by itself. If it goes on, ask the server's owner."),
        True,
    ),
    (
        "poller_failing",
        _("Mailbox or folder unreachable"),
        _("The hub cannot poll a mailbox or folder, so that nothing that partners leave there is taken in."),
        _("The page of the poller says what is in the way. What lies there is taken when the hub can poll again."),
        True,
    ),
)

_AGAIN = _("The hub polls again by itself, after longer and longer waits; “Poll now” does not wait.")


def _and_again(text: str) -> str:
    """The text, and that the hub polls again."""
    return cast(str, format_lazy("{} {}", text, _AGAIN))


# The causes of the network say what it means for a message that is sent; a look is no message.
OF_A_LOOK: Mapping[str, tuple[str, str]] = {
    "dns_error": (
        _("The server's host name could not be resolved."),
        _and_again(_("Check the address for a typing error, then the hub's name server.")),
    ),
    "connect_refused": (
        _("The server refused the connection: nothing listens at that address and port."),
        _and_again(_("Ask the server's operator whether it is up.")),
    ),
    "connect_timeout": (
        _("The server did not answer the connection attempt in time."),
        _and_again(_("Usually a firewall or a server that is down: ask its operator.")),
    ),
    "read_timeout": (
        _("The server took the connection and then gave no answer in time."),
        _and_again(_("If it goes on, ask the server's operator about its load, or raise the endpoint's read timeout.")),
    ),
    "connection_reset": (
        _("The connection broke off."),
        _and_again(_("Nothing is lost: what was not stored lies there still.")),
    ),
    "tls_handshake": (
        _("The encrypted connection could not be set up."),
        _and_again(_("Compare TLS versions with the server's operator.")),
    ),
    "cert_expired": (
        _("The server shows a certificate that is past its date."),
        _and_again(_("Ask the server's operator to renew it.")),
    ),
    "cert_untrusted": (
        _("The server shows a certificate that the hub does not trust."),
        _and_again(_("Check who issued it and whether the host name fits.")),
    ),
    "login_refused": (
        _("The server does not accept our user name, password or key."),
        _("Compare them with what the server's owner has for us, and enter them again here."),
    ),
    "login_missing": (
        _("The server wants to know who we are, and no password or key is stored."),
        _("Enter the user name and the password or key here."),
    ),
    "encryption_key_missing": (
        _("The stored password or key cannot be decrypted."),
        _("Put the key under which it was stored back (RMHUB_SECRET_KEYS), or enter the secret again."),
    ),
    "internal_error": (
        _("The hub itself could not finish the poll; its log says more."),
        _and_again(_("Nothing is lost: what was not stored lies there still.")),
    ),
}
