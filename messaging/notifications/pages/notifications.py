"""Notification rules: the list, the form, a test, and what was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import time
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging import mailing
from messaging.access.selectors.reach import read_id
from messaging.choices import NotificationChannel, NotificationState, Severity
from messaging.console import cells
from messaging.console.access import actor, requires
from messaging.console.rendering import dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column, table
from messaging.deliveries.pages.triggers import once, used_already
from messaging.exceptions import InvalidSubmission, Stale
from messaging.models import Notification, NotificationRule
from messaging.notifications import selectors
from messaging.notifications.pages.webhooks import by_subject
from messaging.notifications.services import notifying
from messaging.notifications.services import rules as services
from messaging.notifications.services.rules import NOTIFIABLE, RuleFields, described
from messaging.notifications.services.texts import event_name
from messaging.templatetags.hub import ago, icon, until
from messaging.templatetags.hub import state as state_of
from partners.fields import duration, read_duration
from partners.models import PartnerGroup
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, inside

SCOPE = "notifications:manage"
_ONCE = "notification_form"
_MOST_CHOICES = 200
# What a new rule tells of, before anything else is chosen.
_FIRST = ("incident.opened", "incident.resolved")


def _state(one: Notification) -> SafeString:
    again = format_html(_("again {}"), until(one.due_at)) if one.due_at and one.attempts else ""
    return cells.joined(state_of("notification", one.state), cells.below(again))


def _said(one: Notification) -> SafeString:
    text = '<details class="told-text"><summary>{}</summary><pre class="letter">{}</pre></details>'
    return cells.joined(
        cells.link(cells.to("incident", one.incident), one.subject) if one.incident else one.subject,
        cells.below(one.last_error),
        format_html(text, _("Text"), one.body),
    )


def _told(rows: Iterable[Notification], *, one_rule: bool = False) -> dict[str, Any]:
    """The table of what was told; on the page of a rule without its name."""
    rule = Column(_("Rule"), lambda one: cells.link(cells.to("notification-rule", one.rule.public_id), one.rule.name))
    columns = (
        Column(_("Time"), lambda one: ago(one.created_at), "nowrap", zoned=True),
        Column(_("State"), _state, "nowrap"),
        *(() if one_rule else (rule,)),
        Column(_("Notification"), _said, "wrap"),
        Column(_("Folded"), lambda one: cells.number(one.folded), "num"),
        Column(_("Attempts"), lambda one: one.attempts, "num"),
    )
    about = lambda one: {**cells.row_id(one), "data-testid": "notification"}  # noqa: E731
    return table(_("Notifications, newest first"), columns, rows, about=about, keys=True)


def _switch(rule: NotificationRule) -> SafeString:
    look = ("green", "on", "circle-filled", _("On")) if rule.enabled else ("secondary", "off", "minus", _("Off"))
    said = '<span class="state state-{}" data-state="{}">{}<span>{}</span></span>'
    return format_html(said, look[0], look[1], icon(look[2], "state-icon"), look[3])


def whom(rule: NotificationRule) -> str:
    """Who is notified, in a few words."""
    return str(rule.endpoint or ", ".join(rule.recipients) or rule.get_channel_display())


def _events(rule: NotificationRule) -> str:
    """What is reported, in words."""
    return ", ".join(map(event_name, rule.events))


def _only(rule: NotificationRule) -> str:
    least = "" if rule.least == Severity.INFO else inside(Severity(rule.least).label)
    of = _("partners of {name}").format(name=rule.group.name) if rule.group else ""
    return "; ".join(one for one in (least, of, ", ".join(rule.causes)) if one) or "—"


_RULES = (
    Column(
        gettext_lazy("Rule"),
        lambda rule: cells.link(cells.to("notification-rule", rule.public_id), rule.name, "strong", data_open=True),
    ),
    Column(gettext_lazy("State"), _switch),
    Column(gettext_lazy("Events"), _events),
    Column(gettext_lazy("Only"), _only),
    Column(gettext_lazy("Recipients"), lambda rule: whom(rule)),
)


@requires(SCOPE)
def rule_list(request: HttpRequest) -> HttpResponse:
    """Who is notified of what."""
    context = keyset_page(request, "console.notification-rules", selectors.rules(), order=("name",), filters={})
    newest = selectors.notifications().order_by("-id")[:10]
    shown = list(newest)
    context |= {"newest": shown, "no_mail": not mailing.is_set_up(), "told": _told(shown)}
    context["table"] = table(_("Notification rules"), _RULES, context["rows"], about=cells.row_id, keys=True)
    return page(request, "console/notifications/notification_rules.html", context)


@requires(SCOPE)
def notification_list(request: HttpRequest) -> HttpResponse:
    """Notification log, newest first."""
    state = request.GET.get("state", "")
    state = state if state in NotificationState.values else ""
    found = selectors.notifications(states=(state,) if state else ())
    context = keyset_page(request, "console.notifications", found, order=("-id",), filters={"state": state})
    context |= {"state": state, "states": NotificationState.choices, "table": _told(context["rows"])}
    return page(request, "console/notifications/notifications.html", context)


@requires(SCOPE)
def rule_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One rule with what was told by it."""
    rule = _found(reference)
    found = selectors.notifications(rule_id=rule.pk)
    context = keyset_page(request, f"console.notification-rule.{rule.pk}", found, order=("-id",), filters={})
    context |= {
        "rule": rule,
        "events": _events(rule),
        "window": duration(rule.window),
        "no_mail": not mailing.is_set_up(),
        "whom": whom(rule),
    }
    context["escalates"] = duration(rule.escalate_after)
    context["table"] = _told(context["rows"], one_rule=True)
    return page(request, "console/notifications/notification_rule.html", context)


@sensitive_post_parameters("secret")
@requires(SCOPE, methods=("GET", "POST"))
@sensitive_variables()
def rule_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the rule."""
    if request.method != "POST":
        return _form(request, None, _texts(NotificationRule(events=_FIRST, channel=NotificationChannel.MAIL)))
    if used_already(request, _ONCE):
        notices.error(request, _("This form was already submitted: see whether the rule is in the list."))
        return see_other("console:notification-rules")
    try:
        made = services.rule_create(actor=actor(request), reason=posted(request, "reason"), **_read(request.POST))
    except InvalidSubmission as error:
        return _form(request, None, _typed(request.POST), errors=problems(error), status=422)
    del request.session[_ONCE]
    notices.success(request, _("{name} reports what happens from now on.").format(name=made.name))
    return see_other("console:notification-rule", made.public_id)


@sensitive_post_parameters("secret")
@requires(SCOPE, methods=("GET", "POST"))
@sensitive_variables()
def rule_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """The same form for a rule that there is."""
    rule = _found(reference)
    if request.method != "POST":
        return _form(request, rule, _texts(rule))
    try:
        changed = services.rule_update(rule_id=rule.pk, **_decided(request), **_read(request.POST))
    except Stale as error:
        return _form(request, _found(reference), _typed(request.POST), errors=problems(error), status=409)
    except InvalidSubmission as error:
        return _form(request, rule, _typed(request.POST), errors=problems(error), status=422)
    notices.success(request, _("{name} is changed.").format(name=changed.name))
    return see_other("console:notification-rule", rule.public_id)


@requires(SCOPE, methods=("POST",))
def rule_test(request: HttpRequest, reference: str) -> HttpResponse:
    """Sends one notification by the rule now, and says what came of it."""
    one = notifying.rule_test(rule_id=read_id("rule", reference), actor=actor(request))
    if one.last_error:
        notices.error(request, _("The test could not be sent: {error}").format(error=one.last_error))
    else:
        channel = NotificationChannel(one.rule.channel)
        said = {
            NotificationChannel.MAIL: _("The test was taken by the mail server."),
            NotificationChannel.WEBHOOK: _("The test was taken by the endpoint."),
        }
        other = _("The test was taken by {channel}.").format(channel=channel.label)
        notices.success(request, said.get(channel, other))
    return see_other("console:notification-rule", reference)


@requires(SCOPE, methods=("GET", "POST"))
def rule_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a rule."""
    rule = _found(reference)

    def delete() -> HttpResponse:
        services.rule_delete(rule_id=rule.pk, **_decided(request))
        notices.success(request, _("{name} is gone.").format(name=rule.name))
        return see_other("console:notification-rules")

    def shown() -> dict[str, Any]:
        href = reverse("console:notification-rule", args=[rule.public_id])
        crumbs = ((reverse("console:notification-rules"), _("Notifications")), (href, rule.name))
        return {
            "title": _("Delete {name}").format(name=rule.name),
            "crumbs": crumbs,
            "href": href,
            "revision": services.revision(rule),
        }

    return dialog(request, "console/notifications/notification_delete_form.html", shown, delete)


def _found(reference: str) -> NotificationRule:
    return selectors.rule(read_id("rule", reference))


def _read(given: QueryDict) -> RuleFields:
    """The values of a posted form as the services take them. Raises InvalidSubmission for what cannot be read."""
    texts = _typed(given)
    errors: dict[str, list[str]] = {}
    values: RuleFields = {
        "name": texts["name"].strip(),
        "enabled": texts["enabled"] == "on",
        "events": texts["events"],
        "causes": texts["causes"].split(),
        "channel": texts["channel"],
        "recipients": texts["recipients"].split(),
        "least": texts["least"] or Severity.INFO,
        "quiet_zone": texts["quiet_zone"].strip() or "UTC",
        "address": texts["address"].strip(),
        "secret": given.get("secret", "").strip(),
    }
    try:
        values["window"] = read_duration(texts["window"]) if texts["window"].strip() else 0
    except ValueError as error:
        errors["window"] = [str(error)]
    for name in ("quiet_from", "quiet_to"):
        try:
            values[name] = time.fromisoformat(texts[name].strip()) if texts[name].strip() else None
        except ValueError:
            errors[name] = [_("A time of the day, such as 22:00.")]
    try:
        values["escalate_after"] = read_duration(texts["escalate_after"]) if texts["escalate_after"].strip() else 0
    except ValueError as error:
        errors["escalate_after"] = [str(error)]
    try:
        values["escalate_to"] = read_id("rule", texts["escalate_to"]) if texts["escalate_to"] else None
        values["group"] = read_id("grp", texts["group"]) if texts["group"] else None
        values["endpoint"] = read_id("whe", texts["endpoint"]) if texts["endpoint"] else None
    except BadPublicId as error:
        errors[""] = [str(error)]
    if errors:
        raise InvalidSubmission(errors)
    return values


def _typed(given: QueryDict) -> dict[str, Any]:
    names = (
        *("name", "enabled", "causes", "channel", "recipients", "window", "group", "endpoint", "least", "address"),
        *("quiet_from", "quiet_to", "quiet_zone", "escalate_after", "escalate_to"),
    )
    texts: dict[str, Any] = {name: given.get(name, "").replace("\x00", "") for name in names}
    return texts | {"events": [one for one in given.getlist("events") if one in NOTIFIABLE]}


def _texts(rule: NotificationRule) -> dict[str, Any]:
    """What stands in the fields for a rule."""
    return described(rule) | {
        "enabled": "on" if rule.enabled else "",
        "causes": "\n".join(rule.causes),
        "recipients": "\n".join(rule.recipients),
        "window": duration(rule.window) if rule.window else "0",
        "quiet_from": f"{rule.quiet_from:%H:%M}" if rule.quiet_from is not None else "",
        "quiet_to": f"{rule.quiet_to:%H:%M}" if rule.quiet_to is not None else "",
        "escalate_after": duration(rule.escalate_after) if rule.escalate_after else "",
        "escalate_to": rule.escalate_to.public_id if rule.escalate_to is not None else "",
        "group": rule.group.public_id if rule.group is not None else "",
        "endpoint": rule.endpoint.public_id if rule.endpoint is not None else "",
    }


def _form(
    request: HttpRequest,
    rule: NotificationRule | None,
    texts: Mapping[str, Any],
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "rule": rule,
        "revision": services.revision(rule) if rule is not None else "",
        "texts": texts,
        "errors": errors or [],
        "given": request.POST,
        "kinds": [(about, [(one, event_name(one)) for one in kinds]) for about, kinds in by_subject(NOTIFIABLE)],
        "groups": list(PartnerGroup.objects.order_by("name")[:_MOST_CHOICES]),
        "endpoints": list(selectors.webhook_endpoints().order_by("id")[:_MOST_CHOICES]),
        "channels": NotificationChannel.choices,
        "severities": Severity.choices,
        "others": [one for one in selectors.rules().order_by("name")[:_MOST_CHOICES] if one != rule],
        "has_secret": rule is not None and bool(rule.secret_encrypted),
        "no_mail": not mailing.is_set_up(),
        "once": once(request, _ONCE) if rule is None else "",
    }
    return page(request, "console/notifications/notification_form.html", context, status=status)


def _decided(request: HttpRequest) -> dict[str, Any]:
    """Who decides, why, and upon which revision."""
    return {"actor": actor(request), "reason": posted(request, "reason"), "expected": request.POST.get("revision", "")}
