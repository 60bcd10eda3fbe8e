"""Who may call what: every handler names one scope (`operation`), or says that it is public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from messaging.api.authentication import Access
from messaging.api.problems import Problem

if TYPE_CHECKING:  # rest_framework.views reads the settings that name this module
    from rest_framework.views import APIView

PUBLIC = "public"


def scope_of(view: APIView, method: str) -> str | None:
    """The scope that a view's handler of this method declares; None when there is no such handler, or none declared."""
    handler = getattr(view, method.lower(), None)
    return getattr(handler, "scope", None)


class HasScope(BasePermission):
    """Refuses a caller without the handler's scope, and a handler that declares none."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        method = request.method or ""
        if method not in view.allowed_methods and method != "HEAD":
            return True  # answered with 405, whoever asks
        scope = scope_of(view, method)
        if scope == PUBLIC:
            return True
        if not isinstance(request.auth, Access):
            raise NotAuthenticated
        if scope is None:
            return False
        if scope not in request.auth.scopes:
            raise Problem("missing_scope", f"This needs the scope {scope}.", required_scope=scope)
        return True
