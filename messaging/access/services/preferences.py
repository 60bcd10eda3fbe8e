"""What a person sets for themselves: nobody else sees it, so that it needs no reason and is not in the audit log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from zoneinfo import available_timezones

from django.contrib.auth.models import User
from django.db import transaction

from messaging.exceptions import InvalidSubmission
from messaging.models import Preference

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_MOST = 60


def preference_update(
    *,
    user: User,
    zone: str | None = None,
    shortcuts: bool | None = None,
    columns: Mapping[str, Sequence[str] | None] | None = None,
) -> Preference:
    """Changes what is given. `columns`: list -> the columns to hide there; None = as the list comes.

    Raises InvalidSubmission by field.
    """
    errors: dict[str, list[str]] = {}
    if zone is not None and zone not in ("UTC", "local") and zone not in available_timezones():
        errors["zone"] = ["UTC, local (the browser's), or an IANA name such as Europe/Berlin."]
    for name, hidden in (columns or {}).items():
        if not all(_NAME.fullmatch(text) for text in (name, *(hidden or ()))) or len(hidden or ()) > _MOST:
            errors["columns"] = ["Names of lists, each with the names of its columns that are hidden."]
    if errors:
        raise InvalidSubmission(errors)
    with transaction.atomic():
        Preference.objects.get_or_create(user=user)
        row = Preference.objects.select_for_update().get(pk=user.pk)
        if zone is not None:
            row.zone = zone
        if shortcuts is not None:
            row.shortcuts = shortcuts
        for name, hidden in (columns or {}).items():
            if hidden is None:
                row.columns.pop(name, None)
            else:
                row.columns[name] = list(dict.fromkeys(hidden))
        if len(row.columns) > _MOST:
            raise InvalidSubmission({"columns": [f"At most {_MOST} lists."]})
        row.save()
    return row
