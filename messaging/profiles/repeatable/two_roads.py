"""The same MessageId by two profiles: a partner may send by ebXML what it could not send as a request, and vice versa.

One delivery, and each road its own kind of acknowledgement (conformance X01). Every profile writes `MessageIdentity`,
requests while the partner has agreements of other kinds in force, so of two copies at once one waits for the other, and
finds it. One without a digest came otherwise than by ebXML: its payloads are compared.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from django.db import connection

from messaging.choices import Direction
from messaging.models import ArchivedMessage, Message, MessageIdentity, Payload
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.remembering import Key
from partners import registry
from partners.choices import Profile


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A message that came by the other road. `contents`: the SHA-256 of its payloads, in their order; None when nobody
    knows them any more (it has left the store and the archive), so that its id alone decides.
    """

    message_pk: uuid.UUID
    contents: tuple[str, ...] | None

    def has(self, *digests: str) -> bool:
        """Whether these may be its payloads."""
        return self.contents is None or self.contents == digests


def has_others(party_id: uuid.UUID, profile: Profile) -> bool:
    """Whether the partner may send by another profile than this one, too."""
    return any(terms.profile != profile for terms in registry.current().by_hop(party_id))


def stored_message(message_pk: uuid.UUID) -> Elsewhere:
    """A message that is stored, with what its payloads are known by."""
    key = Key(message_pk, "")
    return _with_contents({key: message_pk})[key]


def stored_by_ebxml(keys: Collection[Key]) -> dict[Key, Elsewhere]:
    """Those of the ids, none of which is remembered as a request, that messages came under."""
    if not keys:
        return {}
    rows = MessageIdentity.objects.filter(
        scope_id__in={key.sender_id for key in keys},
        direction=Direction.IN,
        message_id__in={key.request_id for key in keys},
    ).values_list("scope_id", "message_id", "stored_id")
    return _with_contents({Key(scope, message_id): stored for scope, message_id, stored in rows})


def stored_as_requests(keys: Collection[Key]) -> dict[Key, Elsewhere]:
    """Those of the MessageIds that requests came under.

    Their identities are held until the end of the transaction: a request that is released meanwhile (it was never
    received, then) waits, and is not released once its message is acknowledged here.
    """
    if not keys:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(HELD, [[key.sender_id for key in keys], [key.request_id for key in keys]])
        found = {Key(scope, message_id): stored for scope, message_id, stored in cursor.fetchall()}
    for key, one in remembering.recall(set(keys) - set(found), date.min).items():
        if one.message_pk is not None:
            found[key] = one.message_pk
    return _with_contents(found)


HELD = """
SELECT i.scope_id, i.message_id, i.stored_id
FROM unnest(%s::uuid[], %s::text[]) AS w(scope_id, message_id)
JOIN messaging_messageidentity i ON i.scope_id = w.scope_id AND i.direction = 'in' AND i.message_id = w.message_id
WHERE i.digest = ''
FOR KEY SHARE OF i
"""


def _with_contents(found: dict[Key, uuid.UUID]) -> dict[Key, Elsewhere]:
    contents: dict[uuid.UUID, list[str]] = {}
    if found:
        payloads = Payload.objects.filter(message_id__in=found.values()).order_by("message_id", "number")
        for message_pk, sha256 in payloads.values_list("message_id", "sha256"):
            contents.setdefault(message_pk, []).append(sha256)
    if gone := set(found.values()) - set(contents):
        contents |= dict(ArchivedMessage.objects.filter(pk__in=gone).values_list("pk", "contents"))
        contents |= {pk: [] for pk in Message.objects.filter(pk__in=gone).values_list("pk", flat=True)}
    return {key: Elsewhere(pk, tuple(contents[pk]) if pk in contents else None) for key, pk in found.items()}
