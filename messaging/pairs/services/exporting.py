"""Documents that wait on a pair, as one ZIP file that is made while it is sent: a copy to keep before they are skipped.

`index.csv` at its end lists them in their order. What is covered for the person's role (`messages.masks`) is
covered in the file, too. Who took them is in the audit log before the first octet goes out.
"""

from __future__ import annotations

import csv
import io
import re
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Prefetch, Q
from django.utils.translation import gettext as _

from messaging.choices import Direction, MessageState
from messaging.exceptions import ApplicationError, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.messages.services import disclosing
from messaging.models import Message, Pair, Payload
from messaging.models.base import existing
from rmhub.ids import public_id
from rmhub.roles import Role

MOST = 10_000  # messages of one file
_CHUNK = 100
_WHICH = ("queue", "head")
_OPEN = (
    MessageState.QUEUED,
    MessageState.SENDING,
    MessageState.AWAITING_ACK,
    MessageState.RETRYING,
)
_COLUMNS = (
    *("place", "id", "message_id", "conversation_id", "sequence_number", "state", "service", "action", "created_at"),
    *("payload", "content_type", "size", "sha256", "file"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(slots=True)
class Sink(io.RawIOBase):
    """Where the ZIP is written to, piece by piece."""

    pieces: list[bytes] = field(default_factory=list)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        octets = bytes(data)  # type: ignore[call-overload]
        self.pieces.append(octets)
        return len(octets)

    def taken(self) -> bytes:
        """What was written since the last call."""
        octets = b"".join(self.pieces)
        self.pieces.clear()
        return octets


@dataclass(frozen=True, slots=True)
class Export:
    """A ZIP file to be sent: its name, how many messages it has, and its octets as they are made."""

    filename: str
    messages: int
    chunks: Iterator[bytes]

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer that it is sent in."""
        return {
            "Content-Disposition": f'attachment; filename="{self.filename}"',
            "X-Content-Type-Options": "nosniff",
        }


def pair_export(*, pair_id: uuid.UUID, actor: Actor, role: Role | None = None, which: str = "queue") -> Export:
    """The documents of what is in flight and what waits behind it, in their order; `which` head: the first alone.

    `role`: behind whose masks the person may see; None: behind none. At most `MOST` messages. Raises NotFound,
    WrongState when nothing waits.
    """
    assert which in _WHICH
    with transaction.atomic():
        pair = existing(Pair.objects, pair_id)
        keys = _waiting(pair, 1 if which == "head" else MOST)
        if not keys:
            raise WrongState(_("Nothing waits on this pair, so there is nothing to export."), state=pair.flow)
        after: dict[str, object] = {"which": which, "messages": len(keys), "first": public_id("msg", keys[0])}
        audit.record(actor, "pair.export", pair, after=after)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", pair.code)
    return Export(f"{name}-{which}.zip", len(keys), _chunks(keys, actor, role))


def _waiting(pair: Pair, limit: int) -> list[uuid.UUID]:
    found = Message.objects.filter(pair=pair, direction=Direction.OUT, state__in=_OPEN, due_at__isnull=True)
    # The one in flight counts whatever became of it; others that have failed or are in doubt wait for nothing any more.
    not_queued = Q(state__in=_OPEN) & ~Q(state=MessageState.QUEUED)
    under_way = Message.objects.filter(not_queued | Q(pk=pair.in_flight_id), pair=pair, direction=Direction.OUT)
    first = list(under_way.order_by("position", "id").values_list("id", flat=True)[:limit])
    waiting = found.filter(state=MessageState.QUEUED).order_by("position").values_list("id", flat=True)
    return [*first, *waiting[: limit - len(first)]]


def _chunks(keys: list[uuid.UUID], actor: Actor, role: Role | None) -> Iterator[bytes]:
    sink, text = Sink(), io.StringIO()
    index = csv.writer(text)
    index.writerow(_COLUMNS)
    # Without their octets: those are read one by one, so that large ones never lie side by side in memory.
    payloads = Prefetch("payloads", Payload.objects.defer("content").order_by("number"))
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for start in range(0, len(keys), _CHUNK):
            some = keys[start : start + _CHUNK]
            found = Message.objects.filter(pk__in=some).defer("wire_frame").prefetch_related(payloads)
            by_id = {message.pk: message for message in found}
            for place, key in enumerate(some, start + 1):
                for payload in by_id[key].payloads.all():
                    row = _put(archive, place, by_id[key], payload, actor, role)
                    index.writerow([cell(value) for value in row])
                    yield sink.taken()
        archive.writestr("index.csv", text.getvalue())
    yield sink.taken()


def _put(
    archive: zipfile.ZipFile, place: int, message: Message, payload: Payload, actor: Actor, role: Role | None
) -> list[object]:
    name = f"{place:05d}/{payload.number}-{entry_name(payload.filename or payload.label or 'payload')}"
    try:
        seen = disclosing.payload_view(message_id=message.pk, number=payload.number, actor=actor, role=role)
        archive.writestr(name, seen.content)
    except ApplicationError as error:
        name = f"({error.detail})"
    return [
        *(place, message.public_id, message.message_id, message.conversation_id, message.sequence_number or ""),
        *(message.state, message.service, message.action, message.created_at.isoformat()),
        *(payload.number, payload.content_type, payload.size, payload.sha256, name),
    ]


def entry_name(name: str) -> str:
    """A file name that no unpacker takes for a path."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80] or "payload"


def cell(value: object) -> object:
    """A spreadsheet takes some texts for formulas."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
