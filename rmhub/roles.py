"""Who may do what: three roles of our staff, each including the one before, with the scopes that API tokens are cut
from; and the role of a partner's people, who see the portal and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group

from rmhub.language import gettext_lazy


class Role(StrEnum):
    """Names of the Django groups that carry the roles."""

    VIEWER = "viewer"  # reads everything but payloads
    OPERATOR = "operator"  # also payloads, submissions, and the verbs that repair
    ADMIN = "admin"  # also partners, agreements, skipping, users, tokens, settings
    PARTNER = "partner"  # somebody of a partner: their own messages and connection, in the portal


ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)  # of our staff
ROLES = (*ORDER, Role.PARTNER)
PORTAL = "portal:use"

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
    "schemas:manage",
}
# As people read them.
NAMES: Mapping[str, str] = {
    Role.VIEWER: gettext_lazy("viewer"),
    Role.OPERATOR: gettext_lazy("operator"),
    Role.ADMIN: gettext_lazy("admin"),
    Role.PARTNER: gettext_lazy("partner"),
}
# What each allows, for whoever gives them.
ABOUT: Mapping[str, str] = {
    "messages:read": gettext_lazy("find messages and see what became of them"),
    "pairs:read": gettext_lazy("see pairs and their diagnosis"),
    "partners:read": gettext_lazy("see partners, endpoints and certificates"),
    "agreements:read": gettext_lazy("see agreements"),
    "incidents:read": gettext_lazy("see incidents"),
    "events:read": gettext_lazy("read the event feed"),
    "audit:read": gettext_lazy("read the audit log"),
    "triggers:read": gettext_lazy("see triggers"),
    "deliveries:read": gettext_lazy("see deliveries to applications"),
    "reports:read": gettext_lazy("read reports"),
    "archive:read": gettext_lazy("search the archive, see retention and legal holds"),
    "views:write": gettext_lazy("keep saved views and preferences of one's own"),
    "payloads:read": gettext_lazy("open documents and wire bytes"),
    "messages:write": gettext_lazy("submit and resubmit messages"),
    "pairs:operate": gettext_lazy("pause, resume, retry and probe pairs"),
    "incidents:write": gettext_lazy("acknowledge, assign, snooze and resolve incidents"),
    "triggers:operate": gettext_lazy("suspend and resume triggers"),
    "deliveries:take": gettext_lazy("take documents from pull queues"),
    "indoubt:resolve": gettext_lazy("settle what is in doubt, redeliver documents"),
    "transactions:write": gettext_lazy("begin and end atomic transactions"),
    "pipeline:run": gettext_lazy("run reports, upload partners' logs"),
    "archive:restore": gettext_lazy("put archived messages back into the store"),
    "views:share": gettext_lazy("share saved views with the team"),
    "pairs:skip": gettext_lazy("skip messages, restart sequences, clear a resync"),
    "messages:cancel": gettext_lazy("take messages back"),
    "partners:write": gettext_lazy("create and change partners, endpoints, certificates"),
    "agreements:write": gettext_lazy("create, change and activate agreements"),
    "webhooks:manage": gettext_lazy("manage webhooks"),
    "tokens:manage": gettext_lazy("manage API tokens"),
    "triggers:write": gettext_lazy("create and change triggers"),
    "retention:write": gettext_lazy("set retention and legal holds"),
    "users:manage": gettext_lazy("manage users, roles and partner groups"),
    "notifications:manage": gettext_lazy("manage notification rules"),
    "masks:manage": gettext_lazy("manage masks"),
    "attributes:manage": gettext_lazy("manage attributes, and take them again"),
    "schemas:manage": gettext_lazy("manage schemas, and try them on stored messages"),
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
        "schemas:manage",
    }
)
SCOPES = {
    Role.VIEWER: VIEWER_SCOPES,
    Role.OPERATOR: OPERATOR_SCOPES,
    Role.ADMIN: ADMIN_SCOPES,
    Role.PARTNER: frozenset({PORTAL}),
}


def role_for(scope: str) -> Role:
    """The lowest role that has the scope. Raises KeyError for a scope that no role has."""
    for role in ROLES:
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
    return of_groups(names)


def of_groups(names: Collection[str]) -> Role | None:
    """The highest role among the names of a person's groups."""
    return next((role for role in (*reversed(ORDER), Role.PARTNER) if role in names), None)


def scopes_of(user: AbstractBaseUser | AnonymousUser) -> frozenset[str]:
    """All scopes that the user's role has; a token's are cut down to these."""
    role = role_of(user)
    return SCOPES[role] if role else frozenset()
