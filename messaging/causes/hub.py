"""Cause codes of this hub itself, of what people did, and of what the live watch sees: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row

HUB: tuple[Row, ...] = (
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
        "Message cannot be encoded",
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
        "needs_resync",
        "Needs resync",
        "The hub's memory was lost: what was sent and received since the backup is not known here.",
        "Compare with the partner what each side has of that time, then clear the mark. Until then documents that "
        "come in may be repeats: the resolver is asked, or they are in doubt.",
        False,
    ),
    (
        "internal_error",
        "Error in the hub",
        "The hub itself failed; this is not the partner's fault.",
        "Look at the hub's log for the time of the attempt, and report it.",
        False,
    ),
    (
        "credentials_guessed",
        "Repeated wrong credentials",
        "So many wrong credentials came from one address that the hub looks at none for a minute.",
        "If it is a partner with an old password, give it the new one. If it is nobody you know, keep the address out "
        "at the firewall. Where all addresses are a proxy's, name it in RMHUB_TRUSTED_PROXIES.",
        True,
    ),
    (
        "archive_differs",
        "Not archived: the copy would differ",
        "Messages could not be archived, because what is stored of them is not what was recorded when they came.",
        "They stay in the store. Compare the payload files with the backup; when they are fixed, resolve this: the "
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
        "Ask the sender, our application or the partner, whether there is nothing to send or something is "
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
        "See on the page of the audit log which entries are affected, and find out who can write to the database. "
        "Compare with a backup.",
        False,
    ),
    (
        "certificate_expiring",
        "Certificate or credential expires soon",
        "A certificate that the partner's server may show, or a credential, expires within 30 days.",
        "Ask the partner for the new one and enter it before the expiry: both can be valid at once.",
        False,
    ),
    (
        "certificate_ended",
        "Certificate or credential has expired",
        "The last certificate that the partner's server may show, or a credential, is past its date.",
        "Ask the partner for the new one and enter it: the connection fails, or is refused, until then.",
        False,
    ),
    (
        "certificate_offered",
        "Certificate from the partner",
        "Somebody of the partner uploaded a certificate in the partner portal. It is not trusted yet.",
        "Compare its fingerprint with the partner over another channel, such as the telephone, then accept or "
        "decline it under Certificates.",
        False,
    ),
)

PERSON: tuple[Row, ...] = (
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

LIVE: tuple[Row, ...] = (
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
        "More failures than usual",
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
