"""What is in doubt: inbound by trigger and reason, outbound by pair and cause; and settling a whole group as a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from messaging.choices import DeliveryState
from messaging.console.access import Person, actor, person, requires
from messaging.console.decisions import DELIVERY, MESSAGE, REMIND, Choice, ChoiceButton, Many, many_of, remind_in
from messaging.console.deliveries import SCOPE, checked
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale
from messaging.models import Delivery, Message, Pair, Trigger
from messaging.protocol.processing import Doubt
from messaging.selectors import deliveries, doubts, messages, pairs, triggers
from messaging.services import jobs, settling
from rmhub import clock
from rmhub.ids import read_public_id

_TABS = ("inbound", "outbound")
_SAMPLE = 5
# What a resolver may well know by now.
_ASK_FIRST = (Doubt.RESOLVER_FAILED, Doubt.RESOLVER_NONSENSE, Doubt.HISTORY_UNREACHABLE)


@requires("deliveries:read")
def doubt_list(request: HttpRequest) -> HttpResponse:
    """Two tabs: did our application process it; did the partner get it."""
    tab = request.GET.get("tab", "")
    now = clock.now()
    inbound, outbound = doubts.groups(now), doubts.outbound_groups(now)
    if tab not in _TABS:
        tab = "outbound" if outbound and not inbound else "inbound"
    context = {
        "tab": tab,
        "groups": [(group, doubts.age(group.oldest_at, now)) for group in inbound],
        "outbound": [(group, doubts.age(group.oldest_at, now)) for group in outbound],
        "inbound_count": sum(group.count for group in inbound),
        "outbound_count": sum(group.count for group in outbound),
    }
    return page(request, "console/doubts.html", context, fragments={"live-doubts": "console/doubts_live.html"})


@requires("deliveries:read")
def doubt_group(request: HttpRequest, reference: str, doubt: str) -> HttpResponse:
    """One group: why they are in doubt, what can be decided, and the documents, the oldest first."""
    trigger = triggers.trigger(reference)
    code = _code(doubt)
    found = doubts.group(trigger, code, clock.now())
    rows = doubts.documents(trigger.pk, code)
    mark = f"console.doubts.{trigger.pk}.{code}"
    context = keyset_page(request, mark, rows, order=("id",), filters={})
    context |= {
        "trigger": trigger,
        "group": found,
        "reason": doubts.reason(code),
        "buttons": _buttons(request, _Inbound(trigger, code, found.count if found else 0)),
        "level": doubts.age(found.oldest_at, clock.now()) if found else "good",
    }
    return page(request, "console/doubt.html", context, fragments={"live-doubt": "console/doubt_live.html"})


@requires("messages:read")
def outbound_group(request: HttpRequest, code: str, cause: str) -> HttpResponse:
    """The messages of one pair whose outcome is unknown for one cause."""
    pair = pairs.pair(code)
    cause = _code(cause)
    found = doubts.outbound_group(pair, cause, clock.now())
    rows = doubts.outbound_messages(pair.pk, cause)
    context = keyset_page(request, f"console.doubts.{pair.pk}.{cause}", rows, order=("id",), filters={})
    context |= {
        "pair": pair,
        "group": found,
        "cause": cause,
        "buttons": _buttons(request, _Outbound(pair, cause, found.count if found else 0)),
        "level": doubts.age(found.oldest_at, clock.now()) if found else "good",
    }
    return page(
        request, "console/doubt_outbound.html", context, fragments={"live-doubt": "console/doubt_outbound_live.html"}
    )


@requires(SCOPE, methods=("GET", "POST"))
def doubt_settle(request: HttpRequest, reference: str, doubt: str, decision: str) -> HttpResponse:
    """The plan of a job over one inbound group, and its beginning."""
    trigger = triggers.trigger(reference)
    code = _code(doubt)
    found = doubts.group(trigger, code, clock.now())
    return _settle(request, _Inbound(trigger, code, *_size(found)), decision)


@requires(SCOPE, methods=("GET", "POST"))
def outbound_settle(request: HttpRequest, code: str, cause: str, decision: str) -> HttpResponse:
    """The plan of a job over one outbound group, and its beginning."""
    pair = pairs.pair(code)
    cause = _code(cause)
    found = doubts.outbound_group(pair, cause, clock.now())
    return _settle(request, _Outbound(pair, cause, *_size(found)), decision)


@requires(SCOPE, methods=("GET", "POST"))
def trigger_failed(request: HttpRequest, reference: str) -> HttpResponse:
    """The plan of a job that resubmits what a trigger's service failed on, and its beginning."""
    trigger = triggers.trigger(reference)
    count = triggers.backlogs([trigger.pk])[trigger.pk].failed
    return _settle(request, _Failed(trigger, count), "resubmit")


@requires(SCOPE, methods=("GET", "POST"))
def message_settle(request: HttpRequest, reference: str, decision: str) -> HttpResponse:
    """One outbound message in doubt: the dialog, and the decision."""
    choice = MESSAGE.get(decision)
    message = messages.message(read_public_id("msg", reference))
    if choice is None:
        raise Http404(f"There is no decision {decision}.")
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        errors, status = checked(request, choice), 422
        if not errors:
            try:
                settled = settling.message_settle(
                    message_id=message.pk,
                    decision=choice.slug,
                    actor=actor(request),
                    reason=request.POST.get("reason", "").strip(),
                    remind_in=remind_in(request.POST.get("remind_in", "")) if choice.slug == "later" else None,
                )
            except InvalidSubmission as error:
                errors = problems(error)
            except ApplicationError as error:
                errors, status = problems(error), 409
                message = messages.message(message.pk)
            else:
                notices.success(request, f"The message is {choice.done}.")
                return see_other("console:message", settled.public_id)
    possible = choice.slug in settling.message_decisions(message)
    context = {
        "message": message,
        "choice": choice,
        "effects": choice.effects(Many(1, message.pair.code)),
        "possible": possible,
        "why_not": "" if possible else f"It is {message.get_state_display().lower()} now.",
        "remind": REMIND if choice.slug == "later" else (),
        "errors": errors,
        "given": request.POST,
    }
    fragments = {"dialog": "console/settle_message_form.html"}
    return page(request, "console/settle_message.html", context, fragments=fragments, status=status)


def message_buttons(message: Message, who: Person) -> list[ChoiceButton]:
    """What can be decided about an outbound message that is in doubt; none for any other."""
    missing = who.lacks(SCOPE)
    return [
        ChoiceButton(
            MESSAGE[slug],
            reverse("console:message-settle", args=[message.public_id, slug]),
            f"Needs the role {missing}." if missing else "",
            MESSAGE[slug].label,
        )
        for slug in settling.message_decisions(message)
    ]


@dataclass(frozen=True, slots=True)
class _Inbound:
    """Documents of one trigger that are in doubt for one reason."""

    trigger: Trigger
    doubt: str
    count: int
    later: int = 0

    choices = DELIVERY
    action = "settle_deliveries"

    @property
    def many(self) -> Many:
        return many_of(self.trigger, self.count)

    @property
    def what(self) -> str:
        return f"{self.trigger.name}: {doubts.reason(self.doubt).label}"

    @property
    def filter(self) -> dict[str, Any]:
        return {"trigger": self.trigger.public_id, "doubt": self.doubt}

    @property
    def back(self) -> str:
        return reverse("console:doubt", args=[self.trigger.public_id, _segment(self.doubt)])

    def href(self, decision: str) -> str:
        return reverse("console:doubt-settle", args=[self.trigger.public_id, _segment(self.doubt), decision])

    def possible(self, decision: str) -> str:
        if self.trigger.state == "disabled" and decision in ("resubmit", "ask"):
            return "The trigger is disabled."
        if decision == "ask" and self.trigger.resolver == "none":
            return "The trigger has no resolver."
        return ""

    def sample(self) -> list[tuple[str, str]]:
        return _named(doubts.documents(self.trigger.pk, self.doubt).order_by("id")[:_SAMPLE])


@dataclass(frozen=True, slots=True)
class _Failed:
    """Documents that a trigger's service failed on."""

    trigger: Trigger
    count: int
    later: int = 0

    choices = DELIVERY
    action = "redeliver_failed"

    @property
    def many(self) -> Many:
        return many_of(self.trigger, self.count, failed=True)

    @property
    def what(self) -> str:
        return f"{self.trigger.name}: its service failed on them"

    @property
    def filter(self) -> dict[str, Any]:
        return {"trigger": self.trigger.public_id}

    @property
    def back(self) -> str:
        return reverse("console:trigger", args=[self.trigger.public_id])

    def href(self, decision: str) -> str:
        return reverse("console:trigger-failed", args=[self.trigger.public_id])

    def possible(self, decision: str) -> str:
        return "The trigger is disabled." if self.trigger.state == "disabled" else ""

    def sample(self) -> list[tuple[str, str]]:
        found = deliveries.deliveries(states=(DeliveryState.FAILED,), trigger_id=self.trigger.pk)
        return _named(found.order_by("id")[:_SAMPLE])


@dataclass(frozen=True, slots=True)
class _Outbound:
    """Messages of one pair that are in doubt for one cause."""

    pair: Pair
    cause: str
    count: int
    later: int = 0

    choices = MESSAGE
    action = "settle_messages"

    @property
    def many(self) -> Many:
        return Many(self.count, self.pair.code)

    @property
    def what(self) -> str:
        return f"{self.pair.code}: {self.cause.replace('_', ' ')}"

    @property
    def filter(self) -> dict[str, Any]:
        return {"pair": self.pair.public_id, "cause": self.cause}

    @property
    def back(self) -> str:
        return reverse("console:doubt-outbound", args=[self.pair.code, _segment(self.cause)])

    def href(self, decision: str) -> str:
        return reverse("console:doubt-outbound-settle", args=[self.pair.code, _segment(self.cause), decision])

    def possible(self, decision: str) -> str:
        return ""

    def sample(self) -> list[tuple[str, str]]:
        found = doubts.outbound_messages(self.pair.pk, self.cause).order_by("id")[:_SAMPLE]
        return [(one.message_id, one.action) for one in found]


_Group = _Inbound | _Failed | _Outbound


def _settle(request: HttpRequest, group: _Group, decision: str) -> HttpResponse:
    choice = group.choices.get(decision)
    if choice is None:
        raise Http404(f"There is no decision {decision}.")
    if request.method == "GET":
        return _plan(request, group, choice)
    errors = checked(request, choice)
    seen = request.POST.get("expected", "")
    if not (seen.isascii() and seen.isdigit() and len(seen) < 9):
        errors.append(("", "This form is not complete: open it again."))
    elif choice.heavy and request.POST.get("confirm", "").strip().replace(",", "") != seen:
        errors.append(("confirm", f"Type {seen} to show that you mean all of them."))
    if errors:
        return _plan(request, group, choice, errors=errors, status=422)
    parameters: dict[str, Any] = {} if group.action == "redeliver_failed" else {"decision": choice.slug}
    if choice.slug == "later":
        parameters["remind_in"] = remind_in(request.POST.get("remind_in", ""))
    try:
        job = jobs.job_create(
            action=group.action,
            parameters=parameters,
            filter=group.filter,
            what=group.what,
            actor=actor(request),
            reason=request.POST.get("reason", "").strip(),
            expected=int(seen),
        )
    except Stale as error:
        return _plan(request, replace(group, count=error.version), choice, errors=problems(error), status=409)
    except (InvalidSubmission, NotFound) as error:
        return _plan(request, group, choice, errors=problems(error), status=422)
    notices.success(request, f"The job has begun: {job.total:,} to do.")
    return see_other("console:job", job.public_id)


def _plan(
    request: HttpRequest,
    group: _Group,
    choice: Choice,
    *,
    errors: list[tuple[str, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    reason = group.possible(choice.slug) or ("" if group.count else "Nothing is left in this group.")
    context = {
        "group": group,
        "choice": choice,
        "effects": choice.effects(group.many),
        "sample": group.sample(),
        "action": group.href(choice.slug),
        "possible": not reason,
        "why_not": reason,
        "remind": REMIND if choice.slug == "later" else (),
        "errors": errors or [],
        "given": request.POST,
    }
    return page(request, "console/plan.html", context, fragments={"dialog": "console/plan_form.html"}, status=status)


def _buttons(request: HttpRequest, group: _Inbound | _Outbound) -> list[ChoiceButton]:
    missing = person(request).lacks(SCOPE)
    found = []
    for choice in _suggested(group):
        reason = f"Needs the role {missing}." if missing else group.possible(choice.slug)
        label = f"{choice.group_label} ({group.count:,})" if group.count > 1 else choice.label
        found.append(ChoiceButton(choice, group.href(choice.slug), reason, label))
    return found if group.count else []


def _size(group: doubts.DoubtGroup | doubts.OutboundGroup | None) -> tuple[int, int]:
    """How many there are, and how many of them were put off."""
    return (group.count, group.later) if group is not None else (0, 0)


def _suggested(group: _Inbound | _Outbound) -> list[Choice]:
    """The choices, the one that is likely to help first."""
    choices = list(group.choices.values())
    if isinstance(group, _Inbound) and group.doubt in _ASK_FIRST and not group.possible("ask"):
        choices.sort(key=lambda choice: choice.slug != "ask")
    return choices


def _named(rows: Any) -> list[tuple[str, str]]:
    found: list[Delivery] = list(rows)
    return [(one.message.message_id, one.message.action) for one in found]


def _segment(code: str) -> str:
    """A code as part of an address, which cannot be empty."""
    return code or "-"


def _code(segment: str) -> str:
    return "" if segment == "-" else segment.replace("\x00", "")
