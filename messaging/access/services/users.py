"""People: made, invited, given a role and the partners that they may see, switched off; their own passwords; and the
groups of partners that they look after.

Nobody is deleted: what they did names them for ever. One admin who sees everything always remains.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, Group, User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator
from django.db import IntegrityError, connection, transaction
from django.utils import translation
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_variables

from messaging import mailing
from messaging.access.selectors import people
from messaging.access.services import sessions
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Access, ApiToken, NotificationRule
from partners.models import PartnerGroup, Party
from rmhub.ids import public_id
from rmhub.postgresql.base import give_back
from rmhub.roles import ROLES, Role, of_groups


@dataclass(frozen=True, slots=True)
class Invitation:
    """With these two the person sets a password: once, and within `PASSWORD_RESET_TIMEOUT`."""

    uid: str
    token: str


@sensitive_variables("password")
def password_change(*, user: AbstractBaseUser, password: str, actor: Actor) -> None:
    """Sets a password that the validators have taken. All other sessions of the user end."""
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        audit.record(actor, "user.change_password", user, reason="By the user.")


def user_create(
    *,
    username: str,
    role: str,
    actor: Actor,
    email: str = "",
    full_name: str = "",
    limited: bool = False,
    groups: Collection[uuid.UUID] = (),
    partner: uuid.UUID | None = None,
    reason: str = "",
) -> tuple[User, Invitation]:
    """A person without a password, and the invitation with which they set one. `partner`: whose portal they see, for
    the role partner. Raises InvalidSubmission.
    """
    errors: dict[str, list[str]] = {}
    name = username.strip()
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        errors["username"] = [str(error.message)]
    if name.lower() == "new":  # the address of the form
        errors["username"] = [_("Choose another name.")]
    if len(name) > 150:
        errors["username"] = [_("At most 150 characters.")]
    elif "username" not in errors and User.objects.filter(username__iexact=name).exists():
        errors["username"] = [_("There is a user {name} already.").format(name=name)]
    wanted = _checked(errors, role=role, email=email, full_name=full_name, groups=groups, partner=partner)
    if errors:
        raise InvalidSubmission(errors)
    try:
        with transaction.atomic():
            user = User(username=name, email=email.strip(), first_name=full_name.strip())
            user.set_unusable_password()
            user.save(force_insert=True)
            _give(user, role, limited, wanted, partner)
            audit.record(actor, "user.create", user, reason=reason, after=described(user))
    except IntegrityError as error:
        raise InvalidSubmission({"username": [_("There is a user {name} already.").format(name=name)]}) from error
    return user, invitation(user)


def user_change(
    *,
    user_id: int,
    actor: Actor,
    reason: str,
    role: str | None = None,
    limited: bool | None = None,
    groups: Collection[uuid.UUID] | None = None,
    partner: uuid.UUID | None = None,
    email: str | None = None,
    full_name: str | None = None,
    is_active: bool | None = None,
) -> User:
    """Changes what is given. Whoever is switched off is out at once, and their sessions and tokens end with it.

    Raises InvalidSubmission by field, NotFound, WrongState when no admin who sees everything would be left.
    """
    audit.require_reason(reason)
    errors: dict[str, list[str]] = {}
    with transaction.atomic():
        _one_at_a_time()
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound(_("There is no such user."))
        before = described(user)
        access = Access.objects.filter(user=user).first()
        if partner is None and access is not None:
            partner = access.partner_id
        wanted = _checked(
            errors,
            role=before["role"] if role is None else role,
            email=user.email if email is None else email,
            full_name=user.first_name if full_name is None else full_name,
            groups=() if groups is None else groups,
            partner=partner,
        )
        if errors:
            raise InvalidSubmission(errors)
        user.email = user.email if email is None else email.strip()
        user.first_name = user.first_name if full_name is None else full_name.strip()
        user.is_active = user.is_active if is_active is None else is_active
        if role is not None:
            user.is_superuser = user.is_superuser and role == Role.ADMIN
        user.save()
        kept = list(access.groups.all()) if access is not None else []
        _give(
            user,
            before["role"] if role is None else role,
            (access is not None and access.limited) if limited is None else limited,
            kept if groups is None else wanted,
            partner,
        )
        if not _full_admins():
            raise WrongState(
                _("This is the last admin who sees all partners: create another one first."), state="last_admin"
            )
        after = described(user)
        changed = {name for name in after if after[name] != before[name]}
        if changed:
            audit.record(
                actor,
                "user.change",
                user,
                reason=reason,
                before={name: before[name] for name in sorted(changed)},
                after={name: after[name] for name in sorted(changed)},
            )
        if not user.is_active:
            sessions.sessions_end(user=user, actor=actor, reason=reason)
    return user


def user_invite(*, user: User, actor: Actor, reason: str = "") -> Invitation:
    """A new invitation, for whoever has forgotten their password. The old password works until it is replaced."""
    if not user.is_active:
        raise WrongState(_("{name} is switched off.").format(name=user.get_username()), state="inactive")
    with transaction.atomic():
        audit.record(actor, "user.invite", user, reason=reason)
    return invitation(user)


def invitation(user: User) -> Invitation:
    """Bound to the user's present password and last log-in: either makes it worthless."""
    return Invitation(urlsafe_base64_encode(force_bytes(user.pk)), default_token_generator.make_token(user))


@sensitive_variables("link")
def invitation_mail(*, user: User, link: str, actor: Actor) -> str:
    """Sends an invitation to the person's mail address, outside any transaction. Returns why it was not sent, "" if it
    was.
    """
    if not user.email:
        return _("{name} has no mail address.").format(name=user.get_username())
    name, days = settings.RMHUB_NAME, settings.PASSWORD_RESET_TIMEOUT // 86_400
    with translation.override(people.language_of(user.pk)):
        subject = _("Your access to {hub}").format(hub=name)
        lines = (
            _("{name} invites you to {hub}.").format(name=actor.name, hub=name),
            "",
            _("Your user name: {name}").format(name=user.get_username()),
            _("Set your password here:"),
            "",
            link,
            "",
            ngettext(
                "The link works once, and for {days} day. Whoever has it can set your password: do not pass it on.",
                "The link works once, and for {days} days. Whoever has it can set your password: do not pass it on.",
                days,
            ).format(days=days),
            "",
        )
    give_back()
    error = mailing.send([user.email], subject, "\n".join(lines))
    audit.record(actor, "user.mail_invitation", user, after={"sent": not error, "error": error[:200]})
    return error


def invited(uid: str, token: str) -> User | None:
    """Whose invitation this is; None for one that is worthless."""
    try:
        user = User.objects.filter(pk=int(urlsafe_base64_decode(uid).decode()), is_active=True).first()
    except (ValueError, OverflowError):
        return None
    return user if user is not None and default_token_generator.check_token(user, token) else None


@sensitive_variables("password")
def invitation_accept(*, user: User, token: str, password: str, actor: Actor) -> None:
    """Sets the invited person's password. All their sessions end. Raises InvalidSubmission for a poor password, and
    WrongState when the invitation was used in the meantime.
    """
    with transaction.atomic():
        locked = User.objects.select_for_update().get(pk=user.pk)
        if not default_token_generator.check_token(locked, token):
            raise WrongState(_("This invitation was used, or is too old: ask an admin for a new one."), state="used")
        try:
            validate_password(password, locked)
        except ValidationError as error:
            raise InvalidSubmission({"password": list(error.messages)}) from error
        locked.set_password(password)
        locked.save(update_fields=["password"])
        sessions.sessions_end(user=locked, actor=actor)
        audit.record(actor, "user.accept_invitation", locked)


def described(user: User) -> dict[str, Any]:
    """What the audit log keeps of a person."""
    access = Access.objects.filter(user=user).select_related("partner").first()
    role = Role.ADMIN if user.is_superuser else of_groups(user.groups.values_list("name", flat=True))
    return {
        "role": role.value if role else "",
        "limited": access is not None and access.limited,
        "groups": sorted(access.groups.values_list("name", flat=True)) if access is not None else [],
        "partner": access.partner.name if access is not None and access.partner is not None else "",
        "email": user.email,
        "full_name": user.first_name,
        "is_active": user.is_active,
    }


def _checked(
    errors: dict[str, list[str]],
    *,
    role: str,
    email: str,
    full_name: str,
    groups: Collection[uuid.UUID],
    partner: uuid.UUID | None,
) -> list[PartnerGroup]:
    if role and role not in ROLES:
        errors["role"] = [_("One of {names}, or none.").format(names=", ".join(ROLES))]
    if role == Role.PARTNER and (partner is None or not Party.objects.filter(pk=partner, is_own=False).exists()):
        errors["partner"] = [_("Choose the partner whose messages this user sees.")]
    if email.strip():
        try:
            EmailValidator()(email.strip())
        except ValidationError:
            errors["email"] = [_("This is not a mail address.")]
        if len(email.strip()) > 254:
            errors["email"] = [_("At most 254 characters.")]
    if len(full_name.strip()) > 150:
        errors["full_name"] = [_("At most 150 characters.")]
    if "\x00" in email + full_name:
        errors["full_name"] = [_("It has a control character in it.")]
    wanted = list(PartnerGroup.objects.filter(pk__in=set(groups)))
    if len(wanted) < len(set(groups)):
        errors["groups"] = [_("One of these partner groups does not exist (any more).")]
    return wanted


def _give(user: User, role: str, limited: bool, groups: list[PartnerGroup], partner: uuid.UUID | None) -> None:
    """A partner's people have the portal alone: whatever else they had goes."""
    if role == Role.PARTNER:
        limited, groups = True, []
    else:
        partner = None
    user.groups.remove(*Group.objects.filter(name__in=ROLES).exclude(name=role))
    if role and not user.is_superuser:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    if limited or groups or Access.objects.filter(user=user).exists():
        access, _ = Access.objects.update_or_create(user=user, defaults={"limited": limited, "partner_id": partner})
        access.groups.set(groups)


def _one_at_a_time() -> None:
    """Two admins who demote each other at the same moment: the second sees what the first did."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('rmhub.users'))")


def _full_admins() -> bool:
    """Whether somebody is left who can change everything."""
    active = User.objects.filter(is_active=True).exclude(hub_access__limited=True)
    return active.filter(is_superuser=True).exists() or active.filter(groups__name=Role.ADMIN).exists()


# --- partner groups ---


def group_create(
    *, name: str, actor: Actor, description: str = "", partners: Collection[uuid.UUID] = (), reason: str = ""
) -> PartnerGroup:
    """Raises InvalidSubmission by field."""
    chosen = _checked_group(name, description, partners)
    try:
        with transaction.atomic():
            group = PartnerGroup.objects.create(name=name.strip(), description=description.strip())
            group.partners.set(chosen)
            audit.record(actor, "partner_group.create", group, reason=reason, after=_described_group(group))
    except IntegrityError as error:
        raise InvalidSubmission({"name": [_("There is a group {name} already.").format(name=name.strip())]}) from error
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
            group = _locked_group(group_id)
            before = _described_group(group)
            wanted = group.name if name is None else name
            said = group.description if description is None else description
            chosen = _checked_group(wanted, said, partners or ())
            group.name, group.description = wanted.strip(), said.strip()
            group.save()
            if partners is not None:
                group.partners.set(chosen)
            after = _described_group(group)
            if after != before:
                audit.record(actor, "partner_group.change", group, reason=reason, before=before, after=after)
    except IntegrityError as error:
        raise InvalidSubmission(
            {"name": [_("There is a group {name} already.").format(name=wanted.strip())]}
        ) from error
    return group


def group_delete(*, group_id: uuid.UUID, actor: Actor, reason: str) -> None:
    """Raises NotFound, WrongState while somebody or something is limited to it: without it they might see more."""
    audit.require_reason(reason)
    with transaction.atomic():
        group = _locked_group(group_id)
        limited = (
            Access.objects.filter(groups=group).order_by("user__username").values_list("user__username", flat=True)
        )
        tokens = ApiToken.objects.filter(groups=group).order_by("name").values_list("name", flat=True)
        rules = NotificationRule.objects.filter(group=group).order_by("name").values_list("name", flat=True)
        users = [*limited[:5], *(_("token {name}").format(name=name) for name in tokens[:5])]
        users += [_("rule {name}").format(name=name) for name in rules[:5]]
        if users:
            raise WrongState(
                _("{name} is used by {names}: remove it from them first.").format(
                    name=group.name, names=", ".join(users)
                ),
                state="in_use",
            )
        audit.record(actor, "partner_group.delete", group, reason=reason, before=_described_group(group))
        group.delete()


def _locked_group(group_id: uuid.UUID) -> PartnerGroup:
    group = PartnerGroup.objects.select_for_update().filter(pk=group_id).first()
    if group is None:
        raise NotFound(_("There is no partner group {id}.").format(id=public_id("grp", group_id)))
    return group


def _checked_group(name: str, description: str, partners: Collection[uuid.UUID]) -> list[Party]:
    errors: dict[str, list[str]] = {}
    if not name.strip():
        errors["name"] = [_("Give it a name, such as the region or the team.")]
    elif len(name.strip()) > 80 or "\x00" in name:
        errors["name"] = [_("At most 80 characters, and no control characters.")]
    if len(description.strip()) > 255 or "\x00" in description:
        errors["description"] = [_("At most 255 characters, and no control characters.")]
    chosen = list(Party.objects.filter(pk__in=set(partners), is_own=False))
    if len(chosen) < len(set(partners)):
        errors["partners"] = [_("One of these is not a partner (any more).")]
    if errors:
        raise InvalidSubmission(errors)
    return chosen


def _described_group(group: PartnerGroup) -> dict[str, Any]:
    partners = list(group.partners.order_by("name").values_list("name", flat=True))
    return {"name": group.name, "description": group.description, "partners": partners}
