"""Final receipts that we owe: that the application took a document, or that it never will (protocols 3.1, 3.3).

What is refused on arrival is told by the transaction that refuses it. What was accepted is told when the last of its
deliveries has ended, where the agreement asks for final receipts: `owe` is called by whoever ends deliveries, in the
transaction that ends them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import connection

from messaging import dispatch
from messaging.choices import DeliveryState, Direction, SignalKind, SignalState
from messaging.models import Message, Signal
from messaging.models.bulk import bulk_insert
from messaging.profiles.ebxml.error_messages import host
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamReceipt
from messaging.protocol.streams import final
from messaging.protocol.streams.final import FinalClass, Reason
from partners import registry
from partners.terms import Terms
from rmhub.ids import uuid7

# How a delivery's end is told; what is not here has not ended.
_ENDED: Mapping[str, Reason] = {
    DeliveryState.COMPLETED: Reason.PROCESSED,
    DeliveryState.DUPLICATE: Reason.PROCESSED,
    DeliveryState.SETTLED: Reason.PROCESSED,
    DeliveryState.FAILED: Reason.REJECTED,
    DeliveryState.DISCARDED: Reason.RECEIVE_TIMEOUT,
}
# Of several deliveries of one document the first of these is what its sender is told.
_WORST = (Reason.REJECTED, Reason.RECEIVE_TIMEOUT, Reason.PROCESSED)


def owe(messages: Collection[uuid.UUID], now: datetime) -> None:
    """Deliveries of these messages have ended: stores the final receipts that are owed now, once for each message.

    Call last in the transaction that ends them, when their rows are written. Messages that came by another road, or
    whose agreement does not ask for final receipts, are passed over.
    """
    if not messages:
        return
    # Locked, or of two transactions that end the last two deliveries neither would see the other's.
    rows = Message.objects.raw(LOCK, [list(messages)])
    asked = {row.pk: row for row in rows if registry.current().version(row.agreement_version_id).final_receipt}
    if not asked:
        return
    found: dict[uuid.UUID, set[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(STATES, [list(asked)])
        for message_pk, state in cursor.fetchall():
            found.setdefault(message_pk, set()).add(state)
    told = set(Signal.objects.filter(about__in=asked, **_OURS).values_list("about_id", flat=True))
    signals = []
    for message_pk, row in asked.items():
        states = found.get(message_pk, set())
        if message_pk in told or not states <= _ENDED.keys():
            continue
        reasons = {_ENDED[state] for state in states} or {Reason.PROCESSED}
        reason = next(one for one in _WORST if one in reasons)
        terms = registry.current().version(row.agreement_version_id)
        answer = final.owed(reason, positive=True, negative=True)
        assert answer is not None, "asked for by the agreement"
        signals.append(receipt(answer, terms, now, about=row.message_id, pair_id=row.pair_id, message_pk=message_pk))
    bulk_insert(signals)
    if signals:
        dispatch.wake_on_commit(dispatch.SEND)


_OURS: dict[str, Any] = {"direction": Direction.OUT, "kind": SignalKind.FINAL}

LOCK = """
SELECT id, message_id, pair_id, agreement_version_id FROM messaging_message
WHERE id = ANY(%s) AND direction = 'in' AND tx_sequence_id IS NOT NULL ORDER BY id FOR NO KEY UPDATE
"""
STATES = "SELECT DISTINCT message_id, state FROM messaging_delivery WHERE message_id = ANY(%s)"


def dropped(message_pk: uuid.UUID, now: datetime) -> None:
    """A person has given up what a router was to pass on: a final receipt that waited for the next hop says so."""
    found = Signal.objects.filter(about=message_pk, state=SignalState.HELD, **_OURS)
    for held in found.order_by("pk").select_for_update():
        assert held.agreement_version_id is not None
        answer = final.owed(Reason.DELETED, positive=True, negative=True)
        assert answer is not None
        terms = registry.current().version(held.agreement_version_id)
        about = held.ref_to_message_id
        made = receipt(answer, terms, now, about=about, pair_id=held.pair_id, message_pk=message_pk)
        held.delete()
        made.save(force_insert=True)
        dispatch.wake_on_commit(dispatch.SEND)


def receipt(
    answer: FinalClass,
    terms: Terms,
    now: datetime,
    *,
    about: str,
    pair_id: uuid.UUID | None,
    message_pk: uuid.UUID | None,
    place: StreamReceipt | None = None,
    label: str = "",
) -> Signal:
    """A final receipt, due now, to the address that the agreement has for the partner's receipts; not written yet.

    `about`: the message's id; `message_pk`: its row, when it was stored. `place`: where in a stream it is; `label`: its
    label, when it is in none.
    """
    signal_id = uuid7()
    envelope = stream.final_receipt(
        about,
        answer.code,
        message_id=f"final-{signal_id.hex}@{host(terms)}",
        to=terms.partner_error_uri,
        source=str(terms.own_party_id),
        now=now,
        stream=place,
        label=label,
    )
    wire = stream.encode(envelope)
    return Signal(
        id=signal_id,
        direction=Direction.OUT,
        kind=SignalKind.FINAL,
        state=SignalState.PENDING,
        pair_id=pair_id,
        about_id=message_pk,
        agreement_version_id=terms.version_id,
        message_id=envelope.message_id,
        ref_to_message_id=about[:512],
        content_type=wire.content_type,
        body=wire.join(()),
        error_code="" if answer.positive else answer.name,
        error_description="" if answer.positive else answer.meaning,
        owed=1,
        due_at=now,
        created_at=now,
    )
