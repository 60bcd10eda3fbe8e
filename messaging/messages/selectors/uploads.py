"""Reads uploads: everybody has their own."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.models import Upload
from messaging.models.base import existing


def uploads(owner: str) -> QuerySet[Upload]:
    """Those of this user, whichever of their tokens began them."""
    return Upload.objects.filter(owner=owner)


def upload(key: uuid.UUID, owner: str) -> Upload:
    """One of them. Raises NotFound, also for those of others."""
    return existing(uploads(owner), key)
