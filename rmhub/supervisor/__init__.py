"""Runs the hub's processes: in order, with readiness checks, restarts, named log lines, and no orphans.

Knows nothing of the hub: no Django, no settings, standard library only. Linux only, for the parent-death signal.
"""

from __future__ import annotations

from rmhub.supervisor.processes import Console, Output, Process
from rmhub.supervisor.supervision import StartFailed, Stopped, Supervisor

__all__ = ["Console", "Output", "Process", "StartFailed", "Stopped", "Supervisor"]
