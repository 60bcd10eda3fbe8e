"""One cause code, and the row that it is written as in the tables."""

from __future__ import annotations

from dataclasses import dataclass

Row = tuple[str, str, str, str, bool]  # code, label, what happened, what to do, whether time alone may mend it


@dataclass(frozen=True, slots=True)
class Cause:
    """One code. `sentence` says what happened, `action` what to do; `retryable`: time alone may mend it."""

    code: str
    label: str
    sentence: str
    action: str
    retryable: bool
    group: str = ""
