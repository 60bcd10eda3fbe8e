"""CPA 2.0 documents: a dry run that says what becomes of each element, then the import; and versions as documents."""

from __future__ import annotations

import base64
import binascii

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _

from messaging.console.access import actor, requires
from messaging.console.rendering import page, posted, see_other
from messaging.exceptions import InvalidSubmission
from messaging.onboarding.pages import agreements, tables
from messaging.onboarding.pages.forms import INVALID, Errors, reason_of, refusals
from messaging.onboarding.services import cpa
from messaging.onboarding.services.cpa import CpaReport
from messaging.onboarding.services.cpa_export import cpa_export
from partners.cpa.findings import Kind


@requires(agreements.SCOPE, methods=("GET", "POST"))
def cpa_page(request: HttpRequest) -> HttpResponse:
    """GET: the form. POST: the dry run of a document, or (`do`) the import of what the dry run showed."""
    errors: Errors = {}
    done: CpaReport | None = None
    octets, own, activate = b"", posted(request, "own"), request.POST.get("activate") == "on"
    if request.method == "POST":
        try:
            octets = _octets(request)
            done = cpa.cpa_import(octets=octets, own=own, actor=actor(request), reason="", dry_run=True)
            if "do" in request.POST and not done.report.problems:
                made = cpa.cpa_import(
                    octets=octets, own=own, actor=actor(request), reason=reason_of(request), activate=activate
                ).report
                said = _("The import is done: {made} created, {changed} changed.")
                notices.success(request, said.format(made=made.count("create"), changed=made.count("change")))
                return see_other("console:agreements")
        except INVALID as error:
            errors = refusals(error)
    context = {
        "done": done,
        "report": done.report if done else None,
        "table": tables.bundle(done.report) if done else None,
        "conflicts": tables.findings(_("What does not fit"), done.of_kind(Kind.CONFLICTING)) if done else None,
        "ignored": tables.findings(_("What is ignored"), done.of_kind(Kind.IGNORED)) if done else None,
        "mapped": tables.findings(_("What is taken"), done.of_kind(Kind.MAPPED)) if done else None,
        # In the form, so that the import is of the very octets that the dry run was of.
        "octets": base64.b64encode(octets).decode(),
        "own": own,
        "activate": activate,
        "errors": [
            (field if field == "reason" or (field == "own" and done is None) else "", one)
            for field, texts in errors.items()
            for one in texts
        ],
        "given": request.POST,
        "presets": (_("Agreed with the partner"), _("Terms changed")),
    }
    return page(request, "console/onboarding/cpa.html", context, status=422 if errors else 200)


def _octets(request: HttpRequest) -> bytes:
    """The file, else what was looked at before, else the text. Raises InvalidSubmission."""
    file = request.FILES.get("cpa_file")
    if file is not None:
        if (file.size or 0) > cpa.MAX_BYTES:
            raise InvalidSubmission({"cpa": [_("The file is too large for a CPA.")]})
        return bytes(file.read())
    if kept := request.POST.get("octets", ""):
        try:
            return base64.b64decode(kept, validate=True)
        except (ValueError, binascii.Error):
            raise InvalidSubmission({"cpa": [_("Choose the file again.")]}) from None
    return cpa.octets_of(request.POST.get("cpa", ""))


@requires("agreements:read")
def cpa_download(request: HttpRequest, reference: str, number: int) -> HttpResponse:
    """A version as a document; or, on its page, what it lacks for that."""
    version = agreements.version_of(agreements.agreement_of(reference), number)
    try:
        octets = cpa_export(version=version)
    except InvalidSubmission as error:
        for text in error.errors["cpa"]:
            notices.error(request, text)
        return see_other("console:agreement-version", reference, number)
    answer = HttpResponse(octets, content_type="application/xml")
    name = "".join(one if one.isalnum() or one in "-_." else "_" for one in version.agreement.tpa_id)
    answer["Content-Disposition"] = content_disposition_header(True, f"{name}.xml") or "attachment"
    return answer
