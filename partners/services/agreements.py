"""Agreements and their versions: draft -> active -> retired, or disabled for a while.

Only a draft can be edited. What was active once stays as it was, because messages point at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from partners import log_columns as columns_of_logs
from partners import selectors
from partners.choices import VersionState
from partners.exceptions import InvalidInput, PartnersError, WrongState
from partners.models import TERMS, Agreement, AgreementService, AgreementVersion, Endpoint, Party
from partners.rules import defaults
from partners.services.writing import assign, save_checked, writing
from partners.terms import origins, resend_waits
from partners.validation import Problem, errors_by_field, problems
from rmhub import clock


def agreement_create(
    *,
    tpa_id: str,
    own_party: Party,
    partner: Party,
    own_endpoint: Endpoint,
    partner_endpoint: Endpoint,
    services: Sequence[tuple[str, str, str]] = (),
    name: str = "",
    **terms: Any,
) -> Agreement:
    """A new agreement with version 1 as a draft; `services` are (service, action or *, direction), `terms` are `TERMS`.

    Raises InvalidInput. Contradictions between the settings are found by `version_validate`.
    """
    terms = {**defaults(terms), **terms}
    with writing():
        if not Party.objects.filter(pk=own_party.pk, is_own=True).exists():
            text = _("{party} is not marked as ours: choose a party that is.").format(party=own_party)
            raise InvalidInput({"own_party": [text]})
        if own_party.pk == partner.pk:
            raise InvalidInput({"partner": [_("Both sides are the same party: choose another partner.")]})
        agreement = Agreement(tpa_id=tpa_id, name=name, own_party=own_party, partner=partner)
        save_checked(agreement)
        version = AgreementVersion(
            agreement=agreement, number=1, own_endpoint=own_endpoint, partner_endpoint=partner_endpoint
        )
        _apply(version, terms)
        save_checked(version)
        _replace_services(version, services)
    return agreement


def agreement_update(
    *,
    agreement: Agreement,
    name: str | None = None,
    tpa_id: str | None = None,
    log_columns: Mapping[str, Any] | None = None,
) -> Agreement:
    """Changes what is given; `log_columns` is the mapping of the partner's logs (`partners.log_columns`).

    Raises InvalidInput, and WrongState when a version has been active under the TPAId.
    """
    if log_columns is not None and (faults := columns_of_logs.faults(log_columns)):
        raise InvalidInput({"log_columns": faults})
    with writing():
        agreement = Agreement.objects.get(pk=agreement.pk)
        if tpa_id is not None and tpa_id.strip() != agreement.tpa_id:
            used = agreement.versions.exclude(state=VersionState.DRAFT).order_by("-number").first()
            if used is not None:
                raise WrongState(
                    used.state, "change the TPAId", _("Messages were sent under it: create another agreement instead.")
                )
            agreement.tpa_id = tpa_id
        agreement.name = agreement.name if name is None else name
        if log_columns is not None:
            agreement.log_columns = columns_of_logs.cleaned(log_columns)
        save_checked(agreement)
    return agreement


def version_new(*, agreement: Agreement, note: str = "") -> AgreementVersion:
    """The latest version once more, as a draft with the next number. Raises WrongState when there is a draft."""
    with writing():
        latest = AgreementVersion.objects.filter(agreement=agreement).order_by("-number")[0]
        if latest.state == VersionState.DRAFT:
            raise WrongState(
                latest.state,
                "start a new version",
                _("Version {number} is still a draft: edit or activate it.").format(number=latest.number),
            )
        services = list(latest.services.values_list("service", "action", "direction"))
        kept = {
            field.attname: getattr(latest, field.attname)
            for field in AgreementVersion._meta.concrete_fields
            if field.name not in {"id", "number", "state", "note", "created_at", "activated_at", "ended_at"}
        }
        version = AgreementVersion(**kept, number=latest.number + 1, note=note)
        save_checked(version)
        _replace_services(version, services)
    return version


def version_edit(
    *,
    version: AgreementVersion,
    own_endpoint: Endpoint | None = None,
    partner_endpoint: Endpoint | None = None,
    services: Sequence[tuple[str, str, str]] | None = None,
    **terms: Any,
) -> AgreementVersion:
    """Changes what is given; `services` replaces all of them. Raises InvalidInput, and WrongState unless a draft."""
    with writing():
        version = _draft(version, "edit")
        if own_endpoint is not None:
            version.own_endpoint = own_endpoint
        if partner_endpoint is not None:
            version.partner_endpoint = partner_endpoint
        _apply(version, terms)
        save_checked(version)
        if services is not None:
            _replace_services(version, services)
    return version


def version_discard(*, version: AgreementVersion) -> None:
    """Deletes a draft, and with the only version its agreement too. Raises WrongState unless it is a draft."""
    with writing():
        version = _draft(version, "discard")
        if AgreementVersion.objects.filter(agreement=version.agreement_id).count() == 1:
            version.agreement.delete()
        else:
            version.delete()


def version_validate(*, version: AgreementVersion) -> list[Problem]:
    """What contradicts itself in the stored version: errors, which block activation, and warnings. Only reads."""
    stored = selectors.version(version.pk)
    return problems(stored, rivals=selectors.rivals(stored))


def version_activate(*, version: AgreementVersion) -> AgreementVersion:
    """Puts a draft in force, and retires the version that was active or disabled before.

    Raises WrongState unless it is a draft, and InvalidInput with the errors that `version_validate` finds.
    """
    with writing():
        version = _draft(version, "activate")
        _require_valid(version)
        now = clock.now()
        others = AgreementVersion.objects.filter(agreement=version.agreement_id)
        others.filter(state=VersionState.ACTIVE).update(state=VersionState.RETIRED, ended_at=now)
        # Disabled before: its end stays when it was disabled.
        others.filter(state=VersionState.DISABLED).update(state=VersionState.RETIRED)
        version.state = VersionState.ACTIVE
        version.activated_at = now
        version.save(update_fields=["state", "activated_at"])
    return version


def agreement_disable(*, agreement: Agreement) -> AgreementVersion:
    """Takes the active version out of force until `agreement_enable`. Raises WrongState when none is active."""
    with writing():
        version = _in_state(agreement, VersionState.ACTIVE, "disable")
        version.state = VersionState.DISABLED
        version.ended_at = clock.now()
        version.save(update_fields=["state", "ended_at"])
    return version


def agreement_enable(*, agreement: Agreement) -> AgreementVersion:
    """Puts the disabled version back in force.

    Raises WrongState when none is disabled, and InvalidInput when it is no longer valid, e.g. without identifiers.
    """
    with writing():
        version = _in_state(agreement, VersionState.DISABLED, "enable")
        _require_valid(version)
        version.state = VersionState.ACTIVE
        version.ended_at = None
        version.save(update_fields=["state", "ended_at"])
    return version


def _draft(version: AgreementVersion, verb: str) -> AgreementVersion:
    version = AgreementVersion.objects.select_related("agreement").get(pk=version.pk)
    if version.state != VersionState.DRAFT:
        raise WrongState(
            version.state,
            verb,
            _("Version {number} is frozen: start a new version of the agreement.").format(number=version.number),
        )
    return version


def _in_state(agreement: Agreement, state: VersionState, verb: str) -> AgreementVersion:
    versions = AgreementVersion.objects.filter(agreement=agreement).select_related("agreement").order_by("-number")
    wanted = versions.filter(state=state).first()
    if wanted is None:
        missing = {
            VersionState.ACTIVE: _("The agreement has no active version."),
            VersionState.DISABLED: _("The agreement has no disabled version."),
        }
        raise WrongState(versions[0].state, verb, missing[state])
    return wanted


def _require_valid(version: AgreementVersion) -> None:
    if errors := errors_by_field(version_validate(version=version)):
        raise InvalidInput(errors)


def _apply(version: AgreementVersion, terms: Mapping[str, Any]) -> None:
    assign(version, TERMS, terms)
    if "resend_schedule" in terms:
        # Every process that reads agreements counts on it, drafts included.
        try:
            version.resend_schedule = ",".join(str(wait) for wait in resend_waits(terms["resend_schedule"]))
        except ValueError as error:
            raise InvalidInput({"resend_schedule": [str(error)]}) from error
    if "other_servers" in terms:
        try:
            version.other_servers = " ".join(origins(terms["other_servers"]))
        except ValueError as error:
            raise InvalidInput({"other_servers": [str(error)]}) from error


def _replace_services(version: AgreementVersion, services: Sequence[tuple[str, str, str]]) -> None:
    """Raises InvalidInput, with all that is wrong under `services`."""
    AgreementService.objects.filter(version=version).delete()
    errors: list[str] = []
    for position, (service, action, direction) in enumerate(services, start=1):
        try:
            save_checked(AgreementService(version=version, service=service, action=action, direction=direction))
        except PartnersError as error:
            errors.append(_("Service {position}: {error}").format(position=position, error=error))
    if errors:
        raise InvalidInput({"services": errors})
