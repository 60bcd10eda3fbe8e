"""What can go wrong with the embedded servers."""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded servers cannot be had; the message tells an operator why and what to do."""
