"""The run ARCHIVE: copies finished messages, reads the copies back, and lets the store forget what is old enough.

The order is what makes it safe: write, sync, read back, compare with the store, enter in the books, and in a later
transaction purge. A run that dies between two steps has lost nothing: files without an entry are removed by the next
one, and what is entered is not copied again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from messaging.archive.services import archived, purging, retention
from messaging.exceptions import WrongState
from messaging.pipeline.archive_copying import copy, spark_verify
from messaging.pipeline.archive_purging import purge
from messaging.pipeline.archive_tally import Tally
from rmhub import clock
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
                progress("Bringing the lake up to date", 0, 0)
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
