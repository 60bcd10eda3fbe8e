"""What a partner may ask about the memory of repeatable requests (spec 2, "Memory Window Sizes and Repeat Intervals").

A weak promise: a sender must not rely on it, because windows change and memory may be lost; the window check is what
protects it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from messaging.engine import memory as epoch
from messaging.models import MemoryEpoch
from messaging.profiles.repeatable.answers import instant
from messaging.protocol.memory import horizon
from partners import registry
from partners.choices import Profile
from partners.terms import Terms

Json = dict[str, Any]
BACK_OFF = 2  # the factor of the exponential back-off that spec 2 asks for


def of_agreement(terms: Terms, row: MemoryEpoch, now: datetime) -> Json:
    """What holds for requests under one agreement."""
    return {
        "agreement": terms.tpa_id,
        **_memory(terms, row, now),
        "exchange": terms.exchange_mode,
        "identity": terms.exchange_identity,
        "max_message_bytes": terms.max_message_bytes,
        "services": [
            {"service": service, "action": action} for service, action, way in terms.services if way != "send"
        ],
    }


def of_hub(row: MemoryEpoch, now: datetime) -> Json | None:
    """What holds for every agreement of this kind, whoever asks; None while none is in force."""
    agreements = [terms for terms in registry.current().active() if terms.profile == Profile.REPEATABLE]
    if not agreements:
        return None
    strictest = min(agreements, key=lambda terms: terms.memory_window)
    told = _memory(strictest, row, now)
    told["max_skew_seconds"] = min(terms.clock_skew for terms in agreements)
    told["suggested_retry"] = {
        "initial": max(terms.repeat_interval for terms in agreements),
        "factor": BACK_OFF,
        "max": max(terms.repeat_interval_max for terms in agreements),
    }
    return told


def _memory(terms: Terms, row: MemoryEpoch, now: datetime) -> Json:
    return {
        "window_seconds": terms.memory_window,
        "memory_start": instant(row.memory_start),
        "earliest_accepted_first_sent": instant(horizon(epoch.memory(row, terms), now)),
        "now": instant(now),
        "max_skew_seconds": terms.clock_skew,
        "suggested_retry": {
            "initial": terms.repeat_interval,
            "factor": BACK_OFF,
            "max": terms.repeat_interval_max,
        },
    }
