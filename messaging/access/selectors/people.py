"""Users, their sessions, partner groups, and how people want the console, as screens and the API read them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from messaging.exceptions import NotFound
from messaging.models import Access, AuditEntry, OpenIdAccount, Preference, SavedView, SecondFactor, UserSession
from messaging.overview.selectors import records
from partners.models import PartnerGroup, Party
from partners.visibility import limit
from rmhub import clock
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.roles import Role, of_groups


@dataclass(frozen=True, slots=True)
class UserRow:
    """A person with what they may do and see."""

    user: User
    role: Role | None
    limited: bool
    partner: Party | None = None
    groups: list[PartnerGroup] = field(default_factory=list)
    second_factor: bool = False
    single_sign_on: bool = False

    @property
    def invited(self) -> bool:
        """They have neither set a password nor logged in yet."""
        return not self.user.has_usable_password() and not self.single_sign_on

    @property
    def login(self) -> str:
        """How they log in, as the API says it."""
        if self.single_sign_on:
            return "single_sign_on"
        if self.invited:
            return "invited"
        return "password_and_code" if self.second_factor else "password"


_NEVER = Value(datetime(1970, 1, 1, tzinfo=UTC))
# By what a URL calls them. Users are few: no index serves the last.
ORDERS = {
    "name": ("username",),
    "-name": ("-username",),
    "-seen": ("-seen_at", "-username"),
    "seen": ("seen_at", "username"),
}


def users(*, search: str = "", role: str = "", active: bool | None = None) -> QuerySet[User]:
    """People with roles, groups and second factor, without passwords, each with `seen_at`. Not ordered: `ORDERS`."""
    found = User.objects.select_related("hub_access__partner").prefetch_related(
        "groups", Prefetch("hub_access__groups", queryset=PartnerGroup.objects.order_by("name"))
    )
    found = found.annotate(
        has_factor=Exists(SecondFactor.objects.filter(user=OuterRef("pk"), confirmed_at__isnull=False)),
        has_openid=Exists(OpenIdAccount.objects.filter(user=OuterRef("pk"))),
        seen_at=Coalesce("last_login", _NEVER),
    )
    if search:
        words = Q(username__icontains=search) | Q(first_name__icontains=search) | Q(email__icontains=search)
        found = found.filter(words)
    if role:
        has_it = Q(groups__name=role)
        found = found.filter(has_it | Q(is_superuser=True) if role == Role.ADMIN else has_it).distinct()
    return found if active is None else found.filter(is_active=active)


def row(user: User) -> UserRow:
    """A person that `users` read."""
    role = Role.ADMIN if user.is_superuser else of_groups([group.name for group in user.groups.all()])
    access = getattr(user, "hub_access", None)
    return UserRow(
        user=user,
        role=role,
        limited=access is not None and access.limited,
        partner=access.partner if access is not None else None,
        groups=list(access.groups.all()) if access is not None else [],
        second_factor=bool(getattr(user, "has_factor", False)),
        single_sign_on=bool(getattr(user, "has_openid", False)),
    )


def user(username: str) -> UserRow:
    """One person, by user name. Raises NotFound."""
    found = users().filter(username=username).first() if "\x00" not in username else None
    if found is None:
        raise NotFound(_("There is no user {name}.").format(name=username[:150]))
    return row(found)


def partner_of(user: User) -> Party:
    """Whose portal somebody of a partner sees. Raises NotFound."""
    access = Access.objects.select_related("partner").filter(user=user).first()
    if access is None or access.partner is None:
        raise NotFound(_("You are not of a partner."))
    return access.partner


def audit(user: User, limit: int = 15) -> list[AuditEntry]:
    """What people did to this one, newest first."""
    return list(records.audit_entries(object_type="user", object_id=str(user.pk)).order_by("-id")[:limit])


def sessions(*, user_id: int | None = None) -> QuerySet[UserSession]:
    """Where people are logged in now. Not ordered; pages by ("-id",)."""
    alive = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gt=clock.now())
    found = UserSession.objects.select_related("user").filter(Exists(alive))
    return found if user_id is None else found.filter(user=user_id)


def groups() -> QuerySet[PartnerGroup]:
    """Partner groups with `size`, how many partners they have. Not ordered; pages by ("name",)."""
    return PartnerGroup.objects.annotate(size=Count("partners"))


def group(group_id: uuid.UUID) -> PartnerGroup:
    """One group with its partners. Raises NotFound."""
    members = Prefetch("partners", queryset=limit(Party.objects.order_by("name"), "pk"))
    found = groups().prefetch_related(members).filter(pk=group_id).first()
    if found is None:
        raise NotFound(_("There is no partner group {id}.").format(id=public_id("grp", group_id)))
    return found


# --- how they want the console ---


def preferences_of(user_id: int) -> Preference:
    """One query. Without a row everything is as it comes."""
    return Preference.objects.filter(pk=user_id).first() or Preference()


def language_of(user_id: int) -> str:
    """The language in which mails to this person are written: theirs, else the hub's."""
    return preferences_of(user_id).language or settings.RMHUB_LANGUAGE


def saved_views(user_id: int, *, page: str = "") -> QuerySet[SavedView]:
    """One's own and the team's, with their owners. Not ordered; pages by ("id",)."""
    found = SavedView.objects.select_related("owner").filter(Q(owner=user_id) | Q(shared=True))
    return found.filter(page=page) if page else found


def saved_view(user_id: int, reference: str | uuid.UUID) -> SavedView:
    """One of these views, by id (`view_...`). Raises NotFound."""
    try:
        key = reference if isinstance(reference, uuid.UUID) else read_public_id("view", reference)
    except BadPublicId as error:
        raise NotFound(_("There is no saved view {reference}.").format(reference=reference)) from error
    found = saved_views(user_id).filter(pk=key).first()
    if found is None:
        raise NotFound(_("There is no saved view {reference}.").format(reference=reference))
    return found
