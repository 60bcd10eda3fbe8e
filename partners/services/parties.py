"""Parties, their identifiers and their endpoints."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any
from zoneinfo import available_timezones

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from partners import certificates, transports
from partners.addresses import host_key_fault, host_keys, normalise_uri
from partners.choices import VersionState
from partners.exceptions import InvalidInput, PartnersError, WrongState
from partners.models import ENDPOINT, PARTY, Agreement, AgreementVersion, Endpoint, PartnerGroup, Party, PartyIdentifier
from partners.services.writing import assign, save_checked, writing
from partners.transports import HTTP, Transport, uri_fault
from rmhub import clock

# A disabled version comes back with the very terms it had, so it holds its endpoints as an active one does.
_IN_FORCE = (VersionState.ACTIVE, VersionState.DISABLED)


def party_create(
    *, identifiers: Sequence[tuple[str, str]] = (), groups: Sequence[uuid.UUID] = (), **settings: Any
) -> Party:
    """A new party with its identifiers, (type, value) each, the preferred one first. Raises InvalidInput.

    `settings`: of `PARTY`; `time_zone` is an IANA name, "" = unknown. `groups`: ids of the partner groups that it
    belongs to.
    """
    with writing():
        party = Party()
        assign(party, PARTY, settings)
        _check_time_zone(party)
        save_checked(party)
        _replace_identifiers(party, identifiers)
        _replace_groups(party, groups)
    return party


def party_update(
    *,
    party: Party,
    identifiers: Sequence[tuple[str, str]] | None = None,
    groups: Sequence[uuid.UUID] | None = None,
    **settings: Any,
) -> Party:
    """Changes what is given of the settings (`PARTY`); `identifiers` and `groups` replace all of them.

    Raises InvalidInput, and WrongState when an agreement depends on what would be taken away.
    """
    with writing():
        party = Party.objects.get(pk=party.pk)
        is_own = settings.get("is_own")
        if is_own is not None and is_own != party.is_own and _agreements_of(party).exists():
            raise WrongState(
                "in use", "change whether it is ours", _("Agreements name this party: create another party instead.")
            )
        if identifiers is not None and not identifiers and _in_force(party):
            raise WrongState(
                "in use",
                "remove all identifiers",
                _("An agreement in force writes them into messages: enter the new identifier in the same step."),
            )
        assign(party, PARTY, settings)
        _check_time_zone(party)
        save_checked(party)
        if identifiers is not None:
            _replace_identifiers(party, identifiers)
        if groups is not None:
            _replace_groups(party, groups)
    return party


def party_archive(*, party: Party) -> Party:
    """Takes a party out of use: it is not offered any more, and its credentials are not accepted. What it did stays.

    Raises WrongState when it is archived already, or while an agreement with it is active.
    """
    with writing():
        party = Party.objects.get(pk=party.pk)
        if party.archived_at is not None:
            raise WrongState(
                "archived",
                "archive",
                _("It was archived at {time} UTC.").format(time=f"{party.archived_at:%Y-%m-%d %H:%M:%S}"),
            )
        active = AgreementVersion.objects.filter(agreement__in=_agreements_of(party), state=VersionState.ACTIVE)
        if (version := active.select_related("agreement").first()) is not None:
            raise WrongState(
                "in use", "archive", _("Agreement {version} is active: disable it first.").format(version=version)
            )
        party.archived_at = clock.now()
        party.save(update_fields=["archived_at", "updated_at"])
    return party


def party_restore(*, party: Party) -> Party:
    """Takes an archived party into use again. Raises WrongState when it is not archived."""
    with writing():
        party = Party.objects.get(pk=party.pk)
        if party.archived_at is None:
            raise WrongState("in use", "restore", _("It is not archived."))
        party.archived_at = None
        party.save(update_fields=["archived_at", "updated_at"])
    return party


def endpoint_create(*, party: Party, **settings: Any) -> Endpoint:
    """A new endpoint with these settings (`ENDPOINT`). `error_uri` is `uri` when it is empty. Raises InvalidInput."""
    with writing():
        endpoint = Endpoint(party=party)
        assign(endpoint, ENDPOINT, settings)
        endpoint.error_uri = endpoint.error_uri or endpoint.uri
        _save_endpoint(endpoint)
    return endpoint


def endpoint_update(*, endpoint: Endpoint, **settings: Any) -> Endpoint:
    """Changes what is given of the settings (`ENDPOINT`).

    Raises InvalidInput, and WrongState when the transport or a URI would change under an agreement in force:
    they are the pair's identity. Addresses, server, host key, certificates and timeouts can change at any time.
    """
    with writing():
        endpoint = Endpoint.objects.get(pk=endpoint.pk)
        before = (endpoint.transport, endpoint.uri, endpoint.error_uri)
        assign(endpoint, ENDPOINT, settings)
        endpoint.error_uri = endpoint.error_uri or endpoint.uri
        if before != (endpoint.transport, endpoint.uri, endpoint.error_uri):
            _require_unused(endpoint)
        _save_endpoint(endpoint)
    return endpoint


def _agreements_of(party: Party) -> QuerySet[Agreement]:
    return Agreement.objects.filter(Q(own_party=party) | Q(partner=party))


def _in_force(party: Party) -> bool:
    return AgreementVersion.objects.filter(agreement__in=_agreements_of(party), state__in=_IN_FORCE).exists()


def _require_unused(endpoint: Endpoint) -> None:
    version = (
        AgreementVersion.objects.filter(Q(own_endpoint=endpoint) | Q(partner_endpoint=endpoint), state__in=_IN_FORCE)
        .select_related("agreement")
        .first()
    )
    if version is not None:
        raise WrongState(
            version.state,
            "change the endpoint's URIs",
            _(
                "Agreement {version} uses this endpoint. Create another endpoint with the new URI, "
                "and activate a new version of the agreement that names it."
            ).format(version=version),
        )


def _save_endpoint(endpoint: Endpoint) -> None:
    errors: dict[str, list[str]] = {}
    for field, needed in (("uri", True), ("error_uri", True), ("address", False), ("error_address", False)):
        text = getattr(endpoint, field).strip()
        fault = uri_fault(text, endpoint.transport) if text or needed else None
        if fault:
            errors[field] = [fault[1]]
    # Saving refuses a name that no transport has.
    transport = next((one for one in transports.ALL if one.name == endpoint.transport), HTTP)
    errors |= _server_faults(endpoint, transport) | _trust_faults(endpoint, transport)
    if not errors:
        # The database knows exact repeats only; on the wire, http://A and http://a are one URI.
        same = Endpoint.objects.filter(uri__iexact=endpoint.uri.strip()).exclude(pk=endpoint.pk).select_related("party")
        for other in same:
            if normalise_uri(other.uri) == normalise_uri(endpoint.uri):
                text = _("{party} has an endpoint with this URI already: use that one, or another URI.")
                errors["uri"] = [text.format(party=other.party)]
    if errors:
        raise InvalidInput(errors)
    save_checked(endpoint)


def _server_faults(endpoint: Endpoint, transport: Transport) -> dict[str, list[str]]:
    """What is wrong with server and host key, which only mail and files have."""
    errors: dict[str, list[str]] = {}
    endpoint.server = endpoint.server.strip()
    endpoint.host_key = " ".join(host_keys(endpoint.host_key))
    if "server" not in transport.fields and endpoint.server:
        text = _("{transport} goes to the address itself: leave the server empty, or choose mail or files.")
        errors["server"] = [text.format(transport=transport.label)]
    elif fault := transport.server_fault(endpoint.server):
        errors["server"] = [fault[1]]
    if "host_key" not in transport.fields and endpoint.host_key:
        errors["host_key"] = [_("Only file servers (SFTP) have one: leave it empty.")]
    elif endpoint.host_key and (sentence := host_key_fault(endpoint.host_key)):
        errors["host_key"] = [sentence]
    return errors


def _trust_faults(endpoint: Endpoint, transport: Transport) -> dict[str, list[str]]:
    """What is wrong with the certificates that its server may show, and with the address of its test services."""
    errors: dict[str, list[str]] = {}
    try:
        endpoint.trusted_certificates = certificates.tidy(endpoint.trusted_certificates)
    except ValueError as error:
        errors["trusted_certificates"] = [str(error)]
    if endpoint.trusted_certificates and "trusted_certificates" not in transport.fields:
        errors["trusted_certificates"] = [
            _("{transport} shows no certificate: leave this empty.").format(transport=transport.label)
        ]
        if "host_key" in transport.fields:
            errors["trusted_certificates"] = [_("File servers (SFTP) are known by their host key: leave this empty.")]
    elif endpoint.trusted_certificates and transport.relayed and not endpoint.server:
        errors["trusted_certificates"] = [_("They are of the endpoint's own mail server: enter that server too.")]
    address = endpoint.service_address.strip()
    endpoint.service_address = f"{address}/" if address and not address.endswith("/") else address
    if address and (fault := uri_fault(endpoint.service_address, HTTP.name)):
        errors["service_address"] = [fault[1]]
    elif "?" in address:
        errors["service_address"] = [_("Names are appended to this address: leave out everything from the ? on.")]
    return errors


def _check_time_zone(party: Party) -> None:
    if party.time_zone and party.time_zone not in available_timezones():
        raise InvalidInput({"time_zone": [_("There is no such time zone: enter an IANA name such as Europe/Berlin.")]})


def _replace_groups(party: Party, groups: Sequence[uuid.UUID]) -> None:
    found = list(PartnerGroup.objects.filter(pk__in=groups))
    if len(found) != len(set(groups)):
        raise InvalidInput({"groups": [_("There is no such partner group: choose from the list of groups.")]})
    party.groups.set(found)


def _replace_identifiers(party: Party, identifiers: Sequence[tuple[str, str]]) -> None:
    """Raises InvalidInput, with all that is wrong under `identifiers`."""
    PartyIdentifier.objects.filter(party=party).delete()
    errors: list[str] = []
    for rank, (context, value) in enumerate(identifiers):
        taken = PartyIdentifier.objects.filter(context=context.strip(), value=value.strip()).select_related("party")
        if (other := taken.first()) is not None:
            if other.party_id == party.pk:
                said = _("Identifier {position}: {identifier}: it is given twice.")
            elif other.party.archived_at:
                said = _("Identifier {position}: {identifier}: it belongs to {party}, which is archived.")
            else:
                said = _("Identifier {position}: {identifier}: it belongs to {party}.")
            errors.append(said.format(position=rank + 1, identifier=other, party=other.party))
            continue
        try:
            save_checked(PartyIdentifier(party=party, context=context, value=value, rank=rank))
        except PartnersError as error:
            errors.append(_("Identifier {position}: {error}").format(position=rank + 1, error=error))
    if errors:
        raise InvalidInput({"identifiers": errors})
