"""Log-in, log-out, one's own password, and the theme."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import password_validators_help_texts
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters

from messaging.console import throttle
from messaging.console.access import PUBLIC, actor, requires
from messaging.console.context import THEME_COOKIE, THEMES
from messaging.console.rendering import page, see_other
from messaging.services import users

_YEAR = 365 * 86_400


@sensitive_post_parameters("password")
@requires(PUBLIC, methods=("GET", "POST"))
def log_in(request: HttpRequest) -> HttpResponse:
    """Takes user name and password; then goes where the person wanted to."""
    after = _after(request)
    if request.user.is_authenticated:
        return see_other(after)
    form = AuthenticationForm(request, data=request.POST if request.method == "POST" else None)
    wait = 0
    if request.method == "POST":
        name, address = request.POST.get("username", "")[:150], request.META.get("REMOTE_ADDR", "")
        wait = throttle.wait_for(name, address)
        if not wait and form.is_valid():
            throttle.succeeded(name, address)
            login(request, form.get_user())
            return see_other(after)
        if not wait:
            throttle.missed(name, address)
            wait = throttle.wait_for(name, address)
    status = 429 if wait else 200 if request.method == "GET" else 422
    response = page(request, "console/login.html", {"form": form, "next": after, "wait": wait}, status=status)
    if wait:
        response["Retry-After"] = str(wait)
    return response


@requires(PUBLIC, methods=("POST",))
def log_out(request: HttpRequest) -> HttpResponse:
    """Ends the session."""
    logout(request)
    return see_other(settings.LOGOUT_REDIRECT_URL)


@sensitive_post_parameters("old_password", "new_password1", "new_password2")
@requires("pairs:read", methods=("GET", "POST"))
def password(request: HttpRequest) -> HttpResponse:
    """One's own password; the old one is asked for, and guesses of it are slowed down like log-ins."""
    user = request.user
    assert isinstance(user, User)
    form = SetPasswordForm(user, request.POST if request.method == "POST" else None)
    problem = ""
    if request.method == "POST":
        name, address = user.get_username(), request.META.get("REMOTE_ADDR", "")
        wait = throttle.wait_for(name, address)
        if wait:
            problem = f"Too many wrong passwords: wait {wait} s, then try again."
        elif not user.check_password(request.POST.get("old_password", "")):
            throttle.missed(name, address)
            problem = "The present password is not right."
        elif form.is_valid():
            throttle.succeeded(name, address)
            users.password_change(user=user, password=form.cleaned_data["new_password1"], actor=actor(request))
            update_session_auth_hash(request, user)
            notices.success(request, "Your password is changed. Your other sessions have ended.")
            return see_other("console:dashboard")
    context = {"form": form, "problem": problem, "rules": password_validators_help_texts()}
    return page(request, "console/password.html", context, status=422 if request.method == "POST" else 200)


@requires(PUBLIC, methods=("POST",))
def theme(request: HttpRequest) -> HttpResponse:
    """Keeps light, dark or auto in a cookie, and goes back."""
    chosen = request.POST.get("theme", "")
    response = see_other(_after(request))
    if chosen in THEMES:
        response.set_cookie(
            THEME_COOKIE, chosen, max_age=_YEAR, samesite="Lax", httponly=True, secure=settings.SESSION_COOKIE_SECURE
        )
    return response


def _after(request: HttpRequest) -> str:
    """Where to go next: a page of this site, whatever the URL says."""
    wished = request.POST.get("next") or request.GET.get("next") or ""
    here = url_has_allowed_host_and_scheme(
        wished, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wished if here else resolve_url(settings.LOGIN_REDIRECT_URL)
