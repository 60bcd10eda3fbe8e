"""A claimed transmission and the parcel that goes with it: what all kinds of claims hand to the engine."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from messaging.models import Event, Transmission
from messaging.transports import Parcel
from partners import registry
from partners.secrets import SecretUnreadable
from partners.terms import Terms

log = logging.getLogger(__name__)


class JobKind(StrEnum):
    PAIR = "pair"
    UNRELIABLE = "unreliable"
    SIGNAL = "signal"
    REPEATABLE = "repeatable"


@dataclass(frozen=True, slots=True)
class Job:
    """One transmission that is claimed: what to send, and what its outcome belongs to."""

    kind: JobKind
    transmission_id: uuid.UUID
    transport: str
    parcel: Parcel
    version_id: uuid.UUID
    pair_id: uuid.UUID | None = None
    message_id: uuid.UUID | None = None
    signal_id: uuid.UUID | None = None
    number: int = 0  # of the attempt; tells for signals and repeatable requests which claim an outcome belongs to


@dataclass(slots=True)
class Claim:
    """One claiming transaction as it fills up. `limit`: how many of each kind at most."""

    now: datetime
    limit: int
    jobs: list[Job] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)


def parcel(terms: Terms, address: str, content_type: str, body: bytes, now: datetime, **more: Any) -> Parcel:
    """Bytes with the partner's address and our credential for it; `more` are further fields of the Parcel."""
    try:
        authorization = registry.current().outbound_authorization(terms.partner_id, now)
    except SecretUnreadable:
        # Sent without it the partner refuses, which a person sees; not sent at all the whole batch would stand still.
        log.exception("credential unreadable", extra={"action": "credential_unreadable", "partner": terms.partner_name})
        authorization = ""
    return Parcel(
        address=address,
        content_type=content_type,
        body=body,
        authorization=authorization,
        connect_timeout=terms.connect_timeout,
        read_timeout=terms.read_timeout,
        **more,
    )
