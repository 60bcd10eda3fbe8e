"""Log-in, by the OpenID provider too, and log-out; invitations, passwords, also forgotten ones, and the theme."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import password_validators_help_texts
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters

from messaging import mailing
from messaging.access.services import openid, password_resets, second_factor, sessions, users
from messaging.choices import Interface
from messaging.console.access import ENROL, PUBLIC, SIGNED_IN, actor, has_ended, requires
from messaging.console.context import THEME_COOKIE, THEMES
from messaging.console.rendering import after, page, problems, see_other
from messaging.entrance import throttling
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.journal.audit import Actor

_YEAR = 365 * 86_400
_BACKEND = "django.contrib.auth.backends.ModelBackend"
_PENDING = "pending_login"
_PENDING_SECONDS = 300
_BUSY_SECONDS = 2
_AWAY = "openid"
_AWAY_SECONDS = 600


@sensitive_post_parameters("password")
@requires(PUBLIC, methods=("GET", "POST"))
def log_in(request: HttpRequest) -> HttpResponse:
    """Takes user name and password; then asks for a code, or goes where the person wanted to."""
    wanted = after(request)
    if request.user.is_authenticated and not has_ended(request):
        return see_other(wanted)
    form = AuthenticationForm(request, data=request.POST if request.method == "POST" else None)
    wait, busy = 0, False
    if request.method == "POST":
        name, address = request.POST.get("username", "")[:150], request.META.get("REMOTE_ADDR", "")
        try:
            with throttling.queueing():
                wait = throttling.attempt(name, address)
                right = not wait and _is_right(form)
        except throttling.Busy:
            busy, wait, right = True, _BUSY_SECONDS, False
        if right:
            user = form.get_user()
            assert isinstance(user, User)
            if second_factor.confirmed(user.pk) is None:
                throttling.succeeded(name, address)
                enter(request, user, "password")
                return see_other(wanted)
            # The misses are forgotten after the code only: who has the password may not guess codes for ever.
            throttling.taken_back(name, address)
            request.session[_PENDING] = {"user": user.pk, "next": wanted, "at": time.time()}
            return see_other("console:login-code")
        if not wait:
            sessions.login_refused(name=name, actor=actor(request), what="password")
            wait = throttling.wait_for(name, address)
    context = {"form": form, "next": wanted, "wait": wait, "busy": busy}
    if openid.enabled():
        context["sign_on"] = settings.RMHUB_OIDC_LABEL
    return _slowed(request, "console/access/login.html", context, wait)


@sensitive_post_parameters("code")
@requires(PUBLIC, methods=("GET", "POST"))
def log_in_code(request: HttpRequest) -> HttpResponse:
    """The second factor: a code of the device, or a recovery code."""
    pending = request.session.get(_PENDING) or {}
    user = User.objects.filter(pk=pending.get("user") or 0, is_active=True).first()
    if user is None or not 0 <= time.time() - float(pending.get("at", 0)) < _PENDING_SECONDS:
        request.session.pop(_PENDING, None)
        return see_other("console:login")
    wait, errors = 0, []
    if request.method == "POST":
        name, address = user.get_username(), request.META.get("REMOTE_ADDR", "")
        wait = throttling.attempt(name, address)
        if not wait:
            try:
                how = second_factor.second_factor_check(user=user, code=request.POST.get("code", "")[:100])
            except InvalidSubmission as error:
                sessions.login_refused(name=name, actor=actor(request), what="code")
                errors, wait = problems(error), throttling.wait_for(name, address)
            else:
                throttling.succeeded(name, address)
                del request.session[_PENDING]
                enter(request, user, "totp")
                if how == "recovery":
                    notices.warning(
                        request, _("You used a recovery code, and it cannot be used again. Create new ones soon.")
                    )
                return see_other(pending["next"])
    context = {"errors": errors, "wait": wait, "name": user.get_username()}
    return _slowed(request, "console/access/login_code.html", context, wait)


def _is_right(form: AuthenticationForm) -> bool:
    """Whether user name and password fit together; waits for its turn to compute, for names that do not exist too."""
    with throttling.checking():
        return bool(form.is_valid())


def _has_password(user: User, password: str) -> bool:
    with throttling.checking():
        return user.check_password(password)


def enter(request: HttpRequest, user: User, method: str) -> None:
    """Begins the session, under a new key; notes where it is."""
    login(request, user, backend=_BACKEND)
    sessions.note_use(request.session)
    request.session["method"] = method
    if method == "password" and settings.RMHUB_REQUIRE_SECOND_FACTOR:
        request.session[ENROL] = True
    request.session.save()
    key = request.session.session_key
    assert key is not None
    agent = request.headers.get("User-Agent", "")
    sessions.session_begun(user=user, key=key, actor=actor(request), agent=agent, method=method)


@requires(PUBLIC, methods=("POST",))
def log_out(request: HttpRequest) -> HttpResponse:
    """Ends the session."""
    key = request.session.session_key
    logout(request)
    if key:
        sessions.session_ended(key=key)
    return see_other(settings.LOGOUT_REDIRECT_URL)


@sensitive_post_parameters("new_password1", "new_password2")
@requires(PUBLIC, methods=("GET", "POST"))
def invitation(request: HttpRequest, uid: str, token: str) -> HttpResponse:
    """Whoever has the link sets a password with it, once."""
    user = users.invited(uid, token)
    if user is None:
        return page(request, "console/access/invitation.html", {"mails": mailing.is_set_up()}, status=410)
    form = SetPasswordForm(user, request.POST if request.method == "POST" else None)
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        if form.is_valid():
            who = Actor(
                user.get_username(),
                Interface.CONSOLE,
                request.META.get("REMOTE_ADDR", ""),
                getattr(request, "request_id", ""),
                "invitation",
            )
            password = form.cleaned_data["new_password1"]
            try:
                users.invitation_accept(user=user, token=token, password=password, actor=who)
            except ApplicationError as error:
                errors = problems(error)
            else:
                notices.success(request, _("Your password is set: log in with it."))
                return see_other("console:login")
        else:
            errors = [("new_password1", str(text)) for texts in form.errors.values() for text in texts]
    context = {"user_name": user.get_username(), "errors": errors, "rules": password_validators_help_texts()}
    return page(request, "console/access/invitation.html", context, status=422 if errors else 200)


@requires(PUBLIC, methods=("GET", "POST"))
def password_reset(request: HttpRequest) -> HttpResponse:
    """Asks for a link by mail. The answer is the same for users that exist and for those that do not."""
    context: dict[str, Any] = {"mails": mailing.is_set_up(), "days": settings.PASSWORD_RESET_TIMEOUT // 86_400}
    wait = 0
    if request.method == "POST" and context["mails"]:
        who = context["who"] = request.POST.get("who", "")[:254]
        wait = context["wait"] = throttling.attempt(f"reset {who.strip()}", request.META.get("REMOTE_ADDR", ""))
        if not wait:
            try:
                context["asked"] = password_resets.reset_ask(who=who, actor=actor(request))
            except InvalidSubmission as error:
                context["errors"] = problems(error)
            else:
                return page(request, "console/access/password_reset.html", context)
    return _slowed(request, "console/access/password_reset.html", context, wait)


@sensitive_post_parameters("old_password", "new_password1", "new_password2")
@requires(SIGNED_IN, methods=("GET", "POST"))
def password(request: HttpRequest) -> HttpResponse:
    """One's own password; the old one is asked for, and guesses of it are slowed down like log-ins."""
    user = request.user
    assert isinstance(user, User)
    form = SetPasswordForm(user, request.POST if request.method == "POST" else None)
    problem = ""
    if request.method == "POST":
        name, address = user.get_username(), request.META.get("REMOTE_ADDR", "")
        try:
            with throttling.queueing():
                wait = throttling.attempt(name, address)
                right = not wait and _has_password(user, request.POST.get("old_password", ""))
        except throttling.Busy:
            wait, right = _BUSY_SECONDS, False
        if wait:
            problem = _("Too many attempts: wait {wait} s, then try again.").format(wait=wait)
        elif not right:
            problem = _("The current password is wrong.")
        else:
            throttling.succeeded(name, address)
        if right and form.is_valid():
            before = request.session.session_key or ""
            users.password_change(user=user, password=form.cleaned_data["new_password1"], actor=actor(request))
            sessions.sessions_end(user=user, actor=actor(request), reason="By the user.", keep=before)
            update_session_auth_hash(request, user)
            request.session.save()
            sessions.session_moved(before=before, after=request.session.session_key or "")
            notices.success(request, _("Your password is changed. Your other sessions have ended."))
            return see_other("console:dashboard")
    context = {"form": form, "problem": problem, "rules": password_validators_help_texts()}
    return page(request, "console/access/password.html", context, status=422 if request.method == "POST" else 200)


@requires(PUBLIC, methods=("POST",))
def theme(request: HttpRequest) -> HttpResponse:
    """Keeps light, dark or auto in a cookie, and goes back."""
    chosen = request.POST.get("theme", "")
    response = see_other(after(request))
    if chosen in THEMES:
        response.set_cookie(
            THEME_COOKIE, chosen, max_age=_YEAR, samesite="Lax", httponly=True, secure=settings.SESSION_COOKIE_SECURE
        )
    return response


def _slowed(request: HttpRequest, template: str, context: dict[str, Any], wait: int) -> HttpResponse:
    status = 429 if wait else 200 if request.method == "GET" else 422
    response = page(request, template, context, status=status)
    if wait:
        response["Retry-After"] = str(wait)
    return response


# --- by the organisation's OpenID provider ---


@requires(PUBLIC)
def sign_on(request: HttpRequest) -> HttpResponse:
    """Sends the browser to the provider; its session keeps what only it can bring back."""
    if not openid.enabled():
        raise Http404(_("There is no OpenID provider here: RMHUB_OIDC_ISSUER is not set."))
    try:
        beginning = openid.begin(_back())
    except openid.OpenIdFailed as error:
        notices.error(request, error.detail)
        return see_other("console:login")
    request.session[_AWAY] = {
        "state": beginning.state,
        "nonce": beginning.nonce,
        "verifier": beginning.verifier,
        "next": after(request),
        "at": time.time(),
    }
    return HttpResponseRedirect(beginning.url)


@requires(PUBLIC)
def sign_on_back(request: HttpRequest) -> HttpResponse:
    """What the provider sends back: used once, by the browser that went away."""
    if not openid.enabled():
        raise Http404(_("There is no OpenID provider here: RMHUB_OIDC_ISSUER is not set."))
    kept = request.session.pop(_AWAY, None) or {}
    fresh = 0 <= time.time() - float(kept.get("at", 0)) < _AWAY_SECONDS
    try:
        claims = openid.exchange(
            redirect_uri=_back(),
            answer={name: request.GET.get(name, "") for name in ("code", "state", "error", "error_description")},
            state=kept.get("state", "") if fresh else "",
            nonce=kept.get("nonce", ""),
            verifier=kept.get("verifier", ""),
        )
        who = Actor(
            str(claims.get(settings.RMHUB_OIDC_NAME_CLAIM) or claims["sub"])[:150],
            Interface.CONSOLE,
            request.META.get("REMOTE_ADDR", ""),
            getattr(request, "request_id", ""),
            "openid",
        )
        user = openid.login(claims=claims, actor=who)
    except openid.OpenIdFailed as error:
        notices.error(request, error.detail)
        return see_other("console:login")
    enter(request, user, "openid")
    return see_other(kept["next"])


def _back() -> str:
    # The address that the provider knows, and not what a request says that this host is called.
    return f"{settings.RMHUB_PUBLIC_URL}{reverse('console:openid-back')}"
