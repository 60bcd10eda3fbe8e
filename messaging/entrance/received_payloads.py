"""The payloads of a received message as rows: the same for every profile with a Manifest."""

from __future__ import annotations

from collections.abc import Sequence

from messaging import storage
from messaging.engine.subscriptions import Documents
from messaging.models import Message, Payload
from messaging.protocol.envelope import DocumentReference, PayloadPart


def documents_of(payloads: Sequence[PayloadPart]) -> Documents:
    """What they hold, for `subscriptions.deliveries_for`."""
    return lambda: ((part.content, part.content_type) for part in payloads)


def rows_of(message: Message, payloads: Sequence[PayloadPart], manifest: Sequence[DocumentReference]) -> list[Payload]:
    """Unsaved rows, numbered from 1. Large contents are in the store folder when this returns."""
    labels = {reference.document_id.removeprefix("cid:"): reference.label for reference in manifest}
    rows: list[Payload] = []
    for number, part in enumerate(payloads, start=1):
        kept = storage.keep(part.content)
        rows.append(
            Payload(
                message=message,
                number=number,
                content_id=part.content_id,
                content_type=part.content_type[:255],
                filename=part.filename[:255],
                label=labels.get(part.content_id, "")[:120],
                size=kept.size,
                sha256=kept.sha256,
                content=kept.content,
                stored_as=kept.stored_as,
                in_frame=part.offset is None,
            )
        )
    return rows
