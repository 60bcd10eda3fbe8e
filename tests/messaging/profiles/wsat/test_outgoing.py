"""The outbox of atomic transactions: what is asked goes out until it is answered, the same octets each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging import transports
from messaging.engine import circuits, leases, pairs, preparing
from messaging.engine.claiming import JobKind, claim_due
from messaging.engine.kinds import give_back, renew
from messaging.engine.recording import record
from messaging.exceptions import InvalidSubmission, OutsideAgreement, WrongState
from messaging.journal.audit import Actor
from messaging.messages.services import resubmitting
from messaging.models import (
    AuditEntry,
    Coordination,
    CoordinationMessage,
    Enlistment,
    Event,
    Incident,
    Message,
    Pair,
    Transmission,
)
from messaging.pairs.services import operating
from messaging.profiles.wsat import outgoing
from messaging.protocol.atomic.words import Protocol
from messaging.transports import Receipt
from partners import registry, services
from partners.terms import Terms
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.factories import LOST, REFUSED, Link, link, submit, work
from tests.messaging.factories import PartnerSide as Documents
from tests.partners.factories import make_agreement, make_outbound_credential

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
TAKEN = Receipt(ok=True, status=202)
NOT_NOW = Receipt(ok=False, status=503, cause="http_5xx", detail="The partner answered HTTP 503.", retry_after=90)
FORBIDDEN = Receipt(ok=False, status=403, cause="http_401_403", detail="The partner answered HTTP 403.", permanent=True)
LEASE = 10 + 30 + 15  # connect and read timeout of an endpoint, and what is allowed beside them


@dataclass(frozen=True, slots=True)
class Octets:
    body: bytes
    content_type: str = "text/xml; charset=utf-8"
    soap_action: str = '"http://docs.oasis-open.org/ws-tx/wsat/2006/06/Commit"'


@dataclass(slots=True)
class Scene:
    """One transaction with one participant, under an agreement of transactions."""

    terms: Terms
    coordination: Coordination
    enlistment: Enlistment

    @property
    def address(self) -> str:
        return f"{self.terms.partner_uri}/participant"

    @property
    def pair(self) -> Pair:
        return Pair.objects.get(pk=pairs.outbound_pair_id(self.terms))

    def send(self, kind: str = "Commit", *, awaits: bool = True, **more: Any) -> Message:
        message_id = f"urn:uuid:{uuid7()}"
        fields: dict[str, Any] = {
            "coordination": self.coordination,
            "enlistment": self.enlistment,
            "terms": self.terms,
            "kind": kind,
            "to": self.address,
            "body": Octets(f"<Envelope>{kind} {message_id}</Envelope>".encode()),
            "message_id": message_id,
            "now": clock.now(),
            "awaits": awaits,
        }
        return outgoing.send(**(fields | more))

    def answered(self, *kinds: str) -> int:
        return outgoing.answered(enlistment=self.enlistment, kinds=kinds, now=clock.now())

    def another(self) -> Enlistment:
        return enlisted(self.coordination, self.terms)


def enlisted(coordination: Coordination, terms: Terms) -> Enlistment:
    return Enlistment.objects.create(
        coordination=coordination,
        protocol=Protocol.DURABLE,
        agreement_version_id=terms.version_id,
        peer_address=f"{terms.partner_uri}/participant",
        created_at=clock.now(),
    )


def begun(terms: Terms) -> Coordination:
    now = clock.now()
    return Coordination.objects.create(identifier=f"urn:uuid:{uuid7()}", created_at=now, changed_at=now)


def set_up(**terms: Any) -> Scene:
    version = make_agreement(**({"profile": "wsat"} | terms))
    found = registry.current().version(version.pk)
    coordination = begun(found)
    return Scene(found, coordination, enlisted(coordination, found))


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as found:
        yield found


@pytest.fixture
def scene(time: FrozenClock) -> Scene:
    return set_up()


@pytest.fixture
def wire() -> Iterator[Link]:
    with link(TAKEN) as found:
        yield found


def fresh(message: Message) -> Message:
    return Message.objects.get(pk=message.pk)


def open_incidents() -> list[str]:
    return list(Incident.objects.exclude(state="resolved").order_by("number").values_list("cause", flat=True))


# --- sending ---


def test_a_message_goes_out_with_its_own_headers_to_its_own_address(scene: Scene, wire: Link, woken: list[str]) -> None:
    make_outbound_credential(registry_party(scene))
    message = scene.send("Committed", awaits=False)

    (job,) = work()

    assert (job.kind, job.number) == (JobKind.OWN, 1)
    assert (wire.last.address, wire.last.content_type) == (scene.address, "text/xml; charset=utf-8")
    assert dict(wire.last.headers) == {"SOAPAction": Octets(b"").soap_action}
    assert wire.last.authorization.startswith("Basic ")
    assert wire.last.body == preparing.stored_body(fresh(message), [])
    found = fresh(message)
    assert (found.state, found.due_at, found.completed_at, found.attempts) == ("sent", None, AT, 1)
    assert (found.action, found.conversation_id) == ("Committed", scene.coordination.identifier)
    assert found.service == "http://docs.oasis-open.org/ws-tx/wsat/2006/06"
    assert CoordinationMessage.objects.get(message=message).taken_at == AT
    assert Transmission.objects.get(message=message).address == scene.address
    assert work() == []


def registry_party(scene: Scene) -> Any:
    from partners.models import Party

    return Party.objects.get(pk=scene.terms.partner_id)


def test_soap_1_2_has_no_soap_action(scene: Scene, wire: Link) -> None:
    scene.send("Aborted", awaits=False, body=Octets(b"<Envelope/>", "application/soap+xml", ""))

    work()

    assert wire.last.headers == ()


@pytest.mark.parametrize(
    "address",
    [
        "https://elsewhere.example/ws-tx/participant",
        "http://{host}/ws-tx/participant",
        "https://{host}:8443/ws-tx/participant",
        "https://user:word@{host}/ws-tx/participant",
        "https://{host}/ws-tx/participant#there",
        "/ws-tx/participant",
        "urn:uuid:1",
        "http://www.w3.org/2005/08/addressing/anonymous",
        "https://[::1/ws-tx",
        "",
    ],
)
def test_no_message_goes_where_only_a_message_says(scene: Scene, address: str) -> None:
    host = scene.terms.partner_uri.removeprefix("https://").partition("/")[0]

    with pytest.raises(outgoing.WrongAddress):
        scene.send(to=address.format(host=host))

    assert not Message.objects.exists()


def test_the_port_of_the_scheme_may_be_named_or_not(scene: Scene) -> None:
    host = scene.terms.partner_uri.removeprefix("https://").partition("/")[0]

    assert outgoing.may_go_to(scene.terms, f"https://{host.upper()}:443/another/path?x=1")


# --- sent again until it is answered ---


@pytest.mark.parametrize("kind", ["Prepare", "Commit", "Prepared"], ids=["T23", "T25", "T22"])
def test_what_awaits_an_answer_goes_out_again_octet_by_octet(
    scene: Scene, wire: Link, time: FrozenClock, kind: str
) -> None:
    message = scene.send(kind)
    sent_at: list[float] = []
    while len(wire.parcels) < 5:
        if work():
            sent_at.append((clock.now() - AT).total_seconds())
            assert fresh(message).state == "awaiting_ack"
        time.move(0.2)

    gaps = [round(later - earlier, 1) for earlier, later in pairwise(sent_at)]
    assert gaps == [
        pytest.approx(5, abs=0.21),
        pytest.approx(7, abs=0.21),
        pytest.approx(9.8, abs=0.21),
        pytest.approx(13.8, abs=0.21),
    ]
    assert len({parcel.body for parcel in wire.parcels}) == 1
    assert len({(parcel.address, parcel.headers, parcel.content_type) for parcel in wire.parcels}) == 1

    assert scene.answered(kind) == 1
    time.move(3600)
    assert work() == []
    assert fresh(message).state == "delivered"


def test_t27_the_answer_of_somebody_who_asked_again_is_a_new_message(scene: Scene, wire: Link) -> None:
    """A forgotten participant answers Committed to every Commit: none of them awaits anything."""
    scene.send("Committed", awaits=False)
    scene.send("Committed", awaits=False)

    assert len(work()) == 2
    assert work() == []


def test_the_same_question_once_more_is_the_message_that_is_open(scene: Scene, wire: Link, time: FrozenClock) -> None:
    first = scene.send("Commit")
    work()
    time.move(1)

    again = scene.send("Commit")

    assert again.pk == first.pk
    assert len(work()) == 1
    assert wire.parcels[0].body == wire.parcels[1].body
    scene.answered()
    assert scene.send("Commit").pk != first.pk


def test_a_question_on_the_wire_is_not_put_there_twice(scene: Scene) -> None:
    message = scene.send("Commit")
    claim_due(limit=5)

    assert outgoing.again(enlistment=scene.enlistment, kind="Commit", now=clock.now()) == message
    assert claim_due(limit=5) == []


def test_an_answer_ends_the_message_while_it_is_on_the_wire(scene: Scene, wire: Link, time: FrozenClock) -> None:
    message = scene.send("Prepare")
    jobs = claim_due(limit=5)

    assert scene.answered("Prepare") == 1

    assert record([(job, TAKEN) for job in jobs]) == [False]
    assert (fresh(message).state, fresh(message).due_at) == ("delivered", None)
    assert Transmission.objects.get().outcome == "sent"
    assert scene.pair.done == 1
    time.move(3600)
    assert work() == []


def test_an_answer_ends_only_what_it_answers(scene: Scene, wire: Link) -> None:
    prepare, commit = scene.send("Prepare"), scene.send("Commit")
    other = scene.another()
    theirs = scene.send("Commit", enlistment=other)
    work()

    assert scene.answered("Commit") == 1

    assert [fresh(one).state for one in (prepare, commit, theirs)] == ["awaiting_ack", "delivered", "awaiting_ack"]
    assert outgoing.answered(relates_to=theirs.message_id, now=clock.now()) == 1
    assert fresh(theirs).state == "delivered"


def test_what_was_never_sent_is_not_delivered_by_an_early_answer(scene: Scene) -> None:
    message = scene.send("Prepare")

    scene.answered()

    assert (fresh(message).state, fresh(message).cause) == ("cancelled", "answer_not_needed")


def test_stopping_leaves_what_nobody_answers(scene: Scene, wire: Link) -> None:
    prepare, aborted = scene.send("Prepare"), scene.send("Aborted", awaits=False)

    assert outgoing.stop(coordination=scene.coordination, now=clock.now(), note="Rolled back before the vote.") == 1

    assert (fresh(prepare).state, fresh(prepare).cause_detail) == ("cancelled", "Rolled back before the vote.")
    assert [job.message_id for job in work()] == [aborted.pk]


def test_nobody_in_particular_is_no_answer(scene: Scene) -> None:
    with pytest.raises(ValueError, match="whose messages"):
        outgoing.answered(now=clock.now())
    with pytest.raises(ValueError, match="whose messages"):
        outgoing.stop(now=clock.now())


# --- failures ---


def test_a_failure_waits_like_an_answer_that_does_not_come(scene: Scene, time: FrozenClock) -> None:
    message = scene.send("Commit")
    with link(REFUSED):
        work()
    found = fresh(message)
    assert (found.state, found.cause, found.due_at) == ("retrying", "connect_refused", AT + timedelta(seconds=5))
    assert (scene.pair.retries, scene.pair.cause, scene.pair.done) == (1, "connect_refused", 0)

    time.move(5)
    with link(TAKEN):
        work()
    found = fresh(message)
    assert (found.state, found.cause, found.due_at) == ("awaiting_ack", "", AT + timedelta(seconds=12))
    assert (scene.pair.retries, scene.pair.cause, scene.pair.done) == (0, "", 1)


def test_what_nobody_answers_goes_out_until_it_is_taken(scene: Scene, time: FrozenClock) -> None:
    message = scene.send("Aborted", awaits=False)
    with link(LOST) as wire:
        for _ in range(40):
            time.move(600)
            work()
        assert len(wire.parcels) > 30
    time.move(600)
    with link(TAKEN):
        work()
    assert fresh(message).state == "sent"
    assert open_incidents() == []


def test_what_nobody_answers_is_given_up_a_day_after_the_transaction(scene: Scene, time: FrozenClock) -> None:
    message, asked = scene.send("Aborted", awaits=False), scene.send("Rollback")
    Coordination.objects.update(phase="aborted", ended_at=AT)
    with link(REFUSED):
        while clock.now() < AT + timedelta(hours=23, minutes=50):
            work()
            time.move(600)
        assert fresh(message).state == "retrying"
        time.move(1200)
        work()

    assert (fresh(message).state, fresh(message).cause) == ("cancelled", "transaction_forgotten")
    assert fresh(asked).state == "retrying"


def test_the_partner_says_how_long_to_wait(scene: Scene, time: FrozenClock) -> None:
    message = scene.send("Commit")
    with link(NOT_NOW):
        work()

    assert fresh(message).due_at == AT + timedelta(seconds=90)


def test_a_refusal_for_good_is_an_incident_at_once(scene: Scene, time: FrozenClock) -> None:
    scene.send("Commit")
    with link(FORBIDDEN):
        work()
    assert open_incidents() == ["http_401_403"]

    time.move(5)
    with link(TAKEN):
        work()
    assert open_incidents() == []


def test_an_address_that_is_not_the_partners_any_more_is_not_called(scene: Scene, wire: Link) -> None:
    message = scene.send("Commit")
    CoordinationMessage.objects.update(address="https://elsewhere.example/ws-tx/participant")

    assert work() == []

    assert (fresh(message).state, fresh(message).cause) == ("retrying", "address_outside_agreement")
    assert wire.parcels == []


def test_octets_that_are_damaged_are_not_sent(scene: Scene, wire: Link) -> None:
    message = scene.send("Commit")
    Message.objects.update(digest="0" * 64)

    assert work() == []

    assert (fresh(message).state, fresh(message).cause) == ("retrying", "payload_missing")


def test_what_belongs_to_no_transaction_any_more_is_cancelled(scene: Scene, wire: Link) -> None:
    message = scene.send("Commit")
    CoordinationMessage.objects.all().delete()

    assert work() == []
    assert (fresh(message).state, fresh(message).cause) == ("cancelled", "transaction_forgotten")


# --- workers that die ---


def test_a_lost_worker_s_message_goes_out_again_at_once(scene: Scene, wire: Link, time: FrozenClock) -> None:
    message = scene.send("Commit")
    (lost,) = claim_due(limit=5, worker=2**31 - 7)

    assert leases.release_dead(clock.now()) == 1

    (job,) = work()
    assert job.parcel.body == lost.parcel.body
    assert fresh(message).attempts == 2
    assert list(Transmission.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "sent"]
    # The outcome of the worker that was thought dead comes after all.
    assert record([(lost, REFUSED)]) == [False]
    assert fresh(message).state == "awaiting_ack"


def test_a_lease_runs_out(scene: Scene, wire: Link, time: FrozenClock) -> None:
    scene.send("Committed", awaits=False)
    claim_due(limit=5)
    time.move(LEASE - 1)
    assert work() == []
    time.move(2)

    assert len(work()) == 1


def test_a_worker_that_stops_gives_back_what_it_did_not_begin(scene: Scene, wire: Link) -> None:
    message = scene.send("Commit")
    jobs = claim_due(limit=5)

    give_back(jobs)

    assert len(work()) == 1
    assert fresh(message).state == "awaiting_ack"
    assert list(Transmission.objects.order_by("number").values_list("cause", flat=True)) == ["not_begun", ""]


def test_leases_of_waiting_jobs_are_renewed(scene: Scene, wire: Link, time: FrozenClock) -> None:
    scene.send("Commit")
    jobs = claim_due(limit=5)
    time.move(LEASE - 5)

    assert renew(jobs) == set()

    time.move(10)
    assert work() == []


# --- circuits ---


def test_a_server_that_is_left_alone_is_not_called(scene: Scene, time: FrozenClock) -> None:
    messages = [scene.send("Commit", enlistment=scene.another()) for _ in range(4)]
    with link(LOST):
        jobs = claim_due(limit=3)
        record([(job, transports.send(job.transport, job.parcel)) for job in jobs])
    circuits.refresh(at_once=True)
    (last,) = claim_due(limit=3)

    refusal = circuits.refuse(last)

    assert refusal is not None
    record([(last, refusal)])
    assert {fresh(one).state for one in messages} == {"retrying"}
    # It is back: what it missed goes out at once, not after the longest of the waits.
    time.move(5)
    (job, *_) = claim_due(limit=1)
    record([(job, TAKEN)])
    assert set(Message.objects.filter(state="retrying").values_list("due_at", flat=True)) == {clock.now()}


# --- people ---


def test_a_paused_pair_sends_nothing_and_goes_on_where_it_was(scene: Scene, wire: Link, time: FrozenClock) -> None:
    asked = scene.send("Prepare")
    work()
    operating.pair_pause(pair_id=scene.pair.pk, actor=ANN, reason="maintenance there")
    told = scene.send("Aborted", awaits=False)
    for _ in range(20):
        time.move(30)
        assert work() == []
    assert [fresh(one).state for one in (asked, told)] == ["awaiting_ack", "queued"]
    assert open_incidents() == []

    operating.pair_release(pair_id=scene.pair.pk, actor=ANN, reason="they are done")

    assert len(work()) == 2
    assert [fresh(one).state for one in (asked, told)] == ["awaiting_ack", "sent"]


def test_a_disabled_agreement_holds_what_is_owed(scene: Scene, wire: Link, time: FrozenClock) -> None:
    scene.send("Commit")
    version = registry_version(scene)
    services.agreement_disable(agreement=version.agreement)
    registry.reset()
    assert work() == []

    services.agreement_enable(agreement=version.agreement)
    registry.reset()
    time.move(11)
    assert len(work()) == 1


def registry_version(scene: Scene) -> Any:
    from partners.models import AgreementVersion

    return AgreementVersion.objects.select_related("agreement").get(pk=scene.terms.version_id)


def test_retry_now_sends_all_that_waits(scene: Scene, wire: Link) -> None:
    scene.send("Commit")
    scene.send("Commit", enlistment=scene.another())
    work()
    assert work() == []

    operating.pair_retry_now(pair_id=scene.pair.pk, actor=ANN, reason="they are back")

    assert len(work()) == 2
    assert AuditEntry.objects.get().verb == "pair.retry_now"


def test_verbs_that_mean_nothing_here_say_so(scene: Scene) -> None:
    pair = scene.pair
    assert operating.allowed_verbs(pair) == ("retry-now", "pause")
    for verb in (operating.pair_skip_head, operating.pair_restart_sequence, operating.pair_resume):
        with pytest.raises(WrongState):
            verb(pair_id=pair.pk, actor=ANN, reason="because it has to be")
    with pytest.raises(WrongState, match="Nothing waits"):
        operating.pair_retry_now(pair_id=pair.pk, actor=ANN, reason="let me see")
    inbound = Pair.objects.get(pk=pairs.inbound_pair_id(scene.terms))
    assert operating.allowed_verbs(inbound) == ()
    with pytest.raises(WrongState, match="no sequence numbers"):
        operating.pair_expect_sequence(pair_id=inbound.pk, expected=1, actor=ANN, reason="because it has to be")


def test_a_person_cancels_a_message(scene: Scene, wire: Link, time: FrozenClock) -> None:
    message = scene.send("Commit")
    work()
    assert "Settle the participant instead" in outgoing.cancel_warning(message)

    operating.message_cancel(message_id=message.pk, actor=ANN, reason="The participant is permanently gone.")

    assert fresh(message).state == "cancelled"
    time.move(3600)
    assert work() == []
    assert AuditEntry.objects.get().verb == "message.cancel"
    assert Event.objects.filter(type="message.cancelled").count() == 1
    with pytest.raises(WrongState):
        operating.message_cancel(message_id=message.pk, actor=ANN, reason="The participant is permanently gone.")


def test_what_is_on_the_wire_is_not_cancelled_by_a_person(scene: Scene) -> None:
    message = scene.send("Commit")
    claim_due(limit=5)

    with pytest.raises(WrongState, match="on the wire"):
        operating.message_cancel(message_id=message.pk, actor=ANN, reason="The participant is permanently gone.")

    assert fresh(message).state == "sending"


def test_messages_of_transactions_are_neither_resubmitted_nor_redelivered(scene: Scene) -> None:
    message = scene.send("Commit")
    received = store(scene)

    with pytest.raises(WrongState, match="belongs to a transaction"):
        resubmitting.message_resubmit(message_id=message.pk, actor=ANN, reason="once more")
    with pytest.raises(WrongState, match="belongs to a transaction"):
        resubmitting.message_redeliver(message_id=received.message_id, actor=ANN, reason="once more")


def test_no_document_is_submitted_under_an_agreement_of_transactions(scene: Scene) -> None:
    side = Documents(scene.terms, None)  # type: ignore[arg-type]

    with pytest.raises(OutsideAgreement, match="atomic transactions, which carry no documents"):
        submit(side)
    with pytest.raises((OutsideAgreement, InvalidSubmission)):
        submit(side, time_to_live=5)


# --- silence ---


def test_who_never_answers_is_an_incident_and_is_asked_on(time: FrozenClock, wire: Link) -> None:
    scene = set_up(retries=3, repeat_interval=5, repeat_interval_max=5)
    message = scene.send("Commit")
    for _ in range(3):
        work()
        time.move(5)
    assert open_incidents() == []
    work()  # the third resend
    time.move(5)
    assert open_incidents() == []
    work()

    incident = Incident.objects.get()
    assert (incident.cause, incident.pair_id, incident.message_id) == (outgoing.SILENT, scene.pair.pk, message.pk)
    assert incident.coordination == scene.coordination
    assert "Commit was sent to" in incident.detail and "after attempt 5" in incident.detail
    for _ in range(50):
        time.move(5)
        assert len(work()) == 1
    assert Incident.objects.get().occurrences == 51

    scene.answered("Commit")

    assert open_incidents() == []
    assert list(Event.objects.filter(type__startswith="incident.").values_list("type", flat=True)) == [
        "incident.opened",
        "incident.resolved",
    ]


def test_the_incident_lasts_until_nothing_is_open(time: FrozenClock, wire: Link) -> None:
    scene = set_up(retries=1, repeat_interval=5, repeat_interval_max=5)
    other = scene.another()
    scene.send("Commit")
    scene.send("Commit", enlistment=other)
    for _ in range(3):
        work()
        time.move(5)
    assert open_incidents() == [outgoing.SILENT]

    scene.answered()
    assert open_incidents() == [outgoing.SILENT]
    outgoing.stop(enlistment=other, now=clock.now(), note="Settled.")
    assert open_incidents() == []


def test_what_nobody_answers_makes_no_incident_of_silence(time: FrozenClock) -> None:
    scene = set_up(retries=1, repeat_interval=5, repeat_interval_max=5)
    scene.send("Aborted", awaits=False)
    with link(LOST):
        for _ in range(6):
            work()
            time.move(5)

    assert open_incidents() == []


# --- what comes in ---


def store(scene: Scene, **more: Any) -> CoordinationMessage:
    fields: dict[str, Any] = {
        "terms": scene.terms,
        "coordination": scene.coordination,
        "enlistment": scene.enlistment,
        "kind": "Prepared",
        "content_type": "text/xml",
        "octets": b"<Envelope>Prepared</Envelope>",
        "now": clock.now(),
        "message_id": "urn:uuid:1",
    }
    return outgoing.store_received(**(fields | more))


def test_a_received_message_is_kept_octet_by_octet(scene: Scene, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        row = store(scene, relates_to="urn:uuid:0", note="ignored")

    message = Message.objects.get(pk=row.pk)
    assert preparing.stored_body(message, []) == b"<Envelope>Prepared</Envelope>"
    assert (message.direction, message.state, message.action, message.ref_to_message_id) == (
        "in",
        "received",
        "Prepared",
        "urn:uuid:0",
    )
    assert message.conversation_id == scene.coordination.identifier
    inbound = Pair.objects.get(pk=pairs.inbound_pair_id(scene.terms))
    assert (message.pair_id, inbound.done, inbound.last_success_at) == (inbound.pk, 1, AT)


def test_a_message_without_an_id_gets_one(scene: Scene) -> None:
    row = store(scene, message_id="", coordination=None, enlistment=None)

    assert row.message.message_id.startswith("urn:uuid:")
    assert "no MessageID" in row.note


def test_documents_and_transactions_share_a_worker(scene: Scene, wire: Link) -> None:
    from tests.messaging.factories import partner_side

    submit(partner_side())
    submit(partner_side(), semantics="BestEffort")
    scene.send("Commit")

    assert sorted(job.kind for job in work()) == ["own", "pair", "unreliable"]


def test_incidents_are_opened_after_the_rows_of_all_messages_are_locked(scene: Scene) -> None:
    """Claims hold rows of messages when they open an incident: whoever has one must not wait for such a row."""
    from tests.messaging.factories import partner_side

    submit(partner_side(profile="repeatable"))
    scene.send("Commit")
    jobs = claim_due(limit=5)
    assert sorted(job.kind for job in jobs) == ["own", "own"]
    with CaptureQueriesContext(connection) as asked:
        record([(job, FORBIDDEN) for job in jobs])
    said = [query["sql"] for query in asked]
    asks = "FROM messaging_message WHERE id = ANY"
    locks = [at for at, sql in enumerate(said) if asks in sql and "FOR UPDATE" in sql]
    opened = [at for at, sql in enumerate(said) if sql.startswith('INSERT INTO "messaging_incident"')]
    assert (len(locks), len(opened)) == (2, 2)
    assert locks[-1] < opened[0]


def test_a_worker_claims_no_more_than_it_is_given(scene: Scene, wire: Link) -> None:
    for _ in range(5):
        scene.send("Commit", enlistment=scene.another())

    assert [len(work(limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_crowded_pair_is_passed_over(scene: Scene) -> None:
    scene.send("Commit")

    assert claim_due(limit=5, passed_over=[scene.pair.pk]) == []
