"""The runs ARCHIVE and RESTORE.

ARCHIVE copies finished messages, reads the copies back, and lets the store forget what is old enough. The order is what
makes it safe: write, sync, read back, compare with the store, enter in the books, and in a later transaction purge. A
run that dies between two steps has lost nothing: files without an entry are removed by the next one, and what is
entered is not copied again. RESTORE reads messages from the archive's files and has them written into the store.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from messaging.archive.services import archived, purging, restoring, retention
from messaging.archive.services.message_rows import MessageRows
from messaging.archive.services.restoring import Restored
from messaging.exceptions import WrongState
from messaging.models import ArchivedMessage, ArchiveFile
from messaging.pipeline import archive_file
from messaging.pipeline.archive_copying import Pace, Progress, Tally, copy, spark_verify
from messaging.report_choices import ArchiveState
from rmhub import clock
from rmhub.ids import public_id
from rmhub.postgresql.base import Lock, locked

if TYPE_CHECKING:
    from messaging.pipeline.driver import Context

_LOCK = 0x524D4152


def run(context: Context) -> None:
    """Copies, purges and expires as the policy says; publishes what was done by day."""
    policy = retention.policy()
    tally = Tally()
    if policy.enabled:
        usable_folder()
        with alone() as lock:

            def progress(step: str, done: int, total: int) -> None:
                lock.check()  # else another process may be archiving by now
                context.progress(step, done, total)

            copy(context.run, progress, spark_verify(context.session), tally)
            if purging.candidates(after=None, limit=1):
                lock.check()
                context.extract()
            purge(progress, tally)
    context.publish({"days": tally.table()}, data_as_of=clock.now(), enabled=policy.enabled, **tally.facts())


@contextmanager
def alone() -> Iterator[Lock]:
    """Raises WrongState while another process archives."""
    with locked(_LOCK, wait=False) as lock:
        if lock is None:
            raise WrongState("Another process is working on the archive.", state="running")
        yield lock


def usable_folder() -> None:
    """Raises WrongState when the archive's folder cannot be written to."""
    try:
        archived.root().mkdir(parents=True, exist_ok=True)
        writable = os.access(archived.root(), os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise WrongState(
            f"The archive's folder {archived.root()} cannot be written to: create it, or set RMHUB_ARCHIVE_DIR.",
            state="unusable",
        )


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


# What is written in one transaction; a conversation that is larger takes several, each of whole messages.
MOST_BYTES = 64 * 1024 * 1024
MOST_MESSAGES = 2_000


def run_restore(context: Context) -> None:
    """Restores what the run's parameters name. What is in the store already is left as it is."""
    wanted = restoring.wanted(context.run)
    result = restore(wanted, by=context.run.requested_by, progress=context.progress)
    context.succeed(
        rows=len(result.restored),
        restored=[public_id("msg", key) for key in result.restored[:100]],
        messages=len(result.restored),
        in_store=len(result.in_store),
        notes=result.notes[:20],
    )


def restore(
    wanted: Sequence[ArchivedMessage],
    *,
    by: str,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Restored:
    """Reads and writes, in bounded portions. Raises WrongState for a file that is missing or damaged."""
    result = Restored()
    progress("Reading from the archive", 0, len(wanted))
    portion: list[MessageRows] = []
    size = 0
    for one in _read(wanted):
        portion.append(one)
        size += one.message["size"]
        if size >= MOST_BYTES or len(portion) >= MOST_MESSAGES:
            _put_back(portion, by, result)
            progress("Restoring to the store", len(result.restored), len(wanted))
            portion, size = [], 0
    if portion:
        _put_back(portion, by, result)
    progress("Restoring to the store", len(result.restored), len(wanted))
    return result


def _read(wanted: Sequence[ArchivedMessage]) -> Iterator[MessageRows]:
    for file, entries in groupby(wanted, key=lambda one: one.file):
        keys = {one.row: one.pk for one in entries}
        path = archived.root() / file.path
        try:
            for row, found in zip(sorted(keys), archive_file.read(path, keys), strict=True):
                if found.message["id"] != keys[row]:
                    raise ValueError(f"row {row} is another message")
                yield found
        except (OSError, ValueError, pa.ArrowException) as error:
            raise WrongState(
                f"The archive's file {file.path} cannot be read ({error}). Bring it back from the backup of the"
                " archive's folder, then restore again.",
                state="damaged",
            ) from error


def _put_back(portion: Sequence[MessageRows], by: str, result: Restored) -> None:
    done = restoring.restore(portion, by=by)
    result.restored += done.restored
    result.in_store += done.in_store
    result.notes += done.notes
