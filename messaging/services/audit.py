"""The audit log: every action of a person, in the transaction of the action (invariant 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models

from messaging.choices import Interface
from messaging.exceptions import InvalidSubmission
from messaging.models import AuditEntry
from rmhub import clock


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and by which way."""

    name: str
    interface: str = Interface.SYSTEM
    address: str = ""
    request_id: str = ""


SYSTEM = Actor("system")
MIN_REASON = 3


def require_reason(reason: str) -> None:
    """Raises InvalidSubmission for an action without a why."""
    if len(reason.strip()) < MIN_REASON:
        raise InvalidSubmission(
            {"reason": [f"Say why, in at least {MIN_REASON} characters: it goes into the audit log."]}
        )


def record(
    actor: Actor,
    verb: str,
    target: models.Model,
    *,
    reason: str = "",
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> AuditEntry:
    """Writes one entry. `before` and `after` hold what changed, as JSON; never secrets."""
    return AuditEntry.objects.create(
        at=clock.now(),
        actor=actor.name[:150],
        interface=actor.interface,
        address=actor.address[:64],
        request_id=actor.request_id[:80],
        verb=verb,
        object_type=target._meta.model_name or "",
        object_id=str(getattr(target, "public_id", target.pk)),
        object_name=str(target)[:255],
        reason=reason,
        before=dict(before or {}),
        after=dict(after or {}),
    )
