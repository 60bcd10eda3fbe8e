"""The order of conversations (MessageOrder; ebXML Messaging 2.0, section 9): the numbers that we give, and those that
have come.

A conversation changes only under the lock of its pair.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from messaging.choices import Direction, IncidentState, MessageState
from messaging.journal import events, incidents
from messaging.models import Incident, Message, OrderedConversation, Pair, Transmission
from messaging.models.message import IN_FLIGHT
from messaging.pairs.services.resync import CAUSE
from messaging.profiles.repeatable.repeating import Later, pairs_if_free
from messaging.protocol.ebms.sending import place
from messaging.protocol.envelope import MessageOrder


def next_place(message: Message, begun: Iterable[Transmission]) -> MessageOrder:
    """The place of the next message of this conversation (`protocol.ebms.sending.place`). Call with the pair locked.
    `begun`: what the same claim sends, which is not saved yet. Raises Later.
    """
    known = OrderedConversation.objects.filter(pair=message.pair_id, conversation_id=message.conversation_id).first()
    number = known.number if known is not None and not known.restarts else None

    def under_way() -> bool:
        same = Message.objects.filter(pair=message.pair_id, conversation_id=message.conversation_id)
        sent = same.filter(direction=Direction.OUT, state__in=IN_FLIGHT, order_number__isnull=False)
        conversation = message.pair_id, message.conversation_id
        others = (one.message for one in begun if one.message is not None)
        return any((one.pair_id, one.conversation_id) == conversation for one in others) or sent.exists()

    found = place(number, under_way)
    if found is None:
        raise Later
    return found


def took(message: Message, now: datetime, *, anew: bool = False) -> None:
    """The message goes out under its number. `anew`: what follows begins anew all the same."""
    OrderedConversation.objects.update_or_create(
        pair_id=message.pair_id,
        conversation_id=message.conversation_id,
        defaults={"number": message.order_number, "restarts": anew, "changed_at": now},
    )


def interrupted(messages: Iterable[Message]) -> None:
    """These came to their end without delivery: whether their numbers were taken nobody knows, so what follows them in
    their conversations begins anew (Reset). Call with their pairs locked.
    """
    for message in messages:
        if message.order_number is not None:
            known = OrderedConversation.objects.filter(pair=message.pair_id, conversation_id=message.conversation_id)
            known.update(restarts=True)


def restored() -> None:
    """The database was replaced by an older one: the numbers that were given since are not known, so every conversation
    of ours begins anew; and of the partners' any number is the next. What waits here for its turn may have had it.
    """
    OrderedConversation.objects.update(restarts=True)
    held = Message.objects.filter(direction=Direction.IN, state=MessageState.HELD)
    held.update(cause=CAUSE)


# A sender repeats what is missing within minutes; after that a person should ask.
GAP = timedelta(minutes=10)
# After so long a silence a conversation of ours begins anew. One of a partner is known for much longer: what goes on
# with its old number after it is forgotten waits for a beginning.
OURS_KEPT, THEIRS_KEPT = timedelta(days=60), timedelta(days=400)
_AT_ONCE = 5000


def watch(now: datetime) -> int:
    """Opens and ends the incidents of pairs on which something waits for its turn for too long, and forgets
    conversations that have long been silent. Returns on how many pairs something waits.
    """
    late = OrderedConversation.objects.filter(gap_since__lt=now - GAP).order_by("gap_since")
    oldest = {found.pair_id: found for found in reversed(late[:_AT_ONCE])}
    told = Incident.objects.filter(cause=_CAUSE).exclude(state=IncidentState.RESOLVED)
    known = set(told.values_list("pair_id", flat=True))
    for pair_id in sorted(oldest.keys() - known | {key for key in known - oldest.keys() if key is not None}):
        _tell(pair_id, oldest.get(pair_id), now)
    _forget(now)
    return len(oldest)


def _forget(now: datetime) -> None:
    """Forgets conversations that are silent. Nothing waits for that, so each round looks at one part of a large table:
    which one, the clock's microseconds say.
    """
    newest = OrderedConversation.objects.order_by("-pk").values_list("pk", flat=True).first()
    if newest is None:
        return
    first = now.microsecond % (newest // _AT_ONCE + 1) * _AT_ONCE
    silent = Q(pair__direction=Direction.OUT, changed_at__lt=now - OURS_KEPT)
    silent |= Q(pair__direction=Direction.IN, changed_at__lt=now - THEIRS_KEPT)
    part = OrderedConversation.objects.filter(silent, gap_since=None, pk__range=(first, first + _AT_ONCE - 1))
    with transaction.atomic():
        pairs = pairs_if_free(part.values_list("pair_id", flat=True))
        # Under the locks: one that has just gone on stays.
        part.filter(pair__in=list(pairs)).delete()


_CAUSE = "order_gap"


def _tell(pair_id: uuid.UUID, waits: OrderedConversation | None, now: datetime) -> None:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        if waits is None:
            said = "What was missing has come."
            written = incidents.incidents_resolve_for_pair(
                pair=pair, now=now, by="system", resolution=said, causes=(_CAUSE,)
            )
        else:
            expected = 0 if waits.number is None else waits.number + 1
            detail = (
                f"Conversation {waits.conversation_id} waits for number {expected} since "
                f"{waits.gap_since:%Y-%m-%d %H:%M:%S} UTC."
            )
            _, written = incidents.incident_open(pair=pair, cause=_CAUSE, now=now, detail=detail)
        events.write(written)
