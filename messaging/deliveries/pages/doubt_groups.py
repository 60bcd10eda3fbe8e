"""Settling many at once: the groups that share their evidence, and the plan of a job over one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from messaging.bulk.services import jobs
from messaging.choices import DeliveryState, PartnerAnswer
from messaging.console.access import actor
from messaging.console.rendering import see_other
from messaging.deliveries.pages.decisions import DELIVERY, MESSAGE, Many, many_of, settle
from messaging.deliveries.selectors import deliveries, doubts
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.models import Delivery, Pair, Trigger

_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Inbound:
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
        return reverse("console:doubt", args=[self.trigger.public_id, segment(self.doubt)])

    def href(self, decision: str) -> str:
        return reverse("console:doubt-settle", args=[self.trigger.public_id, segment(self.doubt), decision])

    def possible(self, decision: str) -> str:
        if self.trigger.state == "disabled" and decision in ("resubmit", "ask"):
            return "The trigger is disabled."
        if decision == "ask" and self.trigger.resolver == "none":
            return "The trigger has no resolver."
        return ""

    def sample(self) -> list[tuple[str, str]]:
        return _named(doubts.documents(self.trigger.pk, self.doubt).order_by("id")[:_SAMPLE])


@dataclass(frozen=True, slots=True)
class Failed:
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
class Outbound:
    """Messages of one pair that are in doubt for one cause."""

    pair: Pair
    cause: str
    count: int
    later: int = 0
    mixed: bool = False

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
        return reverse("console:doubt-outbound", args=[self.pair.code, segment(self.cause)])

    def href(self, decision: str) -> str:
        return reverse("console:doubt-outbound-settle", args=[self.pair.code, segment(self.cause), decision])

    def possible(self, decision: str) -> str:
        if self.mixed and decision != "later":
            return "The partner has some of these and does not know others: decide by its answer."
        return ""

    def sample(self) -> list[tuple[str, str]]:
        found = doubts.outbound_messages(self.pair.pk, self.cause).order_by("id")[:_SAMPLE]
        return [(one.message_id, one.action) for one in found]


@dataclass(frozen=True, slots=True)
class Answered:
    """Messages of any pairs about which their partners say the same."""

    answer: str
    count: int
    later: int = 0

    choices = MESSAGE
    action = "settle_messages"

    @property
    def many(self) -> Many:
        return Many(self.count, "their pairs")

    @property
    def what(self) -> str:
        label = PartnerAnswer(self.answer).label if self.answer else "Not asked yet"
        return f"The partner's answer: {label.lower()}"

    @property
    def filter(self) -> dict[str, Any]:
        return {"answer": self.answer}

    @property
    def back(self) -> str:
        return f"{reverse('console:doubts')}?tab=outbound"

    def href(self, decision: str) -> str:
        return reverse("console:doubt-answer-settle", args=[self.answer or "none", decision])

    def possible(self, decision: str) -> str:
        suggested = doubts.suggested(self.answer)
        if not suggested:
            return "No answer is no evidence: decide about one pair's messages, or about each alone."
        if decision == "later" or decision == suggested:
            return ""
        return "The partner's answer speaks against it: decide about each alone."

    def sample(self) -> list[tuple[str, str]]:
        return [(one.message_id, one.pair.code) for one in doubts.answered(self.answer).order_by("id")[:_SAMPLE]]


Group = Inbound | Failed | Outbound | Answered


def settle_group(request: HttpRequest, group: Group, decision: str) -> HttpResponse:
    """The plan of a job that decides this about all of the group, and its beginning."""
    choice = group.choices.get(decision)
    if choice is None:
        raise Http404(f"There is no decision {decision}.")
    seen = request.POST.get("expected", "")
    wrong = [("", group.possible(choice.slug))] if group.possible(choice.slug) else []
    if not (seen.isascii() and seen.isdigit() and len(seen) < 9):
        wrong.append(("", "This form is not complete: open it again."))
    elif choice.heavy and request.POST.get("confirm", "").strip().replace(",", "") != seen:
        wrong.append(("confirm", f"Type {seen} to show that you mean all of them."))

    def do(reason: str, remind_in: int | None) -> HttpResponse:
        nonlocal group
        parameters: dict[str, Any] = {} if group.action == "redeliver_failed" else {"decision": choice.slug}
        if remind_in is not None:
            parameters["remind_in"] = remind_in
        try:
            job = jobs.job_create(
                action=group.action,
                parameters=parameters,
                filter=group.filter,
                what=group.what,
                actor=actor(request),
                reason=reason,
                expected=int(seen),
            )
        except Stale as error:
            group = replace(group, count=error.version)
            raise
        except NotFound as error:
            raise InvalidSubmission({"": [error.detail]}) from error
        notices.success(request, f"The job has begun: {job.total:,} to do.")
        # The other answers wait for their decisions on the page that this one came from.
        return see_other(group.back) if isinstance(group, Answered) else see_other("console:job", job.public_id)

    def shown(refused: bool) -> dict[str, Any]:
        effects = [
            "A job goes through them one by one. It can be cancelled; what is done by then stays done. Nothing is done "
            "twice.",
            *choice.effects(group.many),
        ]
        if group.later:
            were, are = ("was", "it is") if group.later == 1 else ("were", "they are")
            effects.append(f"{group.later:,} of them {were} put off by somebody; {are} settled too.")
        above = "triggers" if isinstance(group, Failed) else "doubts"
        return {
            "group": group,
            "action": group.href(choice.slug),
            "title": choice.group_label,
            "question": f"{choice.group_label}: {group.count:,}",
            "crumbs": (
                (reverse(f"console:{above}"), "Triggers" if above == "triggers" else "In doubt"),
                (group.back, group.what),
            ),
            "testid": "plan",
            "hidden": {"expected": group.count},
            "now": format_html(
                '<span class="strong" data-testid="plan-count">{}</span> · {}', f"{group.count:,}", group.what
            ),
            "why_not": group.possible(choice.slug) or ("" if group.count else "Nothing is left in this group."),
            "effects": effects,
            "back": group.back,
            "leave": "Leave as they are",
            "back_to": "Back",
            "button": f"{choice.group_label}: {group.count:,}",
        }

    return settle(request, choice, shown, do, wrong)


def _named(rows: Any) -> list[tuple[str, str]]:
    found: list[Delivery] = list(rows)
    return [(one.message.message_id, one.message.action) for one in found]


def segment(code: str) -> str:
    """A code as part of an address, which cannot be empty."""
    return code or "-"


def code_of(text: str) -> str:
    """The code of such a part."""
    return "" if text == "-" else text.replace("\x00", "")
