"""Causes of file servers and of the mailboxes and folders that the hub looks into: rows of `messaging.causes`."""

from __future__ import annotations

from collections.abc import Mapping

from messaging.causes.cause import Row

FILES: tuple[Row, ...] = (
    (
        "host_key_mismatch",
        "Server key changed",
        "The file server shows a key that is not the one that was entered: it was replaced, or somebody is in between.",
        "Ask the server's operator for the new fingerprint, by telephone. Enter it only when they name the same one.",
        False,
    ),
    (
        "host_key_missing",
        "Server key not configured",
        "No fingerprint of the file server's key was entered, so nothing is sent there.",
        "Ask the server's operator for its fingerprint (ssh-keygen -l) and enter it as the host key.",
        False,
    ),
    (
        "login_missing",
        "No log-in stored",
        "The server wants to know who we are, and no user name with password or key is stored for it.",
        "Store an outbound credential of the partner: a user name with a password, or with an SSH private key.",
        False,
    ),
    (
        "login_refused",
        "Log-in refused",
        "The server does not accept our user name, password or key.",
        "Compare the stored credential with what the server's owner has for us, replace it, then retry.",
        False,
    ),
    (
        "folder_missing",
        "Folder not found",
        "The folder does not exist on the file server, or is not visible to our log-in.",
        "Check the path of the address, and ask the server's owner to create the folder.",
        False,
    ),
    (
        "folder_closed",
        "No permission in the folder",
        "The file server does not let our log-in list, write, rename or remove files in the folder.",
        "Ask the server's owner for the rights that docs/ftp-binding.md names.",
        False,
    ),
    (
        "file_failed",
        "File server failed",
        "The file server could not carry out an operation on a file; its disk may be full.",
        "It is retried by itself. If it goes on, ask the server's owner.",
        True,
    ),
    (
        "poller_failing",
        "Mailbox or folder unreachable",
        "The hub cannot poll a mailbox or folder, so that nothing that partners leave there is taken in.",
        "The page of the poller says what is in the way. What lies there is taken when the hub can poll again.",
        True,
    ),
)

_AGAIN = "The hub polls again by itself, after longer and longer waits; “Poll now” does not wait."
# The causes of the network say what it means for a message that is sent; a look is no message.
OF_A_LOOK: Mapping[str, tuple[str, str]] = {
    "dns_error": (
        "The server's host name could not be resolved.",
        f"Check the address for a typing error, then the hub's name server. {_AGAIN}",
    ),
    "connect_refused": (
        "The server refused the connection: nothing listens at that address and port.",
        f"Ask the server's operator whether it is up. {_AGAIN}",
    ),
    "connect_timeout": (
        "The server did not answer the connection attempt in time.",
        f"Usually a firewall or a server that is down: ask its operator. {_AGAIN}",
    ),
    "read_timeout": (
        "The server took the connection and then gave no answer in time.",
        f"If it goes on, ask the server's operator about its load, or raise the endpoint's read timeout. {_AGAIN}",
    ),
    "connection_reset": (
        "The connection broke off.",
        f"Nothing is lost: what was not stored lies there still. {_AGAIN}",
    ),
    "tls_handshake": (
        "The encrypted connection could not be set up.",
        f"Compare TLS versions with the server's operator. {_AGAIN}",
    ),
    "cert_expired": (
        "The server shows a certificate that is past its date.",
        f"Ask the server's operator to renew it. {_AGAIN}",
    ),
    "cert_untrusted": (
        "The server shows a certificate that the hub does not trust.",
        f"Check who issued it and whether the host name fits. {_AGAIN}",
    ),
    "login_refused": (
        "The server does not accept our user name, password or key.",
        "Compare them with what the server's owner has for us, and enter them again here.",
    ),
    "login_missing": (
        "The server wants to know who we are, and no password or key is stored.",
        "Enter the user name and the password or key here.",
    ),
    "encryption_key_missing": (
        "The stored password or key cannot be decrypted.",
        "Put the key under which it was stored back (RMHUB_SECRET_KEYS), or enter the secret again.",
    ),
    "internal_error": (
        "The hub itself could not finish the poll; its log says more.",
        f"Nothing is lost: what was not stored lies there still. {_AGAIN}",
    ),
}
