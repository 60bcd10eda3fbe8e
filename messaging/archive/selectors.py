"""The archive as screens and API read it: where messages lie that have left the store, holds, the policy, the files."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.utils.translation import gettext as _

from messaging import keyset
from messaging.archive.services.retention import policy
from messaging.engine.attributes import NAME
from messaging.exceptions import NotFound
from messaging.messages.selectors.messages import MOST_ALIKE, AmbiguousId, bounded, planned_for_values
from messaging.models import ArchivedMessage, ArchiveFile, AuditEntry, LegalHold
from messaging.models.base import existing
from messaging.overview.selectors import records
from messaging.report_choices import ArchiveState
from partners import visibility
from rmhub.ids import BadPublicId, public_id, read_public_id

_MOST = 10


def archived(
    *,
    q: str = "",
    conversation: str = "",
    document: str = "",
    pair_id: uuid.UUID | None = None,
    partner_id: uuid.UUID | None = None,
    states: tuple[str, ...] = (),
    direction: str = "",
    created_gte: datetime | None = None,
    created_lt: datetime | None = None,
    attributes: Iterable[tuple[str, str]] = (),
) -> QuerySet[ArchivedMessage]:
    """Archived messages with pair and file. Not ordered.

    `document` is the exact document id that their sender gave; `q` any exact id: `msg_...`, MessageId, document id or
    ConversationId; or the value of an attribute, alone or as `name:value`. `attributes`: names with values.
    """
    found = visibility.limit(ArchivedMessage.objects.select_related("pair__partner", "file"), "pair__partner")
    if q:
        found = found.filter(_exact(q))
    if partner_id is not None:
        found = found.filter(pair__partner=partner_id)
    if conversation:
        found = found.filter(conversation_id=conversation)
    if document:
        found = found.filter(_of_document(document))
    if pair_id is not None:
        found = found.filter(pair=pair_id)
    if states:
        found = found.filter(state__in=states)
    if direction:
        found = found.filter(direction=direction)
    if created_gte is not None:
        found = found.filter(created_at__gte=created_gte)
    if created_lt is not None:
        found = found.filter(created_at__lt=created_lt)
    for name, value in attributes:
        found = found.filter(attributes__contains={name: value})
    return found


def archived_page(
    found: QuerySet[ArchivedMessage], *, limit: int, place: keyset.Place | None = None
) -> keyset.Page[ArchivedMessage]:
    """A page of `archived`, newest first. Raises messages.TooBroad when the search takes too long."""
    with bounded():
        return keyset.page(found, order=("-id",), limit=limit, place=place)


def archived_message(key: uuid.UUID) -> ArchivedMessage:
    """Raises NotFound."""
    found = archived().filter(pk=key).first()
    if found is None:
        raise NotFound(_("There is no {id} in the archive.").format(id=public_id("msg", key)))
    return found


def entry_of(key: uuid.UUID | None) -> ArchivedMessage | None:
    """Where the message lies that something names; None when it is not in the archive."""
    return archived().filter(pk=key).first() if key else None


def archived_by_reference(reference: str) -> ArchivedMessage:
    """One by its id (`msg_...`) or its MessageId. Raises NotFound, AmbiguousId."""
    try:
        return archived_message(read_public_id("msg", reference))
    except BadPublicId:
        pass
    found = list(archived().filter(message_id=reference).order_by("-id")[:2]) if "\x00" not in reference else []
    if not found:
        raise NotFound(_("There is no message {id} in the archive.").format(id=reference))
    if len(found) > 1:
        raise AmbiguousId(
            _("More than one archived message has the MessageId {id}: look for it with q.").format(id=reference)
        )
    return found[0]


def left(text: str, *, attributes: Collection[tuple[str, str]] = (), limit: int = _MOST) -> list[ArchivedMessage]:
    """Messages that have left the store, by this `msg_...`, MessageId, document id or (with none of these)
    ConversationId or value of an attribute; and by these attributes, which may stand alone.
    """
    if "\x00" in text or not (text or attributes):
        return []
    with planned_for_values():
        gone = archived(states=(ArchiveState.ARCHIVED,), attributes=attributes)
        if not text:
            return list(gone.order_by("-id")[:limit])
        try:
            return list(gone.filter(pk=read_public_id("msg", text)))
        except BadPublicId:
            pass
        rows = list(gone.filter(Q(message_id=text) | _of_document(text)).order_by("-id")[:limit])
        rows = rows or list(gone.filter(conversation_id=text).order_by("-id")[:limit])
        return rows or list(gone.filter(pk__in=_valued(text)).order_by("-id")[:limit])


def conversation_size(conversation_id: str) -> int:
    """How many messages of the conversation have left the store."""
    return archived(conversation=conversation_id, states=(ArchiveState.ARCHIVED,)).count()


def archive() -> dict[str, Any]:
    """All of it, from the books of its files: `bytes` on disk, `payload_bytes` as they came."""
    return ArchiveFile.objects.aggregate(
        files=Count("id"),
        messages=Sum("messages", default=0),
        bytes=Sum("bytes", default=0),
        payload_bytes=Sum("payload_bytes", default=0),
        first_day=Min("day"),
        last_day=Max("day"),
    )


def audit(object_id: str, object_type: str = "") -> list[AuditEntry]:
    """What people did to an archived message (in the store and in the archive), a hold or the policy, newest first."""
    return list(records.audit_entries(object_id=object_id, object_type=object_type).order_by("-id")[:15])


def leaves_on(row: ArchivedMessage) -> datetime | None:
    """When the policy lets a message go that is in the store; None when it has left."""
    if row.state == ArchiveState.ARCHIVED:
        return None
    since = row.restored_at if row.state == ArchiveState.RESTORED else row.completed_at
    return since + timedelta(days=policy().purge_after) if since else None


def holds(*, in_force: bool | None = None) -> QuerySet[LegalHold]:
    """Legal holds with what they name. Not ordered; pages by ("-id",)."""
    found = visibility.either(LegalHold.objects.select_related("party", "pair"), "party", "pair__partner")
    return found if in_force is None else found.filter(released_at__isnull=in_force)


def hold(key: uuid.UUID) -> LegalHold:
    """Raises NotFound."""
    return existing(holds(), key)


def criteria(one: LegalHold) -> list[tuple[str, str]]:
    """What a hold covers, in words."""
    rows = [
        (_("Partner"), str(one.party) if one.party else ""),
        (_("Pair"), one.pair.code if one.pair else ""),
        ("ConversationId", one.conversation_id),
        ("MessageId", one.message_id),
        (_("Entered from"), f"{one.range_from:%Y-%m-%d %H:%M} UTC" if one.range_from else ""),
        (_("Entered before"), f"{one.range_to:%Y-%m-%d %H:%M} UTC" if one.range_to else ""),
    ]
    return [(name, value) for name, value in rows if value]


def holds_in_force() -> int:
    return holds(in_force=True).count()


def _of_document(document_id: str) -> Q:
    """The condition of its index is said in full, so that every plan can use it."""
    said = Q(document_id=document_id) & ~Q(document_id="")
    return said | Q(message_id=document_id, document_id="")


def _valued(text: str) -> list[uuid.UUID]:
    """Messages with an attribute of this value, or with this `name:value`: by their index, `MOST_ALIKE` at most."""
    found = Q(attributes__any_value=text)
    name, colon, value = text.partition(":")
    if colon and NAME.fullmatch(name):
        found |= Q(attributes__contains={name: value.strip('"')})
    return list(ArchivedMessage.objects.filter(found).values_list("pk", flat=True)[:MOST_ALIKE])


def _exact(text: str) -> Q:
    found = Q(message_id=text) | Q(conversation_id=text) | _of_document(text) | Q(pk__in=_valued(text))
    try:
        return found | Q(pk=read_public_id("msg", text))
    except BadPublicId:
        return found
