"""One cause code, and the row that it is written as in the tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Row = tuple[str, str, str, str, bool]  # code, label, what happened, what to do, whether time alone may fix it

DOCUMENTATION = "/causes/"  # the console's page, as `urls.console` has it


class Evidence(StrEnum):
    """What can show, later, that a cause is not so any more."""

    PING = "ping"  # a look at the partner's endpoint
    ANSWER = "answer"  # the partner's status service answered
    ATTEMPT = "attempt"  # a message was taken
    SUCCESS = "success"  # an acknowledgement, or the answer to a request
    CHANGE = "change"  # we have entered something else; whether it helps is not known before somebody tries


REACHED = frozenset(Evidence)  # by whatever reaches the partner's server
ANSWERED = frozenset({Evidence.SUCCESS})  # only by the partner's word about a message


# Something is lost or done twice, or the hub cannot do its work until somebody helps it.
_CRITICAL = frozenset(
    {"memory_lost", "encryption_key_missing", "payload_missing", "internal_error", "secret_unreadable"}
    | {"audit_chain_broken", "archive_damaged", "archive_differs", "heuristic_outcome", "host_key_mismatch"}
    | {"security_failure", "reconciliation_lost", "reconciliation_doubled", "audit_delivered_twice"}
    | {"audit_document_twice", "audit_ack_without_storage", "audit_acceptance_without_delivery"}
)
# Nothing has gone wrong yet, or it may well pass by itself.
_WARNINGS = frozenset(
    {
        "certificate_expiring",
        "certificate_offered",
        "silent",
        "trigger_silent",
        "clock_differs",
        "circuit_open",
        "http_429",
        "late_ack",
    }
    | {"live_ack_slow", "live_failure_rate", "live_partner_silent", "credentials_guessed", "not_taken_now"}
    | {"transient_error", "paused_by_user", "suspended_by_user", "cancelled_by_user", "service_not_now"}
    | {"sla_acknowledged_at_risk", "sla_processed_at_risk"}
)


class _Said:
    """A text of a cause, kept as it is declared and looked up whenever it is read: text in the reader's language."""

    def __init__(self, default: str | None = None) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, cause: object | None, owner: type) -> str:
        if cause is not None:
            return str(cause.__dict__[self.name])
        if self.default is None:
            raise AttributeError(self.name)  # a field without a default, as dataclasses ask for it
        return self.default

    def __set__(self, cause: object, text: str) -> None:
        cause.__dict__[self.name] = text


@dataclass(frozen=True)
class Cause:
    """One code. `sentence` says what happened, `action` what to do; `retryable`: time alone may fix it.

    `disproved_by`: newer evidence of these kinds decides what is said of it (`pairs.selectors.newer`).
    """

    code: str
    label: _Said = _Said()
    sentence: _Said = _Said()
    action: _Said = _Said()
    retryable: bool = False
    group: _Said = _Said("")
    disproved_by: frozenset[Evidence] = ANSWERED

    @property
    def severity(self) -> str:
        """How bad it is: warning, error or critical (`choices.Severity`)."""
        return "critical" if self.code in _CRITICAL else "warning" if self.code in _WARNINGS else "error"

    @property
    def documentation(self) -> str:
        """Where the console explains it: a path of this hub. A code that is not in the list leads to the list."""
        return f"{DOCUMENTATION}#cause-{self.code}" if self.group else DOCUMENTATION
