"""Certificates that partners offered in the portal: the list, and the decision about each."""

from __future__ import annotations

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.choices import OfferState
from messaging.console import cells
from messaging.console.filters import Filter
from messaging.console.resource import Column, ListPage, Pages
from messaging.models import OfferedCertificate
from messaging.onboarding.services.offers import OFFERS
from messaging.templatetags.hub import ago, state
from rmhub.language import gettext_lazy


def _certificate(offer: OfferedCertificate) -> SafeString:
    return cells.joined(
        cells.span("strong", offer.facts.title),
        cells.below(_("expires on {date}").format(date=f"{offer.facts.not_after:%Y-%m-%d}")),
        cells.below(offer.fingerprint, "mono wrap"),
    )


def _use(offer: OfferedCertificate) -> SafeString:
    where = offer.endpoint.uri if offer.endpoint is not None else ""
    return cells.joined(
        offer.get_use_display(), cells.below(where, "mono wrap"), cells.below(offer.note, "text-faint wrap")
    )


def _offered(offer: OfferedCertificate) -> SafeString:
    return cells.joined(offer.offered_by, cells.below(ago(offer.created_at)))


def _decision(offer: OfferedCertificate) -> SafeString | str:
    if offer.state != OfferState.WAITING:
        said = cells.below(offer.answer, "text-faint wrap")
        return cells.joined(f"{offer.decided_by}, ", ago(offer.decided_at), said)
    links = (
        cells.link(
            cells.to(f"offer-{verb.slug}", offer.public_id),
            cells.joined(f"{verb.label}…", cells.hidden(f" {offer.facts.title}")),
            "btn btn-sm",
            data_dialog=True,
            data_testid=f"offer-{verb.slug}",
        )
        for verb in OFFERS.verbs
    )
    return cells.joined(*links, by=" ")


PAGES = Pages(
    resource=OFFERS,
    listing=ListPage(
        lead=gettext_lazy(
            "Partners upload their new certificates in the partner portal. None is trusted before it is accepted: "
            "compare its fingerprint with the partner over another channel first."
        ),
        caption=gettext_lazy("Certificates that partners offered, newest first"),
        columns=(
            Column(gettext_lazy("State"), lambda offer: state("offer", offer.state), "nowrap"),
            Column(
                gettext_lazy("Partner"),
                lambda offer: cells.link(cells.to("partner", offer.party.public_id), offer.party),
            ),
            Column(gettext_lazy("Certificate"), _certificate),
            Column(gettext_lazy("Used for"), _use),
            Column(gettext_lazy("Offered"), _offered, "nowrap"),
            Column(gettext_lazy("Decision"), _decision, "verb"),
        ),
        filters=(
            Filter(
                "state",
                gettext_lazy("State"),
                "state",
                {"": "", **{value: value for value in OfferState.values}},
                (("", gettext_lazy("Any state")), *OfferState.choices),
            ),
        ),
        icon="shield-check",
        none_yet=gettext_lazy("No partner has offered a certificate."),
        what_then=gettext_lazy(
            "Partners upload it in the partner portal: invite their people under Users, with the role Partner."
        ),
    ),
    now=lambda offer: f"{offer.facts.title}, SHA-256 {offer.fingerprint}",
)
