"""One cause code, and the row that it is written as in the tables."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[str, str, str, str, bool]  # code, label, what happened, what to do, whether time alone may mend it

DOCUMENTATION = "/causes/"  # the console's page, as `console.urls` has it


@dataclass(frozen=True, slots=True)
class Cause:
    """One code. `sentence` says what happened, `action` what to do; `retryable`: time alone may mend it."""

    code: str
    label: str
    sentence: str
    action: str
    retryable: bool
    group: str = ""

    @property
    def documentation(self) -> str:
        """Where the console explains it: a path of this hub. A code that is not in the list leads to the list."""
        return f"{DOCUMENTATION}#cause-{self.code}" if self.group else DOCUMENTATION
