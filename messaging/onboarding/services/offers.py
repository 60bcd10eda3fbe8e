"""Certificates that a partner's people upload in the portal: offered, then accepted or declined by one of ours.

Nothing is trusted before: whoever has taken over an account of the partner must not be able to take over its
connection. What is accepted is trusted beside what was trusted before, so that the partner can change over in its time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from messaging.choices import CertificateUse, IncidentState, OfferState
from messaging.engine import pairs
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import Incident, OfferedCertificate, Pair
from messaging.models.base import existing
from messaging.onboarding import selectors
from messaging.onboarding.services import changing
from messaging.resource import Resource, Verb
from partners import certificates, registry
from partners.choices import CredentialKind
from partners.exceptions import InvalidInput
from partners.models import Credential, Endpoint
from rmhub import clock
from rmhub.language import gettext_lazy

CAUSE = "certificate_offered"
MOST_WAITING = 10  # of one partner


def certificate_offer(
    *, party_id: uuid.UUID, endpoint_id: uuid.UUID | None, octets: bytes, actor: Actor, note: str = ""
) -> OfferedCertificate:
    """Stores a certificate (PEM or DER) that a partner offers, and tells our people by an incident.

    `endpoint_id`: of the partner's server that shows it; None for one that the partner shows when it calls us. The
    same one again is the same offer. Raises InvalidSubmission by field.
    """
    now = clock.now()
    use = CertificateUse.CLIENT if endpoint_id is None else CertificateUse.SERVER
    try:
        found = certificates.read(certificates.read_upload(octets))
    except ValueError as error:
        raise InvalidSubmission({"file": [str(error)]}) from error
    errors: dict[str, list[str]] = {}
    if len(found) != 1:
        errors["file"] = [
            _("The file has {count} certificates: upload one at a time, without its issuers.").format(count=len(found))
        ]
    elif found[0].expired(now):
        errors["file"] = [_("This certificate expired on {date}.").format(date=f"{found[0].not_after:%Y-%m-%d}")]
    elif _known(endpoint_id, found[0].fingerprint):
        errors["file"] = [_("This certificate is in use already.")]
    if endpoint_id is not None and not selectors.pinned_servers(party_id).filter(pk=endpoint_id).exists():
        errors["endpoint"] = [_("Choose one of your servers.")]
    if len(note) > 255 or not note.replace("\n", " ").isprintable():
        errors["note"] = [_("At most 255 characters, without control characters.")]
    waiting = OfferedCertificate.objects.filter(party=party_id, state=OfferState.WAITING)
    if waiting.count() >= MOST_WAITING:
        errors["file"] = [_("{count} certificates wait for a decision already.").format(count=MOST_WAITING)]
    if errors:
        raise InvalidSubmission(errors)
    with transaction.atomic():
        offer = OfferedCertificate(
            party_id=party_id,
            use=use,
            endpoint_id=endpoint_id,
            certificate=found[0].pem,
            fingerprint=found[0].fingerprint,
            note=note.strip(),
            offered_by=actor.name[:150],
            created_at=now,
        )
        OfferedCertificate.objects.bulk_create([offer], ignore_conflicts=True)
        kept = waiting.get(use=use, endpoint=endpoint_id, fingerprint=offer.fingerprint)
        if kept.pk == offer.pk:
            after = {"use": use, "fingerprint": offer.fingerprint, "note": offer.note}
            audit.record(actor, "certificate.offer", offer, after=after)
            _tell(party_id, now)
    return kept


def offer_accept(*, offer_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> object:
    """Trusts the certificate from now on, beside those of before. Raises NotFound, WrongState, InvalidSubmission."""

    def trust(offer: OfferedCertificate) -> None:
        why = f"Offered by {offer.offered_by} in the partner portal. {reason}"
        try:
            if offer.endpoint is None:
                shown = {"kind": CredentialKind.CERTIFICATE, "certificate": offer.certificate}
                label = offer.facts.title[:80]
                changing.credential_issue(party_id=offer.party_id, actor=actor, reason=why, label=label, **shown)
            else:
                both = f"{offer.endpoint.trusted_certificates}\n{offer.certificate}"
                changing.endpoint_trust(endpoint_id=offer.endpoint.pk, certificates_pem=both, actor=actor, reason=why)
        except InvalidInput as error:
            raise InvalidSubmission({"": [text for texts in error.errors.values() for text in texts]}) from error

    return _decide(offer_id, OfferState.ACCEPTED, actor, reason, trust)


def offer_decline(*, offer_id: uuid.UUID, actor: Actor, reason: str, expected_version: str | None = None) -> object:
    """Leaves everything as it is; the partner reads the reason. Raises NotFound, WrongState, InvalidSubmission."""
    return _decide(offer_id, OfferState.DECLINED, actor, reason, lambda offer: None)


def _decide(
    offer_id: uuid.UUID, state: OfferState, actor: Actor, reason: str, act: Callable[[OfferedCertificate], None]
) -> OfferedCertificate:
    audit.require_reason(reason)
    now = clock.now()
    with transaction.atomic():
        offer = existing(selectors.offers().select_for_update(of=("self",)), offer_id)
        if offer.state != OfferState.WAITING:
            accepted = offer.state == OfferState.ACCEPTED
            said = (
                _("{person} has accepted this certificate already.")
                if accepted
                else _("{person} has declined this certificate already.")
            )
            raise WrongState(said.format(person=offer.decided_by), state=offer.state)
        act(offer)
        offer.state, offer.decided_by, offer.decided_at, offer.answer = state, actor.name[:150], now, reason[:500]
        offer.save(update_fields=["state", "decided_by", "decided_at", "answer"])
        audit.record(actor, f"certificate.{state}", offer, reason=reason, after={"fingerprint": offer.fingerprint})
        if not OfferedCertificate.objects.filter(party=offer.party_id, state=OfferState.WAITING).exists():
            _settle(offer.party_id, actor.name, now)
    return offer


def _known(endpoint_id: uuid.UUID | None, fingerprint: str) -> bool:
    if endpoint_id is None:
        return Credential.objects.filter(fingerprint=fingerprint, revoked_at__isnull=True).exists()
    endpoint = Endpoint.objects.filter(pk=endpoint_id).first()
    return endpoint is not None and any(
        one.fingerprint == fingerprint for one in certificates.read(endpoint.trusted_certificates)
    )


def _tell(party_id: uuid.UUID, now: datetime) -> None:
    """Opens an incident on the pair on which we send; a partner without an agreement in force has none yet."""
    terms = next((one for one in registry.current().active() if one.hop_party_id == party_id), None)
    pair_id = pairs.outbound_pair_id(terms) if terms is not None else None
    for pair in Pair.locked([pair_id] if pair_id is not None else []).values():
        detail = "A certificate waits for your decision under Certificates, Offered by partners."
        __, written = incidents.incident_open(pair=pair, cause=CAUSE, now=now, detail=detail)
        events.write(written)


def _settle(party_id: uuid.UUID, by: str, now: datetime) -> None:
    open_now = Incident.objects.filter(cause=CAUSE, pair__partner=party_id).exclude(state=IncidentState.RESOLVED)
    said = "Every certificate that the partner offered is accepted or declined."
    for pair in Pair.locked([key for key in open_now.values_list("pair_id", flat=True) if key]).values():
        events.write(incidents.incidents_resolve_for_pair(pair=pair, now=now, by=by, resolution=said, causes=(CAUSE,)))


OFFERS = Resource(
    name=gettext_noop("offer"),
    plural="offered-certificates",
    many=gettext_lazy("offered certificates"),
    prefix=OfferedCertificate.PREFIX,
    reads="partners:read",
    changes="partners:write",
    rows=selectors.offers,
    one=selectors.offer,
    order=("-id",),
    possible=lambda offer: ("accept", "decline") if offer.state == OfferState.WAITING else (),
    state=lambda offer: offer.state,
    why_not=lambda offer: (
        _("It is accepted already.") if offer.state == OfferState.ACCEPTED else _("It is declined already.")
    ),
    revision=lambda offer: offer.state,
    read_revision=str,
    verbs=(
        Verb(
            "accept",
            gettext_lazy("Accept"),
            "shield-check",
            "primary",
            offer_accept,
            (
                gettext_lazy("Compare the fingerprint with the partner over another channel first."),
                gettext_lazy("From now on the certificate is trusted, beside those that are trusted today."),
            ),
            gettext_lazy("Nothing here is irreversible: it can be revoked or removed later."),
            (gettext_lazy("Fingerprint compared by telephone"),),
            gettext_lazy("is accepted"),
            "Trust the certificate, beside those of before",
        ),
        Verb(
            "decline",
            gettext_lazy("Decline"),
            "x",
            "danger",
            offer_decline,
            (gettext_lazy("Nothing changes. The partner reads your reason in the portal."),),
            gettext_lazy("The partner can upload the certificate again."),
            (gettext_lazy("The fingerprint is another one"), gettext_lazy("Not asked for")),
            gettext_lazy("is declined"),
            "Do not trust the certificate",
        ),
    ),
)
