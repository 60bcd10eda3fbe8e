"""What screens and the API read. Querysets are ordered by a unique key, so that lists page by `after` and a slice.

Credentials come without their hashes and secrets.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import reduce
from operator import or_

from django.db.models import Prefetch, Q, QuerySet
from django.utils.translation import gettext as _

from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion, Credential, Endpoint, Party, PartyIdentifier, Poller
from partners.visibility import limit
from rmhub.ids import BadPublicId, read_public_id

_MOST_NAMES = 5_000  # that are compared with a name that is nobody's
# The orders of these lists, by what the API calls them.
PARTY_ORDERS = {"name": ("name",), "-name": ("-name",), "-created_at": ("-id",), "created_at": ("id",)}
AGREEMENT_ORDERS = {"tpa_id": ("tpa_id",), "-tpa_id": ("-tpa_id",), "-created_at": ("-id",), "created_at": ("id",)}


def named(text: str) -> QuerySet[Party]:
    """The party with this id; else those with this whole name; else those with this identifier, which may have its type
    in front: `DUNS:123456789`. Under the caller's limits.
    """
    known = parties()
    try:
        return known.filter(pk=read_public_id("par", text))
    except BadPublicId:
        pass
    by_name = known.filter(name__iexact=text)
    if by_name.exists():
        return by_name
    kind, colon, value = text.partition(":")
    same = Q(identifiers__value=text)
    if colon:
        same |= Q(identifiers__value=value.strip(), identifiers__context__iexact=kind.strip())
    return known.filter(pk__in=Party.objects.filter(same).values("pk"))


def all_named(texts: Collection[str]) -> dict[str, dict[uuid.UUID, str]]:
    """Return for each text the names, by key, of the partners that are `named` so.

    For many texts: the partners are read once. A name in the very spelling goes before those with other capitals.
    """
    known = dict(parties(is_own=False).prefetch_related(None).values_list("pk", "name")) if texts else {}
    spelled: dict[str, set[uuid.UUID]] = defaultdict(set)
    folded: dict[str, set[uuid.UUID]] = defaultdict(set)
    identified: dict[tuple[str, str], set[uuid.UUID]] = defaultdict(set)
    for key, name in known.items():
        spelled[name].add(key)
        folded[name.casefold()].add(key)
    for key, kind, value in PartyIdentifier.objects.values_list("party", "context", "value") if texts else ():
        if key in known:
            identified["", value].add(key)
            identified[kind.casefold(), value].add(key)
    found = {}
    for text in texts:
        kind, _colon, value = text.partition(":")
        try:
            keys = {read_public_id("par", text)} & known.keys()
        except BadPublicId:
            keys = spelled.get(text) or folded.get(text.casefold()) or set()
            typed = identified.get((kind.strip().casefold(), value.strip()), set())
            keys = keys or identified.get(("", text), set()) | typed
        found[text] = {key: known[key] for key in keys}
    return found


def owners(identifiers: Iterable[tuple[str, str]]) -> QuerySet[Party]:
    """Return the parties that have one of these (type, value), by name."""
    same = reduce(or_, (Q(context=context, value=value) for context, value in identifiers), Q(pk__in=[]))
    return parties().filter(pk__in=PartyIdentifier.objects.filter(same).values("party"))


def nobody(text: str) -> tuple[str, list[str]]:
    """What is said when no partner is `named` so, and up to three names that may be meant."""
    names = list(parties(is_own=False).values_list("name", flat=True)[:_MOST_NAMES])
    folded = {name.casefold(): name for name in names}
    wanted = text.casefold()
    alike = [name for key, name in folded.items() if wanted in key][:3]
    alike = alike or [folded[key] for key in get_close_matches(wanted, folded, 3, 0.6)]
    return _("No partner is called {name}.").format(name=text), alike


def parties(
    *, search: str = "", is_own: bool | None = None, archived: bool | None = None, after: str = ""
) -> QuerySet[Party]:
    """Parties with identifiers, by name; `search` looks in names and identifiers, `after` is the last name seen."""
    found = limit(Party.objects.prefetch_related("identifiers", "groups"), "pk").order_by("name")
    if search:
        found = found.filter(
            Q(name__icontains=search)
            | Q(pk__in=Party.objects.filter(identifiers__value__icontains=search).values("pk"))
        )
    if is_own is not None:
        found = found.filter(is_own=is_own)
    if archived is not None:
        found = found.filter(archived_at__isnull=not archived)
    return found.filter(name__gt=after) if after else found


def party(party_id: uuid.UUID) -> Party:
    """One party with identifiers, endpoints and credentials. Raises Party.DoesNotExist."""
    found = Party.objects.prefetch_related(
        "identifiers", "groups", "endpoints", Prefetch("credentials", queryset=credentials())
    )
    return limit(found, "pk").get(pk=party_id)


def endpoints(*, party_id: uuid.UUID | None = None, after: uuid.UUID | None = None) -> QuerySet[Endpoint]:
    """Endpoints with their parties, oldest first; `after` is the last id seen."""
    found = limit(Endpoint.objects.select_related("party"), "party").order_by("id")
    if party_id is not None:
        found = found.filter(party=party_id)
    return found.filter(id__gt=after) if after else found


def endpoint(endpoint_id: uuid.UUID) -> Endpoint:
    """One endpoint with its party. Raises Endpoint.DoesNotExist."""
    return limit(Endpoint.objects.select_related("party"), "party").get(pk=endpoint_id)


def agreements(
    *, search: str = "", party_id: uuid.UUID | None = None, state: str = "", after: str = ""
) -> QuerySet[Agreement]:
    """Agreements with parties and versions (newest first), by TPAId; `state` keeps those with a version in that state.

    `search` looks in TPAId, name and the parties' names; `after` is the last TPAId seen.
    """
    found = limit(Agreement.objects.select_related("own_party", "partner"), "partner")
    found = found.prefetch_related(_versions()).order_by("tpa_id")
    if search:
        found = found.filter(
            Q(tpa_id__icontains=search)
            | Q(name__icontains=search)
            | Q(partner__name__icontains=search)
            | Q(own_party__name__icontains=search)
        )
    if party_id is not None:
        found = found.filter(Q(own_party=party_id) | Q(partner=party_id))
    if state:
        found = found.filter(pk__in=AgreementVersion.objects.filter(state=state).values("agreement"))
    return found.filter(tpa_id__gt=after) if after else found


def agreement_named(text: str) -> Agreement | None:
    """Return the agreement with this id or this TPAId."""
    known = agreements()
    try:
        return known.filter(pk=read_public_id("agr", text)).first()
    except BadPublicId:
        return known.filter(tpa_id=text).first()


def no_agreement(text: str) -> tuple[str, list[str]]:
    """Return what is said when no agreement is `agreement_named` so, and up to three TPAIds that may be meant."""
    alike = list(agreements(search=text).values_list("tpa_id", flat=True)[:3])
    return _("There is no agreement {name}.").format(name=text), alike


def agreement(agreement_id: uuid.UUID) -> Agreement:
    """One agreement with parties and all versions, newest first. Raises Agreement.DoesNotExist."""
    found = limit(Agreement.objects.select_related("own_party", "partner"), "partner")
    return found.prefetch_related(_versions()).get(pk=agreement_id)


def version(version_id: uuid.UUID) -> AgreementVersion:
    """One version with all that belongs to its terms. Raises AgreementVersion.DoesNotExist."""
    found = AgreementVersion.objects.select_related(
        "agreement__own_party", "agreement__partner", "own_endpoint__party", "partner_endpoint__party"
    ).prefetch_related("services", "agreement__own_party__identifiers", "agreement__partner__identifiers")
    return limit(found, "agreement__partner").get(pk=version_id)


def rivals(version: AgreementVersion) -> list[AgreementVersion]:
    """Versions of other agreements that are in force on the same two endpoints, by TPAId. A disabled one comes back
    with the very terms it had, so it counts as well.
    """
    found = AgreementVersion.objects.filter(
        own_endpoint=version.own_endpoint_id,
        partner_endpoint=version.partner_endpoint_id,
        state__in=(VersionState.ACTIVE, VersionState.DISABLED),
    )
    others = limit(found.exclude(agreement=version.agreement_id), "agreement__partner")
    return list(others.select_related("agreement").order_by("agreement__tpa_id"))


def current_version(agreement: Agreement) -> AgreementVersion | None:
    """The version that counts: the active one, else the disabled one, else the newest. Reads prefetched versions."""
    versions = sorted(agreement.versions.all(), key=lambda version: -version.number)
    for state in (VersionState.ACTIVE, VersionState.DISABLED):
        for candidate in versions:
            if candidate.state == state:
                return candidate
    return versions[0] if versions else None


def credentials(*, party_id: uuid.UUID | None = None, after: uuid.UUID | None = None) -> QuerySet[Credential]:
    """Credentials without hashes and secrets, newest first; `after` is the last id seen."""
    found = limit(Credential.objects.select_related("party"), "party")
    found = found.defer("secret_hash", "secret_encrypted").order_by("-id")
    if party_id is not None:
        found = found.filter(party=party_id)
    return found.filter(id__lt=after) if after else found


def credential(credential_id: uuid.UUID) -> Credential:
    """One credential without hash and secret. Raises Credential.DoesNotExist."""
    return credentials().get(pk=credential_id)


def pollers(
    *, q: str = "", kind: Collection[str] = (), enabled: bool | None = None, party: uuid.UUID | None = None
) -> QuerySet[Poller]:
    """Mailboxes and folders with endpoint and partner, by name, without their secrets.

    `q` is looked for in name and URL; `party`: whose endpoint it is, or who puts files there.
    """
    # A mailbox that everybody writes to belongs to no partner.
    found = limit(Poller.objects.select_related("endpoint__party", "partner"), "partner")
    found = found.defer("secret_encrypted").order_by("name")
    if q:
        found = found.filter(Q(name__icontains=q) | Q(url__icontains=q))
    if kind:
        found = found.filter(kind__in=kind)
    if enabled is not None:
        found = found.filter(enabled=enabled)
    if party is not None:
        found = found.filter(Q(partner=party) | Q(endpoint__party=party))
    return found


def poller(poller_id: uuid.UUID) -> Poller:
    """One mailbox or folder without its secret. Raises Poller.DoesNotExist."""
    return pollers().get(pk=poller_id)


def _versions() -> Prefetch:
    newest_first = AgreementVersion.objects.select_related(
        "own_endpoint__party", "partner_endpoint__party"
    ).prefetch_related("services")
    return Prefetch("versions", queryset=newest_first.order_by("-number"))
