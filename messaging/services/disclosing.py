"""Hands out stored octets: payloads and messages as they were on the wire. Who took them is in the audit log."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import transaction

from messaging import storage
from messaging.exceptions import ApplicationError, NotFound
from messaging.models import Message, Payload, Rejection
from messaging.services import audit, preparing
from messaging.services.audit import Actor
from rmhub.ids import public_id


class PayloadLost(ApplicationError):
    """The row is there and its file is not: the store folder was not restored with the database."""

    code = "payload_missing"


class NotPrepared(ApplicationError):
    """A message that waits has no octets yet: they are made when it is first sent."""

    code = "wire_not_prepared"


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes with what a download says about them. `sha256` in hexadecimal."""

    content: bytes
    content_type: str
    filename: str
    sha256: str


def payload_open(*, message_id: uuid.UUID, number: int, actor: Actor) -> Octets:
    """One payload's octets. Raises NotFound, PayloadLost."""
    found = Payload.objects.select_related("message").defer("message__wire_frame")
    payload = found.filter(message=message_id, number=number).first() if 0 < number < 32_768 else None
    if payload is None:
        raise NotFound(f"{public_id('msg', message_id)} has no payload {number}.")
    try:
        content = storage.load(payload.content, payload.stored_as)
    except storage.PayloadMissing as error:
        raise PayloadLost(str(error)) from error
    after: dict[str, object] = {"payload": number, "sha256": payload.sha256, "size": payload.size}
    audit.record(actor, "payload.read", payload.message, after=after)
    return Octets(content, payload.content_type, payload.filename or f"payload-{number}", payload.sha256)


def payloads_open(*, messages: Iterable[Message], at_most: int, actor: Actor) -> dict[tuple[uuid.UUID, int], bytes]:
    """The octets of these messages' payloads of up to `at_most` bytes each, by message and payload number.

    One whose file is missing is left out: whoever needs it asks for it alone, and is told so then.
    """
    by_id = {message.pk: message for message in messages}
    found: dict[tuple[uuid.UUID, int], bytes] = {}
    read: dict[uuid.UUID, list[int]] = {}
    for payload in Payload.objects.filter(message__in=by_id, size__lte=at_most).order_by("message_id", "number"):
        try:
            found[payload.message_id, payload.number] = storage.load(payload.content, payload.stored_as)
        except storage.PayloadMissing:
            continue
        read.setdefault(payload.message_id, []).append(payload.number)
    with transaction.atomic():
        for message_id, numbers in read.items():
            audit.record(actor, "payload.read", by_id[message_id], after={"payloads": numbers})
    return found


def wire_open(*, message_id: uuid.UUID, actor: Actor) -> Octets:
    """A message's exact octets, payloads and all; its own `content_type` tells the MIME boundary.

    Raises NotFound, NotPrepared, PayloadLost.
    """
    message = Message.objects.filter(pk=message_id).first()
    if message is None:
        raise NotFound(f"There is no message {public_id('msg', message_id)}.")
    if message.wire_frame is None:
        raise NotPrepared(f"{message.public_id} was not sent yet, so it has no octets; its state is {message.state}.")
    try:
        content = preparing.stored_body(message, preparing.payloads_of([message_id])[message_id])
    except storage.PayloadMissing as error:
        raise PayloadLost(str(error)) from error
    audit.record(actor, "message.read_wire", message, after={"sha256": message.digest, "size": len(content)})
    return Octets(content, message.content_type, f"{message.public_id}.mime", message.digest)


def rejection_open(*, rejection_id: uuid.UUID, actor: Actor) -> Octets:
    """The first 4 KiB of something that was refused. Raises NotFound."""
    rejection = Rejection.objects.filter(pk=rejection_id).first()
    if rejection is None:
        raise NotFound(f"There is no rejection {public_id('rej', rejection_id)}.")
    content = bytes(rejection.sample)
    audit.record(actor, "rejection.read", rejection, after={"size": len(content)})
    return Octets(content, rejection.content_type, f"{rejection.public_id}.bin", "")
