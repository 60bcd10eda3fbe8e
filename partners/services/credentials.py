"""Credentials: what a partner shows us (kept as a hash) and what we show a partner (kept encrypted).

A secret that we issue is returned once, to be shown once. Nothing of it is kept in clear.
"""

from __future__ import annotations

import secrets as chance
from datetime import datetime

from django.contrib.auth.hashers import make_password
from django.db.models import Q
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from partners import certificates, secrets
from partners.addresses import normalise_fingerprint
from partners.choices import FOR_MESSAGES, WITH_CERTIFICATE, CredentialDirection, CredentialKind
from partners.exceptions import InvalidInput, WrongState
from partners.models import Credential, Party, Poller
from partners.services.writing import is_clean, save_checked, writing
from partners.ssh_keys import read_private_key
from rmhub import clock

MIN_SECRET_LENGTH = 8  # characters; ours have 43
MAX_SECRET_LENGTH = 1024  # characters, for both directions: some token services issue long ones
# Every wrong password is checked against all of them (`registry`), so their number is what a guess costs us.
MAX_VALID_AT_ONCE = 4


@sensitive_variables("secret", "chosen")
def credential_issue(
    *,
    party: Party,
    kind: str,
    username: str = "",
    secret: str | None = None,
    fingerprint: str = "",
    certificate: str = "",
    label: str = "",
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
) -> tuple[Credential, str]:
    """A new inbound credential, and the text that the partner needs, which cannot be read again.

    Basic: `username`, and `secret` or one that is made up; the text is the password.
    Bearer: the text is the whole token, `<credential id>.<secret>`. Certificate:
    `fingerprint` (SHA-256) or the `certificate` itself (PEM), which says when it ends; the text is empty.
    Signing, encryption: the `certificate` with which the partner signs messages, or for which we encrypt documents;
    nobody is let in with it.
    Others of the party stay valid.
    Raises InvalidInput.
    """
    with writing():
        credential = Credential(
            party=party,
            direction=CredentialDirection.INBOUND,
            kind=kind,
            label=label,
            valid_from=valid_from,
            valid_until=valid_until,
        )
        _check_period(credential)
        if kind == CredentialKind.SSH_KEY:
            raise InvalidInput(
                {"kind": [_("With an SSH key the hub logs in at a partner's: store it as one that we show.")]}
            )
        if kind in WITH_CERTIFICATE:
            if certificate.strip() or kind in FOR_MESSAGES:
                fingerprint = _take_certificate(credential, certificate)
            credential.fingerprint = _checked_fingerprint(fingerprint, credential)
            save_checked(credential)
            return credential, ""
        chosen = chance.token_urlsafe(32) if secret is None else secret
        _check_secret(chosen, minimum=MIN_SECRET_LENGTH, token=kind == CredentialKind.BEARER)
        if kind == CredentialKind.BASIC:
            credential.username = _checked_username(username)
            _check_username_free(credential)
        credential.secret_hash = make_password(chosen)
        save_checked(credential)
        return credential, f"{credential.id.hex}.{chosen}" if kind == CredentialKind.BEARER else chosen


def credential_check_inbound(*, party: Party, kind: str, username: str = "", certificate: str = "") -> None:
    """What `credential_issue` would refuse of these. Raises InvalidInput."""
    credential = Credential(party=party, direction=CredentialDirection.INBOUND, kind=kind)
    if kind == CredentialKind.SSH_KEY:
        raise InvalidInput({"kind": [_("A partner shows us a user name, a token or a certificate.")]})
    if kind in WITH_CERTIFICATE:
        _checked_fingerprint(_take_certificate(credential, certificate), credential)
    if kind == CredentialKind.BASIC:
        credential.username = _checked_username(username)
        _check_username_free(credential)


@sensitive_variables("secret")
def credential_store_outbound(
    *,
    party: Party,
    kind: str,
    secret: str,
    username: str = "",
    label: str = "",
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
) -> Credential:
    """Keeps what the partner gave us, encrypted: a password (Basic) or a whole token (Bearer).

    Or the private key with which the hub logs in at the partner's file server: PEM without a passphrase; its
    fingerprint is kept to tell it by. Or our certificate with its private key (PEM, one after the other), which the
    hub shows the partner's HTTPS servers, with which it signs messages, or for which the partner encrypts documents.
    The newest one of its kind that is valid is used; documents are decrypted with any. Raises InvalidInput.
    """
    with writing():
        credential = Credential(
            party=party,
            direction=CredentialDirection.OUTBOUND,
            kind=kind,
            label=label,
            valid_from=valid_from,
            valid_until=valid_until,
        )
        _check_period(credential)
        if kind in WITH_CERTIFICATE:
            try:
                own = certificates.read_own(secret)
                _check_key(credential, own.facts)
            except ValueError as error:
                raise InvalidInput({"secret": [str(error)]}) from error
            credential.fingerprint, credential.certificate = own.facts.fingerprint, own.chain
            credential.valid_until = valid_until or own.facts.not_after
            credential.secret_encrypted = secrets.encrypt(own.pem)
            save_checked(credential)
            return credential
        if kind == CredentialKind.SSH_KEY:
            credential.username = _checked_username(username)
            try:
                key = read_private_key(secret)
            except ValueError as error:
                raise InvalidInput({"secret": [str(error)]}) from error
            credential.fingerprint = key.fingerprint
            credential.secret_encrypted = secrets.encrypt(key.pem)
            save_checked(credential)
            return credential
        _check_secret(secret, minimum=1, token=kind == CredentialKind.BEARER)
        if kind == CredentialKind.BASIC:
            credential.username = _checked_username(username)
        credential.secret_encrypted = secrets.encrypt(secret)
        save_checked(credential)
        return credential


def credential_revoke(*, credential: Credential) -> Credential:
    """Ends a credential now and for ever. Raises WrongState when it is revoked already."""
    with writing():
        credential = Credential.objects.get(pk=credential.pk)
        if credential.revoked_at is not None:
            raise WrongState(
                "revoked",
                "revoke",
                _("It was revoked at {time} UTC.").format(time=f"{credential.revoked_at:%Y-%m-%d %H:%M:%S}"),
            )
        credential.revoked_at = clock.now()
        credential.save(update_fields=["revoked_at"])
        return credential


def credentials_reencrypt() -> int:
    """Encrypts every secret that we show others under the first key, so that older keys can be dropped; how many.

    Those of partners and of pollers.

    Raises SecretUnreadable, and then changes none of them.
    """
    with writing():
        stored = list(Credential.objects.exclude(secret_encrypted=b"").only("id", "secret_encrypted"))
        for credential in stored:
            credential.secret_encrypted = secrets.reencrypt(credential.secret_encrypted)
        Credential.objects.bulk_update(stored, ["secret_encrypted"], batch_size=500)
        pollers = list(Poller.objects.exclude(secret_encrypted=b"").only("id", "secret_encrypted"))
        for poller in pollers:
            poller.secret_encrypted = secrets.reencrypt(poller.secret_encrypted)
        Poller.objects.bulk_update(pollers, ["secret_encrypted"], batch_size=500)
        return len(stored) + len(pollers)


def _check_period(credential: Credential) -> None:
    start, end = credential.valid_from, credential.valid_until
    errors = {
        field: [_("A time zone is missing: write the instant with one, such as 2027-01-31T00:00:00Z.")]
        for field, instant in (("valid_from", start), ("valid_until", end))
        if instant is not None and instant.tzinfo is None
    }
    if not errors and start is not None and end is not None and start >= end:
        errors["valid_until"] = [_("The credential would expire before it becomes valid: choose a later expiry.")]
    if errors:
        raise InvalidInput(errors)


def _check_secret(secret: str, *, minimum: int, token: bool) -> None:
    if not minimum <= len(secret) <= MAX_SECRET_LENGTH:
        text = _("The secret needs {least} to {most} characters.").format(least=minimum, most=MAX_SECRET_LENGTH)
        raise InvalidInput({"secret": [text]})
    if not is_clean(secret):
        raise InvalidInput({"secret": [_("There is a control character in the secret: remove it.")]})
    if token and not all("!" <= character <= "~" for character in secret):
        raise InvalidInput({"secret": [_("A token holds ASCII letters, digits and signs, and no space.")]})


def _checked_username(username: str) -> str:
    name = username.strip()
    if not name or ":" in name or not is_clean(name):
        raise InvalidInput({"username": [_("Enter a user name, without a colon in it (HTTP Basic, RFC 7617).")]})
    return name


def _check_username_free(credential: Credential) -> None:
    """A user name belongs to one party, which may have several passwords for it at a time."""
    alive = Credential.objects.filter(
        Q(valid_until__isnull=True) | Q(valid_until__gt=clock.now()),
        direction=CredentialDirection.INBOUND,
        kind=CredentialKind.BASIC,
        username=credential.username,
        revoked_at__isnull=True,
    )
    if alive.exclude(party=credential.party_id).exists():
        raise InvalidInput({"username": [_("Another party uses this user name: choose one that only this party has.")]})
    if alive.count() >= MAX_VALID_AT_ONCE:
        text = _("This user name has {count} passwords already: revoke one that is not in use.")
        raise InvalidInput({"username": [text.format(count=MAX_VALID_AT_ONCE)]})


def _take_certificate(credential: Credential, text: str) -> str:
    """Keeps the certificate for its facts, and its end unless another one was given; its fingerprint."""
    try:
        found = certificates.read(text)
        if not found:
            raise ValueError(_("Paste the certificate, as PEM text."))
        _check_key(credential, found[0])
    except ValueError as error:
        raise InvalidInput({"certificate": [str(error)]}) from error
    credential.certificate = found[0].pem
    credential.valid_until = credential.valid_until or found[0].not_after
    return found[0].fingerprint


def _check_key(credential: Credential, found: certificates.CertificateFacts) -> None:
    """Raises ValueError for a certificate for messages whose key nobody could use for them: S/MIME here is RSA's, and
    signatures are RSA's or those of a curve of NIST.
    """
    if credential.kind == CredentialKind.ENCRYPTION and not found.key.startswith("RSA "):
        raise ValueError(
            _("Documents are encrypted for RSA keys, and this one is {key}: use another certificate.").format(
                key=found.key
            )
        )
    kind, _blank, size = found.key.partition(" ")
    signs = size in _CURVES if kind == "EC" else kind == "RSA" and int(size) >= 2048
    if credential.kind == CredentialKind.SIGNING and not signs:
        raise ValueError(
            _(
                "Messages are signed with RSA keys of 2,048 bits or more, or on the curves P-256, P-384 and P-521, and "
                "this one is {key}: use another certificate."
            ).format(key=found.key)
        )


_CURVES = ("secp256r1", "secp384r1", "secp521r1")


def _checked_fingerprint(text: str, credential: Credential) -> str:
    """The fingerprint of a certificate by which a partner is known, or that is for its messages: no other party's."""
    fingerprint = normalise_fingerprint(text)
    if fingerprint is None:
        raise InvalidInput(
            {"fingerprint": [_("A SHA-256 fingerprint has 64 hexadecimal digits; colons between them are fine.")]}
        )
    known = Credential.objects.filter(
        fingerprint=fingerprint, direction=credential.direction, kind=credential.kind, revoked_at__isnull=True
    )
    alive = known.select_related("party").first()
    if alive is not None:
        text = _("{party} has this certificate already: revoke that credential first.").format(party=alive.party)
        raise InvalidInput({"fingerprint": [text]})
    return fingerprint
