"""How a person's change of a row is written: under its lock, at the version that they saw, checked, and audited."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models.base import existing
from partners.services.writing import is_clean, writing
from rmhub import clock

Row = TypeVar("Row", bound=Any)
Check = Callable[[Any], Mapping[str, list[str]]]


def locked(rows: QuerySet[Row], key: uuid.UUID, expected_version: int | None) -> Row:
    """Return the row, locked. Raises NotFound, and Stale when it is not at `expected_version`."""
    row = existing(rows.select_for_update(of=("self",)), key)
    if expected_version is not None and row.version != expected_version:
        said = _("{noun} {name} changed since you looked at it: look again before you change it.")
        noun = capfirst(str(rows.model._meta.verbose_name))
        raise Stale(said.format(noun=noun, name=row), version=row.version)
    return row


def described(row: models.Model, fields: Iterable[str]) -> dict[str, object]:
    """Return the fields as the audit log keeps them: what they refer to by its name."""
    found = {name: getattr(row, name) for name in fields}
    return {name: str(value) if isinstance(value, models.Model) else value for name, value in found.items()}


def made(
    verb: str, row: Row, values: Mapping[str, Any], fields: Iterable[str], check: Check, actor: Actor, reason: str
) -> Row:
    """Save a new row with these values. Raises InvalidSubmission."""
    audit.require_reason(reason)
    with writing():
        _apply(row, values, check)
        row.save(force_insert=True)
        audit.record(actor, verb, row, reason=reason, after=described(row, fields))
    return row


def changed(
    verb: str,
    rows: QuerySet[Row],
    key: uuid.UUID,
    values: Mapping[str, Any],
    fields: Iterable[str],
    actor: Actor,
    reason: str,
    expected_version: int | None,
    *,
    check: Check = lambda row: {},
    may: Callable[[Any], None] = lambda row: None,
) -> Row:
    """Change what is given; the audit entry says what is other than before. `may` raises what speaks against it.

    Raises NotFound, InvalidSubmission, Stale.
    """
    audit.require_reason(reason)
    fields = tuple(fields)
    with writing():
        row = locked(rows, key, expected_version)
        may(row)
        before = described(row, fields)
        _apply(row, values, check)
        after = described(row, fields)
        new = [name for name in fields if before[name] != after[name]]
        if new:
            _touch(row)
            row.save()
            was, now = ({name: told[name] for name in new} for told in (before, after))
            audit.record(actor, verb, row, reason=reason, before=was, after=now)
    return row


def deleted(
    verb: str,
    rows: QuerySet[Any],
    key: uuid.UUID,
    fields: Iterable[str],
    actor: Actor,
    reason: str,
    expected_version: int | None,
) -> None:
    """Delete the row; the audit log keeps what it was. Raises NotFound, Stale."""
    audit.require_reason(reason)
    with writing():
        row = locked(rows, key, expected_version)
        audit.record(actor, verb, row, reason=reason, before=described(row, fields))
        row.delete()


def _touch(row: Any) -> None:
    """Make it another version: a number, or the time of the change."""
    if any(field.name == "version" for field in row._meta.concrete_fields):
        row.version += 1
    else:
        row.updated_at = clock.now()


def _apply(row: models.Model, values: Mapping[str, Any], check: Check) -> None:
    """Set and check the fields. A foreign key is given as the other row's id. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    for name, value in values.items():
        field = row._meta.get_field(name)
        setattr(row, getattr(field, "attname", name), value.strip() if isinstance(value, str) else value)
        if isinstance(value, str) and not is_clean(getattr(row, name)):
            errors[name] = [_("There is a control character in this text: remove it.")]
    for field in row._meta.concrete_fields:
        if isinstance(field, models.ForeignKey) and values.get(field.name) is not None:
            other: Any = field.related_model
            if not other._default_manager.filter(pk=values[field.name]).exists():
                noun, key = other._meta.verbose_name, other(pk=values[field.name]).public_id
                errors[field.name] = [_("There is no {noun} {reference}.").format(noun=noun, reference=key)]
    if not errors:
        try:
            row.full_clean(exclude=list(errors), validate_unique=False, validate_constraints=False)
        except ValidationError as error:
            errors.update(error.message_dict)
    errors = errors or dict(check(row))
    if errors:
        raise InvalidSubmission(errors)
