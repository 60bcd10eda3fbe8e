"""The worker's engines: claim, talk, record. One for each kind of work in a process."""

from __future__ import annotations

from messaging.engine.kinds import close, collector, deliverer, presence, sender, stop

__all__ = ["close", "collector", "deliverer", "presence", "sender", "stop"]
