"""Takes mail for us out of a mailbox (spec 1, 2.5.2): for partners whose mail reaches no server of ours.

A mail is read whole, handed to `mail.take`, which commits, and only then marked as read. The position moves on behind
it: where the hub dies in between, the next look reads it again, and its MessageId makes it a repeat. Who has sent it is
what the mail server that we trust has found out (`protocol.codecs.mail_checks`).
"""

from __future__ import annotations

import hashlib
import logging

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from messaging.entrance import mail
from messaging.entrance.refusals import Arrival, refuse
from messaging.pollers.services.collecting import MOST_ITEMS, Found, Look
from messaging.protocol.codecs.mail import read_mail
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import NotAMessage
from messaging.transports.imap import Mailbox, MailboxTrouble, opened
from partners.addresses import host_of
from partners.terms import Presented
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

_LATER = frozenset((mail.TOO_EARLY, 429))
_SIZE_OVERHEAD = 256 * 1024  # headers


def collect(look: Look) -> Found:
    """One look into a mailbox. Never raises for what network and server do."""
    found = Found()
    try:
        if look.login is None:
            raise MailboxTrouble("login_missing", "No user name with password is stored.", permanent=True)
        with opened(look.url, look.login, connect_timeout=look.connect_timeout, read_timeout=look.read_timeout) as box:
            _collect(box, look, found)
    except MailboxTrouble as trouble:
        found.cause, found.detail, found.permanent = trouble.cause, str(trouble), trouble.permanent
    except (DatabaseError, InterfaceError):
        log.exception("cannot store now", extra={"action": "collect_failed", "poller": look.name})
        found.cause, found.detail = "internal_error", "The hub's database could not store what was read."
    return found


def _collect(box: Mailbox, look: Look, found: Found) -> None:
    last = _last_of(look, box.validity)
    found.position = _position(look, box.validity, last)
    for number, uid in enumerate(box.after(last)):
        if number >= MOST_ITEMS or look.time_is_up():
            found.more = True
            return
        status = _take(box, uid, look)
        give_back()  # the next one may take its time to come
        if status in _LATER:
            return  # it and what lies behind it come with the next look
        if status is not None:
            taken = status == 204
            box.mark(uid, refused=not taken)
            found.taken += taken
            found.refused += not taken
        found.position = _position(look, box.validity, uid)


def _take(box: Mailbox, uid: int, look: Look) -> int | None:
    """Takes one mail, and commits. Returns the status (`mail.Taken`), or None when it is gone."""
    limits = Limits(body=settings.RMHUB_MAX_MESSAGE_BYTES)
    source = f"{host_of(look.url)} UID {uid}"[:64]
    size = box.size(uid)
    if size is None:
        return None
    if size > limits.body * 78 // 57 + _SIZE_OVERHEAD:
        arrival = Arrival("", b"", Presented(), source)
        detail = f"A mail of {size} bytes was not read: a message may have {limits.body}."
        return refuse(arrival, 413, "body_too_large", detail)
    octets = box.fetch(uid)
    if octets is None:
        return None
    try:
        read = read_mail(octets, limits)
    except NotAMessage as error:
        return refuse(Arrival("", octets, Presented(), source), 400, error.reason, error.detail)
    principal = mail.author_of(read, look.trusted_checker)
    try:
        return mail.take(read, principal=principal, remote_address=source, limits=limits).status
    except OSError as error:
        # The folder of the payload files, and no fault of the mail server.
        log.exception("cannot store now", extra={"action": "collect_failed", "poller": look.name})
        raise MailboxTrouble("internal_error", f"The hub could not store what was read: {error}") from error


def _position(look: Look, validity: int, uid: int) -> str:
    return f"{validity}:{uid}@{_place(look)}"


def _last_of(look: Look, validity: int) -> int:
    """The UID up to which the mailbox was read; 0 for another mailbox, or one whose UIDs mean other mails now."""
    numbers, _, place = look.position.partition("@")
    before, _, uid = numbers.partition(":")
    if place != _place(look) or before != str(validity) or not uid.isdigit():
        return 0
    return int(uid)


def _place(look: Look) -> str:
    """Which mailbox it is. UIDVALIDITY does not tell: many servers begin with 1."""
    named = f"{look.url}\n{look.login.username if look.login else ''}"
    return hashlib.sha256(named.encode()).hexdigest()[:12]
