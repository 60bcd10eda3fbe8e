"""The chain of the audit log: every entry is sealed moments after its commit, and a change of a sealed one shows.

`digest` = SHA-256 over the digest before it and all that the entry says, its number included; the first entry follows
64 zeros. Sealing gives numbers in the order in which entries are seen to be committed, one after the other without
gaps, so that one that is taken out shows as well. What the chain cannot show by itself is that its newest entries
were cut off, or that all of it was made anew: keep its head somewhere else now and then, and compare (`expect`).
docs/audit.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

from django.db import connection, transaction
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission
from messaging.journal import events, incidents
from messaging.models import AuditEntry
from messaging.models.bulk import bulk_set
from rmhub import clock

log = logging.getLogger(__name__)
START = "0" * 64  # what the first entry follows
CAUSE = "audit_chain_broken"
SEALED_AT_ONCE = 1000
LOOKED_AT_ONCE = 1000  # entries that the background look reads in one round
NEWEST = 100  # entries that it reads every time
BREAKS_TOLD = 20
_LOCK = 0x524D4841  # key of the advisory lock: one process seals


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain. `number` 0: nothing is sealed yet."""

    number: int = 0
    digest: str = START


@dataclass(frozen=True, slots=True)
class Break:
    """A place at which the chain is broken. `entry`: the public id; "" when it is missing."""

    number: int
    entry: str
    why: str


@dataclass(slots=True)
class Verdict:
    """What a look at the chain found. Entries `first` to `last` were looked at; none: both 0.

    `begins_at`: the number of the oldest entry there is (more than 1: what was before was taken out as a whole).
    """

    first: int = 0
    last: int = 0
    checked: int = 0
    begins_at: int = 0
    head: Head = field(default_factory=Head)
    unsealed: int = 0
    breaks: list[Break] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.breaks

    @property
    def holds_from(self) -> int:
        """From this number on everything that was looked at is as it was sealed; 0 = the newest entry is not."""
        if not self.breaks:
            return self.first
        behind = self.breaks[-1].number + 1
        return behind if behind <= self.last else 0


def seal_due() -> int:
    """Seals all that waits, a thousand at a time. Returns how many."""
    sealed = 0
    while (done := seal()) > 0:
        sealed += done
        if done < SEALED_AT_ONCE:
            break
    return sealed


def seal(*, limit: int = SEALED_AT_ONCE) -> int:
    """Seals entries that are committed and not sealed yet. Returns how many; 0 also when another process is at it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            if not cursor.fetchone()[0]:
                return 0
        waiting = list(AuditEntry.objects.filter(number=None).order_by("id")[:limit])
        if not waiting:
            return 0
        last = head()
        number, before = last.number, last.digest
        for entry in waiting:
            number += 1
            entry.number = number
            entry.digest = before = digest(entry, before)
        bulk_set(waiting, ("number", "digest"))
    return len(waiting)


def head() -> Head:
    """The newest sealed entry."""
    newest = AuditEntry.objects.filter(number__isnull=False).order_by("-number").values_list("number", "digest").first()
    return Head(int(newest[0] or 0), newest[1]) if newest is not None else Head()


def digest(entry: AuditEntry, before: str) -> str:
    """SHA-256 (hex) of a numbered entry that follows one with the digest `before`."""
    said = {
        "number": entry.number,
        "id": entry.pk.hex,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": entry.actor,
        "interface": entry.interface,
        "authentication": entry.authentication,
        "address": entry.address,
        "request_id": entry.request_id,
        "verb": entry.verb,
        "object_type": entry.object_type,
        "object_id": entry.object_id,
        "object_name": entry.object_name,
        "reason": entry.reason,
        "before": entry.before,
        "after": entry.after,
        "result": entry.result,
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def verify(*, first: int = 1, limit: int | None = None, expect: Head | None = None) -> Verdict:
    """Looks at the chain from an entry on, at most `limit` entries of it; None = to the end. Changes nothing.

    `expect`: a head that was written down earlier, which must still be in the chain. Raises InvalidSubmission for a
    `first` below 1.
    """
    if first < 1:
        raise InvalidSubmission({"first": [_("Numbers of entries begin at 1.")]})
    found = Verdict(head=head(), unsealed=AuditEntry.objects.filter(number=None).count())
    oldest = AuditEntry.objects.filter(number__isnull=False).order_by("number").values_list("number", flat=True).first()
    found.begins_at = int(oldest or 0)
    before, number = _predecessor(first, found)
    for entry in _entries(number, limit):
        assert entry.number is not None
        if found.first == 0:
            found.first = entry.number
        if entry.number != number:
            said = _("Missing: {first}.") if entry.number == number + 1 else _("Missing: {first} to {last}.")
            _broken(found, Break(entry.number - 1, "", said.format(first=number, last=entry.number - 1)))
            before = ""
        if before and digest(entry, before) != entry.digest:
            _broken(found, Break(entry.number, entry.public_id, _("It is not what was sealed.")))
        before, number = entry.digest, entry.number + 1
        found.checked += 1
        found.last = entry.number
    if expect is not None:
        _expected(found, expect)
    return found


def look() -> bool:
    """Looks at the newest entries and at one part of the rest, another one each minute; opens an incident for what does
    not hold. Returns whether all of it does. Called every now and then.
    """
    last, minute = head(), int(clock.now().timestamp() // 60)
    end = last.number
    if end == 0:
        return True
    if minute % 60 == 0:
        # The hub's log is usually kept elsewhere: a head in it proves what came before.
        log.info("head of the audit chain", extra={"action": "audit_head", "number": end, "digest": last.digest})
    parts = -(-end // LOOKED_AT_ONCE)
    part = minute % parts
    looks = {max(1, end - NEWEST + 1), part * LOOKED_AT_ONCE + 1}
    broken = [one for first in sorted(looks) for one in verify(first=first, limit=LOOKED_AT_ONCE).breaks]
    if not broken:
        return True
    log.error(
        "the chain of the audit log is broken",
        extra={"action": "audit_chain_broken", "number": broken[0].number, "why": broken[0].why},
    )
    detail = f"Entry {broken[0].number}: {broken[0].why}"
    with transaction.atomic():
        _, opened = incidents.incident_open(pair=None, cause=CAUSE, now=clock.now(), detail=detail)
        events.write(opened)
    return False


def _predecessor(first: int, found: Verdict) -> tuple[str, int]:
    """(digest that entry `first` must follow, its number); "" when that entry is gone with all before it."""
    if first == 1 and found.begins_at <= 1:
        return START, 1
    if first <= found.begins_at:
        return "", found.begins_at
    known = AuditEntry.objects.filter(number=first - 1).values_list("digest", flat=True).first()
    return known or "", first


def _entries(first: int, limit: int | None) -> Iterator[AuditEntry]:
    """Sealed entries in the order of their numbers, read by the thousand."""
    left = limit
    while left is None or left > 0:
        wanted = 1000 if left is None else min(1000, left)
        rows = list(AuditEntry.objects.filter(number__gte=first).order_by("number")[:wanted])
        yield from rows
        if len(rows) < wanted:
            return
        last = rows[-1].number
        assert last is not None
        first = last + 1
        left = None if left is None else left - wanted


def _broken(found: Verdict, one: Break) -> None:
    found.breaks.append(one)
    if len(found.breaks) > BREAKS_TOLD:
        # The first ones and the last one: from where on it is intact again is what matters.
        found.breaks.pop(-2)


def _expected(found: Verdict, expect: Head) -> None:
    known = AuditEntry.objects.filter(number=expect.number).values_list("digest", flat=True).first()
    if expect.number == 0:
        return
    if known is None:
        why = _("Missing.")
        if expect.number > found.head.number:
            why = _("Missing: the chain ends at {number}.").format(number=found.head.number)
        found.breaks.append(Break(expect.number, "", why))
    elif known != expect.digest:
        found.breaks.append(Break(expect.number, "", _("Its digest is not the one that was written down.")))
