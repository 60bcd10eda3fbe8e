"""CPA 2.0 documents as agreements: what one says becomes a bundle, so that dry run, report and all-or-nothing are those
of bundles. Beside it stands what became of each element of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.onboarding.services.bundle import ImportReport, bundle_import, find_endpoint
from messaging.onboarding.services.bundle_format import (
    Bundle,
    BundleAgreement,
    BundleCertificate,
    BundleEndpoint,
    BundleParty,
)
from messaging.protocol.codecs.ebms2_lexical import has_scheme
from partners import certificates, selectors, transports
from partners.certificates import CertificateFacts
from partners.choices import CredentialDirection, CredentialKind, Profile, VersionState
from partners.cpa import model, reading
from partners.cpa.channels import Placed
from partners.cpa.document import MAX_OCTETS, CpaUnreadable
from partners.cpa.findings import Finding, Kind, Matter
from partners.cpa.flows import Flow, view_of
from partners.cpa.holding import Holding, NotHeld, Side, hold
from partners.models import Endpoint, Party
from rmhub import clock

MAX_BYTES = MAX_OCTETS
_DECLARATION = re.compile(r"\s*<\?xml\s[^>]*\?>")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a document would make here, and what became of each element and attribute of it."""

    bundle: Bundle
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CpaReport:
    """What an import did, or (`dry_run`) would do."""

    report: ImportReport
    findings: tuple[Finding, ...]

    def of_kind(self, kind: Kind | str) -> list[Finding]:
        return [one for one in self.findings if one.kind == kind]

    @property
    def found(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        return {kind.value: len(self.of_kind(kind)) for kind in Kind}


def cpa_import(
    *, octets: bytes, own: str, actor: Actor, reason: str, dry_run: bool = False, activate: bool = False
) -> CpaReport:
    """Makes and changes what a document says; terms that differ become a draft, which `activate` puts in force.

    `own`: which of its PartyIds is ours, "" if a party of ours has one of them. All or nothing: raises
    InvalidSubmission (no reason; fields `cpa`, `own`; field `bundle` with every problem of what would be made), and
    then nothing was done.
    """
    found = read(octets, own)
    report = bundle_import(bundle=found.bundle, actor=actor, reason=reason, dry_run=dry_run, activate=activate)
    return CpaReport(report, found.findings)


def octets_of(text: str) -> bytes:
    """A document that came as text, whatever encoding it says it has."""
    declared = _DECLARATION.match(text)
    return text[declared.end() if declared else 0 :].encode("utf-8", "surrogatepass")


def read(octets: bytes, own: str = "") -> Proposal:
    """What a document would make here. Raises InvalidSubmission (fields `cpa`, `own`)."""
    if not octets.strip():
        raise InvalidSubmission({"cpa": [_("Choose a file, or paste the text of a CPA 2.0.")]})
    now = clock.now()
    try:
        found = reading.read(octets, now)
    except CpaUnreadable as error:
        raise InvalidSubmission(
            {"cpa": [_located(one.text, one.place.line, one.place.path) for one in error.faults]}
        ) from error
    us = _ours(found.cpa, own.strip())
    try:
        held = hold(view_of(found.cpa, us))
    except NotHeld as error:
        raise InvalidSubmission({"cpa": [_located(one.text, one.line, one.path) for one in error.findings]}) from error
    own_party, partner = _known(us), _known(held.partner.party)
    if own_party is not None and not own_party.is_own:
        text = _("{party} has this identifier and is not marked as ours: choose the other PartyId.")
        raise InvalidSubmission({"own": [text.format(party=own_party)]})
    here = _here(held, own_party, partner)
    return Proposal(_bundle(found.cpa, held, own_party, partner, now), (*found.findings, *held.findings, *here))


def _located(text: str, line: int, path: str) -> str:
    return _("line {line}, {path}: {text}").format(line=line, path=path, text=text) if line else text


def _called(one: model.PartyId) -> str:
    return f"{one.type}:{one.id}" if one.type else one.id


def _ours(cpa: model.Cpa, own: str) -> model.Party:
    """The party of the document that is ours. Raises InvalidSubmission (field `own`)."""
    if own:
        found = [party for party in cpa.parties if any(own in (one.id, _called(one)) for one in party.ids)]
    else:
        found = [party for party in cpa.parties if any(one.is_own for one in selectors.owners(_identifiers(party)))]
    if len(found) == 1:
        return found[0]
    if own:
        text = _("Both parties have {own}: say which PartyId is ours.") if found else _("No party has {own}.")
    elif found:
        text = _("Both parties are ours: say which PartyId is ours in this agreement.")
    else:
        text = _("No party of ours has one of these PartyIds: say which is ours.")
    ids = "; ".join(f"{party.name}: {', '.join(_called(one) for one in party.ids)}" for party in cpa.parties)
    raise InvalidSubmission({"own": [f"{text.format(own=own)} {ids}."]})


def _identifiers(party: model.Party) -> list[tuple[str, str]]:
    """Those that a party here can have."""
    return [(one.type, one.id) for one in party.ids if one.type]


def _known(party: model.Party) -> Party | None:
    """The party here that has its identifiers. Raises InvalidSubmission (field `cpa`): there can be no such party."""
    identifiers = _identifiers(party)
    if not identifiers:
        text = _("{party} has no PartyId with a type, and identifiers have one here.").format(party=party.name)
        raise InvalidSubmission({"cpa": [_located(text, party.place.line, party.place.path)]})
    found = list(selectors.owners(identifiers))
    if len(found) > 1:
        names = ", ".join(str(one) for one in found)
        text = _("The PartyIds of {party} belong to several parties here: {names}.")
        raise InvalidSubmission({"cpa": [text.format(party=party.name, names=names)]})
    if found and found[0].archived_at is not None:
        raise InvalidSubmission({"cpa": [_("{party} is archived here: restore it first.").format(party=found[0])]})
    if not found and Party.objects.filter(name=party.name).exists():
        text = _("{party} is here, with other identifiers: give it one of {identifiers}, or another name.")
        said = ", ".join(_called(one) for one in party.ids)
        raise InvalidSubmission({"cpa": [text.format(party=party.name, identifiers=said)]})
    return found[0] if found else None


def _bundle(cpa: model.Cpa, held: Holding, own: Party | None, partner: Party | None, now: datetime) -> Bundle:
    trusted = "".join(one.pem for one in _readable(held.trusted))
    proofs = tuple(
        BundleCertificate(kind.value, one)
        for kind, given in _certificates(held.partner)
        for one in _readable(given)
        if not one.expired(now)  # a finding says so
    )
    sides = (
        replace(
            _party(held.own, own, is_own=True),
            endpoints=(_endpoint(cpa, held.own, own, keep=True),),
        ),
        replace(
            _party(held.partner, partner, is_own=False),
            endpoints=(_endpoint(cpa, held.partner, partner, trusted=trusted),),
            certificates=proofs,
        ),
    )
    agreement = BundleAgreement(
        tpa_id=cpa.id,
        name="",
        own_party=sides[0].name,
        partner=sides[1].name,
        own_endpoint=held.own.uri,
        partner_endpoint=held.partner.uri,
        services=held.services,
        terms={"profile": Profile.EBMS2.value, **held.terms},
        state=VersionState.ACTIVE.value,  # so that an import which activates puts it in force
    )
    return Bundle(sides, (agreement,), by_name=True)


def _party(side: Side, known: Party | None, *, is_own: bool) -> BundleParty:
    """A party that is here keeps all that it has; a partner gets the identifiers that it lacks."""
    identifiers = _identifiers(side.party)
    if known is None:
        return BundleParty(side.party.name, is_own, {"name": side.party.name, "identifiers": identifiers}, (), ())
    fields: dict[str, Any] = {"name": known.name}
    if not known.is_own:
        had = [(one.context, one.value) for one in known.identifiers.all()]
        fields["identifiers"] = [*had, *(one for one in identifiers if one not in had)]
    groups = tuple(group.name for group in known.groups.all())
    return BundleParty(known.name, known.is_own, fields, groups, ())


def _endpoint(
    cpa: model.Cpa, side: Side, owner: Party | None, *, trusted: str = "", keep: bool = False
) -> BundleEndpoint:
    """`keep`: one that is here stays as it is, because other agreements have it too."""
    known = find_endpoint(side.uri)
    if known is not None and keep:
        return BundleEndpoint(side.uri, {"uri": known.uri})
    transport = transports.SMTP if side.uri.lower().startswith("mailto:") else transports.HTTP
    fields = {"uri": known.uri if known else side.uri, "error_uri": side.error_uri, "transport": transport.name}
    if trusted:
        fields["trusted_certificates"] = trusted
    if known is None and owner is not None and Endpoint.objects.filter(party=owner).exists():
        fields["name"] = cpa.id[:80]
    return BundleEndpoint(side.uri, fields)


def _readable(given: Iterable[model.Certificate]) -> list[CertificateFacts]:
    """Their facts; those that cannot be read have a finding."""
    found = []
    for one in given:
        try:
            found.append(certificates.facts(one.der))
        except ValueError:
            continue
    return found


def _here(held: Holding, own: Party | None, partner: Party | None) -> Iterator[Finding]:
    """What does not fit with what is here."""
    for party in (held.own.party, held.partner.party):
        for one in party.ids:
            if not one.type:
                yield _conflict(one, Matter.NO_TYPE, f"{one.id} has no type, and identifiers have one here: left out.")
    if own is not None:
        had = {(one.context, one.value) for one in own.identifiers.all()}
        for one in held.own.party.ids:
            if one.type and (one.type, one.id) not in had:
                text = (
                    f"{own} does not have {_called(one)}, so that no message says it: add it if the partner needs it."
                )
                yield _conflict(one, Matter.OUR_IDENTIFIER, text)
    known = find_endpoint(held.own.uri)
    if known is not None and known.error_uri != held.own.error_uri:
        text = f"Errors go to {known.error_uri} here, and not to {held.own.error_uri}: our endpoint stays as it is."
        yield _conflict(held.own.channel, Matter.OUR_ENDPOINT, text)
    yield from dict.fromkeys(found for flow in held.flows for found in _service_type(flow))
    yield from _own_certificates(held, partner)


def _service_type(flow: Flow) -> Iterator[Finding]:
    written = "" if has_scheme(flow.service) else "string"
    if flow.service_type != written:
        called = f"the type {written}" if written else "no type"
        text = f"Messages of this hub give the service {flow.service} {called}, and here it is {flow.service_type!r}."
        yield _conflict(flow.sender_role, Matter.SERVICE_TYPE, text)


def _certificates(side: Side) -> tuple[tuple[CredentialKind, tuple[model.Certificate, ...]], ...]:
    """The certificates of a side, by the kind of the credentials that they are."""
    return (
        (CredentialKind.CERTIFICATE, side.clients),
        (CredentialKind.SIGNING, side.signers),
        (CredentialKind.ENCRYPTION, side.recipients),
    )


def _own_certificates(held: Holding, partner: Party | None) -> Iterator[Finding]:
    """Our certificates in the document, whose private keys are not here yet."""
    stored = selectors.credentials(party_id=partner.pk) if partner else selectors.credentials().none()
    ours = stored.filter(direction=CredentialDirection.OUTBOUND, revoked_at=None)
    known = set(ours.values_list("kind", "fingerprint"))
    for kind, given in _certificates(held.own):
        for one in given:
            for facts in _readable([one]):
                if (kind.value, facts.fingerprint) not in known:
                    text = f"{one.id} is a certificate of ours ({kind.value}): store it with its private key."
                    yield _conflict(one, Matter.OUR_CERTIFICATE, text)


def _conflict(where: Placed, matter: Matter, text: str) -> Finding:
    return Finding(Kind.CONFLICTING, where.place.path, where.place.line, text, matter)
