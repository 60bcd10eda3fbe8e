"""Onboarding: drafts of the wizard, the test bench, and bundles."""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, ReasonBody, page_of, validated
from messaging.api.handlers import listed, shown
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.exceptions import InvalidSubmission
from messaging.models import BenchReport, OnboardingDraft
from messaging.onboarding import selectors
from messaging.onboarding.api.agreements import version_key
from messaging.onboarding.serializers import onboarding as shapes
from messaging.onboarding.services import bench, bundle, bundle_format, cpa, partner_csv
from messaging.onboarding.services import drafts as onboarding_drafts
from messaging.onboarding.services.bundle import ImportReport

_DRAFT = {"draft": "Id of the draft (`drf_...`)."}
_CHANGE = ("stale", "precondition_required", "invalid_header")
REPORT_FILTERS = (Param("agreement", "Id of an agreement.", "id", prefix="agr"),)
BUNDLE_FILTERS = (
    Param("party", "Id, name or identifier of a partner: only it, and whatever its agreements need.", "party"),
)


class Drafts(Endpoint):
    """/onboarding-drafts"""

    @operation(
        id="onboarding_drafts_list",
        tag="onboarding",
        scope="partners:write",
        summary="List drafts of partners, the last changed first",
        parameters=PAGING,
        responses={200: page_of(shapes.DraftSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, ())
        page = keyset.page(selectors.drafts(), order=("-updated_at", "-id"), limit=limit, place=place)
        return listing(request, values, page, lambda rows: [shapes.draft(row) for row in rows])

    @operation(
        id="onboarding_drafts_create",
        tag="onboarding",
        scope="partners:write",
        summary="Start a draft: blank, as a copy of an agreement's terms, or from a bundle",
        request=shapes.DraftBody,
        responses={201: shapes.DraftDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.DraftBody, request.data)
        if values["source"] == "bundle":
            made = onboarding_drafts.draft_from_bundle(
                bundle=bundle_format.read_document(values.get("bundle")), actor=actor_of(request)
            )
        else:
            made = onboarding_drafts.draft_create(
                actor=actor_of(request), source=values["source"], clone_of=values.get("clone_of")
            )
        return _draft(request, made, status=201)


class OneDraft(Endpoint):
    """/onboarding-drafts/{draft}"""

    @operation(
        id="onboarding_drafts_read",
        tag="onboarding",
        scope="partners:write",
        summary="One draft, with what is in its way",
        path=_DRAFT,
        responses={200: shapes.DraftDetailSerializer},
    )
    def get(self, request: Request, draft: str) -> Response:
        read_parameters(request, ())
        return _draft(request, selectors.draft(id_of("drf", draft)))

    @sensitive_variables("values")
    @operation(
        id="onboarding_drafts_change",
        tag="onboarding",
        scope="partners:write",
        summary="Keep one step of a draft",
        description="Values that are wrong are kept too, and listed under `problems`.",
        path=_DRAFT,
        request=shapes.DraftChanges,
        responses={200: shapes.DraftDetailSerializer},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, draft: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.DraftChanges, request.data)
        kept = onboarding_drafts.draft_save(
            draft_id=id_of("drf", draft),
            step=values["step"],
            values=values["values"],
            secret=values["secret"],
            actor=actor_of(request),
            expected=expected,
        )
        return _draft(request, kept)

    @operation(
        id="onboarding_drafts_discard",
        tag="onboarding",
        scope="partners:write",
        summary="Discard a draft, and what it has created as far as nothing else uses it",
        path=_DRAFT,
        responses={204: None},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, draft: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(OptionalReasonBody, request.data)
        onboarding_drafts.draft_discard(
            draft_id=id_of("drf", draft), actor=actor_of(request), reason=values["reason"], expected=expected
        )
        return Response(status=204)


class TestDraft(Endpoint):
    """/onboarding-drafts/{draft}/test"""

    @operation(
        id="onboarding_drafts_test",
        tag="onboarding",
        scope="partners:write",
        summary="Create party, endpoint and agreement as drafts, and test them",
        description="Nothing is in force afterwards. Talks to the partner's server, for less than a minute.",
        path=_DRAFT,
        responses={201: shapes.BenchReportSerializer},
    )
    def post(self, request: Request, draft: str) -> Response:
        read_parameters(request, ())
        made = onboarding_drafts.draft_make(draft_id=id_of("drf", draft), actor=actor_of(request))
        assert made.agreement_id is not None
        number = max(made.agreement.versions.values_list("number", flat=True))  # type: ignore[union-attr]
        report = bench.run(agreement_id=made.agreement_id, number=number, actor=actor_of(request), draft_id=made.pk)
        onboarding_drafts.draft_reach(draft_id=made.pk, step=len(onboarding_drafts.STEPS))
        return _report(request, report)


class ActivateDraft(Endpoint):
    """/onboarding-drafts/{draft}/activate"""

    @sensitive_variables("done", "data")
    @operation(
        id="onboarding_drafts_activate",
        tag="onboarding",
        scope="partners:write",
        summary="Put a draft in force, and end it",
        description="Needs the scope `agreements:write` too, as the activation of any agreement does.",
        path=_DRAFT,
        request=ReasonBody,
        responses={200: shapes.ActivatedSerializer},
        problems=(*_CHANGE, "wrong_state", "agreement_invalid"),
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, draft: str) -> Response:
        read_parameters(request, ())
        _require_too(request, "agreements:write")
        expected = expected_version(request)
        values = validated(ReasonBody, request.data)
        done = onboarding_drafts.draft_activate(
            draft_id=id_of("drf", draft), actor=actor_of(request), reason=values["reason"], expected=expected
        )
        agreement = done.version.agreement
        data = {
            "agreement": agreement.public_id,
            "number": done.version.number,
            "partner": agreement.partner.public_id,
            "credential": done.credential.public_id if done.credential else None,
            "secret": done.shown_once or None,
        }
        return Response(data)


class TestVersion(Endpoint):
    """/agreements/{agreement_id}/versions/{number}/test"""

    @operation(
        id="agreements_test_version",
        tag="onboarding",
        scope="agreements:write",
        summary="Test a version: settings, credentials, server, round trip, a repeat, an order that is broken, echo",
        description="Sends nothing but to the partner's test service, and stores nothing but the report.",
        path={"agreement_id": "Id of the agreement (`agr_...`).", "number": "Number of the version."},
        responses={201: shapes.BenchReportSerializer},
    )
    def post(self, request: Request, agreement_id: str, number: str) -> Response:
        read_parameters(request, ())
        report = bench.run(**version_key(agreement_id, number), actor=actor_of(request))
        return _report(request, report)


class BenchReports(Endpoint):
    """/test-reports"""

    get = listed(
        lambda agreement=None: selectors.reports(agreement_id=agreement),
        shapes.BenchReportSerializer,
        id="test_reports_list",
        tag="onboarding",
        scope="agreements:read",
        summary="List reports of tests, newest first",
        order=("-id",),
        filters=REPORT_FILTERS,
    )


class OneBenchReport(Endpoint):
    """/test-reports/{report}"""

    get = shown(
        lambda report: selectors.report(report),
        shapes.BenchReportSerializer,
        id="test_reports_read",
        tag="onboarding",
        scope="agreements:read",
        summary="One report of a test",
        path={"report": "Id of the report (`tst_...`)."},
    )


class Bundle(Endpoint):
    """/bundle"""

    max_body = bundle_format.MAX_BYTES

    @operation(
        id="bundle_export",
        tag="onboarding",
        scope="agreements:read",
        summary="Parties, endpoints and agreements as one document, without secrets",
        parameters=BUNDLE_FILTERS,
        responses={200: shapes.BundleSerializer},
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, BUNDLE_FILTERS)
        return Response(bundle.bundle_export(party_ids=[values["party"]] if values["party"] else None))

    @operation(
        id="bundle_import",
        tag="onboarding",
        scope="agreements:write",
        summary="Import a bundle, or partners from CSV; or say what an import would do",
        description="All of it or nothing. What is there already stays as it is; terms that differ become a draft. "
        "`reason` is needed unless it is a dry run. Needs the scope `partners:write` too.",
        request=shapes.BundleBody,
        responses={200: shapes.ImportReportSerializer},
        problems=("agreement_invalid", "wrong_state"),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        _require_too(request, "partners:write")
        values = validated(shapes.BundleBody, request.data)
        if ("bundle" in values) == ("csv" in values):
            raise InvalidSubmission({"bundle": ["Give either bundle or csv."]})
        if "csv" in values:
            found = partner_csv.read(values["csv"], values.get("template", ""))
        else:
            found = bundle_format.read_document(values["bundle"])
        report: ImportReport = bundle.bundle_import(
            bundle=found,
            actor=actor_of(request),
            reason=values["reason"],
            dry_run=values["dry_run"],
            activate=values["activate"],
        )
        return Response(shapes.ImportReportSerializer(report).data)


class Cpa(Endpoint):
    """/cpa"""

    max_body = 2 * cpa.MAX_BYTES  # in JSON a character may take two

    @operation(
        id="cpa_import",
        tag="onboarding",
        scope="agreements:write",
        summary="Import a CPA 2.0 as an agreement; or say what an import would do",
        description="All of it or nothing. What is there already stays as it is; terms that differ become a draft. "
        "`reason` is needed unless it is a dry run. Needs the scope `partners:write` too.",
        request=shapes.CpaBody,
        responses={200: shapes.CpaReportSerializer},
        problems=("agreement_invalid", "wrong_state"),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        _require_too(request, "partners:write")
        values = validated(shapes.CpaBody, request.data)
        done = cpa.cpa_import(
            octets=cpa.octets_of(values["cpa"]),
            own=values["own"],
            actor=actor_of(request),
            reason=values["reason"],
            dry_run=values["dry_run"],
            activate=values["activate"],
        )
        return Response(shapes.cpa_report(done))


def _require_too(request: Request, scope: str) -> None:
    """A second scope: what the operation does is what operations with that scope do one by one. Raises Problem."""
    if scope not in access_of(request).scopes:
        raise Problem("missing_scope", f"This needs the scope {scope} too.", required_scope=scope)


def _draft(request: Request, found: OnboardingDraft, *, status: int = 200) -> Response:
    check = onboarding_drafts.draft_check(draft_id=found.pk)
    data = shapes.draft(found, check)
    headers = {"Location": f"/api/v1/onboarding-drafts/{found.public_id}"} if status == 201 else {}
    return item(request, data, revision=found.version, status=status, **headers)


def _report(request: Request, report: BenchReport) -> Response:
    data = dict(shapes.BenchReportSerializer(report).data)
    return item(request, data, status=201, Location=f"/api/v1/test-reports/{report.public_id}")
