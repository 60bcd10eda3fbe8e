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


@dataclass(frozen=True, slots=True)
class Cause:
    """One code. `sentence` says what happened, `action` what to do; `retryable`: time alone may fix it.

    `disproved_by`: newer evidence of these kinds decides what is said of it (`pairs.selectors.newer`).
    """

    code: str
    label: str
    sentence: str
    action: str
    retryable: bool
    group: str = ""
    disproved_by: frozenset[Evidence] = ANSWERED

    @property
    def documentation(self) -> str:
        """Where the console explains it: a path of this hub. A code that is not in the list leads to the list."""
        return f"{DOCUMENTATION}#cause-{self.code}" if self.group else DOCUMENTATION
