"""What partners said about messages of ours when they were asked."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import StatusInquiry
from partners.visibility import limit
from rmhub.ids import public_id


def of_message(message_id: uuid.UUID) -> QuerySet[StatusInquiry]:
    """Questions about a message with their answers, without the octets of these. Not ordered; pages by ("-id",)."""
    found = limit(StatusInquiry.objects.filter(message=message_id), "message__pair__partner")
    return found.defer("response")


def inquiry(key: uuid.UUID) -> StatusInquiry:
    """One question with its message and the answer's octets. Raises NotFound."""
    found = limit(StatusInquiry.objects.filter(pk=key), "message__pair__partner")
    one = found.select_related("message__pair__partner").defer("message__wire_frame").first()
    if one is None:
        raise NotFound(f"There is no inquiry {public_id('inq', key)}.")
    return one
