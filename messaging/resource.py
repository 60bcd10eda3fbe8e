"""What a kind of object is that people set up, said once: pages, forms, dialogs and the API are made of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from rmhub.language import gettext_lazy


def number(text: str) -> int:
    """Return the version that a caller saw; -1, which nothing has, for a text that is none of ours."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


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
    scope: str = ""  # other than that of the object's changes


def deletion(
    service: Callable[..., Any],
    effects: tuple[str, ...],
    *,
    presets: tuple[str, ...] = (),
    done: str = gettext_lazy("is deleted"),
) -> Verb:
    """Describes deleting for good, DELETE in the API."""
    forever = gettext_lazy("It is deleted permanently; the audit log keeps what it was.")
    return Verb("delete", gettext_lazy("Delete"), "x", "danger", service, effects, forever, presets, done)


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: its names, who may see and change it, how it is read, and what changes it.

    `name` is the noun, in addresses too; `plural` is marked for the catalogs as it is, or `many` is what the list is
    called. `prefix`: that of its public ids. `rows(**filters)` and `one(id)` are selectors, under the caller's limits;
    `create` and `update` are services, if people make it here. `possible(row)`: slugs of the verbs that its present
    `state(row)` takes; `why_not(row)`: why the others are impossible ("It is on now.").
    `said(row, verb)`: what else a dialog has to say about this object; `called(row, verb)`: the verb's label here.
    `revision(row)` names what a caller saw; services take what `read_revision` makes of it as `expected_version`.
    `by_name`: `one` takes a name too, so that people can write it in an address.
    """

    name: str
    plural: str
    prefix: str
    reads: str
    changes: str
    rows: Callable[..., QuerySet[Any]]
    one: Callable[[Any], Any]
    order: tuple[str, ...]
    verbs: tuple[Verb, ...]
    possible: Callable[[Any], tuple[str, ...]]
    create: Callable[..., Any] | None = None
    update: Callable[..., Any] | None = None
    state: Callable[[Any], str] = lambda row: ""
    said: Callable[[Any, Verb], Iterable[str]] = lambda row, verb: ()
    called: Callable[[Any, Verb], str] = lambda row, verb: verb.label
    why_not: Callable[[Any], str] = lambda row: _("It is on now.") if row.enabled else _("It is off now.")
    revision: Callable[[Any], str] = lambda row: str(row.version)
    read_revision: Callable[[str], Any] = number
    by_name: bool = False
    many: str = ""

    @property
    def title(self) -> str:
        """Return what the list is called on screens."""
        return str(self.many) or _(self.plural)

    @property
    def noun(self) -> str:
        """Return what one is called on screens."""
        return _(self.name)

    def verb(self, slug: str) -> Verb | None:
        """Return the verb of this name."""
        return next((verb for verb in self.verbs if verb.slug == slug), None)

    def scope_of(self, slug: str) -> str:
        """Return the scope that a verb takes; an unknown one is answered 404 to whoever may look."""
        verb = self.verb(slug)
        return self.reads if verb is None else verb.scope or self.changes

    def key(self, pk: uuid.UUID) -> dict[str, uuid.UUID]:
        """Return the keyword by which services take the object."""
        return {f"{self.name}_id": pk}
