"""/uploads: large documents part by part, which a submission then names in place of octets."""

from __future__ import annotations

import io
import re
from functools import partial
from typing import Any

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import access_of
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut, RowSerializer, StrictBody, Whole, page_of, validated
from messaging.api.pagination import PAGING, simple_list
from messaging.api.problems import Problem
from messaging.api.reading import read_parameters
from messaging.api.references import id_of
from messaging.messages.selectors import uploads
from messaging.messages.services import uploading
from messaging.models import Upload
from messaging.storage.large import PIECE
from rmhub.front.environ import IN_MEMORY, PARTIAL

_operation = partial(operation, tag="messages", scope="messages:write")
_PATH = {"upload": "Id of the upload (`upl_...`)."}
_OFFSET = "Upload-Offset"
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The upload.")
_HERE = OpenApiParameter(
    _OFFSET, int, OpenApiParameter.HEADER, response=[200, 201], description="How many octets are here."
)
_AT = OpenApiParameter(
    _OFFSET, int, OpenApiParameter.HEADER, required=True, description="Where the part begins: what is here already."
)
_NOW = OpenApiParameter(_OFFSET, int, OpenApiParameter.HEADER, response=[204], description="How many octets are here.")
SHA256 = r"^[0-9a-fA-F]{64}$"


class OctetStream(BaseParser):
    """A body that is read where it is used, piece by piece."""

    media_type = "application/octet-stream"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream


class OffsetStream(OctetStream):
    """The same under the name that tus has for it (tus resumable upload protocol 1.0, "PATCH")."""

    media_type = "application/offset+octet-stream"


class UploadBody(StrictBody):
    """A document that is to come in parts."""

    size = Whole(min_value=1, max_value=2**62, help_text="Octets of the whole document.")
    sha256 = serializers.RegexField(
        SHA256, required=False, help_text="If given, the octets must have this SHA-256 (hexadecimal)."
    )


class UploadSerializer(RowSerializer):
    """A document that comes in parts."""

    id = IdOut("upl")
    message = IdOut("msg", source="message_id", allow_null=True, help_text="The message that has it; null before.")

    class Meta:
        model = Upload
        fields = ("id", "size", "received", "sha256", "message", "created_at", "expires_at")


class Uploads(Endpoint):
    """/uploads"""

    @_operation(
        id="uploads_list",
        summary="List your uploads, newest first",
        parameters=PAGING,
        responses={200: page_of(UploadSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, uploads.uploads(access_of(request).owner), UploadSerializer, order=("-id",))

    @_operation(
        id="uploads_begin",
        summary="Begin an upload in parts",
        description="Send its parts by PATCH, then name it in a submission. It is deleted a day after its last part.",
        request=UploadBody,
        responses={201: UploadSerializer},
        problems=("message_too_large", "too_many_uploads", "store_full"),
        headers=(_LOCATION, _HERE),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        row = uploading.upload_begin(owner=access_of(request).owner, **validated(UploadBody, request.data))
        return _answer(row, status=201, Location=f"/api/v1/uploads/{row.public_id}")


class OneUpload(Endpoint):
    """/uploads/{upload}"""

    parser_classes = (OctetStream, OffsetStream)

    def body_limit(self) -> int:
        if self.request.method != "PATCH":
            return self.max_body
        self.request.META[IN_MEMORY] = PIECE
        self.request.META[PARTIAL] = True
        return int(settings.RMHUB_MAX_MESSAGE_BYTES)

    @_operation(
        id="uploads_read",
        summary="How far an upload has come",
        description="HEAD answers the same in the header alone.",
        path=_PATH,
        responses={200: UploadSerializer},
        headers=(_HERE,),
    )
    def get(self, request: Request, upload: str) -> Response:
        read_parameters(request, ())
        return _answer(uploads.upload(id_of("upl", upload), access_of(request).owner))

    @_operation(
        id="uploads_append",
        summary="Send a part of an upload",
        description="Parts come one after the other, each with its Content-Length. What has come of a part when its "
        "connection breaks is kept: ask where the upload is, and go on from there.",
        path=_PATH,
        request={
            OctetStream.media_type: OpenApiTypes.BINARY,
            OffsetStream.media_type: OpenApiTypes.BINARY,
        },
        responses={204: None},
        problems=(
            *("invalid_header", "length_required", "upload_offset_mismatch", "wrong_state"),
            *("store_full", "payload_missing"),
        ),
        headers=(_AT, _NOW),
        examples=[
            OpenApiExample("A part", value="(the octets of a part)", request_only=True, media_type=kind)
            for kind in (OctetStream.media_type, OffsetStream.media_type)
        ],
    )
    def patch(self, request: Request, upload: str) -> Response:
        read_parameters(request, ())
        given = request.headers.get(_OFFSET, "").strip()
        if not _NUMBER.fullmatch(given):
            raise Problem("invalid_header", f"{_OFFSET} says how many octets of the upload are here, such as 0.")
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        key, owner = id_of("upl", upload), access_of(request).owner
        uploading.check_part(uploads.upload(key, owner), int(given), length)  # before anybody asks for the body
        source: Any = request.data if length else io.BytesIO()
        source.read(0)  # now the front fetches it (rmhub.front), and begins this request again: nothing is locked yet
        row = uploading.upload_append(upload_id=key, owner=owner, offset=int(given), length=length, source=source)
        return Response(status=204, headers={_OFFSET: str(row.received)})

    @_operation(
        id="uploads_delete",
        summary="Delete an upload and its octets",
        path=_PATH,
        responses={204: None},
    )
    def delete(self, request: Request, upload: str) -> Response:
        read_parameters(request, ())
        uploading.upload_delete(upload_id=id_of("upl", upload), owner=access_of(request).owner)
        return Response(status=204)


def _answer(row: Upload, *, status: int = 200, **headers: str) -> Response:
    data = dict(UploadSerializer(row).data)
    return Response(data, status=status, headers={_OFFSET: str(row.received), **headers})
