"""Takes documents from our applications: stored before it is answered (spec 1, 2.1.3 (1))."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils.translation import gettext as _

from messaging import dispatch, profile, storage
from messaging.choices import Direction, MessageState, SchemaEffect
from messaging.engine import attributes as attribute_rules
from messaging.engine import handover, pairs, schemas
from messaging.engine import memory as hub_memory
from messaging.engine.continuing import Continuation
from messaging.engine.group import GroupCommit
from messaging.engine.handover import Seat
from messaging.engine.snapshots import OUTBOUND_FIELDS
from messaging.exceptions import (
    DoesNotFit,
    DuplicateMessageId,
    IdempotencyMismatch,
    InvalidSubmission,
    OutsideAgreement,
    PayloadRefused,
    QueueFull,
    TooLarge,
    WrongState,
)
from messaging.journal import events
from messaging.messages.services import uploading
from messaging.models import Event as EventRow
from messaging.models import Message, MessageIdentity, Pair, Payload
from messaging.models.bulk import bulk_insert, bulk_set, together
from messaging.protocol import document_ids, selecting
from messaging.protocol.codecs.ebxml_lexical import CONTROL
from messaging.protocol.codecs.mime import is_header_value
from messaging.protocol.envelope import MAX_PAYLOADS, Semantics
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.processing import MAX_DOCUMENT_ID
from partners import registry, visibility
from partners.addresses import host_of
from partners.terms import Terms
from rmhub import clock, traces
from rmhub.ids import uuid7
from rmhub.language import number as written

log = logging.getLogger(__name__)

# What stands in Content-IDs too, so it has no blanks, brackets or characters outside ASCII (RFC 822, wire-ebxml 1.4).
_MESSAGE_ID = re.compile(r"[!-;=?-~]*")
_CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(\s*;\s*[\w.-]+=(\"[^\"\r\n]*\"|[^\s;\"]+))*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NewPayload:
    """A document as it is handed in, in memory or as a file; or an upload of whoever submits it, which has the octets.

    `label` names it in the Manifest. `expected`: the SHA-256 that it must have, in hexadecimal; "" = any.
    """

    content: bytes | storage.Large = b""
    content_type: str = "application/octet-stream"
    filename: str = ""
    label: str = "Document"
    upload: uuid.UUID | None = None
    expected: str = ""

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        """In hexadecimal."""
        return storage.digest(self.content)

    def read(self) -> bytes:
        """The octets, for whoever looks at what they say; of more than `selecting.MAX_BYTES`, which nobody looks into,
        one more than that.
        """
        return self.content[: selecting.MAX_BYTES + 1]


@dataclass(frozen=True, slots=True)
class Submission:
    """What came of it. `replayed`: the Idempotency-Key was known, nothing new was stored."""

    message: Message
    replayed: bool = False
    warnings: tuple[tuple[str, str], ...] = field(default=())


def message_submit(
    *,
    agreement: str,
    service: str,
    action: str,
    payloads: Sequence[NewPayload],
    message_id: str = "",
    conversation_id: str = "",
    ref_to_message_id: str = "",
    semantics: str = "",
    submitted_by: str = "",
    idempotency_key: str = "",
    time_to_live: int | None = None,
    document_id: str = "",
    attributes: Mapping[str, str] = MappingProxyType({}),
    resubmission_of: Message | None = None,
) -> Submission:
    """Stores a message for the partner of the agreement with this TPAId and makes it due.

    `time_to_live`: of a stream's message, in seconds from now; at most what its agreement says, which is the default.
    `document_id`: what the application calls the document, under which its receiver knows it again; without one a
    resubmission has that of the message whose document it is. `attributes`: what the message is found by, beside what
    rules find in its documents (`engine.attributes`). These have to fit the schemas that are set up for them
    (`engine.schemas`). A suspended or paused pair takes it too; a warning says
    so. Raises OutsideAgreement, InvalidSubmission, TooLarge, DuplicateMessageId (a MessageId goes out once),
    IdempotencyMismatch, QueueFull; WrongState when the file of an upload is not there.
    """
    fingerprint = ""
    if idempotency_key:
        if len(idempotency_key) > 255 or CONTROL.search(idempotency_key):
            raise InvalidSubmission({"idempotency_key": [_("At most 255 characters, and no control characters.")]})
        # Before all other checks: what was taken stays taken, whatever became of the agreement since.
        identifiers = [message_id, conversation_id, ref_to_message_id, semantics]
        if time_to_live is not None:
            identifiers.append(f"time_to_live {time_to_live}")
        if document_id:
            identifiers.append(f"document_id {document_id}")
        if attributes:
            identifiers.append(f"attributes {json.dumps(dict(attributes), sort_keys=True)}")
        fingerprint = _fingerprint(agreement, service, action, payloads, *identifiers)
        known = _replay(submitted_by, idempotency_key, fingerprint)
        if known is not None:
            return known
    try:
        payloads = _with_uploads(payloads, submitted_by)
    except PayloadRefused:
        # The same submission, made at the same time, may have used the upload since it was looked for.
        known = _replay(submitted_by, idempotency_key, fingerprint) if idempotency_key else None
        if known is not None:
            return known
        raise
    terms = registry.current().by_tpa_id(agreement)
    # Where documents may be handed in for some partners only, the others' agreements are not there.
    if terms is None or not visibility.allows(terms.partner_id):
        said = _("No agreement with TPAId {agreement} is active.").format(agreement=repr(agreement))
        raise OutsideAgreement(said, code="unknown_agreement")
    wished = Semantics(semantics) if semantics in set(Semantics) else Semantics(terms.semantics)
    _check(
        terms,
        service,
        action,
        payloads,
        semantics,
        message_id,
        conversation_id,
        ref_to_message_id,
        time_to_live,
        document_id,
        attributes,
    )
    _check_digests(payloads)

    def documents() -> Iterable[tuple[bytes, str]]:
        return ((payload.read(), payload.content_type) for payload in payloads)

    misfit = schemas.misfit(
        documents, partner_id=terms.partner_id, service=service, action=action, direction=Direction.OUT
    )
    if misfit is not None and misfit.rule.on_submission == SchemaEffect.REFUSE:
        raise DoesNotFit({"payloads": misfit.sentences})
    key = uuid7()
    message_id = profile.of(terms).message_id(message_id, key)
    message = Message(
        id=key,
        direction=Direction.OUT,
        state=MessageState.QUEUED,
        agreement_version_id=terms.version_id,
        semantics=wished,
        message_id=message_id or f"{key.hex}@{_host(terms)}",
        conversation_id=conversation_id or f"conv-{key.hex}@{_host(terms)}",
        ref_to_message_id=ref_to_message_id,
        document_id=document_id or (resubmission_of.identifies if resubmission_of is not None else ""),
        resubmitted_from=resubmission_of,
        service=service,
        action=action,
        size=sum(payload.size for payload in payloads),
        schema_faults=misfit.kept(Direction.OUT) if misfit is not None else None,
        attributes=attribute_rules.of_documents(
            documents,
            partner_id=terms.partner_id,
            service=service,
            action=action,
            given=attributes,
        ),
        submitted_by=submitted_by[:150],
        idempotency_key=idempotency_key,
        idempotency_fingerprint=fingerprint,
        expires_at=clock.now() + timedelta(seconds=time_to_live) if time_to_live is not None else None,
    )
    rows = [_payload(message, number, payload, terms) for number, payload in enumerate(payloads, start=1)]
    uploads = [payload.upload for payload in payloads]
    entry = _Entry(message, rows, uploads, pairs.outbound_pair_id(terms), terms, traces.current())
    try:
        # A caller with a transaction of its own wants the message in it; all others share commits.
        stored = _store([entry])[0] if connection.in_atomic_block else _group.submit(entry)
        if stored is None:
            raise QueueFull(
                _(
                    "{count} messages of this pair wait already. Submit again when some have gone out; the pair's page "
                    "says what keeps them."
                ).format(count=written(settings.RMHUB_PAIR_QUEUE))
            )
    except (IntegrityError, PayloadRefused) as error:
        # Lost a race against the same key, upload or MessageId: the winner is committed, so it can be looked up.
        known = _replay(submitted_by, idempotency_key, fingerprint) if idempotency_key else None
        if known is not None:
            return known
        if isinstance(error, PayloadRefused):
            raise
        taken = MessageIdentity.objects.filter(
            scope_id=terms.own_party_id, direction=Direction.OUT, message_id=message.message_id
        ).first()
        if taken is None:
            raise
        raise DuplicateMessageId(
            _("MessageId {message_id} was submitted before; a MessageId goes out once.").format(
                message_id=repr(message.message_id)
            ),
            existing=taken.stored_id,
        ) from error
    traces.refer(key)
    warnings = _warnings(stored.pair)
    if misfit is not None:
        warnings = (*warnings, ("schema_misfit", _("Accepted. {misfit}").format(misfit=misfit.sentences[0])))
    return Submission(stored.message, warnings=warnings)


def message_submit_again(
    message: Message, *, state: str, submitted_by: str, document_id: str = "", idempotency_key: str = ""
) -> Submission:
    """Submits the documents of a message as a new one, under the agreement that is in force now.

    `state`: of the message, for the error. Raises WrongState when a document's file is gone, and what `message_submit`
    raises.
    """
    try:
        payloads = [
            NewPayload(storage.opened(row.content, row.stored_as), row.content_type, row.filename, row.label)
            for row in Payload.objects.filter(message=message).order_by("number")
        ]
    except storage.PayloadMissing as error:
        raise payload_missing(state) from error
    return message_submit(
        agreement=message.agreement_version.agreement.tpa_id,
        service=message.service,
        action=message.action,
        payloads=payloads,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.ref_to_message_id,
        document_id=document_id,
        attributes=message.attributes or {},
        resubmission_of=message,
        semantics=message.semantics,
        submitted_by=submitted_by,
        idempotency_key=idempotency_key,
    )


def payload_missing(state: str) -> WrongState:
    """What is said when a document that is to go out or to an application once more is not in the store folder."""
    return WrongState(
        _(
            "The document's file is not in the store folder: restore it from the backup, or have the application "
            "submit the document again."
        ),
        state=state,
        code="payload_missing",
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One checked submission on its way into the store. `message`: as it is before it is tried. `uploads`: those that
    its documents came as. `traceparent`: of the request that brought it, where traces are told.
    """

    message: Message
    payloads: list[Payload]
    uploads: list[uuid.UUID | None]
    pair_id: uuid.UUID
    terms: Terms
    traceparent: str


class _Stored(NamedTuple):
    """A submission as it is stored, with its pair."""

    message: Message
    pair: Pair


def _store(entries: list[_Entry]) -> list[_Stored | None]:
    """Stores a group of submissions in one transaction; returns each as it is after it. None: the pair's queue is full,
    and nothing of this submission was stored.

    The entries stay as they are: of a group that is refused each is stored again by itself.
    """
    seat = _seat()
    now = clock.now()
    continuation = Continuation(seat, now)
    most: int = settings.RMHUB_PAIR_QUEUE
    written: list[EventRow] = []
    taken: list[_Entry] = []
    messages: list[Message] = []
    found: list[_Stored | None] = []
    with transaction.atomic():
        locked = Pair.locked(entry.pair_id for entry in entries)  # the queue's order is the order of these locks
        for entry in entries:
            pair = locked[entry.pair_id]
            if pair.queued >= most:
                found.append(None)
                continue
            message, terms = copy.copy(entry.message), entry.terms
            pairs.enqueue(message, pair, terms, now)
            if message.due_at is not None:
                continuation.once(pair, message, entry.payloads, terms)
            elif pair.queued == 1:
                continuation.next_of(pair, message, entry.payloads, terms)
            what = {"agreement": terms.tpa_id, "service": message.service, "action": message.action}
            data: dict[str, object] = {**what, "size": message.size}
            if shown := attribute_rules.shown(message.attributes):
                data["attributes"] = shown
            if message.schema_faults:
                data["schema_faults"] = message.schema_faults
            written.append(
                events.event(
                    "message.accepted", now, pair=pair, message=message, data=data, traceparent=entry.traceparent
                )
            )
            taken.append(entry)
            messages.append(message)
            found.append(_Stored(message, pair))
        uploading.use((entry.message.pk, entry.uploads) for entry in taken)
        identities = [
            MessageIdentity(
                scope_id=entry.terms.own_party_id,
                direction=Direction.OUT,
                message_id=entry.message.message_id,
                stored_id=entry.message.pk,
                created_at=now,
            )
            for entry in taken
        ]
        with together():
            bulk_insert(identities)
            bulk_insert(messages)
            bulk_insert([payload for entry in taken for payload in entry.payloads])
        continuation.many_of(locked.values())
        with together():
            bulk_set(list(locked.values()), (*OUTBOUND_FIELDS, "next_position"))
            events.write(written + continuation.write())
        waits = any(message.due_at is not None and message.due_at <= now for message in messages)
        if waits or any(pairs.is_due(pair, now) for pair in locked.values()):
            dispatch.wake_on_commit(dispatch.SEND)
    return found


def _seat() -> Seat | None:
    """The worker that what is stored is claimed for. Like a claim it relies on the memory, which may have been lost.

    None within a transaction of the caller, who may do more in it before it is committed.
    """
    if connection.in_atomic_block:
        return None
    try:
        hub_memory.look()
    except (DatabaseError, OSError):
        log.warning("the memory cannot be looked at", extra={"action": "memory_not_seen"}, exc_info=True)
        return None
    return handover.seat()


_group: GroupCommit[_Entry, _Stored | None] = GroupCommit(_store)


def _with_uploads(payloads: Sequence[NewPayload], owner: str) -> Sequence[NewPayload]:
    """The documents with the octets of those that are uploads. Raises PayloadRefused, WrongState."""
    found = list(payloads)
    for position, (payload, upload) in enumerate(
        zip(payloads, uploading.opened((payload.upload for payload in payloads), owner), strict=True)
    ):
        if upload is not None:
            row, large = upload
            found[position] = replace(payload, content=large, expected=payload.expected or row.sha256)
    return found


def _check_digests(payloads: Sequence[NewPayload]) -> None:
    """Raises PayloadRefused for a document that is another one than it was said to be."""
    for position, payload in enumerate(payloads):
        if payload.expected and payload.expected.lower() != payload.sha256:
            said = "The octets have another SHA-256: they were changed on their way."
            raise PayloadRefused(position, "sha256", "digest_mismatch", said)


def _payload(message: Message, number: int, payload: NewPayload, terms: Terms) -> Payload:
    kept = storage.keep(payload.content)
    return Payload(
        message=message,
        number=number,
        content_id=f"p{number}.{message.message_id}",
        content_type=payload.content_type,
        filename=payload.filename,
        label=payload.label or "Document",
        size=kept.size,
        sha256=kept.sha256,
        content=kept.content,
        stored_as=kept.stored_as,
        in_frame=terms.encrypts,
    )


def _check(
    terms: Terms,
    service: str,
    action: str,
    payloads: Sequence[NewPayload],
    semantics: str,
    message_id: str,
    conversation_id: str,
    ref_to_message_id: str,
    time_to_live: int | None,
    document_id: str,
    attributes: Mapping[str, str],
) -> None:
    errors: dict[str, list[str]] = {}
    identifiers = {
        "message_id": message_id,
        "conversation_id": conversation_id,
        "ref_to_message_id": ref_to_message_id,
        "service": service,
        "action": action,
    }
    for name, text in identifiers.items():
        if CONTROL.search(text) or text != text.strip():
            errors.setdefault(name, []).append(_("No control characters, and no blanks at the ends."))
        limit = 255 if name in ("service", "action") else 400
        if len(text) > limit:
            errors.setdefault(name, []).append(_("At most {limit} characters.").format(limit=limit))
    if not _MESSAGE_ID.fullmatch(message_id):
        errors.setdefault("message_id", []).append(_("Printable ASCII only, without blanks and angle brackets."))
    if document_id and (sentence := document_ids.fault(document_id, MAX_DOCUMENT_ID)):
        errors["document_id"] = [_("It has to be {sentence}").format(sentence=sentence)]
    if wrong := attribute_rules.faults(attributes):
        errors["attributes"] = wrong
    for name in ("service", "action"):
        if not identifiers[name]:
            errors.setdefault(name, []).append(_("Required."))
    if semantics and semantics not in set(Semantics):
        errors["semantics"] = [_("One of {known}.").format(known=", ".join(Semantics))]
    if not payloads:
        errors["payloads"] = [_("At least one payload is needed.")]
    elif len(payloads) > MAX_PAYLOADS:
        errors["payloads"] = [_("At most {count} payloads.").format(count=written(MAX_PAYLOADS))]
    for number, payload in enumerate(payloads, start=1):
        kind = payload.content_type
        if len(kind) > 255 or not (is_header_value(kind) and _CONTENT_TYPE.fullmatch(kind)):
            errors.setdefault("payloads", []).append(
                _("Payload {number}: {kind} is not a content type.").format(number=number, kind=repr(kind))
            )
        label, filename = payload.label, payload.filename
        if CONTROL.search(label + filename) or label != label.strip() or len(label) > 120 or len(filename) > 255:
            errors.setdefault("payloads", []).append(
                _(
                    "Payload {number}: label or filename is too long, or has control characters or blanks at its ends."
                ).format(number=number)
            )
    profile.of(terms).check_submission(
        errors,
        terms,
        payloads=len(payloads),
        semantics=semantics,
        message_id=message_id,
        time_to_live=time_to_live,
    )
    if errors:
        raise InvalidSubmission(errors)
    if not terms.allows(service, action, "send"):
        said = _("Agreement {agreement} does not let us send {service} / {action}.")
        raise OutsideAgreement(said.format(agreement=terms.tpa_id, service=service, action=action))
    size = sum(payload.size for payload in payloads)
    limit = min(terms.max_message_bytes, settings.RMHUB_MAX_MESSAGE_BYTES)
    if size > limit:
        said = _("{size} bytes of payload; agreement {agreement} allows {limit}.")
        raise TooLarge(said.format(size=size, agreement=terms.tpa_id, limit=limit))


def _fingerprint(
    agreement: str,
    service: str,
    action: str,
    payloads: Sequence[NewPayload],
    *identifiers: str,
) -> str:
    described = [
        agreement,
        service,
        action,
        list(identifiers),
        # An upload by its name: its octets may have left by the time the submission is repeated.
        [[p.content_type, p.filename, p.label, p.upload.hex if p.upload else p.sha256] for p in payloads],
    ]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _replay(submitted_by: str, key: str, fingerprint: str) -> Submission | None:
    known = Message.objects.filter(submitted_by=submitted_by[:150], idempotency_key=key).first()
    if known is None:
        return None
    if known.idempotency_fingerprint != fingerprint:
        raise IdempotencyMismatch(_("This Idempotency-Key was used before for another submission."))
    return Submission(known, replayed=True)


def _warnings(pair: Pair) -> tuple[tuple[str, str], ...]:
    if pair.gate == Gate.PAUSED:
        said = _("Accepted; {pair} is paused, so it waits until somebody releases the pair.")
        return (("pair_paused", said.format(pair=pair.code)),)
    if pair.gate == Gate.DISABLED:
        return (("pair_disabled", _("Accepted; {pair} is disabled, so it waits.").format(pair=pair.code)),)
    if pair.flow == Flow.SUSPENDED:
        said = _("Accepted; {pair} is suspended ({cause}), so it waits until it is resumed.")
        return (("pair_suspended", said.format(pair=pair.code, cause=pair.cause)),)
    return ()


def _host(terms: Terms) -> str:
    return host_of(terms.own_uri) or "rmhub"
