"""When finished messages go to the archive, leave the store, and leave the archive: one policy for the hub."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import RetentionPolicy
from rmhub import clock

SETTINGS = ("enabled", "archive_after", "purge_after", "keep_archive")


def policy() -> RetentionPolicy:
    """The policy in force; the defaults (switched off) where nobody has set one."""
    return RetentionPolicy.objects.filter(pk=1).first() or RetentionPolicy()


def policy_change(
    *, actor: Actor, reason: str, expected_version: int | None = None, **settings: Any
) -> RetentionPolicy:
    """Changes the settings that are given. Raises InvalidSubmission, and Stale when it is not at `expected_version`.

    Purging asks for the policy in each of its transactions, so a longer time is obeyed at once.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        RetentionPolicy.objects.get_or_create(pk=1)
        found = RetentionPolicy.objects.select_for_update().get(pk=1)
        if expected_version is not None and found.version != expected_version:
            raise Stale(_("Somebody changed the policy since you looked at it: look again."), version=found.version)
        before = {name: getattr(found, name) for name in SETTINGS}
        for name, value in settings.items():
            setattr(found, name, value)
        _check(found)
        after = {name: getattr(found, name) for name in SETTINGS}
        found.changed_by, found.changed_at = actor.name[:150], clock.now()
        found.version += 1
        found.save()
        audit.record(actor, "retention.change", found, reason=reason, before=before, after=after)
        return found


def _check(found: RetentionPolicy) -> None:
    try:
        found.clean_fields()
    except ValidationError as error:
        raise InvalidSubmission(error.message_dict) from error
    if found.purge_after < found.archive_after:
        said = _("Not before they are archived: at least as many days as “archive after”.")
        raise InvalidSubmission({"purge_after": [said]})
    if 0 < found.keep_archive <= found.purge_after:
        raise InvalidSubmission({"keep_archive": [_("Longer than they are in the store, or 0 for permanently.")]})
