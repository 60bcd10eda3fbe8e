"""Who may do what: three roles, each including the one before, and the scopes that API tokens are cut from."""

from __future__ import annotations

from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group


class Role(StrEnum):
    """Names of the Django groups that carry the roles."""

    VIEWER = "viewer"  # reads everything but payloads
    OPERATOR = "operator"  # also payloads, submissions, and the verbs that repair
    ADMIN = "admin"  # also partners, agreements, skipping, users, tokens, settings


ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)

VIEWER_SCOPES = frozenset(
    {
        "messages:read",
        "pairs:read",
        "partners:read",
        "agreements:read",
        "incidents:read",
        "events:read",
        "audit:read",
        "triggers:read",
        "deliveries:read",
        "reports:read",
        "archive:read",
        "views:write",  # one's own saved views and preferences
    }
)
OPERATOR_SCOPES = (
    VIEWER_SCOPES
    | {"payloads:read", "messages:write", "pairs:operate", "incidents:write"}
    | {
        "triggers:operate",  # suspend, resume
        "deliveries:take",  # pull queues: lease, complete, release
        "indoubt:resolve",
        "transactions:write",  # begin, enlist, commit, roll back
        "pipeline:run",  # run and cancel, partners' logs, findings to incidents
        "archive:restore",
        "views:share",  # saved views for the team
    }
)
ADMIN_SCOPES = OPERATOR_SCOPES | {
    "pairs:skip",
    "messages:cancel",
    "partners:write",
    "agreements:write",
    "webhooks:manage",
    "tokens:manage",
    "triggers:write",
    "retention:write",  # when messages leave the store; legal holds
    "users:manage",  # users, roles, partner groups, sessions
    "notifications:manage",
    "masks:manage",
    "attributes:manage",
}
# What changes or shows the hub as a whole: whoever is limited to some partners has none of these, whatever their role.
WHOLE_HUB_SCOPES = frozenset(
    {
        "partners:write",
        "agreements:write",
        "triggers:operate",
        "triggers:write",
        "deliveries:take",
        "pipeline:run",
        "archive:restore",
        "retention:write",
        "webhooks:manage",
        "tokens:manage",
        "users:manage",
        "notifications:manage",
        "masks:manage",
        "attributes:manage",
    }
)
SCOPES = {Role.VIEWER: VIEWER_SCOPES, Role.OPERATOR: OPERATOR_SCOPES, Role.ADMIN: ADMIN_SCOPES}


def role_for(scope: str) -> Role:
    """The lowest role that has the scope. Raises KeyError for a scope that no role has."""
    for role in ORDER:
        if scope in SCOPES[role]:
            return role
    raise KeyError(scope)


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """The highest role of a user; a superuser is an admin; None for nobody in particular."""
    if not user.is_authenticated or not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMIN
    names = set(Group.objects.filter(user=user.pk).values_list("name", flat=True))
    return next((role for role in reversed(ORDER) if role in names), None)


def scopes_of(user: AbstractBaseUser | AnonymousUser) -> frozenset[str]:
    """All scopes that the user's role has; a token's are cut down to these."""
    role = role_of(user)
    return SCOPES[role] if role else frozenset()
