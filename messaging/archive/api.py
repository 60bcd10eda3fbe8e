"""The archive: finding and restoring what has left the store; legal holds; the retention policy."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdIn, IdOut, Instant, ReasonBody, RowSerializer, Text, page_of, validated
from messaging.api.handlers import done, listed, shown
from messaging.api.named import HoldPartyRef, PairRef
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of, pair_id_of
from messaging.api.resource import ChangesBody
from messaging.archive import selectors as archive
from messaging.archive.services import holds, restoring, retention
from messaging.choices import Direction, MessageState
from messaging.engine import attributes
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.models import ArchivedMessage, LegalHold, RetentionPolicy
from messaging.pairs.selectors import pairs
from messaging.report_choices import ArchiveState
from messaging.reports.api.pipeline import RunSerializer

_READ: dict[str, Any] = {"tag": "archive", "scope": "archive:read"}
_WRITE: dict[str, Any] = {"tag": "archive", "scope": "retention:write"}
_HOLD = {"hold": "Id of the hold (`hold_...`)."}
FILTERS = (
    Param(
        "q", "Exact id: `msg_...`, MessageId, document id or ConversationId; or an attribute: `4711` or `invoice:4711`."
    ),
    Param("conversation", "Exact ConversationId."),
    Param("document", "Exact: the document id that its sender gave."),
    Param("pair", "Id or code of a pair."),
    Param("state", "States, comma separated.", "choices", choices=tuple(ArchiveState.values)),
    Param("direction", "Direction.", "choice", choices=tuple(Direction.values)),
    Param("created_gte", "Entered at or after.", "instant"),
    Param("created_lt", "Entered before.", "instant"),
)


class ArchiveFileRef(serializers.Serializer):
    """The file that a message lies in, below the archive's folder."""

    path = serializers.CharField()
    sha256 = serializers.CharField(help_text="Of the file.")
    verified_at = serializers.DateTimeField(help_text="When it was read back and compared with the store.")


class ArchivedMessageSerializer(RowSerializer):
    """Where an archived message lies. Its octets are in the store again once it is restored."""

    id = IdOut("msg")
    document_id = serializers.CharField(
        source="identifies", help_text="The id of its document, as its sender gave it; else the MessageId."
    )
    message_state = serializers.ChoiceField(choices=MessageState.choices, help_text="As it ended.")
    pair = PairRef()
    payload_digests = serializers.ListField(
        child=serializers.CharField(), source="contents", help_text="SHA-256 of the payloads, in their order."
    )
    file = ArchiveFileRef()
    attributes = serializers.SerializerMethodField(
        help_text="What it is found by: name -> value. Without those whose rule says that they are shown nowhere."
    )

    class Meta:
        model = ArchivedMessage
        fields = (
            *("id", "state", "message_id", "document_id", "conversation_id", "direction", "message_state", "pair"),
            *("service", "action", "sequence_number", "size", "payload_digests", "file", "row", "created_at"),
            *("completed_at", "purged_at", "restored_at", "restored_by", "attributes"),
        )

    def get_attributes(self, row: ArchivedMessage) -> dict[str, str]:
        return attributes.shown(row.attributes)


class RestoreBody(ReasonBody):
    """What comes back: one message, or all of a conversation."""

    message = IdIn("msg", required=False, help_text="Id of a message (`msg_...`).")
    conversation_id = Text(max_length=512, required=False, help_text="Or a ConversationId.")


class LegalHoldSerializer(RowSerializer):
    """Keeps messages in the store and in the archive. What is given of the criteria must all fit."""

    id = IdOut("hold")
    party = HoldPartyRef(allow_null=True)
    pair = PairRef(allow_null=True)

    class Meta:
        model = LegalHold
        fields = (
            *("id", "name", "reason", "party", "pair", "conversation_id", "message_id", "range_from", "range_to"),
            *("placed_by", "placed_at", "released_by", "released_at", "release_reason"),
        )


class LegalHoldBody(ReasonBody):
    """A hold to be placed; at least one criterion is needed."""

    name = Text(max_length=120, help_text="The matter, or its file number.")
    party = IdIn("par", required=False, help_text="A party, ours or a partner (`par_...`).")
    pair = Text(max_length=130, required=False, help_text="Id or code of a pair.")
    conversation_id = Text(max_length=512, required=False)
    message_id = Text(max_length=512, required=False, help_text="A MessageId.")
    range_from = Instant(required=False, help_text="Messages that entered from then on.")
    range_to = Instant(required=False, help_text="Messages that entered before then.")


class RetentionSerializer(RowSerializer):
    """The retention policy, and what the archive holds. Days since a message ended."""

    archived_messages = serializers.IntegerField()
    archive_files = serializers.IntegerField()
    archive_bytes = serializers.IntegerField(help_text="On disk.")
    legal_holds = serializers.IntegerField(help_text="In force.")

    class Meta:
        model = RetentionPolicy
        fields = (
            *(*retention.SETTINGS, "changed_by", "changed_at"),
            *("archived_messages", "archive_files", "archive_bytes", "legal_holds"),
        )


class RetentionBody(ChangesBody):
    """What of the policy changes."""

    class Meta:
        model = RetentionPolicy
        fields = (*retention.SETTINGS, "reason")


class ArchivedMessages(Endpoint):
    """/archive/messages"""

    @operation(
        id="archive_list",
        **_READ,
        summary="List archived messages, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(ArchivedMessageSerializer)},
        problems=("invalid_cursor", "cursor_mismatch", "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        given = {name: value for name, value in values.items() if value is not None}
        pair_id, states = pair_id_of(given.pop("pair", None)), tuple(given.pop("state", ()))
        found = archive.archived(pair_id=pair_id, states=states, **given)
        page = archive.archived_page(found, limit=limit, place=place)
        return listing(request, values, page, ArchivedMessageSerializer)


class OneArchivedMessage(Endpoint):
    """/archive/messages/{message_id}"""

    get = shown(
        lambda message_id: archive.archived_by_reference(message_id),
        ArchivedMessageSerializer,
        id="archive_read",
        **_READ,
        summary="Where one archived message lies",
        path={"message_id": "Id of the message (`msg_...`), or its MessageId."},
        problems=("ambiguous_message_id",),
    )


class Restore(Endpoint):
    """/archive/restore"""

    @operation(
        id="archive_restore",
        tag="archive",
        scope="archive:restore",
        summary="Bring a message or a conversation back into the store",
        description=(
            "As it was, with its octets, attempts, acknowledgements, deliveries and history. Nothing is sent, and no "
            "application gets it again. 202 says that the run is queued; it takes some seconds. The retention policy "
            "purges it again `purge_after` days after the restore."
        ),
        request=RestoreBody,
        responses={202: RunSerializer},
        problems=("not_found", "wrong_state"),
        headers=(OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The run."),),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(RestoreBody, request.data)
        run = restoring.restore_request(actor=actor_of(request), **values)
        headers = {"Location": f"/api/v1/pipeline-runs/{run.public_id}"}
        return item(request, RunSerializer(run).data, status=202, **headers)


class LegalHolds(Endpoint):
    """/legal-holds"""

    get = listed(
        archive.holds,
        LegalHoldSerializer,
        order=("-id",),
        filters=(Param("in_force", "true: only those in force; false: only the released ones.", "flag"),),
        id="holds_list",
        **_READ,
        summary="List legal holds, newest first",
    )

    @operation(
        id="holds_place",
        **_WRITE,
        summary="Place a legal hold",
        description=(
            "What fits all criteria leaves neither the store nor the archive. Once this is answered, nothing that it "
            "covers is purged."
        ),
        request=LegalHoldBody,
        responses={201: LegalHoldSerializer},
        headers=(OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The hold."),),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values: dict[str, Any] = validated(LegalHoldBody, request.data)
        pair = values.pop("pair", "")
        try:
            pair_id = pairs.pair(pair).pk if pair else None
        except NotFound as error:
            raise InvalidSubmission({"pair": [error.detail]}) from error
        hold = holds.hold_place(actor=actor_of(request), party_id=values.pop("party", None), pair_id=pair_id, **values)
        headers = {"Location": f"/api/v1/legal-holds/{hold.public_id}"}
        return item(request, LegalHoldSerializer(archive.hold(hold.pk)).data, status=201, **headers)


class OneLegalHold(Endpoint):
    """/legal-holds/{hold}"""

    get = shown(
        lambda hold: archive.hold(id_of("hold", hold)),
        LegalHoldSerializer,
        id="holds_read",
        **_READ,
        summary="One legal hold",
        path=_HOLD,
    )


def _release(hold: str, **given: Any) -> LegalHold:
    return archive.hold(holds.hold_release(hold_id=id_of("hold", hold), **given).pk)


class ReleaseLegalHold(Endpoint):
    """/legal-holds/{hold}/release"""

    post = done(
        _release,
        ReasonBody,
        LegalHoldSerializer,
        id="holds_release",
        **_WRITE,
        summary="Release a legal hold",
        path=_HOLD,
        problems=("wrong_state",),
    )


class Retention(Endpoint):
    """/retention"""

    @operation(
        id="retention_read",
        **_READ,
        summary="The retention policy",
        responses={200: RetentionSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return _policy(request)

    @operation(
        id="retention_change",
        **_WRITE,
        summary="Change the retention policy",
        description="If-Match with the ETag of what you read is required. Purges under way obey the change at once.",
        request=RetentionBody,
        responses={200: RetentionSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
    )
    def patch(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(RetentionBody, request.data)
        retention.policy_change(actor=actor_of(request), expected_version=expected_version(request), **values)
        return _policy(request)


def _policy(request: Request) -> Response:
    policy, held = retention.policy(), archive.archive()
    policy.archived_messages, policy.archive_files = held["messages"], held["files"]  # type: ignore[attr-defined]
    policy.archive_bytes, policy.legal_holds = held["bytes"], archive.holds_in_force()  # type: ignore[attr-defined]
    return item(request, RetentionSerializer(policy).data, revision=policy.version)
