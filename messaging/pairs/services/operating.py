"""What people do to pairs and messages. Every action has an actor and a reason and leaves an audit entry."""

from __future__ import annotations

from messaging.messages.services.cancelling import message_cancel, waits
from messaging.pairs.services.changing import allowed_verbs
from messaging.pairs.services.verbs import (
    MODES,
    VERBS,
    pair_clear_resync,
    pair_expect_sequence,
    pair_pause,
    pair_release,
    pair_restart_sequence,
    pair_resume,
    pair_retry_now,
    pair_skip_head,
)

__all__ = [
    "MODES",
    "VERBS",
    "allowed_verbs",
    "message_cancel",
    "pair_clear_resync",
    "pair_expect_sequence",
    "pair_pause",
    "pair_release",
    "pair_restart_sequence",
    "pair_resume",
    "pair_retry_now",
    "pair_skip_head",
    "waits",
]
