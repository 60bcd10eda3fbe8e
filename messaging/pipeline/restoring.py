"""The run RESTORE: reads messages from the archive's files and has them written into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from messaging.archive.services import archived, restoring
from messaging.archive.services.belongings import Belongings
from messaging.archive.services.restoring import Restored
from messaging.exceptions import WrongState
from messaging.models import ArchivedMessage
from messaging.pipeline import archive_file
from rmhub.ids import public_id

if TYPE_CHECKING:
    from messaging.pipeline.driver import Context

# What is written in one transaction; a conversation that is larger takes several, each of whole messages.
MOST_BYTES = 64 * 1024 * 1024
MOST_MESSAGES = 2_000


def run(context: Context) -> None:
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
    portion: list[Belongings] = []
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


def _read(wanted: Sequence[ArchivedMessage]) -> Iterator[Belongings]:
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


def _put_back(portion: Sequence[Belongings], by: str, result: Restored) -> None:
    done = restoring.restore(portion, by=by)
    result.restored += done.restored
    result.in_store += done.in_store
    result.notes += done.notes
