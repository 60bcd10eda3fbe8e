"""Partners' logs: the list, handing one in, mapping its columns, comparing it, and incidents of what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from messaging.console import cells
from messaging.console.access import actor, requires
from messaging.console.naming import agreement_key, partner_key, posted_key
from messaging.console.rendering import dialog, keyset_page, page, problems, see_other
from messaging.console.resource import Column, table
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, TooLarge, WrongState
from messaging.models import PartnerLog, PipelineRun
from messaging.onboarding.services import changing as onboarding
from messaging.pairs.selectors import screens
from messaging.report_choices import AuditKind, PipelineJob, Verdict
from messaging.reports.pages.pipeline import Days, read_days
from messaging.reports.pages.reports import agreement_of
from messaging.reports.selectors import pipeline as partner_logs
from messaging.reports.selectors import reports
from messaging.reports.services import actions
from messaging.reports.services import partner_logs as services
from messaging.reports.services.actions import AUDIT_KINDS, VERDICTS, Opened, log_incidents, run_id_of
from messaging.templatetags.hub import ago, instant, octets, state
from partners import log_columns
from partners.exceptions import InvalidInput
from partners.log_columns import COLUMNS, located
from rmhub.language import gettext_lazy, number, pgettext_lazy

SCOPE = "pipeline:run"
_READ = "reports:read"
_PREVIEW = 5
_OVERHEAD = 1024 * 1024
# Our columns: what they are called in the form, and a hint.
_LABELS: Mapping[str, tuple[str, str]] = {
    "message_id": ("MessageId", gettext_lazy("Needed: messages are found by it.")),
    "direction": (gettext_lazy("Direction"), gettext_lazy("Whether the partner sent or received the message.")),
    "at": (
        gettext_lazy("Time"),
        gettext_lazy("ISO 8601, UTC where it has no zone; or seconds or milliseconds since 1970."),
    ),
    "digest": (
        gettext_lazy("Digest"),
        gettext_lazy("SHA-256 in hexadecimal; without it contents are not compared."),
    ),
    "status": (gettext_lazy("Status"), gettext_lazy("In the partner's words.")),
    "sequence_number": (gettext_lazy("Sequence number"), ""),
}


def _log_state(row: Any) -> SafeString:
    if row.active:
        return state("run", row.latest.state)
    if row.latest is not None and row.latest.state == "failed" and row.log.state != "failed":
        return state("run", "failed")
    return state("log", row.log.state)


def _partner(row: Any) -> SafeString:
    agreement = row.log.agreement
    return cells.joined(row.log.party, cells.below(agreement.tpa_id if agreement else "", "text-faint wrap"))


def _file(row: Any) -> SafeString:
    log = row.log
    link = cells.link(cells.to("partner-log", log.public_id), log.filename, "strong wrap")
    return cells.joined(link, cells.below(octets(log.size)))


def _covers(row: Any) -> object:
    begin, end = row.log.range_from, row.log.range_to
    if begin is None and end is None:
        return cells.span("text-faint", _("not read yet"))
    return _("{begin} to {end} UTC").format(begin=instant(begin), end=instant(end))


_LOGS = (
    Column(gettext_lazy("State"), _log_state, "nowrap"),
    Column(gettext_lazy("Partner"), _partner),
    Column(gettext_lazy("Log"), _file),
    Column(pgettext_lazy("log", "Covers"), _covers, "nowrap"),
    Column(gettext_lazy("Rows"), lambda row: cells.number(row.log.rows), "num"),
    Column(
        gettext_lazy("Agreed"),
        lambda row: cells.number(row.verdicts.get("agreed", 0) if row.published else None),
        "num",
    ),
    Column(gettext_lazy("Differences"), lambda row: cells.bad(row.findings) if row.published else "—", "num"),
    Column(gettext_lazy("Received"), lambda row: ago(row.log.created_at), "nowrap"),
)


def _verdicts(log: PartnerLog, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the table of messages by verdict."""

    def name(verdict: Verdict) -> object:
        href = f"{cells.to('report', 'reconcile')}?scope={log.public_id}&table=findings&verdict={verdict.value}#rows"
        return verdict.label if verdict == Verdict.AGREED else cells.link(href, verdict.label)

    columns = (Column(_("Verdict"), name), Column(_("Messages"), lambda verdict: cells.number(counts[verdict]), "num"))
    found = [verdict for verdict in Verdict if verdict in counts]
    return table(
        _("Messages by verdict"), columns, found, about=lambda verdict: {"data-testid": f"verdict-{verdict.value}"}
    )


@requires(_READ)
def log_list(request: HttpRequest) -> HttpResponse:
    """Newest first, with what was found."""
    context = keyset_page(request, "console.partner_logs", partner_logs.logs(), order=("-id",), filters={})
    context["rows"] = partner_logs.log_rows(context["rows"])
    about = lambda row: {"data-testid": "log-row", "data-state": row.log.state}  # noqa: E731
    context["table"] = table(_("Logs of partners, the newest first"), _LOGS, context["rows"], about=about)
    context["folder"] = services.folder() / "inbox"
    return page(request, "console/reports/partner_logs.html", context, live="live-logs")


@csrf_exempt
@requires(SCOPE, methods=("GET", "POST"))
def log_new(request: HttpRequest) -> HttpResponse:
    """The form, and a log that comes in by it.

    Who may not, or sends too much, is refused before the file is read: the check of the CSRF token reads all of it.
    """
    declared = request.META.get("CONTENT_LENGTH") or ""
    if request.method == "POST" and declared.isdigit() and int(declared[:20]) > _most() + _OVERHEAD:
        return _new_form(request, {}, [("file", services.too_large(_most()))], status=413)
    checked: HttpResponse = _receive(request)
    return checked


@csrf_protect
def _receive(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _new_form(request, request.GET, [])
    try:
        received = _received(request)
    except (InvalidSubmission, TooLarge) as error:
        return _new_form(request, request.POST, problems(error), status=422)
    if not received.created:
        notices.info(request, _("This log was uploaded before: nothing was stored twice."))
    elif received.problems:
        notices.warning(request, _("The log is here. Map its columns below."))
    else:
        notices.success(request, _("The log is here. Look at its columns below, then compare it."))
    return see_other("console:partner-log", received.log.public_id)


@requires(_READ)
def log_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One log: its columns with the first rows, how its comparison goes, and what was found."""
    log = partner_logs.log(reference)
    if reference != log.public_id:
        return see_other("console:partner-log", log.public_id)
    return _page(request, log)


@requires(SCOPE, methods=("POST",))
def log_reconcile(request: HttpRequest, reference: str) -> HttpResponse:
    """Asks for the comparison, with the columns and the range of the form."""
    log = partner_logs.log(reference)
    mapping = _posted(request.POST)
    try:
        days, before = read_days(request.POST), Days(log.range_from, log.range_to)
        # The fields hold whole days: who leaves them as they are wants the range as it is, to the second.
        unchanged = (days.first, days.last) == (before.first, before.last)
        run = services.log_reconcile(
            log_id=log.pk,
            actor=actor(request),
            reason=_text(request, "reason"),
            columns=mapping,
            covers=None if unchanged else (days.begin, days.end),
            skip_unreadable=request.POST.get("skip_unreadable") == "on",
        )
    except InvalidSubmission as error:
        return _page(request, log, errors=problems(error), mapping=mapping, status=422)
    except WrongState as error:
        return _page(request, log, errors=problems(error), mapping=mapping, status=409)
    notices.success(request, _("The comparison waits for its turn ({run}).").format(run=run.public_id))
    return see_other("console:partner-log", log.public_id)


@requires(SCOPE, methods=("GET", "POST"))
def log_open_incidents(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and incidents of what the comparison found."""
    log = partner_logs.log(reference)
    (row,) = partner_logs.log_rows([log])
    words = dict(Verdict.choices)
    return _open_incidents(
        request,
        _("Create incidents from {log}").format(log=log.filename),
        (
            (reverse("console:partner-logs"), _("Reconciliation")),
            (reverse("console:partner-log", args=[log.public_id]), log.filename),
        ),
        [(one, words[one], row.verdicts[one]) for one in VERDICTS if row.verdicts.get(one)],
        row.published,
        lambda chosen, **why: log_incidents(log_id=log.pk, verdicts=chosen, **why),
    )


@requires(SCOPE, methods=("GET", "POST"))
def audit_incidents(request: HttpRequest) -> HttpResponse:
    """The dialog, and incidents of the broken promises that the audit found."""
    shown = reports.shown(PipelineJob.AUDIT)
    counts: dict[str, tuple[int, int]] = {}
    if shown.run is not None:
        counts = reports.finding_counts(shown.run.pk, shown.report.table("findings"), "kind")
    words = dict(AuditKind.choices)
    return _open_incidents(
        request,
        _("Create incidents from the audit"),
        (
            (reverse("console:reports"), _("Reports")),
            (reverse("console:report", args=[PipelineJob.AUDIT.value]), str(shown.report.title)),
        ),
        [(one, words[one], counts[one][0]) for one in AUDIT_KINDS if one in counts],
        shown.run,
        lambda chosen, **why: actions.audit_incidents(kinds=chosen, **why),
    )


def _open_incidents(
    request: HttpRequest,
    title: str,
    crumbs: Sequence[tuple[str, str]],
    kinds: Sequence[tuple[str, str, int]],
    run: PipelineRun | None,
    make: Callable[..., Opened],
) -> HttpResponse:
    """The dialog that makes incidents of findings; `crumbs`: the way back; `kinds`: value, words and
    count of each that was found.
    """
    chosen = request.POST.getlist("kind") if request.method == "POST" else [one[0] for one in kinds]

    def do() -> HttpResponse:
        if not chosen:
            raise InvalidSubmission({"kind": [_("Choose what to create incidents for.")]})
        run_id = run_id_of(_text(request, "run"))
        opened = make(chosen, actor=actor(request), reason=_text(request, "reason"), run=run_id)
        made, known = len(opened.incidents) - opened.known, opened.known
        if known:
            before = ngettext("{count} was open before", "{count} were open before", known)
            said = ngettext(
                "{count} incident opened or counted once more, {before}.",
                "{count} incidents opened or counted once more, {before}.",
                made,
            ).format(count=number(made), before=before.format(count=number(known)))
        else:
            said = ngettext(
                "{count} incident opened or counted once more.", "{count} incidents opened or counted once more.", made
            ).format(count=number(made))
        notices.success(request, said)
        return see_other("console:incidents")

    shown = {
        "title": title,
        "crumbs": crumbs,
        "href": crumbs[-1][0],
        "kinds": kinds,
        "chosen": chosen,
        "run": run,
    }
    return dialog(request, "console/reports/open_incidents_form.html", lambda: shown, do)


@requires(SCOPE, methods=("GET", "POST"))
def log_export(request: HttpRequest) -> HttpResponse:
    """The form, and our own log for a partner, as a run whose files are downloaded."""

    def export() -> HttpResponse:
        party, agreement = _whose(request)
        days = read_days(request.POST)
        run = services.export_request(
            party_id=party,
            agreement_id=agreement,
            actor=actor(request),
            range_from=days.begin,
            range_to=days.end,
            reason=_text(request, "reason"),
        )
        return see_other("console:pipeline-run", run.public_id)

    def shown() -> dict[str, Any]:
        href = reverse("console:partner-logs")
        context = {"title": _("Export our log"), "crumbs": ((href, _("Reconciliation")),), "href": href}
        return {**context, "given": request.POST or request.GET}

    return dialog(request, "console/reports/log_export_form.html", shown, export)


@requires("agreements:write", methods=("GET", "POST"))
def agreement_log_columns(request: HttpRequest, reference: str) -> HttpResponse:
    """How the columns of logs that come under the agreement are called."""
    agreement = agreement_of(reference)
    errors: list[tuple[str, str]] = []
    status = 200
    mapping: Any = agreement.log_columns
    if request.method == "POST":
        mapping = _posted(request.POST)
        try:
            onboarding.agreement_update(
                agreement_id=agreement.pk,
                actor=actor(request),
                reason=_text(request, "reason"),
                expected=_text(request, "revision") or None,
                log_columns=mapping,
            )
        except InvalidInput as error:
            errors, status = [("", text) for texts in error.errors.values() for text in texts], 422
        except Stale as error:
            errors, status = problems(error), 409
        else:
            said = _("Logs that come under {agreement} are read so from now on.").format(agreement=agreement)
            notices.success(request, said)
            return see_other("console:agreement", agreement.public_id)
    context = {
        "agreement": agreement,
        "revision": onboarding.revision(agreement_of(reference)),
        "columns": _fields(mapping),
        "settings": _settings_of(mapping),
        "errors": errors,
        "given": request.POST,
    }
    return page(request, "console/reports/agreement_log_columns.html", context, status=status)


def _received(request: HttpRequest) -> services.Received:
    """Raises InvalidSubmission, TooLarge."""
    file = request.FILES.get("file")
    if file is None:
        raise InvalidSubmission({"file": [_("Choose the file that the partner sent.")]})
    party, agreement = _whose(request)
    days = read_days(request.POST)
    return services.log_receive(
        party_id=party,
        agreement_id=agreement,
        chunks=file.chunks(1024 * 1024),
        filename=file.name or "log",
        range_from=days.begin,
        range_to=days.end,
        actor=actor(request),
        reason=_text(request, "reason"),
        strict=False,
    )


def _whose(request: HttpRequest) -> tuple[Any, Any]:
    """(party, agreement or None) of a form. Raises InvalidSubmission."""
    party = posted_key(request, "party", partner_key)
    if party is None:
        raise InvalidSubmission({"party": [_("Choose a partner.")]})
    return party, posted_key(request, "agreement", agreement_key)


def _new_form(
    request: HttpRequest, given: Mapping[str, str], errors: Sequence[tuple[str, str]], *, status: int = 200
) -> HttpResponse:
    context = {"errors": errors, "given": given, "most": _most()}
    return page(request, "console/reports/partner_log_new.html", context, status=status)


def _page(
    request: HttpRequest,
    log: PartnerLog,
    *,
    errors: Sequence[tuple[str, str]] = (),
    mapping: Mapping[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    (row,) = partner_logs.log_rows([log])
    head, unreadable = _head(log)
    stored = log.columns
    proposed = mapping is None and not stored and bool(head.columns) and bool(located({}, head.columns)[1])
    shown = mapping if mapping is not None else log_columns.proposed(head.columns) if proposed else stored
    context = {
        "log": log,
        "row": row,
        "head": head,
        "unreadable": unreadable,
        "proposed": proposed,
        "columns": _fields(shown, head.columns, head.rows),
        "settings": _settings_of(shown),
        "verdicts": row.verdicts,
        "table": _verdicts(log, row.verdicts),
        "days": Days(log.range_from, log.range_to),
        "run": row.latest,
        "errors": errors,
        "given": request.POST,
        "audit": screens.audit_of(log),
    }
    return page(request, "console/reports/partner_log.html", context, live="live-log", status=status)


def _head(log: PartnerLog) -> tuple[services.Head, str]:
    """The beginning of the file, or why there is none."""
    try:
        return services.read_head(services.path_of(log), rows=_PREVIEW), ""
    except ApplicationError as error:
        return services.Head(log.format), error.detail
    except OSError:
        said = _("The file is not in the lake's folder any more: submit the log again.")
        return services.Head(log.format), said


def _most() -> int:
    return int(settings.RMHUB_PARTNER_LOG_MAX_BYTES)


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip()[:2000].replace("\x00", "")


def _fields(
    mapping: Mapping[str, Any], header: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()
) -> list[dict[str, Any]]:
    """The six columns as the form shows them: what each is called in the log, and what the first rows have there."""
    places, _problems = located(mapping, header)
    shown = []
    for name in COLUMNS:
        place = places.get(name)
        value = str(mapping.get(name, header[place] if place is not None else ""))
        samples = [row[place] for row in rows if place is not None and place < len(row)]
        label, hint = _LABELS[name]
        shown.append({"name": name, "label": label, "hint": hint, "value": value, "samples": samples})
    return shown


def _posted(given: QueryDict) -> dict[str, Any]:
    """The mapping that a form carries, as `partners.log_columns.faults` looks at it."""
    found: dict[str, Any] = {}
    for name in (*COLUMNS, "direction_is", "digest_of"):
        value = given.get(f"column_{name}", "").strip()
        if value:
            found[name] = value
    for name in ("sent_values", "received_values"):
        values = [one.strip() for one in given.get(f"column_{name}", "").split(",") if one.strip()]
        if values:
            found[name] = values
    return found


def _settings_of(mapping: Mapping[str, Any]) -> dict[str, str]:
    """What no column says, as texts."""
    return {
        "direction_is": str(mapping.get("direction_is", "")),
        "digest_of": str(mapping.get("digest_of", "")),
        "sent_values": ", ".join(mapping.get("sent_values", ())),
        "received_values": ", ".join(mapping.get("received_values", ())),
    }
