"""How far back this hub remembers the ids of repeatable requests (spec 2), as people and scripts ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from messaging import profile
from messaging.models import MemoryEpoch
from messaging.protocol import memory
from partners import registry
from partners.terms import Terms
from partners.visibility import allows


@dataclass(frozen=True, slots=True)
class Window:
    """What one agreement promises: requests with a first-instance time from `earliest` on, and not after `latest`."""

    terms: Terms
    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class Recollection:
    """`epoch` is None before the hub first ran; `windows` are those of the repeatable agreements in force, by TPAId."""

    now: datetime
    epoch: MemoryEpoch | None
    windows: tuple[Window, ...]


def recollection(now: datetime) -> Recollection:
    """What is remembered at `now`, by the same rules as the profile's admission."""
    epoch = MemoryEpoch.objects.first()
    agreed = [terms for terms in registry.current().active() if profile.of(terms).answered_at_once]
    agreed = [terms for terms in agreed if allows(terms.partner_id)]
    return Recollection(now, epoch, tuple(_window(terms, epoch, now) for terms in agreed))


def _window(terms: Terms, epoch: MemoryEpoch | None, now: datetime) -> Window:
    skew = timedelta(seconds=terms.clock_skew)
    if epoch is None:
        return Window(terms, now, now + skew)
    remembered = memory.Memory(
        window=timedelta(seconds=terms.memory_window),
        skew=skew,
        memory_start=epoch.memory_start,
        forgotten_through=epoch.forgotten_through,
        heartbeat=epoch.heartbeat,
    )
    return Window(terms, memory.horizon(remembered, now), now + skew)
