"""The archive: finding and restoring what has left the store; legal holds; the retention policy."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of, pair_id_of
from messaging.archive import selectors as archive
from messaging.archive import serializers as shapes
from messaging.archive.services import holds, restoring, retention
from messaging.choices import Direction
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.pairs.selectors import pairs
from messaging.report_choices import ArchiveState
from messaging.reports.api.pipeline import RunSerializer

_MESSAGE = {"message_id": "Id of the message (`msg_...`), or its MessageId."}
_HOLD = {"hold": "Id of the hold (`hold_...`)."}
_LIST = ("invalid_cursor", "cursor_mismatch")
FILTERS = (
    Param("q", "Exact id: `msg_...`, MessageId, document id or ConversationId."),
    Param("conversation", "Exact ConversationId."),
    Param("document", "Exact: the document id that its sender gave."),
    Param("pair", "Id or code of a pair."),
    Param("state", "States, comma separated.", "choices", choices=tuple(ArchiveState.values)),
    Param("direction", "Direction.", "choice", choices=tuple(Direction.values)),
    Param("created_gte", "Entered at or after.", "instant"),
    Param("created_lt", "Entered before.", "instant"),
)
HOLD_FILTERS = (Param("in_force", "true: only those in force; false: only the released ones.", "flag"),)
_RUN = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The run.")
_MADE = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The hold.")


class ArchivedMessages(Endpoint):
    """/archive/messages"""

    @operation(
        id="archive_list",
        tag="archive",
        scope="archive:read",
        summary="List archived messages, newest first",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.ArchivedMessageSerializer)},
        problems=(*_LIST, "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = archive.archived(
            q=values["q"] or "",
            conversation=values["conversation"] or "",
            document=values["document"] or "",
            pair_id=pair_id_of(values["pair"]),
            states=tuple(values["state"] or ()),
            direction=values["direction"] or "",
            created_gte=values["created_gte"],
            created_lt=values["created_lt"],
        )
        page = archive.archived_page(found, limit=limit, place=place)
        return listing(request, values, page, shapes.ArchivedMessageSerializer)


class OneArchivedMessage(Endpoint):
    """/archive/messages/{message_id}"""

    @operation(
        id="archive_read",
        tag="archive",
        scope="archive:read",
        summary="Where one archived message lies",
        path=_MESSAGE,
        responses={200: shapes.ArchivedMessageSerializer},
        problems=("ambiguous_message_id",),
    )
    def get(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        return item(request, shapes.ArchivedMessageSerializer(archive.archived_by_reference(message_id)).data)


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
            "lets it go again `purge_after` days after the restore."
        ),
        request=shapes.RestoreBody,
        responses={202: RunSerializer},
        problems=("not_found", "wrong_state"),
        headers=(_RUN,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.RestoreBody, request.data)
        run = restoring.restore_request(actor=actor_of(request), **values)
        headers = {"Location": f"/api/v1/pipeline-runs/{run.public_id}"}
        return item(request, RunSerializer(run).data, status=202, **headers)


class LegalHolds(Endpoint):
    """/legal-holds"""

    @operation(
        id="holds_list",
        tag="archive",
        scope="archive:read",
        summary="List legal holds, newest first",
        parameters=(*HOLD_FILTERS, *PAGING),
        responses={200: page_of(shapes.LegalHoldSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, HOLD_FILTERS)
        found = archive.holds(in_force=values["in_force"])
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.LegalHoldSerializer)

    @operation(
        id="holds_place",
        tag="archive",
        scope="retention:write",
        summary="Place a legal hold",
        description=(
            "What fits all criteria leaves neither the store nor the archive. Once this is answered, nothing that it "
            "covers is purged."
        ),
        request=shapes.LegalHoldBody,
        responses={201: shapes.LegalHoldSerializer},
        headers=(_MADE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values: dict[str, Any] = validated(shapes.LegalHoldBody, request.data)
        pair = values.pop("pair", "")
        try:
            pair_id = pairs.pair(pair).pk if pair else None
        except NotFound as error:
            raise InvalidSubmission({"pair": [error.detail]}) from error
        hold = holds.hold_place(actor=actor_of(request), party_id=values.pop("party", None), pair_id=pair_id, **values)
        headers = {"Location": f"/api/v1/legal-holds/{hold.public_id}"}
        return item(request, shapes.LegalHoldSerializer(archive.hold(hold.pk)).data, status=201, **headers)


class OneLegalHold(Endpoint):
    """/legal-holds/{hold}"""

    @operation(
        id="holds_read",
        tag="archive",
        scope="archive:read",
        summary="One legal hold",
        path=_HOLD,
        responses={200: shapes.LegalHoldSerializer},
    )
    def get(self, request: Request, hold: str) -> Response:
        read_parameters(request, ())
        return item(request, shapes.LegalHoldSerializer(archive.hold(id_of("hold", hold))).data)


class ReleaseLegalHold(Endpoint):
    """/legal-holds/{hold}/release"""

    @operation(
        id="holds_release",
        tag="archive",
        scope="retention:write",
        summary="Release a legal hold",
        path=_HOLD,
        request=ReasonBody,
        responses={200: shapes.LegalHoldSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, hold: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        released = holds.hold_release(hold_id=id_of("hold", hold), actor=actor_of(request), **values)
        return item(request, shapes.LegalHoldSerializer(archive.hold(released.pk)).data)


class Retention(Endpoint):
    """/retention"""

    @operation(
        id="retention_read",
        tag="archive",
        scope="archive:read",
        summary="The retention policy",
        responses={200: shapes.RetentionSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return _policy(request)

    @operation(
        id="retention_change",
        tag="archive",
        scope="retention:write",
        summary="Change the retention policy",
        description="If-Match with the ETag of what you read is required. Purges under way obey the change at once.",
        request=shapes.RetentionBody,
        responses={200: shapes.RetentionSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
    )
    def patch(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.RetentionBody, request.data)
        retention.policy_change(actor=actor_of(request), expected_version=expected_version(request), **values)
        return _policy(request)


def _policy(request: Request) -> Response:
    policy, held = archive.policy(), archive.archive()
    shown = {name: getattr(policy, name) for name in ("enabled", "archive_after", "purge_after", "keep_archive")}
    shown |= {"changed_by": policy.changed_by, "changed_at": policy.changed_at}
    shown |= {"archived_messages": held.messages, "archive_files": held.files, "archive_bytes": held.bytes}
    shown["legal_holds"] = archive.holds_in_force()
    return item(request, shapes.RetentionSerializer(shown).data, revision=policy.version)
