"""Cause codes of deliveries to applications and of the repeatable profile; rows of `messaging.causes`.

Each row: code, label, what happened, what to do, whether time alone may fix it.
"""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

DELIVERY: tuple[Row, ...] = (
    (
        "service_unreachable",
        _("Application not reached"),
        _("The application's service could not be reached, so it has not seen the document."),
        _("See whether the application is up and the trigger's URL is right. The trigger goes on when it is resumed."),
        True,
    ),
    (
        "service_not_now",
        _("Application not ready"),
        _("The application answered that it cannot take documents at the moment."),
        _("Ask those who run it how long it will take. The trigger goes on when it is resumed."),
        True,
    ),
    (
        "service_access_refused",
        _("Application refuses the hub"),
        _(
            "The application does not accept what the hub shows it (HTTP 401 or 403), and has not processed the "
            "document."
        ),
        _(
            "Compare the trigger's signing secret with the application's, and see whether something in front of the "
            "application refuses the hub. Then resume the trigger."
        ),
        False,
    ),
    (
        "service_error",
        _("Application failed on the document"),
        _("The application's service ended with an error; the document counts as processed and is not sent again."),
        _("Read the answer, fix the application or the document, then resubmit the document."),
        False,
    ),
    (
        "service_outcome_unknown",
        _("Application's answer lost"),
        _("The document was handed to the application and no usable answer came back."),
        _("The resolver is asked; without one a person has to look into the application."),
        True,
    ),
    (
        "callable_missing",
        _("Callable not registered"),
        _("No installed application registers a callable of this name."),
        _("Install the application or correct the name, then resume the trigger."),
        False,
    ),
    (
        "no_members",
        _("No member service"),
        _("The trigger hands its documents to several services in one transaction, and no service is a member of it."),
        _("Add the services that belong together as members of the trigger, then resume it."),
        False,
    ),
    (
        "member_agreement",
        _("Member without an agreement"),
        _("The agreement under which a member's application takes part in transactions is not in force."),
        _("Put the agreement into force or choose another one for the member, then resume the trigger."),
        False,
    ),
    (
        "member_not_enlisted",
        _("Application did not take part"),
        _(
            "The application took the document and did not register for its transaction, so it was rolled back "
            "everywhere else. Whatever this application has done by itself stays."
        ),
        _(
            "Have the application register before it answers (docs/atomic-deliveries.md), look what it has done, then "
            "resubmit the document."
        ),
        False,
    ),
    (
        "member_changed",
        _("Member changed meanwhile"),
        _("A member of the trigger was changed while a document was on its way, so the transaction was rolled back."),
        _("Nothing: the document is handed over again, to the members that there are now."),
        True,
    ),
    (
        "delivery_taken_back",
        _("Withdrawn before the decision"),
        _("The transaction's delivery was withdrawn before everybody had voted, so the transaction was rolled back."),
        _("Nothing: the document is handed over again in a new transaction."),
        True,
    ),
    (
        "resolver_unavailable",
        _("Resolver cannot answer now"),
        _("The trigger's resolver could not say whether the document was processed, and may be able to later."),
        _("See whether the resolver is up, then resume the trigger."),
        True,
    ),
    (
        "history_unavailable",
        _("Document history unavailable"),
        _("The document history could not be read, so nobody can say whether the document is new."),
        _("Fix the database, then resume the trigger."),
        True,
    ),
    (
        "secret_unreadable",
        _("Secret cannot be decrypted"),
        _("The trigger's signing secret was stored under another key."),
        _("Restore RMHUB_SECRET_KEYS, or give the trigger a new secret; then resume it."),
        False,
    ),
    (
        "suspended_by_user",
        _("Suspended by a person"),
        _("Somebody suspended the trigger; documents wait."),
        _("Resume it when what it waits for is done."),
        False,
    ),
    (
        "trigger_silent",
        _("Trigger is silent"),
        _("No document came to this trigger for longer than its settings allow, or no consumer takes what waits."),
        _("Ask the partner whether they have stopped sending; for a pull queue, see whether its consumer runs."),
        True,
    ),
    (
        "documents_failed",
        _("Documents failed"),
        _("The application's service ended with an error for one document or more."),
        _("Open them, read the answers, and resubmit what has to be processed."),
        False,
    ),
    (
        "documents_in_doubt",
        _("Documents in doubt"),
        _("No rule can say whether the application has processed one document or more."),
        _("Look into the application, then settle them: already processed, or process now."),
        False,
    ),
    (
        "started_too_old",
        _("Begun long ago, never finished"),
        _("A document was begun, its end was never recorded, and the history's time to live has passed."),
        _("It is kept on purpose: settle it, or the next copy of it would be processed again."),
        False,
    ),
    (
        "join_expired",
        _("Join incomplete"),
        _("Not all documents of a join came within its timeout; those that came were discarded."),
        _("Ask the partner for what is missing; a late document starts a new join."),
        False,
    ),
)

REPEATABLE: tuple[Row, ...] = (
    (
        "outcome_unknown",
        _("Partner's answer lost"),
        _("The request may have been executed, and the partner's memory of its id is over: it must not be sent again."),
        _("Ask the partner whether they have it. Then mark it as delivered, or resubmit it as a new message."),
        False,
    ),
    (
        "outside_memory_window",
        _("Outside the partner's memory"),
        _("The partner refused the request because its first-instance time is outside its memory window."),
        _("Ask the partner whether they have it, and compare clocks and windows. Then settle it."),
        False,
    ),
    (
        "request_refused",
        _("Request refused"),
        _("The partner refused this request permanently and has not executed it."),
        _("Read the answer, correct the document, and submit it again."),
        False,
    ),
    (
        "never_sent",
        _("Never reached the partner"),
        _("No attempt reached the partner before the time for repeats was over."),
        _("Nothing was executed: submit the document again when the partner can be reached."),
        False,
    ),
    (
        "access_refused",
        _("Access refused until the end"),
        _(
            "Each time that the partner's server answered, it did not accept our credential (HTTP 401 or 403), until "
            "the time for repeats was over."
        ),
        _(
            "Nothing was executed. Compare the outbound credential (user and password, token or certificate) with the "
            "one that the partner has for us, and replace it; then submit the document again."
        ),
        False,
    ),
    (
        "turned_away",
        _("Turned away until the end"),
        _(
            "Each time that the partner's server answered, it turned the request away because of address, agreement, "
            "size or credential, until the time for repeats was over."
        ),
        _(
            "Nothing was executed. Read the answers of the attempts and correct what they name; then submit the "
            "document again."
        ),
        False,
    ),
    (
        "executed_with_error",
        _("Executed with an error"),
        _("The partner executed this request once, and its application answered with an error."),
        _("Read the answer, correct the document, and submit it again."),
        False,
    ),
    (
        "window_over",
        _("Too late to repeat"),
        _("The time for repeats was over before it could be put on the wire, so this attempt was not made."),
        _("Nothing to do about the attempt. If it happens often, the hub has too few threads for its work."),
        False,
    ),
    (
        "answer_incomplete",
        _("Answer incomplete"),
        _("The partner took the request, and the connection broke before its answer was here in full."),
        _("Nothing to do: it is asked again, and answers from its memory."),
        True,
    ),
    (
        "answer_contradicts_itself",
        _("Answer contradicts itself"),
        _("The partner answered success and said at the same time that the request was rejected."),
        _("It is asked again. If it goes on, tell the partner which answer came."),
        True,
    ),
    (
        "answer_without_result",
        _("Success without a result"),
        _(
            "The answer was a success, but does not say that the request was accepted (Repeatability-Result): "
            "something on the way may have answered in the partner's place."
        ),
        _(
            "It is asked again. If it goes on, look at the answer: a log-in page or a proxy on the way, or a server "
            "that does not know repeatable requests."
        ),
        True,
    ),
    (
        "still_in_work",
        _("Still in progress"),
        _("The partner is still busy with the first copy of this request."),
        _("Nothing to do: it is asked again."),
        True,
    ),
    (
        "memory_lost",
        _("Memory of ids was lost"),
        _("The database is older than what this hub had remembered: it was restored, or its disk was lost."),
        _(
            "Every pair needs resync: compare with the partners, then clear the marks. Repeatable requests from before "
            "are refused until the memory window has passed."
        ),
        False,
    ),
    (
        "clock_differs",
        _("Clocks differ"),
        _("Requests of authenticated partners were refused for a first-instance time outside the window."),
        _("Compare the clocks of this hub and of the partner (NTP), then the memory windows."),
        False,
    ),
)
