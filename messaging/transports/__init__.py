"""Transports by name. `send` is the only entrance; tests put their own function into `BY_NAME`."""

from __future__ import annotations

from collections.abc import Callable

from messaging.transports import http
from messaging.transports.base import Parcel, Receipt
from rmhub import clock

TOO_LATE = Receipt(ok=False, cause="window_over", detail="Its time was over before it could be put on the wire.")

BY_NAME: dict[str, Callable[[Parcel], Receipt]] = {"http": http.post}


def send(transport: str, parcel: Parcel) -> Receipt:
    """Puts the parcel on the transport of that name. Raises KeyError for a name that no transport has."""
    if parcel.not_after is not None and clock.now() > parcel.not_after:
        return TOO_LATE
    return BY_NAME[transport](parcel)


__all__ = ["BY_NAME", "TOO_LATE", "Parcel", "Receipt", "send"]
