"""Agreements and their versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, ReasonBody, page_of, validated
from messaging.api.octets import download
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.messages.services.disclosing import Octets
from messaging.onboarding.api.parties import change_of
from messaging.onboarding.serializers import agreements as shapes
from messaging.onboarding.serializers.levels import ServiceLevelsSerializer
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.changing import revision
from messaging.onboarding.services.cpa_export import cpa_export
from messaging.sla import selectors as sla
from partners import models, selectors
from partners.choices import VersionState
from rmhub import clock

_PATH = {"agreement_id": "Id of the agreement (`agr_...`)."}
_VERSION = {**_PATH, "number": "Number of the version."}
_CHANGE = ("wrong_state", "stale", "precondition_required", "invalid_header")
FILTERS = (
    Param("q", "Part of the TPAId, the name or a party's name."),
    Param("party", "Id, name or identifier of a party.", "party"),
    Param("state", "Only those with a version in this state.", "choice", choices=tuple(VersionState.values)),
    sort_parameter(*selectors.AGREEMENT_ORDERS),
)
_ENDS = {"own_party": "own_party_id", "partner": "partner_id"}
_POINTS = {"own_endpoint": "own_endpoint_id", "partner_endpoint": "partner_endpoint_id", "services": "allowed"}
_EXAMPLE = OpenApiExample(
    "An agreement",
    value={
        "tpa_id": "tpa:acme-globex",
        "own_party": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
        "partner": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c8",
        "own_endpoint": "end_0192f3f2f3e47a5fb0c1d2e3f4a5b6c9",
        "partner_endpoint": "end_0192f3f2f3e47a5fb0c1d2e3f4a5b6ca",
        "services": [{"service": "urn:orders", "action": "*", "direction": "both"}],
        "timeout": 60,
        "retries": 5,
        "retry_interval": 300,
    },
    request_only=True,
)


class Agreements(Endpoint):
    """/agreements"""

    @operation(
        id="agreements_list",
        tag="agreements",
        scope="agreements:read",
        summary="List agreements, by TPAId",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.AgreementSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = selectors.agreements(search=values["q"] or "", party_id=values["party"], state=values["state"] or "")
        page = keyset.page(found, order=selectors.AGREEMENT_ORDERS[values["sort"]], limit=limit, place=place)
        return listing(request, values, page, shapes.AgreementSerializer)

    @operation(
        id="agreements_create",
        tag="agreements",
        scope="agreements:write",
        summary="Create an agreement, with version 1 as a draft",
        description="What contradicts itself is listed under `problems` of the version; errors keep it from being "
        "activated. A setting that is absent has the default.",
        request=shapes.AgreementBody,
        responses={201: shapes.AgreementDetailSerializer},
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = _arguments(validated(shapes.AgreementBody, request.data))
        agreement = onboarding.agreement_create(actor=actor_of(request), **values)
        return _agreement(request, agreement, status=201)


class _OfAgreement(Endpoint):
    """A part of an agreement, or a verb: what is refused says what the agreement allows."""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        """By the last part of the verb's path. `activate` is of the draft, and `versions` starts one."""
        states = {version.state for version in _read(kwargs["agreement_id"]).versions.all()}
        draft = "activate" if VersionState.DRAFT in states else "versions"
        switches = {VersionState.ACTIVE: "disable", VersionState.DISABLED: "enable"}
        return [draft, *(verb for state, verb in switches.items() if state in states)]


class OneAgreement(_OfAgreement):
    """/agreements/{agreement_id}"""

    @operation(
        id="agreements_read",
        tag="agreements",
        scope="agreements:read",
        summary="One agreement with its versions",
        path=_PATH,
        responses={200: shapes.AgreementDetailSerializer},
    )
    def get(self, request: Request, agreement_id: str) -> Response:
        read_parameters(request, ())
        return _agreement(request, _read(agreement_id))

    @operation(
        id="agreements_change",
        tag="agreements",
        scope="agreements:write",
        summary="Change an agreement's name, or its TPAId while no version was active",
        path=_PATH,
        request=shapes.AgreementChanges,
        responses={200: shapes.AgreementDetailSerializer},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, agreement_id: str) -> Response:
        values = change_of(request, shapes.AgreementChanges)
        return _agreement(request, onboarding.agreement_update(agreement_id=id_of("agr", agreement_id), **values))


class ServiceLevels(_OfAgreement):
    """/agreements/{agreement_id}/service-levels"""

    @operation(
        id="agreements_service_levels",
        tag="agreements",
        scope="agreements:read",
        summary="How an agreement keeps its targets: this month, and the months before it",
        path=_PATH,
        responses={200: ServiceLevelsSerializer},
    )
    def get(self, request: Request, agreement_id: str) -> Response:
        read_parameters(request, ())
        agreement, now = _read(agreement_id), clock.now()
        found = {
            "counted_through": sla.counted_through(),
            "now": sla.attainments([agreement], now),
            "months": sla.history(agreement, now),
        }
        return Response(ServiceLevelsSerializer(found).data)


def _switch(name: str, summary: str, service: Callable[..., models.Agreement]) -> type[Endpoint]:
    """The view of a verb that takes an agreement out of force, or puts it back."""

    class Verb(_OfAgreement):
        """/agreements/{agreement_id}/<verb>"""

        @operation(
            id=f"agreements_{name}",
            tag="agreements",
            scope="agreements:write",
            summary=summary,
            path=_PATH,
            request=ReasonBody,
            responses={200: shapes.AgreementDetailSerializer},
            problems=_CHANGE,
            headers=(IF_MATCH,),
        )
        def post(self, request: Request, agreement_id: str) -> Response:
            values = change_of(request, ReasonBody)
            return _agreement(request, service(agreement_id=id_of("agr", agreement_id), **values))

    return Verb


DisableAgreement = _switch("disable", "Take the active version out of force", onboarding.agreement_disable)
EnableAgreement = _switch("enable", "Put the disabled version back in force", onboarding.agreement_enable)


class Versions(_OfAgreement):
    """/agreements/{agreement_id}/versions"""

    @operation(
        id="agreements_new_version",
        tag="agreements",
        scope="agreements:write",
        summary="Start a new version: the latest once more, as a draft",
        path=_PATH,
        request=shapes.VersionBody,
        responses={201: shapes.VersionDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, agreement_id: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.VersionBody, request.data)
        made = onboarding.version_new(agreement_id=id_of("agr", agreement_id), actor=actor_of(request), **values)
        return _version(request, made, status=201)


class OneVersion(_OfAgreement):
    """/agreements/{agreement_id}/versions/{number}"""

    @operation(
        id="agreements_read_version",
        tag="agreements",
        scope="agreements:read",
        summary="One version, and what contradicts itself in it",
        path=_VERSION,
        responses={200: shapes.VersionDetailSerializer},
    )
    def get(self, request: Request, agreement_id: str, number: str) -> Response:
        read_parameters(request, ())
        return _version(request, _found(agreement_id, number))

    @operation(
        id="agreements_edit_version",
        tag="agreements",
        scope="agreements:write",
        summary="Change a draft",
        path=_VERSION,
        request=shapes.VersionChanges,
        responses={200: shapes.VersionDetailSerializer},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, agreement_id: str, number: str) -> Response:
        values = _arguments(change_of(request, shapes.VersionChanges))
        return _version(request, onboarding.version_edit(**version_key(agreement_id, number), **values))

    @operation(
        id="agreements_discard_version",
        tag="agreements",
        scope="agreements:write",
        summary="Delete a draft, and with the only version its agreement too",
        path=_VERSION,
        responses={204: None},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, agreement_id: str, number: str) -> Response:
        values = change_of(request, OptionalReasonBody)
        onboarding.version_discard(**version_key(agreement_id, number), **values)
        return Response(status=204)


def _cpa(_request: Request, agreement_id: str, number: str) -> Octets:
    version = _found(agreement_id, number)
    octets = cpa_export(version=version)
    return Octets(octets, "application/xml", f"{version.agreement.tpa_id}.xml", "")


Cpa = download(
    "agreements_cpa",
    "agreements:read",
    "A version as a CPA 2.0",
    _cpa,
    path=_VERSION,
    tag="agreements",
    description="Only of ebXML Messaging 2.0. A version that lacks what a CPA needs is refused, with what it lacks.",
    problems=("invalid_submission",),
)


class ActivateVersion(_OfAgreement):
    """/agreements/{agreement_id}/versions/{number}/activate"""

    @operation(
        id="agreements_activate_version",
        tag="agreements",
        scope="agreements:write",
        summary="Put a draft in force; the version that was active is retired",
        path=_VERSION,
        request=ReasonBody,
        responses={200: shapes.VersionDetailSerializer},
        problems=(*_CHANGE, "agreement_invalid", "pair_not_drained"),
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, agreement_id: str, number: str) -> Response:
        values = change_of(request, ReasonBody)
        return _version(request, onboarding.version_activate(**version_key(agreement_id, number), **values))


def _read(agreement_id: str) -> models.Agreement:
    try:
        return selectors.agreement(id_of("agr", agreement_id))
    except ObjectDoesNotExist as error:
        raise Problem("not_found", f"There is no agreement {agreement_id}.") from error


def _found(agreement_id: str, number: str) -> models.AgreementVersion:
    wanted = _number(number)
    for version in _read(agreement_id).versions.all():
        if version.number == wanted:
            return selectors.version(version.pk)
    raise Problem("not_found", f"This agreement has no version {number}.")


def version_key(agreement_id: str, number: str) -> dict[str, Any]:
    """What services know a version by. Raises Problem."""
    return {"agreement_id": id_of("agr", agreement_id), "number": _number(number)}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem("not_found", "Versions are numbered from 1.")
    return int(text)


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    """The body's members under the names of the service's arguments."""
    renamed = {(_ENDS | _POINTS).get(name, name): value for name, value in values.items()}
    if "allowed" in renamed:
        renamed["allowed"] = [(row["service"], row["action"], row["direction"]) for row in renamed["allowed"]]
    return renamed


def _agreement(request: Request, agreement: models.Agreement, *, status: int = 200) -> Response:
    data = shapes.AgreementDetailSerializer(agreement).data
    headers = {"Location": f"/api/v1/agreements/{agreement.public_id}"} if status == 201 else {}
    return item(request, data, revision=revision(agreement), status=status, **headers)


def _version(request: Request, version: models.AgreementVersion, *, status: int = 200) -> Response:
    data = shapes.version_detail(version)
    path = f"/api/v1/agreements/{version.agreement.public_id}/versions/{version.number}"
    headers = {"Location": path} if status == 201 else {}
    return item(request, data, revision=revision(version), status=status, **headers)
