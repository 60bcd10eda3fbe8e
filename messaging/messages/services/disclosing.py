"""Hands out stored octets: payloads and messages as they were on the wire. Who took them is in the audit log.

Masks (`masks`) hold here, for everything that people and their scripts read. Applications that take documents
from their triggers get them as they are.
"""

from __future__ import annotations

import uuid
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import transaction
from django.utils.translation import gettext as _

from messaging import masks, profile, storage
from messaging.engine import preparing
from messaging.exceptions import ApplicationError, NotFound
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Delivery, Message, Payload, PayloadMask, Rejection, Transmission
from messaging.models.base import existing
from messaging.protocol import masking, selecting
from rmhub.ids import public_id
from rmhub.roles import Role


class PayloadLost(ApplicationError):
    """The row is there and its file is not: the store folder was not restored with the database."""

    code = "payload_missing"


class NotPrepared(ApplicationError):
    """A message that waits has no octets yet: they are made when it is first sent."""

    code = "wire_not_prepared"


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes with what a download says about them. `sha256` in hexadecimal.

    `large`: where they are, when they are too many to be held; `content` is empty then.
    """

    content: bytes
    content_type: str
    filename: str
    sha256: str
    large: storage.Large | storage.Body | None = None


class Masked(ApplicationError):
    """Rules cover parts of the document for this role: its own octets are not handed out."""

    code = "payload_masked"


@dataclass(frozen=True, slots=True)
class View:
    """A payload as somebody of a role may see it. `rules`: which cover it; `covered`: how many places that is.

    `hidden`: why nothing of it is shown: it cannot be read, so that what the rules cover cannot be found.
    """

    octets: Octets
    rules: tuple[str, ...] = ()
    covered: int = 0
    hidden: str = ""
    needed: str = ""


def payload_open(
    *, message_id: uuid.UUID, number: int, actor: Actor, role: Role | None = None, as_file: bool = False
) -> Octets:
    """One payload's own octets, for whoever sees behind all masks of it (`role` None: behind none).

    `as_file`: those that lie in the store, and that no mask has to look into, are not held (`Octets.large`).

    Raises NotFound, PayloadLost, Masked.
    """
    payload = _row(message_id, number)
    as_file = as_file and bool(payload.stored_as) and not masks.of_message(payload.message, role)
    octets = _large(payload) if as_file else _octets(payload)
    if octets.large is None:
        _refuse_masked([payload], {payload.pk: octets.content}, payload.message, role)
    after: dict[str, object] = {"payload": number, "sha256": payload.sha256, "size": payload.size}
    audit.record(actor, "payload.read", payload.message, after=after)
    return octets


def payload_look(*, message_id: uuid.UUID, number: int, actor: Actor, role: Role | None = None) -> View:
    """One payload for the eyes of this role: what masks cover is covered, in UTF-8. Raises NotFound, PayloadLost."""
    payload = _row(message_id, number)
    octets = _octets(payload)
    after: dict[str, object] = {"payload": number, "sha256": payload.sha256, "size": payload.size}
    view = _view(octets, payload.message, role)
    if view.rules:
        after["covered_by"] = list(view.rules)
    audit.record(actor, "payload.read", payload.message, after=after)
    return view


def _view(octets: Octets, message: Message, role: Role | None) -> View:
    """A document of a message as somebody of this role may see it."""
    kind, rules = _holding(masks.of_message(message, role), octets.content, octets.content_type)
    if not rules:
        return View(octets)
    names, needed = tuple(rule.name for rule in rules), masks.needed(rules)
    try:
        text = selecting.decoded(octets.content, octets.content_type)
        content, count = masking.cover(octets.content, kind, [rule.path for rule in rules], text=text)
    except selecting.Unreadable as error:
        return View(_covered(octets, b""), names, 0, str(error), needed)
    return View(_covered(octets, content) if count else octets, names, count, "", needed)


def payload_view(*, message_id: uuid.UUID, number: int, actor: Actor, role: Role | None = None) -> Octets:
    """The octets of `payload_look`. Raises NotFound, PayloadLost, Masked when nothing of it can be shown."""
    view = payload_look(message_id=message_id, number=number, actor=actor, role=role)
    if view.hidden:
        said = _("Parts of this payload are covered, and {hidden}: it needs the role {role}.")
        raise Masked(said.format(hidden=view.hidden, role=view.needed))
    return view.octets


def documents_open(*, message_id: uuid.UUID, actor: Actor, role: Role | None = None) -> Octets:
    """All payloads of a message as a ZIP file. Raises NotFound, PayloadLost, Masked."""
    message = _message(message_id)
    rows = list(Payload.objects.filter(message=message_id).order_by("number"))
    if masks.of_message(message, role):
        _refuse_masked(rows, {row.pk: _content(row) for row in rows}, message, role)
    packed = storage.unnamed()
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for row in rows:
                # The same octets for the same message, whenever: the time is the message's.
                entry = zipfile.ZipInfo(_entry_name(row), message.created_at.timetuple()[:6])
                entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, row.size
                content = _opened(row)
                with archive.open(entry, "w") as file:
                    file.writelines([content] if isinstance(content, bytes) else content)
    except BaseException:
        packed.close()
        raise
    audit.record(actor, "payload.read", message, after={"payloads": [row.number for row in rows], "form": "zip"})
    return _handed_out(storage.Large(packed).held(), "application/zip", f"{message.public_id}.zip", "")


def _message(message_id: uuid.UUID) -> Message:
    return existing(Message.objects.select_related("pair"), message_id)


def _row(message_id: uuid.UUID, number: int) -> Payload:
    found = Payload.objects.select_related("message__pair").defer("message__wire_frame")
    payload = found.filter(message=message_id, number=number).first() if 0 < number < 32_768 else None
    if payload is None:
        raise NotFound(
            _("{message} has no payload {number}.").format(message=public_id("msg", message_id), number=number)
        )
    return payload


def _octets(payload: Payload) -> Octets:
    name = payload.filename or f"payload-{payload.number}"
    return Octets(_content(payload), payload.content_type, name, payload.sha256)


def _large(payload: Payload) -> Octets:
    """Those of a payload that nobody looks into on the way, as the file that they are."""
    name = payload.filename or f"payload-{payload.number}"
    return _handed_out(_opened(payload), payload.content_type, name, payload.sha256)


def _handed_out(found: bytes | storage.Large | storage.Body, content_type: str, filename: str, sha256: str) -> Octets:
    if isinstance(found, bytes):
        return Octets(found, content_type, filename, sha256)
    return Octets(b"", content_type, filename, sha256, found)


def _opened(payload: Payload) -> bytes | storage.Large:
    try:
        return storage.opened(payload.content, payload.stored_as)
    except storage.PayloadMissing as error:
        raise PayloadLost(str(error)) from error


def _content(payload: Payload) -> bytes:
    try:
        return storage.load(payload.content, payload.stored_as)
    except storage.PayloadMissing as error:
        raise PayloadLost(str(error)) from error


def _holding(rules: Sequence[PayloadMask], content: bytes, content_type: str) -> tuple[str, list[PayloadMask]]:
    """(what the content is, those of the rules that hold for it; all that may, where nobody can tell what it is)."""
    kind = selecting.kind_of(content, content_type) if rules else ""
    if kind:
        return kind, [rule for rule in rules if rule.kind == kind]
    return "", [rule for rule in rules if masking.may_hide(rule.kind, content, content_type)]


def _refuse_masked(
    payloads: Iterable[Payload], contents: Mapping[int, bytes], message: Message, role: Role | None
) -> None:
    """Raises Masked when a rule holds for one of the payloads, whether or not it finds something in it."""
    rules = masks.of_message(message, role)
    for payload in payloads:
        __, holding = _holding(rules, contents[payload.pk], payload.content_type)
        if holding:
            raise Masked(
                _("Parts of payload {number} are covered by {rules}: its own octets need the role {role}.").format(
                    number=payload.number,
                    rules=", ".join(rule.name for rule in holding),
                    role=masks.needed(holding),
                )
            )


def _covered(octets: Octets, content: bytes) -> Octets:
    media = octets.content_type.partition(";")[0].strip() or "text/plain"
    return Octets(content, f"{media}; charset=utf-8", f"covered-{octets.filename}", "")


def _entry_name(row: Payload) -> str:
    name = "".join(
        character if character.isalnum() or character in "._-" else "_" for character in row.filename or row.label
    )
    return f"{row.number:02d}-{name.lstrip('.')[:100] or 'document'}"


def payloads_open(
    *, messages: Iterable[Message], at_most: int, actor: Actor, role: Role | None
) -> dict[tuple[uuid.UUID, int], bytes]:
    """The octets of these messages' payloads of up to `at_most` bytes each, by message and payload number.

    One whose file is missing, and one that is covered in parts for this role, is left out: whoever needs it asks for it
    alone, and is told so then.
    """
    by_id = {message.pk: message for message in messages}
    found: dict[tuple[uuid.UUID, int], bytes] = {}
    read: dict[uuid.UUID, list[int]] = {}
    for payload in Payload.objects.filter(message__in=by_id, size__lte=at_most).order_by("message_id", "number"):
        message = by_id[payload.message_id]
        try:
            content = storage.load(payload.content, payload.stored_as)
            _refuse_masked([payload], {payload.pk: content}, message, role)
        except (storage.PayloadMissing, Masked):
            continue
        found[payload.message_id, payload.number] = content
        read.setdefault(payload.message_id, []).append(payload.number)
    with transaction.atomic():
        for message_id, numbers in read.items():
            audit.record(actor, "payload.read", by_id[message_id], after={"payloads": numbers})
    return found


def wire_open(*, message_id: uuid.UUID, actor: Actor, role: Role | None = None, as_file: bool = False) -> Octets:
    """A message's exact octets, payloads and all; its own `content_type` tells the MIME boundary.

    `as_file`: those that lie in the store are not held (`Octets.large`), but while a mask has to look into them.

    Raises NotFound, NotPrepared, PayloadLost, Masked.
    """
    message = _message(message_id)
    if message.wire_frame is None:
        said = _("{message} was not sent yet, so it has no octets; its state is {state}.")
        raise NotPrepared(said.format(message=message.public_id, state=message.state))
    rows = Payload.of_messages([message_id])[message_id]
    try:
        octets = preparing.stored_octets(message, rows)
    except storage.PayloadMissing as error:
        raise PayloadLost(str(error)) from error
    if masks.of_message(message, role):
        _refuse_masked(rows, {row.pk: _content(row) for row in rows}, message, role)
    audit.record(actor, "message.read_wire", message, after={"sha256": message.digest, "size": len(octets)})
    found = octets if as_file or isinstance(octets, bytes) else b"".join(octets)
    return _handed_out(found, message.content_type, f"{message.public_id}.mime", message.digest)


def rejection_open(*, rejection_id: uuid.UUID, actor: Actor, role: Role | None = None) -> Octets:
    """The first 4 KiB of something that was refused. Raises NotFound, Masked.

    It is cut off, and may be anything: where a rule may concern it, nothing of it is shown.
    """
    rejection = existing(Rejection.objects, rejection_id)
    if rules := masks.of_refused(rejection.party_name, role):
        raise Masked(
            _("It may hold what {rules} covers: reading it needs the role {role}.").format(
                rules=", ".join(rule.name for rule in rules), role=masks.needed(rules)
            )
        )
    content = bytes(rejection.sample)
    audit.record(actor, "rejection.read", rejection, after={"size": len(content)})
    return Octets(content, rejection.content_type, f"{rejection.public_id}.bin", "")


def answer_holds_document(attempt: Transmission) -> bool:
    """Whether the answer to an attempt may hold a document of the partner's: that to a repeatable request (spec 2)."""
    if attempt.message_id is None:
        return False
    named = Message.objects.filter(pk=attempt.message_id).values_list("agreement_version__profile", flat=True)
    return any(profile.named(name).answered_at_once for name in named)


def answer_open(*, attempt: Transmission, actor: Actor, role: Role | None = None) -> View:
    """What the partner's server answered to an attempt, as somebody of this role may see it: head and body.

    The reading of what may be a document is written down, and masks hold for it: one that is covered in parts is cut to
    its head, because the answer may be cut off itself.
    """
    octets = Octets(bytes(attempt.response or b""), "application/octet-stream", f"{attempt.public_id}.bin", "")
    if not answer_holds_document(attempt) or attempt.message_id is None:
        return View(octets)
    message = _message(attempt.message_id)
    head, sign, body = octets.content.partition(b"\r\n\r\n")
    __, rules = _holding(masks.of_message(message, role), body, _content_type(head)) if body else ("", [])
    about: dict[str, object] = {"transmission": attempt.public_id}
    return _answer(octets, rules, head + sign, message, actor, about)


def delivery_answer_open(*, delivery: Delivery, actor: Actor, role: Role | None = None) -> View:
    """What an application's service answered last to a delivery, as somebody of this role may see it.

    It may be the document that goes to the partner. The reading is written down, and the masks of what was delivered
    hold for it: one that may hold what they cover is not shown, because it may be cut off.
    """
    row = Delivery.objects.filter(pk=delivery.pk).values_list("answer", flat=True).first()
    octets = Octets(bytes(row or b""), "application/octet-stream", f"{delivery.public_id}.bin", "")
    if not octets.content:
        return View(octets)
    parts = Message.objects.filter(deliveries__part_of=delivery.join_id) if delivery.join_id else ()
    concerning = {rule.pk: rule for one in (delivery.message, *parts) for rule in masks.of_message(one, role)}
    __, rules = _holding(list(concerning.values()), octets.content, "")
    return _answer(octets, rules, b"", delivery.message, actor, {"delivery": delivery.public_id})


def _answer(
    octets: Octets, rules: Sequence[PayloadMask], shown: bytes, message: Message, actor: Actor, about: dict[str, object]
) -> View:
    """An answer that may be a document, whose reading is written down. `shown`: what is left where rules hold."""
    names = tuple(rule.name for rule in rules)
    after = {**about, "size": len(octets.content), **({"covered_by": list(names)} if names else {})}
    audit.record(actor, "payload.read", message, after=after)
    if not rules:
        return View(octets)
    hidden = _("an answer is not covered in parts")
    return View(replace(octets, content=shown), names, 0, hidden, masks.needed(rules))


def _content_type(head: bytes) -> str:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return next((value.decode("latin-1").strip() for name, _, value in lines if name.lower() == b"content-type"), "")
