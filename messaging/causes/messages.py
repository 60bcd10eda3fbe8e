"""Cause codes of messages: what partners answer, and what stays in doubt. Rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row

MESSAGING: tuple[Row, ...] = (
    (
        "ack_timeout",
        "No acknowledgement",
        "The message was handed over, but no acknowledgement came, although it was repeated as often as agreed.",
        "Ask the partner whether they have it and why they do not acknowledge. Resume sends the same message again; "
        "a partner that has it already only acknowledges.",
        True,
    ),
    (
        "ack_invalid_signature",
        "Acknowledgement signature not valid",
        "An acknowledgement came whose signature is not valid.",
        "Compare certificates with the partner.",
        False,
    ),
    (
        "ebms_error_invalid_sequence_number",
        "Sequence number refused",
        "The partner refuses the sequence number: their count and ours differ.",
        "Find out which side lost its state. Restart the sequence to begin at 1, or have the partner set what they "
        "expect and resume.",
        False,
    ),
    (
        "ebms_error_not_well_formed",
        "Not well-formed for the partner",
        "The partner cannot read the message.",
        "Compare the message's wire bytes with what the partner logged. The same bytes will be refused again.",
        False,
    ),
    (
        "ebms_error_value_not_recognized",
        "Value unknown to the partner",
        "The partner does not know a value in the message: agreement, service, action or party.",
        "Compare the agreement with the partner's. Correct the side that is wrong, then resume or skip.",
        False,
    ),
    (
        "ebms_error_not_supported",
        "Not supported by the partner",
        "The partner's messaging service does not support something in the message.",
        "Agree with the partner what both sides support.",
        False,
    ),
    (
        "ebms_error_inconsistent",
        "Contradiction found by the partner",
        "The partner finds parts of the message that contradict each other or the agreement.",
        "Read the partner's description and compare the agreement on both sides.",
        False,
    ),
    (
        "ebms_error_mime_problem",
        "Parts unreadable for the partner",
        "The partner cannot take the message apart into its MIME parts.",
        "Compare the wire bytes with what the partner logged; a proxy between may have changed them.",
        False,
    ),
    (
        "ebms_error_security_failure",
        "Security check failed at the partner",
        "The partner's security checks refuse the message.",
        "Compare credentials and certificates with the partner, then resume.",
        False,
    ),
    (
        "ebms_error_delivery_failure",
        "Partner could not deliver",
        "The partner, or a hub on the way, could not hand the message on.",
        "Ask the partner; resume when they have fixed it.",
        True,
    ),
    (
        "ebms_error_unknown",
        "Refused by the partner",
        "The partner answered with an error message.",
        "Read the partner's error on the message's page and ask them.",
        False,
    ),
    (
        "transient_error",
        "Partner asks for a pause",
        "The partner cannot take messages right now and asked us to wait.",
        "Nothing to do: the same message goes out again when the pause is over.",
        True,
    ),
    (
        "transient_ceiling",
        "Pause goes on too long",
        "The partner has been asking for pauses for longer than the agreement allows.",
        "Ask the partner when they will take messages again. The hub keeps trying meanwhile.",
        True,
    ),
    (
        "soap_fault",
        "SOAP fault",
        "The partner answered with a SOAP fault.",
        "Read the fault on the attempt's page and ask the partner.",
        False,
    ),
    (
        "not_recognized",
        "Partner does not know the message",
        "The partner was asked for the message and has never seen it.",
        "Resume: it is sent again.",
        True,
    ),
    (
        "out_of_sequence",
        "Number out of sequence",
        "The partner sent a sequence number that is neither the next, nor a repeat, nor a restart at 1.",
        "Find out which side lost its state. Set the number to expect here, or have the partner restart at 1.",
        False,
    ),
    (
        "sequence_taken_by_other_message",
        "Number used twice",
        "The partner sent a second message under a sequence number that another message has.",
        "Ask the partner to restart the sequence: their numbering went wrong.",
        False,
    ),
    (
        "ttl_expired",
        "Too old",
        "The message is older than the time that it was given to arrive.",
        "Ask the application whether it is still wanted, and submit it again.",
        False,
    ),
    (
        "security_failure",
        "Security check failed",
        "The partner's message did not pass our security checks.",
        "Compare credentials and certificates with the partner.",
        False,
    ),
)

IN_DOUBT: tuple[Row, ...] = (
    (
        "worker_lost_while_processing",
        "Worker died while processing",
        "The worker died while it handed a document on; the application may or may not have had it.",
        "Ask the application before it is handed on again.",
        False,
    ),
    (
        "redelivered_unfinished",
        "Began before, never finished",
        "The document was begun before and its end was never recorded.",
        "Ask the application before it is handed on again.",
        False,
    ),
    (
        "same_id_other_content",
        "Same id, different content",
        "A MessageId came a second time with other content. The first was kept, the second discarded.",
        "Ask the partner which one they mean; a changed document needs a MessageId of its own.",
        False,
    ),
    (
        "late_ack",
        "Late acknowledgement",
        "The acknowledgement came after the pair had given up.",
        "The partner has the message. Resume the pair: it goes on with the next one.",
        True,
    ),
)
