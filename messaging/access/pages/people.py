"""Users: the list, a person's page, inviting, changing, ending sessions; and the groups of partners that they see."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_variables

from messaging import mailing
from messaging.access.selectors import people
from messaging.access.selectors.people import UserRow
from messaging.access.selectors.reach import read_id
from messaging.access.services import second_factor, sessions, users
from messaging.access.services.users import Invitation
from messaging.console.access import actor, requires
from messaging.console.filters import Filter, bar
from messaging.console.naming import partner_key, partners_in, posted_key
from messaging.console.rendering import dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column, order_of, sorting, table
from messaging.console_links import invitation_link
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, WrongState
from messaging.journal import audit
from messaging.templatetags.hub import ago, icon, state
from partners.models import PartnerGroup
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, number, pgettext_lazy
from rmhub.roles import NAMES, ROLES, Role

SCOPE = "users:manage"
_ONCE = "user_form"
ROLE_WORDS = {
    "viewer": gettext_lazy("Viewer: sees everything but documents"),
    "operator": gettext_lazy("Operator: also documents, retry, resume, pause, in doubt, incidents"),
    "admin": gettext_lazy("Admin: also partners, agreements, skip and cancel, users, tokens, settings"),
    "partner": gettext_lazy(
        "Partner: a partner's own user, who sees that partner's messages and connection in the partner portal"
    ),
    "": gettext_lazy("No role: cannot open anything"),
}


def _user(row: UserRow) -> SafeString:
    name = row.user.get_username()
    full = format_html('<div class="text-faint">{}</div>', row.user.first_name) if row.user.first_name else ""
    return format_html('<a href="{}">{}</a>{}', reverse("console:user", args=[name]), name, full)


def _sees(row: UserRow) -> str:
    if row.role == Role.PARTNER:
        return _("the portal of {partner}").format(partner=row.partner)
    return (", ".join(group.name for group in row.groups) or _("no partner")) if row.limited else _("all partners")


def _role(row: UserRow) -> str:
    return NAMES[row.role] if row.role is not None else _("none")


_LOGINS = {
    "single_sign_on": gettext_lazy("single sign-on"),
    "invited": gettext_lazy("invited"),
    "password_and_code": gettext_lazy("password and code"),
    "password": gettext_lazy("password"),
}


_USERS = (
    Column(gettext_lazy("Name"), _user, order="name"),
    Column(gettext_lazy("Role"), _role),
    Column(gettext_lazy("Sees"), _sees),
    Column(gettext_lazy("Log-in"), lambda row: _LOGINS[row.login]),
    Column(gettext_lazy("State"), lambda row: state("user", "active" if row.user.is_active else "off"), "nowrap"),
    Column(gettext_lazy("Last log-in"), lambda row: ago(row.user.last_login, _("never")), "nowrap", order="seen"),
)


FILTERS = (
    Filter("q", gettext_lazy("Name or address contains"), kind="search", most=150),
    Filter(
        "show",
        gettext_lazy("Show"),
        choices=(("", gettext_lazy("Active")), ("off", gettext_lazy("Switched off")), ("all", gettext_lazy("All"))),
    ),
)


@requires(SCOPE)
def user_list(request: HttpRequest) -> HttpResponse:
    """Everybody, by name; `?show=` active or off, `?q=` in names and addresses."""
    show = request.GET.get("show", "active")
    show = show if show in ("active", "off", "all") else "active"
    text = request.GET.get("q", "").strip()[:150].replace("\x00", "")
    given = {"show": "" if show == "active" else show, "q": text}
    found = people.users(search=text, active={"active": True, "off": False}.get(show))
    order = order_of(request, people.ORDERS)[1]
    context = keyset_page(request, "console.users", found, order=order, filters=given)
    context |= {
        "table": table(_("Users"), sorting(request, _USERS, people.ORDERS), map(people.row, context["rows"])),
        "bar": bar(request, _("users"), FILTERS, given),
    }
    context["filtered"] = text or show != "active"
    return page(request, "console/access/users.html", context)


@requires(SCOPE)
def user_page(request: HttpRequest, username: str) -> HttpResponse:
    """One person: role, partners, sessions, and what was done to them."""
    row = people.user(username)
    verbs = [
        (slug, label, sign)
        for slug, (label, sign, __, ___) in VERBS.items()
        if slug == ("switch-on" if not row.user.is_active else "switch-off")
        or (slug == "reset-factor" and row.second_factor)
        or slug == "end-sessions"
    ]
    context = {
        "row": row,
        "verbs": verbs,
        "role": _role(row),
        "role_words": ROLE_WORDS[row.role.value if row.role else ""],
        "sessions": list(people.sessions(user_id=row.user.pk).order_by("-last_seen_at")[:50]),
        "methods": sessions.METHODS,
        "here": request.session.session_key,
        "audit": people.audit(row.user),
    }
    return page(request, "console/access/user.html", context)


@sensitive_variables("invitation")
@requires(SCOPE, methods=("GET", "POST"))
def user_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the person and shows their invitation this once."""
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        # A reload posts the form again.
        if request.POST.get("once", "-") != request.session.get(_ONCE):
            notices.error(
                request,
                _("This form was already submitted. If the invitation is lost, create a new one on their page."),
            )
            return see_other("console:users")
        try:
            user, invitation = users.user_create(
                username=posted(request, "username"),
                actor=actor(request),
                reason=posted(request, "reason"),
                **_given(request),
            )
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            del request.session[_ONCE]
            return _invited(request, user, invitation)
    request.session[_ONCE] = secrets.token_urlsafe(16)
    context = _form(request, None, errors) | {"once": request.session[_ONCE]}
    return page(request, "console/access/user_form.html", context, status=422 if errors else 200)


@requires(SCOPE, methods=("GET", "POST"))
def user_edit(request: HttpRequest, username: str) -> HttpResponse:
    """Role, partners, name and address."""
    row = people.user(username)
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            users.user_change(
                user_id=row.user.pk, actor=actor(request), reason=posted(request, "reason"), **_given(request)
            )
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except WrongState as error:
            errors, status = problems(error), 409
        else:
            notices.success(
                request, _("{username} is changed. It takes effect with their next request.").format(username=username)
            )
            return see_other("console:user", username)
    return page(request, "console/access/user_form.html", _form(request, row, errors), status=status)


def _switch_off(request: HttpRequest, row: UserRow, reason: str) -> str:
    users.user_change(user_id=row.user.pk, actor=actor(request), reason=reason, is_active=False)
    return _("{name} is switched off and logged out everywhere.").format(name=row.user.get_username())


def _switch_on(request: HttpRequest, row: UserRow, reason: str) -> str:
    users.user_change(user_id=row.user.pk, actor=actor(request), reason=reason, is_active=True)
    return _("{name} can log in again.").format(name=row.user.get_username())


def _reset_factor(request: HttpRequest, row: UserRow, reason: str) -> str:
    second_factor.second_factor_remove(user=row.user, actor=actor(request), reason=reason)
    said = _("{name} logs in without a second factor until they set up a new one.")
    return said.format(name=row.user.get_username())


def _end_sessions(request: HttpRequest, row: UserRow, reason: str) -> str:
    count = sessions.sessions_end(user=row.user, actor=actor(request), reason=reason)
    said = ngettext("{count} session of {name} ended.", "{count} sessions of {name} ended.", count)
    return said.format(count=count, name=row.user.get_username())


Act = Callable[[HttpRequest, UserRow, str], str]
# slug -> label, icon, what it does to the person, what is done.
VERBS: dict[str, tuple[str, str, tuple[str, ...], Act]] = {
    "switch-off": (
        pgettext_lazy("user", "Switch off"),
        "ban",
        (
            gettext_lazy("They are logged out everywhere at once, and cannot log in."),
            gettext_lazy("Their API tokens are refused from now on."),
            gettext_lazy("What they did remains recorded under their name. They can be switched on again."),
        ),
        _switch_off,
    ),
    "switch-on": (
        pgettext_lazy("user", "Switch on"),
        "check",
        (gettext_lazy("They can log in again, and their API tokens work again."),),
        _switch_on,
    ),
    "reset-factor": (
        gettext_lazy("Reset second factor"),
        "shield-x",
        (
            gettext_lazy("Their device and their recovery codes are no longer accepted."),
            gettext_lazy(
                "They log in with the password alone until they set up a new one: make sure that they asked for it."
            ),
        ),
        _reset_factor,
    ),
    "end-sessions": (
        gettext_lazy("End all sessions"),
        "logout",
        (gettext_lazy("They must log in again everywhere. What they have typed and not sent is lost."),),
        _end_sessions,
    ),
}


@requires(SCOPE, methods=("GET", "POST"))
def user_verb(request: HttpRequest, username: str, verb: str) -> HttpResponse:
    """The dialog of one act, and the act."""
    row = people.user(username)
    known = VERBS.get(verb)
    if known is None:
        raise Http404(_("There is no verb {verb}.").format(verb=verb))
    label, sign, effects, act = known

    def do() -> HttpResponse:
        reason = posted(request, "reason")
        audit.require_reason(reason)
        try:
            notices.success(request, act(request, row, reason))
        except NotFound as error:  # there is nothing to take away
            raise WrongState(error.detail, state="") from error
        return see_other("console:user", username)

    back = reverse("console:user", args=[username])
    shown = {
        "title": _("{verb}: {name}").format(verb=label, name=username),
        "crumbs": [(reverse("console:users"), _("Users")), (back, username)],
        "back": back,
        "effects": effects,
        "button": label,
        "sign": sign,
    }
    return dialog(request, "console/parts/question.html", lambda: shown, do)


@sensitive_variables("invitation")
@requires(SCOPE, methods=("GET", "POST"))
def user_invite(request: HttpRequest, username: str) -> HttpResponse:
    """The form; POST makes a new invitation and shows it this once."""
    row = people.user(username)
    if request.method == "POST":
        if request.POST.get("once", "-") != request.session.get(_ONCE):
            notices.error(
                request, _("This form was already submitted. An invitation is shown only once; create a new one.")
            )
            return see_other("console:user", username)
        del request.session[_ONCE]
        try:
            invitation = users.user_invite(user=row.user, actor=actor(request), reason=posted(request, "reason"))
        except WrongState as error:
            notices.error(request, error.detail)
            return see_other("console:user", username)
        return _invited(request, row.user, invitation)
    request.session[_ONCE] = secrets.token_urlsafe(16)
    context = {"row": row, "once": request.session[_ONCE], "given": {}, "mails": mailing.is_set_up()}
    return page(request, "console/access/user_invite.html", context)


@requires(SCOPE, methods=("POST",))
def user_session_end(request: HttpRequest, username: str, reference: str) -> HttpResponse:
    """Ends one session of theirs."""
    row = people.user(username)
    try:
        sessions.session_end(session_id=read_id("ses", reference), actor=actor(request), of=row.user)
    except ApplicationError as error:
        notices.error(request, error.detail)
    else:
        notices.success(request, _("The session has ended."))
    return see_other("console:user", username)


@sensitive_variables("link", "invitation")
def _invited(request: HttpRequest, user: User, invitation: Invitation) -> HttpResponse:
    """Sends the link by mail when that is wanted, and else, or when it fails, shows it this once."""
    days, link, username = settings.PASSWORD_RESET_TIMEOUT // 86_400, invitation_link(invitation), user.get_username()
    if request.POST.get("mail") == "on":
        error = users.invitation_mail(user=user, link=link, actor=actor(request))
        if not error:
            notices.success(request, _("The invitation was sent to {email}.").format(email=user.email))
            return see_other("console:user", username)
        notices.error(request, _("The invitation was not sent by mail. {error}").format(error=error))
    context = {"username": username, "link": link, "days": days}
    return page(request, "console/access/user_invited.html", context)


def _form(request: HttpRequest, row: UserRow | None, errors: list[tuple[str, str]]) -> dict[str, Any]:
    """The form as it was sent, else as the person is."""
    if request.method == "POST":
        given = {
            name: posted(request, name) for name in ("username", "full_name", "email", "role", "partner", "reason")
        }
        limited, chosen = request.POST.get("limited") == "on", request.POST.getlist("groups")
    elif row is not None:
        user = row.user
        given = {"username": user.get_username(), "full_name": user.first_name, "email": user.email}
        given["role"] = row.role.value if row.role else ""
        given["partner"] = row.partner.name if row.partner else ""
        limited, chosen = row.limited, [group.public_id for group in row.groups]
    else:
        given, limited, chosen = {"role": "viewer"}, False, []
    return {
        "row": row,
        "given": given,
        "limited": limited,
        "chosen": chosen,
        "groups": list(people.groups().order_by("name")),
        "roles": [(role.value, ROLE_WORDS[role.value]) for role in ROLES] + [("", ROLE_WORDS[""])],
        "errors": errors,
        "mails": mailing.is_set_up(),
    }


def _given(request: HttpRequest) -> dict[str, Any]:
    return {
        "role": posted(request, "role"),
        "full_name": posted(request, "full_name"),
        "email": posted(request, "email"),
        "limited": request.POST.get("limited") == "on",
        "groups": _groups(request.POST.getlist("groups")),
        "partner": posted_key(request, "partner", partner_key),
    }


def _groups(texts: list[str]) -> list[uuid.UUID]:
    try:
        return [read_id("grp", text) for text in texts]
    except BadPublicId as error:
        raise InvalidSubmission({"groups": [_("One of these partner groups does not exist (any more).")]}) from error


# --- partner groups ---


_DELETE = '<a class="btn btn-sm" href="{}" data-dialog>{}{}<span class="visually-hidden"> {}</span></a>'


def _group(group: PartnerGroup) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("console:group-edit", args=[group.public_id]), group.name)


def _delete(group: PartnerGroup) -> SafeString:
    return format_html(
        _DELETE, reverse("console:group-delete", args=[group.public_id]), icon("x"), _("Delete…"), group.name
    )


_GROUPS = (
    Column(gettext_lazy("Name"), _group),
    Column(gettext_lazy("Partners"), lambda group: group.size),
    Column(gettext_lazy("Description"), lambda group: group.description or "–"),
    Column(gettext_lazy("Actions"), _delete, "cell-end"),
)


@requires(SCOPE)
def group_list(request: HttpRequest) -> HttpResponse:
    """All groups, by name."""
    context = keyset_page(request, "console.groups", people.groups(), order=("name",), filters={})
    context["table"] = table(_("Partner groups, by name"), _GROUPS, context["rows"])
    return page(request, "console/access/groups.html", context)


@requires(SCOPE, methods=("GET", "POST"))
def group_new(request: HttpRequest) -> HttpResponse:
    """A new group."""
    return _group_form(request, None)


@requires(SCOPE, methods=("GET", "POST"))
def group_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """A group's name and partners."""
    return _group_form(request, people.group(read_id("grp", reference)))


@requires(SCOPE, methods=("GET", "POST"))
def group_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a group that nobody is limited to."""
    group = people.group(read_id("grp", reference))

    def do() -> HttpResponse:
        users.group_delete(group_id=group.pk, actor=actor(request), reason=posted(request, "reason"))
        notices.success(request, _("The group {name} is deleted.").format(name=group.name))
        return see_other("console:groups")

    back, title = reverse("console:groups"), _("Delete {name}").format(name=group.name)
    shown = {
        "title": title,
        "crumbs": [(reverse("console:users"), _("Users")), (back, _("Partner groups"))],
        "back": back,
        "effects": [
            _("Its partners ({count}) stay as they are.").format(count=number(group.size)),  # type: ignore[attr-defined]
            _("It can be deleted only when no user, token or rule is limited to it."),
        ],
        "button": title,
        "sign": "x",
    }
    return dialog(request, "console/parts/question.html", lambda: shown, do)


def _group_form(request: HttpRequest, group: PartnerGroup | None) -> HttpResponse:
    errors: list[tuple[str, str]] = []
    given: dict[str, str] = {}
    added = ""
    if request.method == "POST":
        given = {name: posted(request, name) for name in ("name", "description", "partners", "adding", "reason")}
        try:
            chosen, adding = _members(given)
            if "add" not in request.POST:
                return _group_saved(request, group, given, {**chosen, **adding})
            if not adding:
                raise InvalidSubmission({"adding": [_("Type the name of a partner first.")]})
            added = ", ".join(adding.values())
            given |= {"partners": "\n".join({**chosen, **adding}.values()), "adding": ""}
        except InvalidSubmission as error:
            errors = problems(error)
    elif group is not None:
        members = "\n".join(party.name for party in group.partners.all())
        given = {"name": group.name, "description": group.description, "partners": members}
    wrong: dict[str, list[str]] = {}
    for field, text in errors:
        wrong.setdefault(field, []).append(text)
    context = {"group": group, "given": given, "added": added, "goes_on": bool(added), "errors": errors, "wrong": wrong}
    return page(request, "console/access/group_form.html", context, status=422 if errors else 200)


def _members(given: Mapping[str, str]) -> list[dict[uuid.UUID, str]]:
    """The partners of the list, and the one that was typed beside it; names by key. Raises InvalidSubmission."""
    read, wrong = [], {}
    for field in ("partners", "adding"):
        try:
            read.append(partners_in(given[field]))
        except ValidationError as error:
            wrong[field] = error.messages
    if wrong:
        raise InvalidSubmission(wrong)
    return read


def _group_saved(
    request: HttpRequest, group: PartnerGroup | None, given: Mapping[str, str], chosen: Collection[uuid.UUID]
) -> HttpResponse:
    values: dict[str, Any] = {name: given[name] for name in ("name", "description", "reason")}
    values |= {"partners": list(chosen), "actor": actor(request)}
    saved = users.group_create(**values) if group is None else users.group_change(group_id=group.pk, **values)
    notices.success(request, _("The group {name} is saved.").format(name=saved.name))
    return see_other("console:groups")
