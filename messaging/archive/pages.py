"""The archive: what has left the store and how it comes back; legal holds; the policy."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.access.selectors.reach import read_id
from messaging.archive import selectors as archive
from messaging.archive.services import holds, restoring, retention
from messaging.choices import Direction
from messaging.console import cells, filters
from messaging.console.access import actor, requires
from messaging.console.filters import Filter
from messaging.console.naming import partner_key, posted_key
from messaging.console.rendering import (
    PAGE,
    as_context,
    dialog,
    keyset_page,
    page,
    posted,
    problems,
    read_place,
    see_other,
)
from messaging.console.resource import Column, table
from messaging.engine import attributes
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale
from messaging.messages.pages import tables
from messaging.messages.selectors import messages
from messaging.messages.selectors.messages import AmbiguousId, TooBroad
from messaging.models import LegalHold
from messaging.pairs.selectors import pairs
from messaging.report_choices import ArchiveState, PipelineJob
from messaging.reports.pages.pipeline import read_days
from messaging.reports.selectors import pipeline
from messaging.templatetags.hub import ago, middle
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, pgettext_lazy

READ, RESTORE, WRITE = "archive:read", "archive:restore", "retention:write"
_RELEASED = gettext_lazy(
    "What only this hold covers leaves the store, and the archive, as the retention policy says: the next run may take "
    "it."
)
FILTERS = (
    Filter(
        "q",
        gettext_lazy("Exact id"),
        kind="search",
        hint=gettext_lazy("MessageId, document id, ConversationId or msg_…"),
        most=512,
    ),
    Filter("partner", gettext_lazy("Partner"), kind="partner"),
    Filter("pair", gettext_lazy("Pair"), hint="ACME>GLOBEX", mono=True, most=130),
    Filter("state", gettext_lazy("Where it is"), choices=ArchiveState.choices),
    Filter("direction", gettext_lazy("Direction"), choices=Direction.choices),
)


@requires(READ)
def archive_list(request: HttpRequest) -> HttpResponse:
    """Newest first; the URL holds the filters."""
    given = {
        name: request.GET.get(name, "").strip()[:512].replace("\x00", "")
        for name in ("q", "pair", "state", "direction")
    }
    notes: list[str] = []
    partner = filters.partner_of(request)
    given["partner"] = partner.text
    pair_id = _pair_id(given["pair"], notes)
    found = archive.archived(
        q=given["q"],
        pair_id=pair_id,
        partner_id=partner.key,
        states=(given["state"],) if given["state"] in ArchiveState.values else (),
        direction=given["direction"] if given["direction"] in Direction.values else "",
    )
    mark = keyset.fingerprint("console.archive", given, "-id")
    context: dict[str, Any] = {"rows": [], "next_cursor": "", "previous_cursor": ""}
    if not notes and not partner.missing:
        try:
            context = as_context(archive.archived_page(found, limit=PAGE, place=read_place(request, mark)), mark)
        except TooBroad:
            notes.append(_("This search took too long and was stopped. Look for an exact id, or narrow it by pair."))
    context |= {
        "given": given,
        "notes": notes,
        "filtered": any(given.values()),
        "bar": filters.bar(request, _("archived messages"), FILTERS, given, partner=partner),
        "archive": archive.archive(),
    }
    context["table"] = tables.archived(_("Archived messages, newest first"), context["rows"])
    return page(request, "console/archive/archive.html", context)


@requires(READ)
def archived_page(request: HttpRequest, reference: str) -> HttpResponse:
    """Where one message lies, what is known of it without opening the archive, and the way back."""
    try:
        row = archive.archived_by_reference(reference)
    except AmbiguousId:
        return see_other(f"{reverse('console:archive')}?{urlencode({'q': reference})}")
    if reference != row.public_id:
        return see_other("console:archived", row.public_id)
    others = [one for one in archive.left(row.conversation_id) if one.pk != row.pk]
    context = {
        "row": row,
        "attributes": attributes.shown(row.attributes),
        "gone": row.state == ArchiveState.ARCHIVED,
        "leaves_on": archive.leaves_on(row),
        "conversation": archive.conversation_size(row.conversation_id),
        "others": others,
        "table": tables.archived(_("Archived messages of the same conversation"), others),
        "runs": list(pipeline.runs(jobs=(PipelineJob.RESTORE,), scope=row.public_id).order_by("-id")[:5]),
        "audit": archive.audit(row.public_id),
    }
    return page(request, "console/archive/archived.html", context)


@requires(RESTORE, methods=("GET", "POST"))
def archive_restore(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and asking for a message, or with `whole` for its whole conversation, to come back."""
    row = archive.archived_message(read_id("msg", reference))
    given = request.POST if request.method == "POST" else request.GET
    whole = given.get("whole") == "on"

    def do() -> HttpResponse:
        what: dict[str, Any] = {"conversation_id": row.conversation_id} if whole else {"message": row.pk}
        run = restoring.restore_request(actor=actor(request), reason=posted(request, "reason"), **what)
        notices.success(request, _("It is being brought back: this takes some seconds."))
        return see_other("console:pipeline-run", run.public_id)

    def shown() -> dict[str, Any]:
        back = reverse("console:archived", args=[row.public_id])
        return {
            "title": _("Restore from the archive"),
            "crumbs": [(reverse("console:archive"), _("Archive")), (back, middle(row.message_id, 40))],
            "back": back,
            "row": row,
            "whole": whole,
            "count": archive.conversation_size(row.conversation_id),
            "days": retention.policy().purge_after,
        }

    return dialog(request, "console/archive/archive_restore.html", shown, do)


# --- legal holds ---


def _covers(hold: LegalHold) -> SafeString:
    said = '<div><span class="text-faint">{}:</span> <span class="wrap">{}</span></div>'
    return format_html_join("", said, archive.criteria(hold))


def _released(hold: LegalHold) -> SafeString:
    return format_html(_("Released {when}"), when=ago(hold.released_at))


_HOLDS = (
    Column(gettext_lazy("Name"), lambda hold: cells.link(cells.to("hold", hold.public_id), hold.name, "strong")),
    Column(
        pgettext_lazy("hold", "What it covers"),
        _covers,
        "wrap",
        narrow=pgettext_lazy("hold", "Covers"),
    ),
    Column(
        gettext_lazy("Placed"),
        lambda hold: format_html('{} <span class="text-faint">{}</span>', ago(hold.placed_at), hold.placed_by),
        "nowrap",
    ),
    Column(
        gettext_lazy("State"),
        lambda hold: _released(hold) if hold.released_at else _("In force"),
    ),
)


@requires(READ)
def hold_list(request: HttpRequest) -> HttpResponse:
    """Those in force, or with `?show=all` the released ones too."""
    show = "all" if request.GET.get("show") == "all" else "in-force"
    found = archive.holds(in_force=None if show == "all" else True)
    context = keyset_page(request, "console.holds", found, order=("-id",), filters={"show": show})
    context["table"] = table(_("Legal holds, newest first"), _HOLDS, context["rows"])
    return page(request, "console/archive/holds.html", {**context, "show": show})


@requires(WRITE, methods=("GET", "POST"))
def hold_new(request: HttpRequest) -> HttpResponse:
    """The form, filled with what `?message_id=`, `?conversation_id=`, `?pair=` and `?party=` say; and placing it."""
    errors: list[tuple[str, str]] = []
    given = request.POST if request.method == "POST" else request.GET
    if request.method == "POST":
        try:
            hold = holds.hold_place(actor=actor(request), reason=posted(request, "reason"), **_criteria(request))
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            notices.success(request, _("{hold} is in force: what it covers stays.").format(hold=hold.name))
            return see_other("console:hold", hold.public_id)
    context = {"errors": errors, "given": given}
    return page(request, "console/archive/hold_new.html", context, status=422 if errors else 200)


@requires(READ)
def hold_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One hold: what it covers, who placed it and why."""
    hold = archive.hold(read_id("hold", reference))
    context = {"hold": hold, "criteria": archive.criteria(hold), "audit": archive.audit(hold.public_id)}
    return page(request, "console/archive/hold.html", context)


@requires(WRITE, methods=("GET", "POST"))
def hold_release(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a hold."""
    hold = archive.hold(read_id("hold", reference))

    def do() -> HttpResponse:
        holds.hold_release(hold_id=hold.pk, actor=actor(request), reason=posted(request, "reason"))
        notices.success(request, _("{hold} is released.").format(hold=hold.name))
        return see_other("console:hold", hold.public_id)

    back = reverse("console:hold", args=[hold.public_id])
    covers = [format_html('{}: <span class="wrap">{}</span>', *row) for row in archive.criteria(hold)]
    shown = {
        "title": _("Release {hold}").format(hold=hold.name),
        "crumbs": [(reverse("console:holds"), _("Legal holds")), (back, hold.name)],
        "back": back,
        "effects": [_RELEASED, *covers],
        "forever": _("A released hold stays released; place another one if need be."),
        "button": _("Release"),
        "sign": "check",
        "testid": "release-do",
    }
    return dialog(request, "console/parts/question.html", lambda: shown, do)


# --- the policy ---


@requires(READ)
def retention_page(request: HttpRequest) -> HttpResponse:
    """The policy in force, and what it has led to."""
    policy = retention.policy()
    context = {
        "policy": policy,
        "archive": archive.archive(),
        "holds": archive.holds_in_force(),
        "run": pipeline.runs(jobs=(PipelineJob.ARCHIVE,)).order_by("-id").first(),
        "audit": archive.audit("1", "retentionpolicy"),
    }
    return page(request, "console/archive/retention.html", context)


@requires(WRITE, methods=("GET", "POST"))
def retention_change(request: HttpRequest) -> HttpResponse:
    """The form, and another policy."""
    policy = retention.policy()
    errors: list[tuple[str, str]] = []
    status = 200
    given: dict[str, Any] = {
        name: getattr(policy, name) for name in ("archive_after", "purge_after", "keep_archive", "version")
    }
    given["enabled"] = "on" if policy.enabled else ""
    if request.method == "POST":
        given = {name: posted(request, name) for name in (*given, "reason")}
        try:
            retention.policy_change(
                actor=actor(request),
                reason=given["reason"],
                enabled=given["enabled"] == "on",
                expected_version=int(given["version"]) if given["version"].isdigit() else None,
                **{name: _days(given[name], name) for name in ("archive_after", "purge_after", "keep_archive")},
            )
        except Stale as error:
            errors, status = problems(error), 409
            given["version"] = retention.policy().version
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, _("The policy is changed; the next run uses it."))
            return see_other("console:retention")
    return page(request, "console/archive/retention_change.html", {"given": given, "errors": errors}, status=status)


def _criteria(request: HttpRequest) -> dict[str, Any]:
    """Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    notes: list[str] = []
    pair_id = _pair_id(posted(request, "pair"), notes)
    if notes:
        errors["pair"] = notes
    party_id = None
    try:
        party_id = posted_key(request, "party", partner_key)
    except InvalidSubmission as error:
        errors |= error.errors
    try:
        days = read_days(request.POST)
    except InvalidSubmission as error:
        errors |= error.errors
    if errors:
        raise InvalidSubmission(errors)
    return {
        "name": posted(request, "name"),
        "party_id": party_id,
        "pair_id": pair_id,
        "conversation_id": posted(request, "conversation_id"),
        "message_id": _message_id(posted(request, "message_id")),
        "range_from": days.begin,
        "range_to": days.end,
    }


def _message_id(text: str) -> str:
    """A hold names a MessageId; who pastes `msg_...` means that message's."""
    try:
        key = read_id("msg", text) if text.startswith("msg_") else None
    except BadPublicId:
        key = None
    found = messages.in_store(key) or archive.entry_of(key)
    return found.message_id if found is not None else text


def _pair_id(text: str, notes: list[str]) -> uuid.UUID | None:
    if not text:
        return None
    try:
        found: uuid.UUID = pairs.pair(text).pk
    except (NotFound, BadPublicId) as error:
        notes.append(error.detail if isinstance(error, ApplicationError) else str(error))
        return None
    return found


def _days(text: str, name: str) -> int:
    """Raises InvalidSubmission."""
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InvalidSubmission({name: [_("A number of days.")]})
    return int(text)
