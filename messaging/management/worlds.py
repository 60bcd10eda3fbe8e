"""Worlds and judges of the demo commands, which are part of the source tree beside the tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.core.management.base import CommandError


def world(name: str) -> Any:
    """Return a module of `tests.worlds`. Raises CommandError where the source tree is not."""
    try:
        return import_module(f"tests.worlds.{name}")
    except ImportError as error:
        raise CommandError(f"This demo is part of the source tree; run it there ({error}).") from error
