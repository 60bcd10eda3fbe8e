"""Forgotten passwords: asked for by anybody, answered by mail to the user, and to nobody else.

Whoever asks learns nothing: what they typed is stored as it is, and a worker looks for the user. A password changes
only when the link is used, which works once; a second factor is asked for as before.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext
from django.views.decorators.debug import sensitive_variables

from messaging import dispatch, mailing
from messaging.access.selectors import people
from messaging.access.services import users
from messaging.console_links import invitation_link
from messaging.exceptions import InvalidSubmission
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, PasswordReset
from messaging.notifications.services.webhooks import claim
from rmhub import clock
from rmhub.postgresql.base import give_back

MOST_AN_HOUR = 3  # mails to one person: others may ask for them, too
SCHEDULE = (60, 300, 1800)  # seconds before attempt 2, 3, 4
_VERB = "user.mail_reset"
_LEASE = timedelta(seconds=300)
_MOST_USERS = 5  # who share a mail address


def reset_ask(*, who: str, actor: Actor) -> str:
    """Stores that whoever has this user name or mail address wants a new password; the same while one waits is nothing
    more. Returns what was asked for. Raises InvalidSubmission for a text that can be neither.
    """
    text = who.strip()
    if not text or len(text) > 254 or not text.isprintable():
        raise InvalidSubmission({"who": [_("Enter your user name or your mail address.")]})
    now = clock.now()
    asked = PasswordReset(
        asked_for=text, address=actor.address[:64], request_id=actor.request_id[:80], created_at=now, due_at=now
    )
    PasswordReset.objects.bulk_create([asked], ignore_conflicts=True)
    dispatch.wake_on_commit(dispatch.NOTIFICATIONS)
    return text


def send_due() -> int:
    """Mails what is due. Returns how many requests were looked at. Claim, talk, record: a worker that dies in between
    leaves the request to the next one, after the lease.
    """
    looked_at = 0
    while claimed := claim(PasswordReset.objects.all(), _LEASE, 8):
        for asked in claimed:
            _answer(asked)
        looked_at += len(claimed)
    return looked_at


def _answer(asked: PasswordReset) -> None:
    errors = [_mail(user, asked) for user in _whose(asked.asked_for)]
    if any(errors) and asked.attempts <= len(SCHEDULE):
        asked.due_at = clock.now() + timedelta(seconds=SCHEDULE[asked.attempts - 1])
        asked.save(update_fields=["due_at"])
    else:
        asked.delete()


def _whose(text: str) -> list[User]:
    """The users of a name or a mail address, but for those who log in by the OpenID provider: they have no password."""
    known = User.objects.filter(is_active=True).exclude(email="").exclude(openid_accounts__isnull=False)
    return list(known.filter(Q(username=text) | Q(email__iexact=text)).order_by("pk")[:_MOST_USERS])


@sensitive_variables("link")
def _mail(user: User, asked: PasswordReset) -> str:
    """Sends one mail, outside any transaction; returns why it was not sent, "" if it was or need not be."""
    mails = AuditEntry.objects.filter(object_type="user", object_id=str(user.pk), verb=_VERB, after__sent=True)
    if mails.filter(at__gt=clock.now() - timedelta(hours=1)).count() >= MOST_AN_HOUR:
        return ""
    name, days = settings.RMHUB_NAME, settings.PASSWORD_RESET_TIMEOUT // 86_400
    link = invitation_link(users.invitation(user))
    with translation.override(people.language_of(user.pk)):
        subject = _("Your password for {hub}").format(hub=name)
        address = asked.address or pgettext("address", "unknown")
        lines = (
            _("Somebody, from the address {address}, has asked for a new password for {hub}.").format(
                address=address, hub=name
            ),
            "",
            _("Your user name: {name}").format(name=user.get_username()),
            _("Set a new password here:"),
            "",
            link,
            "",
            ngettext(
                "The link works once, and for {days} day. Your old password holds until then. "
                "If it was not you, you need do nothing.",
                "The link works once, and for {days} days. Your old password holds until then. "
                "If it was not you, you need do nothing.",
                days,
            ).format(days=days),
            "",
        )
    give_back()
    error = mailing.send([user.email], subject, "\n".join(lines))
    actor = replace(audit.SYSTEM, address=asked.address, request_id=asked.request_id)
    audit.record(actor, _VERB, user, after={"sent": not error, "error": error[:200]})
    return error
