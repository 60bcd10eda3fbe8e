"""Cause codes of service levels (docs/service-levels.md): rows of `messaging.causes`, one pair for each target."""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

_AT_RISK = (
    _("So many documents miss the target that the month's error budget is used up long before the month ends."),
    _(
        "See on the partner's page which target it is, and at the pair what holds documents up: an outage, a "
        "suspension, a full queue. It closes by itself when half an hour went well."
    ),
)
_MISSED = (
    _("More documents of this month missed the target than it allows."),
    _(
        "Tell whoever relies on it, and the partner; the report “SLA attainment” has the numbers. It closes by itself "
        "when the month ends, or when so many more documents were in time that the target is met again."
    ),
)

LEVELS: tuple[Row, ...] = (
    ("sla_acknowledged_at_risk", _("Acknowledgement target at risk"), *_AT_RISK, True),
    ("sla_acknowledged_missed", _("Acknowledgement target missed"), *_MISSED, False),
    ("sla_processed_at_risk", _("Processing target at risk"), *_AT_RISK, True),
    ("sla_processed_missed", _("Processing target missed"), *_MISSED, False),
)
OF_LEVELS = frozenset(row[0] for row in LEVELS)
