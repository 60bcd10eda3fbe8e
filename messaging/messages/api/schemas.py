"""Schemas in the API: what one is there, and the trial on a stored message."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut, RowSerializer, StrictBody, Text, validated
from messaging.api.named import PartyRef
from messaging.api.reading import read_parameters
from messaging.api.references import id_of
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.messages import schemas
from messaging.messages.schemas import SCHEMAS as RESOURCE
from messaging.messages.schemas import SETTINGS
from messaging.messages.selectors import messages
from messaging.messages.serializers import FaultSerializer
from messaging.models import DocumentSchema, SchemaVersion
from messaging.protocol.document_schemas import MAX_FILE, MAX_FILES

_FILES = (
    "The files of the schema: the first is the one that documents are checked against, the others are what it "
    "includes. They make a new version."
)


class SchemaFile(StrictBody):
    """A file of a schema."""

    name = Text(max_length=100)
    text = Text(max_length=MAX_FILE, trim_whitespace=False)


class SchemaBody(SettingsBody):
    """A new schema."""

    references = {"partner": "par"}
    files = serializers.ListField(child=SchemaFile(), min_length=1, max_length=MAX_FILES, help_text=_FILES)

    class Meta:
        model = DocumentSchema
        fields: tuple[str, ...] = ("reason", *(name for name in SETTINGS if name != "number"), "files")

    def validate_files(self, files: list[dict[str, str]]) -> list[tuple[str, str]]:
        return [(one["name"], one["text"]) for one in files]


class SchemaChanges(ChangesBody, SchemaBody):
    """What is to change."""

    class Meta:
        model = DocumentSchema
        fields = ("reason", *SETTINGS, "files")


class SchemaSerializer(RowSerializer):
    """A schema."""

    id = IdOut("sch")
    partner = PartyRef(allow_null=True)

    class Meta:
        model = DocumentSchema
        fields: tuple[str, ...] = ("id", *SETTINGS, "created_at", "updated_at")


class SchemaVersionSerializer(RowSerializer):
    """A version of a schema."""

    class Meta:
        model = SchemaVersion
        fields = ("number", "created_at", "created_by")


class SchemaDetailSerializer(SchemaSerializer):
    """A schema with the files of the version in use, and its versions."""

    files = SchemaFile(many=True)
    versions = SchemaVersionSerializer(many=True)

    class Meta(SchemaSerializer.Meta):
        fields = (*SchemaSerializer.Meta.fields, "files", "versions")


def _detail(rule: DocumentSchema) -> tuple[Any, Any]:
    data = {
        **SchemaSerializer(rule).data,
        "files": [{"name": name, "text": text} for name, text in schemas.files_of(rule)],
        "versions": SchemaVersionSerializer(schemas.versions(rule), many=True).data,
    }
    return data, None


SCHEMAS = Operations(
    resource=RESOURCE,
    shape=SchemaSerializer,
    detailed=SchemaDetailSerializer,
    detail=_detail,
    body=SchemaBody,
    changes=SchemaChanges,
    filters=(),
    said={
        "list": ("List the schemas that documents have to fit", ""),
        "create": ("Create a schema", "It holds for documents that are stored from now on."),
        "read": ("One schema", ""),
        "change": ("Change a schema, give it new files, or choose one of its versions", ""),
        "delete": ("Delete a schema: messages that did not fit it stay flagged", ""),
    },
)


class TrialBody(StrictBody):
    """The message whose documents are tried."""

    message = Text(max_length=512, help_text="Id (`msg_...`) or MessageId.")


class TriedSerializer(serializers.Serializer):
    """What the schema says of one document."""

    number = serializers.IntegerField(source="payload.number")
    content_type = serializers.CharField(source="payload.content_type")
    checked = serializers.BooleanField(source="kind", help_text="False: a document of another kind.")
    faults = FaultSerializer(many=True)


class TrialSerializer(serializers.Serializer):
    """What the version in use says of the documents of a message."""

    version = serializers.IntegerField()
    documents = TriedSerializer(many=True)


class Trial(Endpoint):
    """/schemas/{schema}/trial"""

    @operation(
        id="schemas_trial",
        tag="schemas",
        scope=RESOURCE.reads,
        summary="Try a schema on a stored message",
        description="Whatever service and action the message has. Nothing is changed.",
        path=SCHEMAS.path,
        request=TrialBody,
        responses={200: TrialSerializer},
        problems=("ambiguous_message_id",),
    )
    def post(self, request: Request, schema: str) -> Response:
        read_parameters(request, ())
        rule = RESOURCE.one(id_of("sch", schema))
        message = messages.message_by_reference(validated(TrialBody, request.data)["message"])
        result = {"version": rule.number, "documents": schemas.tried(rule, message)}
        return Response(TrialSerializer(result).data)


def urls() -> list[URLPattern]:
    """Paths of all operations."""
    return [*SCHEMAS.urls(), path("schemas/<str:schema>/trial", Trial.as_view(), name="schema-trial")]
