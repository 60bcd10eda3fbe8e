"""When finished messages go to the archive, leave the store, and leave the archive: one policy for the hub."""

from __future__ import annotations

from django.db import transaction

from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import RetentionPolicy
from rmhub import clock

_FIELDS = ("enabled", "archive_after", "purge_after", "keep_archive")
_LIMITS = {"archive_after": (1, 3650), "purge_after": (1, 3650), "keep_archive": (0, 36_500)}


def policy() -> RetentionPolicy:
    """The policy in force; the defaults (switched off) where nobody has set one."""
    return RetentionPolicy.objects.filter(pk=1).first() or RetentionPolicy()


def policy_change(
    *,
    actor: Actor,
    reason: str,
    enabled: bool | None = None,
    archive_after: int | None = None,
    purge_after: int | None = None,
    keep_archive: int | None = None,
    expected_version: int | None = None,
) -> RetentionPolicy:
    """Changes what is given (days). Raises InvalidSubmission, and Stale when it is no longer at `expected_version`.

    Purging asks for the policy in each of its transactions, so a longer time is obeyed at once.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        RetentionPolicy.objects.get_or_create(pk=1)
        found = RetentionPolicy.objects.select_for_update().get(pk=1)
        if expected_version is not None and found.version != expected_version:
            raise Stale("Somebody changed the policy since you looked at it: look again.", version=found.version)
        before = {name: getattr(found, name) for name in _FIELDS}
        wished = {
            "enabled": enabled,
            "archive_after": archive_after,
            "purge_after": purge_after,
            "keep_archive": keep_archive,
        }
        for name, value in wished.items():
            if value is not None:
                setattr(found, name, value)
        _check(found)
        after = {name: getattr(found, name) for name in _FIELDS}
        found.changed_by, found.changed_at = actor.name[:150], clock.now()
        found.version += 1
        found.save()
        audit.record(actor, "retention.change", found, reason=reason, before=before, after=after)
        return found


def _check(found: RetentionPolicy) -> None:
    errors: dict[str, list[str]] = {}
    for name, (least, most) in _LIMITS.items():
        if not least <= getattr(found, name) <= most:
            errors[name] = [f"Days, from {least} to {most}."]
    if not errors and found.purge_after < found.archive_after:
        errors["purge_after"] = ["Not before they are archived: at least as many days as “archive after”."]
    if not errors and 0 < found.keep_archive <= found.purge_after:
        errors["keep_archive"] = ["Longer than they are in the store, or 0 for permanently."]
    if errors:
        raise InvalidSubmission(errors)
