"""Brings messages back from the archive: asked for by people here, written into the store by the pipeline's process."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from django.db import connection, models, transaction
from django.utils.translation import gettext as _

from messaging import storage
from messaging.archive.services import message_rows
from messaging.archive.services.message_rows import MessageRows, Row
from messaging.choices import Direction, SignalKind
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import (
    ArchivedMessage,
    Coordination,
    Enlistment,
    Event,
    Join,
    LakeFile,
    LakeState,
    Message,
    Payload,
    PipelineRun,
    Signal,
    Trigger,
)
from messaging.models.bulk import update_in_order
from messaging.report_choices import ArchiveState, PipelineJob
from messaging.reports.services import runs as pipeline_runs
from partners.models import AgreementVersion
from rmhub import clock
from rmhub.ids import public_id, read_public_id


@dataclass(slots=True)
class Restored:
    """What came of a restore. `notes`: sentences about what could not be as it was."""

    restored: list[uuid.UUID] = field(default_factory=list)
    in_store: list[uuid.UUID] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def restore_request(
    *, actor: Actor, reason: str, message: uuid.UUID | None = None, conversation_id: str = ""
) -> PipelineRun:
    """Asks for one message, or for all messages of a conversation, to be brought back into the store.

    The pipeline's process does it; the run says how far it is. Raises InvalidSubmission, NotFound (not in the archive),
    WrongState (all of it is in the store, or is being restored right now).
    """
    audit.require_reason(reason)
    if (message is None) == (not conversation_id):
        raise InvalidSubmission({"message": [_("Give either a message or a conversation.")]})
    if message is not None:
        found = ArchivedMessage.objects.filter(pk=message)
        parameters, scope = {"message": public_id("msg", message)}, public_id("msg", message)
        missing = _("There is no message {id} in the archive.").format(id=public_id("msg", message))
        there = _("The message {id} is in the store: there is nothing to restore.").format(id=public_id("msg", message))
    else:
        conversation_id = conversation_id.strip()
        if "\x00" in conversation_id or len(conversation_id) > 512:
            raise InvalidSubmission({"conversation": [_("A ConversationId of at most 512 characters.")]})
        found = ArchivedMessage.objects.filter(conversation_id=conversation_id)
        digest = hashlib.sha256(conversation_id.encode()).hexdigest()[:32]
        parameters, scope = {"conversation": conversation_id}, f"conv_{digest}"
        missing = _("There is no conversation {id} in the archive.").format(id=conversation_id)
        there = _("The conversation {id} is in the store: there is nothing to restore.").format(id=conversation_id)
    first = found.order_by("id").first()
    if first is None:
        raise NotFound(missing)
    if not found.filter(state=ArchiveState.ARCHIVED).exists():
        raise WrongState(there, state=first.state)
    with transaction.atomic():
        run = pipeline_runs.run_request(
            job=PipelineJob.RESTORE, actor=actor, parameters=parameters, scope=scope, reason=reason
        )
        after = {**parameters, "run": run.public_id}
        audit.record(actor, "archive.restore", first, reason=reason, after=after)
    return run


def wanted(run: PipelineRun) -> list[ArchivedMessage]:
    """What a run restores, in the order of files and rows. Raises InvalidSubmission."""
    found = ArchivedMessage.objects.filter(state=ArchiveState.ARCHIVED).select_related("file")
    if conversation_id := run.parameters.get("conversation"):
        found = found.filter(conversation_id=str(conversation_id))
    elif message := run.parameters.get("message"):
        found = found.filter(pk=read_public_id("msg", str(message)))
    else:
        raise InvalidSubmission({"parameters": ["message (msg_...) or conversation (a ConversationId) is needed."]})
    return list(found.order_by("file_id", "row"))


def restore(found: Sequence[MessageRows], *, by: str) -> Restored:
    """Writes messages with all that belongs to them into the store, in one transaction, as they were.

    What is in the store already stays as it is. Raises NotFound (its entry has ended meanwhile), WrongState (what they
    were handled under is gone).
    """
    result = Restored()
    by_id: dict[uuid.UUID, MessageRows] = {one.message["id"]: one for one in found}
    with transaction.atomic(durable=True):
        entries = {
            one.pk: one
            for one in ArchivedMessage.objects.filter(pk__in=by_id).order_by("pk").select_for_update(of=("self",))
        }
        if missing := sorted(set(by_id) - set(entries)):
            raise NotFound(f"{public_id('msg', missing[0])} is not in the archive any more.")
        going = [key for key, one in sorted(entries.items()) if one.state == ArchiveState.ARCHIVED]
        result.in_store = sorted(set(by_id) - set(going))
        chosen = [by_id[key] for key in going]
        _check(chosen)
        _write(chosen, result, anew={key for key in going if _is_not_in_the_lake(entries[key])})
        now = clock.now()
        ArchivedMessage.objects.filter(pk__in=going).update(
            state=ArchiveState.RESTORED, restored_at=now, restored_by=by[:150], purged_at=None
        )
        result.restored = going
    return result


def _check(chosen: Sequence[MessageRows]) -> None:
    versions = {one.message["agreement_version_id"] for one in chosen}
    triggers = {row["trigger_id"] for one in chosen for row in (*one.parts["deliveries"], *one.joins)}
    for model, keys, what in ((AgreementVersion, versions, "agreement version"), (Trigger, triggers, "trigger")):
        gone = keys - set(model.objects.filter(pk__in=keys).values_list("pk", flat=True))
        if gone:
            raise WrongState(
                f"The {what} {min(gone)} that the message names was deleted: it cannot be restored.", state="archived"
            )


def _is_not_in_the_lake(entry: ArchivedMessage) -> bool:
    """Whether the lake was begun again after the message had left the store."""
    state = LakeState.objects.first()
    if state is None or entry.purged_at is None:
        return False
    files = LakeFile.objects.filter(generation=state.generation).order_by("id")
    begun = files.values_list("created_at", flat=True).first()
    return begun is not None and begun > entry.purged_at  # an empty lake takes up everything anyway


def _write(chosen: Sequence[MessageRows], result: Restored, *, anew: Collection[uuid.UUID]) -> None:
    """`anew`: what the lake is to take up as if it were written now; not its events, which the feed has told."""
    current = _current_transaction()
    for one in chosen:
        for row in (one.message, *(row for part in message_rows.PARTS for row in one.parts[part.name])):
            # Of another server's count, it would come up in the feed and in the lake as something new.
            if row.get("xid", 0) > current:
                row["xid"] = 0
        if one.message["id"] in anew:
            parts = (part.name for part in message_rows.PARTS if part.model is not Event)
            for row in (one.message, *(row for name in parts for row in one.parts[name] if "xid" in row)):
                row["xid"] = current
        _free_idempotency_key(one.message, result)
        for payload in one.parts["payloads"]:
            if payload["stored_as"]:
                kept = storage.keep(bytes(payload["content"]))
                payload["content"], payload["stored_as"] = kept.content, kept.stored_as
    _let_go_of_transactions(chosen)
    _make_room_for_acknowledgements(chosen)
    message_rows.insert(Join, [row for one in chosen for row in one.joins], or_leave=True)
    message_rows.insert(Message, [one.message for one in chosen])
    for part in message_rows.PARTS:
        rows = [row for one in chosen for row in one.parts[part.name]]
        if part.model in (Payload, Event):
            _free_keys(part.model, rows)
        message_rows.insert(part.model, rows)


def _free_idempotency_key(message: Row, result: Restored) -> None:
    """The key ended with the purge; a later submission may have it now."""
    key = message["idempotency_key"]
    if key and Message.objects.filter(submitted_by=message["submitted_by"], idempotency_key=key).exists():
        message["idempotency_key"] = ""
        result.notes.append(
            f"{public_id('msg', message['id'])}: a later submission has its Idempotency-Key {key!r}; restored without."
        )


def _let_go_of_transactions(chosen: Collection[MessageRows]) -> None:
    """What a message was to a transaction that the database does not have (any more) says so without it."""
    rows = [row for one in chosen for row in one.parts["coordinating"]]
    # Held, so that what is there stays until the commit; a participant goes with its transaction only.
    held = Coordination.objects.order_by("pk").select_for_update(no_key=True)
    for column, known in (("coordination_id", held), ("enlistment_id", Enlistment.objects.all())):
        named = {row[column] for row in rows if row[column] is not None}
        there = set(known.filter(pk__in=named).values_list("pk", flat=True)) if named else set()
        for row in rows:
            if row[column] not in there:
                row[column] = None


def _make_room_for_acknowledgements(chosen: Collection[MessageRows]) -> None:
    """A message has one acknowledgement of ours; one that was made for a late repeat stands by itself from now on."""
    own = [
        one.message["id"]
        for one in chosen
        if any(row["direction"] == "out" and row["kind"] == "ack" for row in one.parts["signals"])
    ]
    later = Signal.objects.filter(about_id__in=own, direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT)
    update_in_order(later, about=None)


def _free_keys(model: type[models.Model], rows: Sequence[Row]) -> None:
    """Numbers that another row has by now, or that the database would give to one, are given anew.

    That happens when the database was restored from a backup that is older than the archive.
    """
    keys = [row["id"] for row in rows]
    taken = set(model._default_manager.filter(pk__in=keys).values_list("pk", flat=True))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [model._meta.db_table])
        (sequence,) = cursor.fetchone()
        cursor.execute(f"SELECT last_value FROM {sequence}")  # noqa: S608  (a name that the database gave)
        (last,) = cursor.fetchone()
        for row in rows:
            if row["id"] in taken or row["id"] > last:
                cursor.execute("SELECT nextval(%s::regclass)", [sequence])
                (row["id"],) = cursor.fetchone()


def _current_transaction() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        return int(cursor.fetchone()[0])
