"""Mailboxes and folders that the hub looks into, with how far it is with each."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet

from messaging.causes import Cause, lookup
from messaging.causes.files import OF_A_LOOK
from messaging.exceptions import NotFound
from messaging.models import PickupState
from partners import selectors
from partners.models import Pickup
from rmhub.ids import public_id

STATES = ("ok", "failing", "new", "looking", "off")


@dataclass(frozen=True, slots=True)
class PickupRow:
    """A pickup as it is shown. `state`: one of STATES. `cause`: what was in the way of the last look, if anything."""

    pickup: Pickup
    progress: PickupState
    state: str
    cause: Cause | None

    @property
    def sentence(self) -> str:
        """What was in the way of the last look; "" when nothing was."""
        return OF_A_LOOK.get(self.cause.code, (self.cause.sentence, ""))[0] if self.cause else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return OF_A_LOOK.get(self.cause.code, ("", self.cause.action))[1] if self.cause else ""

    @property
    def next_look_at(self) -> datetime | None:
        """When it is looked into next; None when never, or right now."""
        return None if self.state in ("off", "looking") else self.progress.due_at


def pickups(
    *, search: str = "", kind: str = "", enabled: bool | None = None, party_id: uuid.UUID | None = None
) -> QuerySet[Pickup]:
    """By name, with endpoint, partner and progress, without secrets; filters as in `partners.selectors.pickups`."""
    return selectors.pickups(search=search, kind=kind, enabled=enabled, party_id=party_id).select_related("progress")


def pickup(pickup_id: uuid.UUID) -> Pickup:
    """One of them. Raises NotFound."""
    try:
        return pickups().get(pk=pickup_id)
    except ObjectDoesNotExist as error:
        raise NotFound(f"There is no pickup {public_id('pick', pickup_id)}.") from error


def row(pickup: Pickup, now: datetime) -> PickupRow:
    """A pickup that `pickups` read, with its state."""
    progress: Any = getattr(pickup, "progress", None) or PickupState(pickup=pickup)
    cause = lookup(progress.cause) if progress.cause else None
    return PickupRow(pickup, progress, _state(pickup, progress, now), cause)


def _state(pickup: Pickup, progress: PickupState, now: datetime) -> str:
    if not pickup.enabled:
        return "off"
    if progress.failures:
        return "failing"
    if progress.leased_until is not None and progress.leased_until > now:
        return "looking"
    return "ok" if progress.last_success_at else "new"
