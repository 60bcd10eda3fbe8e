"""Rules that cover parts of payloads, as the admin pages and the API list them."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import PayloadMask
from rmhub.ids import public_id


def masks() -> QuerySet[PayloadMask]:
    """All rules with their partners, by name."""
    return PayloadMask.objects.select_related("partner").order_by("name")


def mask(mask_id: uuid.UUID) -> PayloadMask:
    """One rule. Raises NotFound."""
    found = masks().filter(pk=mask_id).first()
    if found is None:
        raise NotFound(f"There is no mask {public_id('mask', mask_id)}.")
    return found
