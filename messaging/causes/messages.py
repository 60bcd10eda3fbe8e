"""Cause codes of messages: what partners answer, and what stays in doubt. Rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _

MESSAGING: tuple[Row, ...] = (
    (
        "ack_timeout",
        _("No acknowledgement"),
        _("The message was handed over, but no acknowledgement came, although it was repeated as often as agreed."),
        _(
            "Ask the partner whether they have it and why they do not acknowledge. Resume sends the same message "
            "again; a partner that has it already only acknowledges."
        ),
        True,
    ),
    (
        "ack_invalid_signature",
        _("Acknowledgement signature not valid"),
        _("An acknowledgement came whose signature is not valid."),
        _("Compare certificates with the partner."),
        False,
    ),
    (
        "ebms_error_invalid_sequence_number",
        _("Sequence number refused"),
        _("The partner refuses the sequence number: their count and ours differ."),
        _(
            "Find out which side lost its state. Restart the sequence to begin at 1, or have the partner set what they "
            "expect and resume."
        ),
        False,
    ),
    (
        "ebms_error_not_well_formed",
        _("Not well-formed for the partner"),
        _("The partner cannot read the message."),
        _("Compare the message's wire bytes with what the partner logged. The same bytes will be refused again."),
        False,
    ),
    (
        "ebms_error_value_not_recognized",
        _("Value unknown to the partner"),
        _("The partner does not know a value in the message: agreement, service, action or party."),
        _("Compare the agreement with the partner's. Correct the side that is wrong, then resume or skip."),
        False,
    ),
    (
        "ebms_error_not_supported",
        _("Not supported by the partner"),
        _("The partner's messaging service does not support something in the message."),
        _("Agree with the partner what both sides support."),
        False,
    ),
    (
        "ebms_error_inconsistent",
        _("Contradiction found by the partner"),
        _("The partner finds parts of the message that contradict each other or the agreement."),
        _("Read the partner's description and compare the agreement on both sides."),
        False,
    ),
    (
        "ebms_error_mime_problem",
        _("Parts unreadable for the partner"),
        _("The partner cannot take the message apart into its MIME parts."),
        _("Compare the wire bytes with what the partner logged; a proxy between may have changed them."),
        False,
    ),
    (
        "ebms_error_security_failure",
        _("Security check failed at the partner"),
        _("The partner's security checks refuse the message."),
        _("Compare credentials and certificates with the partner, then resume."),
        False,
    ),
    (
        "ebms_error_delivery_failure",
        _("Partner could not deliver"),
        _("The partner, or a hub on the way, could not hand the message on."),
        _("Ask the partner; resume when they have fixed it."),
        True,
    ),
    (
        "ebms_error_other_xml",
        _("Header not valid for the partner"),
        _("The partner finds the message's header not as its schema has it."),
        _("Compare the message's header with what the partner expects. The same bytes will be refused again."),
        False,
    ),
    (
        "ebms_error_time_to_live_expired",
        _("Too late for the partner"),
        _("The message came to the partner after the end of its TimeToLive."),
        _("Submit the document again if it is still wanted. Compare the clocks of both sides."),
        False,
    ),
    (
        "ebms_error_unknown",
        _("Refused by the partner"),
        _("The partner answered with an error message."),
        _("Read the partner's error on the message's page and ask them."),
        False,
    ),
    (
        "answer_comes_later",
        _("Answer comes later"),
        _("The partner took the question and answers it by a message of its own."),
        _("Look again in a while: the answer is shown when it has come."),
        True,
    ),
    (
        "signing_impossible",
        _("Message cannot be signed"),
        _(
            "The agreement wants signatures, and the hub cannot make one: no certificate of ours for this "
            "partner is valid, or its key is of another kind."
        ),
        _("Store a certificate for signatures with its private key among the partner's credentials, then resume."),
        False,
    ),
    (
        "encryption_impossible",
        _("Message cannot be encrypted"),
        _(
            "The agreement has documents encrypted, and no certificate of the partner for that is valid, so the hub "
            "cannot encrypt any."
        ),
        _("Store the partner's certificate for encryption among its credentials, then resume."),
        False,
    ),
    (
        "receipt_refused",
        _("Acknowledgement is no proof"),
        _(
            "The partner acknowledged a message without the signature that the agreement wants, or with one "
            "that does not fit the message."
        ),
        _(
            "Compare the partner's certificate for signatures with theirs. The message stays open until a "
            "right acknowledgement comes."
        ),
        False,
    ),
    (
        "order_gap",
        _("Message missing in a conversation"),
        _("Messages of a conversation wait here for one before them that has not come."),
        _(
            "Ask the partner for it: they send it again, or begin the conversation anew (Reset). If it will never "
            "come, hand on what waits."
        ),
        True,
    ),
    (
        "order_given_up",
        _("Conversation began anew with messages missing"),
        _("The partner began a conversation anew while messages of it waited here for one that never came."),
        _("What waited was handed on without it. Ask the partner what has become of the missing message."),
        False,
    ),
    (
        "order_number_taken",
        _("Number taken by another message"),
        _("The partner gave two messages of one conversation the same number. The second one was refused."),
        _("Ask the partner which of them counts: their count of the conversation was lost, or set back."),
        False,
    ),
    (
        "transient_error",
        _("Partner asks for a pause"),
        _("The partner cannot take messages right now and asked us to wait."),
        _("Nothing to do: the same message goes out again when the pause is over."),
        True,
    ),
    (
        "transient_ceiling",
        _("Pause goes on too long"),
        _("The partner has been asking for pauses for longer than the agreement allows."),
        _("Ask the partner when they will take messages again. The hub keeps trying meanwhile."),
        True,
    ),
    (
        "soap_fault",
        _("SOAP fault"),
        _("The partner answered with a SOAP fault."),
        _("Read the fault on the attempt's page and ask the partner."),
        False,
    ),
    (
        "not_recognized",
        _("Partner does not know the message"),
        _("The partner was asked for the message and has never seen it."),
        _("Resume: it is sent again."),
        True,
    ),
    (
        "out_of_sequence",
        _("Number out of sequence"),
        _("The partner sent a sequence number that is neither the next, nor a repeat, nor a restart at 1."),
        _("Find out which side lost its state. Set the number to expect here, or have the partner restart at 1."),
        False,
    ),
    (
        "sequence_taken_by_other_message",
        _("Number used twice"),
        _("The partner sent a second message under a sequence number that another message has."),
        _("Ask the partner to restart the sequence: their numbering went wrong."),
        False,
    ),
    (
        "ttl_expired",
        _("Too old"),
        _("The message is older than the time that it was given to arrive."),
        _("Ask the application whether it is still wanted, and submit it again."),
        False,
    ),
    (
        "security_failure",
        _("Security check failed"),
        _("The partner's message did not pass our security checks."),
        _("Compare credentials and certificates with the partner."),
        False,
    ),
)

IN_DOUBT: tuple[Row, ...] = (
    (
        "worker_lost_while_processing",
        _("Worker died while processing"),
        _("The worker died while it handed a document on; the application may or may not have had it."),
        _("Ask the application before it is handed on again."),
        False,
    ),
    (
        "redelivered_unfinished",
        _("Began before, never finished"),
        _("The document was begun before and its end was never recorded."),
        _("Ask the application before it is handed on again."),
        False,
    ),
    (
        "same_id_other_content",
        _("Same id, different content"),
        _("A MessageId came a second time with other content. The first was kept, the second discarded."),
        _("Ask the partner which one they mean; a changed document needs a MessageId of its own."),
        False,
    ),
    (
        "late_ack",
        _("Late acknowledgement"),
        _("The acknowledgement came after the pair had given up."),
        _("The partner has the message. Resume the pair: it goes on with the next one."),
        True,
    ),
)
