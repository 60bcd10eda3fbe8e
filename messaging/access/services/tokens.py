"""API tokens: made, checked and revoked here. A token is `rmh_live_<32 characters><6 characters of checksum>`.

The checksum lets a slip be told from an unknown token without a look into the database, and lets scanners of
repositories recognise a leaked one. The secret has 190 bits of chance, so a plain SHA-256 of it is enough.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import secrets
import time
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import OuterRef, Q
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.choices import Interface
from messaging.entrance.rate_limits import Patience
from messaging.exceptions import ApplicationError, InvalidSubmission, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import ApiToken
from messaging.models.base import existing
from messaging.permissions import permissions_of
from partners.models import PartnerGroup
from rmhub import clock
from rmhub.ids import public_id
from rmhub.roles import ADMIN_SCOPES, scopes_of

log = logging.getLogger(__name__)

PREFIX = "rmh_live_"
DEFAULT_DAYS = 90
MAX_DAYS = 366
MAX_NETWORKS = 20
GUESSES, GUESS_SECONDS = 60, 60  # tokens that are not taken, of one address
ENDS_SOON = timedelta(days=14)
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM = re.compile(r"rmh_live_([0-9A-Za-z]{32})([0-9A-Za-z]{6})")
_USE_NOTED_EVERY = timedelta(minutes=1)
SEEN_SECONDS = 1.0
_MAX_SEEN = 1000
_seen: dict[str, tuple[float, Bearer]] = {}  # by the token's hash: when it was looked up, and what was found


class BadToken(ApplicationError):
    """The text is not a token that may be used here: `code` says why (invalid_token, token_expired ...)."""

    code = "invalid_token"

    def __init__(self, detail: str, *, code: str = "", token: ApiToken | None = None) -> None:
        super().__init__(detail, code=code or self.code)
        self.token = token


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whoever showed a valid token: the token, its owner, and the scopes and the partners that both have."""

    token: ApiToken
    owner: User
    scopes: frozenset[str]
    partners: frozenset[uuid.UUID] | None = None


def _told(address: str, name: str, count: int) -> None:
    log.warning("too many wrong API tokens", extra={"action": "tokens_guessed", "remote": address, "count": count})


patience = Patience(of_name=GUESSES, of_address=GUESSES, seconds=GUESS_SECONDS, told=_told)


@sensitive_variables("secret")
def token_create(
    *,
    owner: User | str,
    name: str,
    scopes: Iterable[str],
    actor: Actor,
    granted_by: frozenset[str],
    made_with: ApiToken | None = None,
    expires_at: datetime | None = None,
    networks: Iterable[str] = (),
    groups: Iterable[uuid.UUID] = (),
    reason: str = "",
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is shown this once.

    `owner` is a user or a user name; `granted_by` are the scopes of whoever asks: nobody gives away more than they
    have, and no token has more than its owner's role. `made_with`: the token by which they ask: the new one is good
    from no other network and for no longer. Ends after 90 days, or with `made_with`, unless `expires_at` says
    otherwise. `networks`: addresses or CIDR networks from which it may be used; none = anywhere. `groups`: of partners,
    beyond which it sees nothing; none = whatever its owner may see. Raises InvalidSubmission.
    """
    now = clock.now()
    errors: dict[str, list[str]] = {}
    user = owner if isinstance(owner, User) else User.objects.filter(username=owner).first()
    if user is None or not scopes_of(user):
        errors["owner"] = [_("There is no active user {owner} with a role.").format(owner=owner)]
    if not name.strip():
        errors["name"] = [_("Give it a name, such as the application that will use it.")]
    elif len(name.strip()) > 80:
        errors["name"] = [_("At most 80 characters.")]
    wished = sorted(set(scopes))
    refused = _refused(wished, user, granted_by)
    if refused:
        errors["scopes"] = refused
    from_where, strange = _networks(networks)
    if strange:
        errors["networks"] = [
            _("No address or network: {names}. Such as 192.0.2.7 or 10.1.0.0/16.").format(names=", ".join(strange))
        ]
    elif len(from_where) > MAX_NETWORKS:
        errors["networks"] = [_("At most {count}.").format(count=MAX_NETWORKS)]
    elif made_with is not None and (beyond := _beyond(from_where, made_with.networks)):
        errors["networks"] = [
            _("{beyond} The token that you use is good from {names} only.").format(
                beyond=beyond, names=", ".join(made_with.networks)
            )
        ]
    wanted = set(groups)
    limited_to = list(PartnerGroup.objects.filter(pk__in=wanted))
    if len(limited_to) < len(wanted):
        errors["groups"] = [_("One of these partner groups does not exist (any more).")]
    end = expires_at or now + timedelta(days=DEFAULT_DAYS)
    if made_with is not None and expires_at is None:
        end = min(end, made_with.expires_at)
    if made_with is not None and end > made_with.expires_at:
        errors["expires_at"] = [
            _("Not later than the token that you use, {at}.").format(at=f"{made_with.expires_at:%Y-%m-%d %H:%M:%SZ}")
        ]
    if not now < end <= now + timedelta(days=MAX_DAYS):
        errors["expires_at"] = [_("A time in the future, at most {count} days from now.").format(count=MAX_DAYS)]
    if errors or user is None:
        raise InvalidSubmission(errors)
    secret = _new_secret()
    with transaction.atomic():
        token = ApiToken.objects.create(
            name=name.strip(),
            owner=user,
            secret_sha256=_hashed(secret),
            scopes=wished,
            created_at=now,
            expires_at=end,
            networks=from_where,
        )
        token.groups.set(limited_to)
        after = {
            "owner": user.get_username(),
            "scopes": wished,
            "expires_at": end.isoformat(),
            "networks": from_where,
            "groups": sorted(group.name for group in limited_to),
        }
        audit.record(actor, "token.create", token, reason=reason, after=after)
    return token, secret


def token_revoke(*, token_id: uuid.UUID, actor: Actor, reason: str) -> ApiToken:
    """Ends a token now and for ever. Raises NotFound, InvalidSubmission (no reason), WrongState (revoked already)."""
    audit.require_reason(reason)
    with transaction.atomic():
        token = existing(ApiToken.objects.select_for_update(of=("self",)).select_related("owner"), token_id)
        if token.revoked_at is not None:
            raise WrongState(_("This token is revoked already."), state="revoked")
        token.revoked_at = clock.now()
        token.save(update_fields=["revoked_at"])
        after = {"revoked_at": token.revoked_at.isoformat()}
        audit.record(actor, "token.revoke", token, reason=reason, before={"revoked_at": None}, after=after)
        transaction.on_commit(reset)
    return token


@sensitive_variables("text")
def authenticate(text: str, address: str = "") -> Bearer:
    """Whose token this is, shown from an address. Notes its use, at most once a minute. Raises BadToken."""
    form = _FORM.fullmatch(text)
    if form is None or _checksum(form[1]) != form[2]:
        raise BadToken("This is not an API token: it is cut off or mistyped.")
    bearer = _bearer(_hashed(text))
    token, owner = bearer.token, bearer.owner
    if token.revoked_at is not None:
        raise BadToken("This API token was revoked.", code="token_revoked", token=token)
    now = clock.now()
    if token.expires_at <= now:
        raise BadToken(
            f"This API token expired at {token.expires_at:%Y-%m-%d %H:%M:%SZ}.", code="token_expired", token=token
        )
    if not owner.is_active:
        raise BadToken("The owner of this API token is not active any more.", token=token)
    if token.networks and not _is_within(address, token.networks):
        text = f"This API token may not be used from {address or 'there'}: see its networks."
        raise BadToken(text, code="address_not_allowed", token=token)
    _note_use(token, now)
    return bearer


def token_refused(error: BadToken, *, address: str, request_id: str) -> int:
    """Notes a token that was not taken in the log, and one that is known in the audit trail; never the token itself.

    Returns the seconds that its address has to wait, because too many came from it; they are not noted any more. Right
    ones from there are taken all the same.
    """
    if not patience.may_try(address, "API token"):
        return GUESS_SECONDS
    token = error.token
    facts = {"token": public_id("tok", token.pk) if token is not None else "unknown", "reason": error.code}
    log.warning("API token refused", extra={"action": "token_refused", "remote": address[:64], **facts})
    if token is not None:
        actor = Actor(f"{token.owner.get_username()} (token {token.name})"[:150], Interface.API, address, request_id)
        audit.denied(
            actor, "token.use", object_type="apitoken", object_id=facts["token"], name=token.name, required=error.code
        )
    return 0


def reset() -> None:
    """Forgets what was looked up (tests, and after a change in this process)."""
    _seen.clear()


def _bearer(hashed: str) -> Bearer:
    """Token, owner and scopes, looked up at most once a second: a change elsewhere is seen within that time."""
    known = _seen.get(hashed)
    at = time.monotonic()
    if known is not None and at - known[0] < SEEN_SECONDS:
        return known[1]
    groups = ApiToken.groups.through.objects.filter(apitoken=OuterRef("pk")).values("partnergroup")
    found = ApiToken.objects.select_related("owner").annotate(group_ids=ArraySubquery(groups))
    token = found.filter(secret_sha256=hashed).first()
    if token is None:
        raise BadToken("This API token is not known here.")
    permissions = permissions_of(token.owner, groups=token.group_ids)
    bearer = Bearer(token, token.owner, frozenset(token.scopes) & permissions.scopes, permissions.partners)
    if len(_seen) >= _MAX_SEEN:
        _seen.clear()
    _seen[hashed] = (at, bearer)
    return bearer


def _note_use(token: ApiToken, now: datetime) -> None:
    edge = now - _USE_NOTED_EVERY
    if token.last_used_at is not None and token.last_used_at > edge:
        return
    # Of many requests at the same moment one writes; the others find it written.
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=edge)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    token.last_used_at = now


def _networks(given: Iterable[str]) -> tuple[list[str], list[str]]:
    """(networks in their usual form, what is none)."""
    found: list[str] = []
    strange = []
    for text in given:
        try:
            network = str(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            strange.append(text[:50])
            continue
        if network not in found:
            found.append(network)
    return found, strange


def _beyond(networks: list[str], limits: Sequence[str]) -> str:
    """What lets these networks reach beyond those, as a sentence; "" when nothing does. No limits: nothing can."""
    if not limits:
        return ""
    if not networks:
        return _("Without networks it could be used from anywhere.")
    around = [ipaddress.ip_network(limit) for limit in limits]
    for text in networks:
        network = ipaddress.ip_network(text)
        if not any(network.version == one.version and network.subnet_of(one) for one in around):  # type: ignore[arg-type]
            return _("{network} is outside these networks.").format(network=text)
    return ""


def _is_within(address: str, networks: Iterable[str]) -> bool:
    try:
        here = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # An IPv4 caller of a server that listens on IPv6 looks like ::ffff:192.0.2.7.
    mapped = getattr(here, "ipv4_mapped", None)
    return any((mapped or here) in ipaddress.ip_network(network) for network in networks)


def _refused(wished: list[str], user: User | None, granted_by: frozenset[str]) -> list[str]:
    if not wished:
        return [_("At least one scope.")]
    if unknown := sorted(set(wished) - ADMIN_SCOPES):
        said = _("Unknown: {unknown}. Known: {known}.")
        return [said.format(unknown=", ".join(unknown), known=", ".join(sorted(ADMIN_SCOPES)))]
    found = []
    if beyond := sorted(set(wished) - (scopes_of(user) if user is not None else ADMIN_SCOPES)):
        found.append(_("The owner's role does not have {names}.").format(names=", ".join(beyond)))
    if ungranted := sorted(set(wished) - granted_by):
        found.append(_("You do not have {names}, so you cannot grant it.").format(names=", ".join(ungranted)))
    return found


def _new_secret() -> str:
    chance = "".join(secrets.choice(_ALPHABET) for _ in range(32))
    return f"{PREFIX}{chance}{_checksum(chance)}"


def _checksum(text: str) -> str:
    """CRC-32 in six digits of base 62."""
    value, digits = zlib.crc32(text.encode()), ""
    for _place in range(6):
        value, digit = divmod(value, 62)
        digits = _ALPHABET[digit] + digits
    return digits


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
