"""What the services of this app refuse.

PartnersError
+-- InvalidInput      a value is wrong; `errors` says which field, and what to do
+-- WrongState        the object is not in a state in which this can be done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PartnersError(Exception):
    """Base of every error that this app raises on purpose."""


class InvalidInput(PartnersError):
    """Values that cannot be taken. `errors` maps a field (or `__all__`) to sentences for people."""

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        self.errors: dict[str, list[str]] = {field: list(sentences) for field, sentences in errors.items()}
        super().__init__("; ".join(f"{field}: {' '.join(sentences)}" for field, sentences in self.errors.items()))


class WrongState(PartnersError):
    """The object's state forbids it. `state` is the present state, `verb` what was asked for, `why` a sentence."""

    def __init__(self, state: str, verb: str, why: str) -> None:
        self.state = state
        self.verb = verb
        self.why = why
        super().__init__(f"cannot {verb} in state {state}: {why}")
