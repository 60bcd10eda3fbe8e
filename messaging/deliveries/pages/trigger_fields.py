"""Fields of forms that read no model, in their groups: labels, help, and for which kinds each is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `kind`: text, password, number, time, switch, choice, select, lines or codes.

    `only`: shown for these values of that field; the style sheet has a rule for each such field.
    """

    name: str
    label: str
    kind: str
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    only: tuple[str, tuple[str, ...]] | None = None
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Fields under one heading. `folded`: closed as long as nothing in it is set or wrong."""

    title: str
    lead: str
    fields: tuple[Field, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A field with what stands in it."""

    field: Field
    value: str
    choices: tuple[tuple[str, str], ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A group of the form as it is shown."""

    title: str
    lead: str
    fields: list[Shown]
    folded: bool
    open: bool
