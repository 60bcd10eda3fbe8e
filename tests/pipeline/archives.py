"""A store with old, finished messages, and an archive beside it, for the tests of archiving, purging and restoring.

`lake_has_all` says that the lake has everything; `archive` and `purge` are what a run does, with files read back by
`read_back`: the same check as the job's, written a second time with hashlib and Arrow.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from django.db import connection

from messaging import applications, storage
from messaging.archive.services import retention
from messaging.archive.services.message_rows import Proof
from messaging.archive.services.restoring import Restored, restore_request, wanted
from messaging.journal.audit import Actor
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import ArchivedMessage, LakeState, Message, PipelineRun
from messaging.pipeline import archive_copying, archiving, manifest
from messaging.pipeline.archive_copying import Pace, ReadBack, Tally
from messaging.protocol.envelope import MessageType
from messaging.transports import Parcel
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import ACTION, ORDER, SERVICE, link, partner_side, submit, work
from tests.messaging.profiles.repeatable.callers import remembering_since

T = datetime(2026, 3, 10, 12, tzinfo=UTC)
ANN = Actor("ann")
WHY = "as agreed"
ARCHIVE, PURGE = timedelta(days=31), timedelta(days=91)
TABLES = {
    "messaging_message": "t.id = %s",
    "messaging_payload": "t.message_id = %s",
    "messaging_transmission": "t.message_id = %s"
    " OR t.signal_id IN (SELECT s.id FROM messaging_signal s WHERE s.about_id = t.message_id)",
    "messaging_signal": "t.about_id = %s",
    "messaging_delivery": "t.message_id = %s",
    "messaging_event": "t.message_id = %s",
}


def switch_on(**changes: int) -> None:
    """Archive after 30 days, purge after 90, unless `changes` say otherwise."""
    retention.policy_change(actor=ANN, reason=WHY, enabled=True, **changes)


def lake_has_all() -> None:
    """Everything that is committed is in the lake."""
    with connection.cursor() as cursor:
        source = manifest.source(cursor)
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        (through,) = cursor.fetchone()
    LakeState.objects.update_or_create(pk=1, defaults={"source": source, "extracted_through": through + 1})


def nothing(step: str, done: int, total: int) -> None:
    """Nobody watches."""


def unhurried() -> Pace:
    return Pace(pause=lambda seconds: None)


def archive() -> Tally:
    """Copies what is due, as a run."""
    tally = Tally()
    run = PipelineRun.objects.create(
        job="archive", state="succeeded", requested_by="ann", interface="command", created_at=clock.now()
    )
    with archiving.alone():
        archive_copying.copy(run, nothing, read_back, tally, unhurried())
    return tally


def purge() -> Tally:
    """Purges what may go."""
    tally = Tally()
    with archiving.alone():
        archiving.purge(nothing, tally, unhurried())
    return tally


def gone(*messages: Message) -> None:
    """Archives and purges with the clock as it stands; these messages are out of the store then."""
    archive()
    lake_has_all()
    purge()
    assert not Message.objects.filter(pk__in=[one.pk for one in messages]).exists()


def restore(**what: object) -> Restored:
    """What a person asks for, and the pipeline's process does."""
    run = restore_request(actor=ANN, reason=WHY, **what)  # type: ignore[arg-type]
    result = archiving.restore(wanted(run), by=run.requested_by)
    PipelineRun.objects.filter(pk=run.pk).update(state="succeeded", due_at=None)
    return result


def read_back(paths: Sequence[Path]) -> dict[Path, dict[uuid.UUID, ReadBack]]:
    """The check of the copies, once more."""
    return {path: dict(_read(path)) for path in paths}


def _read(path: Path) -> Iterable[tuple[uuid.UUID, ReadBack]]:
    for row in pq.read_table(path).to_pylist():
        payloads = sorted(row["payloads"], key=lambda one: one["number"])
        wrong = [
            one["number"]
            for one in payloads
            if hashlib.sha256(one["content"]).hexdigest() != one["sha256"] or len(one["content"]) != one["size"]
        ]
        parts = [row, *(each for name in ("transmissions", "signals", "deliveries", "events") for each in row[name])]
        yield (
            uuid.UUID(row["id"]),
            ReadBack(
                tuple(one["sha256"] for one in row["payloads"]),
                sum(len(one["content"]) for one in payloads),
                tuple(wrong),
                _body_digest(row["wire_frame"], [one["content"] for one in payloads if not one["in_frame"]]),
                Proof(max(each["xid"] for each in parts), len(parts) + len(payloads)),
            ),
        )


def _body_digest(frame: bytes | None, slices: list[bytes]) -> str | None:
    if frame is None:
        return ""
    literals = storage.unpack_frame(frame)
    if len(literals) != len(slices) + 1:
        return None
    pieces = [literals[0], *(piece for pair in zip(slices, literals[1:], strict=True) for piece in pair)]
    return hashlib.sha256(b"".join(pieces)).hexdigest()


def rows_of(message: Message | uuid.UUID) -> dict[str, list[str]]:
    """Everything of a message that the store has, row by row and column by column, with the bytes of its payloads."""
    key = message.pk if isinstance(message, Message) else message
    found = {}
    with connection.cursor() as cursor:
        for table, where in TABLES.items():
            cursor.execute(f"SELECT to_jsonb(t)::text FROM {table} t WHERE {where} ORDER BY t.id", [key])
            found[table] = [text for (text,) in cursor.fetchall()]
        cursor.execute(
            "SELECT to_jsonb(j)::text FROM messaging_join j WHERE j.id IN"
            " (SELECT unnest(ARRAY[d.join_id, d.part_of_id]) FROM messaging_delivery d WHERE d.message_id = %s)"
            " ORDER BY j.id",
            [key],
        )
        found["messaging_join"] = [text for (text,) in cursor.fetchall()]
        cursor.execute("SELECT content, stored_as FROM messaging_payload WHERE message_id = %s ORDER BY number", [key])
        found["contents"] = [storage.load(content, name).hex() for content, name in cursor.fetchall()]
    return found


def store() -> dict[str, dict[str, list[str]]]:
    """`rows_of` all messages."""
    return {str(key): rows_of(key) for key in Message.objects.order_by("pk").values_list("pk", flat=True)}


def state(message: Message) -> str:
    return str(ArchivedMessage.objects.get(pk=message.pk).state)


class Scene:
    """One partner with finished messages of every kind, at `T`; the clock is moved by whoever uses it."""

    def __init__(self, time: FrozenClock) -> None:
        self.time = time
        remembering_since(T - timedelta(days=60))
        applications.SERVICES["archives.erp"] = lambda document: None
        make_trigger(kind="callable", callable_name="archives.erp", ordered=False)
        self.partner = partner_side(timeout=30, retries=3, retry_interval=60)
        self.delivered = self.exchange(b"<Order>" + b"x" * 5_000 + b"</Order>")
        self.repeated = self.repeat()
        self.received = self.arrive("in-1@partner", content=b"y" * 4_000)

    def exchange(self, content: bytes = ORDER, **fields: Any) -> Message:
        """Submitted, sent, acknowledged."""
        message = submit(self.partner, content, **fields)
        with link() as wire:
            work()
            self.time.move(2)
            self.partner.send(self.partner.acknowledgement(wire.last))
        return self.now(message)

    def several(self) -> Message:
        """One with three payloads, a name, and a key of the application's."""
        submission = message_submit(
            agreement=self.partner.terms.tpa_id,
            service=SERVICE,
            action=ACTION,
            payloads=[
                NewPayload(b"<Order/>", "application/xml", "order.xml", "Order"),
                NewPayload(bytes(range(256)) * 20, "application/octet-stream", "plan.bin", "Plan"),
                NewPayload(b"", "text/plain", "", "Note"),
            ],
            conversation_id="c-7",
            submitted_by="erp",
            idempotency_key="k-1",
        )
        with link() as wire:
            work()
            self.time.move(1)
            self.partner.send(self.partner.acknowledgement(wire.last))
        return self.now(submission.message)

    def repeat(self) -> Message:
        """One that was sent twice before it was acknowledged."""
        message = submit(self.partner)
        with link() as wire:
            work()
            self.time.move(61)
            work()
            self.partner.send(self.partner.acknowledgement(wire.last))
        return self.now(message)

    def arrive(self, message_id: str, copies: int = 1, **changes: Any) -> Message:
        """Comes in so many times, is acknowledged each time, and processed once."""
        known = Message.objects.filter(direction="in").exists()
        arrival = self.partner.message(self.partner.inbound.last_sequence + 1 if known else 1, message_id, **changes)
        for _ in range(copies):
            self.time.move(1)
            assert self.partner.send(arrival) == 204
        self.arrivals = {**getattr(self, "arrivals", {}), message_id: arrival}
        self.settle_down()
        return Message.objects.get(message_id=message_id, direction="in")

    def settle_down(self) -> list[Parcel]:
        """Acknowledgements go out, and documents to the application."""
        with link() as wire:
            while work():
                self.time.move(1)
        deliver()
        return wire.of(MessageType.ACKNOWLEDGEMENT)

    def move(self, by: timedelta) -> None:
        self.time.move(by.total_seconds())

    @staticmethod
    def now(message: Message) -> Message:
        return Message.objects.get(pk=message.pk)

    @property
    def all(self) -> list[Message]:
        return [self.delivered, self.repeated, self.received]
