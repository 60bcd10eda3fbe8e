"""What client applications and people ask for: open, enlist, commit, roll back; and what silence means."""

from __future__ import annotations

import io

import pytest

from messaging.entrance import authentication
from messaging.entrance.urls import entrance_first
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Coordination, Event, Incident
from messaging.profiles.wsat import asking, due, in_doubt, opening, settling
from messaging.profiles.wsat.registering import enlisted, enlistment_create
from messaging.protocol.atomic.words import Note, Phase, Protocol, Seat
from messaging.protocol.ws.messages import EndpointReference
from partners import registry
from partners.models import Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from tests.messaging.factories import link, work
from tests.messaging.profiles.wsat.kit import HUB, Peer, Place, coordination_of, peer
from tests.messaging.profiles.wsat.test_subordinate import below_another

pytestmark = pytest.mark.django_db

ANNA = Actor("anna")


def opened(*peers: Peer) -> tuple[Coordination, list[Place]]:
    """A transaction of a client application with these durable participants."""
    coordination = opening.coordination_open(terms=None, begun_by="token orders", expires_ms=60_000)
    places = []
    for one in peers:
        own = one.place()
        row, hub = enlistment_create(
            coordination_id=coordination.pk,
            tpa_id=one.terms.tpa_id,
            protocol=Protocol.DURABLE,
            address=own.address,
            parameters=own.parameters,
            actor=ANNA,
        )
        assert hub.address == f"{HUB}/coordinator"
        places.append(Place(one, own, hub, Protocol(row.protocol)))
    return coordination, places


def test_a_client_opens_enlists_and_commits() -> None:
    shop, bank = peer(), peer()
    coordination, (one, other) = opened(shop, bank)
    assert asking.possible(coordination) == ("commit", "rollback")
    asked = asking.coordination_commit(coordination_id=coordination.pk, actor=ANNA)
    assert asked.phase == Phase.PREPARING_DURABLE
    assert asking.possible(asked) == ("rollback",)
    again = asking.coordination_commit(coordination_id=coordination.pk, actor=ANNA)
    assert again.lock_version == asked.lock_version, "asked again it changes nothing"
    one.say(Note.PREPARED)
    other.say(Note.PREPARED)
    assert one.heard() == other.heard() == ["Prepare", "Commit"]
    coordination.refresh_from_db()
    assert asking.possible(coordination) == ()
    with pytest.raises(WrongState):
        asking.coordination_rollback(coordination_id=coordination.pk, actor=ANNA, reason="Too late.")
    verbs = AuditEntry.objects.filter(verb__startswith="transaction.").order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["transaction.enlist", "transaction.enlist", "transaction.commit"]


def test_a_transaction_with_nobody_in_it_is_committed_at_once() -> None:
    coordination, _ = opened()
    asked = asking.coordination_commit(coordination_id=coordination.pk)
    assert (asked.phase, asked.decided_at) == (Phase.COMMITTED, None)
    assert not AuditEntry.objects.filter(verb__startswith="transaction.").exists(), "the hub itself is no person"


def test_a_person_rolls_back_with_a_reason() -> None:
    coordination, (member,) = opened(peer())
    with pytest.raises(InvalidSubmission):
        asking.coordination_rollback(coordination_id=coordination.pk, actor=ANNA)
    with pytest.raises(Stale):
        asking.coordination_rollback(
            coordination_id=coordination.pk, actor=ANNA, reason="Stuck for hours.", expected_version=99
        )
    done = asking.coordination_rollback(coordination_id=coordination.pk, actor=ANNA, reason="Stuck for hours.")
    assert (done.phase, done.cause, done.cause_detail) == (
        Phase.ABORTING,
        "transaction_rolled_back",
        "Stuck for hours.",
    )
    assert member.heard() == ["Rollback"]
    with pytest.raises(WrongState):
        asking.coordination_commit(coordination_id=coordination.pk, actor=ANNA)
    with pytest.raises(NotFound):
        asking.coordination_commit(coordination_id=uuid7(), actor=ANNA)
    entry = AuditEntry.objects.get(verb="transaction.rollback")
    assert (entry.before, entry.after) == ({"phase": Phase.ACTIVE}, {"phase": Phase.ABORTING})


def test_enlisting_checks_agreement_protocol_address_and_phase() -> None:
    shop = peer()
    coordination, _ = opened()
    good = {"tpa_id": shop.terms.tpa_id, "protocol": "Durable2PC", "address": f"{shop.base}/x", "actor": ANNA}
    for field, wrong in (
        ("tpa_id", "tx:nobody"),
        ("protocol", "Completion"),
        ("address", "https://victim.example/x"),
        ("address", "not an address"),
    ):
        with pytest.raises(InvalidSubmission) as error:
            enlistment_create(coordination_id=coordination.pk, **(good | {field: wrong}))  # type: ignore[arg-type]
        assert list(error.value.errors) == ["agreement" if field == "tpa_id" else field]
    asking.coordination_commit(coordination_id=coordination.pk)
    with pytest.raises(WrongState):
        enlistment_create(coordination_id=coordination.pk, **good)  # type: ignore[arg-type]
    assert not coordination.enlistments.exists()


def test_enlisted_says_whether_somebody_takes_part_under_an_agreement() -> None:
    shop, bank = peer(), peer()
    coordination, (member,) = opened(shop)
    agreement = shop.terms.agreement_id
    assert enlisted(coordination.pk, agreement)
    assert not enlisted(coordination.pk, bank.terms.agreement_id)
    member.say(Note.READ_ONLY)
    assert enlisted(coordination.pk, agreement), "it took part, and has nothing to commit"


# Silence


def test_a_participant_that_does_not_answer_commit_leaves_it_in_doubt_until_it_does(time: FrozenClock) -> None:
    coordination, (member,) = opened(peer("Shop"))
    asking.coordination_commit(coordination_id=coordination.pk)
    (prepare,) = member.sent()
    due.peer_is_silent(message_pk=prepare.message.pk, now=clock.now())
    coordination.refresh_from_db()
    assert coordination.doubtful_since is None, "nothing is decided: it will expire"
    member.say(Note.PREPARED)
    commit = member.sent()[-1]
    for _ in range(2):
        due.peer_is_silent(message_pk=commit.message.pk, now=clock.now())
    coordination.refresh_from_db()
    assert coordination.doubtful_since is not None
    assert member.enlistment.doubt == in_doubt.SILENT
    assert Event.objects.filter(type="transaction.in_doubt").count() == 1
    assert "not asked any more" in settling.warning(member.enlistment, "forget")
    member.say(Note.COMMITTED)
    coordination.refresh_from_db()
    assert (coordination.phase, coordination.doubtful_since) == (Phase.COMMITTED, None)
    assert member.enlistment.doubt == ""
    due.peer_is_silent(message_pk=commit.message.pk, now=clock.now())
    coordination.refresh_from_db()
    assert coordination.doubtful_since is None, "it has answered meanwhile"


def test_a_participant_that_does_not_answer_rollback_is_forgotten(time: FrozenClock) -> None:
    coordination, (member,) = opened(peer("Shop"))
    asking.coordination_rollback(coordination_id=coordination.pk)
    (rollback,) = member.sent()
    due.peer_is_silent(message_pk=rollback.message.pk, now=clock.now())
    coordination.refresh_from_db()
    assert (coordination.phase, coordination.doubtful_since) == (Phase.ABORTED, None)
    assert member.enlistment.seat == Seat.NONE
    member.say(Note.PREPARED)
    assert member.heard() == ["Rollback", "Rollback"], "presumed abort"


def test_a_superior_that_does_not_answer_the_vote_leaves_it_in_doubt() -> None:
    stage = below_another()
    stage.above.say(Note.PREPARE)
    stage.member.say(Note.PREPARED)
    (vote,) = stage.above.sent()
    due.peer_is_silent(message_pk=vote.message.pk, now=clock.now())
    assert stage.row.doubtful_since is not None
    assert stage.superior.doubt == in_doubt.SILENT
    assert settling.settlements(stage.superior) == ("commit", "rollback")
    stage.above.say(Note.COMMIT)
    stage.member.say(Note.COMMITTED)
    assert stage.row.doubtful_since is None


def test_a_decided_one_is_given_up_by_a_person_only(time: FrozenClock) -> None:
    coordination, (member,) = opened(peer("Shop"))
    asking.coordination_commit(coordination_id=coordination.pk)
    member.say(Note.PREPARED)
    time.move(7 * 86_400)
    assert due.run_due() == 0
    assert member.enlistment.seat == Seat.COMMITTING
    settling.enlistment_settle(
        enlistment_id=member.enlistment.pk, outcome="forget", actor=ANNA, reason="The shop was closed for good."
    )
    coordination.refresh_from_db()
    assert (coordination.phase, member.enlistment.settled_as) == (Phase.COMMITTED, "forget")
    assert member.sent()[-1].message.state == "cancelled"
    member.say(Note.PREPARED)
    assert member.heard()[-1] == "Commit", "the outcome is known still"


# The entrance


def test_the_entrance_without_middleware_serves_the_same(settings) -> None:
    app = peer()
    octets = app.creating(message_id="urn:uuid:wsgi")
    answers: list[str] = []

    def rest(environ: object, start_response: object) -> list[bytes]:
        raise AssertionError("not for the rest")

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/ws-tx/activation",
        "CONTENT_TYPE": octets.content_type,
        "CONTENT_LENGTH": str(len(octets.body)),
        "HTTP_AUTHORIZATION": app.headers["Authorization"],
        "HTTP_SOAPACTION": octets.soap_action,
        "wsgi.input": io.BytesIO(octets.body),
    }
    body = b"".join(entrance_first(rest)(environ, lambda status, headers: answers.append(status)))
    assert (answers, body) == (["202 Accepted"], b"")
    assert coordination_of(app.create()).phase == Phase.ACTIVE
    assert len(app.answers_to("urn:uuid:wsgi")) == 1


def test_who_guesses_is_let_wait() -> None:
    app = peer()
    context = app.create()
    member = app.register(context, Protocol.DURABLE)
    good, app.headers = app.headers, {"Authorization": "Bearer guess"}
    answers = [member.say(Note.ABORTED) for _ in range(authentication.FAILURES + 1)]
    assert answers == [401] * authentication.FAILURES + [429]
    app.headers = good
    assert member.say(Note.ABORTED) == 202, "who was known before goes on"


def test_a_partner_that_sends_too_much_is_let_wait(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from messaging.entrance import rate_limits

    app = peer()
    monkeypatch.setattr(rate_limits, "partner_wait", lambda party_id: 17)
    answer = app.client.post("/ws-tx/activation", data=b"<x/>", content_type="text/xml", headers=app.headers)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "17")


@pytest.mark.parametrize("then", ["the endpoint is corrected", "a person settles it"])
def test_a_partner_that_has_moved_is_not_called_where_it_was(then: str, time: FrozenClock) -> None:
    """The outcome waits until the agreement names the place of the registration again, or a person settles it."""
    shop = peer("Shop", repeat_interval=5)
    proxy = EndpointReference("https://proxy.example/shop", ())
    Endpoint.objects.filter(uri=shop.terms.partner_uri).update(address=proxy.address)
    registry.reset()
    coordination = opening.coordination_open(terms=None, begun_by="token orders")
    row, hub = enlistment_create(
        coordination_id=coordination.pk,
        tpa_id=shop.terms.tpa_id,
        protocol="Durable2PC",
        address=proxy.address,
        actor=ANNA,
    )
    asking.coordination_commit(coordination_id=coordination.pk)
    Endpoint.objects.filter(uri=shop.terms.partner_uri).update(address="")
    registry.reset()
    member = Place(shop, proxy, hub)
    assert member.say(Note.PREPARED, replace=((proxy.address, f"{shop.base}/back"),)) == 202
    with link() as wire:
        work()
    assert wire.parcels == [], "no Commit to an address that nobody agreed on"
    assert [one.kind for one in shop.sent()] == ["Prepare", "Commit"], "it waits in the outbox"
    row.refresh_from_db()
    assert (row.seat, row.doubt) == (Seat.COMMITTING, "address_outside_agreement")
    assert Incident.objects.get().cause == "address_outside_agreement"
    if then == "a person settles it":
        settling.enlistment_settle(
            enlistment_id=row.pk, outcome="forget", actor=ANNA, reason="The shop has heard it by telephone."
        )
    else:
        Endpoint.objects.filter(uri=shop.terms.partner_uri).update(address=proxy.address)
        registry.reset()
        time.move(60)
        with link() as wire:
            work()
        assert [parcel.address for parcel in wire.parcels] == [proxy.address]
        assert member.say(Note.COMMITTED) == 202
        assert not Incident.objects.exclude(state="resolved").exists()
    coordination.refresh_from_db()
    assert (coordination.phase, coordination.doubtful_since) == (Phase.COMMITTED, None)
