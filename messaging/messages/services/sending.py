"""A document that a person sends by hand: a new one, or a corrected one instead of one that went out before."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import transaction

from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.messages.services.resubmitting import to_resubmit
from messaging.messages.services.submitting import Submission, message_submit


def document_send(
    *, actor: Actor, reason: str, replaces: uuid.UUID | None = None, idempotency_key: str = "", **values: Any
) -> Submission:
    """Submit a document (`values` as in `message_submit`) in a person's name; both messages know each other then.

    `replaces`: the outbound message that is done, whose document this one corrects. The same `idempotency_key` of the
    same actor makes one message only. Raises InvalidSubmission, NotFound, WrongState, and what `message_submit` raises.
    """
    audit.require_reason(reason)
    with transaction.atomic():
        original = to_resubmit(replaces) if replaces is not None else None
        submission = message_submit(
            **values, resubmission_of=original, submitted_by=actor.name, idempotency_key=idempotency_key
        )
        if submission.replayed:
            return submission
        made = submission.message
        after: dict[str, object] = {"message_id": made.message_id, "document_id": made.identifies, "size": made.size}
        if original is None:
            audit.record(actor, "message.send", made, reason=reason, after=after)
        else:
            before: dict[str, object] = {"state": original.state}
            after |= {"resubmitted_as": made.public_id, "corrected": True}
            audit.record(actor, "message.resubmit", original, reason=reason, before=before, after=after)
    return submission
