"""Deliveries of documents to applications: the list, the page with its evidence, and settling one."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.bulk.pages import buttons as bulk
from messaging.choices import DELIVERY_LOOKS, DeliveryState, ServiceKind
from messaging.console import filters, lists
from messaging.console.access import Person, actor, person, requires
from messaging.console.filters import Filter
from messaging.console.forms import MOST_CHOICES
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import PAGE, as_context, page, read_place, see_other
from messaging.deliveries.pages import tables
from messaging.deliveries.pages.decisions import DELIVERY, SCOPE, ChoiceButton, button, many_of, settle
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.deliveries.services import settling
from messaging.exceptions import NotFound
from messaging.keyset import Page, Place
from messaging.messages.selectors.messages import TooBroad
from messaging.messages.services import disclosing
from messaging.models import Delivery
from messaging.templatetags.hub import middle, state
from messaging.transactions.selectors import coordinations
from rmhub.ids import public_id
from rmhub.language import gettext_lazy, inside

_LIVE = "live-delivery"
DELIVERIES = ListPage(
    name="deliveries",
    view="console:deliveries",
    columns=(
        Column("id", "Id", lambda row: row.public_id, only_csv=True),
        Column("stored", gettext_lazy("Stored"), lambda row: row.created_at, tables.STORED, sort="created_at"),
        Column("state", gettext_lazy("State"), lambda row: row.state, tables.STATE, fixed=True),
        Column("trigger", gettext_lazy("Trigger"), lambda row: row.trigger.name, tables.TRIGGER),
        Column("message_id", gettext_lazy("Document"), lambda row: row.message.message_id, tables.DOCUMENT, fixed=True),
        Column("document_id", gettext_lazy("Document id"), lambda row: row.document_id, hidden=True),
        Column("action", "Action", lambda row: row.message.action, only_csv=True),
        Column("pair", gettext_lazy("Pair"), lambda row: row.message.pair.code, tables.PAIR),
        Column("doubt", "In doubt because", lambda row: row.doubt, only_csv=True),
        Column("cause", gettext_lazy("What is known"), lambda row: row.cause, tables.KNOWN),
        Column("http_status", "HTTP", lambda row: row.http_status, only_csv=True),
        Column("runs", gettext_lazy("Runs"), lambda row: row.executions, tables.RUNS),
        Column("retries", "Retries", lambda row: row.retries, only_csv=True),
        Column("redeliveries", "Redeliveries", lambda row: row.redelivery_count, only_csv=True),
        Column("decision", "Decision", lambda row: row.decision, only_csv=True),
        Column("decided_by", "Decided by", lambda row: row.decided_by, only_csv=True),
    ),
    api="/api/v1/deliveries",
    api_query=lambda given: {
        "trigger": given["trigger"],
        "state": given["state"],
        "partner": given["partner"],
        "q": given["q"],
    },
    orders=deliveries.ORDERS,
)


# Each is about what is in doubt, or about what has failed: the plan says what it leaves out.
_BULK = ("settle_deliveries:duplicate", "settle_deliveries:resubmit", "ask_application", "redeliver_failed")
_BULK_LABELS = {"redeliver_failed": gettext_lazy("Process failed ones again")}


def _filters() -> tuple[Filter, ...]:
    """With the triggers that there are."""
    known = triggers.triggers().order_by("name")[:MOST_CHOICES]
    return (
        Filter("q", _("Exact id"), kind="search", hint=_("MessageId, del_… or msg_…"), most=512),
        Filter("partner", _("Partner"), kind="partner"),
        Filter("trigger", _("Trigger"), choices=[(one.public_id, one.name) for one in known]),
        Filter("state", _("State"), choices=[(value, DELIVERY_LOOKS[value].label) for value in DeliveryState.values]),
    )


@requires("deliveries:read")
def delivery_list(request: HttpRequest) -> HttpResponseBase:
    """Newest first, by trigger, state and exact id. The first page is live; its rows do not move."""
    if (other := lists.opened(request, DELIVERIES)) is not None:
        return other
    given = {name: request.GET.get(name, "").strip()[:512].replace("\x00", "") for name in ("trigger", "q")}
    state = request.GET.get("state", "")
    given["state"] = state if state in DeliveryState.values else ""
    notes, partner = [], filters.partner_of(request)
    given["partner"] = partner.reference
    chosen, trigger_id = None, None
    if given["trigger"]:
        try:
            chosen = triggers.trigger(given["trigger"])
            trigger_id = chosen.pk
        except NotFound as error:
            notes.append(error.detail)
            trigger_id = uuid.UUID(int=0)  # nothing is of it
    __, order = lists.order(request, DELIVERIES)
    mark = keyset.fingerprint("console.deliveries", given, ",".join(order))
    found = deliveries.deliveries(
        states=(given["state"],) if given["state"] else (),
        trigger_id=trigger_id,
        partner_id=partner.key,
        q=given["q"],
    )
    if partner.missing:
        found = found.none()

    def fetch(place: Place | None, limit: int) -> Page[Delivery]:
        return deliveries.delivery_page(found, order=order, limit=limit, place=place)

    if lists.csv_wanted(request):
        return lists.csv(request, DELIVERIES, fetch)
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": ""}
    try:
        context = as_context(fetch(read_place(request, mark), PAGE), mark)
    except TooBroad:
        notes.append(_("This search took too long and was stopped. Narrow it by trigger or state."))
    context |= {
        "given": given,
        "notes": notes,
        "bar": filters.bar(request, "deliveries", _filters(), given, partner=partner),
        "filtered": any(given.values()),
        "first_page": not request.GET.get("cursor"),
        "bulk_actions": bulk.actions(request, *_BULK, labels=_BULK_LABELS),
        **lists.tools(request, DELIVERIES, given, partner.meant()),
    }
    ticked = (tables.SELECT,) if context["bulk_actions"] else ()
    shown = (*ticked, *DELIVERIES.shown(context["hide"], context["sorts"]))
    context["table"] = tables.deliveries(_("Deliveries, newest first"), context["rows"], shown)
    return page(request, "console/deliveries/deliveries.html", context, live="live-deliveries")


@requires("deliveries:read")
def delivery_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One delivery: what became of it, by which evidence, and what a person can decide."""
    delivery = deliveries.delivery(reference)
    if reference != delivery.public_id:
        return see_other("console:delivery", delivery.public_id)
    who = person(request)
    shown = None
    # Opened with the page, and not again every few seconds: each time is an entry in the audit log.
    if "payloads:read" in who.scopes and request.headers.get("HX-Target") != _LIVE:
        shown = disclosing.delivery_answer_open(delivery=delivery, actor=actor(request), role=who.role)
    screen = deliveries.delivery_screen(delivery)
    context = {
        "screen": screen,
        "parts": tables.deliveries(_("The documents that are processed together"), screen.parts, tables.OF_TRIGGER),
        "siblings": tables.deliveries(_("Other deliveries of the same message"), screen.siblings),
        "delivery": delivery,
        "headline": deliveries.headline(delivery),
        "reason": in_doubt.reason(delivery.doubt) if delivery.doubt else None,
        "id_from": inside(delivery.get_document_id_from_display()),
        "buttons": _buttons(delivery, who),
        "answer": _text(shown.octets.content) if shown else "",
        "covered": shown,
        "transactions": coordinations.of_delivery(delivery.pk) if delivery.trigger.kind == ServiceKind.ATOMIC else [],
    }
    return page(request, "console/deliveries/delivery.html", context, live=_LIVE)


@requires(SCOPE, methods=("GET", "POST"))
def delivery_settle(request: HttpRequest, reference: str, decision: str) -> HttpResponse:
    """The dialog of a decision about one delivery."""
    choice = DELIVERY.get(decision)
    delivery = deliveries.delivery(reference)
    if choice is None:
        raise Http404(_("There is no decision {name}.").format(name=decision))
    version = request.POST.get("version", "")
    wrong = []
    if not (version.isascii() and version.isdigit()):
        wrong.append(("", _("This form is not complete: open it again from the delivery's page.")))

    def do(reason: str, remind_in: int | None) -> HttpResponse:
        settled = settling.delivery_settle(
            delivery_id=delivery.pk,
            decision=choice.slug,
            actor=actor(request),
            reason=reason,
            expected_version=int(version),
            remind_in=remind_in,
        )
        notices.success(request, str(choice.done))
        made = deliveries.resubmitted_as(settled.pk) if choice.slug == "resubmit" else None
        return see_other("console:delivery", public_id("del", made or settled.pk))

    def shown(refused: bool) -> dict[str, Any]:
        row = deliveries.delivery(delivery.pk) if refused else delivery
        back, message_id = reverse("console:delivery", args=[row.public_id]), row.message.message_id
        effects = choice.effects(many_of(row.trigger, 1, failed=row.state == DeliveryState.FAILED))
        if row.trigger.state == "suspended" and choice.slug not in ("duplicate", "later"):
            effects.append(
                _("{trigger} is suspended: the document waits until it is resumed.").format(trigger=row.trigger.name)
            )
        if row.attended and choice.slug == "duplicate":
            effects.append(
                _(
                    "The sender, who asks again with the same id, is told that the request was executed; the "
                    "application's own answer is lost."
                )
            )
        return {
            "subtitle": row.trigger.name,
            "question": _("{what}: {which}").format(what=choice.label, which=row.message.action),
            "crumbs": ((reverse("console:deliveries"), _("Deliveries")), (back, middle(message_id, 40))),
            "testid": "settle",
            "hidden": {"version": row.version},
            "now": format_html(
                '{} {} <span class="mono">{}</span>',
                state("delivery", row.state),
                deliveries.headline(row),
                middle(message_id, 44),
            ),
            "why_not": why_not(row, choice.slug),
            "effects": effects,
            "back": back,
            "leave": _("Cancel"),
            "back_to": _("Back to the delivery"),
            "button": choice.label,
        }

    return settle(request, choice, shown, do, wrong)


def why_not(delivery: Delivery, decision: str) -> str:
    """Why this decision cannot be taken now; "" when it can."""
    trigger = delivery.trigger
    if decision in settling.delivery_decisions(delivery, trigger):
        return ""
    if delivery.state not in (DeliveryState.IN_DOUBT, DeliveryState.FAILED):
        return _("It is {state} now.").format(state=inside(delivery.get_state_display()))
    if trigger.state == "disabled":
        return _("The trigger is disabled.")
    if decision == "ask":
        if trigger.resolver == "none":
            return _("The trigger has no resolver.")
        return _("The service has answered.")
    return _("Not in this state.")


def _buttons(delivery: Delivery, who: Person) -> list[ChoiceButton]:
    """The decisions of a delivery that waits for one; what is likely to help first."""
    if delivery.state not in (DeliveryState.IN_DOUBT, DeliveryState.FAILED):
        return []
    found = []
    for slug, choice in DELIVERY.items():
        if slug != "ask" or delivery.state != DeliveryState.FAILED:
            href = reverse("console:delivery-settle", args=[delivery.public_id, slug])
            found.append(button(who, choice, href, why_not(delivery, slug)))
    return found


def _text(answer: bytes) -> str:
    """The service's answer as text; what is not text stays readable as far as it goes."""
    return answer.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
