"""What goes wrong in transactions, as those that call the services see it."""

from __future__ import annotations

from messaging.protocol.atomic.words import FaultCode


class Refused(Exception):
    """A request of a peer that is answered with a fault: `code` and a sentence."""

    def __init__(self, code: FaultCode, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class LocalWorkFailed(Exception):
    """What this hub does itself in a transaction did not work: the outcome is abort. `cause` is a code of `causes`."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
