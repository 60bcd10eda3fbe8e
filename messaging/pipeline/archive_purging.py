"""Lets the store forget what the archive has and the policy lets go."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from messaging.archive.services import archived, purging, retention
from messaging.models import ArchivedMessage, ArchiveFile
from messaging.report_choices import ArchiveState
from rmhub import clock

if TYPE_CHECKING:
    pass
from messaging.pipeline.archive_tally import Pace, Progress, Tally

PURGE_MESSAGES = 200
_EVENTS, _SIGNALS = 2_000, 500
NOWHERE = uuid.UUID(int=0)


def purge(progress: Progress, tally: Tally, pace: Pace | None = None) -> None:
    """Lets the store forget what the archive has and the policy lets go, then what is left over of it."""
    pace = pace or Pace()
    edge = clock.now() - timedelta(days=retention.policy().purge_after)
    in_store = ArchivedMessage.objects.exclude(state=ArchiveState.ARCHIVED)
    total = in_store.filter(completed_at__lt=edge).count()
    checked: dict[int, bool] = {}
    damaged: dict[int, str] = {}

    def is_whole(file: ArchiveFile) -> bool:
        if file.pk not in checked:
            checked[file.pk] = archived.is_whole(file)
            if not checked[file.pk]:
                damaged[file.pk] = file.path
        return checked[file.pk]

    done, after = 0, None
    while page := purging.candidates(after=after, limit=PURGE_MESSAGES):
        after = page[-1]
        with pace.work():
            batch = purging.purge([key for _, key in page], is_whole)
        # After the commit; what is not done when the process dies here is found by the sweep.
        tally.payload_files += purging.remove_files(batch.files)
        tally.kept += batch.kept
        for day, count in batch.purged.items():
            tally.days[day].purged += count
        for day, count in batch.held.items():
            tally.days[day].held += count
        done += len(page)
        progress("Purging from the store", done, max(done, total))
    archived.damaged(list(damaged.values()))
    _sweep(progress, tally, pace)
    tally.expired = len(archived.expire())


def _sweep(progress: Progress, tally: Tally, pace: Pace) -> None:
    event: int | None = 0
    while event is not None:
        with pace.work():
            gone, event = purging.purge_events(after=event, limit=_EVENTS)
        tally.events += gone
        progress("Purging old events", tally.events, 0)
    signal: uuid.UUID | None = NOWHERE
    while signal is not None:
        with pace.work():
            gone, signal = purging.purge_signals(after=signal, limit=_SIGNALS)
        tally.signals += gone
    for gone in purging.sweep_files():
        tally.payload_files += gone
        progress("Removing unused payload files", tally.payload_files, 0)
