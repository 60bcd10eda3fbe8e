"""Cause codes of atomic transactions, as rows of `messaging.causes`: why one aborted, and what a person must look at.

Each row: code, label, what happened, what to do, whether time alone may fix it. `Coordination.cause` holds the codes
of `ABORTED` without their prefix.
"""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

PREFIX = "transaction_"

ABORTED: tuple[Row, ...] = (
    (
        "transaction_rolled_back",
        _("Rolled back on request"),
        _("The initiator of the transaction, or a person, asked for its rollback. Nobody has changed anything."),
        _("Nothing to do here. The detail and the audit log say who asked, and why."),
        False,
    ),
    (
        "transaction_expired",
        _("Ran out of time"),
        _(
            "The transaction was not decided before its time was over, so it was rolled back. Nobody has changed "
            "anything."
        ),
        _(
            "Look at who had not voted, or whether nobody asked for the commit. Begin it again, with more time if need "
            "be."
        ),
        False,
    ),
    (
        "transaction_voted_no",
        _("A participant voted no"),
        _("One of the participants could not do its share, so the transaction was rolled back everywhere."),
        _("Ask the participant that the detail names why it voted no, then begin the transaction again."),
        False,
    ),
    (
        "transaction_invalid_message",
        _("Message out of turn"),
        _("A participant sent a message that its state does not allow, so the transaction was rolled back."),
        _("Open the message in the sequence below and show it to that participant: its implementation, or ours, errs."),
        False,
    ),
    (
        "transaction_local_work",
        _("Our own share failed"),
        _("Every participant had voted yes, and what this hub does itself could not be done: it was rolled back."),
        _("The detail says what failed. Fix it, and begin the transaction again."),
        False,
    ),
    (
        "transaction_superior_rolled_back",
        _("Its coordinator rolled it back"),
        _("Another coordinator decides about this transaction, and decided on rollback."),
        _("Nothing to do here. Ask the other side if it was not expected."),
        False,
    ),
    (
        "transaction_superior_refused",
        _("Its coordinator refused it"),
        _(
            "Another coordinator decides about this transaction, and answered with a fault: it does not take this hub "
            "as a participant, or knows nothing of the transaction. So it was rolled back here."
        ),
        _("Read the fault in the sequence of messages, and ask the other side about it."),
        False,
    ),
    (
        "transaction_superior_silent",
        _("Nothing was heard from its coordinator"),
        _(
            "Another coordinator decides about this transaction. It did not ask for a vote before the time was over, "
            "so it was rolled back here."
        ),
        _("Ask the other side whether its coordinator runs."),
        False,
    ),
    (
        "transaction_forgotten",
        _("Its transaction is forgotten"),
        _("The transaction that the message was about has ended a day ago, and nobody took the message until then."),
        _("Nothing to do: anyone who asks about that transaction later gets its outcome."),
        False,
    ),
    (
        "transaction_settled",
        _("Settled by a person"),
        _("A person decided about it without waiting for the other side."),
        _("Compare with what the other side did: the audit log says who decided, and why."),
        False,
    ),
)

INCIDENTS: tuple[Row, ...] = (
    (
        "transaction_peer_refused",
        _("Transaction: the outcome was refused"),
        _("A participant answered the outcome with a fault: it says that it is not where the hub believes it to be."),
        _(
            "Read the fault in the sequence of messages, and ask the participant what it did with its share. Settle it "
            "on the transaction's page when you know."
        ),
        False,
    ),
    (
        "transaction_in_doubt",
        _("Transaction in doubt"),
        _(
            "A participant is prepared or was told the outcome, and what came back says nothing that the hub can act "
            "on: nobody can tell whether both sides did the same."
        ),
        _("Open the transaction, and ask the participant what it did. Settle it there when you know, and only then."),
        False,
    ),
    (
        "transaction_lost",
        _("Transaction begun after the backup"),
        _(
            "The database was restored, and a partner asks for the outcome of a transaction that was begun after the "
            "backup. This hub knows nothing of it, and it may have been committed, so the hub does not answer."
        ),
        _(
            "Ask everybody who took part what they did, and have each of them settle its share the same way. Then "
            "clear the resync mark of the pair: from then on the hub answers as for any forgotten transaction, and a "
            "participant gets Rollback as the answer."
        ),
        False,
    ),
    (
        "transaction_peer_silent",
        _("Transaction: no answer"),
        _(
            "One side of a transaction does not answer, although its message was sent again as often as agreed. The "
            "hub goes on sending it: what is prepared stays locked over there until it is told the outcome."
        ),
        _(
            "Ask the partner whether its system runs and reaches this hub. Nothing is lost by waiting. If it is "
            "permanently gone, give it up on the transaction's page."
        ),
        True,
    ),
    (
        "transaction_pair_shut",
        _("Transaction: held by a stopped pair"),
        _(
            "A message about the outcome has waited behind a pair that is paused or disabled, for so "
            "long that its receiver counts as silent. What is prepared stays locked until they hear of it."
        ),
        _(
            "Release the pair, or enable its agreement, or wait if it is open again: what waits goes out at once, and "
            "their answer ends the doubt. If they are permanently gone, settle it on the transaction's page."
        ),
        False,
    ),
    (
        "heuristic_outcome",
        _("Outcomes contradict each other"),
        _(
            "One side of a transaction committed what another side rolled back: somebody decided by themselves, here "
            "or there. The transaction is not atomic any more."
        ),
        _(
            "Find out with the partner which side has which outcome, and fix the data of one of them by hand: nothing "
            "does it by itself."
        ),
        False,
    ),
)

MESSAGES: tuple[Row, ...] = (
    (
        "address_outside_agreement",
        _("Not the partner's address any more"),
        _(
            "The message belongs to a participant at an address that the agreement with the partner does not name any "
            "more, so that it is not called."
        ),
        _("Correct the partner's endpoint in the agreement, or settle the participant if it is permanently gone."),
        False,
    ),
    (
        "answer_not_needed",
        _("No answer needed any more"),
        _("Nobody waits for the answer to this message any more: its transaction has gone on without it."),
        _("Nothing to do."),
        False,
    ),
)

# Why something at the entrance for transactions was refused (`Rejection.reason`), beside what all entrances have.
REFUSALS: dict[str, str] = {
    "no_agreement": _("No agreement for transactions"),
    "unknown_service": _("To an unknown service"),
    "wrong_service": _("Not a message for this service"),
    "wrong_transaction": _("About another transaction"),
    "not_answerable": _("Broke the rules, and gave no address for the fault"),
    "too_large": _("Larger than this hub takes"),
    "not_an_envelope": _("Not a SOAP envelope"),
    "wrong_soap_version": _("SOAP version and media type differ"),
    "wrong_charset": _("Another charset than UTF-8 and UTF-16"),
    "bad_charset": _("Not in the charset that it names"),
    "no_body": _("Envelope without a body"),
    "too_many_headers": _("Too many header blocks"),
}
