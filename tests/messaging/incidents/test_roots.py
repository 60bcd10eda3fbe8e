"""One trouble is one incident: what shows it again hangs on the first, is not counted beside it, and closes with it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from messaging import transports
from messaging.causes import CAUSES
from messaging.engine import circuits
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.journal import incidents
from messaging.journal.incident_roots import CERTIFICATE_ENDED, root_of
from messaging.models import Circuit, Event, Incident
from messaging.onboarding.services import certificate_watch
from messaging.overview.selectors import overview
from messaging.pairs.selectors import screens
from messaging.pairs.services import operating
from messaging.transports.base import server_of
from partners import registry
from partners.models import Credential
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.conftest import time  # noqa: F401  (a fixture)
from tests.messaging.console.scenes import ANA, EXPIRED
from tests.messaging.factories import PartnerSide, link, partner_side, submit
from tests.partners.factories import make_agreement, make_outbound_credential

pytestmark = pytest.mark.django_db


def attempts(times: int) -> None:
    """So many attempts of what is due, as the engine makes them."""
    for _ in range(times):
        jobs = claim_due(limit=10)
        record([(job, circuits.admit(job) or transports.send(job.transport, job.parcel)) for job in jobs])
        circuits.refresh(at_once=True)


def expired(time: FrozenClock) -> PartnerSide:  # noqa: F811
    """What we show the partner has ended; nothing that we send gets through, until the pair gives up."""
    partner = partner_side(retries=1, timeout=60, retry_interval=60, transport_retries=0)
    held = make_outbound_credential(partner.outbound.partner, username="us", secret="word")
    Credential.objects.filter(pk=held.pk).update(valid_until=clock.now() + timedelta(days=6))
    registry.reset()
    certificate_watch.watch()
    time.move(7 * 24 * 3600)
    submit(partner)
    with link(EXPIRED):
        while partner.outbound.flow != "suspended":
            attempts(1)
            time.move(61)
    return partner


def test_one_ended_certificate_is_one_incident_and_says_that_it_has_ended(time: FrozenClock) -> None:  # noqa: F811
    partner = expired(time)
    Circuit.objects.update_or_create(
        address=server_of(partner.terms.partner_address),
        defaults={"state": "open", "failures": 3, "cause": "cert_expired", "opened_at": clock.now()}
        | {"updated_at": clock.now(), "retry_at": clock.now()},
    )
    time.move(600)
    certificate_watch.watch()
    circuits.watch()
    rows = {one.cause: one for one in Incident.objects.all()}
    assert set(rows) == {CERTIFICATE_ENDED, "cert_expired"}, "the server is up: nobody says that it is down"
    ended, failed = rows[CERTIFICATE_ENDED], rows["cert_expired"]
    assert CAUSES[ended.cause].label == "Certificate or credential has expired"
    assert {ended.part_of, failed.part_of} == {None, failed} or {ended.part_of, failed.part_of} == {None, ended}
    assert overview.status(clock.now()).open_incidents == 1
    assert screens.nav_counts().incidents == 1


def test_what_hangs_on_an_incident_closes_with_it(time: FrozenClock) -> None:  # noqa: F811
    partner, other = partner_side(), partner_side()
    pair = partner.outbound
    beside = partner_side(make_agreement(partner=pair.partner)).outbound  # the same partner's other server
    now = clock.now()
    with transaction.atomic():
        first, _ = incidents.incident_open(pair=pair, cause="connect_refused", now=now)
        second, written = incidents.incident_open(pair=pair, cause="server_unreachable", now=now)
        elsewhere, _ = incidents.incident_open(pair=other.outbound, cause="connect_refused", now=now)
        next_door, _ = incidents.incident_open(pair=beside, cause="connect_refused", now=now)
        unlike, _ = incidents.incident_open(pair=pair, cause="ack_timeout", now=now)
    assert second.part_of == first
    assert {one.part_of for one in (first, elsewhere, next_door, unlike)} == {None}
    assert written[0].data["part_of"] == first.public_id
    incidents.incident_resolve(incident_id=first.pk, actor=ANA, reason="they are back")
    second.refresh_from_db()
    assert (second.state, second.resolved_by) == ("resolved", "ana")
    assert second.resolution == f"Closed with {first}. they are back"
    closed = Event.objects.filter(type="incident.resolved").values_list("data__incident", flat=True)
    assert set(closed) == {first.public_id, second.public_id}
    for one in (elsewhere, next_door, unlike):
        one.refresh_from_db()
        assert one.state == "open"


def test_what_still_waits_for_somebody_stands_for_itself_then(time: FrozenClock) -> None:  # noqa: F811
    partner = partner_side()
    pair = partner.outbound
    with transaction.atomic():
        first, _ = incidents.incident_open(pair=pair, cause="server_unreachable", now=clock.now())
        second, _ = incidents.incident_open(pair=pair, cause="cert_expired", now=clock.now())
        third, _ = incidents.incident_open(pair=pair, cause="connect_refused", now=clock.now())
    assert second.part_of == third.part_of == first
    pair.flow, pair.cause = "suspended", "cert_expired"
    pair.save(update_fields=["flow", "cause"])
    incidents.incident_resolve(incident_id=first.pk, actor=ANA, reason="they are back")
    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.state, second.part_of, third.state) == ("open", None, "resolved")
    operating.pair_resume(pair_id=pair.pk, actor=ANA, reason="renewed")
    second.refresh_from_db()
    assert second.state == "resolved"


def test_the_api_names_what_it_hangs_on(time: FrozenClock) -> None:  # noqa: F811
    admin = Api(make_token(make_user()))
    partner = partner_side()
    with transaction.atomic():
        first, _ = incidents.incident_open(pair=partner.outbound, cause="connect_refused", now=clock.now())
        second, _ = incidents.incident_open(pair=partner.outbound, cause="server_unreachable", now=clock.now())
    assert admin.get(f"/incidents/{second.public_id}").json["part_of"] == first.public_id
    assert admin.get(f"/incidents/{first.public_id}").json["part_of"] is None
    assert root_of(partner.outbound, "ack_timeout") is None


def test_a_server_that_is_left_alone_for_its_certificate_is_not_called_down(time: FrozenClock) -> None:  # noqa: F811
    partner = partner_side(transport_retries=9)
    with link(EXPIRED):
        for seconds in (0, 0, 3):
            time.move(seconds)
            submit(partner, semantics="BestEffort")
            attempts(1)
    assert Circuit.objects.get().state == "open"
    time.move(600)
    circuits.watch()
    assert [one.cause for one in Incident.objects.all()] == ["cert_expired"]
    circuits.answered(server_of(partner.terms.partner_address))
    assert Incident.objects.get().state == "resolved"
