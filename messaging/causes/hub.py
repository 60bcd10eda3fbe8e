"""Cause codes of this hub itself, of what people did, and of what the live watch sees: rows of `messaging.causes`."""

from __future__ import annotations

from messaging.causes.cause import Row
from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy

HUB: tuple[Row, ...] = (
    (
        "agreement_missing",
        _("No agreement"),
        _("No agreement in force covers this."),
        _("Activate an agreement that does, then resume."),
        False,
    ),
    (
        "agreement_disabled",
        _("Agreement disabled"),
        _("The agreement was disabled, so nothing is sent under it."),
        _("Enable the agreement, then resume the pair."),
        False,
    ),
    (
        "payload_invalid",
        _("Message cannot be encoded"),
        _("The document cannot be written as a message."),
        _("Cancel it, and have the application submit it in a form that fits."),
        False,
    ),
    (
        "payload_missing",
        _("Payload file missing"),
        _("The payload's file is not in the store folder: it was not restored with the database, or was removed."),
        _("Restore the file from the backup, then resume. Without it the message can only be cancelled."),
        False,
    ),
    (
        "encryption_key_missing",
        _("Key missing"),
        _("A key that is needed for this message is not there."),
        _("Put the key back (RMHUB_SECRET_KEYS), then resume."),
        False,
    ),
    (
        "worker_lost",
        _("Worker died"),
        _("The worker died while it sent, so nobody knows whether the bytes arrived."),
        _("A reliable message is sent again by itself, which is safe. If it happens often, look at the hub's own log."),
        True,
    ),
    (
        "needs_resync",
        _("Needs resync"),
        _("The hub's memory was lost: what was sent and received since the backup is not known here."),
        _(
            "Compare with the partner what each side has of that time, then clear the mark. Until then documents that "
            "come in may be repeats: the resolver is asked, or they are in doubt."
        ),
        False,
    ),
    (
        "internal_error",
        _("Error in the hub"),
        _("The hub itself failed; this is not the partner's fault."),
        _("Look at the hub's log for the time of the attempt, and report it."),
        False,
    ),
    (
        "credentials_guessed",
        _("Repeated wrong credentials"),
        _("So many wrong credentials came from one address that the hub looks at none for a minute."),
        _(
            "If it is a partner with an old password, give it the new one. If it is nobody you know, keep the address "
            "out at the firewall. Where all addresses are a proxy's, name it in RMHUB_TRUSTED_PROXIES."
        ),
        True,
    ),
    (
        "archive_differs",
        _("Not archived: the copy would differ"),
        _("Messages could not be archived, because what is stored of them is not what was recorded when they came."),
        _(
            "They stay in the store. Compare the payload files with the backup; when they are fixed, resolve this: the "
            "next run of the archive tries again."
        ),
        False,
    ),
    (
        "archive_damaged",
        _("Archive file damaged"),
        _("A file of the archive is missing, or is not what was written and proved."),
        _(
            "Nothing that lies in it is purged from the store. Bring the file back from the backup of the archive's "
            "folder, then resolve this."
        ),
        False,
    ),
    (
        "suspended",
        pgettext_lazy("pair", "Suspended"),
        _("The pair was suspended without a more exact cause."),
        _("Read the attempts below, then resume."),
        False,
    ),
    (
        "silent",
        _("Silent"),
        _("No document came on this pair in the rhythm that was set for it."),
        _(
            "Ask the sender, our application or the partner, whether there is nothing to send or something is broken. "
            "The next document ends this by itself; a rhythm that is not true any more is changed in the settings."
        ),
        True,
    ),
    (
        "webhook_disabled",
        _("Webhook endpoint switched off"),
        _("A webhook endpoint answered 410 Gone, or failed for five days, so the hub switched it off."),
        _(
            "Ask those who run it. Switch it on again when it takes deliveries, and replay what it missed; or delete "
            "it."
        ),
        False,
    ),
    (
        "audit_chain_broken",
        _("Audit log was changed"),
        _("Entries of the audit log are not what they were when they were sealed, or are missing."),
        _(
            "See on the page of the audit log which entries are affected, and find out who can write to the database. "
            "Compare with a backup."
        ),
        False,
    ),
    (
        "certificate_expiring",
        _("Certificate or credential expires soon"),
        _("A certificate that the partner's server may show, or a credential, expires within 30 days."),
        _("Ask the partner for the new one and enter it before the expiry: both can be valid at once."),
        False,
    ),
    (
        "certificate_ended",
        _("Certificate or credential has expired"),
        _("The last certificate that the partner's server may show, or a credential, is past its date."),
        _("Ask the partner for the new one and enter it: the connection fails, or is refused, until then."),
        False,
    ),
    (
        "certificate_offered",
        _("Certificate from the partner"),
        _("The partner uploaded a certificate in the partner portal. It is not trusted yet."),
        _(
            "Compare its fingerprint with the partner over another channel, such as the telephone, then accept or "
            "decline it under Certificates."
        ),
        False,
    ),
)

PERSON: tuple[Row, ...] = (
    (
        "paused_by_user",
        _("Paused"),
        _("Somebody paused the pair."),
        _("Release it when what it waits for is done."),
        False,
    ),
    (
        "cancelled_by_user",
        _("Cancelled"),
        _("Somebody took the message back."),
        _("Nothing to do."),
        False,
    ),
)

LIVE: tuple[Row, ...] = (
    (
        "live_ack_slow",
        _("Acknowledgements slower than usual"),
        _("The partner acknowledges, but takes much longer than it usually does."),
        _(
            "Ask the partner about their load before retries begin; if it stays so, look at the timing advice for a "
            "longer Timeout."
        ),
        True,
    ),
    (
        "live_failure_rate",
        _("More failures than usual"),
        _("Far more attempts fail, or far more messages are refused, than is usual on this pair."),
        _("Look at the pair's latest attempts or rejections: one cause behind most of them says whom to ask."),
        True,
    ),
    (
        "live_partner_silent",
        _("Partner silent"),
        _("Nothing has come from this partner for longer than its rhythm explains."),
        _("Ask the partner whether they have something to send, and whether their messaging service reaches ours."),
        True,
    ),
)
