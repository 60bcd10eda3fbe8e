"""Bundles: the whole set-up as one JSON document, out of this hub and into it; first as a dry run that says what would
change.
"""

from __future__ import annotations

import json

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.access.selectors.reach import read_id
from messaging.console.access import actor, requires
from messaging.console.rendering import page, see_other
from messaging.exceptions import InvalidSubmission
from messaging.onboarding.pages import tables
from messaging.onboarding.pages.forms import INVALID, Errors, reason_of, refusals
from messaging.onboarding.services import bundle as services
from messaging.onboarding.services import bundle_format
from messaging.onboarding.services.bundle import ImportReport
from partners import selectors
from partners.models import Party
from rmhub import clock
from rmhub.ids import BadPublicId

SCOPE = "agreements:write"


@requires(SCOPE, methods=("GET", "POST"))
def bundle_page(request: HttpRequest) -> HttpResponse:
    """GET: what can be done. POST: the dry run of a bundle, or (`do`) the import of what the dry run showed."""
    errors: Errors = {}
    report: ImportReport | None = None
    text, activate = "", request.POST.get("activate") == "on"
    if request.method == "POST":
        try:
            text = _text(request)
            found = bundle_format.read(text)
            report = services.bundle_import(bundle=found, actor=actor(request), reason="", dry_run=True)
            if "do" in request.POST and not report.problems:
                done = services.bundle_import(
                    bundle=found, actor=actor(request), reason=reason_of(request), activate=activate
                )
                made, changed = done.count("create"), done.count("change")
                notices.success(request, f"The bundle is imported: {made} made, {changed} changed.")
                return see_other("console:agreements")
        except INVALID as error:
            errors = refusals(error)
    context = {
        "report": report,
        "table": tables.bundle(report) if report is not None else None,
        "text": text if report is not None else "",
        "activate": activate,
        "errors": [(field if field == "reason" else "", one) for field, texts in errors.items() for one in texts],
        "given": request.POST,
        "presets": ("New set-up", "Copied from another hub"),
        "partners": [(one.public_id, one.name) for one in selectors.parties(is_own=False)[:500]],
    }
    return page(request, "console/onboarding/bundle.html", context, status=422 if errors else 200)


def _text(request: HttpRequest) -> str:
    file = request.FILES.get("bundle_file")
    if file is None:
        return request.POST.get("bundle", "").replace("\x00", "")
    if (file.size or 0) > bundle_format.MAX_BYTES:
        raise InvalidSubmission({"bundle": ["The file is too large for a bundle."]})
    try:
        return str(file.read(), "utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidSubmission({"bundle": ["The file is no JSON in UTF-8."]}) from None


@requires("agreements:read")
def bundle_download(request: HttpRequest) -> HttpResponse:
    """The bundle of one partner (`partner`), or of all, as a file."""
    chosen, name = None, "all"
    if reference := request.GET.get("partner", ""):
        try:
            party = selectors.parties().get(pk=read_id("par", reference))
        except (BadPublicId, Party.DoesNotExist):
            return see_other("console:bundle")
        chosen, name = [party.pk], party.public_id
    content = json.dumps(services.bundle_export(party_ids=chosen), indent=2, ensure_ascii=False)
    answer = HttpResponse(content, content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="bundle-{name}-{clock.now():%Y%m%d}.json"'
    return answer
