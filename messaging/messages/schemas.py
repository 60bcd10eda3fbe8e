"""Schemas that documents have to fit: set up, given in new versions, tried on a stored message."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from messaging import storage
from messaging.engine import schemas
from messaging.exceptions import NotFound
from messaging.journal import changing
from messaging.journal.audit import Actor
from messaging.models import DocumentSchema, Message, Payload, SchemaVersion
from messaging.models.base import existing
from messaging.protocol import document_schemas, selecting
from messaging.protocol.edi_messages import Fault
from messaging.resource import Resource, deletion
from rmhub import clock
from rmhub.language import gettext_lazy

FILES = "files"
SETTINGS = ("name", "kind", "partner", "service", "action", "on_submission", "on_receipt", "number", "enabled")
Files = Sequence[tuple[str, str]]


def rules() -> QuerySet[DocumentSchema]:
    """All schemas with their partners, by name."""
    return DocumentSchema.objects.select_related("partner").order_by("name")


def rule(schema_id: uuid.UUID) -> DocumentSchema:
    """One schema. Raises NotFound."""
    return existing(rules(), schema_id)


def versions(found: DocumentSchema) -> list[SchemaVersion]:
    """Its versions, the newest first."""
    return list(SchemaVersion.objects.filter(schema=found.pk).order_by("-number"))


def files_of(found: DocumentSchema) -> list[tuple[str, str]]:
    """(name, text) of the files of the version in use."""
    version = SchemaVersion.objects.filter(schema=found.pk, number=found.number).first()
    return [(name, text) for name, text in version.files] if version is not None else []


def schema_create(*, actor: Actor, reason: str, files: Files = (), **values: Any) -> DocumentSchema:
    """Make a schema of these files; the first is the one that documents are checked against.

    `partner`: id of the only partner whose documents it is about. Raises InvalidSubmission by field.
    """
    now = clock.now()
    made = DocumentSchema(created_at=now, updated_at=now)
    values.pop("number", None)
    with transaction.atomic():
        changing.made("schema.create", made, values, SETTINGS, lambda row: _wrong(row, files), actor, reason)
        _add(made, files, actor)
    schemas.known.forget()
    return made


def schema_update(
    *,
    schema_id: uuid.UUID,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
    files: Files = (),
    **values: Any,
) -> DocumentSchema:
    """Change what is given; it holds for what comes from now on. `files` make a new version, which is in use then.

    Without files, `number` chooses one of the versions. Raises NotFound, Stale, InvalidSubmission by field.
    """
    with transaction.atomic():
        if files:
            newest = SchemaVersion.objects.filter(schema=schema_id).aggregate(number=Max("number"))["number"] or 0
            values["number"] = newest + 1
        changed = changing.changed(
            "schema.update",
            rules(),
            schema_id,
            values,
            SETTINGS,
            actor,
            reason,
            expected_version,
            check=lambda row: _wrong(row, files or files_of(row)),
        )
        if files:
            _add(changed, files, actor)
    schemas.known.forget()
    return changed


def schema_delete(*, schema_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """What was said of stored messages stays with them. Raises NotFound, Stale, InvalidSubmission."""
    changing.deleted("schema.delete", rules(), schema_id, SETTINGS, actor, reason, expected_version)
    schemas.known.forget()


def _add(found: DocumentSchema, files: Files, actor: Actor) -> None:
    SchemaVersion.objects.create(
        schema=found,
        number=found.number,
        files=[[name, text] for name, text in files],
        created_at=found.updated_at,
        created_by=actor.name[:150],
    )


def _wrong(row: DocumentSchema, files: Files) -> dict[str, list[str]]:
    """What the fields alone do not say: a version that there is, and files that are a schema of its kind."""
    if not files and not row._state.adding:
        return {"number": [_("There is no version {number}.").format(number=row.number)]}
    if len(dict(files)) < len(files):
        return {FILES: [_("Two files have the same name.")]}
    try:
        document_schemas.read(row.kind, dict(files))
    except document_schemas.BadSchema as error:
        return {FILES: [_(error.text).format(**error.values)]}
    return {}


class Tried(NamedTuple):
    """What a schema says of one document of a stored message. `kind` "": another kind, which it is not about."""

    payload: Payload
    kind: str
    faults: list[Fault]


def tried(found: DocumentSchema, message: Message) -> list[Tried]:
    """What the version in use says of each document of a message, whatever its service. Raises NotFound."""
    version = schemas.schema(found.pk, found.number)
    result = []
    for payload in Payload.objects.filter(message=message.pk).order_by("number"):
        if payload.size > selecting.MAX_BYTES:  # nobody looks into it
            result.append(Tried(payload, "", []))
            continue
        try:
            content = storage.load(payload.content, payload.stored_as)
        except storage.PayloadMissing as error:
            said = _("The file of document {number} is not in the store folder.").format(number=payload.number)
            raise NotFound(said) from error
        kind = selecting.kind_of(content, payload.content_type)
        alike = kind == found.kind
        result.append(
            Tried(payload, kind if alike else "", version.faults(content, payload.content_type) if alike else [])
        )
    return result


SCHEMAS = Resource(
    name=gettext_noop("schema"),
    plural=gettext_noop("schemas"),
    prefix="sch",
    reads="schemas:manage",
    changes="schemas:manage",
    rows=rules,
    one=rule,
    order=("name",),
    create=schema_create,
    update=schema_update,
    possible=lambda rule: ("delete",),
    verbs=(
        deletion(
            schema_delete,
            (
                gettext_lazy("Documents that come from now on are not checked against it."),
                gettext_lazy("Messages that did not fit it stay flagged, and documents that it holds stay held."),
            ),
        ),
    ),
)
