"""Beat's scheduler: Celery's, which shows that it turns."""

from __future__ import annotations

from typing import Any

from celery.beat import PersistentScheduler

from rmhub.alive import Sign


class Scheduler(PersistentScheduler):  # type: ignore[misc]
    """See `rmhub.alive`. A round lasts until the next task is due, and longer only where the broker is silent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sign = Sign("beat")
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One round; seconds until the next one."""
        self._sign.give()
        return float(super().tick(*args, **kwargs))
