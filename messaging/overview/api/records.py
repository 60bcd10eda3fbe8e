"""Rejections, and the audit log with its chain."""

from __future__ import annotations

import re

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.services import audit_chain
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import IdOut, RowSerializer, page_of
from messaging.api.handlers import listed, shown
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import Interface
from messaging.messages.selectors import messages
from messaging.messages.services.disclosing import rejection_open
from messaging.models import AuditEntry, Rejection
from messaging.overview.selectors import records
from rmhub.roles import role_of

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REJECTION = {"rejection_id": "Id of the rejection (`rej_...`)."}
_TIMES = (
    Param("created_gte", "Not before this time.", "instant"),
    Param("created_lt", "Before this time.", "instant"),
)
REJECTION_FILTERS = (Param("reason", "Exact code."), Param("party", "Exact name of the partner."), *_TIMES)
AUDIT_FILTERS = (
    Param("object", "Public id of an object (pair_...), a pair's code, INC-42, or a name as the log has it."),
    Param("object_type", "Exact, such as pair."),
    Param("actor", "A user name, whose tokens are meant too; or exactly `name (token ERP)`."),
    Param("verb", "Exact, such as pair.resume; or all of an object's, such as `pair.`."),
    Param("interface", "By which way.", "choice", choices=tuple(Interface.values)),
    Param("result", "Whether it was done, or refused.", "choice", choices=("done", "denied")),
    Param("text", "Words in the reason or in the object's name."),
    *_TIMES,
    sort_parameter(*records.AUDIT_ORDERS),
)
CHAIN_PARAMETERS = (
    Param("first", "Number of the entry to begin with.", "number", minimum=1, maximum=999_999_999, default=1),
    Param("limit", "Entries to look at.", "number", minimum=1, maximum=10_000, default=10_000),
    Param("expect", "A head that was noted down, as `number:digest`: it must still be in the chain."),
)


class RejectionSerializer(RowSerializer):
    """Something that came in and was refused."""

    id = IdOut("rej")

    class Meta:
        model = Rejection
        fields = (
            *("id", "at", "remote_address", "party_name", "reason", "detail", "http_status", "tpa_id", "message_id"),
            *("content_type", "size", "sha256", "times", "last_at"),
        )


class AuditEntrySerializer(RowSerializer):
    """An action of a person or token: who, when, what, why, before and after."""

    id = IdOut("aud")
    before = serializers.DictField()
    after = serializers.DictField()
    result = serializers.ChoiceField(choices=["done", "denied"])

    class Meta:
        model = AuditEntry
        fields = (
            *("id", "at", "actor", "interface", "address", "request_id", "verb", "object_type", "object_id"),
            *("object_name", "reason", "before", "after", "authentication", "result", "number", "digest"),
        )


class AuditHeadSerializer(serializers.Serializer):
    """The newest sealed entry."""

    number = serializers.IntegerField(help_text="0: nothing is sealed yet.")
    digest = serializers.CharField()


class AuditBreakSerializer(serializers.Serializer):
    """A place at which the chain is broken."""

    number = serializers.IntegerField()
    entry = serializers.CharField(help_text="Its id; empty when it is missing.")
    why = serializers.CharField()


class AuditChainSerializer(serializers.Serializer):
    """What a look at the chain of the audit log found."""

    holds = serializers.BooleanField()
    holds_from = serializers.IntegerField(help_text="From this number on all is as it was sealed; 0: the last is not.")
    first = serializers.IntegerField(help_text="The entries that were looked at, by number; 0: none.")
    last = serializers.IntegerField()
    checked = serializers.IntegerField()
    begins_at = serializers.IntegerField(help_text="The oldest entry there is.")
    head = AuditHeadSerializer()
    unsealed = serializers.IntegerField(help_text="Entries that are not sealed yet.")
    breaks = AuditBreakSerializer(many=True)
    next = serializers.IntegerField(
        allow_null=True, required=False, help_text="`first` of the next look; null: this was the end."
    )


class Rejections(Endpoint):
    """/rejections"""

    get = listed(
        records.rejections,
        RejectionSerializer,
        order=("-id",),
        filters=REJECTION_FILTERS,
        id="rejections_list",
        tag="incidents",
        scope="incidents:read",
        summary="What came in and was refused, newest first",
        description="The newest 20,000 are kept.",
    )


class OneRejection(Endpoint):
    """/rejections/{rejection_id}"""

    get = shown(
        records.rejection,
        RejectionSerializer,
        ids={"rejection_id": "rej"},
        id="rejections_read",
        tag="incidents",
        scope="incidents:read",
        summary="One rejection",
        path=_REJECTION,
    )


class RejectionSample(Endpoint):
    """/rejections/{rejection_id}/sample"""

    content_negotiation_class = AnyOctets

    @operation(
        id="rejections_sample",
        tag="incidents",
        scope="payloads:read",
        summary="The first 4 KiB of what was refused",
        description="Reading it is written to the audit log. Where a mask may concern it, it needs that mask's role.",
        path=_REJECTION,
        responses=OCTETS,
        problems=("range_not_satisfiable", "payload_masked"),
    )
    def get(self, request: Request, rejection_id: str) -> HttpResponseBase:
        read_parameters(request, ())
        found = records.rejection(id_of("rej", rejection_id))
        octets = rejection_open(rejection_id=found.pk, actor=actor_of(request), role=role_of(request.user))
        return attachment(request, octets)


class AuditLog(Endpoint):
    """/audit-log"""

    @operation(
        id="audit_log",
        tag="audit",
        scope="audit:read",
        summary="Actions of people and tokens, newest first",
        parameters=(*AUDIT_FILTERS, *PAGING),
        responses={200: page_of(AuditEntrySerializer)},
        problems=("invalid_cursor", "cursor_mismatch", "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, AUDIT_FILTERS)
        given = {name: value for name, value in values.items() if value is not None}
        order = records.AUDIT_ORDERS[given.pop("sort")]
        found = records.audit_entries(object_id=given.pop("object", ""), **given)
        with messages.bounded():
            page = keyset.page(found, order=order, limit=limit, place=place)
        return listing(request, values, page, AuditEntrySerializer)


class AuditChain(Endpoint):
    """/audit-log/chain"""

    @operation(
        id="audit_chain",
        tag="audit",
        scope="audit:read",
        summary="Whether entries of the audit log are as they were sealed",
        description="Looks at up to 10,000 entries from `first` on: go on with `next`. docs/audit.md says how the "
        "digests are made.",
        parameters=CHAIN_PARAMETERS,
        responses={200: AuditChainSerializer},
    )
    def get(self, request: Request) -> Response:
        values = read_parameters(request, CHAIN_PARAMETERS)
        verdict = audit_chain.verify(
            first=values["first"], limit=values["limit"], expect=_noted(values["expect"] or "")
        )
        behind = verdict.last + 1 if 0 < verdict.last < verdict.head.number else None
        data = AuditChainSerializer(verdict).data | {"next": behind}
        return item(request, data)


def _noted(text: str) -> audit_chain.Head | None:
    if not text:
        return None
    number, _, digest = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 10 and _DIGEST.fullmatch(digest)):
        detail = "A number, a colon, and the 64 hexadecimal digits of the digest."
        errors = [{"parameter": "expect", "code": "invalid", "detail": detail}]
        raise Problem("invalid_parameter", f"expect: {detail}", errors=errors)
    return audit_chain.Head(int(number), digest)
