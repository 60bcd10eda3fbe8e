"""Parties, endpoints, agreements and credentials, changed by a person: `partners.services` with an audit entry each.

`partners` knows no audit log (it never imports messaging), so console and API go through here. Each function is one
transaction: the change, the check against `expected` (what the person looked at), and the entry.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.engine import pairs
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from partners import certificates, registry, selectors, services
from partners.models import ENDPOINT, TERMS, Agreement, AgreementVersion, Credential, Endpoint, Party
from partners.services import Level, Problem
from partners.services.writing import writing
from rmhub import clock
from rmhub.language import gettext_lazy

Row = TypeVar("Row", bound=models.Model)
_MISSING = {
    "party": gettext_lazy("There is no such party."),
    "endpoint": gettext_lazy("There is no such endpoint."),
    "agreement": gettext_lazy("There is no such agreement."),
    "credential": gettext_lazy("There is no such credential."),
}


class InvalidAgreement(InvalidSubmission):
    """A version that contradicts itself cannot be activated; `problems` holds the errors with their codes."""

    code = "agreement_invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        errors: dict[str, list[str]] = {}
        for problem in problems:
            errors.setdefault(problem.field, []).append(problem.sentence)
        super().__init__(errors)
        self.problems = tuple(problems)


def party_create(*, actor: Actor, reason: str = "", **fields: Any) -> Party:
    """`partners.services.party_create`, audited."""
    with writing():
        made = services.party_create(**fields)
        return _created("party.create", _party(made.pk), actor, reason)


def party_update(
    *, party_id: uuid.UUID, actor: Actor, reason: str = "", expected: str | None = None, **fields: Any
) -> Party:
    """`partners.services.party_update`, audited. Raises NotFound, Stale, and what that raises."""
    with _changing("party.update", lambda: _party(party_id), actor, reason, expected) as party:
        services.party_update(party=party, **fields)
    return _party(party_id)


def party_archive(*, party_id: uuid.UUID, actor: Actor, reason: str, expected: str | None = None) -> Party:
    """Takes a party out of use. Raises NotFound, Stale, InvalidSubmission (no reason), WrongState."""
    audit.require_reason(reason)
    with _changing("party.archive", lambda: _party(party_id), actor, reason, expected) as party:
        services.party_archive(party=party)
    return _party(party_id)


def party_restore(*, party_id: uuid.UUID, actor: Actor, reason: str, expected: str | None = None) -> Party:
    """Takes an archived party into use again. Raises NotFound, Stale, InvalidSubmission (no reason), WrongState."""
    audit.require_reason(reason)
    with _changing("party.restore", lambda: _party(party_id), actor, reason, expected) as party:
        services.party_restore(party=party)
    return _party(party_id)


def endpoint_create(*, party_id: uuid.UUID, actor: Actor, reason: str = "", **fields: Any) -> Endpoint:
    """`partners.services.endpoint_create`, audited. Raises InvalidSubmission when there is no such party."""
    with writing():
        party = _named(Party, party_id, "party")
        made = services.endpoint_create(party=party, **fields)
        return _created("endpoint.create", _endpoint(made.pk), actor, reason)


def endpoint_update(
    *, endpoint_id: uuid.UUID, actor: Actor, reason: str = "", expected: str | None = None, **fields: Any
) -> Endpoint:
    """`partners.services.endpoint_update`, audited. Raises NotFound, Stale, and what that raises."""
    with _changing("endpoint.update", lambda: _endpoint(endpoint_id), actor, reason, expected) as endpoint:
        services.endpoint_update(endpoint=endpoint, **fields)
    return _endpoint(endpoint_id)


def endpoint_trust(
    *, endpoint_id: uuid.UUID, certificates_pem: str, actor: Actor, reason: str, expected: str | None = None
) -> Endpoint:
    """Replaces the certificates that the endpoint's server may show; "" = what this machine trusts.

    Raises NotFound, Stale, InvalidSubmission (no reason), InvalidInput.
    """
    audit.require_reason(reason)
    return endpoint_update(
        endpoint_id=endpoint_id, actor=actor, reason=reason, expected=expected, trusted_certificates=certificates_pem
    )


def agreement_create(
    *,
    own_party_id: uuid.UUID,
    partner_id: uuid.UUID,
    own_endpoint_id: uuid.UUID,
    partner_endpoint_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    allowed: Sequence[tuple[str, str, str]] = (),
    **fields: Any,
) -> Agreement:
    """`partners.services.agreement_create`, audited; `allowed` are (service, action or *, direction)."""
    with writing():
        made = services.agreement_create(
            own_party=_named(Party, own_party_id, "own_party"),
            partner=_named(Party, partner_id, "partner"),
            own_endpoint=_named(Endpoint, own_endpoint_id, "own_endpoint"),
            partner_endpoint=_named(Endpoint, partner_endpoint_id, "partner_endpoint"),
            services=allowed,
            **fields,
        )
        agreement = _agreement(made.pk)
        audit.record(
            actor,
            "agreement.create",
            agreement,
            reason=reason,
            after={**describe(agreement), "terms": describe(agreement.versions.all()[0])},
        )
        return agreement


def agreement_update(
    *, agreement_id: uuid.UUID, actor: Actor, reason: str = "", expected: str | None = None, **fields: Any
) -> Agreement:
    """`partners.services.agreement_update`, audited. Raises NotFound, Stale, and what that raises."""
    with _changing("agreement.update", lambda: _agreement(agreement_id), actor, reason, expected) as agreement:
        services.agreement_update(agreement=agreement, **fields)
    return _agreement(agreement_id)


def agreement_disable(*, agreement_id: uuid.UUID, actor: Actor, reason: str, expected: str | None = None) -> Agreement:
    """Takes the active version out of force. Raises NotFound, Stale, InvalidSubmission (no reason), WrongState."""
    audit.require_reason(reason)
    with _changing("agreement.disable", lambda: _agreement(agreement_id), actor, reason, expected) as agreement:
        _tell("agreement.disabled", services.agreement_disable(agreement=agreement), actor, reason)
    _pairs_follow()
    return _agreement(agreement_id)


def agreement_enable(*, agreement_id: uuid.UUID, actor: Actor, reason: str, expected: str | None = None) -> Agreement:
    """Puts the disabled version back in force. Raises NotFound, Stale, InvalidSubmission, WrongState, InvalidInput."""
    audit.require_reason(reason)
    with _changing("agreement.enable", lambda: _agreement(agreement_id), actor, reason, expected) as agreement:
        _tell("agreement.activated", services.agreement_enable(agreement=agreement), actor, reason)
    _pairs_follow()
    return _agreement(agreement_id)


def version_new(*, agreement_id: uuid.UUID, actor: Actor, reason: str = "", note: str = "") -> AgreementVersion:
    """The latest version once more, as a draft. Raises NotFound, WrongState when there is a draft."""
    with writing():
        made = services.version_new(agreement=_agreement(agreement_id), note=note)
        return _created("agreement.new_version", _version(agreement_id, made.number), actor, reason)


def version_edit(
    *,
    agreement_id: uuid.UUID,
    number: int,
    actor: Actor,
    reason: str = "",
    expected: str | None = None,
    own_endpoint_id: uuid.UUID | None = None,
    partner_endpoint_id: uuid.UUID | None = None,
    allowed: Sequence[tuple[str, str, str]] | None = None,
    **terms: Any,
) -> AgreementVersion:
    """`partners.services.version_edit`, audited. Raises NotFound, Stale, and what that raises."""
    with _changing("agreement.edit", lambda: _version(agreement_id, number), actor, reason, expected) as version:
        services.version_edit(
            version=version,
            own_endpoint=_named(Endpoint, own_endpoint_id, "own_endpoint") if own_endpoint_id else None,
            partner_endpoint=_named(Endpoint, partner_endpoint_id, "partner_endpoint") if partner_endpoint_id else None,
            services=allowed,
            **terms,
        )
    return _version(agreement_id, number)


def version_discard(
    *, agreement_id: uuid.UUID, number: int, actor: Actor, reason: str = "", expected: str | None = None
) -> None:
    """Deletes a draft, and with the only version its agreement too. Raises NotFound, Stale, WrongState."""
    with writing():
        version = _version(agreement_id, number)
        _require_fresh(version, expected)
        audit.record(actor, "agreement.discard", version, reason=reason, before=describe(version))
        services.version_discard(version=version)


def version_activate(
    *, agreement_id: uuid.UUID, number: int, actor: Actor, reason: str, expected: str | None = None
) -> AgreementVersion:
    """Puts a draft in force. Raises NotFound, Stale, InvalidSubmission (no reason), WrongState, InvalidAgreement.

    Another profile, other endpoints, or no order any more: only when no message of the version before is open
    (WrongState with the code pair_not_drained).
    """
    _activate(agreement_id, number, actor, reason, expected)
    _pairs_follow()
    return _version(agreement_id, number)


def versions_activate(*, versions: Sequence[AgreementVersion], actor: Actor, reason: str) -> None:
    """Puts drafts in force, one after the other. Raises what `version_activate` raises, for the first that cannot be;
    those before it are in force.
    """
    try:
        for version in versions:
            _activate(version.agreement_id, version.number, actor, reason, None)
    finally:
        _pairs_follow()  # once: what follows looks at all agreements


def _activate(agreement_id: uuid.UUID, number: int, actor: Actor, reason: str, expected: str | None) -> None:
    audit.require_reason(reason)
    with _changing("agreement.activate", lambda: _version(agreement_id, number), actor, reason, expected) as version:
        found = services.version_validate(version=version) if version.state == "draft" else []
        if errors := [problem for problem in found if problem.level is Level.ERROR]:
            raise InvalidAgreement(errors)
        if version.state == "draft":
            pairs.require_drained(version)
        _tell("agreement.activated", services.version_activate(version=version), actor, reason)


@sensitive_variables("secret", "fields")
def credential_issue(*, party_id: uuid.UUID, actor: Actor, reason: str = "", **fields: Any) -> tuple[Credential, str]:
    """`partners.services.credential_issue`, audited: the credential, and what is shown once."""
    with writing():
        made, secret = services.credential_issue(party=_named(Party, party_id, "party"), **fields)
        return _created("credential.issue", selectors.credential(made.pk), actor, reason), secret


@sensitive_variables("fields")
def credential_store_outbound(*, party_id: uuid.UUID, actor: Actor, reason: str = "", **fields: Any) -> Credential:
    """`partners.services.credential_store_outbound`, audited."""
    with writing():
        made = services.credential_store_outbound(party=_named(Party, party_id, "party"), **fields)
        return _created("credential.store", selectors.credential(made.pk), actor, reason)


def credential_revoke(*, credential_id: uuid.UUID, actor: Actor, reason: str) -> Credential:
    """Ends a credential for ever. Raises NotFound, InvalidSubmission (no reason), WrongState."""
    audit.require_reason(reason)
    with _changing("credential.revoke", lambda: _credential(credential_id), actor, reason, None) as credential:
        services.credential_revoke(credential=credential)
    return _credential(credential_id)


@contextmanager
def _changing(verb: str, read: Callable[[], Row], actor: Actor, reason: str, expected: str | None) -> Iterator[Row]:
    """Reads under the lock, compares with what the person saw, lets the caller change it, and writes it down."""
    with writing():
        row = read()
        _require_fresh(row, expected)
        before = describe(row)
        yield row
        changed = read()
        audit.record(actor, verb, changed, reason=reason, before=before, after=describe(changed))


def _tell(kind: str, version: AgreementVersion, actor: Actor, reason: str) -> None:
    """The event of an agreement that came into force, or went out of it. Call inside the change."""
    agreement = version.agreement
    data: dict[str, object] = {
        "agreement": agreement.tpa_id,
        "agreement_id": agreement.public_id,
        "version": version.number,
        "reason": reason,
        "actor": actor.name,
    }
    events.write([events.event(kind, clock.now(), data=data)])


def _created(verb: str, row: Row, actor: Actor, reason: str) -> Row:
    audit.record(actor, verb, row, reason=reason, after=describe(row))
    return row


def _require_fresh(row: models.Model, expected: str | None) -> None:
    if expected is not None and revision(row) != expected:
        raise Stale(
            _("{name} changed since you looked at it: look again before you change it.").format(name=row), version=0
        )


def _party(party_id: uuid.UUID) -> Party:
    return _found(lambda: selectors.party(party_id), "party")


def _endpoint(endpoint_id: uuid.UUID) -> Endpoint:
    return _found(lambda: selectors.endpoint(endpoint_id), "endpoint")


def _agreement(agreement_id: uuid.UUID) -> Agreement:
    return _found(lambda: selectors.agreement(agreement_id), "agreement")


def _credential(credential_id: uuid.UUID) -> Credential:
    return _found(lambda: selectors.credential(credential_id), "credential")


def _version(agreement_id: uuid.UUID, number: int) -> AgreementVersion:
    agreement = _agreement(agreement_id)
    for version in agreement.versions.all():
        if version.number == number:
            return selectors.version(version.pk)
    raise NotFound(_("{agreement} has no version {number}.").format(agreement=agreement, number=number))


def _found(read: Callable[[], Row], kind: str) -> Row:
    try:
        return read()
    except ObjectDoesNotExist as error:
        raise NotFound(str(_MISSING[kind])) from error


def _named(model: type[Row], pk: uuid.UUID, field: str) -> Row:
    """The row that a field of the input names."""
    found = model._default_manager.filter(pk=pk).first()
    if found is None:
        raise InvalidSubmission({field: [str(_MISSING[str(model._meta.model_name)])]})
    return found


def _pairs_follow() -> None:
    """Pairs of an agreement that is no longer in force are disabled, those of one that is again are enabled."""
    registry.recheck()
    pairs.ensure_pairs()
    pairs.close_unagreed()


# --- Parties, endpoints, agreements and credentials as the audit log holds them, and what names their present
# content.


def revision(row: models.Model) -> str:
    """Names the present content of a party, endpoint, agreement or version: it changes when they do (ETag)."""
    described = json.dumps(describe(row), sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:20]


def describe(row: models.Model) -> dict[str, Any]:
    """A row as the audit log holds it. Never a secret."""
    if isinstance(row, Party):
        identifiers = [[item.context, item.value] for item in row.identifiers.all()]
        return {
            "name": row.name,
            "is_own": row.is_own,
            "contact": row.contact,
            "identifiers": identifiers,
            "time_zone": row.time_zone,
            "hours": row.hours,
            "groups": sorted(group.name for group in row.groups.all()),
            "archived_at": _text(row.archived_at),
        }
    if isinstance(row, Endpoint):
        texts = {name: getattr(row, name) for name in ENDPOINT if name != "trusted_certificates"}
        return texts | {"certificates": _certificates_of(row)}
    if isinstance(row, Agreement):
        versions = [[version.number, version.state] for version in row.versions.all()]
        return {"tpa_id": row.tpa_id, "name": row.name, "log_columns": row.log_columns, "versions": versions}
    if isinstance(row, AgreementVersion):
        found: dict[str, Any] = {name: getattr(row, name) for name in TERMS}
        found["number"], found["state"] = row.number, row.state
        found["own_endpoint"], found["partner_endpoint"] = row.own_endpoint.public_id, row.partner_endpoint.public_id
        found["services"] = [[item.service, item.action, item.direction] for item in row.services.all()]
        return found
    assert isinstance(row, Credential)
    return {
        "party": row.party.name,
        "direction": row.direction,
        "kind": row.kind,
        "label": row.label,
        "username": row.username,
        "fingerprint": row.fingerprint,
        "valid_from": _text(row.valid_from),
        "valid_until": _text(row.valid_until),
        "revoked_at": _text(row.revoked_at),
    }


def _certificates_of(endpoint: Endpoint) -> list[dict[str, str]]:
    """Those that its server may show, by what tells them apart."""
    return [
        {"title": one.title, "fingerprint": one.fingerprint, "ends": one.not_after.isoformat()}
        for one in certificates.read(endpoint.trusted_certificates)
    ]


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
