"""Cause codes of what reports find, once a person made an incident of it; rows of `messaging.causes`.

Nothing that happens on a pair disproves such a finding, so that only people close these incidents.
Each row: code, label, what happened, what to do, whether time alone may fix it.
"""

from __future__ import annotations

from messaging.causes.cause import Row
from messaging.report_choices import AuditKind, Verdict
from rmhub.language import gettext_lazy as _

RECONCILIATION: tuple[Row, ...] = (
    (
        "reconciliation_lost",
        _("Not in the partner's log"),
        _("Messages that we exchanged with the partner are missing from the log that they sent."),
        _(
            "Ask the partner to look for the MessageIds. What they never had can be submitted again, with a new "
            "MessageId."
        ),
        False,
    ),
    (
        "reconciliation_unknown_here",
        _("Unknown here"),
        _("The partner's log holds messages that this hub knows nothing of."),
        _(
            "Ask the partner where these went, or who acknowledged them: another address, another hub "
            "of ours, or a restore that lost them."
        ),
        False,
    ),
    (
        "reconciliation_doubled",
        _("More than once in a log"),
        _("One of the two logs has the same message more than once."),
        _(
            "If it is the partner's, ask whether they processed it twice. If it is ours, the exactly-once audit says "
            "more."
        ),
        False,
    ),
    (
        "reconciliation_differs",
        _("Digests differ"),
        _("Both logs have the message, with different digests: the two sides do not hold the same octets."),
        _(
            "Compare the stored octets with the partner's; find out which side, or who between them, changed the "
            "message."
        ),
        False,
    ),
    (
        "reconciliation_in_doubt",
        _("Undecided, and not in the partner's log"),
        _("Messages whose outcome is unknown here are not in the partner's log either."),
        _("The partner most likely never had them: settle them so, once the partner confirms it."),
        False,
    ),
    (
        "reconciliation_in_doubt_arrived",
        _("Undecided, and the partner has it"),
        _("Messages whose outcome is unknown here are in the partner's log."),
        _("They arrived: settle them as delivered."),
        False,
    ),
)
AUDIT: tuple[Row, ...] = (
    (
        "audit_gap",
        _("Gap in the sequence"),
        _("The audit found sequence numbers that were never accepted, between ones that were."),
        _("Ask the partner for the messages with these numbers, and look whether an operator skipped some."),
        False,
    ),
    (
        "audit_repeat",
        _("Number accepted twice"),
        _(
            "The audit found a sequence number that was accepted more than once, although the sequence was not "
            "restarted."
        ),
        _(
            "Compare the messages: two documents under one number, or one document twice. Ask the partner which is "
            "meant."
        ),
        False,
    ),
    (
        "audit_duplicate_id",
        _("MessageId accepted twice"),
        _("The audit found a MessageId under which more than one message was accepted."),
        _("Find out whether the application has had the document twice, and take the second one back there."),
        False,
    ),
    (
        "audit_delivered_twice",
        _("Delivered twice"),
        _("The audit found documents that one trigger completed more than once, although nobody resubmitted them."),
        _("Find out what the application did with the second one, and take it back there."),
        False,
    ),
    (
        "audit_document_twice",
        _("Document processed twice"),
        _(
            "The audit found documents that one trigger processed under two MessageIds while its history should have "
            "known them."
        ),
        _("Find out whether a resolver said that it was new, and take the second one back in the application."),
        False,
    ),
    (
        "audit_delivery_without_acceptance",
        _("Delivery without acceptance"),
        _("The audit found documents that were handed to an application, and no record that they were accepted."),
        _("See whether records were lost, in a restore for example; the MessageIds say which documents."),
        False,
    ),
    (
        "audit_acceptance_without_delivery",
        _("Acceptance without delivery"),
        _("The audit found accepted documents that a trigger should have had, and that were not handed to it."),
        _("Resubmit them to the trigger, once it is clear that the application has not had them."),
        False,
    ),
    (
        "audit_ack_without_storage",
        _("Acknowledged, and not stored"),
        _("The audit found messages that were acknowledged to the partner and are not in the store."),
        _("The partner believes that we have them. Ask for them again, under new MessageIds."),
        False,
    ),
)
CAUSE_OF_VERDICT = {verdict: f"reconciliation_{verdict}" for verdict in Verdict.values if verdict != Verdict.AGREED}
CAUSE_OF_KIND = {kind: f"audit_{kind}" for kind in AuditKind.values}
FINDINGS = frozenset(row[0] for row in (*RECONCILIATION, *AUDIT))
