"""Reports of mail servers about mails of ours (RFC 3464): a bounce is a transport error (wire-ebxml 1.10).

Which transmission it is about is told by the envelope id or the Message-ID, which both carry the transmission's own id:
nobody can guess it, so that a forged report moves nothing. The mail system has done its own recovery by then, and the
message goes the way of one that nobody answered: to its next retry (spec 1, 2.5.4).
"""

from __future__ import annotations

import logging
import re
import uuid
from datetime import datetime

from django.db import transaction

from messaging.choices import Outcome, SignalState
from messaging.engine.snapshots import OUTBOUND_FIELDS, apply_outbound, outbound_state, sender_policy
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair, Signal, Transmission
from messaging.models.bulk import bulk_set
from messaging.protocol.codecs.mail import Action, Report
from messaging.protocol.envelope import Semantics
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import step
from partners import registry

log = logging.getLogger(__name__)

CAUSE = "mail_bounced"
_OUR_ID = re.compile(r"\batt_([0-9a-f]{32})\b")
_SAMPLE = 8 * 1024


class TooEarly(Exception):
    """The transmission that the report is about is not recorded yet: take the report again later."""


def take(report: Report, octets: bytes, now: datetime) -> bool:
    """Records a report at the transmission that it is about. Returns False when it is about none of ours.

    Raises TooEarly. A report that comes twice changes nothing the second time.
    """
    transmission_id = _subject(report)
    if transmission_id is None:
        return False
    with transaction.atomic(durable=True):
        found = Transmission.objects.filter(pk=transmission_id).select_related("message", "signal").first()
        if found is None or not found.address.lower().startswith("mailto:"):
            return False
        # The pair first, then rows of messages and signals, then transmissions: as outcomes are recorded.
        pairs = Pair.locked([found.pair_id] if found.pair_id else [])
        written: list[Event] = []
        if found.signal is not None:
            _signal(found, found.signal, report, octets)
        elif found.message is not None:
            pair = pairs[found.pair_id] if found.pair_id else None
            _message(found, found.message, pair, report, octets, now, written)
        events.write(written)
    log.warning(
        "report of a mail server",
        extra={"action": f"mail_{report.action}", "transmission": found.public_id, "status": report.status},
    )
    return True


def _subject(report: Report) -> uuid.UUID | None:
    return next((uuid.UUID(match[1]) for name in report.names if (match := _OUR_ID.search(name))), None)


def _mark(transmission_id: uuid.UUID, report: Report, octets: bytes) -> bool:
    """Makes the transmission a failed one; whether it was none before. Raises TooEarly."""
    attempt = Transmission.objects.select_for_update(of=("self",)).get(pk=transmission_id)
    if attempt.outcome == Outcome.ON_THE_WIRE:
        raise TooEarly
    if attempt.cause == CAUSE:
        return False
    attempt.outcome = Outcome.FAILED
    attempt.cause, attempt.detail = CAUSE, _sentence(report)
    attempt.response = octets[:_SAMPLE]
    attempt.save(update_fields=["outcome", "cause", "detail", "response"])
    return True


def _sentence(report: Report) -> str:
    told = f" for {report.recipient}" if report.recipient else ""
    return f"The mail came back{told}: {report.diagnostic}"[:1000]


def _signal(found: Transmission, signal: Signal, report: Report, octets: bytes) -> None:
    """Nothing is lost with an acknowledgement: a sender that misses it repeats the message, and is told again."""
    if report.action is not Action.FAILED:
        return
    signal = Signal.objects.select_for_update(of=("self",)).get(pk=signal.pk)
    if _mark(found.pk, report, octets) and signal.state == SignalState.SENT:
        signal.state = SignalState.FAILED
        signal.note = _sentence(report)[:255]
        signal.save(update_fields=["state", "note"])


def _message(
    found: Transmission,
    message: Message,
    pair: Pair | None,
    report: Report,
    octets: bytes,
    now: datetime,
    written: list[Event],
) -> None:
    if report.action is Action.DELIVERED:
        return
    data: dict[str, object] = {"detail": report.diagnostic, "status": report.status, "attempt": found.number}
    if report.action is Action.DELAYED:
        written.append(events.event("message.delayed", now, pair=pair, message=message, data=data))
        return
    message = Message.objects.select_for_update(of=("self",)).get(pk=message.pk)
    if not _mark(found.pk, report, octets):
        return
    written.append(events.event("message.bounced", now, pair=pair, message=message, data={**data, "cause": CAUSE}))
    if message.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        # It was sent once, and that is all; but it is known now that it did not arrive.
        message.cause, message.cause_detail = CAUSE, _sentence(report)
        message.save(update_fields=["cause", "cause_detail"])
        return
    if pair is None or pair.in_flight_id != message.pk or pair.transmission_id != found.pk:
        return
    if pair.flow != Flow.AWAITING_ACK:
        return
    policy = sender_policy(registry.current().version(message.agreement_version_id), probing=pair.probing)
    result = step(outbound_state(pair), PairEvent(Kind.TRANSPORT_FAILED, cause=CAUSE), now, policy)
    apply_outbound(pair, result.state, now)
    pair.cause_detail = message.cause_detail = _sentence(report)
    message.cause = CAUSE
    message.save(update_fields=["cause", "cause_detail"])
    if report.permanent:
        _, opened = incidents.incident_open(
            pair=pair, cause=CAUSE, now=now, detail=pair.cause_detail, message_pk=message.pk
        )
        written += opened
    bulk_set([pair], OUTBOUND_FIELDS)
