"""The audit log: who did what, when and why; and whether its chain holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from messaging import keyset
from messaging.access.services import audit_chain
from messaging.choices import Interface
from messaging.console import filters, lists, zones
from messaging.console.access import Person, person, requires
from messaging.console.filters import Filter
from messaging.console.lists import Column, ListPage
from messaging.console.rendering import PAGE, as_context, page, read_place
from messaging.console.resource import Column as Shown
from messaging.console.resource import table
from messaging.journal.audit import AUTHENTICATIONS
from messaging.messages.selectors import messages
from messaging.models import AuditEntry
from messaging.overview.selectors import records
from rmhub.language import gettext_lazy, number

_FILTERS = ("actor", "verb", "object_id", "object_type", "interface", "result", "text", "after", "before")
CHAIN_SHOWN = 10_000  # entries that the page of the chain looks at
_BREAKS = (
    Shown(gettext_lazy("Entry"), lambda one: number(one.number), "num"),
    Shown(gettext_lazy("Why"), lambda one: one.why),
    Shown(gettext_lazy("Id"), lambda one: one.entry or "—", "mono wrap"),
)

AUDIT = ListPage(
    name="audit",
    view="console:audit",
    columns=(
        Column("time", gettext_lazy("Time"), lambda one: one.at, fixed=True, sort="created_at"),
        Column("who", gettext_lazy("Who"), lambda one: one.actor, fixed=True),
        Column("what", gettext_lazy("What"), lambda one: one.verb, fixed=True),
        Column("object", gettext_lazy("Object"), lambda one: one.object_name),
        Column("object_type", "Object type", lambda one: one.object_type, only_csv=True),
        Column("object_id", "Object id", lambda one: one.object_id, only_csv=True),
        Column("reason", gettext_lazy("Reason"), lambda one: one.reason),
        Column("result", gettext_lazy("Result"), lambda one: one.result),
        Column("changes", gettext_lazy("Before and after"), lambda one: _changes(one)),
        Column("interface", "Interface", lambda one: one.interface, only_csv=True),
        Column("authentication", "Authentication", lambda one: one.authentication, only_csv=True),
        Column("address", "Address", lambda one: one.address, only_csv=True),
        Column("request", "Request", lambda one: one.request_id, only_csv=True),
        Column("entry", "Entry", lambda one: one.public_id, only_csv=True),
        Column("number", "Number", lambda one: one.number, only_csv=True),
        Column("digest", "SHA-256", lambda one: one.digest, only_csv=True),
    ),
    api="/api/v1/audit-log",
    api_query=lambda given: {
        "actor": given["actor"],
        "verb": given["verb"],
        "object": given["object_id"],
        "object_type": given["object_type"],
        "interface": given["interface"],
        "result": given["result"],
        "text": given["text"],
        "created_gte": given["created_gte"],
        "created_lt": given["created_lt"],
    },
    orders=records.AUDIT_ORDERS,
)


def _filters() -> tuple[Filter, ...]:
    """With the verbs and the people that the log knows."""
    return (
        Filter("object_id", _("Object"), hint=_("pair code, INC-7, pair_…"), most=255),
        Filter("verb", _("Verb"), hint="pair.resume", most=60, suggested=records.audit_values("verb")),
        Filter("actor", _("Who"), most=150, suggested=records.audit_values("actor")),
        Filter("text", _("Words in the reason"), most=200),
        Filter("after", _("From"), kind="time"),
        Filter("before", pgettext("time", "Before"), kind="time"),
        Filter("interface", _("Interface"), choices=Interface.choices),
        Filter("result", _("Result"), choices=(("done", _("Done")), ("denied", _("Denied")))),
        Filter("object_type", _("Object type"), kind="link"),
    )


def _changes(entry: AuditEntry) -> str:
    """As JSON, for the file."""
    changes = {name: value for name, value in (("before", entry.before), ("after", entry.after)) if value}
    return json.dumps(changes, sort_keys=True, default=str, ensure_ascii=False) if changes else ""


@dataclass(frozen=True, slots=True)
class Undo:
    """The verb that takes another one back: the page that does it, and what it is called."""

    view: str
    arguments: Callable[[AuditEntry], tuple[str, ...]]
    label: str
    scope: str


def _named(*more: str) -> Callable[[AuditEntry], tuple[str, ...]]:
    return lambda entry: (entry.object_name, *more)


def _with_id(*more: str) -> Callable[[AuditEntry], tuple[str, ...]]:
    return lambda entry: (entry.object_id, *more)


UNDO: Mapping[str, Undo] = {
    "pair.pause": Undo("console:pair-verb", _named("release"), gettext_lazy("Release"), "pairs:operate"),
    "pair.release": Undo("console:pair-verb", _named("pause"), gettext_lazy("Pause"), "pairs:operate"),
    "trigger.suspend": Undo("console:trigger-verb", _with_id("resume"), gettext_lazy("Resume"), "triggers:operate"),
    "trigger.resume": Undo("console:trigger-verb", _with_id("suspend"), gettext_lazy("Suspend"), "triggers:operate"),
    "trigger.disable": Undo("console:trigger-verb", _with_id("enable"), gettext_lazy("Enable"), "triggers:write"),
    "trigger.enable": Undo("console:trigger-verb", _with_id("disable"), gettext_lazy("Disable"), "triggers:write"),
    "route.disable": Undo("console:route-verb", _with_id("enable"), gettext_lazy("Enable"), "agreements:write"),
    "route.enable": Undo("console:route-verb", _with_id("disable"), gettext_lazy("Disable"), "agreements:write"),
    "poller.disable": Undo("console:poller-verb", _with_id("enable"), gettext_lazy("Enable"), "partners:write"),
    "poller.enable": Undo("console:poller-verb", _with_id("disable"), gettext_lazy("Disable"), "partners:write"),
    "incident.assign": Undo("console:incident-assign", _named(), gettext_lazy("Assign again"), "incidents:write"),
    "incident.acknowledge": Undo("console:incident-assign", _named(), gettext_lazy("Assign again"), "incidents:write"),
    "incident.snooze": Undo("console:incident-snooze", _named(), gettext_lazy("Change"), "incidents:write"),
    "hold.place": Undo("console:hold-release", _with_id(), gettext_lazy("Release"), "retention:write"),
    "token.create": Undo("console:token-revoke", _with_id(), gettext_lazy("Revoke"), "tokens:manage"),
}


# Name of a model as entries have it -> its words.
_KINDS = {model._meta.model_name: str(model._meta.verbose_name) for model in apps.get_models()} | {
    "pair": gettext_lazy("pair"),
    "message": gettext_lazy("message"),
    "delivery": gettext_lazy("delivery"),
    "incident": gettext_lazy("incident"),
    "trigger": gettext_lazy("trigger"),
    "route": gettext_lazy("route"),
    "circuit": gettext_lazy("circuit"),
    "party": gettext_lazy("party"),
    "partnergroup": gettext_lazy("partner group"),
    "endpoint": gettext_lazy("endpoint"),
    "poller": gettext_lazy("poller"),
    "agreement": gettext_lazy("agreement"),
    "agreementversion": gettext_lazy("agreement version"),
    "credential": gettext_lazy("credential"),
    "user": gettext_lazy("user"),
    "usersession": gettext_lazy("user session"),
    "apitoken": gettext_lazy("API token"),
    "savedview": gettext_lazy("saved view"),
    "secondfactor": gettext_lazy("second factor"),
    "preference": gettext_lazy("preference"),
    "webhookendpoint": gettext_lazy("webhook endpoint"),
    "webhookdelivery": gettext_lazy("webhook delivery"),
    "notificationrule": gettext_lazy("notification rule"),
    "payloadmask": gettext_lazy("payload mask"),
    "attributerule": gettext_lazy("attribute rule"),
    "documentschema": gettext_lazy("document schema"),
    "schemaversion": gettext_lazy("schema version"),
    "bulkjob": gettext_lazy("job"),
    "onboardingdraft": gettext_lazy("onboarding draft"),
    "offeredcertificate": gettext_lazy("offered certificate"),
    "coordination": gettext_lazy("transaction"),
    "enlistment": gettext_lazy("participant"),
    "statusinquiry": gettext_lazy("status inquiry"),
    "rejection": gettext_lazy("rejection"),
    "signal": gettext_lazy("signal"),
    "transmission": gettext_lazy("transmission"),
    "pipelinerun": gettext_lazy("pipeline run"),
    "partnerlog": gettext_lazy("partner log"),
    "retentionpolicy": gettext_lazy("retention policy"),
    "legalhold": gettext_lazy("legal hold"),
    "archivefile": gettext_lazy("archive file"),
    "archivedmessage": gettext_lazy("archived message"),
    "servicelevel": gettext_lazy("service level"),
    "benchreport": gettext_lazy("bench report"),
    "probereport": gettext_lazy("probe report"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """An entry with what the page adds. `kind`: of its object; `known_by`: how the actor showed who they are;
    `undo`: (address, words)."""

    entry: AuditEntry
    kind: str
    known_by: str
    undo: tuple[str, str] | None


@requires("audit:read")
def audit_list(request: HttpRequest) -> HttpResponseBase:
    """Newest first: who, when, what, why, before and after, by which way; refused attempts as well."""
    if (other := lists.opened(request, AUDIT)) is not None:
        return other
    given = {name: request.GET.get(name, "").strip()[:255].replace("\x00", "") for name in _FILTERS}
    begin, end, wrong = _times(request, given)
    found = records.audit_entries(
        actor=given["actor"],
        verb=given["verb"],
        object_type=given["object_type"],
        object_id=given["object_id"],
        interface=given["interface"],
        result=given["result"],
        text=given["text"],
        created_gte=begin,
        created_lt=end,
    )
    __, order = lists.order(request, AUDIT)
    if lists.csv_wanted(request):
        return lists.csv(request, AUDIT, lambda place, limit: keyset.page(found, order=order, limit=limit, place=place))
    mark = keyset.fingerprint("console.audit", given, ",".join(order))
    shown: keyset.Page[AuditEntry] = keyset.Page([], None, None)
    try:
        with messages.bounded():
            shown = keyset.page(found, order=order, limit=PAGE, place=read_place(request, mark))
    except messages.TooBroad:
        wrong = _("This took too long: narrow it by a time, an object or a person.")
    who = person(request)
    context: dict[str, Any] = as_context(shown, mark)
    api_given = given | {"created_gte": _instant(begin), "created_lt": _instant(end)}
    context |= lists.tools(request, AUDIT, api_given)
    context |= {
        "rows": [_row(entry, who) for entry in shown.rows],
        "given": given,
        "filtered": any(given.values()),
        "wrong": wrong,
        "bar": filters.bar(
            request,
            _("the audit log"),
            _filters(),
            given,
            wrong={"before": _("It must be later than “From”.")} if begin and end and end <= begin else {},
        ),
    }
    return page(request, "console/access/audit.html", context)


@requires("audit:read")
def chain_page(request: HttpRequest) -> HttpResponse:
    """Whether the newest entries, or those from `?from=` on, are as they were sealed; `?expect=` compares a head."""
    head = audit_chain.head()
    wrong = ""
    first = max(1, head.number - CHAIN_SHOWN + 1)
    given = request.GET.get("from", "").strip()
    if given.isascii() and given.isdigit() and len(given) < 16 and int(given) > 0:
        first = int(given)
    elif given:
        wrong = _("From: a number of an entry, such as 1.")
    noted = request.GET.get("expect", "").strip()[:100].replace("\x00", "")
    expect = _head(noted)
    if noted and expect is None:
        wrong = _("Noted down: the number, a colon, and the 64 digits of the digest.")
    verdict = audit_chain.verify(first=first, limit=CHAIN_SHOWN, expect=expect)
    context = {
        "verdict": verdict,
        "first": first,
        "earlier": max(1, first - CHAIN_SHOWN) if first > max(1, verdict.begins_at) else 0,
        "later": verdict.last + 1 if 0 < verdict.last < head.number else 0,
        "expect": expect,
        "noted": noted,
        "wrong": wrong,
        "most": CHAIN_SHOWN,
    }
    said = _("Where the chain is broken")
    context["table"] = table(said, _BREAKS, verdict.breaks, css="card-table stack")
    return page(request, "console/access/audit_chain.html", context)


def _row(entry: AuditEntry, who: Person) -> Row:
    undo = UNDO.get(entry.verb) if entry.result == "done" else None
    found = None
    if undo is not None and undo.scope in who.scopes:
        try:
            found = (reverse(undo.view, args=undo.arguments(entry)), undo.label)
        except NoReverseMatch:  # an old name with a slash in it
            found = None
    kind = str(_KINDS.get(entry.object_type, entry.object_type))
    return Row(entry, kind, AUTHENTICATIONS.get(entry.authentication, entry.authentication), found)


def _times(request: HttpRequest, given: Mapping[str, str]) -> tuple[datetime | None, datetime | None, str]:
    zone, wrong = zones.zone_of(request), ""
    found: list[datetime | None] = []
    for name in ("after", "before"):
        at = zones.read_local(given[name], zone) if given[name] else None
        if given[name] and at is None:
            wrong = _("A time such as 2026-01-31 or 2026-01-31T08:00, please.")
        found.append(at)
    begin, end = found
    if begin is not None and end is not None and end <= begin:
        wrong = _("The time range runs backwards: “before” must be later than “after”.")
    return begin, end, wrong


def _instant(at: datetime | None) -> str:
    return at.isoformat() if at is not None else ""


def _head(text: str) -> audit_chain.Head | None:
    number, _, digest = text.partition(":")
    digest = digest.strip().lower()
    if not (number.isascii() and number.isdigit() and len(number) < 16 and len(digest) == 64):
        return None
    return audit_chain.Head(int(number), digest)
