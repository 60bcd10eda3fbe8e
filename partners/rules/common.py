"""Rules of every profile: who the parties are, and where their messages go."""

from __future__ import annotations

from urllib.parse import urlsplit

from partners import transports
from partners.addresses import normalise_uri
from partners.choices import CredentialDirection, CredentialKind, Profile, Semantics, ServiceDirection
from partners.models import DAY, RECOVERY, AgreementVersion
from partners.rules.rule import Level, Rule
from rmhub.language import gettext_lazy

MAX_GIVE_UP = 400 * DAY
KEPT_FOR_GOOD: int = AgreementVersion._meta.get_field("memory_window").get_default()


def reliable(version: AgreementVersion) -> bool:
    """Whether messages are acknowledged and delivered once and only once."""
    return version.semantics == Semantics.ONCE_AND_ONLY_ONCE


def asks_for_receipts(version: AgreementVersion) -> bool:
    """Whether a document is done when the partner's final receipt comes."""
    return version.profile == Profile.STREAM and version.final_receipt


def is_http(version: AgreementVersion) -> bool:
    """Whether both sides are reached by HTTP."""
    return version.own_endpoint.transport == version.partner_endpoint.transport == transports.HTTP.name


def in_the_clear(version: AgreementVersion) -> bool:
    """Whether a user name and password leave this machine over plain http."""
    endpoint = version.partner_endpoint
    where = urlsplit(endpoint.address or endpoint.uri)
    if where.scheme != "http" or where.hostname in ("localhost", "127.0.0.1", "::1"):
        return False
    shown = endpoint.party.credentials.filter(direction=CredentialDirection.OUTBOUND, revoked_at__isnull=True)
    return shown.filter(kind=CredentialKind.BASIC).exists()


# What every profile whose messages carry documents has.
DOCUMENTS = frozenset(
    {
        *("services", "semantics", "max_message_bytes"),
        *RECOVERY,
        *("acknowledged_within", "acknowledged_percent", "processed_within", "processed_percent"),
    }
)

# Of profiles whose messages carry no first-instance time: see docs/decisions.md.
MEMORY_WINDOW_UNUSED = Rule(
    "memory_window",
    "memory_window_unused",
    Level.WARNING,
    lambda v: v.memory_window != KEPT_FOR_GOOD,
    gettext_lazy(
        "MessageIds of this profile are kept permanently, so a memory window of {memory_window} says nothing: "
        "leave it out."
    ),
)


COMMON: tuple[Rule, ...] = (
    Rule(
        "own_party",
        "own_party_not_ours",
        Level.ERROR,
        lambda v: not v.agreement.own_party.is_own,
        gettext_lazy("{own_party} is not marked as ours: mark it so, or make the agreement for a party that is."),
    ),
    Rule(
        "own_party",
        "own_party_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.own_party.identifiers.all(),
        gettext_lazy(
            "{own_party} has no party identifier to write into messages: give it one, such as its DUNS number."
        ),
    ),
    Rule(
        "partner",
        "partner_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.partner.identifiers.all(),
        gettext_lazy("{partner} has no party identifier to write into messages: give it one, such as its DUNS number."),
    ),
    Rule(
        "partner",
        "partner_archived",
        Level.ERROR,
        lambda v: v.agreement.partner.archived_at is not None,
        gettext_lazy("{partner} is archived: restore it first, or make the agreement with another partner."),
    ),
    Rule(
        "partner_endpoint",
        "endpoints_same",
        Level.ERROR,
        lambda v: v.own_endpoint_id == v.partner_endpoint_id,
        gettext_lazy("Our endpoint and the partner's are the same one: choose an endpoint of {partner}."),
    ),
    Rule(
        "own_endpoint",
        "own_endpoint_of_other_party",
        Level.ERROR,
        lambda v: v.own_endpoint.party_id != v.agreement.own_party_id,
        gettext_lazy("Our endpoint belongs to {own_endpoint_party}: choose one of {own_party}."),
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_ours",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and v.partner_endpoint.party.is_own,
        gettext_lazy(
            "The partner's endpoint belongs to {partner_endpoint_party}, which is ours: choose one of "
            "{partner}, or of the router that leads to it."
        ),
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_of_other_party",
        Level.WARNING,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and not v.partner_endpoint.party.is_own,
        gettext_lazy(
            "Messages go through {partner_endpoint_party}: its endpoint is the next hop to {partner}, "
            "its credentials count, and its word is the acknowledgement."
        ),
    ),
    Rule(
        "partner_endpoint",
        "uris_same",
        Level.ERROR,
        lambda v: (
            v.own_endpoint_id != v.partner_endpoint_id
            and normalise_uri(v.own_endpoint.uri) == normalise_uri(v.partner_endpoint.uri)
        ),
        gettext_lazy(
            "Both endpoints have the URI {own_uri}, so that sender and receiver could not be told apart: "
            "correct the wrong one."
        ),
    ),
    Rule(
        "services",
        "services_missing",
        Level.ERROR,
        lambda v: not v.services.all(),
        gettext_lazy(
            "The agreement allows no service and action, so that every message would be refused: add at least one."
        ),
    ),
    Rule(
        "partner_endpoint",
        "host_key_missing",
        Level.ERROR,
        lambda v: (
            "host_key" in transports.named(v.partner_endpoint.transport).fields and not v.partner_endpoint.host_key
        ),
        gettext_lazy(
            "The partner's file server is not known by its host key, so that anybody could be in its place: enter the "
            "fingerprint (SHA256:...) in the endpoint."
        ),
    ),
    Rule(
        "partner_endpoint",
        "password_in_the_clear",
        Level.WARNING,
        in_the_clear,
        gettext_lazy(
            "Our password goes to {partner_endpoint_party} by plain http, where everybody can read it: use https."
        ),
    ),
)


def _receives(version: AgreementVersion) -> bool:
    return any(service.direction != ServiceDirection.SEND for service in version.services.all())


# Of profiles whose messages carry documents: what the facts that the hub stores cannot measure.
TARGETS: tuple[Rule, ...] = (
    Rule(
        "acknowledged_within",
        "acknowledged_target_unmeasured",
        Level.ERROR,
        lambda v: v.acknowledged_within > 0 and not reliable(v),
        gettext_lazy(
            "{semantics} messages are not acknowledged, so that a target for acknowledgements cannot be met: leave "
            "it out, or set the semantics to OnceAndOnlyOnce."
        ),
    ),
    Rule(
        "acknowledged_within",
        "acknowledged_target_with_receipts",
        Level.ERROR,
        lambda v: v.acknowledged_within > 0 and asks_for_receipts(v),
        gettext_lazy(
            "With final receipts a document is done when its receipt comes: give a target for processing instead."
        ),
    ),
    Rule(
        "processed_within",
        "processed_target_unmeasured",
        Level.ERROR,
        lambda v: v.processed_within > 0 and not _receives(v) and not asks_for_receipts(v),
        gettext_lazy(
            "The agreement receives nothing and asks for no final receipts, so that nobody knows what was processed: "
            "leave the target out."
        ),
    ),
    Rule(
        "acknowledged_within",
        "acknowledged_target_before_retry",
        Level.WARNING,
        lambda v: 0 < v.acknowledged_within <= v.timeout and v.profile == Profile.EBXML,
        gettext_lazy(
            "The target of {acknowledged_within} ends before the first retry (Timeout {timeout}): every "
            "message that is lost once misses it."
        ),
    ),
)
# Of profiles with Retries.
RETRIES_UNUSED = Rule(
    "retries",
    "retries_without_acknowledgement",
    Level.ERROR,
    lambda v: not reliable(v) and v.retries > 0,
    gettext_lazy(
        "{semantics} messages are not acknowledged, so there is nothing to retry on: "
        "set Retries to 0, or the semantics to OnceAndOnlyOnce."
    ),
)
# What the hub speaks over HTTP only.
HTTP_ONLY = Rule(
    "profile",
    "transport_not_http",
    Level.ERROR,
    lambda v: not is_http(v),
    gettext_lazy(
        "This profile goes over HTTP only, and our endpoint is reached by {own_transport}, the "
        "partner's by {partner_transport}: choose endpoints that speak HTTP on both sides."
    ),
)
