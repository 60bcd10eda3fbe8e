"""An archive without a pipeline: the books say that messages left the store, and there are no files."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from messaging.archive.services import holds
from messaging.journal.audit import Actor
from messaging.models import ArchivedMessage, ArchiveFile, LegalHold, Message, Pair
from messaging.report_choices import ArchiveState
from rmhub import clock
from rmhub.ids import uuid7


def archived(pair: Pair, message_id: str, *, key: uuid.UUID | None = None, **values: Any) -> ArchivedMessage:
    """A message of the pair that is in the archive alone, unless `values` say otherwise."""
    now = clock.now()
    file = ArchiveFile.objects.create(
        day=now.date(),
        path=f"day={now:%Y-%m-%d}/{uuid7().hex}-0.parquet",
        schema_version=1,
        messages=1,
        payloads=1,
        payload_bytes=8,
        bytes=4_000,
        sha256="ab" * 32,
        created_at=now,
        verified_at=now,
    )
    settings: dict[str, Any] = {
        "id": key or uuid7(),
        "state": ArchiveState.ARCHIVED,
        "file": file,
        "row": 0,
        "message_id": message_id,
        "conversation_id": f"conversation of {message_id}",
        "direction": pair.direction,
        "message_state": "delivered",
        "pair": pair,
        "service": "urn:orders",
        "action": "NewOrder",
        "sequence_number": 7,
        "size": 8,
        "created_at": now - timedelta(days=100),
        "completed_at": now - timedelta(days=100),
        "purged_at": now,
        "contents": ["cd" * 32],
        "written": 1,
        "entries": 5,
        **values,
    }
    return ArchivedMessage.objects.create(**settings)


def left(message: Message) -> ArchivedMessage:
    """The message leaves the store as purging takes it out."""
    names = (
        "message_id",
        "document_id",
        "conversation_id",
        "service",
        "action",
        "sequence_number",
        "size",
        "created_at",
        "attributes",
    )
    row = archived(
        message.pair,
        key=message.pk,
        completed_at=message.completed_at,
        **{name: getattr(message, name) for name in names},
    )
    from messaging.archive.services import message_rows

    message_rows.delete([message.pk])
    return row


def hold(name: str, **criteria: Any) -> LegalHold:
    """A hold in force."""
    return holds.hold_place(name=name, actor=Actor("ana", "console"), reason="for the court", **criteria)
