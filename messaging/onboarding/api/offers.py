"""Certificates that partners offered in the portal, in the API: the list, one of them, and the decision."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdOut, RowSerializer
from messaging.api.named import EndpointRef, PartyRef
from messaging.api.reading import Param
from messaging.api.resource import Operations
from messaging.choices import OfferState
from messaging.models import OfferedCertificate
from messaging.onboarding.services.offers import OFFERS as RESOURCE


class OfferSerializer(RowSerializer):
    """A certificate that a partner offered."""

    id = IdOut(OfferedCertificate.PREFIX)
    partner = PartyRef(source="party")
    endpoint = EndpointRef(allow_null=True)
    title = serializers.CharField(source="facts.title", help_text="Whom the certificate names.")
    not_after = serializers.DateTimeField(source="facts.not_after")

    class Meta:
        model = OfferedCertificate
        fields = (
            *("id", "partner", "use", "endpoint", "title", "fingerprint", "not_after", "certificate", "note", "state"),
            *("offered_by", "created_at", "decided_by", "decided_at", "answer"),
        )


OFFERS = Operations(
    resource=RESOURCE,
    shape=OfferSerializer,
    detailed=OfferSerializer,
    detail=lambda offer: (dict(OfferSerializer(offer).data), None),
    filters=(Param("state", "Only those in this state.", "choice", choices=tuple(OfferState.values)),),
    said={
        "list": ("List the certificates that partners offered in the portal, newest first", ""),
        "read": ("One offered certificate", ""),
    },
)
