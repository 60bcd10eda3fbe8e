"""Signals of ours, encoded once and due at once; and Error messages among them (wire-ebxml 1.9; ebXML 2.0, 4.2)."""

from __future__ import annotations

import uuid
from datetime import datetime

from messaging.choices import Direction, SignalKind, SignalState
from messaging.engine.snapshots import writer_options
from messaging.models import Message, Signal
from messaging.protocol.codecs import ebms2, ebxml
from messaging.protocol.envelope import Envelope, ErrorInfo, Wire
from messaging.protocol.errors import Defect
from partners.addresses import host_of
from partners.terms import Terms
from rmhub.ids import uuid7


def error_signal(
    envelope: Envelope, error: ErrorInfo | Defect, terms: Terms, now: datetime, pair_id: uuid.UUID | None
) -> Signal:
    """An Error message about `envelope`, in its version, due now; in 0-080 with the addresses for errors."""
    signal_id = uuid7()
    message_id = f"err-{signal_id.hex}@{host(terms)}"
    if envelope.ebms is not None:
        answer = ebms2.error_message(envelope, (error,), message_id=message_id, timestamp=now)
        wire = ebms2.encode(answer)
    else:
        answer = ebxml.error_message(
            envelope,
            error,
            message_id=message_id,
            timestamp=now,
            error_uri=terms.own_error_uri,
            target_uri=terms.partner_error_uri,
        )
        wire = ebxml.encode(answer, writer_options(terms))
    return outgoing(SignalKind.ERROR, answer, wire, terms, now, signal_id=signal_id, pair_id=pair_id)


def outgoing(
    kind: SignalKind,
    answer: Envelope,
    wire: Wire,
    terms: Terms,
    now: datetime,
    *,
    signal_id: uuid.UUID,
    pair_id: uuid.UUID | None,
    about: Message | None = None,
) -> Signal:
    """A signal of ours, encoded and due now. `about`: the message that it acknowledges."""
    said = answer.error
    return Signal(
        id=signal_id,
        direction=Direction.OUT,
        kind=kind,
        state=SignalState.PENDING,
        pair_id=pair_id,
        about=about,
        agreement_version_id=terms.version_id,
        message_id=answer.message_id,
        ref_to_message_id=answer.ref_to_message_id,
        content_type=wire.content_type,
        body=wire.join(()),
        error_code=str(said.code) if said else "",
        error_severity=str(said.severity) if said else "",
        error_description=said.description if said else "",
        min_retry_secs=said.min_retry_secs if said else None,
        owed=1,
        due_at=now,
        created_at=now,
    )


def host(terms: Terms) -> str:
    """The host part of ids that we make under these terms."""
    return host_of(terms.own_uri) or "rmhub"
