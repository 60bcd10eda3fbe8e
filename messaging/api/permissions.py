"""Who may call what: every handler names one scope (`operation`), or says that it is public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from messaging.api.authentication import Access, actor_of
from messaging.api.problems import Problem
from messaging.journal import audit
from rmhub.roles import WHOLE_HUB_SCOPES

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
            _note_refusal(request, method, scope)
            why = ""
            if request.auth.limited and scope in WHOLE_HUB_SCOPES:
                why = " It concerns all partners, and nobody has it who is limited to the partners of some groups."
            raise Problem("missing_scope", f"This needs the scope {scope}.{why}", required_scope=scope)
        if request.auth.limited and getattr(getattr(view, method.lower(), None), "whole_hub", False):
            _note_refusal(request, method, scope)
            raise Problem("limited_access")
        return True


def _note_refusal(request: Request, method: str, scope: str) -> None:
    """What a caller tried to do, or whose documents to read, is in the audit log; where they looked is not."""
    if method not in ("GET", "HEAD") or scope == "payloads:read":
        match = request.resolver_match
        name = (match.url_name if match is not None else "") or ""
        parameters = match.kwargs if match is not None else {}
        audit.refused(actor_of(request), name, parameters, method=method, required=scope)
