"""A pair is disabled while no agreement in force uses it: it keeps what waits, and goes on when one is again."""

from __future__ import annotations

import pytest
from django.db import transaction

from messaging.engine import pairs
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Pair
from messaging.onboarding.services import changing as onboarding
from messaging.protocol.pair_state import Flow, Gate
from partners import registry
from partners.models import Agreement
from tests.messaging.factories import Link, PartnerSide, link, partner_side, submit, work

pytestmark = pytest.mark.django_db
ANA = Actor("ana", "console")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch):
    with link() as found:
        yield found


def change(partner: PartnerSide, verb: str) -> None:
    agreement = Agreement.objects.get(tpa_id=partner.terms.tpa_id)
    getattr(onboarding, f"agreement_{verb}")(agreement_id=agreement.pk, actor=ANA, reason="Contract ended.")


def test_disabling_the_agreement_holds_the_pair_and_enabling_lets_it_go(wire: Link) -> None:
    partner = partner_side()
    first, second = submit(partner), submit(partner)
    work()
    change(partner, "disable")
    registry.reset()
    assert partner.outbound.gate == Gate.DISABLED
    # The answer to what went out before still counts; the next message waits.
    partner.send(partner.acknowledgement(wire.last))
    work()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("delivered", "queued")
    assert (partner.outbound.flow, partner.outbound.queued) == (Flow.IDLE, 1)

    change(partner, "enable")
    registry.reset()
    work()
    assert partner.outbound.gate == Gate.OPEN
    assert len(wire.parcels) == 2
    assert {"agreement.disable", "agreement.enable"} <= set(AuditEntry.objects.values_list("verb", flat=True))


def test_pairs_of_agreements_in_force_are_left_alone(wire: Link) -> None:
    partner = partner_side()
    submit(partner)
    assert pairs.close_unagreed() == 0
    assert partner.outbound.gate == Gate.OPEN


def test_a_pair_that_was_rolled_back_is_made_again() -> None:
    """Its number must not be remembered: every later message would name a pair that does not exist."""
    partner = partner_side()
    Pair.objects.all().delete()
    pairs.reset()
    with pytest.raises(RuntimeError), transaction.atomic():
        lost = pairs.outbound_pair_id(partner.terms)
        assert pairs.outbound_pair_id(partner.terms) == lost
        raise RuntimeError
    found = pairs.outbound_pair_id(partner.terms)
    assert found != lost
    assert Pair.objects.filter(pk=found).exists()
