"""Triggers: the list, the page, and the dialogs of their verbs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_variables

from messaging.choices import Consult, ServiceKind, TriggerState
from messaging.console.access import Person, actor, person, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.deliveries.selectors import deliveries, doubts, triggers
from messaging.deliveries.selectors.triggers import TriggerRow
from messaging.deliveries.services import triggering
from messaging.exceptions import InvalidSubmission, Stale, WrongState
from messaging.models import Trigger
from messaging.overview.selectors import records
from messaging.pairs.selectors import screens
from rmhub import clock

_ORDER = ("severity", "name")
_ONCE = "trigger_secret_form"


@dataclass(frozen=True, slots=True)
class TriggerVerb:
    """One verb of `services.triggering`."""

    slug: str
    label: str
    icon: str
    colour: str
    scope: str
    forever: str
    presets: tuple[str, ...]
    done: str


VERBS: dict[str, TriggerVerb] = {
    verb.slug: verb
    for verb in (
        TriggerVerb(
            "resume",
            "Resume",
            "player-play",
            "primary",
            "triggers:operate",
            "What the application has processed cannot be taken back.",
            ("The application is up again", "The resolver is up again", "Fixed on our side"),
            "resumed",
        ),
        TriggerVerb(
            "suspend",
            "Suspend",
            "player-pause",
            "",
            "triggers:operate",
            "Nothing here is final: resume the trigger and it goes on.",
            ("The application's maintenance window", "Investigation"),
            "suspended",
        ),
        TriggerVerb(
            "enable",
            "Enable",
            "power",
            "primary",
            "triggers:write",
            "Documents that came while it was disabled are not handed over.",
            ("Used again",),
            "enabled",
        ),
        TriggerVerb(
            "disable",
            "Disable",
            "power",
            "danger",
            "triggers:write",
            "Documents that come while it is disabled are never handed over to this application by themselves.",
            ("Not used any more", "Replaced by another trigger"),
            "disabled",
        ),
        TriggerVerb(
            "leave",
            "Take away",
            "minus",
            "danger",
            "triggers:write",
            "What was processed together stays processed. It can be made a member again.",
            ("Not needed in this transaction any more",),
            "no member any more, and disabled",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class VerbButton:
    """A verb on a trigger's page. `why_not` says what is in the way: the state, or the role."""

    verb: TriggerVerb
    label: str
    why_not: str

    @property
    def enabled(self) -> bool:
        return not self.why_not


@requires("triggers:read")
def trigger_list(request: HttpRequest) -> HttpResponse:
    """All triggers, the suspended ones first."""
    state = request.GET.get("state", "")
    filters = {
        "state": state if state in TriggerState.values else "",
        "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
    }
    found = triggers.triggers(states=(filters["state"],) if filters["state"] else (), search=filters["q"])
    context = keyset_page(request, "console.triggers", found, order=_ORDER, filters=filters)
    context["rows"] = [_described(row) for row in triggers.trigger_rows(context["rows"], clock.now())]
    counts = triggers.counts_by_state()
    context |= {"filters": filters, "counts": counts, "total": sum(counts.values())}
    return page(
        request,
        "console/deliveries/triggers.html",
        context,
        fragments={"live-triggers": "console/deliveries/triggers_live.html"},
    )


@requires("triggers:read")
def trigger_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One trigger: what is the matter, what waits, what needs somebody, and how it is set."""
    trigger = triggers.trigger(reference)
    if reference != trigger.public_id:
        return see_other("console:trigger", trigger.public_id)
    now = clock.now()
    row = triggers.trigger_rows([trigger], now)[0]
    recent = deliveries.deliveries(trigger_id=trigger.pk).order_by("-id")[:15]
    context = {
        **_described(row),
        "trigger": trigger,
        "buttons": _buttons(trigger, person(request)),
        "groups": [(group, doubts.age(group.oldest_at, now)) for group in doubts.groups(now, trigger_id=trigger.pk)],
        "recent": list(recent),
        "policy": triggers.policy(trigger),
        "incidents": list(records.incidents(trigger_id=trigger.pk).order_by("-number")[:8]),
        "audit": screens.audit_of(trigger),
        "signs": signs(trigger),
        "members": list(trigger.members.all()),
    }
    return page(
        request,
        "console/deliveries/trigger.html",
        context,
        fragments={"live-trigger": "console/deliveries/trigger_live.html"},
    )


def _scope(parameters: dict[str, Any]) -> str:
    verb = VERBS.get(parameters["verb"])
    # An unknown verb is answered 404 to whoever may see triggers at all.
    return verb.scope if verb else "triggers:read"


@requires(_scope, methods=("GET", "POST"))
def trigger_verb(request: HttpRequest, reference: str, verb: str) -> HttpResponse:
    """GET: the dialog, as a page or in a frame of the trigger's page. POST: does it, or says why not."""
    chosen = VERBS.get(verb)
    trigger = triggers.trigger(reference)
    if chosen is None:
        raise Http404(f"There is no verb {verb} for triggers.")
    if request.method == "GET":
        return _dialog(request, trigger, chosen)
    version = request.POST.get("version", "")
    if not (version.isascii() and version.isdigit()):
        errors = [("", "This form is not complete: open it again from the trigger's page.")]
        return _dialog(request, trigger, chosen, errors=errors, status=422)
    try:
        triggering.VERBS[verb](
            trigger_id=trigger.pk,
            actor=actor(request),
            reason=request.POST.get("reason", "").strip().replace("\x00", ""),
            expected_version=int(version),
        )
    except (Stale, WrongState) as error:
        return _dialog(request, triggers.trigger(trigger.pk), chosen, errors=problems(error), status=409)
    except InvalidSubmission as error:
        return _dialog(request, trigger, chosen, errors=problems(error), status=422)
    notices.success(request, f"{trigger.name} is {chosen.done}.")
    return see_other("console:trigger", trigger.public_id)


@sensitive_variables("secret")
@requires("triggers:write", methods=("GET", "POST"))
def trigger_secret(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog; POST makes a new secret and shows it this once, on a page that no cache keeps."""
    trigger = triggers.trigger(reference)
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        if used_already(request, _ONCE):
            notices.error(request, "This form was used already. A secret is shown once; make another if it is lost.")
            return see_other("console:trigger", trigger.public_id)
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        try:
            changed, secret = triggering.trigger_rotate_secret(
                trigger_id=trigger.pk, actor=actor(request), reason=reason
            )
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            del request.session[_ONCE]
            context = {"trigger": changed, "secret": secret, "made": False}
            return page(request, "console/deliveries/trigger_secret_made.html", context)
    context = {"trigger": trigger, "errors": errors, "given": request.POST, "once": once(request, _ONCE)}
    return page(
        request,
        "console/deliveries/trigger_secret.html",
        context,
        fragments={"dialog": "console/deliveries/trigger_secret_form.html"},
        status=422 if errors else 200,
    )


def once(request: HttpRequest, name: str) -> str:
    """A mark for a form whose answer shows a secret: a reload that posts it again must not make another."""
    mark = secrets.token_urlsafe(16)
    request.session[name] = mark
    return mark


def used_already(request: HttpRequest, name: str) -> bool:
    """Whether the posted form's mark is not the one that was given out last."""
    return request.POST.get("once", "-") != request.session.get(name)


def signs(trigger: Trigger) -> bool:
    """Whether the trigger speaks HTTP to anybody, and so signs with its secret."""
    return trigger.kind == ServiceKind.HTTP or Consult.HTTP in (trigger.resolver, trigger.monitor)


def _described(row: TriggerRow) -> dict[str, Any]:
    return {
        "row": row,
        "subscription": triggers.subscription(row.trigger),
        "target": triggers.target(row.trigger),
    }


def _buttons(trigger: Trigger, who: Person) -> list[VerbButton]:
    possible = triggering.allowed_verbs(trigger)
    found = []
    for slug in possible:
        verb = VERBS[slug]
        missing = who.lacks(verb.scope)
        found.append(VerbButton(verb, _label(trigger, verb), f"Needs the role {missing}." if missing else ""))
    return sorted(found, key=lambda button: list(VERBS).index(button.verb.slug))


def _label(trigger: Trigger, verb: TriggerVerb) -> str:
    """Suspended for trouble, it can still be held, so that its monitor does not resume it."""
    return "Hold" if verb.slug == "suspend" and trigger.state == TriggerState.SUSPENDED else verb.label


def _effects(row: TriggerRow, verb: TriggerVerb) -> list[str]:
    trigger, backlog = row.trigger, row.backlog
    held = "nothing waits" if not backlog.held else f"{backlog.held:,} document{'s' if backlog.held != 1 else ''}"
    if verb.slug == "resume":
        order = ", pair by pair in their order" if trigger.ordered else ""
        first = f"What waits is handed over at once: {held}{order}." if backlog.held else "Nothing waits."
        said = [first, "Each gets a fresh budget of retries.", "The incident of the suspension is resolved."]
        cause = row.diagnosis.cause
        if cause is not None and not cause.retryable and cause.code != triggering.BY_USER:
            said.append(f"Waiting does not mend “{cause.label}”. {cause.action}")
        return said
    if verb.slug == "suspend":
        if trigger.state == TriggerState.SUSPENDED:
            return [
                "It is suspended already; from now on its monitor and a restart of the hub do not resume it.",
                "It stays suspended until somebody resumes it. The incident is resolved with your reason.",
            ]
        return [
            "From now on nothing is handed over. What the application has in work is finished.",
            "Documents that come are taken in and wait.",
            "It stays suspended until somebody resumes it; no monitor does.",
        ]
    if verb.slug == "leave":
        whole = trigger.member_of.name if trigger.member_of is not None else "its trigger"
        return [
            f"From the next document on {whole} goes without it; what is in work ends as it began.",
            "It is disabled. Enabled again it takes what its own settings name: by default every document.",
        ]
    if verb.slug == "disable":
        return [
            "Documents that come from now on make no delivery to it.",
            f"What waits stays: {held}. It goes on when the trigger is enabled.",
        ]
    return [f"It takes documents again, and what waited is handed over: {held}."]


def _dialog(
    request: HttpRequest,
    trigger: Trigger,
    verb: TriggerVerb,
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    row = triggers.trigger_rows([trigger], clock.now())[0]
    possible = verb.slug in triggering.allowed_verbs(trigger)
    context = {
        "row": row,
        "trigger": trigger,
        "verb": verb,
        "label": _label(trigger, verb),
        "effects": _effects(row, verb),
        "possible": possible,
        "why_not": "" if possible else f"The trigger is {row.look.label.lower()} now.",
        "errors": errors or [],
        "given": request.POST,
    }
    fragments = {"dialog": "console/deliveries/trigger_verb_form.html"}
    return page(request, "console/deliveries/trigger_verb.html", context, fragments=fragments, status=status)
