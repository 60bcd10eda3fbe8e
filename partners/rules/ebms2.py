"""Rules of ebXML Messaging 2.0 (OASIS; terms of a CPA 2.0)."""

from __future__ import annotations

from django.utils.translation import ngettext

from partners.choices import (
    RESPONSES,
    CredentialDirection,
    CredentialKind,
    Encryption,
    SignatureAlgorithm,
    Signatures,
    SyncReply,
)
from partners.fields import duration
from partners.models import DAY, AgreementVersion
from partners.rules.common import (
    COMMON,
    DOCUMENTS,
    MAX_GIVE_UP,
    MEMORY_WINDOW_UNUSED,
    RETRIES_UNUSED,
    TARGETS,
    is_http,
    reliable,
)
from partners.rules.rule import SENT_ONCE, Level, Reliability, Rule, Settings
from rmhub.language import gettext_lazy

MOST_ENCRYPTED_BYTES = 20 * 1024 * 1024


def _resend_seconds(terms: Reliability) -> int:
    """From the first send until the last retry has had its RetryInterval (6.5.4)."""
    return (1 + terms.retries) * terms.retry_interval


def _has(version: AgreementVersion, kind: CredentialKind, direction: CredentialDirection) -> bool:
    """Whether a certificate of this side for messages is stored."""
    known = version.partner_endpoint.party.credentials
    return known.filter(kind=kind, direction=direction, revoked_at=None).exists()


def _signs(version: AgreementVersion, direction: CredentialDirection) -> bool:
    """Whether a certificate for signatures of this side is stored, or none is needed."""
    return version.signatures == Signatures.NONE or _has(version, CredentialKind.SIGNING, direction)


def _encrypts(version: AgreementVersion) -> bool:
    return version.encryption != Encryption.NONE


def _gives_up(terms: Reliability) -> str:
    """Say it as "Suspends the pair after 2 h 5 m (1 send + 5 retries)..." """
    if not reliable(terms):  # type: ignore[arg-type]
        return str(SENT_ONCE)
    said = ngettext(
        "Suspends the pair when a message is not acknowledged after {time} (1 send + {count} retry). A message that "
        "nobody has acknowledged after {persist} is in doubt.",
        "Suspends the pair when a message is not acknowledged after {time} (1 send + {count} retries). A message that "
        "nobody has acknowledged after {persist} is in doubt.",
        terms.retries,
    )
    return said.format(
        time=duration(_resend_seconds(terms)), count=terms.retries, persist=duration(terms.partner_window)
    )


_RULES: tuple[Rule, ...] = (
    Rule(
        "retry_interval",
        "retry_interval_missing",
        Level.ERROR,
        lambda v: reliable(v) and v.retry_interval == 0,
        gettext_lazy("RetryInterval is 0 s, so that no acknowledgement could ever be in time: set it to at least 1 s."),
    ),
    RETRIES_UNUSED,
    Rule(
        "partner_window",
        "persist_duration_short",
        Level.ERROR,
        lambda v: reliable(v) and v.partner_window < _resend_seconds(v),
        gettext_lazy(
            "The partner remembers ids for {partner_window} (PersistDuration), and retries go on for longer: a late "
            "one would be delivered twice. Raise it to at least (1 + Retries) times RetryInterval, or lower those."
        ),
    ),
    Rule(
        "partner_window",
        "persist_duration_long",
        Level.ERROR,
        lambda v: v.partner_window > MAX_GIVE_UP,
        gettext_lazy(
            "A message would be in doubt only after {partner_window}, and 400 days are the most: "
            "lower the PersistDuration."
        ),
    ),
    Rule(
        "time_to_live",
        "time_to_live_before_retry",
        Level.WARNING,
        lambda v: reliable(v) and 0 < v.time_to_live <= v.retry_interval,
        gettext_lazy(
            "The TimeToLive of {time_to_live} is over before the first retry: every message that is lost once is in "
            "doubt. Usual is (1 + Retries) times RetryInterval."
        ),
    ),
    Rule(
        "message_order",
        "order_without_once",
        Level.ERROR,
        lambda v: v.message_order and not reliable(v),
        gettext_lazy(
            "Only messages that arrive once and only once can be put in order: set the semantics to OnceAndOnlyOnce, "
            "or leave the order out."
        ),
    ),
    Rule(
        "message_order",
        "order_with_sync_reply",
        Level.ERROR,
        lambda v: v.message_order and v.sync_reply != SyncReply.NONE,
        gettext_lazy(
            "A conversation with an order has its acknowledgements sent later (MessageOrder goes without SyncReply): "
            "have nothing in the response, or leave the order out."
        ),
    ),
    Rule(
        "sync_reply",
        "response_not_awaited",
        Level.WARNING,
        lambda v: v.sync_reply in RESPONSES and v.partner_endpoint.read_timeout < 25,
        gettext_lazy(
            "The partner may need 20 s for its application's response, and its endpoint has to answer sooner: give it "
            "at least 25 s."
        ),
    ),
    Rule(
        "sync_reply",
        "sync_reply_not_http",
        Level.ERROR,
        lambda v: v.sync_reply != SyncReply.NONE and not is_http(v),
        gettext_lazy("Only HTTP has a response: have nothing in it, or choose endpoints that speak HTTP."),
    ),
    Rule(
        "signature_algorithm",
        "signature_weak",
        Level.WARNING,
        lambda v: v.signatures != Signatures.NONE and v.signature_algorithm == SignatureAlgorithm.RSA_SHA1,
        gettext_lazy(
            "Signatures with SHA-1 can be forged by who has the means: agree on SHA-256 with the partner if you can."
        ),
    ),
    Rule(
        "signatures",
        "own_signer_missing",
        Level.WARNING,
        lambda v: not _signs(v, CredentialDirection.OUTBOUND),
        gettext_lazy(
            "No certificate of ours for signatures is stored for {partner_endpoint_party}, so that nothing can be "
            "sent: store one with its private key among the credentials."
        ),
    ),
    Rule(
        "signatures",
        "partner_signer_missing",
        Level.WARNING,
        lambda v: not _signs(v, CredentialDirection.INBOUND),
        gettext_lazy(
            "No certificate with which {partner_endpoint_party} signs is stored, so that everything that comes is "
            "refused: store theirs among the credentials."
        ),
    ),
    Rule(
        "signatures",
        "receipts_without_acknowledgements",
        Level.ERROR,
        lambda v: v.signatures == Signatures.RECEIPTS and not reliable(v),
        gettext_lazy(
            "Only messages that are acknowledged have signed acknowledgements: set the semantics to "
            "OnceAndOnlyOnce, or sign messages alone."
        ),
    ),
    Rule(
        "encryption",
        "own_decrypter_missing",
        Level.WARNING,
        lambda v: _encrypts(v) and not _has(v, CredentialKind.ENCRYPTION, CredentialDirection.OUTBOUND),
        gettext_lazy(
            "No certificate of ours for encryption is stored for {partner_endpoint_party}, so that nothing that comes "
            "is taken: store one with its private key among the credentials."
        ),
    ),
    Rule(
        "encryption",
        "partner_recipient_missing",
        Level.WARNING,
        lambda v: _encrypts(v) and not _has(v, CredentialKind.ENCRYPTION, CredentialDirection.INBOUND),
        gettext_lazy(
            "No certificate of {partner_endpoint_party} for encryption is stored, so that nothing can be sent: store "
            "theirs among the credentials."
        ),
    ),
    Rule(
        "encryption",
        "encryption_without_signatures",
        Level.WARNING,
        lambda v: _encrypts(v) and v.signatures == Signatures.NONE,
        gettext_lazy(
            "Documents are encrypted and not signed: who can change a message on its way can change parts of them "
            "unseen. Have messages signed as well."
        ),
    ),
    Rule(
        "max_message_bytes",
        "too_large_to_encrypt",
        Level.ERROR,
        lambda v: _encrypts(v) and v.max_message_bytes > MOST_ENCRYPTED_BYTES,
        gettext_lazy(
            "Documents that are encrypted are held in memory as a whole: at most 20 MiB per message. Lower the largest "
            "message, or leave the encryption out."
        ),
    ),
    MEMORY_WINDOW_UNUSED,
)

EBMS2 = Settings(
    names=DOCUMENTS
    | {
        *("retries", "retry_interval", "detect_repeats", "partner_window", "time_to_live", "max_in_flight"),
        *("sync_reply", "message_order", "own_role", "partner_role", "signatures", "signature_algorithm"),
        "encryption",
    },
    rules=(*COMMON, *_RULES, *TARGETS),
    defaults={"retries": 3, "retry_interval": 300, "partner_window": DAY, "time_to_live": 0},
    gives_up=_gives_up,
)
