"""How people want the console: their zone, shortcuts and columns, and the views of lists that were saved."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet

from messaging.exceptions import NotFound
from messaging.models import Preference, SavedView
from rmhub.ids import BadPublicId, read_public_id


def wishes_of(user_id: int) -> Preference:
    """One query. Without a row everything is as it comes."""
    return Preference.objects.filter(pk=user_id).first() or Preference()


def saved_views(user_id: int, *, page: str = "") -> QuerySet[SavedView]:
    """One's own and the team's, with their owners. Not ordered; pages by ("id",)."""
    found = SavedView.objects.select_related("owner").filter(Q(owner=user_id) | Q(shared=True))
    return found.filter(page=page) if page else found


def saved_view(user_id: int, reference: str | uuid.UUID) -> SavedView:
    """One of these views, by id (`view_...`). Raises NotFound."""
    try:
        key = reference if isinstance(reference, uuid.UUID) else read_public_id("view", reference)
    except BadPublicId as error:
        raise NotFound(f"There is no saved view {reference}.") from error
    found = saved_views(user_id).filter(pk=key).first()
    if found is None:
        raise NotFound(f"There is no saved view {reference}.")
    return found
