"""Pickups: mailboxes and folders that the hub looks into. Their secret is kept encrypted and never given out."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from django.views.decorators.debug import sensitive_variables

from partners import secrets
from partners.addresses import host_key_fault, host_keys
from partners.choices import CredentialKind, PickupKind
from partners.exceptions import InvalidInput
from partners.models import PICKUP, Endpoint, Party, Pickup
from partners.services.credentials import MAX_SECRET_LENGTH
from partners.services.writing import assign, is_clean, save_checked, writing
from partners.ssh_keys import read_private_key
from partners.transports import SFTP, uri_fault

_SECRETS = (CredentialKind.BASIC, CredentialKind.SSH_KEY)


@sensitive_variables("secret")
def pickup_create(*, endpoint: Endpoint, partner: Party | None = None, secret: str = "", **values: Any) -> Pickup:
    """A new pickup for what is addressed to `endpoint`, one of ours. Raises InvalidInput."""
    with writing():
        pickup = Pickup(endpoint=endpoint, partner=partner)
        assign(pickup, PICKUP, values)
        pickup.host_key = " ".join(host_keys(pickup.host_key))
        _save(pickup, secret or None)
    return pickup


@sensitive_variables("secret")
def pickup_update(
    *,
    pickup: Pickup,
    endpoint: Endpoint | None = None,
    partner: Party | None = None,
    without_partner: bool = False,
    secret: str | None = None,
    **values: Any,
) -> Pickup:
    """Changes what is given; `secret` None keeps the one that is stored, "" takes it away. Raises InvalidInput.

    Another server, user name or kind of secret needs the secret anew: nobody may send a stored one elsewhere.
    """
    with writing():
        pickup = Pickup.objects.get(pk=pickup.pk)
        before = (pickup.kind, _server(pickup.url), pickup.username, pickup.secret_kind, pickup.host_key)
        pickup.endpoint = endpoint or pickup.endpoint
        pickup.partner = None if without_partner else partner or pickup.partner
        assign(pickup, PICKUP, values)
        pickup.host_key = " ".join(host_keys(pickup.host_key))
        after = (pickup.kind, _server(pickup.url), pickup.username, pickup.secret_kind, pickup.host_key)
        if before != after and pickup.secret_encrypted and secret is None:
            text = "Enter the secret again: server, host key, user name or kind of secret changed."
            raise InvalidInput({"secret": [text]})
        _save(pickup, secret)
    return pickup


def pickup_delete(*, pickup: Pickup) -> None:
    """Ends a pickup with its secret; what lies in the mailbox or folder stays there."""
    with writing():
        Pickup.objects.filter(pk=pickup.pk).delete()


def _server(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(url.strip().split("/", 3)[:3]).lower()


@sensitive_variables("secret")
def _save(pickup: Pickup, secret: str | None) -> None:
    """Raises InvalidInput, with all that is wrong."""
    errors: dict[str, list[str]] = {}
    if not pickup.endpoint.party.is_own:
        errors["endpoint"] = [f"{pickup.endpoint.party} is not ours: choose the endpoint that the messages are for."]
    if fault := _fault(pickup.url, pickup.kind):
        errors["kind" if fault[0] == "kind_unknown" else "url"] = [fault[1]]
    if pickup.kind == PickupKind.SFTP:
        errors |= _folder_faults(pickup)
    elif pickup.kind == PickupKind.IMAP:
        errors |= _mailbox_faults(pickup)
    if pickup.username and not is_clean(pickup.username):
        errors["username"] = ["There is a control character in the user name: take it out."]
    if secret is not None and not errors:
        errors |= _keep_secret(pickup, secret)
    if not errors and not pickup.secret_encrypted:
        errors["secret"] = ["Enter the password or the key with which the hub logs in."]
    if errors:
        raise InvalidInput(errors)
    save_checked(pickup)


def _fault(url: str, kind: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with where a pickup looks, or None."""
    if kind == PickupKind.SFTP:
        return uri_fault(url, SFTP.name)
    if kind != PickupKind.IMAP:
        return "kind_unknown", "Choose a mailbox (IMAP) or a folder (SFTP)."
    if not url or any(not "!" <= sign <= "~" for sign in url):
        return "uri_characters", "Enter the mailbox as a URL without spaces, such as imaps://mail.example.org/INBOX."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "uri_malformed", "The URL cannot be read: check its host and port."
    if parts.scheme not in ("imaps", "imap+starttls"):
        return (
            "uri_scheme",
            "A mailbox is reached by imaps:// or imap+starttls://, such as imaps://mail.example.org/INBOX.",
        )
    if "@" in parts.netloc:
        return "uri_userinfo", "The URL has a user name in it: take it out, and enter it in its own field."
    if not parts.hostname or port == 0 or parts.query or parts.fragment:
        return "uri_host", "The URL needs a host, may have a port and a mailbox, and has nothing after it."
    mailbox_name = unquote(parts.path[1:], errors="replace")
    if any(sign < " " or sign in "\x7f\ufffd" for sign in mailbox_name):
        return "uri_mailbox", "The name of the mailbox has a control character in it: take it out."
    return None


def _folder_faults(pickup: Pickup) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    if pickup.partner is None:
        errors["partner"] = ["Say who puts files into the folder: whatever lies there counts as sent by them."]
    elif pickup.partner.is_own:
        errors["partner"] = [f"{pickup.partner} is ours: choose the partner who puts files there."]
    if not pickup.host_key:
        errors["host_key"] = [
            "Enter the fingerprint of the server's key (ssh-keygen -l), or anybody could be the server."
        ]
    elif fault := host_key_fault(pickup.host_key):
        errors["host_key"] = [fault]
    if not pickup.username:
        errors["username"] = ["Enter the user name with which the hub logs in."]
    if pickup.secret_kind not in _SECRETS:
        errors["secret_kind"] = ["A file server takes a password or an SSH private key."]
    if pickup.trusted_checker:
        errors["trusted_checker"] = ["Only mailboxes have one: in a folder, the partner is who may write to it."]
    return errors


def _mailbox_faults(pickup: Pickup) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    if pickup.partner is not None:
        errors["partner"] = ["Only folders have one: who sent a mail is told by its sender's address. Leave it empty."]
    if not pickup.trusted_checker:
        text = (
            "Enter the name by which your mail server signs its Authentication-Results (RFC 8601), "
            "or no mail could be trusted."
        )
        errors["trusted_checker"] = [text]
    elif not all("!" <= sign <= "~" for sign in pickup.trusted_checker):
        errors["trusted_checker"] = ["A name such as mx.example.org, without spaces."]
    if not pickup.username:
        errors["username"] = ["Enter the user name with which the hub logs in."]
    if pickup.secret_kind != CredentialKind.BASIC:
        errors["secret_kind"] = ["A mail server takes a password."]
    if pickup.host_key:
        errors["host_key"] = ["Only folders have one: the mail server proves itself by its TLS certificate."]
    return errors


@sensitive_variables("secret")
def _keep_secret(pickup: Pickup, secret: str) -> dict[str, list[str]]:
    if not secret:
        pickup.secret_encrypted = b""
    elif pickup.secret_kind == CredentialKind.SSH_KEY:
        try:
            pickup.secret_encrypted = secrets.encrypt(read_private_key(secret).pem)
        except ValueError as error:
            return {"secret": [str(error)]}
    elif len(secret) > MAX_SECRET_LENGTH or not is_clean(secret):
        return {"secret": [f"A password has at most {MAX_SECRET_LENGTH} characters, and no control characters."]}
    else:
        pickup.secret_encrypted = secrets.encrypt(secret)
    return {}
