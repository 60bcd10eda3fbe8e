"""One's own account: where one is logged in, and the second factor."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors import people
from messaging.access.selectors.reach import read_id
from messaging.access.services import second_factor, sessions
from messaging.console.access import ENROL, actor, requires
from messaging.console.rendering import page, problems, see_other
from messaging.entrance import throttling
from messaging.exceptions import ApplicationError, NotFound, WrongState

SCOPE = "pairs:read"  # everybody with a role


def _me(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


@requires(SCOPE)
def account(request: HttpRequest) -> HttpResponse:
    """Who one is here, what one may see, and where one is logged in."""
    me = people.user(_me(request).get_username())
    factor = second_factor.confirmed(me.user.pk)
    context = {
        "row": me,
        "sessions": list(people.sessions(user_id=me.user.pk).order_by("-last_seen_at")[:50]),
        "here": request.session.session_key,
        "methods": sessions.METHODS,
        "factor": factor,
        "codes_left": len(factor.recovery) if factor is not None else 0,
        "has_password": me.user.has_usable_password(),
    }
    return page(request, "console/access/account.html", context)


@requires(SCOPE, methods=("POST",))
def session_end(request: HttpRequest, reference: str) -> HttpResponse:
    """Ends one of one's own sessions."""
    try:
        row = sessions.session_end(
            session_id=read_id("ses", reference), actor=actor(request), reason="By the user.", of=_me(request)
        )
    except NotFound as error:
        notices.error(request, error.detail)
    else:
        notices.success(request, f"The session from {row.address or 'there'} has ended.")
    return see_other("console:account")


@requires(SCOPE, methods=("POST",))
def sessions_end(request: HttpRequest) -> HttpResponse:
    """Ends all of one's own sessions but this one."""
    count = sessions.sessions_end(
        user=_me(request), actor=actor(request), reason="By the user.", keep=request.session.session_key or ""
    )
    notices.success(request, f"{count} other session{'' if count == 1 else 's'} ended.")
    return see_other("console:account")


@sensitive_post_parameters("code", "password")
@sensitive_variables("codes")
@requires(SCOPE, methods=("GET", "POST"))
def factor(request: HttpRequest) -> HttpResponse:
    """Setting up a second factor: the picture, and a first code; then the recovery codes, this once."""
    me = _me(request)
    if second_factor.confirmed(me.pk) is not None:
        return see_other("console:account")
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            codes = second_factor.second_factor_confirm(
                user=me, code=request.POST.get("code", "")[:100], actor=actor(request)
            )
        except WrongState:
            return see_other("console:account")
        except ApplicationError as error:
            errors, status = problems(error), 422
        else:
            request.session.pop(ENROL, None)
            if request.session.get("method") == "password":
                request.session["method"] = "totp"
            return page(request, "console/access/recovery_codes.html", {"codes": codes})
    context = {
        "enrolment": second_factor.enrolment(me),
        "errors": errors,
        "required": bool(request.session.get(ENROL)),
        "hub": settings.RMHUB_NAME,
    }
    return page(request, "console/access/second_factor.html", context, status=status)


@sensitive_post_parameters("code")
@sensitive_variables("codes")
@requires(SCOPE, methods=("GET", "POST"))
def factor_codes(request: HttpRequest) -> HttpResponse:
    """New recovery codes, for a code of the device."""
    me = _me(request)
    if second_factor.confirmed(me.pk) is None:
        return _none(request)
    errors, wait = _checked_code(request, me)
    if request.method == "POST" and not errors:
        codes = second_factor.recovery_codes_renew(user=me, actor=actor(request))
        return page(request, "console/access/recovery_codes.html", {"codes": codes})
    context = {"errors": errors, "renew": True}
    return page(
        request, "console/access/second_factor_change.html", context, status=429 if wait else 422 if errors else 200
    )


@sensitive_post_parameters("code")
@requires(SCOPE, methods=("GET", "POST"))
def factor_remove(request: HttpRequest) -> HttpResponse:
    """Takes the second factor away, for a code of it."""
    me = _me(request)
    if second_factor.confirmed(me.pk) is None:
        return _none(request)
    errors, wait = _checked_code(request, me)
    if request.method == "POST" and not errors:
        second_factor.second_factor_remove(user=me, actor=actor(request), reason="By the user.")
        if settings.RMHUB_REQUIRE_SECOND_FACTOR and request.session.get("method") != "openid":
            request.session[ENROL] = True
        notices.success(request, "Your second factor is taken away.")
        return see_other("console:account")
    context = {"errors": errors, "renew": False}
    return page(
        request, "console/access/second_factor_change.html", context, status=429 if wait else 422 if errors else 200
    )


def _none(request: HttpRequest) -> HttpResponse:
    status = 200 if request.method == "GET" else 409
    return page(request, "console/access/second_factor_change.html", {"none": True}, status=status)


def _checked_code(request: HttpRequest, me: User) -> tuple[list[tuple[str, str]], int]:
    """What is wrong with the code that was sent, and how long to wait; guesses are slowed down like log-ins."""
    if request.method != "POST":
        return [], 0
    name, address = me.get_username(), request.META.get("REMOTE_ADDR", "")
    if wait := throttling.attempt(name, address):
        return [("", f"Too many wrong codes: wait {wait} s, then try again.")], wait
    try:
        second_factor.second_factor_check(user=me, code=request.POST.get("code", "")[:100])
    except ApplicationError as error:
        return problems(error), 0
    throttling.succeeded(name, address)
    return [], 0
