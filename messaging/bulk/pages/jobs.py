"""Bulk jobs: planning one from a list's selection, executing it, its progress and results, and cancelling it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

from django.contrib import messages as notices
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.access.selectors.reach import read_id
from messaging.bulk import selectors as jobs
from messaging.bulk.pages import buttons as bulk
from messaging.bulk.services import export as exports
from messaging.bulk.services import jobs as services
from messaging.choices import ItemState, JobState
from messaging.console import cells, zones
from messaging.console.access import actor, person, requires
from messaging.console.rendering import TOASTS, dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column, table
from messaging.deliveries.pages.decisions import confirmed
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from messaging.journal import audit
from messaging.models import BulkJob
from messaging.pairs.selectors import pairs, screens
from messaging.templatetags.hub import ago, middle, state
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, number

SCOPE = "indoubt:resolve"
_SHOWN = {
    "all": (),
    "refused": (ItemState.REFUSED,),
    "done": (ItemState.DONE,),
    "waiting": (ItemState.PENDING, ItemState.CANCELLED),
}
_MAX_FILTER = 4000
_NEWS = timedelta(minutes=10)
_NUMBERS = ("stagger", "remind_in")


Listed = tuple[jobs.Progress, str]  # with the job's title


def _job(row: Listed) -> SafeString:
    job, key = row[0].job, row[0].job.public_id
    link = format_html(
        '<a class="strong" id="open-{}" href="{}">{}</a>', key, reverse("console:job", args=[key]), row[1]
    )
    return format_html('{}<div class="text-soft">{}</div>', link, job.what)


def _bar(row: Listed) -> SafeString:
    bar = '<progress value="{}" max="{}" aria-label="{}">{} %</progress> {} %'
    about = _("Progress of {job}").format(job=row[1])
    return format_html(bar, row[0].ended, row[0].job.total, about, row[0].percent, row[0].percent)


def _refused(row: Listed) -> SafeString | str:
    refused = row[0].job.refused
    return format_html('<span class="text-bad">{}</span>', number(refused)) if refused else "0"


_COLUMNS = (
    Column(gettext_lazy("Begun"), lambda row: ago(row[0].job.created_at), "nowrap", zoned=True),
    Column(gettext_lazy("State"), lambda row: state("job", row[0].job.state), "nowrap"),
    Column(gettext_lazy("Job"), _job),
    Column(gettext_lazy("Progress"), _bar),
    Column(gettext_lazy("Done"), lambda row: number(row[0].job.done), "num"),
    Column(gettext_lazy("Refused"), _refused, "num"),
    Column(gettext_lazy("Of"), lambda row: number(row[0].job.total), "num"),
    Column(gettext_lazy("By"), lambda row: row[0].job.actor),
)


@requires("deliveries:read")
def job_list(request: HttpRequest) -> HttpResponse:
    """Newest first."""
    context = keyset_page(request, "console.jobs", jobs.jobs(), order=("-id",), filters={})
    now = clock.now()
    shown = ((jobs.progress(job, now), jobs.title(job)) for job in context["rows"])
    context["table"] = table(_("Jobs, newest first"), _COLUMNS, shown)
    context["first_page"] = not request.GET.get("cursor")
    return page(request, "console/bulk/jobs.html", context, live="live-jobs")


@requires(SCOPE, methods=("POST",))
def job_plan(request: HttpRequest) -> HttpResponse:
    """Plans a job over what was selected in a list, and shows the plan. Nothing is done yet."""
    name, __, decision = request.POST.get("action", "").partition(":")
    origin = _safe(request, request.POST.get("next", "")[:_MAX_FILTER])
    try:
        kind = services.ACTIONS.get(name)
        if kind is None or name not in bulk.VERBS:
            raise InvalidSubmission({"action": [_("Choose what is to be done.")]})
        _check_scope(request, name)
        made = services.job_plan(
            action=name,
            parameters=_parameters(request, kind) | ({"decision": decision[:150]} if decision else {}),
            actor=actor(request),
            origin=origin,
            **_chosen(request, kind),
        )
    except InvalidSubmission as error:
        context = {"errors": problems(error), "origin": origin or reverse("console:jobs")}
        return page(request, "console/bulk/job_refused.html", context, status=422)
    return see_other("console:job", made.public_id)


def _object(name: str, page: str, reference: str) -> SafeString:
    """The link to what a job is about; what has left the store has no name."""
    if not name:
        return format_html('<span class="mono text-faint">{}</span>', middle(reference, 30))
    known = page if page in ("delivery", "pair", "incident") else "message"
    called = name if known in ("pair", "incident") else middle(name, 40)
    return cells.link(cells.to(known, reference), called, "mono")


_ITEMS = (
    Column(gettext_lazy("Result"), lambda row: state("item", row.item.state), "nowrap"),
    Column(gettext_lazy("Object"), lambda row: _object(row.name, row.page, row.reference)),
    Column(gettext_lazy("Why"), lambda row: row.item.detail or "—"),
)
_GROUPS = (
    Column(gettext_lazy("Kind"), lambda group: group.words, "wrap", quiet=True, head=gettext_lazy("Kind")),
    Column(
        gettext_lazy("Count"), lambda group: cells.number(group.count), "num", quiet=True, head=gettext_lazy("Count")
    ),
)


@requires("deliveries:read")
def job_page(request: HttpRequest, reference: str) -> HttpResponse:
    """A plan with its form; or how far a job is, and what came of each object."""
    job = jobs.job(reference)
    if reference != job.public_id:
        return see_other("console:job", job.public_id)
    if job.state == JobState.PLANNED:
        return _plan_page(request, job)
    show = request.GET.get("show", "all")
    show = show if show in _SHOWN else "all"
    found = jobs.items(job.pk, states=tuple(_SHOWN[show]))
    context = keyset_page(request, f"console.job.{job.pk}", found, order=("id",), filters={"show": show})
    context["rows"] = jobs.item_rows(job, context["rows"])
    context["table"] = table(
        _("Results by object"), _ITEMS, context["rows"], about=lambda row: {"data-state": row.item.state}
    )
    context |= {
        "job": job,
        "title": jobs.title(job),
        "progress": jobs.progress(job, clock.now()),
        "show": show,
        "audit": screens.audit_of(job),
        "missing": person(request).lacks(services.ACTIONS[job.action].scope),
        "export": job.action == "messages_export",
    }
    return page(request, "console/bulk/job.html", context, live="live-job")


@requires(SCOPE, methods=("GET", "POST"))
def job_execute(request: HttpRequest, reference: str) -> HttpResponse:
    """GET: the plan with its form. POST: begins the job."""
    job = jobs.job(reference)
    if request.method == "GET":
        planned = job.state == JobState.PLANNED
        return _plan_page(request, job) if planned else see_other("console:job", job.public_id)
    kind = services.ACTIONS[job.action]
    _check_scope(request, job.action)
    if job.state != JobState.PLANNED:
        notices.info(request, _("{who} has begun this job already.").format(who=job.actor))
        return see_other("console:job", job.public_id)
    errors = _form_errors(request, job)
    if errors:
        return _plan_page(request, job, errors=errors, status=422)
    try:
        begun = services.job_execute(
            job_id=job.pk,
            expect_count=int(request.POST["expected"]),
            actor=actor(request),
            reason=request.POST.get("reason", "").strip(),
            parameters=_parameters(request, kind),
        )
    except (Stale, WrongState) as error:
        return _plan_page(request, jobs.job(job.pk), errors=problems(error), status=409)
    except InvalidSubmission as error:
        return _plan_page(request, job, errors=problems(error), status=422)
    notices.success(request, _("The job has begun: {count} to do.").format(count=number(begun.total)))
    return see_other("console:job", begun.public_id)


@requires(SCOPE, methods=("POST",))
def job_discard(request: HttpRequest, reference: str) -> HttpResponse:
    """Throws a plan away, and goes back to where it came from."""
    job = jobs.job(reference)
    try:
        services.job_discard(job_id=job.pk)
    except WrongState as error:
        notices.error(request, error.detail)
        return see_other("console:job", job.public_id)
    return see_other(_safe(request, str(job.plan.get("origin", ""))) or "console:jobs")


@requires(SCOPE, methods=("POST",))
def job_retry(request: HttpRequest, reference: str) -> HttpResponse:
    """Plans the same for what a job was refused."""
    job = jobs.job(reference)
    _check_scope(request, job.action)
    try:
        made = services.job_retry(job_id=job.pk, actor=actor(request))
    except ApplicationError as error:
        notices.error(request, "; ".join(str(text) for __, text in problems(error)))
        return see_other("console:job", job.public_id)
    return see_other("console:job", made.public_id)


@requires("deliveries:read")
def job_results(request: HttpRequest, reference: str) -> StreamingHttpResponse:
    """The result for each object, as a CSV file."""
    job = jobs.job(reference)
    return _file(jobs.csv_lines(job), "text/csv; charset=utf-8", f"{job.public_id}.csv")


@requires("payloads:read")
def job_export(request: HttpRequest, reference: str) -> StreamingHttpResponse:
    """The documents of an export job, as a ZIP file with an index."""
    job = jobs.job(reference)
    if job.action != "messages_export" or job.state != JobState.FINISHED:
        raise PermissionDenied(_("Only an export that is finished has a file."))
    stream = exports.job_export(job=job, actor=actor(request), role=person(request).role)
    return _file(stream, "application/zip", f"{job.public_id}.zip")


@requires(SCOPE, methods=("GET", "POST"))
def job_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a job."""
    found = jobs.job(reference)

    def do() -> HttpResponse:
        services.job_cancel(job_id=found.pk, actor=actor(request), reason=posted(request, "reason"))
        notices.success(request, _("The job is cancelled: what was not done yet is left as it was."))
        return see_other("console:job", found.public_id)

    def shown() -> dict[str, Any]:
        job = jobs.job(found.pk) if request.method == "POST" else found  # what refused it may have changed it
        title, progress = jobs.title(job), jobs.progress(job, clock.now())
        back = reverse("console:job", args=[job.public_id])
        done = _("{job}: {count} of {total}").format(job=title, count=number(progress.ended), total=number(job.total))
        return {
            "title": _("Cancel the job"),
            "crumbs": [(reverse("console:jobs"), _("Jobs")), (back, title)],
            "back": back,
            "leave": _("Keep running") if progress.open else _("Back to the job"),
            "now": format_html("{} {}", state("job", job.state), done),
            "impossible": "" if progress.open else _("The job has ended: there is nothing to cancel."),
            "effects": [
                _("What is done stays done; the one in progress is finished."),
                _("The others stay as they are, and can be settled by another job."),
            ],
            "button": _("Cancel the job"),
            "sign": "ban",
            "testid": "cancel-do",
        }

    return dialog(request, "console/parts/question.html", shown, do)


def _ended(request: HttpRequest) -> list[tuple[str, str, str]]:
    """Toasts about the person's own jobs that have ended in the last minutes, on whatever page they are."""
    found = jobs.ended_for([person(request).name], clock.now() - _NEWS)
    return [(job.public_id, _news(job), reverse("console:job", args=[job.public_id])) for job in found]


def _news(job: BulkJob) -> str:
    if job.state == JobState.CANCELLED:
        said = (
            _("{job}: cancelled, {done} of {total} done, {refused} refused.")
            if job.refused
            else _("{job}: cancelled, {done} of {total} done.")
        )
    elif job.refused:
        said = _("{job}: finished, {done} of {total} done, {refused} refused.")
    else:
        said = _("{job}: finished, {done} of {total} done.")
    counts = {"done": number(job.done), "total": number(job.total), "refused": number(job.refused)}
    return said.format(job=jobs.title(job), **counts)


TOASTS.append(_ended)


def _plan_page(
    request: HttpRequest, job: BulkJob, *, errors: list[tuple[str, str]] | None = None, status: int = 200
) -> HttpResponse:
    verb = bulk.verb_of(job)
    plan = jobs.plan(job, clock.now())
    who = person(request)
    missing = who.lacks(verb.scope)
    why_not = _("This needs the role {role}.").format(role=missing) if missing else ""
    if plan.expired:
        why_not = _("This plan is older than an hour: much may have changed since. Plan it again.")
    objects = bulk.objects(verb, job.total)
    context = {
        "job": job,
        "verb": verb,
        "plan": plan,
        "sample": [_object(*one) for one in plan.sample],
        "table": table(
            _("Selected objects, by kind"),
            _GROUPS,
            plan.groups,
            about=lambda group: {"data-testid": "plan-group"},
            css="table-vcenter card-table",
        ),
        "counted": objects.format(count=number(job.total)),
        "marked": format_html(
            objects,
            count=format_html('<span class="strong" data-testid="plan-count">{}</span>', number(job.total)),
        ),
        "effects": [text.replace("{waiting}", number(plan.waiting)) for text in verb.effects],
        "fields": bulk.fields(verb, job, who.name) if not why_not else [],
        "why_not": why_not,
        "origin": _safe(request, plan.origin) or reverse("console:jobs"),
        "errors": errors or [],
        "given": request.POST,
    }
    return page(request, "console/bulk/job_plan.html", context, status=status)


def _chosen(request: HttpRequest, kind: services.Action) -> dict[str, Any]:
    """What of the list is meant: all that its filter shows, or the rows that were ticked.

    From the list of pairs, an action on incidents is about the unresolved ones of these pairs.
    """
    of_pairs = request.POST.get("list") == "pairs" and kind.prefix == "inc"
    prefix = "pair" if of_pairs else kind.prefix
    if request.POST.get("all"):
        query = request.POST.get("filter", "").replace("\x00", "")[:_MAX_FILTER].lstrip("?")
        given = dict(parse_qsl(query))
        rows = jobs.matching(prefix, given, zones.zone_of(request))
        chosen = jobs.described(prefix, given, zones.zone_of(request))
        if of_pairs:
            said = ", ".join(f"{name}: {text}" for name, text in sorted(chosen.items()))
            return {"rows": jobs.incidents_of(rows), "chosen": {"pairs": said or "all of them"}}
        return {"rows": rows, "chosen": chosen}
    ids: list[uuid.UUID] = []
    for text in request.POST.getlist("ids"):
        try:
            ids.append(read_id(prefix, text))
        except BadPublicId as error:
            raise InvalidSubmission(
                {"ids": [_("This selection is not of this list: choose the rows again.")]}
            ) from error
    if not ids:
        raise InvalidSubmission({"ids": [_("Nothing is chosen: tick rows, or take all that match.")]})
    if of_pairs:
        rows = jobs.incidents_of(pairs.pairs().filter(pk__in=ids))
        return {"rows": rows, "chosen": {"pairs": f"{len(set(ids)):,} chosen one by one"}}
    return {"ids": ids}


def _parameters(request: HttpRequest, kind: services.Action) -> dict[str, Any]:
    """Those of the action's parameters that the form has; numbers are read, and what is none is left to the service."""
    found: dict[str, Any] = {}
    for name in (*kind.takes, *(("decision", "remind_in") if kind.decisions else ())):
        text = request.POST.get(name, "").strip()
        if not text:
            continue
        digits = name in _NUMBERS and text.isascii() and text.isdigit() and len(text) < 9
        found[name] = int(text) if digits else text[:150]
    return found


def _form_errors(request: HttpRequest, job: BulkJob) -> list[tuple[str, str]]:
    errors = []
    seen = request.POST.get("expected", "")
    if not (seen.isascii() and seen.isdigit() and len(seen) < 9):
        errors.append(("", _("This form is not complete: open it again.")))
    if "\x00" in request.POST.get("reason", ""):
        errors.append(("reason", _("There is a control character in this text: remove it.")))
    if bulk.verb_of(job).heavy and not confirmed(request.POST.get("confirm", ""), str(job.total)):
        errors.append(("confirm", _("Type {count} to show that you mean all of them.").format(count=job.total)))
    return errors


def _check_scope(request: HttpRequest, action: str) -> None:
    scope = services.ACTIONS[action].scope
    missing = person(request).lacks(scope)
    if missing:
        audit.denied(actor(request), "job.act", object_type="action", object_id=action, required=scope)
        raise PermissionDenied(_("This needs the role {role}.").format(role=missing))


def _safe(request: HttpRequest, path: str) -> str:
    """A page of ours, "" for anything else."""
    ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts={request.get_host()})
    return path if ours else ""


def _file(stream: Iterator[Any], content_type: str, name: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(stream, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
