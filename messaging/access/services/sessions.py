"""Where people are logged in: noted at the log-in, looked after, and ended. A session is a row of django_session."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.utils.translation import gettext as _

from messaging.exceptions import NotFound
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import UserSession
from rmhub import clock
from rmhub.ids import public_id, uuid7

log = logging.getLogger(__name__)

METHODS = {"password": "Password", "totp": "Password and code", "openid": "Single sign-on", "session": "Console"}
_SEEN_EVERY = 60.0  # seconds between two notes of the same session, in each process
_MAX_SEEN = 5000
_seen: dict[str, float] = {}
_USED = "used_at"  # in the session: when somebody used it last, seconds since 1970
_lock = threading.Lock()


def session_begun(*, user: User, key: str, actor: Actor, agent: str, method: str) -> None:
    """Notes a log-in, and writes it into the audit log."""
    with transaction.atomic():
        _note(user.pk, key, actor.address, agent, method, clock.now())
        audit.record(actor, "user.login", user, after={"method": method})


def login_refused(*, name: str, actor: Actor, what: str) -> None:
    """Notes a log-in with a wrong password or code (`what`), in the log and the audit trail; the latter once a minute.

    A name that is none of a user is not written down: people type their password there by mistake. That is told as
    well, and costs the same, so that the time of an answer does not say which names exist.
    """
    user = User.objects.filter(username=name.replace("\x00", "")).first()
    known = user.get_username() if user is not None else ""
    log.warning(
        "log-in refused",
        extra={"action": "login_refused", "user": known or "unknown", "remote": actor.address[:64], "wrong": what},
    )
    who = replace(actor, name=known or "unknown", authentication="")
    object_id = str(user.pk) if user is not None else ""
    audit.denied(who, "user.login", object_type="user", object_id=object_id, name=known, required=f"the right {what}")


def session_seen(*, user_id: int, key: str, address: str, agent: str, method: str) -> None:
    """Notes that a session is used, at most once a minute; one that nobody noted at its log-in is noted now."""
    at = time.monotonic()
    with _lock:
        if at - _seen.get(key, float("-inf")) < _SEEN_EVERY:
            return
        if len(_seen) >= _MAX_SEEN:
            _seen.clear()
        _seen[key] = at
    _note(user_id, key, address, agent, method, clock.now())


def is_idle(session: SessionBase, *, by_itself: bool) -> bool:
    """Whether nobody has used the session for RMHUB_SESSION_IDLE; else notes its use, at most once a minute.

    `by_itself`: the browser asks because time has passed, and nobody need be there.
    """
    if not settings.RMHUB_SESSION_IDLE:
        return False
    now = clock.now().timestamp()
    used = float(session.get(_USED, now))
    if now - used > settings.RMHUB_SESSION_IDLE:
        return True
    if _USED not in session or (not by_itself and now - used >= _SEEN_EVERY):
        note_use(session)
    return False


def note_use(session: SessionBase) -> None:
    """Somebody is there: the time without a click begins anew."""
    session[_USED] = clock.now().timestamp()


def session_moved(*, before: str, after: str) -> None:
    """The session has a new key."""
    UserSession.objects.filter(session_key=before).update(session_key=after)


def session_ended(*, key: str) -> None:
    """Somebody logged out."""
    UserSession.objects.filter(session_key=key).delete()


def session_end(*, session_id: uuid.UUID, actor: Actor, reason: str = "", of: User | None = None) -> UserSession:
    """Ends a session wherever it is. `of`: only if it is this person's. Raises NotFound."""
    with transaction.atomic():
        found = UserSession.objects.select_for_update(of=("self",)).select_related("user").filter(pk=session_id)
        row = (found if of is None else found.filter(user=of)).first()
        if row is None:
            raise NotFound(_("There is no session {id}: it has ended.").format(id=public_id("ses", session_id)))
        _end(row.user, [row.session_key])
        audit.record(actor, "user.end_session", row.user, reason=reason, before={"address": row.address})
    return row


def sessions_end(*, user: User, actor: Actor, reason: str = "", keep: str = "") -> int:
    """Ends all sessions of a person but `keep` (a session key). Returns how many."""
    with transaction.atomic():
        others = UserSession.objects.filter(user=user).exclude(session_key=keep)
        keys = list(others.values_list("session_key", flat=True))
        _end(user, keys)
        if keys:
            audit.record(actor, "user.end_sessions", user, reason=reason, before={"sessions": len(keys)})
    return len(keys)


def forget(now: datetime) -> int:
    """Drops sessions that have ended or expired. Returns how many."""
    Session.objects.filter(expire_date__lt=now).delete()
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM messaging_usersession AS u WHERE u.last_seen_at < %s"
            " AND NOT EXISTS (SELECT FROM django_session AS s WHERE s.session_key = u.session_key)",
            [now - timedelta(minutes=1)],
        )
        return int(cursor.rowcount)


def reset() -> None:
    """Forgets what this process has noted (tests)."""
    _seen.clear()


def _end(user: User, keys: list[str]) -> None:
    Session.objects.filter(session_key__in=keys).delete()
    UserSession.objects.filter(user=user, session_key__in=keys).delete()


def _note(user_id: int, key: str, address: str, agent: str, method: str, now: datetime) -> None:
    values: list[Any] = [uuid7(), user_id, key, address[:64], agent.replace("\x00", "")[:255], method[:20], now, now]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_usersession"
            " (id, user_id, session_key, address, agent, method, created_at, last_seen_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session_key) DO UPDATE"
            " SET last_seen_at = EXCLUDED.last_seen_at, address = EXCLUDED.address, agent = EXCLUDED.agent",
            values,
        )
