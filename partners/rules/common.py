"""Rules of every profile: who the parties are, and where their messages go."""

from __future__ import annotations

from urllib.parse import urlsplit

from partners import transports
from partners.addresses import normalise_uri
from partners.choices import CredentialDirection, CredentialKind, Profile, Semantics, ServiceDirection
from partners.models import DAY, RECOVERY, AgreementVersion
from partners.rules.rule import Level, Rule

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
    "MessageIds of this profile are kept permanently, so a memory window of {v.memory_window:span} says nothing: leave "
    "it out.",
)


COMMON: tuple[Rule, ...] = (
    Rule(
        "own_party",
        "own_party_not_ours",
        Level.ERROR,
        lambda v: not v.agreement.own_party.is_own,
        "{v.agreement.own_party} is not marked as ours: mark it so, or make the agreement for a party that is.",
    ),
    Rule(
        "own_party",
        "own_party_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.own_party.identifiers.all(),
        "{v.agreement.own_party} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner",
        "partner_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.partner.identifiers.all(),
        "{v.agreement.partner} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner",
        "partner_archived",
        Level.ERROR,
        lambda v: v.agreement.partner.archived_at is not None,
        "{v.agreement.partner} is archived: restore it first, or make the agreement with another partner.",
    ),
    Rule(
        "partner_endpoint",
        "endpoints_same",
        Level.ERROR,
        lambda v: v.own_endpoint_id == v.partner_endpoint_id,
        "Our endpoint and the partner's are the same one: choose an endpoint of {v.agreement.partner}.",
    ),
    Rule(
        "own_endpoint",
        "own_endpoint_of_other_party",
        Level.ERROR,
        lambda v: v.own_endpoint.party_id != v.agreement.own_party_id,
        "Our endpoint belongs to {v.own_endpoint.party}: choose one of {v.agreement.own_party}.",
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_ours",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and v.partner_endpoint.party.is_own,
        "The partner's endpoint belongs to {v.partner_endpoint.party}, which is ours: choose one of "
        "{v.agreement.partner}, or of the router that leads to it.",
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_of_other_party",
        Level.WARNING,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id and not v.partner_endpoint.party.is_own,
        "Messages go through {v.partner_endpoint.party}: its endpoint is the next hop to {v.agreement.partner}, its "
        "credentials count, and its word is the acknowledgement.",
    ),
    Rule(
        "partner_endpoint",
        "uris_same",
        Level.ERROR,
        lambda v: (
            v.own_endpoint_id != v.partner_endpoint_id
            and normalise_uri(v.own_endpoint.uri) == normalise_uri(v.partner_endpoint.uri)
        ),
        "Both endpoints have the URI {v.own_endpoint.uri}, so that sender and receiver could not be told apart: "
        "correct the wrong one.",
    ),
    Rule(
        "services",
        "services_missing",
        Level.ERROR,
        lambda v: not v.services.all(),
        "The agreement allows no service and action, so that every message would be refused: add at least one.",
    ),
    Rule(
        "partner_endpoint",
        "host_key_missing",
        Level.ERROR,
        lambda v: (
            "host_key" in transports.named(v.partner_endpoint.transport).fields and not v.partner_endpoint.host_key
        ),
        "The partner's file server is not known by its host key, so that anybody could be in its place: enter the "
        "fingerprint (SHA256:...) in the endpoint.",
    ),
    Rule(
        "partner_endpoint",
        "password_in_the_clear",
        Level.WARNING,
        in_the_clear,
        "Our password goes to {v.partner_endpoint.party} by plain http, where everybody can read it: use https.",
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
        "{v.semantics} messages are not acknowledged, so that a target for acknowledgements cannot be met: leave it "
        "out, or set the semantics to OnceAndOnlyOnce.",
    ),
    Rule(
        "acknowledged_within",
        "acknowledged_target_with_receipts",
        Level.ERROR,
        lambda v: v.acknowledged_within > 0 and asks_for_receipts(v),
        "With final receipts a document is done when its receipt comes: give a target for processing instead.",
    ),
    Rule(
        "processed_within",
        "processed_target_unmeasured",
        Level.ERROR,
        lambda v: v.processed_within > 0 and not _receives(v) and not asks_for_receipts(v),
        "The agreement receives nothing and asks for no final receipts, so that nobody knows what was processed: leave "
        "the target out.",
    ),
    Rule(
        "acknowledged_within",
        "acknowledged_target_before_retry",
        Level.WARNING,
        lambda v: 0 < v.acknowledged_within <= v.timeout and v.profile == Profile.EBXML,
        "The target of {v.acknowledged_within:span} ends before the first retry (Timeout {v.timeout:span}): every "
        "message that is lost once misses it.",
    ),
)
# What the hub speaks over HTTP only.
HTTP_ONLY = Rule(
    "profile",
    "transport_not_http",
    Level.ERROR,
    lambda v: not is_http(v),
    "This profile goes over HTTP only, and our endpoint is reached by {v.own_endpoint.transport}, the "
    "partner's by {v.partner_endpoint.transport}: choose endpoints that speak HTTP on both sides.",
)
