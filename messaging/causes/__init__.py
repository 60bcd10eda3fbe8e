"""Why something went wrong: the closed list of cause codes, and what a person should know and do about each.

Codes are stored on pairs, messages, transmissions and incidents; they are stable, the sentences are not. A code that
is not in the list (written by an older or newer hub) still gets an entry, see `lookup`. docs/causes.md is this list.
"""

from __future__ import annotations

from collections.abc import Mapping

from messaging.causes.cause import ANSWERED, REACHED, Cause, Evidence, Row
from messaging.causes.delivery import DELIVERY, REPEATABLE
from messaging.causes.files import FILES
from messaging.causes.hub import HUB, LIVE, PERSON
from messaging.causes.levels import LEVELS
from messaging.causes.mail import MAIL
from messaging.causes.messages import IN_DOUBT, MESSAGING
from messaging.causes.network import HTTP, NETWORK
from messaging.causes.refusals import REFUSALS, refusal_label
from messaging.causes.reports import AUDIT, RECONCILIATION
from messaging.causes.streams import RECEIVED, SENT
from messaging.causes.transactions import ABORTED, INCIDENTS, MESSAGES

__all__ = ["CAUSES", "REFUSALS", "Cause", "Evidence", "lookup", "refusal_label"]


# What the server says to a message shows with the next message only; what we show it, when we have entered it anew.
_TOLD = frozenset({Evidence.ATTEMPT, Evidence.SUCCESS, Evidence.CHANGE})


# About one message or one finding, or about something that traffic has no part in: no success of others ends it.
_STAYS: frozenset[Evidence] = frozenset()
_STAYING = frozenset(
    {"silent", "certificate_expiring", "certificate_ended", "archive_differs", "archive_damaged", "webhook_disabled"}
    | {"certificate_offered", "audit_chain_broken", "live_ack_slow", "live_failure_rate"}
)


def _group(name: str, *rows: Row, disproved_by: frozenset[Evidence] = ANSWERED) -> dict[str, Cause]:
    return {
        row[0]: Cause(*row, group=name, disproved_by=_STAYS if row[0] in _STAYING else disproved_by) for row in rows
    }


CAUSES: Mapping[str, Cause] = {
    **_group("Network", *NETWORK, disproved_by=REACHED),
    **_group("HTTP", *HTTP, disproved_by=_TOLD),
    **_group("Messaging", *MESSAGING),
    **_group("This hub", *HUB),
    **_group("Person", *PERSON, disproved_by=_STAYS),
    **_group("In doubt", *IN_DOUBT),
    **_group("Live watch", *LIVE),
    **_group("Service levels", *LEVELS, disproved_by=_STAYS),
    **_group("Delivery to applications", *DELIVERY, disproved_by=_STAYS),
    **_group("Repeatable requests", *REPEATABLE, disproved_by=_STAYS),
    **_group("Transactional streams", *SENT, *RECEIVED),
    **_group("Atomic transactions", *ABORTED, *INCIDENTS, *MESSAGES, disproved_by=_STAYS),
    **_group("Mail", *MAIL, disproved_by=_TOLD),
    **_group("Files and mailboxes", *FILES, disproved_by=_TOLD),
    **_group("Reconciliation and audit", *RECONCILIATION, *AUDIT, disproved_by=_STAYS),
}


def lookup(code: str) -> Cause:
    """The entry for a code. An unknown one gets its own name as label and the advice that always holds."""
    known = CAUSES.get(code)
    if known is not None:
        return known
    label = code.replace("_", " ").strip().capitalize() or "No cause recorded"
    return Cause(code, label, f"{label}.", "Read the attempts and their answers, then decide.", retryable=False)
