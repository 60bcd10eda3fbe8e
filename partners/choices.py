"""The closed lists of this app: value and label in one place."""

from __future__ import annotations

from django.db import models

from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy


class Profile(models.TextChoices):
    """Wire profile of an agreement."""

    EBXML = "ebxml", _("ebXML Reliable Messaging (0-080)")
    REPEATABLE = "repeatable", _("Repeatable HTTP requests")
    STREAM = "stream", _("Transactional stream (SOAP)")
    WSAT = "wsat", _("Atomic transactions (WS-AtomicTransaction)")
    EBMS2 = "ebms2", _("ebXML Messaging 2.0 (OASIS)")


# Those whose messages carry documents.
DOCUMENT_PROFILES = tuple(one.value for one in Profile if one is not Profile.WSAT)


class AddressingProfile(models.TextChoices):
    """Which headers of WS-Addressing notifications carry (spec 5; protocols.md 5.7)."""

    SEED = "seed", _("ReplyTo where an answer is awaited")
    OASIS = "oasis", _("From, and ReplyTo none (2006/06 practice)")


class CoordinationVersion(models.TextChoices):
    """Namespaces of WS-Coordination, WS-AtomicTransaction and WS-Addressing."""

    V2004 = "2004/10", _("1.0 (2004/10)")
    V2006 = "2006/06", _("1.1 and 1.2 (2006/06)")


class SoapVersion(models.TextChoices):
    V11 = "1.1", "SOAP 1.1"
    V12 = "1.2", "SOAP 1.2"


class Semantics(models.TextChoices):
    """Delivery semantics (spec 1, 2.2.1 and 3.1)."""

    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce", _("Once and only once")
    AT_MOST_ONCE = "AtMostOnce", _("At most once")
    BEST_EFFORT = "BestEffort", _("Best effort")


class ExchangeMode(models.TextChoices):
    """What a request of the repeatable profile is answered with (spec 2)."""

    ONE_WAY = "one_way", _("One way: an acknowledgement")
    SYNCHRONOUS = "synchronous", _("Synchronous: the application's own response")


class ExchangeIdentity(models.TextChoices):
    """Which headers identify a request of the repeatable profile."""

    FIRST_SENT = "first_sent", _("Message id and first-instance time")
    KEY = "key", "Idempotency-Key"


class SyncReply(models.TextChoices):
    """What comes in the response to a message, instead of later by itself (syncReplyMode of a CPA 2.0)."""

    NONE = "none", _("Nothing: answers come later")
    SIGNALS = "mshSignalsOnly", _("Acknowledgements and errors")
    SIGNALS_AND_RESPONSE = "signalsAndResponse", _("Acknowledgements, errors and the application's response")
    RESPONSE = "responseOnly", _("The application's response")


# Modes in which the sender waits for the application.
RESPONSES = (SyncReply.SIGNALS_AND_RESPONSE, SyncReply.RESPONSE)


class Signatures(models.TextChoices):
    """What both sides sign (ebXML Messaging 2.0, 4.1; non-repudiation of a CPA 2.0)."""

    NONE = "none", _("Nothing")
    MESSAGES = "messages", _("Messages")
    RECEIPTS = "receipts", _("Messages and acknowledgements")


class SignatureAlgorithm(models.TextChoices):
    """With what; the digests follow it."""

    RSA_SHA256 = "rsa-sha256", _("RSA with SHA-256")
    ECDSA_SHA256 = "ecdsa-sha256", _("ECDSA with SHA-256")
    RSA_SHA1 = "rsa-sha1", _("RSA with SHA-1 (weak)")


class Encryption(models.TextChoices):
    """How both sides encrypt documents (ebXML Messaging 2.0, 4.1.4.5; DigitalEnvelope of a CPA 2.0)."""

    NONE = "none", _("Not encrypted")
    AES128 = "smime-aes128", _("S/MIME with AES-128")
    AES256 = "smime-aes256", _("S/MIME with AES-256")


class VersionState(models.TextChoices):
    """Life of an agreement version: only a draft can be edited, only one version is active."""

    DRAFT = "draft", _("Draft")
    ACTIVE = "active", pgettext_lazy("version", "Active")
    RETIRED = "retired", pgettext_lazy("version", "Retired")
    DISABLED = "disabled", pgettext_lazy("version", "Disabled")


class ServiceDirection(models.TextChoices):
    """Who may send this service and action, seen from our hub."""

    SEND = "send", _("We send")
    RECEIVE = "receive", _("We receive")
    BOTH = "both", _("Both ways")


class CredentialDirection(models.TextChoices):
    INBOUND = "inbound", _("The partner shows it to us")
    OUTBOUND = "outbound", _("We show it to the partner")


class CredentialKind(models.TextChoices):
    BASIC = "basic", _("HTTP Basic")
    BEARER = "bearer", _("Bearer token")
    CERTIFICATE = "certificate", _("Client certificate (SHA-256 fingerprint)")
    SSH_KEY = "ssh_key", _("SSH private key")
    SIGNING = "signing", _("Certificate for signatures")
    ENCRYPTION = "encryption", _("Certificate for encryption")


# What is for messages: nobody is let in with these.
FOR_MESSAGES = (CredentialKind.SIGNING, CredentialKind.ENCRYPTION)
WITH_CERTIFICATE = (CredentialKind.CERTIFICATE, *FOR_MESSAGES)


class PollerKind(models.TextChoices):
    """Where the hub fetches messages that a partner could only leave somewhere."""

    IMAP = "imap", _("Mailbox (IMAP)")
    SFTP = "sftp", _("Folder (SFTP)")
