"""Transports by name: each has a module here that puts bytes on the wire. `send` is the only entrance; tests put their
own function into `BY_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from messaging.transports.base import Parcel, Receipt
from partners import transports
from rmhub import clock

TOO_LATE = Receipt(ok=False, cause="window_over", detail="Its time was over before it could be put on the wire.")


def _send(name: str, parcel: Parcel) -> Receipt:
    # Loaded by whoever needs it: SSH costs 24 MB and a third of a second, and most processes never put a file.
    receipt: Receipt = import_module(f"messaging.transports.{name}").send(parcel)
    return receipt


BY_NAME: dict[str, Callable[[Parcel], Receipt]] = {one.name: partial(_send, one.name) for one in transports.ALL}


def send(transport: str, parcel: Parcel) -> Receipt:
    """Puts the parcel on the transport of that name. Raises KeyError for a name that no transport has."""
    if parcel.not_after is not None and clock.now() > parcel.not_after:
        return TOO_LATE
    return BY_NAME[transport](parcel)


__all__ = ["BY_NAME", "TOO_LATE", "Parcel", "Receipt", "send"]
