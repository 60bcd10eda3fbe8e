"""Why something went wrong: the closed list of cause codes, and what a person should know and do about each.

Codes are stored on pairs, messages, transmissions and incidents; they are stable, the sentences are not. A code that
is not in the list (written by an older or newer hub) still gets an entry, see `lookup`. docs/causes.md is this list.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext

from messaging.causes.cause import ANSWERED, REACHED, Cause, Evidence, Row
from messaging.causes.delivery import DELIVERY, REPEATABLE
from messaging.causes.files import FILES
from messaging.causes.hub import HUB, LIVE, PERSON
from messaging.causes.levels import LEVELS
from messaging.causes.mail import MAIL
from messaging.causes.messages import IN_DOUBT, MESSAGING
from messaging.causes.network import HTTP, NETWORK
from messaging.causes.refusals import REFUSALS, refusal_label, tells_more
from messaging.causes.reports import AUDIT, RECONCILIATION
from messaging.causes.streams import RECEIVED, SENT
from messaging.causes.transactions import ABORTED, INCIDENTS, MESSAGES
from rmhub.language import gettext_lazy as _

__all__ = ["CAUSES", "REFUSALS", "Cause", "Evidence", "lookup", "refusal_label", "tells_more"]


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
    **_group(_("Network"), *NETWORK, disproved_by=REACHED),
    **_group(_("HTTP"), *HTTP, disproved_by=_TOLD),
    **_group(_("Messaging"), *MESSAGING),
    **_group(_("This hub"), *HUB),
    **_group(_("Person"), *PERSON, disproved_by=_STAYS),
    **_group(_("In doubt"), *IN_DOUBT),
    **_group(_("Live watch"), *LIVE),
    **_group(_("Service levels"), *LEVELS, disproved_by=_STAYS),
    **_group(_("Delivery to applications"), *DELIVERY, disproved_by=_STAYS),
    **_group(_("Repeatable requests"), *REPEATABLE, disproved_by=_STAYS),
    **_group(_("Transactional streams"), *SENT, *RECEIVED),
    **_group(_("Atomic transactions"), *ABORTED, *INCIDENTS, *MESSAGES, disproved_by=_STAYS),
    **_group(_("Mail"), *MAIL, disproved_by=_TOLD),
    **_group(_("Files and mailboxes"), *FILES, disproved_by=_TOLD),
    **_group(_("Reconciliation and audit"), *RECONCILIATION, *AUDIT, disproved_by=_STAYS),
}


def lookup(code: str) -> Cause:
    """The entry for a code. An unknown one gets its own name as label and the advice that always holds."""
    known = CAUSES.get(code)
    if known is not None:
        return known
    said = code.replace("_", " ").strip()
    label = said.upper() if code.startswith("http_") else said.capitalize() or gettext("No cause recorded")
    return Cause(
        code, label, f"{label}.", gettext("Read the attempts and their answers, then decide."), retryable=False
    )
