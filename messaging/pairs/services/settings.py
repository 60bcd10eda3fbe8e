"""What people set for a pair: the rhythm in which documents are expected, and its run-book."""

from __future__ import annotations

import uuid

from django.db import transaction

from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Event, Pair
from messaging.pairs.services import silence
from rmhub import clock
from rmhub.ids import public_id

LONGEST = 366 * 86_400  # seconds
SHORTEST = 60
RUNBOOK_MOST = 20_000


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
        pair = Pair.objects.select_for_update().filter(pk=pair_id).first()
        if pair is None:
            raise NotFound(f"There is no pair {public_id('pair', pair_id)}.")
        if expected_version is not None and pair.version != expected_version:
            raise Stale(f"{pair.code} changed since you looked at it: look again.", version=pair.version)
        now = clock.now()
        before = described(pair)
        written: list[Event] = []
        if expected_every is not None and expected_every != pair.expected_every:
            pair.expected_every = expected_every
            pair.rhythm_since = now if expected_every else None
            written += silence.end(pair, now, actor.name, f"The rhythm was changed: {reason}")
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
        errors["expected_every"] = [f"From {SHORTEST} s (a minute) to {LONGEST} s (a year), or 0 for no rhythm."]
    if silence_grace is not None and not 0 <= silence_grace <= LONGEST:
        errors["silence_grace"] = [f"From 0 to {LONGEST} s (a year)."]
    if runbook is not None and len(runbook) > RUNBOOK_MOST:
        errors["runbook"] = [f"At most {RUNBOOK_MOST:,} characters: keep long documents elsewhere and link them."]
    elif runbook is not None and "\x00" in runbook:
        errors["runbook"] = ["There is a control character in this text: take it out."]
    if errors:
        raise InvalidSubmission(errors)
