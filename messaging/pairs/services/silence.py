"""What people set for a pair: its run-book, and the rhythm in which documents are expected. Silence is a fault too: a
document was due, and none came.

Only pairs with a rhythm are looked at, by housekeeping; the sending and receiving paths know nothing of it.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils.translation import gettext as _

from messaging.choices import Direction
from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import Event, Message, Pair
from messaging.models.base import existing
from messaging.protocol.pair_state import Gate
from partners.fields import duration
from rmhub import clock
from rmhub.language import number

CAUSE = "silent"
LONGEST = 366 * 86_400  # seconds
SHORTEST = 60
RUNBOOK_MOST = 20_000
# The newest document of each pair that has a rhythm: one index probe a pair.
_NEWEST = (
    "SELECT p.id, m.created_at FROM messaging_pair p LEFT JOIN LATERAL ("
    " SELECT created_at FROM messaging_message WHERE pair_id = p.id ORDER BY id DESC LIMIT 1) AS m ON true"
    " WHERE p.expected_every > 0"
)


def look(now: datetime) -> int:
    """Says which pairs are silent and which were heard again. Returns how many changed."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST)
        newest: dict[uuid.UUID, datetime | None] = dict(cursor.fetchall())
    if not newest:
        return 0
    changed = 0
    for pair in Pair.objects.filter(pk__in=newest):
        if _is_silent(pair, newest[pair.pk], now) != (pair.silent_since is not None):
            changed += _turn(pair.pk, now)
    return changed


def due_at(pair: Pair, newest: datetime | None) -> datetime | None:
    """When the next document is due, without the grace. None without a rhythm."""
    if not pair.expected_every:
        return None
    known = [at for at in (newest, pair.rhythm_since, pair.last_success_at) if at is not None]
    return max(known, default=pair.created_at) + timedelta(seconds=pair.expected_every)


def end(pair: Pair, now: datetime, by: str, resolution: str) -> list[Event]:
    """The pair is not silent any more. Call with its lock held; the caller saves it and writes the events."""
    if pair.silent_since is None:
        return []
    length = (now - pair.silent_since).total_seconds()
    pair.silent_since = None
    told = events.event("pair.heard", now, pair=pair, data={"silent_seconds": int(length), "reason": resolution})
    resolved = incidents.incidents_resolve_for_pair(pair=pair, now=now, by=by, resolution=resolution, causes=(CAUSE,))
    return [told, *resolved]


def _is_silent(pair: Pair, newest: datetime | None, now: datetime) -> bool:
    """A pair whose agreement is not in force is expected to be silent."""
    due = due_at(pair, newest)
    if due is None or pair.gate == Gate.DISABLED:
        return False
    return now > due + timedelta(seconds=pair.silence_grace)


def _turn(pair_id: uuid.UUID, now: datetime) -> int:
    with transaction.atomic():
        pair = Pair.objects.select_for_update().get(pk=pair_id)
        at = Message.objects.filter(pair=pair).order_by("-id").values_list("created_at", flat=True).first()
        silent = _is_silent(pair, at, now)
        if silent == (pair.silent_since is not None):
            return 0
        written = _begin(pair, at, now) if silent else end(pair, now, "system", "A document came again.")
        pair.save(update_fields=["silent_since"])
        events.write(written)
    return 1


def _begin(pair: Pair, newest: datetime | None, now: datetime) -> list[Event]:
    pair.silent_since = due_at(pair, newest)
    what = "Nothing was submitted" if pair.direction == Direction.OUT else "Nothing came"
    since = f"since {newest:%Y-%m-%d %H:%M:%S} UTC" if newest is not None else "yet"
    detail = f"{what} {since}; a document is expected every {duration(pair.expected_every)}."
    incident, opened = incidents.incident_open(pair=pair, cause=CAUSE, now=now, detail=detail)
    data = {"cause": CAUSE, "detail": detail, "incident": incident.public_id}
    return [events.event("pair.silent", now, pair=pair, data=data), *opened]


def pair_update(
    *,
    pair_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_every: int | None = None,
    silence_grace: int | None = None,
    runbook: str | None = None,
    expected_version: int | None = None,
) -> Pair:
    """Changes what is given; None leaves a setting as it is. Times in seconds; `expected_every` 0: no rhythm.

    A new rhythm counts from now. Raises InvalidSubmission, NotFound, Stale.
    """
    audit.require_reason(reason)
    _check(expected_every, silence_grace, runbook)
    with transaction.atomic():
        pair = existing(Pair.objects.select_for_update(), pair_id)
        if expected_version is not None and pair.version != expected_version:
            said = _("{pair} changed since you looked at it: look again.").format(pair=pair.code)
            raise Stale(said, version=pair.version)
        now = clock.now()
        before = described(pair)
        written: list[Event] = []
        if expected_every is not None and expected_every != pair.expected_every:
            pair.expected_every = expected_every
            pair.rhythm_since = now if expected_every else None
            written += end(pair, now, actor.name, f"The rhythm was changed: {reason}")
        if silence_grace is not None:
            pair.silence_grace = silence_grace
        if runbook is not None:
            pair.runbook = runbook.replace("\r\n", "\n").strip()
        after = described(pair)
        if after == before:
            return pair
        pair.version += 1
        pair.save(
            update_fields=["expected_every", "silence_grace", "rhythm_since", "silent_since", "runbook", "version"]
        )
        audit.record(actor, "pair.update", pair, reason=reason, before=before, after=after)
        events.write(written)
    return pair


def described(pair: Pair) -> dict[str, object]:
    """The settings, for the audit log."""
    return {"expected_every": pair.expected_every, "silence_grace": pair.silence_grace, "runbook": pair.runbook}


def _check(expected_every: int | None, silence_grace: int | None, runbook: str | None) -> None:
    errors: dict[str, list[str]] = {}
    if expected_every is not None and expected_every != 0 and not SHORTEST <= expected_every <= LONGEST:
        said = _("From {least} s (a minute) to {most} s (a year), or 0 for no rhythm.")
        errors["expected_every"] = [said.format(least=SHORTEST, most=LONGEST)]
    if silence_grace is not None and not 0 <= silence_grace <= LONGEST:
        errors["silence_grace"] = [_("From 0 to {most} s (a year).").format(most=LONGEST)]
    if runbook is not None and len(runbook) > RUNBOOK_MOST:
        said = _("At most {count} characters: keep long documents elsewhere and link them.")
        errors["runbook"] = [said.format(count=number(RUNBOOK_MOST))]
    elif runbook is not None and "\x00" in runbook:
        errors["runbook"] = [_("There is a control character in this text: remove it.")]
    if errors:
        raise InvalidSubmission(errors)
