"""Who comes in at the partners' entrance, by what they show; and who guesses.

A credential that was checked before costs nothing and passes always. Any other costs a slow hash, so whoever is wrong
may be so only so often: counted by address and user name, so that one partner's mistake behind a common proxy costs no
other, and more generously by address, so that nobody tries name after name. Checks of one name from one address go one
after the other: a burst of guesses gets no further than a row of them. Once there is no patience left, nothing is
looked at for a minute, the log says so, and an incident.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import logging
from dataclasses import dataclass

from django.db import DatabaseError, transaction

from messaging.entrance import rate_limits, throttling
from messaging.entrance.rate_limits import Patience
from messaging.journal import events, incidents
from partners import registry
from partners.terms import Presented, Principal
from rmhub import clock

log = logging.getLogger(__name__)

FAILURES = 10  # of one name from one address
FAILURES_OF_ADDRESS = 60
SECONDS = 60.0
BUSY_SECONDS = 2
CAUSE = "credentials_guessed"

SENTENCES = {
    "too_many_attempts": "Too many wrong credentials came from this address.",
    "too_many_requests": "Too many requests came from you.",
    "busy": "Too many credentials that were not checked yet came at once. Send it again.",
}


@dataclass(frozen=True, slots=True)
class Entered:
    """Who it is; or why they do not come in: a status, a reason for the log, seconds to wait. `noted`: leave a
    `Rejection`."""

    principal: Principal | None
    status: int = 0
    reason: str = ""
    wait: int = 0
    noted: bool = False


_NOBODY = Entered(None, 401, "unauthenticated", noted=True)
_LATER = Entered(None, 429, "too_many_attempts", wait=int(SECONDS))  # not noted: whoever guesses must not fill the disk
BUSY = Entered(None, 503, "busy", wait=BUSY_SECONDS)


def enter(presented: Presented, remote_address: str) -> Entered:
    """Takes in a partner's request: by the credential that it shows, and within what one partner may ask in a minute.

    401: nobody we know. 429: too many wrong credentials, or too many requests. 503: too many at once that need a check.
    """
    principal, refused = identify(presented, remote_address)
    if principal is None:
        return refused
    if wait := rate_limits.partner_wait(principal.party_id):
        return Entered(None, 429, "too_many_requests", wait=wait)
    return Entered(principal)


def identify(presented: Presented, remote_address: str) -> tuple[Principal | None, Entered]:
    """The partner, or why not."""
    principal = registry.current().authenticate(presented, clock.now(), thorough=False)
    if principal is not None:
        return principal, Entered(principal)
    if not presented.authorization:
        return None, _NOBODY
    who = remote_address, _name(presented.authorization)
    try:
        with throttling.queueing(), _patience.turn(*who):
            # Another copy may have been checked while this one waited.
            principal = registry.current().authenticate(presented, clock.now(), thorough=False)
            if principal is not None:
                return principal, Entered(principal)
            if not _patience.may_try(*who):
                return None, _LATER
            with throttling.checking():
                principal = registry.current().authenticate(presented, clock.now(), thorough=True)
    except throttling.Busy:
        return None, BUSY
    if principal is not None:
        _patience.right(*who)
        return principal, Entered(principal)
    return None, _NOBODY


def reset() -> None:
    """Forgets all failures (tests)."""
    _patience.reset()


def _tell(address: str, name: str, count: int) -> None:
    """Says in the log and in an incident that nothing more is looked at."""
    whose = f"for {_shown(name)} " if name else ""
    detail = f"{count} wrong credentials {whose}came from {address} within a minute; none more are looked at in it."
    log.warning(
        "too many wrong credentials", extra={"action": "credentials_throttled", "remote": address, "count": count}
    )
    now = clock.now()
    try:
        with transaction.atomic():
            _, opened = incidents.incident_open(
                pair=None, trigger=None, coordination=None, cause=CAUSE, now=now, detail=detail
            )
            events.write(opened)
    except DatabaseError:
        log.exception("cannot open an incident now", extra={"action": "credentials_throttled"})


def _name(authorization: str) -> str:
    """Whose credential is tried: the user name, or the id of a bearer token. A digest of anything else."""
    scheme, _, value = authorization.strip().partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            text = base64.b64decode(value.strip(), validate=True).decode("utf-8", "replace")
            return f"user {text.partition(':')[0]}"[:200]
    if scheme.lower() == "bearer" and "." in value:
        return f"token {value.strip().partition('.')[0]}"[:200]
    return f"header {hashlib.sha256(authorization.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _shown(name: str) -> str:
    printable = "".join(character if character.isprintable() else "\ufffd" for character in name)
    return f"{printable[:80]!r}"


_patience = Patience(of_name=FAILURES, of_address=FAILURES_OF_ADDRESS, seconds=SECONDS, told=_tell)
