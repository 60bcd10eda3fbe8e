"""The fields of the onboarding wizard's steps, and how they are kept in a draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from messaging.deliveries.pages.trigger_fields import Field, Group
from messaging.models import OnboardingDraft
from messaging.onboarding.pages.partner_fields import ENDPOINT, PARTY, TERMS
from messaging.onboarding.pages.partner_forms import (
    MOST_CHOICES,
    fields_of,
    read,
    read_identifiers,
    read_services,
    services_text,
    written,
)
from messaging.onboarding.services.making import values_of
from partners import selectors
from partners.choices import CredentialKind, Profile, Semantics
from partners.models import AgreementVersion, Endpoint

NONE = "none"  # of a choice: what the draft keeps as ""
_KINDS = ("outbound_kind", "inbound_kind")
IDENTITY: tuple[Group, ...] = (
    Group(
        "New or known",
        "",
        (
            Field(
                "existing",
                "Partner",
                "select",
                "A known partner stays as it is; only an endpoint and an agreement are added.",
                choices=(("", "A new partner"),),
            ),
        ),
    ),
    *PARTY,
)
CREDENTIALS: tuple[Group, ...] = (
    Group(
        "What we show them",
        "Stored as soon as the partner is tested.",
        (
            Field(
                "outbound_kind",
                "Kind",
                "choice",
                choices=((NONE, "Nothing"), *((one.value, one.label) for one in CredentialKind)),
            ),
            Field("outbound_username", "User name", "text", "", only=("outbound_kind", ("basic", "ssh_key"))),
            Field(
                "secret",
                "Password, token or key",
                "lines",
                "What they gave us; for a client certificate both our certificate and its private key, as PEM.",
                only=("outbound_kind", tuple(CredentialKind.values)),
            ),
        ),
    ),
    Group(
        "What they show us",
        "Made when the agreement is activated, and shown once.",
        (
            Field(
                "inbound_kind",
                "Kind",
                "choice",
                choices=(
                    (NONE, "Nothing new"),
                    *((one.value, one.label) for one in CredentialKind if one is not CredentialKind.SSH_KEY),
                ),
            ),
            Field("inbound_username", "User name", "text", "", only=("inbound_kind", ("basic",))),
            Field(
                "inbound_certificate",
                "Their certificate",
                "lines",
                "PEM text.",
                only=("inbound_kind", ("certificate",)),
            ),
        ),
    ),
)
AGREEMENT: tuple[Group, ...] = (
    Group(
        "Agreement",
        "",
        (
            Field("tpa_id", "TPAId", "text", "It stands in every message, so both sides have the same."),
            Field("title", "Name", "text"),
            Field("own_endpoint", "Our endpoint", "select", choices=(("", "Choose one"),)),
        ),
    ),
    *TERMS,
)
GROUPS: Mapping[str, tuple[Group, ...]] = {
    "identity": IDENTITY,
    "transport": (*ENDPOINT, *CREDENTIALS),
    "agreement": AGREEMENT,
}
FIELDS: Mapping[str, dict[str, Field]] = {step: fields_of(groups) for step, groups in GROUPS.items()}
# Sets of terms that are often agreed: (name, words, what it sets).
PRESETS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("usual", "Usual", {"timeout": 60, "retries": 5, "retry_interval": 300}),
    ("quick", "Quick", {"timeout": 10, "retries": 4, "retry_interval": 30}),
    ("patient", "Patient", {"timeout": 300, "retries": 24, "retry_interval": 3600}),
    ("mail", "For mail", {"timeout": 1800, "retries": 12, "retry_interval": 7200}),
    (
        "transactions",
        "Atomic transactions",
        {"profile": Profile.WSAT.value, "repeat_interval": 5, "repeat_interval_max": 600, "retries": 10},
    ),
)
_RELIABLE = {"profile": Profile.EBXML.value, "semantics": Semantics.ONCE_AND_ONLY_ONCE.value}


def texts_of(draft: OnboardingDraft, step: str) -> dict[str, str]:
    """What stands in a step's fields: what was typed, else the defaults. Never the secret."""
    values, unread = values_of(draft, step), draft.data.get(step, {}).get("unread", {})
    defaults: Any = {"transport": Endpoint(), "agreement": AgreementVersion()}.get(step)
    found = {}
    for name, field in FIELDS[step].items():
        if field.kind == "file":
            continue
        value = values.get(name, getattr(defaults, name, "") if name not in ("services", "own_endpoint") else "")
        if name == "identifiers":
            value = "\n".join(" ".join(row) for row in values.get(name, ()))
        elif name == "services":
            value = services_text(values.get(name, ()))
        elif name in _KINDS:
            value = value or NONE
        found[name] = unread.get(name) or written(field, value)
    return found


def read_step(step: str, texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], dict[str, list[str]]]:
    """(values, what cannot be read, why) of a step as it was posted. The secret is left out."""
    values, errors = read(FIELDS[step], texts)
    values.pop("secret", None)
    values |= {name: "" for name in _KINDS if values.get(name) == NONE}
    readers: Mapping[str, Any] = {"identifiers": read_identifiers, "services": read_services}
    for name, reader in readers.items():
        if name in FIELDS[step]:
            try:
                values[name] = [list(row) for row in reader(texts.get(name, ""))]
            except ValueError as error:
                values.pop(name, None)
                errors[name] = [str(error)]
    return values, {name: texts[name] for name in errors}, errors


def preset(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts with a preset's terms in them."""
    found = dict(texts)
    fields = FIELDS["agreement"]
    for key, _, values in PRESETS:
        if key == name:
            found |= {one: written(fields[one], value) for one, value in (_RELIABLE | dict(values)).items()}
    return found


def choices() -> dict[str, tuple[tuple[str, str], ...]]:
    """What the selects offer."""
    partners = selectors.parties(is_own=False).filter(archived_at__isnull=True)[:MOST_CHOICES]
    ours = selectors.endpoints().filter(party__is_own=True, party__archived_at__isnull=True)[:MOST_CHOICES]
    return {
        "existing": tuple((one.public_id, one.name) for one in partners),
        "own_endpoint": tuple((one.public_id, f"{one.party}: {one.uri}") for one in ours),
    }
