"""Cause codes of what reports find, once a person made an incident of it; rows of `messaging.causes`.

Nothing that happens on a pair disproves such a finding, so that only people close these incidents.
Each row: code, label, what happened, what to do, whether time alone may fix it.
"""

from __future__ import annotations

from messaging.causes.cause import Row
from messaging.report_choices import AuditKind, Verdict

RECONCILIATION: tuple[Row, ...] = (
    (
        "reconciliation_lost",
        "Not in the partner's log",
        "Messages that we exchanged with the partner are missing from the log that they sent.",
        "Ask the partner to look for the MessageIds. What they never had can be submitted again, with a new MessageId.",
        False,
    ),
    (
        "reconciliation_unknown_here",
        "Unknown here",
        "The partner's log holds messages that this hub knows nothing of.",
        "Ask the partner where these went, or who acknowledged them: another address, another hub "
        "of ours, or a restore that lost them.",
        False,
    ),
    (
        "reconciliation_doubled",
        "More than once in a log",
        "One of the two logs has the same message more than once.",
        "If it is the partner's, ask whether they processed it twice. If it is ours, the exactly-once audit says more.",
        False,
    ),
    (
        "reconciliation_differs",
        "Digests differ",
        "Both logs have the message, with different digests: the two sides do not hold the same octets.",
        "Compare the stored octets with the partner's; find out which side, or who between them, changed the message.",
        False,
    ),
    (
        "reconciliation_in_doubt",
        "Undecided, and not in the partner's log",
        "Messages whose outcome is unknown here are not in the partner's log either.",
        "The partner most likely never had them: settle them so, once the partner confirms it.",
        False,
    ),
    (
        "reconciliation_in_doubt_arrived",
        "Undecided, and the partner has it",
        "Messages whose outcome is unknown here are in the partner's log.",
        "They arrived: settle them as delivered.",
        False,
    ),
)
AUDIT: tuple[Row, ...] = (
    (
        "audit_gap",
        "Gap in the sequence",
        "The audit found sequence numbers that were never accepted, between ones that were.",
        "Ask the partner for the messages with these numbers, and look whether an operator skipped some.",
        False,
    ),
    (
        "audit_repeat",
        "Number accepted twice",
        "The audit found a sequence number that was accepted more than once, although the sequence was not restarted.",
        "Compare the messages: two documents under one number, or one document twice. Ask the partner which is meant.",
        False,
    ),
    (
        "audit_duplicate_id",
        "MessageId accepted twice",
        "The audit found a MessageId under which more than one message was accepted.",
        "Find out whether the application has had the document twice, and take the second one back there.",
        False,
    ),
    (
        "audit_delivered_twice",
        "Delivered twice",
        "The audit found documents that one trigger completed more than once, although nobody resubmitted them.",
        "Find out what the application did with the second one, and take it back there.",
        False,
    ),
    (
        "audit_document_twice",
        "Document processed twice",
        "The audit found documents that one trigger processed under two MessageIds while its history should have known "
        "them.",
        "Find out whether a resolver said that it was new, and take the second one back in the application.",
        False,
    ),
    (
        "audit_delivery_without_acceptance",
        "Delivery without acceptance",
        "The audit found documents that were handed to an application, and no record that they were accepted.",
        "See whether records were lost, in a restore for example; the MessageIds say which documents.",
        False,
    ),
    (
        "audit_acceptance_without_delivery",
        "Acceptance without delivery",
        "The audit found accepted documents that a trigger should have had, and that were not handed to it.",
        "Resubmit them to the trigger, once it is clear that the application has not had them.",
        False,
    ),
    (
        "audit_ack_without_storage",
        "Acknowledged, and not stored",
        "The audit found messages that were acknowledged to the partner and are not in the store.",
        "The partner believes that we have them. Ask for them again, under new MessageIds.",
        False,
    ),
)
CAUSE_OF_VERDICT = {verdict: f"reconciliation_{verdict}" for verdict in Verdict.values if verdict != Verdict.AGREED}
CAUSE_OF_KIND = {kind: f"audit_{kind}" for kind in AuditKind.values}
FINDINGS = frozenset(row[0] for row in (*RECONCILIATION, *AUDIT))
