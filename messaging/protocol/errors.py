"""What can go wrong on the wire, in one catalogue.

    RmhubError
    +-- ProtocolError
    |   +-- NotAMessage          not a message we could answer: HTTP 400, a log row, no Error message
    |   +-- EncodeError          our own mistake: an envelope that has no valid wire form
    +-- IllegalTransition        an event that a state machine refuses; the state is unchanged

A message that can be read but breaks a rule is no exception: the codec returns
its envelope with `Defect` rows, and acceptance turns the first of them into an
Error message (wire-ebxml 1.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes of Error messages. Spec 1 names none; all but the first three are ebMS 2.0's names."""

    INVALID_SEQUENCE_NUMBER = "InvalidSequenceNumber"
    TRANSIENT_ERROR = "TransientError"
    NOT_WELL_FORMED = "NotWellFormed"
    VALUE_NOT_RECOGNIZED = "ValueNotRecognized"
    NOT_SUPPORTED = "NotSupported"
    INCONSISTENT = "Inconsistent"
    MIME_PROBLEM = "MimeProblem"
    SECURITY_FAILURE = "SecurityFailure"
    DELIVERY_FAILURE = "DeliveryFailure"
    OTHER_XML = "OtherXml"
    TIME_TO_LIVE_EXPIRED = "TimeToLiveExpired"
    UNKNOWN = "Unknown"


class Severity(StrEnum):
    """Severity of an Error message (IOTP's three, spec 1 section 4.2 needs the second)."""

    WARNING = "Warning"
    TRANSIENT = "TransientError"
    ERROR = "Error"


class RmhubError(Exception):
    """Base of every error that this project raises on purpose."""


class ProtocolError(RmhubError):
    """A rule of a wire protocol was broken."""


class NotAMessage(ProtocolError):
    """The bytes cannot be read as a message, so there is nobody to send an Error message to.

    `reason` is a stable code for logs and screens, `detail` a sentence for people.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class EncodeError(ProtocolError):
    """An envelope that has no valid wire form (a bug, a bad submission or something missing here, never the partner's
    fault). `cause`: what that is called where the message is held.
    """

    cause = "payload_invalid"


class IllegalTransition(RmhubError):
    """The machine has no such move from its present state. Nothing changed."""

    def __init__(self, state: str, event: str, why: str = "") -> None:
        super().__init__(why or f"{event} is not possible in state {state}")
        self.state = state
        self.event = event
        self.why = why


@dataclass(frozen=True, slots=True)
class Defect:
    """A rule that a readable message breaks, in the terms of the Error message that it earns.

    `location` is an XPath-like place (`/ebXMLHeader/RoutingHeader[1]/SequenceNumber`) or a Content-ID.
    """

    code: ErrorCode
    description: str
    location: str = ""
    severity: Severity = Severity.ERROR
