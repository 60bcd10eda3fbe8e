"""What people call things, and how the audit log names them."""

from __future__ import annotations

import re

from messaging.models.pair import Pair
from messaging.models.record import Incident
from rmhub.ids import public_id

_INCIDENT = re.compile(r"INC-([0-9]{1,9})", re.IGNORECASE | re.ASCII)
_PUBLIC_ID = re.compile(r"([a-z]{2,6})_[0-9a-f]{32}")
# Prefix of a public id -> how the audit log names the type.
_TYPES = {
    "pair": "pair",
    "inc": "incident",
    "msg": "message",
    "del": "delivery",
    "trg": "trigger",
    "par": "party",
    "agr": "agreement",
    "txn": "coordination",
    "job": "bulkjob",
    "tok": "apitoken",
    "whe": "webhookendpoint",
}


def object_named(text: str) -> tuple[str, str] | None:
    """(type, public id) as the audit log has them, of what people mean by an id, `INC-42` or a pair's code."""
    if known := _PUBLIC_ID.fullmatch(text):
        kind = _TYPES.get(known[1])
        return (kind, text) if kind else None
    if number := _INCIDENT.fullmatch(text):
        incident = Incident.objects.filter(number=int(number[1])).values_list("pk", flat=True).first()
        return ("incident", public_id("inc", incident)) if incident is not None else None
    pair = Pair.objects.filter(code=text.upper()).values_list("pk", flat=True).first()
    return ("pair", public_id("pair", pair)) if pair is not None else None
