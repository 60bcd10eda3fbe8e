"""Why something went wrong: the closed list of cause codes, and what a person should know and do about each.

Codes are stored on pairs, messages, transmissions and incidents; they are stable, the sentences are not. A code that
is not in the list (written by an older or newer hub) still gets an entry, see `lookup`. docs/causes.md is this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from messaging.causes_delivery import DELIVERY, REPEATABLE
from messaging.causes_files import FILES
from messaging.causes_mail import MAIL
from messaging.causes_mail import REFUSALS as MAIL_REFUSALS
from messaging.causes_reports import AUDIT, RECONCILIATION
from messaging.causes_streams import RECEIVED, SENT
from messaging.causes_streams import REFUSALS as STREAM_REFUSALS
from messaging.causes_transactions import ABORTED, INCIDENTS, MESSAGES
from messaging.causes_transactions import REFUSALS as TRANSACTION_REFUSALS
from messaging.exchange_problems import PROBLEMS


@dataclass(frozen=True, slots=True)
class Cause:
    """One code. `sentence` says what happened, `action` what to do; `retryable`: time alone may mend it."""

    code: str
    label: str
    sentence: str
    action: str
    retryable: bool
    group: str = ""


def _group(name: str, *rows: tuple[str, str, str, str, bool]) -> dict[str, Cause]:
    return {row[0]: Cause(*row, group=name) for row in rows}


_NETWORK = _group(
    "Network",
    (
        "dns_error",
        "Host name unknown",
        "The partner's host name could not be resolved.",
        "Check the endpoint's address for a typing error, then the hub's name server.",
        True,
    ),
    (
        "connect_refused",
        "Connection refused",
        "The partner's server refused the connection: nothing listens at that address and port.",
        "Ask the partner whether their messaging service is up. Let it go out again when they say so.",
        True,
    ),
    (
        "connect_timeout",
        "No connection in time",
        "The partner's server did not answer the connection attempt in time.",
        "Usually a firewall or a server that is down: ask the partner, and check the way out of our own network.",
        True,
    ),
    (
        "tls_handshake",
        "TLS handshake failed",
        "The encrypted connection could not be set up.",
        "Compare TLS versions and client certificate with the partner, then retry.",
        False,
    ),
    (
        "cert_expired",
        "Partner certificate expired",
        "The partner's server shows a certificate that is past its date.",
        "Ask the partner to renew it. Let the message go out again when the new certificate is in place.",
        False,
    ),
    (
        "cert_untrusted",
        "Partner certificate not trusted",
        "The partner's server shows a certificate that the hub does not trust.",
        "Check who issued it and whether the host name fits; ask the partner for the whole chain.",
        False,
    ),
    (
        "read_timeout",
        "No answer in time",
        "The partner's server took the request and gave no answer in time.",
        "The message may have arrived; sending it again is safe. If it goes on, ask the partner about their load.",
        True,
    ),
    (
        "connection_reset",
        "Connection broken off",
        "The connection broke before an answer came.",
        "The message may have arrived; sending it again is safe. If it goes on, look at proxies and firewalls between.",
        True,
    ),
    (
        "proxy_error",
        "Proxy failed",
        "The proxy on our way out could not reach the partner.",
        "Check the proxy's address and its rules for this host.",
        True,
    ),
    (
        "circuit_open",
        "Server left alone",
        "The partner's server could not be reached several times in a row, so this attempt was not made.",
        "It is tried again by itself, and counts like any failed attempt. On the overview you can have it tried now.",
        True,
    ),
    (
        "server_unreachable",
        "Partner's server is down",
        "The partner's server has not been reached for minutes, whatever was sent to it.",
        "Ask the partner. If several servers are down at once, look at our own way out. This closes itself when the "
        "server answers.",
        True,
    ),
    (
        "not_begun",
        "Not begun",
        "The hub's worker stopped before it came to this attempt, so nothing was sent.",
        "Nothing to do: another worker takes it over at once.",
        True,
    ),
)
_HTTP = _group(
    "HTTP",
    (
        "http_3xx",
        "Redirected",
        "The partner's server sent us to another address; the hub does not follow redirects.",
        "Ask the partner for the right address and correct the endpoint.",
        False,
    ),
    (
        "http_401_403",
        "Access refused",
        "The partner's server does not accept our credential (HTTP 401 or 403).",
        "Compare the outbound credential with the one that the partner has for us, replace it, then retry.",
        False,
    ),
    (
        "http_404",
        "Address unknown",
        "The partner's server does not know this address (HTTP 404).",
        "Check the endpoint's path with the partner, then retry.",
        False,
    ),
    (
        "http_413",
        "Too large for the partner",
        "The partner's server does not take messages of this size (HTTP 413).",
        "Agree on a size with the partner. Until then this message can only be skipped.",
        False,
    ),
    (
        "http_429",
        "Partner asks us to slow down",
        "The partner's server gets too many requests from us (HTTP 429).",
        "It is retried by itself. If it goes on, ask the partner for a higher limit.",
        True,
    ),
    (
        "http_4xx",
        "Request refused",
        "The partner's server refuses the request (HTTP 4xx).",
        "Read the partner's answer on the attempt's page and ask them what they miss.",
        False,
    ),
    (
        "http_5xx",
        "Partner's server failed",
        "The partner's server has an error of its own (HTTP 5xx).",
        "It is retried by itself. If it goes on, ask the partner.",
        True,
    ),
    (
        "answer_unreadable",
        "Answer not understood",
        "The partner's status service answered something that is not what was asked for.",
        "Check the address of the partner's test services at its endpoint, and show the partner what came.",
        False,
    ),
)
_MESSAGING = _group(
    "Messaging",
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
        "Acknowledgement not genuine",
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
        "Ask the partner; resume when they have mended it.",
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
        "Ask the application whether it is still wanted, and submit it anew.",
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
_HUB = _group(
    "This hub",
    (
        "agreement_missing",
        "No agreement",
        "No agreement in force covers this.",
        "Activate an agreement that does, then resume.",
        False,
    ),
    (
        "agreement_disabled",
        "Agreement disabled",
        "The agreement was disabled, so nothing is sent under it.",
        "Enable the agreement, then resume the pair.",
        False,
    ),
    (
        "payload_invalid",
        "No valid form on the wire",
        "The document cannot be written as a message.",
        "Cancel it, and have the application submit it in a form that fits.",
        False,
    ),
    (
        "payload_missing",
        "Payload file missing",
        "The payload's file is not in the store folder: it was not restored with the database, or was removed.",
        "Restore the file from the backup, then resume. Without it the message can only be cancelled.",
        False,
    ),
    (
        "encryption_key_missing",
        "Key missing",
        "A key that is needed for this message is not there.",
        "Put the key back (RMHUB_SECRET_KEYS), then resume.",
        False,
    ),
    (
        "worker_lost",
        "Worker died",
        "The worker died while it sent, so nobody knows whether the bytes arrived.",
        "A reliable message is sent again by itself, which is safe. If it happens often, look at the hub's own log.",
        True,
    ),
    (
        "internal_error",
        "Error in the hub",
        "The hub itself failed; this is not the partner's fault.",
        "Look at the hub's log for the time of the attempt, and report it.",
        False,
    ),
    (
        "archive_differs",
        "Not archived: the copy would differ",
        "Messages could not be archived, because what is stored of them is not what was recorded when they came.",
        "They stay in the store. Compare the payload files with the backup; when they are mended, resolve this: the "
        "next run of the archive tries again.",
        False,
    ),
    (
        "archive_damaged",
        "Archive file damaged",
        "A file of the archive is missing, or is not what was written and proved.",
        "Nothing that lies in it is purged from the store. Bring the file back from the backup of the archive's "
        "folder, then resolve this.",
        False,
    ),
    (
        "suspended",
        "Suspended",
        "The pair was suspended without a more exact cause.",
        "Read the attempts below, then resume.",
        False,
    ),
    (
        "silent",
        "Silent",
        "No document came on this pair in the rhythm that was set for it.",
        "Ask whoever should send, our application or the partner, whether there is nothing to send or something is "
        "broken. The next document ends this by itself; a rhythm that is not true any more is changed in the settings.",
        True,
    ),
    (
        "webhook_disabled",
        "Webhook endpoint switched off",
        "A webhook endpoint answered 410 Gone, or failed for five days, so the hub switched it off.",
        "Ask those who run it. Switch it on again when it takes deliveries, and replay what it missed; or delete it.",
        False,
    ),
    (
        "audit_chain_broken",
        "Audit log was changed",
        "Entries of the audit log are not what they were when they were sealed, or are missing.",
        "See on the page of the audit log from where on it holds, and find out who can write to the database. Compare "
        "with a backup.",
        False,
    ),
    (
        "certificate_expiring",
        "Certificate or credential ends soon",
        "A certificate that the partner's server may show, or a credential, ends within 30 days or is over.",
        "Ask the partner for the new one and enter it before the end: both can be valid at once.",
        False,
    ),
)
_PERSON = _group(
    "Person",
    (
        "paused_by_user",
        "Paused",
        "Somebody paused the pair.",
        "Release it when what it waits for is done.",
        False,
    ),
    (
        "cancelled_by_user",
        "Cancelled",
        "Somebody took the message back.",
        "Nothing to do.",
        False,
    ),
)
_IN_DOUBT = _group(
    "In doubt",
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
        "Same id, other content",
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

_LIVE = _group(
    "Live watch",
    (
        "live_ack_slow",
        "Acknowledgements slower than usual",
        "The partner acknowledges, but takes much longer than it usually does.",
        "Ask the partner about their load before retries begin; if it stays so, look at the timing advice for a longer "
        "Timeout.",
        True,
    ),
    (
        "live_failure_rate",
        "More fails than usual",
        "Far more attempts fail, or far more messages are refused, than is usual on this pair.",
        "Look at the pair's latest attempts or rejections: one cause behind most of them says whom to ask.",
        True,
    ),
    (
        "live_partner_silent",
        "Partner silent",
        "Nothing has come from this partner for longer than its rhythm explains.",
        "Ask the partner whether they have something to send, and whether their messaging service reaches ours.",
        True,
    ),
)

CAUSES: Mapping[str, Cause] = {
    **_NETWORK,
    **_HTTP,
    **_MESSAGING,
    **_HUB,
    **_PERSON,
    **_IN_DOUBT,
    **_LIVE,
    **_group("Delivery to applications", *DELIVERY),
    **_group("Repeatable requests", *REPEATABLE),
    **_group("Transactional streams", *SENT, *RECEIVED),
    **_group("Atomic transactions", *ABORTED, *INCIDENTS, *MESSAGES),
    **_group("Mail", *MAIL),
    **_group("Files and mailboxes", *FILES),
    **_group("Reconciliation and audit", *RECONCILIATION, *AUDIT),
}


def lookup(code: str) -> Cause:
    """The entry for a code. An unknown one gets its own name as label and the advice that always holds."""
    known = CAUSES.get(code)
    if known is not None:
        return known
    label = code.replace("_", " ").strip().capitalize() or "No cause recorded"
    return Cause(code, label, f"{label}.", "Read the attempts and their answers, then decide.", retryable=False)


# Why something that came in was refused (`Rejection.reason`): reasons of the entrance, of the reader, and error codes.
REFUSALS: Mapping[str, str] = {
    **{kind.reason: kind.title for kind in PROBLEMS.values()},
    **MAIL_REFUSALS,
    **STREAM_REFUSALS,
    **TRANSACTION_REFUSALS,
    "unauthenticated": "No credential of a partner was shown",
    "wrong_partner": "A partner used another partner's agreement",
    "unknown_agreement": "No such agreement is in force",
    "message_too_large": "Larger than the agreement allows",
    "body_too_large": "Larger than this hub takes",
    "not_mime": "Not a MIME entity",
    "not_ebxml": "Not an ebXML message",
    "no_header_part": "No ebXML header part",
    "xml_not_well_formed": "Header is not well-formed XML",
    "dtd_forbidden": "XML with a DOCTYPE",
    "too_deep": "XML nested too deep",
    "too_many_elements": "XML with too many elements",
    "too_many_parts": "Too many MIME parts",
    "header_too_large": "Header too large",
    "part_headers_too_large": "MIME part headers too large",
    "bad_transfer_encoding": "Transfer encoding unreadable",
    "truncated": "Broken off",
    "missing_message_id": "No MessageId",
    "missing_routing_header": "No RoutingHeader",
    "missing_sender_uri": "No SenderURI",
    "missing_receiver_uri": "No ReceiverURI",
    "InvalidSequenceNumber": "Sequence number refused",
    "NotWellFormed": "Not well-formed",
    "ValueNotRecognized": "Outside the agreement",
    "NotSupported": "Not supported",
    "Inconsistent": "Parts contradict each other",
    "MimeProblem": "MIME parts unreadable",
    "SecurityFailure": "Security check failed",
}


def refusal_label(reason: str) -> str:
    """The words for a `Rejection.reason`; an unknown one is shown as it is."""
    return REFUSALS.get(reason) or reason.replace("_", " ").capitalize()
