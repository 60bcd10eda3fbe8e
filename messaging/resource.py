"""What a kind of object is that people set up, said once: pages, forms, dialogs and the API are made of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet


@dataclass(frozen=True, slots=True)
class Verb:
    """What people can do to an object, with a reason: a button, its dialog, an operation of the API.

    `service(<name>_id=, actor=, reason=, expected_version=)` does it and returns the object, or None when it is gone.
    `effects` say what happens, `forever` what of it is final; `done` ends the sentence "<object> ...". `summary`: of
    the API's operation; "" = the API has another one for it (DELETE).
    """

    slug: str
    label: str
    icon: str
    colour: str
    service: Callable[..., Any]
    effects: tuple[str, ...]
    forever: str
    presets: tuple[str, ...]
    done: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: its names, who may see and change it, how it is read, and what changes it.

    `name` is the noun, in addresses too; `prefix` that of its public ids. `rows(**filters)` and `one(id)` are
    selectors, under the caller's limits; `create` and `update` are services. `possible(row)`: slugs of the verbs that
    its present `state(row)` takes. `said(row, verb)`: what else a dialog has to say about this object.
    """

    name: str
    plural: str
    prefix: str
    reads: str
    changes: str
    rows: Callable[..., QuerySet[Any]]
    one: Callable[[uuid.UUID], Any]
    order: tuple[str, ...]
    create: Callable[..., Any]
    update: Callable[..., Any]
    verbs: tuple[Verb, ...]
    possible: Callable[[Any], tuple[str, ...]]
    state: Callable[[Any], str]
    said: Callable[[Any, Verb], Iterable[str]] = lambda row, verb: ()

    def verb(self, slug: str) -> Verb | None:
        """Return the verb of this name."""
        return next((verb for verb in self.verbs if verb.slug == slug), None)

    def key(self, pk: uuid.UUID) -> dict[str, uuid.UUID]:
        """Return the keyword by which services take the object."""
        return {f"{self.name}_id": pk}
