"""What every writer shares: the transaction with its revision, and the checks before a row is saved."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import F
from django.utils.translation import gettext as _

from partners import registry
from partners.exceptions import InvalidInput
from partners.models import Revision

_UNCLEAN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")


@contextmanager
def writing() -> Iterator[None]:
    """One transaction that bumps the revision row first, and so has this app's data to itself until it ends.

    Writes here are rare and small, so one lock for all of them is cheaper than
    thinking about every pair of them: what is read inside cannot change before the commit.
    """
    with transaction.atomic():
        _bump()
        transaction.on_commit(registry.recheck)
        yield


def save_checked(instance: models.Model) -> None:
    """Trims and checks every field, then saves. Raises InvalidInput."""
    errors: dict[str, list[str]] = {}
    for field in instance._meta.concrete_fields:
        if isinstance(field, models.CharField | models.TextField):
            value = getattr(instance, field.attname)
            if value is None:
                continue
            text = str(value).strip()
            setattr(instance, field.attname, text)
            allowed = "\n\r\t" if isinstance(field, models.TextField) else ""
            if not is_clean(text, allowed):
                errors[field.name] = [_("There is a control character in this text: remove it.")]
    # PostgreSQL refuses NUL with an exception of its own, so that full_clean must not get to see it.
    if errors:
        raise InvalidInput(errors)
    try:
        instance.full_clean()
    except ValidationError as error:
        raise InvalidInput(error.message_dict) from error
    instance.save()


def assign(row: models.Model, names: Collection[str], values: Mapping[str, Any]) -> None:
    """Sets what is given, None apart. Raises TypeError for what is none of these settings."""
    if unknown := values.keys() - set(names):
        raise TypeError(f"no such settings: {', '.join(sorted(unknown))}")
    for name, value in values.items():
        if value is not None:
            setattr(row, name, value.strip() if isinstance(value, str) else value)


def is_clean(text: str, allowed: str = "") -> bool:
    """Whether `text` holds no control character or lone surrogate: neither XML 1.0 nor HTTP headers carry them."""
    return all(sign in allowed for sign in _UNCLEAN.findall(text))


def _bump() -> None:
    # A step of chance and not 1: a process that read a number in a transaction which was then
    # rolled back must not meet the same number again with other data behind it.
    step = F("number") + 1 + secrets.randbelow(1 << 20)
    if not Revision.objects.update(number=step):
        Revision.objects.bulk_create([Revision()], ignore_conflicts=True)
        Revision.objects.update(number=step)
