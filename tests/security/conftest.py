"""Fixtures: a world with one of everything, at noon."""

from __future__ import annotations

from tests.messaging.conftest import commit_fails, nothing_kept, scene, static_folder, time, woken

__all__ = ["commit_fails", "nothing_kept", "scene", "static_folder", "time", "woken"]
