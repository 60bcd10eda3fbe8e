"""The documents of an export job, as one ZIP file that is made while it is sent. `index.csv` at its end lists them.

What is covered for the person's role (`messages.masks`) is covered in the file. Each reading is in the audit
log.
"""

from __future__ import annotations

import csv
import io
import uuid
import zipfile
from collections.abc import Iterator

from messaging.choices import ItemState
from messaging.exceptions import ApplicationError
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.messages.services import disclosing
from messaging.models import BulkJob, BulkJobItem, Message, Payload
from messaging.pairs.services.exporting import Sink, cell, entry_name
from rmhub.roles import Role

COLUMNS = (
    *("place", "id", "message_id", "direction", "state", "pair", "service", "action", "created_at"),
    *("payload", "content_type", "size", "sha256", "file"),
)
_CHUNK = 100


def job_export(*, job: BulkJob, actor: Actor, role: Role | None) -> Iterator[bytes]:
    """The octets of the file, piece by piece. Who takes it is written down before the first of them."""
    audit.record(actor, "job.export", job, after={"messages": job.done})
    return _pieces(job, actor, role)


def _pieces(job: BulkJob, actor: Actor, role: Role | None) -> Iterator[bytes]:
    sink = Sink()
    listed = io.StringIO()
    index = csv.writer(listed)
    index.writerow(COLUMNS)
    place = 0
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for keys in _keys(job):
            found = {
                one.pk: one for one in Message.objects.filter(pk__in=keys).select_related("pair").defer("wire_frame")
            }
            for message in (found[key] for key in keys if key in found):
                place += 1
                for number, row in _documents(message):
                    name = f"{place:05d}/{number}-{entry_name(str(row['filename'] or row['label'] or 'payload'))}"
                    try:
                        seen = disclosing.payload_view(message_id=message.pk, number=number, actor=actor, role=role)
                        archive.writestr(name, seen.content)
                    except ApplicationError as error:
                        name = f"({error.detail})"
                    index.writerow([cell(value) for value in _line(place, message, number, row, name)])
                    yield sink.taken()
        archive.writestr("index.csv", listed.getvalue())
    yield sink.taken()


def _keys(job: BulkJob) -> Iterator[list[uuid.UUID]]:
    after = 0
    items = BulkJobItem.objects.filter(job=job, state=ItemState.DONE).order_by("id")
    while rows := list(items.filter(id__gt=after).values_list("id", "object_id")[:_CHUNK]):
        after = rows[-1][0]
        yield [key for _, key in rows]


def _documents(message: Message) -> list[tuple[int, dict[str, object]]]:
    rows = Payload.objects.filter(message=message).order_by("number")
    values = rows.values("number", "filename", "label", "content_type", "size", "sha256")
    return [(row["number"], dict(row)) for row in values]


def _line(place: int, message: Message, number: int, row: dict[str, object], name: str) -> list[object]:
    return [
        *(place, message.public_id, message.message_id, message.direction, message.state, message.pair.code),
        *(message.service, message.action, message.created_at.isoformat()),
        *(number, row["content_type"], row["size"], row["sha256"], name),
    ]
