"""What every page knows: the hub's name, its environment, who looks, and the navigation with its counters."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.text import slugify
from django.utils.translation import gettext_noop

from messaging.console.access import Person, person
from messaging.console.languages import script_texts
from messaging.console.preferences import preferences
from messaging.pairs.selectors import screens
from partners import visibility
from rmhub import clock
from rmhub.language import gettext_lazy
from rmhub.roles import PORTAL, Role

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "rmhub_theme"
NAV_COOKIE = "rmhub_nav"  # the groups of the navigation that a person has folded


@dataclass(frozen=True, slots=True)
class NavItem:
    """One entry of the navigation. `counter` names an attribute of `NavCounts`."""

    label: str
    icon: str
    view: str
    section: str
    scope: str
    counter: str = ""


NAVIGATION: tuple[tuple[str, tuple[NavItem, ...]], ...] = (
    (
        gettext_noop("Operate"),
        (
            NavItem(gettext_lazy("Dashboard"), "layout-dashboard", "console:dashboard", "", "pairs:read"),
            NavItem(gettext_lazy("Pairs"), "arrows-exchange", "console:pairs", "pairs", "pairs:read", "suspended"),
            NavItem(gettext_lazy("Messages"), "mail", "console:messages", "messages", "messages:read"),
            NavItem(
                gettext_lazy("In doubt"), "help-circle", "console:in-doubt", "in-doubt", "deliveries:read", "in_doubt"
            ),
            NavItem(
                gettext_lazy("Incidents"),
                "alert-triangle",
                "console:incidents",
                "incidents",
                "incidents:read",
                "incidents",
            ),
            NavItem(gettext_lazy("Servers"), "plug-connected", "console:circuits", "servers", "pairs:read"),
        ),
    ),
    (
        gettext_noop("Applications"),
        (
            NavItem(gettext_lazy("Triggers"), "bolt", "console:triggers", "triggers", "triggers:read", "triggers"),
            NavItem(gettext_lazy("Deliveries"), "package", "console:deliveries", "deliveries", "deliveries:read"),
            NavItem(
                gettext_lazy("Transactions"),
                "git-merge",
                "console:transactions",
                "transactions",
                "messages:read",
                "transactions",
            ),
            NavItem(gettext_lazy("Jobs"), "list-check", "console:jobs", "jobs", "deliveries:read"),
        ),
    ),
    (
        gettext_noop("Partners"),
        (
            NavItem(gettext_lazy("Partners"), "building-community", "console:partners", "partners", "partners:read"),
            NavItem(gettext_lazy("Agreements"), "file-text", "console:agreements", "agreements", "agreements:read"),
            NavItem(
                gettext_lazy("Certificates"), "shield-check", "console:certificates", "certificates", "partners:read"
            ),
            NavItem(gettext_lazy("Pollers"), "download", "console:pollers", "pollers", "partners:read"),
            NavItem(gettext_lazy("Routes"), "arrow-forward-up", "console:routes", "routes", "agreements:read"),
        ),
    ),
    (
        gettext_noop("Reports"),
        (
            NavItem(gettext_lazy("Live"), "activity", "console:live", "live", "reports:read"),
            NavItem(gettext_lazy("Reports"), "chart-bar", "console:reports", "reports", "reports:read"),
            NavItem(gettext_lazy("Reconciliation"), "scale", "console:partner-logs", "reconciliation", "reports:read"),
            NavItem(gettext_lazy("Pipeline"), "database", "console:pipeline-runs", "pipeline", "reports:read"),
        ),
    ),
    (
        gettext_noop("Records"),
        (
            NavItem(gettext_lazy("Archive"), "inbox", "console:archive", "archive", "archive:read"),
            NavItem(gettext_lazy("Legal holds"), "lock", "console:holds", "holds", "archive:read"),
            NavItem(gettext_lazy("Retention"), "clock", "console:retention", "retention", "archive:read"),
            NavItem(gettext_lazy("Rejections"), "shield-x", "console:rejections", "rejections", "messages:read"),
            NavItem(gettext_lazy("Audit log"), "history", "console:audit", "audit", "audit:read"),
        ),
    ),
    (
        gettext_noop("Admin"),
        (
            NavItem(gettext_lazy("Users"), "users", "console:users", "users", "users:manage"),
            NavItem(
                gettext_lazy("Notifications"),
                "bell",
                "console:notification-rules",
                "notifications",
                "notifications:manage",
            ),
            NavItem(gettext_lazy("Attributes"), "search", "console:attributes", "attributes", "attributes:manage"),
            NavItem(gettext_lazy("Schemas"), "file-code", "console:schemas", "schemas", "schemas:manage"),
            NavItem(gettext_lazy("Masks"), "lock", "console:masks", "masks", "masks:manage"),
            NavItem(gettext_lazy("Webhooks"), "webhook", "console:webhooks", "webhooks", "webhooks:manage"),
            NavItem(gettext_lazy("API tokens"), "key", "console:tokens", "tokens", "tokens:manage"),
        ),
    ),
)
# What a partner's people see of it.
PORTAL_NAVIGATION: tuple[tuple[str, tuple[NavItem, ...]], ...] = (
    (
        gettext_noop("Partner portal"),
        (
            NavItem(gettext_lazy("Overview"), "layout-dashboard", "console:portal", "portal", PORTAL),
            NavItem(gettext_lazy("Messages"), "mail", "console:portal-messages", "portal/messages", PORTAL),
            NavItem(
                gettext_lazy("Connection"), "plug-connected", "console:portal-connection", "portal/connection", PORTAL
            ),
            NavItem(
                gettext_lazy("Certificates"),
                "shield-check",
                "console:portal-certificates",
                "portal/certificates",
                PORTAL,
            ),
            NavItem(gettext_lazy("Reconciliation"), "scale", "console:portal-logs", "portal/logs", PORTAL),
        ),
    ),
)
# Pages of these first path segments belong to the entry of that section.
_SECTIONS = {
    "partner-groups": "users",
    "transmissions": "messages",
    "signals": "messages",
    "endpoints": "partners",
    "offered-certificates": "certificates",
    "credentials": "partners",
    "tests": "agreements",
}


# Sections -> the documents that explain them, where that is not the one of the console.
_HELP = {
    **{name: name for name in ("archive", "audit", "live", "notifications", "pipeline", "reconciliation", "reports")},
    **{name: name for name in ("transactions", "triggers", "users")},
    **{"partners": "onboarding", "agreements": "onboarding", "onboarding": "onboarding", "holds": "archive"},
    **{"retention": "archive", "routes": "routing", "pollers": "mail", "certificates": "onboarding#certificates"},
    **dict.fromkeys(("webhooks", "tokens"), "console#webhooks-and-api-tokens"),
    **{name: f"console#{name}" for name in ("attributes", "in-doubt", "incidents", "jobs", "masks", "messages")},
    **{"": "console#dashboard", "pairs": "console#pairs", "schemas": "console#schemas", "servers": "console#ping"},
    "deliveries": "console#triggers-and-deliveries",
}


def hub(request: HttpRequest) -> dict[str, object]:
    """Context processor; counters are looked up only by pages that show them."""
    return {
        "hub_name": settings.RMHUB_NAME,
        "hub_environment": settings.RMHUB_ENVIRONMENT,
        "hub_now": clock.now(),
        "theme": theme_of(request),
        "section": _section(request),
        "help_href": help_of(_section(request)),
        "me": SimpleLazyObject(lambda: _me(request)),
        "navigation": SimpleLazyObject(lambda: _navigation(request)),
        "nav_folded": _folded(request),
        "preferences": SimpleLazyObject(lambda: preferences(request)),
        "preferred_zone": SimpleLazyObject(lambda: preferences(request).zone),
        "script_texts": SimpleLazyObject(script_texts),
        "nav_counts": SimpleLazyObject(lambda: _counts(request)),
    }


def theme_of(request: HttpRequest) -> str:
    """The stored override, or `auto`: as the system has it."""
    chosen = request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]


def _folded(request: HttpRequest) -> list[str]:
    """The folded groups, but for that of this page."""
    here = _section(request)
    shown = {slugify(group) for group, items in NAVIGATION if any(item.section == here for item in items)}
    return [name for name in request.COOKIES.get(NAV_COOKIE, "")[:200].split(".") if name and name not in shown]


def _section(request: HttpRequest) -> str:
    first, *more = request.path_info.strip("/").split("/")
    if first == "portal":
        return "/".join([first, *more[:1]])
    return _SECTIONS.get(first, first)


def help_of(section: str) -> str:
    """Where the pages of a section are explained."""
    name, _, anchor = _HELP.get(section, "console").partition("#")
    return f"{reverse('console:help-page', args=[name])}{f'#{anchor}' if anchor else ''}"


def _counts(request: HttpRequest) -> screens.NavCounts:
    """Under the limits of whoever looks, also on error pages: they are made after the view's own limits have ended."""
    who = _me(request)
    if who is None or who.role in (None, Role.PARTNER):
        return screens.NavCounts(0, 0, 0, 0, 0)
    with visibility.only(who.partners, who.name):
        return screens.nav_counts()


def _navigation(request: HttpRequest) -> tuple[tuple[str, tuple[NavItem, ...]], ...]:
    who = _me(request)
    return PORTAL_NAVIGATION if who is not None and who.role == Role.PARTNER else NAVIGATION


def _me(request: HttpRequest) -> Person | None:
    # Error pages may be made before the session was read.
    user = getattr(request, "user", None)
    return person(request) if user is not None and user.is_authenticated else None
