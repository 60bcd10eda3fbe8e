"""What a person makes of reports: incidents of the audit, a draft of advised times; and how partners' logs look."""

from __future__ import annotations

from typing import Any

from django.contrib import messages as notices
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import page, problems, see_other
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from messaging.models import TimingAdvice
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services import content as onboarding_content
from messaging.report_choices import AuditKind, PipelineJob, TimingOption
from messaging.reports.pages import log_mapping
from messaging.reports.pages.reconciliation import said_of_incidents
from messaging.reports.selectors import reports
from messaging.reports.services import actions as report_actions
from messaging.reports.services.actions import AUDIT_KINDS, run_id_of
from partners import selectors as partners
from partners.exceptions import InvalidInput
from partners.exceptions import WrongState as PartnersWrongState
from partners.models import Agreement

SCOPE = "pipeline:run"


@requires(SCOPE, methods=("GET", "POST"))
def audit_incidents(request: HttpRequest) -> HttpResponse:
    """The dialog, and incidents of the broken promises that the audit found."""
    shown = reports.shown(PipelineJob.AUDIT)
    chosen = request.POST.getlist("kind") if request.method == "POST" else list(AUDIT_KINDS)
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            if not chosen:
                raise InvalidSubmission({"kind": ["Choose what incidents are made of."]})
            opened = report_actions.audit_incidents(
                actor=actor(request),
                reason=_text(request, "reason"),
                kinds=chosen,
                run_id=run_id_of(_text(request, "run")),
            )
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except WrongState as error:
            errors, status = problems(error), 409
        else:
            notices.success(request, said_of_incidents(len(opened.incidents), opened.known))
            return see_other("console:incidents")
    counts: dict[str, tuple[int, int]] = {}
    if shown.run is not None:
        counts = reports.finding_counts(shown.run.pk, shown.report.table("findings"), "kind")
    words = dict(AuditKind.choices)
    context = {
        "title": "Incidents of the audit",
        "action": request.path,
        "back": ("console:report", PipelineJob.AUDIT.value),
        "kinds": [(one, words[one], counts[one][0]) for one in AUDIT_KINDS if one in counts],
        "chosen": chosen,
        "run": shown.run,
        "errors": errors,
        "given": request.POST,
    }
    fragments = {"dialog": "console/reports/open_incidents_form.html"}
    return page(request, "console/reports/open_incidents.html", context, fragments=fragments, status=status)


@requires("agreements:write", methods=("GET", "POST"))
def timing_draft(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and a draft of the agreement's next version with the times that the advice proposes."""
    agreement = _agreement(reference)
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            made = report_actions.timing_draft(
                agreement_id=agreement.pk,
                actor=actor(request),
                reason=_text(request, "reason"),
                run_id=run_id_of(_text(request, "run")),
            )
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        except (WrongState, InvalidInput, PartnersWrongState) as error:
            errors, status = [("", _sentence(error))], 409
        else:
            notices.success(
                request, f"Version {made.number} of {agreement} is a draft: activate it to put it in force."
            )
            return see_other("console:agreement-version", agreement.public_id, made.number)
    shown = reports.shown(PipelineJob.TIMING)
    advice = _advice(agreement, shown.run.pk) if shown.run is not None else {}
    context = {
        "agreement": agreement,
        "run": shown.run,
        "in_force": advice.get(TimingOption.IN_FORCE),
        "proposed": advice.get(TimingOption.PROPOSED),
        "draft": next((one for one in agreement.versions.all() if one.state == "draft"), None),
        "errors": errors,
        "given": request.POST,
    }
    fragments = {"dialog": "console/reports/timing_draft_form.html"}
    return page(request, "console/reports/timing_draft.html", context, fragments=fragments, status=status)


@requires("agreements:write", methods=("GET", "POST"))
def agreement_log_columns(request: HttpRequest, reference: str) -> HttpResponse:
    """How the columns of logs that come under the agreement are called."""
    agreement = _agreement(reference)
    errors: list[tuple[str, str]] = []
    status = 200
    mapping: Any = agreement.log_columns
    if request.method == "POST":
        mapping = log_mapping.posted(request.POST)
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
            notices.success(request, f"Logs that come under {agreement} are read so from now on.")
            return see_other("console:agreement", agreement.public_id)
    context = {
        "agreement": agreement,
        "revision": onboarding_content.revision(_agreement(reference)),
        "columns": log_mapping.fields(mapping),
        "settings": log_mapping.settings_of(mapping),
        "errors": errors,
        "given": request.POST,
    }
    return page(request, "console/reports/agreement_log_columns.html", context, status=status)


def _agreement(reference: str) -> Agreement:
    try:
        return partners.agreement(read_id("agr", reference))
    except ObjectDoesNotExist as error:
        raise Http404(f"There is no agreement {reference}.") from error


def _advice(agreement: Agreement, run_id: Any) -> dict[str, TimingAdvice]:
    found = reports.rows(run_id, reports.report(PipelineJob.TIMING).table("advice"))
    return {one.option: one for one in found.filter(agreement_id=agreement.pk)}


def _sentence(error: Exception) -> str:
    if isinstance(error, PartnersWrongState):
        return error.why
    return error.detail if isinstance(error, ApplicationError) else str(error)


def _text(request: HttpRequest, name: str) -> str:
    return request.POST.get(name, "").strip()[:2000].replace("\x00", "")
