"""The JSON of a bundle: parties with their endpoints, and agreements with their terms; never a secret.

    {"format": "rmhub-bundle", "version": 1, "parties": [...], "agreements": [...]}

Parties are known by their name (else by an identifier), endpoints by their URI, agreements by their TPAId, so that a
bundle means the same in every hub. docs/onboarding.md has all fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission
from partners.certificates import CertificateFacts
from partners.choices import CredentialKind, ServiceDirection
from partners.models import ENDPOINT, TERMS, Agreement, AgreementVersion, Endpoint, Party
from rmhub.language import gettext_lazy

FORMAT, VERSION = "rmhub-bundle", 1
MAX_BYTES = 8 * 1024 * 1024
MOST = 2000  # of each kind
_MOST_PROBLEMS = 50
_LONGEST_GROUP = 80
PARTY_TEXTS = ("name", "contact", "time_zone", "hours")
_KINDS = {
    bool: gettext_lazy("true or false is needed here."),
    int: gettext_lazy("a whole number is needed here."),
    float: gettext_lazy("a number is needed here."),
    str: gettext_lazy("a text is needed here."),
}


@dataclass(frozen=True, slots=True)
class BundleEndpoint:
    """`fields`: as `partners.services.endpoint_create` takes them."""

    uri: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BundleCertificate:
    """A certificate of a partner: no secret. Only CPA documents have them. `kind`: of `choices.WITH_CERTIFICATE`."""

    kind: str
    facts: CertificateFacts

    @property
    def name(self) -> str:
        return f"{self.facts.title}: {CredentialKind(self.kind).label}"


@dataclass(frozen=True, slots=True)
class BundleParty:
    """`fields`: as `partners.services.party_create` takes them, the groups by name."""

    name: str
    is_own: bool
    fields: Mapping[str, Any]
    groups: tuple[str, ...]
    endpoints: tuple[BundleEndpoint, ...]
    certificates: tuple[BundleCertificate, ...] = ()


@dataclass(frozen=True, slots=True)
class BundleAgreement:
    """`terms`: as `partners.models.TERMS`; endpoints by URI, parties by name. `state`: of the version."""

    tpa_id: str
    name: str
    own_party: str
    partner: str
    own_endpoint: str
    partner_endpoint: str
    services: tuple[tuple[str, str, str], ...]
    terms: Mapping[str, Any]
    state: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """`by_name`: parties are known by their names alone, so that none gets another name because of an identifier."""

    parties: tuple[BundleParty, ...] = ()
    agreements: tuple[BundleAgreement, ...] = ()
    by_name: bool = False


@dataclass(slots=True)
class _Reader:
    problems: list[str] = field(default_factory=list)

    def wrong(self, where: str, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"{where}: {what}")

    def members(self, value: Any, where: str, known: Sequence[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.wrong(where, _("an object with members is needed here."))
            return {}
        for name in value:
            if name not in known:
                self.wrong(f"{where}.{str(name)[:60]}", _("there is no such member in a bundle."))
        return value

    def rows(self, value: Any, where: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST:
            self.wrong(where, _("a list of at most {most} is needed here.").format(most=MOST))
            return []
        return value

    def text(self, members: Mapping[str, Any], name: str, where: str, *, needed: bool = False) -> str:
        value = members.get(name, "")
        if not isinstance(value, str) or (needed and not value.strip()):
            self.wrong(f"{where}.{name}", _("a text is needed here."))
            return ""
        if not is_storable(value):
            self.wrong(f"{where}.{name}", _("there is a character in this text that cannot be stored: remove it."))
            return ""
        return value

    def like(self, members: Mapping[str, Any], name: str, default: Any, where: str) -> Any:
        """The member if it has the default's type."""
        value = members[name]
        if not same_kind(value, default):
            self.wrong(f"{where}.{name}", str(_KINDS[_kind(default)]))
            return default
        return self.text(members, name, where) if isinstance(value, str) else value

    def settings(self, members: Mapping[str, Any], names: Sequence[str], blank: Model, where: str) -> dict[str, Any]:
        """Those of the members that are settings of a row, each of the kind of its default."""
        return {name: self.like(members, name, getattr(blank, name), where) for name in members if name in names}


def _kind(value: Any) -> type:
    return next(kind for kind in _KINDS if isinstance(value, kind))


def same_kind(value: Any, default: Any) -> bool:
    """Whether a JSON value may stand where the default does: yes and no are no numbers."""
    kind = _kind(default)
    return type(value) is kind or (kind is float and type(value) is int)


def is_storable(text: str) -> bool:
    """Whether the database can keep a text: JSON can spell NUL and halves of a pair of surrogates, UTF-8 cannot."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def read(text: str | bytes) -> Bundle:
    """The bundle in a JSON text. Raises InvalidSubmission (field `bundle`) with all that is wrong with it."""
    if len(text) > MAX_BYTES:
        raise InvalidSubmission(
            {"bundle": [_("A bundle has at most {most} MiB: take it apart.").format(most=MAX_BYTES // 1024 // 1024)]}
        )
    try:
        return read_document(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidSubmission({"bundle": [_("This is not JSON: {error}").format(error=str(error)[:200])]}) from None


def read_document(document: Any) -> Bundle:
    """The same of a document that was parsed already."""
    reader = _Reader()
    top = reader.members(document, "bundle", ("format", "version", "parties", "agreements", "exported_at", "hub"))
    if top.get("format") != FORMAT or top.get("version") != VERSION:
        reader.wrong(
            "bundle", _('"format" has to be "{format}" and "version" {version}.').format(format=FORMAT, version=VERSION)
        )
    parties = tuple(
        _party(reader, row, f"parties[{index}]") for index, row in enumerate(reader.rows(top.get("parties"), "parties"))
    )
    agreements = tuple(
        _agreement(reader, row, f"agreements[{index}]")
        for index, row in enumerate(reader.rows(top.get("agreements"), "agreements"))
    )
    if reader.problems:
        raise InvalidSubmission({"bundle": reader.problems})
    return Bundle(parties, agreements)


def _party(reader: _Reader, row: Any, where: str) -> BundleParty:
    members = reader.members(row, where, (*PARTY_TEXTS, "is_own", "identifiers", "groups", "endpoints"))
    name = reader.text(members, "name", where, needed=True)
    fields: dict[str, Any] = {one: reader.text(members, one, where) for one in PARTY_TEXTS if one in members}
    if "identifiers" in members:
        fields["identifiers"] = []
        for index, item in enumerate(reader.rows(members["identifiers"], f"{where}.identifiers")):
            at = f"{where}.identifiers[{index}]"
            pair = reader.members(item, at, ("type", "value"))
            fields["identifiers"].append(
                (reader.text(pair, "type", at, needed=True), reader.text(pair, "value", at, needed=True))
            )
    groups = reader.rows(members.get("groups"), f"{where}.groups")
    if not all(
        isinstance(group, str) and 0 < len(group.strip()) <= _LONGEST_GROUP and group.isprintable() for group in groups
    ):
        reader.wrong(
            f"{where}.groups",
            _("names of 1 to {most} printable characters are needed here.").format(most=_LONGEST_GROUP),
        )
        groups = []
    is_own = bool(reader.like(members, "is_own", False, where)) if "is_own" in members else False
    endpoints = tuple(
        _endpoint(reader, item, f"{where}.endpoints[{index}]")
        for index, item in enumerate(reader.rows(members.get("endpoints"), f"{where}.endpoints"))
    )
    return BundleParty(name, is_own, fields, tuple(groups), endpoints)


def _endpoint(reader: _Reader, row: Any, where: str) -> BundleEndpoint:
    members = reader.members(row, where, ENDPOINT)
    uri = reader.text(members, "uri", where, needed=True)
    fields = reader.settings(members, ENDPOINT, Endpoint(), where)
    return BundleEndpoint(uri, fields)


def _agreement(reader: _Reader, row: Any, where: str) -> BundleAgreement:
    names = ("tpa_id", "name", "own_party", "partner", "own_endpoint", "partner_endpoint", "services", "terms", "state")
    members = reader.members(row, where, names)
    texts = {
        name: reader.text(members, name, where, needed=name not in ("name", "state"))
        for name in names
        if name not in ("services", "terms")
    }
    given = reader.members(members.get("terms", {}), f"{where}.terms", TERMS)
    terms = reader.settings(given, TERMS, AgreementVersion(), f"{where}.terms")
    services = []
    for index, item in enumerate(reader.rows(members.get("services"), f"{where}.services")):
        at = f"{where}.services[{index}]"
        one = reader.members(item, at, ("service", "action", "direction"))
        direction = reader.text(one, "direction", at) or "both"
        if direction not in ServiceDirection.values:
            reader.wrong(f"{at}.direction", _("send, receive or both is needed here."))
        services.append(
            (reader.text(one, "service", at, needed=True), reader.text(one, "action", at) or "*", direction)
        )
    return BundleAgreement(services=tuple(services), terms=terms, **texts)


def write_party(party: Party, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """A party as bundles have it."""
    return {
        **{name: getattr(party, name) for name in PARTY_TEXTS},
        "is_own": party.is_own,
        "identifiers": [{"type": one.context, "value": one.value} for one in party.identifiers.all()],
        "groups": sorted(group.name for group in party.groups.all()),
        "endpoints": [{name: getattr(endpoint, name) for name in ENDPOINT} for endpoint in endpoints],
    }


def write_agreement(agreement: Agreement, version: AgreementVersion) -> dict[str, Any]:
    """An agreement with one version as bundles have it."""
    return {
        "tpa_id": agreement.tpa_id,
        "name": agreement.name,
        "own_party": agreement.own_party.name,
        "partner": agreement.partner.name,
        "own_endpoint": version.own_endpoint.uri,
        "partner_endpoint": version.partner_endpoint.uri,
        "state": version.state,
        "services": [
            {"service": one.service, "action": one.action, "direction": one.direction} for one in version.services.all()
        ],
        "terms": {name: getattr(version, name) for name in TERMS},
    }
