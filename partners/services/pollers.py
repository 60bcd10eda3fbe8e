"""Pollers: mailboxes and folders that the hub looks into. Their secret is kept encrypted and never given out."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from partners import secrets
from partners.addresses import host_key_fault, host_keys
from partners.choices import CredentialKind, PollerKind
from partners.exceptions import InvalidInput
from partners.models import POLLER, Endpoint, Party, Poller
from partners.services.credentials import MAX_SECRET_LENGTH
from partners.services.writing import assign, is_clean, save_checked, writing
from partners.ssh_keys import read_private_key
from partners.transports import SFTP, uri_fault

_SECRETS = (CredentialKind.BASIC, CredentialKind.SSH_KEY)


@sensitive_variables("secret")
def poller_create(*, endpoint: Endpoint, partner: Party | None = None, secret: str = "", **values: Any) -> Poller:
    """A new poller for what is addressed to `endpoint`, one of ours. Raises InvalidInput."""
    with writing():
        poller = Poller(endpoint=endpoint, partner=partner)
        assign(poller, POLLER, values)
        poller.host_key = " ".join(host_keys(poller.host_key))
        _save(poller, secret or None)
    return poller


@sensitive_variables("secret")
def poller_update(
    *,
    poller: Poller,
    endpoint: Endpoint | None = None,
    partner: Party | None = None,
    without_partner: bool = False,
    secret: str | None = None,
    **values: Any,
) -> Poller:
    """Changes what is given; `secret` None keeps the one that is stored, "" takes it away. Raises InvalidInput.

    Another server, user name or kind of secret needs the secret anew: nobody may send a stored one elsewhere.
    """
    with writing():
        poller = Poller.objects.get(pk=poller.pk)
        before = (poller.kind, _server(poller.url), poller.username, poller.secret_kind, poller.host_key)
        poller.endpoint = endpoint or poller.endpoint
        poller.partner = None if without_partner else partner or poller.partner
        assign(poller, POLLER, values)
        poller.host_key = " ".join(host_keys(poller.host_key))
        after = (poller.kind, _server(poller.url), poller.username, poller.secret_kind, poller.host_key)
        if before != after and poller.secret_encrypted and secret is None:
            text = _("Enter the secret again: server, host key, user name or kind of secret changed.")
            raise InvalidInput({"secret": [text]})
        _save(poller, secret)
    return poller


def poller_delete(*, poller: Poller) -> None:
    """Ends a poller with its secret; what lies in the mailbox or folder stays there."""
    with writing():
        Poller.objects.filter(pk=poller.pk).delete()


def _server(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(url.strip().split("/", 3)[:3]).lower()


@sensitive_variables("secret")
def _save(poller: Poller, secret: str | None) -> None:
    """Raises InvalidInput, with all that is wrong."""
    errors: dict[str, list[str]] = {}
    if not poller.endpoint.party.is_own:
        errors["endpoint"] = [
            _("{party} is not ours: choose the endpoint that the messages are for.").format(party=poller.endpoint.party)
        ]
    if fault := _fault(poller.url, poller.kind):
        errors["kind" if fault[0] == "kind_unknown" else "url"] = [fault[1]]
    if poller.kind == PollerKind.SFTP:
        errors |= _folder_faults(poller)
    elif poller.kind == PollerKind.IMAP:
        errors |= _mailbox_faults(poller)
    if poller.username and not is_clean(poller.username):
        errors["username"] = [_("There is a control character in the user name: remove it.")]
    if secret is not None and not errors:
        errors |= _keep_secret(poller, secret)
    if not errors and not poller.secret_encrypted:
        errors["secret"] = [_("Enter the password or the key with which the hub logs in.")]
    if errors:
        raise InvalidInput(errors)
    save_checked(poller)


def _fault(url: str, kind: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with where a poller looks, or None."""
    if kind == PollerKind.SFTP:
        return uri_fault(url, SFTP.name)
    if kind != PollerKind.IMAP:
        return "kind_unknown", _("Choose a mailbox (IMAP) or a folder (SFTP).")
    if not url or any(not "!" <= character <= "~" for character in url):
        return "uri_characters", _("Enter the mailbox as a URL without spaces, such as imaps://mail.example.org/INBOX.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "uri_malformed", _("The URL cannot be read: check its host and port.")
    if parts.scheme not in ("imaps", "imap+starttls"):
        return (
            "uri_scheme",
            _("A mailbox is reached by imaps:// or imap+starttls://, such as imaps://mail.example.org/INBOX."),
        )
    if "@" in parts.netloc:
        return "uri_userinfo", _("The URL has a user name in it: remove it, and enter it in its own field.")
    if not parts.hostname or port == 0 or parts.query or parts.fragment:
        return "uri_host", _("The URL needs a host, may have a port and a mailbox, and has nothing after it.")
    mailbox_name = unquote(parts.path[1:], errors="replace")
    if any(sign < " " or sign in "\x7f\ufffd" for sign in mailbox_name):
        return "uri_mailbox", _("The name of the mailbox has a control character in it: remove it.")
    return None


def _folder_faults(poller: Poller) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    if poller.partner is None:
        errors["partner"] = [_("Say who puts files into the folder: whatever lies there counts as sent by them.")]
    elif poller.partner.is_own:
        errors["partner"] = [
            _("{partner} is ours: choose the partner who puts files there.").format(partner=poller.partner)
        ]
    if not poller.host_key:
        errors["host_key"] = [
            _("Enter the fingerprint of the server's key (ssh-keygen -l), or anybody could be the server.")
        ]
    elif fault := host_key_fault(poller.host_key):
        errors["host_key"] = [fault]
    if not poller.username:
        errors["username"] = [_("Enter the user name with which the hub logs in.")]
    if poller.secret_kind not in _SECRETS:
        errors["secret_kind"] = [_("A file server takes a password or an SSH private key.")]
    if poller.trusted_checker:
        errors["trusted_checker"] = [_("Only mailboxes have one: in a folder, the partner is who may write to it.")]
    return errors


def _mailbox_faults(poller: Poller) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    if poller.partner is not None:
        errors["partner"] = [
            _("Only folders have one: who sent a mail is known by its sender's address. Leave it empty.")
        ]
    if not poller.trusted_checker:
        text = _(
            "Enter the name by which your mail server signs its Authentication-Results (RFC 8601), "
            "or no mail could be trusted."
        )
        errors["trusted_checker"] = [text]
    elif not all("!" <= character <= "~" for character in poller.trusted_checker):
        errors["trusted_checker"] = [_("A name such as mx.example.org, without spaces.")]
    if not poller.username:
        errors["username"] = [_("Enter the user name with which the hub logs in.")]
    if poller.secret_kind != CredentialKind.BASIC:
        errors["secret_kind"] = [_("A mail server takes a password.")]
    if poller.host_key:
        errors["host_key"] = [_("Only folders have one: the mail server proves itself by its TLS certificate.")]
    return errors


@sensitive_variables("secret")
def _keep_secret(poller: Poller, secret: str) -> dict[str, list[str]]:
    if not secret:
        poller.secret_encrypted = b""
    elif poller.secret_kind == CredentialKind.SSH_KEY:
        try:
            poller.secret_encrypted = secrets.encrypt(read_private_key(secret).pem)
        except ValueError as error:
            return {"secret": [str(error)]}
    elif len(secret) > MAX_SECRET_LENGTH or not is_clean(secret):
        text = _("A password has at most {most} characters, and no control characters.")
        return {"secret": [text.format(most=MAX_SECRET_LENGTH)]}
    else:
        poller.secret_encrypted = secrets.encrypt(secret)
    return {}
