"""Bulk jobs: the list, one with its progress and results, and cancelling it."""

from __future__ import annotations

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.choices import ItemState
from messaging.console.access import actor, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.selectors import jobs, screens
from messaging.services import jobs as services
from rmhub import clock

SCOPE = "indoubt:resolve"
_SHOWN = {
    "all": (),
    "refused": (ItemState.REFUSED,),
    "done": (ItemState.DONE,),
    "waiting": (ItemState.PENDING, ItemState.CANCELLED),
}


@requires("deliveries:read")
def job_list(request: HttpRequest) -> HttpResponse:
    """Newest first."""
    context = keyset_page(request, "console.jobs", jobs.jobs(), order=("-id",), filters={})
    now = clock.now()
    context["rows"] = [(jobs.progress(job, now), jobs.title(job)) for job in context["rows"]]
    context["first_page"] = not request.GET.get("cursor")
    return page(request, "console/jobs.html", context, fragments={"live-jobs": "console/jobs_live.html"})


@requires("deliveries:read")
def job_page(request: HttpRequest, reference: str) -> HttpResponse:
    """How far it is, and what came of each object."""
    job = jobs.job(reference)
    if reference != job.public_id:
        return see_other("console:job", job.public_id)
    show = request.GET.get("show", "all")
    show = show if show in _SHOWN else "all"
    found = jobs.items(job.pk, states=tuple(_SHOWN[show]))
    context = keyset_page(request, f"console.job.{job.pk}", found, order=("id",), filters={"show": show})
    context["rows"] = jobs.item_rows(job, context["rows"])
    context |= {
        "job": job,
        "title": jobs.title(job),
        "progress": jobs.progress(job, clock.now()),
        "show": show,
        "audit": screens.audit_of(job),
    }
    return page(request, "console/job.html", context, fragments={"live-job": "console/job_live.html"})


@requires(SCOPE, methods=("GET", "POST"))
def job_cancel(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a job."""
    job = jobs.job(reference)
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        try:
            services.job_cancel(job_id=job.pk, actor=actor(request), reason=reason)
        except WrongState as error:
            errors, status = problems(error), 409
            job = jobs.job(job.pk)
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, "The job is cancelled: what was not done yet is left as it was.")
            return see_other("console:job", job.public_id)
    progress = jobs.progress(job, clock.now())
    context = {"job": job, "title": jobs.title(job), "progress": progress, "errors": errors, "given": request.POST}
    return page(
        request, "console/job_cancel.html", context, fragments={"dialog": "console/job_cancel_form.html"}, status=status
    )
