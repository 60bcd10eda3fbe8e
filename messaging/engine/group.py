"""Group commit: what many threads hand in at the same moment becomes one transaction.

The thread that comes first does the work of all that wait; those that come meanwhile are the next group. A single
caller is its own group at once; only while groups are large the next one gathers for a few milliseconds, like
PostgreSQL's commit_delay. No caller goes on before its group is committed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rmhub.metrics import GROUPS
from rmhub.postgresql.base import give_back

Item = TypeVar("Item")
Result = TypeVar("Result")
log = logging.getLogger(__name__)

# After a group of this size the next is worth waiting for: a transaction costs as much as half a dozen items in it.
CROWD = 4
GATHER_SECONDS = 0.006


class _Entry(Generic[Item, Result]):
    __slots__ = ("error", "item", "leads", "result", "woken")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.leads = False
        self.woken = threading.Event()


class GroupCommit(Generic[Item, Result]):
    """`process` takes a list of items and returns as many results, having committed (or raised and rolled back).

    It leaves the items as they are: when it raises, it is called again with each of them alone.
    """

    def __init__(self, process: Callable[[list[Item]], list[Result]], *, limit: int = 64, name: str = "") -> None:
        """`name`: what the sizes of its groups are counted under; "" = the module that `process` is of."""
        self._process = process
        self._sizes = GROUPS.labels(name or process.__module__.removeprefix("messaging."))
        self._limit = limit
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._lock = threading.Lock()
        self._busy = False
        self._crowded = False

    def submit(self, item: Item) -> Result:
        """The item's result, after its commit. Raises what `process` raised for this item alone."""
        entry: _Entry[Item, Result] = _Entry(item)
        with self._lock:
            self._waiting.append(entry)
            if self._busy:
                lead = False
            else:
                self._busy = lead = True
        if not lead:
            give_back()  # whoever leads may need one
            entry.woken.wait()
            lead = entry.leads
        if lead:
            self._lead(entry)
        if entry.error is not None:
            try:
                raise entry.error
            finally:
                entry.error = None  # it knows this frame by its traceback: files of the item would stay open for long
        return entry.result  # type: ignore[return-value]

    def _lead(self, own: _Entry[Item, Result]) -> None:
        if self._crowded:
            time.sleep(GATHER_SECONDS)
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(self._limit, len(self._waiting)))]
        self._crowded = len(group) >= CROWD
        try:
            self._run(group)
        finally:
            with self._lock:
                successor = self._waiting[0] if self._waiting else None
                if successor is None:
                    self._busy = False
                else:
                    successor.leads = True
            for entry in group:
                if entry is not own:
                    entry.woken.set()
            if successor is not None:
                successor.woken.set()

    def _run(self, group: list[_Entry[Item, Result]]) -> None:
        try:
            results = self._process([entry.item for entry in group])
        except Exception as error:
            if len(group) == 1:
                group[0].error = error
                return
            # One bad item must not take the others with it; alone, each meets its own fate.
            log.warning(
                "group failed, one by one",
                extra={"action": "group_split", "size": len(group), "error": repr(error)[:300]},
            )
            for entry in group:
                self._run([entry])
            return
        except BaseException as error:
            for entry in group:
                entry.error = error
            raise
        for entry, result in zip(group, results, strict=True):
            entry.result = result
