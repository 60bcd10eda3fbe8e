"""Takes large documents part by part, so that a connection that breaks costs the end of a part and no more.

The row is the truth: it says how far an upload has come once those octets are on the disk. A part is written without a
transaction, by one at a time, and counts when the row has moved. Once whole, a submission names it in place of octets.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import IO

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Sum

from messaging.exceptions import NotFound, PayloadRefused, TooLarge, TooManyUploads, WrongOffset, WrongState
from messaging.messages.selectors import uploads
from messaging.models import Upload
from messaging.storage import PayloadMissing, StoreUnavailable, parts
from messaging.storage.large import Large
from rmhub import clock
from rmhub.postgresql.base import give_back

LIFE = timedelta(days=1)  # of an upload that nobody goes on with


def upload_begin(*, owner: str, size: int, sha256: str = "") -> Upload:
    """A new upload of so many octets. `sha256`: in hexadecimal; then nothing else is taken at the end.

    Raises TooLarge, TooManyUploads, and StoreUnavailable when the disk has no room for it beside the others.
    """
    most: int = settings.RMHUB_MAX_MESSAGE_BYTES
    if size > most:
        raise TooLarge(f"{size} octets; the hub takes messages of at most {most}.")
    free = parts.free()
    with transaction.atomic():
        # Of two requests of one user the second counts what the first has begun.
        User.objects.select_for_update(no_key=True).get(username=owner)
        unused = Upload.objects.filter(message_id=None)
        if unused.filter(owner=owner).count() >= settings.RMHUB_UPLOADS_OPEN:
            raise TooManyUploads(
                f"{owner} has begun {settings.RMHUB_UPLOADS_OPEN} uploads that no message has used: submit or delete "
                "some first. GET /uploads lists them."
            )
        still = unused.aggregate(octets=Sum(F("size") - F("received")))["octets"] or 0
        if still + size > free:
            raise StoreUnavailable.no_room(str(parts.folder()))
        now = clock.now()
        return Upload.objects.create(
            owner=owner, size=size, sha256=sha256.lower(), created_at=now, expires_at=now + LIFE
        )


def check_part(row: Upload, offset: int, length: int) -> None:
    """Says whether a part of so many octets goes on where the upload is. Raises WrongOffset, TooLarge, WrongState."""
    if row.message_id is not None:
        raise WrongState("A message has it already.", state="used")
    if row.received != offset:
        raise WrongOffset(
            f"The part begins at {offset}; {row.received} octets are here: go on from there.", offset=row.received
        )
    if offset + length > row.size:
        said = f"The upload has {row.size} octets, and this part would end at {offset + length}."
        raise TooLarge(said, code="body_too_large")


def upload_append(*, upload_id: uuid.UUID, owner: str, offset: int, length: int, source: IO[bytes]) -> Upload:
    """Writes a part at `offset`, which is where the upload has to be. `length`: of the part, as was said before it
    came; what came of it counts, also when its sender left in between.

    Raises NotFound, WrongOffset, TooLarge, WrongState, StoreUnavailable; what was on the disk before is there then.
    """
    try:
        with parts.alone(upload_id) as file:
            try:
                check_part(uploads.upload(upload_id, owner), offset, length)  # nobody moves it from now on
                give_back()  # a connection is for who needs one, and the disk may take its time
                size = parts.append(file, offset, source)
                moved = _moved(upload_id, offset + size)
            except NotFound:
                parts.remove(upload_id)  # it was deleted in between
                raise
    except parts.Busy as error:
        raise WrongOffset("Another part of this upload is being written.", offset=offset) from error
    except PayloadMissing as error:
        raise _missing() from error
    return moved


def upload_delete(*, upload_id: uuid.UUID, owner: str) -> None:
    """Drops an upload and its octets. Raises NotFound."""
    row = uploads.upload(upload_id, owner)
    row.delete()
    parts.remove(upload_id)


def opened(wanted: Iterable[uuid.UUID | None], owner: str) -> list[tuple[Upload, Large] | None]:
    """The uploads of a submission, in the order of its documents (None: not an upload), with their octets. Raises
    PayloadRefused for one that is not there for this user, not whole, or used already; WrongState.
    """
    found: list[tuple[Upload, Large] | None] = []
    keys = list(wanted)
    rows = uploads.uploads(owner).in_bulk([key for key in keys if key is not None])
    for position, key in enumerate(keys):
        if key is None:
            found.append(None)
            continue
        row = rows.get(key)
        if row is None:
            raise PayloadRefused(position, "upload", "not_found", "You have no such upload.")
        if row.message_id is not None or key in keys[:position]:
            raise _used(position)
        if row.received < row.size:
            said = f"{row.received} of {row.size} octets are here: send the others first."
            raise PayloadRefused(position, "upload", "incomplete", said)
        try:
            found.append((row, parts.whole(key, row.size)))
        except PayloadMissing as error:
            if not uploads.uploads(owner).filter(pk=key, message_id=None).exists():
                raise _used(position) from error  # in this moment
            raise _missing() from error
    return found


def use(wanted: Iterable[tuple[uuid.UUID, Collection[uuid.UUID | None]]]) -> None:
    """Says in the caller's transaction that these messages have these uploads, each message's in the order of its
    documents; the files go after the commit. Raises PayloadRefused for one that another message has.
    """
    users = {
        key: (message_id, position)
        for message_id, keys in wanted
        for position, key in enumerate(keys)
        if key is not None
    }
    if not users:
        return
    rows = Upload.objects.select_for_update().filter(pk__in=users, message_id=None).order_by("pk").in_bulk()
    for key, (message_id, position) in users.items():
        if key not in rows:
            raise _used(position)
        rows[key].message_id = message_id
    Upload.objects.bulk_update(rows.values(), ["message_id"])
    for key in users:
        transaction.on_commit(lambda key=key: parts.remove(key), robust=True)  # type: ignore[misc]


def sweep() -> int:
    """Deletes uploads that nobody went on with, and files that no upload has; returns how many uploads that were."""
    gone, _ = Upload.objects.filter(expires_at__lt=clock.now()).delete()
    parts.sweep(lambda keys: Upload.objects.filter(pk__in=keys, message_id=None).in_bulk())
    return gone


def _moved(upload_id: uuid.UUID, received: int) -> Upload:
    with transaction.atomic():
        row = Upload.objects.select_for_update().filter(pk=upload_id).first()
        if row is None:
            raise NotFound("The upload was deleted meanwhile.")
        row.received, row.expires_at = received, clock.now() + LIFE
        row.save(update_fields=["received", "expires_at"])
    return row


def _used(position: int) -> PayloadRefused:
    return PayloadRefused(position, "upload", "used", "A message has this upload already; each is used once.")


def _missing() -> WrongState:
    return WrongState(
        "The upload's file is not in the store folder of this web server: delete the upload and begin again. (With "
        "several web servers the folder is shared.)",
        state="incomplete",
        code="payload_missing",
    )
