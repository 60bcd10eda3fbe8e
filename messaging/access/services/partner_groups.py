"""Groups of partners that the same people look after."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from django.db import IntegrityError, transaction

from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Access, ApiToken, NotificationRule
from partners.models import PartnerGroup, Party
from rmhub.ids import public_id


def group_create(
    *, name: str, actor: Actor, description: str = "", partners: Collection[uuid.UUID] = (), reason: str = ""
) -> PartnerGroup:
    """Raises InvalidSubmission by field."""
    chosen = _checked(name, description, partners)
    try:
        with transaction.atomic():
            group = PartnerGroup.objects.create(name=name.strip(), description=description.strip())
            group.partners.set(chosen)
            audit.record(actor, "partner_group.create", group, reason=reason, after=_described(group))
    except IntegrityError as error:
        raise InvalidSubmission({"name": [f"There is a group {name.strip()} already."]}) from error
    return group


def group_change(
    *,
    group_id: uuid.UUID,
    actor: Actor,
    reason: str,
    name: str | None = None,
    description: str | None = None,
    partners: Collection[uuid.UUID] | None = None,
) -> PartnerGroup:
    """Changes what is given: from the next request on its people see these partners.

    Raises InvalidSubmission by field, NotFound.
    """
    audit.require_reason(reason)
    try:
        with transaction.atomic():
            group = _locked(group_id)
            before = _described(group)
            wanted = group.name if name is None else name
            said = group.description if description is None else description
            chosen = _checked(wanted, said, partners or ())
            group.name, group.description = wanted.strip(), said.strip()
            group.save()
            if partners is not None:
                group.partners.set(chosen)
            after = _described(group)
            if after != before:
                audit.record(actor, "partner_group.change", group, reason=reason, before=before, after=after)
    except IntegrityError as error:
        raise InvalidSubmission({"name": [f"There is a group {wanted.strip()} already."]}) from error
    return group


def group_delete(*, group_id: uuid.UUID, actor: Actor, reason: str) -> None:
    """Raises NotFound, WrongState while somebody or something is limited to it: without it they might see more."""
    audit.require_reason(reason)
    with transaction.atomic():
        group = _locked(group_id)
        people = Access.objects.filter(groups=group).order_by("user__username").values_list("user__username", flat=True)
        tokens = ApiToken.objects.filter(groups=group).order_by("name").values_list("name", flat=True)
        rules = NotificationRule.objects.filter(group=group).order_by("name").values_list("name", flat=True)
        users = [*people[:5], *(f"token {name}" for name in tokens[:5]), *(f"rule {name}" for name in rules[:5])]
        if users:
            raise WrongState(
                f"{group.name} is used by {', '.join(users)}: take it away from them first.", state="in_use"
            )
        audit.record(actor, "partner_group.delete", group, reason=reason, before=_described(group))
        group.delete()


def _locked(group_id: uuid.UUID) -> PartnerGroup:
    group = PartnerGroup.objects.select_for_update().filter(pk=group_id).first()
    if group is None:
        raise NotFound(f"There is no partner group {public_id('grp', group_id)}.")
    return group


def _checked(name: str, description: str, partners: Collection[uuid.UUID]) -> list[Party]:
    errors: dict[str, list[str]] = {}
    if not name.strip():
        errors["name"] = ["Give it a name, such as the region or the team."]
    elif len(name.strip()) > 80 or "\x00" in name:
        errors["name"] = ["At most 80 characters, and no control characters."]
    if len(description.strip()) > 255 or "\x00" in description:
        errors["description"] = ["At most 255 characters, and no control characters."]
    chosen = list(Party.objects.filter(pk__in=set(partners), is_own=False))
    if len(chosen) < len(set(partners)):
        errors["partners"] = ["One of these is no partner (any more)."]
    if errors:
        raise InvalidSubmission(errors)
    return chosen


def _described(group: PartnerGroup) -> dict[str, Any]:
    partners = list(group.partners.order_by("name").values_list("name", flat=True))
    return {"name": group.name, "description": group.description, "partners": partners}
