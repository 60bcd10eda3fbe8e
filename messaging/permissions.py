"""What a person, or a token of theirs, may do and see here: role, scopes, partners."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from messaging.models import Access
from partners import visibility
from rmhub.roles import SCOPES, WHOLE_HUB_SCOPES, Role, of_groups


@dataclass(frozen=True, slots=True)
class Permissions:
    """`partners`: whose data may be shown, our own parties included; None = everybody's."""

    role: Role | None
    scopes: frozenset[str]
    partners: frozenset[uuid.UUID] | None = None

    @property
    def limited(self) -> bool:
        return self.partners is not None


NOBODY = Permissions(None, frozenset())


def permissions_of(user: AbstractBaseUser | AnonymousUser, *, groups: Collection[uuid.UUID] = ()) -> Permissions:
    """Of a user; or of a token of theirs that is limited to `groups`. One query for whoever sees everything.

    Whoever is limited to some partners has none of `WHOLE_HUB_SCOPES`, whatever their role.
    """
    if not user.is_authenticated or not user.is_active:
        return NOBODY
    access = ("groups__name", "hub_access__limited", "hub_access__partner")
    rows = list(User.objects.filter(pk=user.pk).values_list(*access))
    role = Role.ADMIN if getattr(user, "is_superuser", False) else of_groups({name for name, _, _ in rows})
    if role is None:
        return NOBODY
    if role == Role.PARTNER:
        partner_id = rows[0][2]
        return Permissions(role, SCOPES[role], visibility.of_partner(partner_id)) if partner_id else NOBODY
    partners = visibility.of_groups(_groups(user.pk)) if any(limited for _, limited, _ in rows) else None
    if groups:
        chosen = visibility.of_groups(groups)
        partners = chosen if partners is None else chosen & partners
    scopes = SCOPES[role]
    return Permissions(role, scopes if partners is None else scopes - WHOLE_HUB_SCOPES, partners)


def _groups(user_id: int) -> list[uuid.UUID]:
    return list(Access.groups.through.objects.filter(access_id=user_id).values_list("partnergroup_id", flat=True))
