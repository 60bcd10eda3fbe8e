"""What waits behind a pair that people have shut: somebody may be left in doubt, and somebody has to be told of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.engine import pairs
from messaging.journal.audit import Actor
from messaging.models import Coordination, Event, Incident, Pair
from messaging.pairs.services import operating
from messaging.profiles.wsat import due, opening
from messaging.protocol.atomic import transaction
from messaging.protocol.atomic.words import Note, Phase, Protocol
from messaging.transports import Receipt
from partners import registry, services
from partners.models import AgreementVersion
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import Link, link, work
from tests.messaging.profiles.wsat.kit import Peer, Place, coordination_of, peer
from tests.messaging.profiles.wsat.test_subordinate import below_another

pytestmark = pytest.mark.django_db

ANN = Actor("ann")
RETRIES = 2
PATIENCE = transaction.patience(RETRIES, 5, 300)  # 5 + 7 + 9.8 s
HELD = "transaction_pair_shut"


@pytest.fixture(autouse=True)
def wire() -> Iterator[Link]:
    with link(Receipt(ok=True, status=202)) as found:
        yield found


def shop_of(**terms: object) -> Peer:
    return peer("Shop", retries=RETRIES, repeat_interval=5, **terms)


def told(shop: Peer, app: Peer, *, vote: bool = True) -> Place:
    """A participant of `shop` whose initiator asked for the commit: asked to prepare, or (`vote`) told the outcome."""
    begun = app.create(expires_ms=3_600_000)
    initiator, member = app.register(begun, Protocol.COMPLETION), shop.register(begun, Protocol.DURABLE)
    initiator.say(Note.COMMIT)
    if vote:
        member.say(Note.PREPARED)
    return member


def pair_of(one: Peer) -> Pair:
    return Pair.objects.get(pk=pairs.outbound_pair_id(one.terms))


def pause(one: Peer) -> Pair:
    return operating.pair_pause(pair_id=pair_of(one).pk, actor=ANN, reason="maintenance there")


def row_of(place: Place) -> Coordination:
    return Coordination.objects.get(pk=place.enlistment.coordination_id)


def pass_time(time: FrozenClock, seconds: float, step: int = 5) -> None:
    for _ in range(int(seconds) // step):
        time.move(step)
        due.run_due()
        work()


def test_a_commit_that_waits_behind_a_paused_pair_leaves_a_doubt_that_the_answer_ends(time: FrozenClock) -> None:
    shop = shop_of()
    member = told(shop, peer())
    pair = pause(shop)
    pass_time(time, PATIENCE)
    assert (member.enlistment.doubt, Incident.objects.count()) == ("", 0), "no longer than one who is silent"

    pass_time(time, 60)
    assert member.enlistment.doubt == HELD
    detail = f"Commit for Shop has waited since 2026-03-01 12:00:00 UTC: pair {pair.code} is paused since "
    assert member.enlistment.doubt_detail.startswith(detail)
    incident = Incident.objects.get()
    assert (incident.cause, incident.state, incident.occurrences) == (HELD, "open", 1)
    assert (incident.pair, incident.coordination, incident.detail) == (
        pair,
        row_of(member),
        member.enlistment.doubt_detail,
    )
    assert incident.message is not None and incident.message.action == "Commit"
    assert Event.objects.filter(type="transaction.in_doubt").count() == 1
    assert Event.objects.filter(type="incident.opened").count() == 1

    operating.pair_release(pair_id=pair.pk, actor=ANN, reason="they are done")
    work()
    assert member.enlistment.doubt == HELD, "nobody has said yet that it is done"
    member.say(Note.COMMITTED)
    assert (row_of(member).phase, row_of(member).doubtful_since) == (Phase.COMMITTED, None)
    assert member.enlistment.doubt == ""
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by) == ("resolved", "system")


@pytest.mark.parametrize("closed", [False, True], ids=["agreement", "pair"])
def test_what_is_disabled_is_named_as_what_holds_it(time: FrozenClock, closed: bool) -> None:
    shop = shop_of()
    member = told(shop, peer())
    agreement = AgreementVersion.objects.get(pk=shop.terms.version_id).agreement
    services.agreement_disable(agreement=agreement)
    registry.reset()
    assert not closed or pairs.close_unagreed()
    pass_time(time, PATIENCE + 15)
    code = pair_of(shop).code
    state = f"agreement {shop.terms.tpa_id} of pair {code} is disabled."
    if closed:
        state = f"pair {code} is disabled since 2026-03-01 12:00:00 UTC."
    assert member.enlistment.doubt_detail == f"Commit for Shop has waited since 2026-03-01 12:00:00 UTC: {state}"


def test_a_vote_that_waits_for_its_superior_leaves_this_hub_in_doubt(time: FrozenClock) -> None:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    pause(stage.above.peer)
    stage.member.say(Note.PREPARED)
    pass_time(time, 3600, step=60)
    assert stage.superior.doubt == HELD
    assert "Prepared for Above has waited since " in stage.superior.doubt_detail
    assert Incident.objects.get(cause=HELD).coordination == stage.row
    stage.above.say(Note.COMMIT)
    assert stage.row.phase == Phase.COMMITTING, "nobody below has confirmed it yet"
    assert (stage.superior.doubt, Incident.objects.get(cause=HELD).state) == ("", "resolved")


def test_what_can_come_to_no_harm_is_no_doubt_and_ends_in_time(time: FrozenClock) -> None:
    shop = shop_of()
    asked = told(shop, peer(), vote=False)
    pause(shop)
    pass_time(time, 240, step=30)
    assert row_of(asked).phase == Phase.PREPARING_DURABLE
    time.move(3600)
    due.run_due()
    work()
    assert row_of(asked).phase == Phase.ABORTING, "its time is over, and Rollback waits"
    pass_time(time, PATIENCE + 15)
    assert row_of(asked).phase == Phase.ABORTED, "nobody is kept by a shut pair: whoever asks is told Rollback"
    assert (asked.enlistment.doubt, Incident.objects.count()) == ("", 0)
    assert not opening.is_full(partner_id=row_of(asked).agreement_version.agreement.partner_id)  # type: ignore[union-attr]

    operating.pair_release(pair_id=pair_of(shop).pk, actor=ANN, reason="they are done")
    before = asked.heard()
    asked.say(Note.PREPARED)
    assert asked.heard() == [*before, "Rollback"]


def test_what_rolls_back_behind_an_open_pair_is_not_forgotten_as_held(time: FrozenClock) -> None:
    shop = shop_of()
    asked = told(shop, peer(), vote=False)
    time.move(3600)
    due.run_due()
    (rollback,) = (one for one in asked.sent() if one.kind == "Rollback")
    due.held_back(message_ids=[rollback.message.pk], now=clock.now())
    assert row_of(asked).phase == Phase.ABORTING


def test_what_waits_goes_out_at_once_when_the_agreement_is_enabled_again(time: FrozenClock) -> None:
    shop = shop_of()
    member = told(shop, peer())
    agreement = AgreementVersion.objects.get(pk=shop.terms.version_id).agreement
    services.agreement_disable(agreement=agreement)
    registry.reset()
    assert pairs.close_unagreed() == 1
    work()
    (commit,) = (one.message for one in member.sent() if one.kind == "Commit")
    assert commit.due_at is not None and commit.due_at > clock.now()
    services.agreement_enable(agreement=agreement)
    registry.reset()
    assert pairs.close_unagreed() == 1
    commit.refresh_from_db()
    assert commit.due_at == clock.now()


def test_silence_after_the_pair_is_open_again_takes_its_place(time: FrozenClock) -> None:
    shop = shop_of()
    member = told(shop, peer())
    pair = pause(shop)
    pass_time(time, PATIENCE + 15)
    operating.pair_release(pair_id=pair.pk, actor=ANN, reason="they are done")
    pass_time(time, 2 * PATIENCE)
    assert member.enlistment.doubt == "transaction_peer_silent"
    states = dict(Incident.objects.values_list("cause", "state"))
    assert states == {HELD: "resolved", "transaction_peer_silent": "open"}
    member.say(Note.COMMITTED)
    assert set(Incident.objects.values_list("state", flat=True)) == {"resolved"}


def test_a_pair_that_was_opened_meanwhile_leaves_nobody_in_doubt(time: FrozenClock) -> None:
    member = told(shop_of(), peer())
    (commit,) = (one for one in member.sent() if one.kind == "Commit")
    due.held_back(message_ids=[commit.message.pk], now=clock.now())
    assert (member.enlistment.doubt, Incident.objects.count()) == ("", 0)


def test_two_of_one_transaction_are_one_doubt_of_it(time: FrozenClock) -> None:
    shop, app = shop_of(), peer()
    begun = app.create(expires_ms=3_600_000)
    initiator = app.register(begun, Protocol.COMPLETION)
    members = [shop.register(begun, Protocol.DURABLE) for _ in range(2)]
    initiator.say(Note.COMMIT)
    for member in members:
        member.say(Note.PREPARED)
    pause(shop)
    before = coordination_of(begun).lock_version
    pass_time(time, PATIENCE + 15)
    assert [member.enlistment.doubt for member in members] == [HELD, HELD]
    assert Event.objects.filter(type="transaction.in_doubt").count() == 1
    assert Incident.objects.get().occurrences == 2
    assert coordination_of(begun).lock_version == before + 2
    members[0].say(Note.COMMITTED)
    assert Incident.objects.get().state == "open", "the other one is still in doubt"
    members[1].say(Note.COMMITTED)
    assert Incident.objects.get().state == "resolved"


def test_however_many_wait_they_are_read_at_once_and_told_once(time: FrozenClock) -> None:
    shop, app = shop_of(), peer()

    def look(count: int) -> tuple[int, int]:
        """Queries that read what is told of, and all queries of the next look."""
        operating.pair_release(pair_id=pair_of(shop).pk, actor=ANN, reason="for more")
        for _ in range(count):
            told(shop, app)
        pause(shop)
        time.move(int(PATIENCE) + 11)
        with CaptureQueriesContext(connection) as first:
            work()
        time.move(11)
        with CaptureQueriesContext(connection) as second:
            work()
        names = ("messaging_coordination", "messaging_coordinationmessage", "messaging_pair")
        reads = [one for one in first if any(one["sql"].startswith(f'SELECT "{name}"') for name in names)]
        return len(reads), len(second)

    pause(shop)
    one = look(1)
    assert look(4) == one
    assert Incident.objects.count() == 5
