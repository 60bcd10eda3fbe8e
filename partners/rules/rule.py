"""One row of a table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from partners.models import AgreementVersion


class Level(StrEnum):
    """Only errors keep a version from being activated."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` says whether it applies; `sentence` is formatted with the version as `v` and `durations`."""

    field: str
    code: str
    level: Level
    broken: Callable[[AgreementVersion], bool]
    sentence: str
