"""Parties, endpoints and agreements as one JSON document: out of one hub, and into another (or back).

An import does all of it or nothing. A dry run does the same and takes it back, so that what it says is what would
happen. Importing what is there already changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from messaging.differences import Change, changes
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.onboarding.services import changing as onboarding
from messaging.onboarding.services.bundle_format import (
    FORMAT,
    VERSION,
    Bundle,
    BundleAgreement,
    BundleCertificate,
    BundleEndpoint,
    BundleParty,
    write_agreement,
    write_party,
)
from partners import selectors, services
from partners.addresses import normalise_uri
from partners.choices import CredentialDirection, VersionState
from partners.exceptions import PartnersError
from partners.exceptions import WrongState as PartnersWrongState
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, PartnerGroup, Party
from rmhub import clock


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in a bundle. `action`: create, change, same, or problem (`problem` says which)."""

    kind: str
    name: str
    action: str
    changes: tuple[Change, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class ImportReport:
    """What an import did, or (`dry_run`) would do."""

    dry_run: bool
    items: list[Item] = field(default_factory=list)

    @property
    def problems(self) -> list[Item]:
        return [item for item in self.items if item.action == "problem"]

    def count(self, action: str) -> int:
        return sum(item.action == action for item in self.items)

    @property
    def counts(self) -> dict[str, int]:
        return {action: self.count(action) for action in ("create", "change", "same", "problem")}


def bundle_export(*, party_ids: Sequence[uuid.UUID] | None = None) -> dict[str, Any]:
    """The bundle of these partners and whatever their agreements need, or of all that are in use. No secret in it.

    Of each agreement the version that counts: the active one, else the disabled one, else the newest.
    """
    agreements = list(selectors.agreements())
    chosen: set[uuid.UUID] | None = None
    if party_ids is not None:
        agreements = [one for one in agreements if one.partner_id in party_ids or one.own_party_id in party_ids]
        chosen = {*party_ids, *(one.own_party_id for one in agreements), *(one.partner_id for one in agreements)}
    versions = {one.pk: version for one in agreements if (version := selectors.current_version(one)) is not None}
    if chosen is not None:
        chosen |= {version.partner_endpoint.party_id for version in versions.values()}
    every = selectors.parties().prefetch_related("groups", "endpoints")
    parties = [one for one in every if (one.archived_at is None if chosen is None else one.pk in chosen)]
    return {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": clock.now().isoformat(),
        "hub": settings.RMHUB_NAME,
        "parties": [write_party(one, sorted(one.endpoints.all(), key=lambda end: end.uri)) for one in parties],
        "agreements": [write_agreement(one, versions[one.pk]) for one in agreements if one.pk in versions],
    }


def bundle_import(
    *, bundle: Bundle, actor: Actor, reason: str, dry_run: bool = False, activate: bool = False
) -> ImportReport:
    """Makes and changes what the bundle says; terms that differ become a draft, which `activate` puts in force.

    `activate`: only agreements that were active where the bundle was made. All or nothing: raises InvalidSubmission
    (no reason; field `bundle` with every problem) and then nothing was done.
    """
    if not dry_run:
        audit.require_reason(reason)
    report = ImportReport(dry_run)
    ready: list[AgreementVersion] = []
    with transaction.atomic():
        for party in bundle.parties:
            _step(report, "party", party.name, lambda party=party: _party(party, bundle, actor, reason))  # type: ignore[misc]
            for endpoint in party.endpoints:
                _step(
                    report,
                    "endpoint",
                    endpoint.uri,
                    lambda party=party, endpoint=endpoint: _endpoint(party, endpoint, bundle, actor, reason),  # type: ignore[misc]
                )
            for one in party.certificates:
                _step(
                    report,
                    "credential",
                    one.name,
                    lambda party=party, one=one: _certificate(party, one, bundle, actor, reason),  # type: ignore[misc]
                )
        for agreement in bundle.agreements:
            _step(
                report,
                "agreement",
                agreement.tpa_id,
                lambda agreement=agreement: _agreement(agreement, actor, reason, ready if activate else None),  # type: ignore[misc]
            )
        if dry_run or report.problems:
            transaction.set_rollback(True)
    if report.problems and not dry_run:
        raise InvalidSubmission({"bundle": [_told(item) for item in report.problems]})
    if ready and not dry_run:
        # After the commit: pairs follow what is in force, and processes must not see what may be taken back.
        onboarding.versions_activate(versions=ready, actor=actor, reason=reason)
    return report


def _told(item: Item) -> str:
    """A problem with what it is about."""
    texts = {
        "party": _("party {name}: {problem}"),
        "endpoint": _("endpoint {name}: {problem}"),
        "credential": _("credential {name}: {problem}"),
        "agreement": _("agreement {name}: {problem}"),
    }
    return texts[item.kind].format(name=item.name, problem=item.problem)


def _step(report: ImportReport, kind: str, name: str, do: Callable[[], Item]) -> None:
    """One thing in a savepoint of its own, so that all problems are found and not only the first."""
    try:
        with transaction.atomic():
            report.items.append(do())
    except (ApplicationError, PartnersError) as error:
        said = error.why if isinstance(error, PartnersWrongState) else str(error)
        report.items.append(Item(kind, name, "problem", problem=said))


def _compared(kind: str, name: str, before: dict[str, Any], after: dict[str, Any]) -> Item:
    found = tuple(changes(before, after))
    return Item(kind, name, "change" if found else "same", found)


def find_party(name: str, identifiers: Sequence[tuple[str, str]] = ()) -> Party | None:
    """The party of that name, else the one that has one of these identifiers."""
    known = Party.objects.filter(name=name).first()
    for context, value in () if known is not None else identifiers:
        known = known or Party.objects.filter(identifiers__context=context, identifiers__value=value).first()
    return known


def find_endpoint(uri: str) -> Endpoint | None:
    """The endpoint with this URI, as URIs are compared."""
    same = Endpoint.objects.filter(uri__iexact=uri.strip()).select_related("party")
    return next((one for one in same if normalise_uri(one.uri) == normalise_uri(uri)), None)


def _known(given: BundleParty, bundle: Bundle) -> Party | None:
    return find_party(given.name, () if bundle.by_name else given.fields.get("identifiers", ()))


def _party(given: BundleParty, bundle: Bundle, actor: Actor, reason: str) -> Item:
    fields = dict(given.fields)
    fields["groups"] = [PartnerGroup.objects.get_or_create(name=name)[0].pk for name in given.groups]
    known = _known(given, bundle)
    if known is None:
        made = onboarding.party_create(actor=actor, reason=reason, is_own=given.is_own, **fields)
        return Item("party", given.name, "create", tuple(changes({}, onboarding.describe(made))))
    before = onboarding.describe(selectors.party(known.pk))
    with transaction.atomic():
        after = onboarding.describe(
            onboarding.party_update(party_id=known.pk, actor=actor, reason=reason, is_own=given.is_own, **fields)
        )
        item = _compared("party", given.name, before, after)
        if item.action == "same":  # no entry in the audit log for nothing
            transaction.set_rollback(True)
    return item


def _owner(given: BundleParty, bundle: Bundle) -> Party:
    owner = _known(given, bundle)
    if owner is None:
        raise InvalidSubmission({"party": [_("{name} could not be created.").format(name=given.name)]})
    return owner


def _certificate(party: BundleParty, given: BundleCertificate, bundle: Bundle, actor: Actor, reason: str) -> Item:
    """A certificate of a partner. One that was revoked here stays so."""
    owner, facts = _owner(party, bundle), given.facts
    had = Credential.objects.filter(party=owner, direction=CredentialDirection.INBOUND, kind=given.kind)
    if had.filter(fingerprint=facts.fingerprint).exists():
        return Item("credential", given.name, "same")
    made, _secret = onboarding.credential_issue(
        party_id=owner.pk, actor=actor, reason=reason, kind=given.kind, certificate=facts.pem, label=facts.title[:80]
    )
    return Item("credential", given.name, "create", tuple(changes({}, onboarding.describe(made))))


def _endpoint(party: BundleParty, given: BundleEndpoint, bundle: Bundle, actor: Actor, reason: str) -> Item:
    owner = _owner(party, bundle)
    known = find_endpoint(given.uri)
    if known is None:
        made = onboarding.endpoint_create(party_id=owner.pk, actor=actor, reason=reason, **given.fields)
        return Item("endpoint", given.uri, "create", tuple(changes({}, onboarding.describe(made))))
    if known.party_id != owner.pk:
        raise InvalidSubmission(
            {"uri": [_("{party} has this endpoint here, and not {owner}.").format(party=known.party, owner=owner)]}
        )
    before = onboarding.describe(known)
    with transaction.atomic():
        after = onboarding.describe(
            onboarding.endpoint_update(endpoint_id=known.pk, actor=actor, reason=reason, **given.fields)
        )
        item = _compared("endpoint", given.uri, before, after)
        if item.action == "same":
            transaction.set_rollback(True)
    return item


def _agreement(given: BundleAgreement, actor: Actor, reason: str, ready: list[AgreementVersion] | None) -> Item:
    ends = {
        "own_endpoint": find_endpoint(given.own_endpoint),
        "partner_endpoint": find_endpoint(given.partner_endpoint),
    }
    for name, end in ends.items():
        if end is None:
            raise InvalidSubmission({name: [_("There is no endpoint with this URI, and the bundle has none either.")]})
    named = {f"{name}_id": end.pk for name, end in ends.items() if end is not None}
    known = Agreement.objects.filter(tpa_id=given.tpa_id).first()
    if known is None:
        sides = {name: Party.objects.filter(name=getattr(given, name)).first() for name in ("own_party", "partner")}
        for name, side in sides.items():
            if side is None:
                raise InvalidSubmission({name: [_("There is no party of this name, and the bundle has none either.")]})
        made = onboarding.agreement_create(
            tpa_id=given.tpa_id,
            name=given.name,
            actor=actor,
            reason=reason,
            allowed=given.services,
            **named,
            **{f"{name}_id": side.pk for name, side in sides.items() if side is not None},
            **given.terms,
        )
        version = selectors.version(made.versions.all()[0].pk)
        item = Item("agreement", given.tpa_id, "create", tuple(changes({}, onboarding.describe(version))))
    else:
        item, version = _newer_terms(known, given, named, actor, reason)
    if ready is not None and given.state == VersionState.ACTIVE and version.state == VersionState.DRAFT:
        if errors := [one for one in services.version_validate(version=version) if one.level is services.Level.ERROR]:
            raise onboarding.InvalidAgreement(errors)
        ready.append(version)
    return item


def _newer_terms(
    known: Agreement, given: BundleAgreement, named: dict[str, Any], actor: Actor, reason: str
) -> tuple[Item, AgreementVersion]:
    """The bundle's terms as the draft of an agreement that there is, unless its newest version has them already."""
    if known.partner.name != given.partner or known.own_party.name != given.own_party:
        text = _("{agreement} is between {own_party} and {partner} here.").format(
            agreement=known.tpa_id, own_party=known.own_party, partner=known.partner
        )
        raise InvalidSubmission({"partner": [text]})
    newest = known.versions.order_by("-number")[0]
    before = onboarding.describe(selectors.version(newest.pk))
    with transaction.atomic():
        number = newest.number
        if newest.state != VersionState.DRAFT:
            number = onboarding.version_new(agreement_id=known.pk, actor=actor, reason=reason, note="").number
        changed = onboarding.version_edit(
            agreement_id=known.pk,
            number=number,
            actor=actor,
            reason=reason,
            allowed=given.services,
            **named,
            **given.terms,
        )
        after = onboarding.describe(changed)
        # A note says what a version changes here, and is not a term of its own.
        item = _compared("agreement", given.tpa_id, before | {"note": ""}, after | {"note": ""})
        if item.action == "same":
            transaction.set_rollback(True)
    return item, selectors.version(newest.pk) if item.action == "same" else changed
