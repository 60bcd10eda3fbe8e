"""Notification rules: the list, the form, a test, and what was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict

from messaging.access.selectors.reach import read_id
from messaging.choices import NotificationChannel, NotificationState
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale
from messaging.models import NotificationRule
from messaging.notifications.selectors import notifications as selectors
from messaging.notifications.services import notifying
from messaging.notifications.services import rules as services
from messaging.notifications.services.rules import NOTIFIABLE, RuleFields, described
from messaging.overview.selectors import records
from partners.fields import duration, read_duration
from partners.models import PartnerGroup
from rmhub.ids import BadPublicId

SCOPE = "notifications:manage"
_ONCE = "notification_form"
_MOST_CHOICES = 200
# What a new rule tells of, before anything else is chosen.
_FIRST = ("incident.opened", "incident.resolved")


@requires(SCOPE)
def rule_list(request: HttpRequest) -> HttpResponse:
    """Who is told of what."""
    context = keyset_page(request, "console.notification-rules", selectors.rules(), order=("name",), filters={})
    newest = selectors.notifications().order_by("-id")[:10]
    return page(
        request,
        "console/notifications/notification_rules.html",
        context | {"newest": list(newest), "no_mail": _no_mail()},
    )


@requires(SCOPE)
def notification_list(request: HttpRequest) -> HttpResponse:
    """What was told, newest first."""
    state = request.GET.get("state", "")
    states = (state,) if state in NotificationState.values else ()
    context = keyset_page(
        request,
        "console.notifications",
        selectors.notifications(states=states),
        order=("-id",),
        filters={"state": "".join(states)},
    )
    context |= {"state": "".join(states), "states": NotificationState.choices}
    return page(request, "console/notifications/notifications.html", context)


@requires(SCOPE)
def rule_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One rule with what was told by it."""
    rule = selectors.rule(read_id("rule", reference))
    found = selectors.notifications(rule_id=rule.pk)
    context = keyset_page(request, f"console.notification-rule.{rule.pk}", found, order=("-id",), filters={})
    context |= {"rule": rule, "window": duration(rule.window), "no_mail": _no_mail()}
    return page(request, "console/notifications/notification_rule.html", context)


@requires(SCOPE, methods=("GET", "POST"))
def rule_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the rule."""
    if request.method != "POST":
        return _form(request, None, _texts(None))
    if used_already(request, _ONCE):
        notices.error(request, "This form was used already: see whether the rule is in the list.")
        return see_other("console:notification-rules")
    values, errors = _read(request.POST)
    if not errors:
        try:
            made = services.rule_create(actor=actor(request), reason=_reason(request), **values)
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            del request.session[_ONCE]
            notices.success(request, f"{made.name} tells of what happens from now on.")
            return see_other("console:notification-rule", made.public_id)
    return _form(request, None, _posted(request.POST), errors=errors)


@requires(SCOPE, methods=("GET", "POST"))
def rule_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a rule that there is."""
    rule = selectors.rule(read_id("rule", reference))
    if request.method != "POST":
        return _form(request, rule, _texts(rule))
    values, errors = _read(request.POST)
    status = 0
    if not errors:
        try:
            services.rule_update(
                rule_id=rule.pk,
                actor=actor(request),
                reason=_reason(request),
                expected=request.POST.get("revision", ""),
                **values,
            )
        except Stale as error:
            errors, status = problems(error), 409
            rule = selectors.rule(rule.pk)
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            notices.success(request, f"{values['name']} is changed.")
            return see_other("console:notification-rule", rule.public_id)
    return _form(request, rule, _posted(request.POST), errors=errors, status=status)


@requires(SCOPE, methods=("POST",))
def rule_test(request: HttpRequest, reference: str) -> HttpResponse:
    """Sends one notification by the rule now, and says what came of it."""
    one = notifying.rule_test(rule_id=read_id("rule", reference), actor=actor(request))
    if one.last_error:
        notices.error(request, f"The test did not get out: {one.last_error}")
    else:
        notices.success(request, f"The test was taken by the {'mail server' if _is_mail(one.rule) else 'endpoint'}.")
    return see_other("console:notification-rule", reference)


@requires(SCOPE, methods=("GET", "POST"))
def rule_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a rule."""
    rule = selectors.rule(read_id("rule", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            services.rule_delete(
                rule_id=rule.pk,
                actor=actor(request),
                reason=_reason(request),
                expected=request.POST.get("revision", ""),
            )
        except ApplicationError as error:
            errors, status = problems(error), 409 if isinstance(error, Stale) else 422
        else:
            notices.success(request, f"{rule.name} is gone.")
            return see_other("console:notification-rules")
    context = {"rule": rule, "revision": services.revision(rule), "errors": errors, "given": request.POST}
    return page(
        request,
        "console/notifications/notification_delete.html",
        context,
        fragments={"dialog": "console/notifications/notification_delete_form.html"},
        status=status,
    )


def _read(posted: QueryDict) -> tuple[RuleFields, list[tuple[str, str]]]:
    """The values of a posted form as the services take them, and what cannot be read."""
    texts = _posted(posted)
    errors: list[tuple[str, str]] = []
    values: RuleFields = {
        "name": texts["name"].strip(),
        "enabled": texts["enabled"] == "on",
        "events": texts["events"],
        "causes": texts["causes"].split(),
        "channel": texts["channel"],
        "recipients": texts["recipients"].split(),
    }
    try:
        values["window"] = read_duration(texts["window"]) if texts["window"].strip() else 0
    except ValueError as error:
        errors.append(("window", str(error)))
    try:
        values["group"] = read_id("grp", texts["group"]) if texts["group"] else None
        values["endpoint"] = read_id("whe", texts["endpoint"]) if texts["endpoint"] else None
    except BadPublicId as error:
        errors.append(("", str(error)))
    return values, errors


def _posted(posted: QueryDict) -> dict[str, Any]:
    names = ("name", "enabled", "causes", "channel", "recipients", "window", "group", "endpoint")
    texts: dict[str, Any] = {name: posted.get(name, "").replace("\x00", "") for name in names}
    return texts | {"events": [one for one in posted.getlist("events") if one in NOTIFIABLE]}


def _texts(rule: NotificationRule | None) -> dict[str, Any]:
    """What stands in the fields for a rule."""
    if rule is None:
        return {
            "name": "",
            "enabled": "on",
            "events": list(_FIRST),
            "causes": "",
            "channel": NotificationChannel.MAIL.value,
            "recipients": "",
            "window": "1 h",
            "group": "",
            "endpoint": "",
        }
    known = described(rule)
    return known | {
        "enabled": "on" if rule.enabled else "",
        "causes": "\n".join(rule.causes),
        "recipients": "\n".join(rule.recipients),
        "window": duration(rule.window) if rule.window else "0",
        "group": rule.group.public_id if rule.group is not None else "",
        "endpoint": rule.endpoint.public_id if rule.endpoint is not None else "",
    }


def _form(
    request: HttpRequest,
    rule: NotificationRule | None,
    texts: Mapping[str, Any],
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 0,
) -> HttpResponse:
    context = {
        "rule": rule,
        "revision": services.revision(rule) if rule is not None else "",
        "texts": texts,
        "errors": errors or [],
        "given": request.POST,
        "kinds": _kinds(),
        "groups": list(PartnerGroup.objects.order_by("name")[:_MOST_CHOICES]),
        "endpoints": list(records.webhook_endpoints().order_by("id")[:_MOST_CHOICES]),
        "channels": NotificationChannel.choices,
        "no_mail": _no_mail(),
        "once": once(request, _ONCE) if rule is None else "",
    }
    return page(
        request, "console/notifications/notification_form.html", context, status=status or (422 if errors else 200)
    )


def _kinds() -> list[tuple[str, list[str]]]:
    """The events by what they are about."""
    found: dict[str, list[str]] = {}
    for kind in NOTIFIABLE:
        found.setdefault(kind.partition(".")[0].replace("_", " ").capitalize(), []).append(kind)
    return list(found.items())


def _is_mail(rule: NotificationRule) -> bool:
    return rule.channel == NotificationChannel.MAIL


def _no_mail() -> bool:
    """Whether no mail server is set up."""
    return not (settings.RMHUB_MAIL_SERVER or settings.RMHUB_SMTP_RELAY)


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip().replace("\x00", "")
