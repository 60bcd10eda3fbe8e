"""What a check is, and how they are made one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from django.db import connection


class State(StrEnum):
    """What was found."""

    OK = "ok"
    WARNING = "warning"  # the hub works; somebody should look
    FAILED = "failed"  # something that the hub needs is not as it must be
    SKIPPED = "skipped"  # not to be known while something else fails


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `advice`: what to do; "" when nothing is."""

    state: State
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """`look` yields at least one finding. `asks_database`: it is skipped while the database does not answer."""

    name: str
    look: Callable[[], Iterator[Finding]]
    asks_database: bool = False


def ok(text: str) -> Finding:
    return Finding(State.OK, text)


def warning(text: str, advice: str) -> Finding:
    return Finding(State.WARNING, text, advice)


def failed(text: str, advice: str) -> Finding:
    return Finding(State.FAILED, text, advice)


def examine(checks: Iterable[Check]) -> Iterator[tuple[Check, Finding]]:
    """Makes the checks, in their order. Never raises: a look that fails is a finding."""
    answers = True
    for check in checks:
        if check.asks_database and not answers:
            yield check, Finding(State.SKIPPED, "not known while the database does not answer")
            continue
        try:
            for finding in check.look():
                if check.name == DATABASE and finding.state is State.FAILED:
                    answers = False
                yield check, finding
        except Exception as error:
            connection.close()
            said = str(error).strip().splitlines()
            yield check, failed(f"cannot be looked at: {said[0] if said else type(error).__name__}", "See the log.")


DATABASE = "database"
