"""Certificates: all that the hub knows, and those that an endpoint's server may show."""

from __future__ import annotations

from django.core.exceptions import ObjectDoesNotExist
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import validated
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.onboarding.selectors import certificates
from messaging.onboarding.serializers import onboarding as shapes
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services import content as onboarding_content
from messaging.pairs.api.pairs import IF_MATCH
from partners import certificates as reading
from partners import models, selectors

_ENDPOINT = {"endpoint_id": "Id of the endpoint (`end_...`)."}
FILTERS = (
    Param("party", "Id of a party.", "id", prefix="par"),
    Param("ending_within", "Whole days: only what ends by then.", "number", minimum=0, maximum=36500),
)


class Certificates(Endpoint):
    """/certificates"""

    @operation(
        id="certificates_list",
        tag="certificates",
        scope="partners:read",
        summary="List certificates, and credentials that have an end, the first to end in front",
        description="One answer with all of them, no pages: there are about as many as partners.",
        parameters=FILTERS,
        responses={200: shapes.CertificatesSerializer},
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, FILTERS)
        found = certificates.certificates(within_days=values["ending_within"], party_id=values["party"])
        return Response({"data": [shapes.certificate(one) for one in found]})


class EndpointCertificates(Endpoint):
    """/endpoints/{endpoint_id}/certificates"""

    @operation(
        id="endpoints_read_certificates",
        tag="certificates",
        scope="partners:read",
        summary="The certificates that an endpoint's server may show",
        path=_ENDPOINT,
        responses={200: shapes.EndpointCertificatesSerializer},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        try:
            endpoint = selectors.endpoint(id_of("end", endpoint_id))
        except ObjectDoesNotExist as error:
            raise Problem("not_found", f"There is no endpoint {endpoint_id}.") from error
        return _answer(request, endpoint)

    @operation(
        id="endpoints_replace_certificates",
        tag="certificates",
        scope="partners:write",
        summary="Replace the certificates that an endpoint's server may show",
        description="They hold for the next connection, in every process within a second. If-Match: the endpoint's "
        "ETag, or the one of this resource.",
        path=_ENDPOINT,
        request=shapes.TrustBody,
        responses={200: shapes.EndpointCertificatesSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(shapes.TrustBody, request.data)
        endpoint = onboarding.endpoint_trust(
            endpoint_id=id_of("end", endpoint_id),
            certificates_pem=values["pem"],
            actor=actor_of(request),
            reason=values["reason"],
            expected=expected,
        )
        return _answer(request, endpoint)


def _answer(request: Request, endpoint: models.Endpoint) -> Response:
    data = {
        "endpoint": endpoint.public_id,
        "pem": endpoint.trusted_certificates,
        "certificates": [shapes.facts(one) for one in reading.read(endpoint.trusted_certificates)],
    }
    return item(request, data, revision=onboarding_content.revision(endpoint))
