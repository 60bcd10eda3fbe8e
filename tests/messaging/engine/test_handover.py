"""What follows is claimed where it is decided, and handed over by Valkey; whatever happens there, it goes out once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.db import IntegrityError, connection, connections, transaction

from messaging import dispatch
from messaging.claim import Job, JobKind
from messaging.engine import group, handover, kinds, leases, loop
from messaging.engine import memory as hub_memory
from messaging.engine.continuing import PLAIN_BYTES
from messaging.engine.handover import Mailbox, Seat
from messaging.engine.kinds import SENDS
from messaging.engine.loop import Engine
from messaging.engine.missing import MISSING_AFTER, ONCE_FOR, missing, of_store
from messaging.exceptions import QueueFull
from messaging.invariants import RULES, check
from messaging.messages.services import submitting
from messaging.models import Message, Pair, Signal, Transmission
from messaging.profiles.stream.writing import HEADERS
from messaging.protocol.envelope import MessageType
from partners.models import Party
from rmhub import clock
from tests.messaging.engine.test_engine import closing, reached, state
from tests.messaging.factories import TAKEN, answered, decoded, link, partner_side, submit
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.stream.test_sending import acknowledge
from tests.messaging.profiles.wsat.test_outgoing import set_up
from tests.partners.factories import make_outbound_credential
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)
W = 4711


@pytest.fixture
def valkey(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """A database of the real broker that no worker listens to."""
    settings.REDIS_URL = settings.REDIS_URL.rpartition("/")[0] + "/12"
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=60)
    monkeypatch.setattr(dispatch, "valkey", lambda: client)
    monkeypatch.setattr(dispatch, "_down_until", 0.0)
    hub_memory.look()
    yield client
    emptied(client)
    client.close()


def emptied(valkey: redis.Redis) -> None:
    """It has lost all that it had of this hub; other tests may use it, too."""
    found = list(valkey.scan_iter(handover._key("*")))
    if found:
        valkey.delete(*found)


@pytest.fixture
def worker(valkey: redis.Redis) -> int:
    """A worker that lives, as far as anybody can see."""
    handover.say(W, 64, ())
    return W


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = closing(Engine(SENDS, threads=4, batch=64))
    yield made
    made.close()


def anew() -> None:
    """This process reads anew which workers there are."""
    handover._seats.read_at = float("-inf")


def handed_over(valkey: redis.Redis) -> list[Job]:
    """What lies in the worker's list, oldest first; the list stays."""
    octets = valkey.lrange(handover._key("handover", W), 0, -1)
    return [handover._unpacked(one)[0] for one in octets]  # type: ignore[union-attr]


def aged(worker: int = W) -> None:
    """Attempts that were claimed a while ago."""
    long_ago = clock.now() - 2 * MISSING_AFTER
    Transmission.objects.filter(outcome="on_the_wire").update(started_at=long_ago, worker=worker)


def attempt_of(message: Message) -> Transmission:
    return Transmission.objects.get(message=message)


# ---- who takes something ----


def test_a_worker_is_there_while_it_says_so(valkey: redis.Redis) -> None:
    assert handover.seat() is None
    handover.say(W, 3, ["https://slow.example"])
    anew()
    assert handover.seat() == Seat(W, 3, frozenset({"https://slow.example"}))
    assert 0 < valkey.pttl(handover._key("worker", W)) <= 3000
    valkey.delete(handover._key("worker", W))
    anew()
    assert handover.seat() is None
    handover.say(W, 0, ())
    anew()
    assert handover.seat() is None, "one without room takes nothing"
    handover.say(W, 1, ())
    handover.unsay(W)
    anew()
    assert handover.seat() is None


def test_valkey_is_asked_now_and_then_not_for_each_message(worker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    asked = handover._read
    monkeypatch.setattr(handover, "_read", lambda: read.append(1) or asked())
    for _ in range(50):
        assert handover.seat() is not None
    assert len(read) < 5


def test_what_was_handed_over_uses_up_the_room(worker: int) -> None:
    handover.say(W, 2, ())
    partners = [partner_side() for _ in range(3)]
    messages = [submit(partner) for partner in partners]
    assert [state(message) for message in messages] == ["sending", "sending", "queued"]


# ---- what is plain goes on at once ----


def test_the_first_message_of_an_idle_pair_is_claimed_as_it_is_stored(valkey: redis.Redis, worker: int) -> None:
    partner = partner_side()
    first, second = submit(partner), submit(partner)
    assert (state(first), state(second)) == ("sending", "queued")
    pair = partner.outbound
    assert (pair.flow, pair.in_flight_id, pair.queued, pair.last_sequence) == ("sending", first.pk, 1, 1)
    attempt = attempt_of(first)
    assert (attempt.worker, attempt.number, attempt.outcome, pair.transmission_id) == (W, 1, "on_the_wire", attempt.pk)
    [job] = handed_over(valkey)
    first.refresh_from_db()
    assert (job.transmission_id, job.message_id, job.kind, job.number) == (attempt.pk, first.pk, "pair", 1)
    assert decoded(job.parcel).hop.sequence_number == 1
    assert decoded(job.parcel).message_id == first.message_id


def test_the_parcel_is_that_of_a_claim(valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[Job] = []
    post = handover.post
    monkeypatch.setattr(handover, "post", lambda seat, jobs: (claimed.extend(jobs), post(seat, jobs)))
    partner = partner_side()
    make_outbound_credential(Party.objects.get(pk=partner.terms.partner_id))
    submit(partner)
    partner.send(partner.message(1))
    assert handed_over(valkey) == claimed
    assert [job.kind for job in claimed] == ["pair", "signal"]
    secret = claimed[0].parcel.authorization.encode()
    assert secret and not any(secret in octets for octets in valkey.lrange(handover._key("handover", W), 0, -1))  # type: ignore[union-attr]


def test_what_is_rolled_back_is_not_handed_over(
    valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(submitting.events, "write", broken)
    partner = partner_side()
    with pytest.raises(RuntimeError):
        submit(partner)
    assert (handed_over(valkey), Message.objects.count(), Transmission.objects.count()) == ([], 0, 0)
    assert partner.outbound.flow == "idle"


def test_a_group_that_is_refused_leaves_no_trace_in_what_is_stored_one_by_one(
    valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was claimed in a transaction that failed is claimed anew, as the first of its pair."""
    partners = [partner_side() for _ in range(3)]
    submit(partners[0], message_id="taken")
    handed_in: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(submitting._group, "submit", handed_in.append)
        for partner, message_id in zip(partners, ("taken", "b", "c"), strict=True):
            with pytest.raises(QueueFull):
                submit(partner, message_id=message_id)
    waiting = [group._Entry(one) for one in handed_in]
    submitting._group._run([waiting[1], waiting[0], waiting[2]])
    assert isinstance(waiting[0].error, IntegrityError)
    for partner, entry in zip(partners[1:], waiting[1:], strict=True):
        message, pair = Message.objects.get(pk=entry.result.message.pk), partner.outbound
        assert (message.state, message.sequence_number, message.attempts) == ("sending", 1, 1)
        assert (pair.flow, pair.in_flight_id, pair.last_sequence) == ("sending", message.pk, 1)
    assert [job.message_id for job in handed_over(valkey)[1:]] == [one.result.message.pk for one in waiting[1:]]
    connection.ensure_connection()
    assert not [found.rule.id for found in check(connection.connection, RULES) if found.count]


def test_an_acknowledgement_is_claimed_with_its_message(valkey: redis.Redis, worker: int) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    ack = Signal.objects.get()
    assert (ack.state, ack.attempts, ack.owed) == ("sending", 1, 1)
    [job] = handed_over(valkey)
    assert (job.signal_id, job.number, job.parcel.body) == (ack.pk, 1, bytes(ack.body))
    assert Transmission.objects.get().worker == W


def test_the_next_message_goes_with_the_acknowledgement_of_the_one_before(valkey: redis.Redis, worker: int) -> None:
    partner = partner_side()
    messages = [submit(partner) for _ in range(3)]
    [sent] = handed_over(valkey)
    partner.send(partner.acknowledgement(sent.parcel))
    assert [state(message) for message in messages] == ["delivered", "sending", "queued"]
    job = handed_over(valkey)[1]
    assert decoded(job.parcel).hop.sequence_number == 2
    assert partner.outbound.transmission_id == job.transmission_id == attempt_of(messages[1]).pk


@pytest.mark.parametrize("why", ["paused", "full", "large", "nobody", "busy"])
def test_what_is_not_plain_is_due_and_found_by_a_claim(
    why: str, valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[str] = []
    monkeypatch.setattr(dispatch, "wake", woken.append)
    partner = partner_side()
    content = b"<order/>"
    if why == "paused":
        submit(partner)
        Pair.objects.filter(pk=partner.outbound.pk).update(gate="paused")
    elif why == "full":
        handover.say(W, 64, [kinds.circuits.server_of(partner.terms.partner_address, "")])
    elif why == "large":
        content = b"x" * (PLAIN_BYTES + 1)
    elif why == "nobody":
        handover.unsay(W)
    else:
        handover.say(W, 0, ())
    anew()
    before = len(handed_over(valkey))
    message = submit(partner, content)
    assert state(message) == "queued"
    assert len(handed_over(valkey)) == before
    assert woken == ([] if why == "paused" else [dispatch.SEND])


def test_a_message_that_cannot_be_encoded_suspends_its_pair_as_ever(
    worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from messaging.engine import preparing
    from messaging.protocol.errors import EncodeError

    def refuse(*_: object) -> bytes:
        raise EncodeError("no wire form")

    monkeypatch.setattr(preparing, "prepare", refuse)
    partner = partner_side()
    message = submit(partner)
    assert (state(message), partner.outbound.flow) == ("queued", "idle")
    assert Message.objects.get().sequence_number is None
    kinds.claim_due(limit=10)
    assert (state(message), partner.outbound.flow, partner.outbound.last_sequence) == ("queued", "suspended", 0)


def test_a_caller_with_a_transaction_of_its_own_has_it_claimed_later(valkey: redis.Redis, worker: int) -> None:
    """It may do more with the message before it commits."""
    with transaction.atomic():
        message = submit(partner_side())
    assert (handed_over(valkey), state(message)) == ([], "queued")


def test_a_memory_that_was_lost_is_noticed_before_anything_is_numbered(
    valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise OSError

    monkeypatch.setattr(submitting.hub_memory, "look", lost)
    message = submit(partner_side())
    assert (handed_over(valkey), state(message)) == ([], "queued")


# ---- what the worker makes of it ----


class Reading:
    """The worker's side: reads its list until the block ends."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine._worker.hold()
        self.mailbox = Mailbox(engine._worker.number, state=engine.state, take=engine.take)

    def __enter__(self) -> Reading:
        self.mailbox.start()
        eventually(lambda: (anew(), handover.seat())[1] is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self.mailbox.stop()
        connections.close_all()


def test_documents_go_out_one_after_the_other_without_a_claim(
    valkey: redis.Redis, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hubs that talk: nobody runs the engine, nobody is woken."""
    monkeypatch.setattr(dispatch, "wake", lambda task: pytest.fail("woken") if task == dispatch.SEND else None)
    partners = [partner_side() for _ in range(3)]
    by_address = {partner.terms.partner_address: partner for partner in partners}
    lock = threading.Lock()

    def answer(parcel):
        if decoded(parcel).message_type is MessageType.NORMAL:
            with lock:
                by_address[parcel.address].send(by_address[parcel.address].acknowledgement(parcel))
            connections.close_all()
        return TAKEN

    with link(answer) as wire, Reading(engine):
        messages = [submit(partner) for partner in partners for _ in range(4)]
        eventually(reached("delivered", *messages))
        eventually(lambda: not Transmission.objects.filter(outcome="on_the_wire").exists())
    assert len(wire.parcels) == 12
    assert set(Message.objects.values_list("attempts", flat=True)) == {1}


def test_a_hand_over_that_comes_twice_is_one(valkey: redis.Redis, engine: Engine) -> None:
    with link() as wire, Reading(engine) as reading:
        message = submit(partner_side())
        eventually(reached("awaiting_ack", message))
        job = of_store([attempt_of(message)], clock.now())
        reading.engine.take([(one, 0.0) for one in job])
        engine.run()
        assert len(wire.parcels) == 1


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_hand_over_that_comes_late_is_sent_while_it_is_its_workers_and_not_after(
    taken_over: bool, valkey: redis.Redis, worker: int, engine: Engine
) -> None:
    message = submit(partner_side())
    [job] = handed_over(valkey)
    Pair.objects.filter(pk=job.pair_id).update(due_at=clock.now())  # its lease is about to end
    if taken_over:
        kinds.claim_due(limit=10)
        assert attempt_of(message).outcome == "lost"
    with link() as wire:
        engine.take([(job, 2 * loop.RENEW_SECONDS)])
        eventually(lambda: engine._in_hand[job.transmission_id] is not None)
        assert len(wire.parcels) == (not taken_over)
    if not taken_over:
        eventually(reached("awaiting_ack", message))
        assert kinds.claim_due(limit=10) == []


@pytest.mark.parametrize("how", ["flushed", "never pushed"])
def test_what_is_lost_on_the_way_is_sent_by_its_worker(
    how: str, valkey: redis.Redis, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine._worker.hold()
    handover.say(engine._worker.number, 64, ())
    if how == "never pushed":
        monkeypatch.setattr(handover, "post", lambda seat, jobs: None)
    partner = partner_side()
    message = submit(partner)
    partner.send(partner.message(1))
    emptied(valkey)
    octets = decoded_octets(message)
    aged(engine._worker.number)
    with link() as wire:
        engine.run()
        eventually(reached("awaiting_ack", message))
        eventually(lambda: Signal.objects.get().state == "sent")
    assert [parcel.body for parcel in wire.of(MessageType.NORMAL)] == [octets]
    message.refresh_from_db()
    assert (message.attempts, partner.outbound.retries, partner.outbound.transport_attempts) == (1, 0, 0)
    assert Transmission.objects.filter(outcome="sent").count() == Transmission.objects.count() == 2


def decoded_octets(message: Message) -> bytes:
    from messaging.engine.preparing import received

    return received(message.pk)[1]


def test_what_is_on_its_way_still_is_not_missing(valkey: redis.Redis, engine: Engine) -> None:
    engine._worker.hold()
    handover.say(engine._worker.number, 64, ())
    submit(partner_side())
    with link() as wire:
        engine.run()
    assert wire.parcels == []


def test_what_was_answered_meanwhile_is_not_sent(valkey: redis.Redis, worker: int) -> None:
    """The list was lost, and the message came to its end otherwise."""
    partner = partner_side()
    message = submit(partner)
    [job] = handed_over(valkey)
    partner.send(partner.acknowledgement(job.parcel))
    assert state(message) == "delivered"
    aged()
    assert missing(W, ()) == []
    attempt = attempt_of(message)
    assert (attempt.outcome, attempt.cause) == ("lost", "worker_lost")


def test_a_worker_that_dies_leaves_what_was_handed_over_to_the_next(valkey: redis.Redis, worker: int) -> None:
    partner = partner_side()
    message = submit(partner)
    octets = decoded_octets(message)
    assert leases.release_dead(clock.now()) == 1, "nobody of this number is in the database"
    jobs = []
    while not jobs and state(message) != "sending":
        jobs = kinds.claim_due(limit=10)
    jobs = jobs or kinds.claim_due(limit=10)
    jobs = jobs or kinds.claim_due(limit=10)
    assert [job.parcel.body for job in jobs] == [octets]
    assert Message.objects.get().attempts == 2


def test_the_outcome_of_an_attempt_that_an_acknowledgement_overtook_moves_nothing(
    valkey: redis.Redis, worker: int
) -> None:
    partner = partner_side()
    first, second = submit(partner), submit(partner)
    [job] = handed_over(valkey)
    partner.send(partner.acknowledgement(job.parcel))
    version = partner.outbound.version
    assert kinds.record([(job, TAKEN)]) == [False]
    assert (state(first), state(second)) == ("delivered", "sending")
    assert attempt_of(first).outcome == "sent"
    assert (partner.outbound.flow, partner.outbound.version) == ("sending", version)


def test_a_worker_whose_presence_is_not_certain_takes_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.state() is None
    engine._worker.hold()
    assert engine.state() is not None
    monkeypatch.setattr(leases, "LEASE", 0.0)
    assert engine.state() is None
    engine._worker.release()


def test_valkey_that_is_away_costs_one_attempt(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def away() -> redis.Redis:
        tried.append(1)
        raise redis.ConnectionError

    monkeypatch.setattr(dispatch, "valkey", away)
    monkeypatch.setattr(dispatch, "_down_until", 0.0)
    monkeypatch.setattr(dispatch, "_PAUSE_SECONDS", 600)
    anew()
    messages = [submit(partner_side()) for _ in range(5)]
    assert len(tried) == 1
    assert [state(message) for message in messages] == ["queued"] * 5
    monkeypatch.undo()
    anew()


# ---- every kind of work takes this road ----


def _ebxml_once() -> Message:
    return submit(partner_side(), semantics="BestEffort")


def _request() -> Message:
    return submit(partner_side(profile="repeatable"))


def _in_a_stream() -> Message:
    return submit(stream_side())  # type: ignore[arg-type]


def _of_a_transaction() -> Message:
    with transaction.atomic():
        return set_up().send()


def _plain() -> Message:
    return submit(partner_side())


KINDS: dict[Callable[[], Message], JobKind] = {
    _plain: JobKind.PAIR,
    _ebxml_once: JobKind.UNRELIABLE,
    _request: JobKind.OWN,
    _in_a_stream: JobKind.OWN,
    _of_a_transaction: JobKind.OWN,
}


@pytest.fixture(params=KINDS, ids=lambda made: made.__name__)
def made(request: pytest.FixtureRequest) -> Callable[[], Message]:
    return request.param


def test_a_message_of_any_kind_is_claimed_where_it_is_stored(
    made: Callable[[], Message], valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "wake", lambda task: pytest.fail("woken") if task == dispatch.SEND else None)
    assert handover.seat() is not None
    message = made()
    [job] = handed_over(valkey)
    attempt = attempt_of(message)
    assert (job.kind, job.transmission_id, job.number, attempt.worker) == (KINDS[made], attempt.pk, 1, W)
    assert state(message) == "sending"
    assert kinds.claim_due(limit=10) == []


def test_the_parcel_that_comes_is_the_one_that_was_claimed(
    made: Callable[[], Message], valkey: redis.Redis, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[Job] = []
    post = handover.post
    monkeypatch.setattr(handover, "post", lambda seat, jobs: (claimed.extend(jobs), post(seat, jobs)))
    assert handover.seat() is not None
    made()
    assert handed_over(valkey) == claimed


def test_what_is_found_in_the_store_is_what_was_claimed(
    made: Callable[[], Message], valkey: redis.Redis, worker: int
) -> None:
    assert handover.seat() is not None
    made()
    [job] = handed_over(valkey)
    emptied(valkey)
    aged()
    [found] = missing(W, ())
    assert (found.parcel, found.kind, found.number, found.pair_id, found.message_id) == (
        job.parcel,
        KINDS[made],
        job.number,
        job.pair_id,
        job.message_id,
    )
    assert missing(W, [found.transmission_id]) == [], "it is in hand now"


def test_what_may_be_sent_once_is_looked_for_no_longer_than_its_worker_knows_it(
    valkey: redis.Redis, worker: int
) -> None:
    message = _ebxml_once()
    emptied(valkey)
    Transmission.objects.update(started_at=clock.now() - ONCE_FOR, worker=W)
    assert missing(W, ()) == []
    assert ONCE_FOR.total_seconds() < loop.KNOWN_SECONDS
    Message.objects.filter(pk=message.pk).update(due_at=clock.now())
    kinds.claim_due(limit=10)
    assert state(message) == "failed", "its lease is over, and nobody knows"


def test_a_rolled_back_message_of_a_transaction_is_not_handed_over(valkey: redis.Redis, worker: int) -> None:
    assert handover.seat() is not None
    scene = set_up()
    with pytest.raises(RuntimeError), transaction.atomic():
        scene.send()
        raise RuntimeError
    assert (handed_over(valkey), Transmission.objects.count()) == ([], 0)


def test_requests_go_on_as_their_answers_are_recorded(
    valkey: redis.Redis, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "wake", lambda task: pytest.fail("woken") if task == dispatch.SEND else None)
    with link(answered()) as wire, Reading(engine):
        partner = partner_side(profile="repeatable", ordered=True)
        messages = [submit(partner) for _ in range(6)]
        eventually(reached("delivered", *messages))
    headers = [dict(parcel.headers)["Repeatability-Request-ID"] for parcel in wire.parcels]
    assert headers == [message.message_id for message in messages], "one after the other, in their order"


def test_a_stream_goes_on_as_it_is_acknowledged(
    valkey: redis.Redis, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "wake", lambda task: pytest.fail("woken") if task == dispatch.SEND else None)
    side = stream_side(max_in_flight=2, stream_concurrency=2)
    with link() as wire, Reading(engine):
        messages = [submit(side) for _ in range(5)]  # type: ignore[arg-type]
        for number in (2, 4, 5):
            eventually(reached("awaiting_ack", messages[number - 1]))
            assert acknowledge(side, number) == 202
        eventually(reached("delivered", *messages))
        eventually(lambda: not Transmission.objects.filter(outcome="on_the_wire").exists())
    assert len(wire.parcels) == 5


def test_the_receipts_of_a_stream_are_claimed_with_its_messages(valkey: redis.Redis, worker: int) -> None:
    side = stream_side()
    side.send(side.message(1, requested=True))
    ack = Signal.objects.get(direction="out")
    assert ack.state == "sending"
    [job] = handed_over(valkey)
    assert (job.signal_id, job.parcel.body, job.parcel.headers) == (ack.pk, bytes(ack.body), HEADERS)
    emptied(valkey)
    aged()
    assert [found.parcel for found in missing(W, ())] == [job.parcel]


def test_a_pair_with_trouble_is_left_to_the_claim(valkey: redis.Redis, worker: int) -> None:
    partner = partner_side(profile="repeatable")
    Pair.objects.filter(pk=partner.outbound.pk).update(cause="http_5xx")
    message = submit(partner)
    assert (handed_over(valkey), state(message)) == ([], "queued")
    assert [job.message_id for job in kinds.claim_due(limit=10)] == [message.pk]


def test_a_worker_that_stops_takes_what_is_handed_over_still(valkey: redis.Redis, engine: Engine) -> None:
    """Others may not know yet that it stops: what is sent once would be lost for nothing."""
    taken: list[Job] = []
    engine._worker.hold()
    mailbox = Mailbox(engine._worker.number, state=engine.state, take=lambda jobs: taken.extend(job for job, _ in jobs))
    mailbox.start()
    eventually(lambda: (anew(), handover.seat())[1] is not None)
    known = handover._seats.seats
    mailbox._over.set()
    message = _ebxml_once()
    handover._seats.seats = known
    mailbox.stop()
    assert [job.message_id for job in taken] == [message.pk]
    anew()
    assert handover.seat() is None
