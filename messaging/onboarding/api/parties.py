"""Parties, their endpoints, and the certificates that the hub knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.onboarding.selectors import certificates, health_of
from messaging.onboarding.serializers import onboarding as onboarding_shapes
from messaging.onboarding.serializers import partners as shapes
from messaging.onboarding.serializers.levels import AttainmentSerializer, PartnerTrafficSerializer
from messaging.onboarding.serializers.onboarding import PartnerHealthSerializer, certificate, facts
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.changing import revision
from messaging.overview.selectors.traffic import of_partner
from messaging.sla import selectors as sla
from partners import models, selectors
from partners.certificates import read as read_certificates
from partners.choices import VersionState
from rmhub import clock

_PARTY = {"party_id": "Id of the party (`par_...`)."}
_ENDPOINT = {"endpoint_id": "Id of the endpoint (`end_...`)."}
_LIST = ("invalid_cursor", "cursor_mismatch")
_CHANGE = ("stale", "precondition_required", "invalid_header", "wrong_state")
PARTY_FILTERS = (
    Param("q", "Part of a name or identifier."),
    Param("is_own", "Only ours, or only others.", "flag"),
    Param("archived", "Only archived ones, or only the others.", "flag"),
    sort_parameter(*selectors.PARTY_ORDERS),
)
ENDPOINT_FILTERS = (Param("party", "Id, name or identifier of a party.", "party"),)
CERTIFICATE_FILTERS = (
    Param("party", "Id, name or identifier of a party.", "party"),
    Param("ending_within", "Whole days: only what expires by then.", "number", minimum=0, maximum=36500),
)
_EXAMPLE = OpenApiExample(
    "A partner",
    value={"name": "Globex", "identifiers": [{"type": "DUNS", "value": "123456789"}], "reason": "New supplier"},
    request_only=True,
)


def change_of(request: Request, body: type[serializers.Serializer]) -> dict[str, Any]:
    """The body's values, with who changes it (`actor`) and the revision that they saw (`expected`)."""
    read_parameters(request, ())
    expected = expected_revision(request)
    return {"actor": actor_of(request), "expected": expected, **validated(body, request.data)}


class Parties(Endpoint):
    """/parties"""

    @operation(
        id="parties_list",
        tag="parties",
        scope="partners:read",
        summary="List parties, by name",
        parameters=(*PARTY_FILTERS, *PAGING),
        responses={200: page_of(shapes.PartySerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, PARTY_FILTERS)
        found = selectors.parties(search=values["q"] or "", is_own=values["is_own"], archived=values["archived"])
        page = keyset.page(found, order=selectors.PARTY_ORDERS[values["sort"]], limit=limit, place=place)
        return listing(request, values, page, shapes.PartySerializer)

    @operation(
        id="parties_create",
        tag="parties",
        scope="partners:write",
        summary="Create a party",
        request=shapes.PartyBody,
        responses={201: shapes.PartySerializer},
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = _with_identifiers(validated(shapes.PartyBody, request.data))
        party = onboarding.party_create(actor=actor_of(request), **values)
        return _party(request, party, status=201)


class _OfParty(Endpoint):
    """A party, or one of its verbs: what is refused says what the party allows."""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        party = selectors.party(id_of("par", kwargs["party_id"]))
        if party.archived_at is not None:
            return ["restore"]
        # Not while an agreement is active.
        active = selectors.agreements(party_id=party.pk, state=VersionState.ACTIVE).exists()
        return [] if active else ["archive"]


class OneParty(_OfParty):
    """/parties/{party_id}"""

    @operation(
        id="parties_read",
        tag="parties",
        scope="partners:read",
        summary="One party",
        path=_PARTY,
        responses={200: shapes.PartySerializer},
    )
    def get(self, request: Request, party_id: str) -> Response:
        read_parameters(request, ())
        return _party(request, _read_party(party_id))

    @operation(
        id="parties_change",
        tag="parties",
        scope="partners:write",
        summary="Change a party",
        path=_PARTY,
        request=shapes.PartyChanges,
        responses={200: shapes.PartySerializer},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, party_id: str) -> Response:
        values = _with_identifiers(change_of(request, shapes.PartyChanges))
        return _party(request, onboarding.party_update(party_id=id_of("par", party_id), **values))


class PartyHealth(Endpoint):
    """/parties/{party_id}/health"""

    @operation(
        id="parties_health",
        tag="parties",
        scope="partners:read",
        summary="Status of a partner: its pairs, what waits, incidents, what expires soon, traffic and service levels",
        path=_PARTY,
        responses={200: PartnerHealthSerializer},
    )
    def get(self, request: Request, party_id: str) -> Response:
        read_parameters(request, ())
        party, now = _read_party(party_id), clock.now()
        health = health_of(party.pk)
        levels = sla.by_partner([party.pk], now).get(party.pk, [])
        data = {
            **asdict(replace(health, ending=())),
            "ending": [certificate(one) for one in health.ending],
            "traffic": PartnerTrafficSerializer(of_partner(party.pk, now)).data,
            "service_levels": AttainmentSerializer(levels, many=True).data,
        }
        return Response(data)


def _use_verb(name: str, summary: str, service: Callable[..., models.Party]) -> type[Endpoint]:
    """The view of a verb that takes a party out of use, or into it."""

    class Verb(_OfParty):
        """/parties/{party_id}/<verb>"""

        @operation(
            id=f"parties_{name}",
            tag="parties",
            scope="partners:write",
            summary=summary,
            path=_PARTY,
            request=ReasonBody,
            responses={200: shapes.PartySerializer},
            problems=_CHANGE,
            headers=(IF_MATCH,),
        )
        def post(self, request: Request, party_id: str) -> Response:
            values = change_of(request, ReasonBody)
            return _party(request, service(party_id=id_of("par", party_id), **values))

    return Verb


ArchiveParty = _use_verb(
    "archive",
    "Archive a party: it is not offered in forms, and its credentials are not accepted",
    onboarding.party_archive,
)
RestoreParty = _use_verb("restore", "Restore an archived party", onboarding.party_restore)


class Endpoints(Endpoint):
    """/endpoints"""

    @operation(
        id="endpoints_list",
        tag="parties",
        scope="partners:read",
        summary="List endpoints, oldest first",
        parameters=(*ENDPOINT_FILTERS, *PAGING),
        responses={200: page_of(shapes.EndpointSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, ENDPOINT_FILTERS)
        found = selectors.endpoints(party_id=values["party"])
        page = keyset.page(found, order=("id",), limit=limit, place=place)
        return listing(request, values, page, shapes.EndpointSerializer)

    @operation(
        id="endpoints_create",
        tag="parties",
        scope="partners:write",
        summary="Create an endpoint of a party",
        request=shapes.EndpointBody,
        responses={201: shapes.EndpointSerializer},
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.EndpointBody, request.data)
        endpoint = onboarding.endpoint_create(party_id=values.pop("party"), actor=actor_of(request), **values)
        return _endpoint(request, endpoint, status=201)


class OneEndpoint(Endpoint):
    """/endpoints/{endpoint_id}"""

    @operation(
        id="endpoints_read",
        tag="parties",
        scope="partners:read",
        summary="One endpoint",
        path=_ENDPOINT,
        responses={200: shapes.EndpointSerializer},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        return _endpoint(request, _read_endpoint(endpoint_id))

    @operation(
        id="endpoints_change",
        tag="parties",
        scope="partners:write",
        summary="Change an endpoint",
        description="Its URIs are fixed while an agreement in force uses it: they are the pair's identity.",
        path=_ENDPOINT,
        request=shapes.EndpointChanges,
        responses={200: shapes.EndpointSerializer},
        problems=_CHANGE,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, endpoint_id: str) -> Response:
        values = change_of(request, shapes.EndpointChanges)
        return _endpoint(request, onboarding.endpoint_update(endpoint_id=id_of("end", endpoint_id), **values))


class Certificates(Endpoint):
    """/certificates"""

    @operation(
        id="certificates_list",
        tag="certificates",
        scope="partners:read",
        summary="List certificates, and credentials that expire, the first to expire first",
        description="One answer with all of them, no pages: there are about as many as partners.",
        parameters=CERTIFICATE_FILTERS,
        responses={200: onboarding_shapes.CertificatesSerializer},
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, CERTIFICATE_FILTERS)
        found = certificates(within_days=values["ending_within"], party_id=values["party"])
        return Response({"data": [certificate(one) for one in found]})


class EndpointCertificates(Endpoint):
    """/endpoints/{endpoint_id}/certificates"""

    @operation(
        id="endpoints_read_certificates",
        tag="certificates",
        scope="partners:read",
        summary="The certificates that an endpoint's server may show",
        path=_ENDPOINT,
        responses={200: onboarding_shapes.EndpointCertificatesSerializer},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        return _certificates(request, _read_endpoint(endpoint_id))

    @operation(
        id="endpoints_replace_certificates",
        tag="certificates",
        scope="partners:write",
        summary="Replace the certificates that an endpoint's server may show",
        description="They apply to the next connection, in every process within a second. If-Match: the endpoint's "
        "ETag, or the one of this resource.",
        path=_ENDPOINT,
        request=onboarding_shapes.TrustBody,
        responses={200: onboarding_shapes.EndpointCertificatesSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        values = change_of(request, onboarding_shapes.TrustBody)
        pem = values.pop("pem")
        endpoint = onboarding.endpoint_trust(endpoint_id=id_of("end", endpoint_id), certificates_pem=pem, **values)
        return _certificates(request, endpoint)


def _read_party(reference: str) -> models.Party:
    try:
        return selectors.party(id_of("par", reference))
    except ObjectDoesNotExist as error:
        raise Problem("not_found", f"There is no party {reference}.") from error


def _read_endpoint(reference: str) -> models.Endpoint:
    try:
        return selectors.endpoint(id_of("end", reference))
    except ObjectDoesNotExist as error:
        raise Problem("not_found", f"There is no endpoint {reference}.") from error


def _with_identifiers(values: dict[str, Any]) -> dict[str, Any]:
    if "identifiers" in values:
        values["identifiers"] = [(item["type"], item["value"]) for item in values["identifiers"]]
    return values


def _party(request: Request, party: models.Party, *, status: int = 200) -> Response:
    data = shapes.PartySerializer(party).data
    headers = {"Location": f"/api/v1/parties/{party.public_id}"} if status == 201 else {}
    return item(request, data, revision=revision(party), status=status, **headers)


def _endpoint(request: Request, endpoint: models.Endpoint, *, status: int = 200) -> Response:
    data = shapes.EndpointSerializer(endpoint).data
    headers = {"Location": f"/api/v1/endpoints/{endpoint.public_id}"} if status == 201 else {}
    return item(request, data, revision=revision(endpoint), status=status, **headers)


def _certificates(request: Request, endpoint: models.Endpoint) -> Response:
    data = {
        "endpoint": endpoint.public_id,
        "pem": endpoint.trusted_certificates,
        "certificates": [facts(one) for one in read_certificates(endpoint.trusted_certificates)],
    }
    return item(request, data, revision=revision(endpoint))
