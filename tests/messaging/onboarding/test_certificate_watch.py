"""What ends soon is an incident and an event, once for each of its days, and gone when it is replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import Event, Incident
from messaging.onboarding import selectors as onboarding
from messaging.onboarding.services import certificate_watch
from partners import registry, services
from partners.models import Endpoint
from rmhub import clock
from tests.messaging.factories import PartnerSide, link, partner_side, submit, work
from tests.messaging.onboarding.authority import Authority

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
AUTHORITY = Authority()


def watch(days: float = 0) -> int:
    """One round, so many days from now."""
    with clock.frozen(NOW + timedelta(days=days)):
        registry.reset()
        return certificate_watch.watch()


def trust(partner: PartnerSide, *pem: str) -> None:
    endpoint = Endpoint.objects.get(party=partner.outbound.partner)
    services.endpoint_update(endpoint=endpoint, trusted_certificates="".join(pem))


def expiring() -> list[tuple[str, int]]:
    rows = Event.objects.filter(type="certificate.expiring").order_by("id")
    return [(row.data["title"], row.data["within_days"]) for row in rows]


def test_thirty_days_seven_days_and_the_end() -> None:
    partner = partner_side()
    trust(partner, AUTHORITY.issue("globex", days=40).certificate)
    assert watch() == 0 and not Incident.objects.exists()
    assert [watch(11), watch(11), watch(20)] == [1, 1, 1]
    assert expiring() == [("globex", 30)]
    incident = Incident.objects.get()
    assert (incident.pair, incident.cause, incident.occurrences) == (partner.outbound, "certificate_expiring", 1)
    watch(34)
    watch(41)
    assert expiring() == [("globex", 30), ("globex", 7), ("globex", 0)]
    incident.refresh_from_db()
    assert incident.occurrences == 3 and "globex" in incident.detail and "expired on" in incident.detail
    assert incident.cause == "certificate_ended", "what has ended does not end soon"
    trust(partner, AUTHORITY.issue("globex", days=400).certificate)
    assert watch(41) == 0
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by) == ("resolved", "system")


def test_a_new_one_beside_the_old_one_is_enough() -> None:
    partner = partner_side()
    trust(partner, AUTHORITY.issue("old", days=5).certificate, AUTHORITY.issue("new", days=400).certificate)
    assert watch() == 0


def test_a_delivered_message_does_not_make_it_last_longer() -> None:
    partner = partner_side()
    trust(partner, AUTHORITY.issue("globex", days=5).certificate)
    watch()
    with link() as wire:
        submit(partner)
        work()
        partner.send(partner.acknowledgement(wire.last))
    assert Incident.objects.get(cause="certificate_expiring").state == "open"


def test_one_that_a_person_knows_of_opens_again_only_for_the_next_day() -> None:
    partner = partner_side()
    trust(partner, AUTHORITY.issue("globex", days=25).certificate)
    watch()
    incident = Incident.objects.get()
    incidents.incident_resolve(incident_id=incident.pk, actor=Actor("ana"), reason="The new one comes on Monday")
    watch(1)
    assert Incident.objects.count() == 1
    watch(19)
    assert Incident.objects.filter(state="open").count() == 1


def test_a_credential_that_ends_and_has_no_successor() -> None:
    partner = partner_side()
    party = partner.outbound.partner
    end = NOW + timedelta(days=6)
    services.credential_store_outbound(party=party, kind="basic", username="hub", secret="s" * 9, valid_until=end)
    assert watch() == 1 and expiring() == [("hub", 7)]
    services.credential_store_outbound(party=party, kind="basic", username="hub", secret="t" * 9)
    assert watch() == 0


def test_the_list_has_what_ends_first_in_front() -> None:
    partner = partner_side()
    trust(partner, AUTHORITY.issue("later", days=200).certificate, AUTHORITY.issue("soon", days=5).certificate)
    services.credential_store_outbound(
        party=partner.outbound.partner,
        kind="bearer",
        secret="token",
        label="Their token",
        valid_until=NOW + timedelta(50),
    )
    with clock.frozen(NOW):
        found = onboarding.certificates()
        assert [(one.title, one.kind, one.state) for one in found] == [
            ("soon", "trusted", "ending"),
            ("Their token", "credential", "valid"),
            ("later", "trusted", "valid"),
        ]
        assert [one.title for one in onboarding.certificates(within_days=30)] == ["soon"]
