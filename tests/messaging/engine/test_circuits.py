"""Circuits as the workers see them: counted, opened, probed by exactly one, closed, reset by people."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from messaging import transports
from messaging.engine import circuits
from messaging.engine.claiming import Job, claim_due
from messaging.engine.recording import record
from messaging.exceptions import InvalidSubmission, NotFound
from messaging.journal.audit import Actor
from messaging.journal.incidents import incident_open
from messaging.messages.services import inquiries
from messaging.models import AuditEntry, Circuit, Event, Incident, Message, Pair, Signal, Transmission
from messaging.pairs.selectors import circuits as selectors
from messaging.pairs.services import probing
from messaging.servers import pairs_at
from messaging.transports import Receipt
from messaging.transports.base import server_of
from partners import registry
from partners.models import Endpoint
from rmhub import clock
from rmhub.clock import FrozenClock, frozen
from tests.messaging.console.scenes import browser
from tests.messaging.factories import LOST, REFUSED, TAKEN, PartnerSide, link, partner_side, submit
from tests.messaging.http_server import serving
from tests.messaging.pairs.test_probing import heads
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
BUSY = Receipt(ok=False, status=503, cause="http_5xx", retry_after=30)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def server(partner: PartnerSide) -> str:
    return server_of(partner.terms.partner_address)


def circuit(partner: PartnerSide) -> Circuit | None:
    return Circuit.objects.filter(pk=server(partner)).first()


def attempt(*jobs: Job) -> list[Receipt]:
    """What a worker does with claimed jobs: asks, talks, records."""
    outcomes = [(job, circuits.admit(job) or transports.send(job.transport, job.parcel)) for job in jobs]
    record(outcomes)
    circuits.refresh(at_once=True)  # what happens at the commit, which a test rolls back
    return [receipt for _, receipt in outcomes]


def plain(partner: PartnerSide, count: int) -> list[Job]:
    """So many messages that are sent once, claimed."""
    for _ in range(count):
        submit(partner, semantics="BestEffort")
    return claim_due(limit=count)


def opened(partner: PartnerSide) -> None:
    """Its server could not be reached three times in three seconds."""
    jobs = plain(partner, 3)
    with link(REFUSED):
        attempt(*jobs[:2])
        Circuit.objects.filter(pk=server(partner)).update(silent_since=clock.now() - timedelta(seconds=3))
        attempt(jobs[2])


def another(partner: PartnerSide) -> PartnerSide:
    """Another URI of another partner at the same server."""
    party = make_party()
    uri = partner.terms.partner_address.rpartition("/")[0] + "/other"
    return partner_side(make_agreement(partner=party, partner_endpoint=make_endpoint(party, uri)))


@pytest.mark.parametrize(
    ("address", "mail_server", "expected"),
    [
        ("https://MSH.Partner.example/ebxml?x=1", "", "https://msh.partner.example:443"),
        ("http://user:word@partner.example:8080/a", "", "http://partner.example:8080"),
        ("http://[2001:db8::1]/a", "", "http://[2001:db8::1]:80"),
        (
            "mailto:orders@partner.example",
            "smtp+starttls://user:word@mail.partner.example",
            "smtp+starttls://mail.partner.example:587",
        ),
        ("mailto:orders@partner.example", "", "smtp://relay.example:2525"),
        ("sftp://files.partner.example/in/", "", "sftp://files.partner.example:22"),
        ("sftp://files.partner.example/in/", "sftp://10.0.0.1:2222", "sftp://10.0.0.1:2222"),
        ("http://[broken", "", "http://[broken"),
    ],
)
def test_servers_are_known_by_scheme_host_and_port(
    address: str, mail_server: str, expected: str, settings: object
) -> None:
    settings.RMHUB_SMTP_RELAY = "smtp://relay.example:2525"  # type: ignore[attr-defined]
    assert server_of(address, mail_server) == expected


# ---- counting and opening ----


def test_failures_in_a_row_for_three_seconds_open_it(time: FrozenClock) -> None:
    partner = partner_side()
    with link(REFUSED):
        attempt(*plain(partner, 4))
        time.move(2.9)
        attempt(*plain(partner, 1))
        row = circuit(partner)
        assert row is not None
        assert (row.state, row.failures, row.cause, row.silent_since) == ("closed", 5, "connect_refused", AT)
        assert not Event.objects.filter(type__startswith="circuit.").exists()
        time.move(0.1)
        attempt(*plain(partner, 1))
    row = circuit(partner)
    assert row is not None
    opened_at = AT + timedelta(seconds=3)
    assert (row.state, row.failures, row.silent_since, row.opened_at) == ("open", 6, AT, opened_at)
    assert row.retry_at == opened_at + timedelta(seconds=3)
    event = Event.objects.get(type="circuit.opened")
    assert event.data["server"] == server(partner)
    assert (event.data["cause"], event.data["failures"]) == ("connect_refused", 6)
    assert event.data["retry_at"] == "2026-05-01T12:00:06+00:00"


@pytest.mark.parametrize("cause", ["read_timeout", "connect_timeout"])
def test_an_attempt_that_ran_into_a_time_limit_has_waited_that_long(cause: str, time: FrozenClock) -> None:
    partner = partner_side()
    with link(replace(LOST, cause=cause)):
        attempt(*plain(partner, 2))
        assert selectors.open_count() == 0
        attempt(*plain(partner, 1))
    row = circuit(partner)
    assert row is not None and row.silent_since is not None
    limit = partner.terms.read_timeout if cause == "read_timeout" else partner.terms.connect_timeout
    assert (row.state, row.opened_at, row.silent_since) == ("open", AT, AT - timedelta(seconds=limit))


def test_an_answer_in_between_ends_the_count(time: FrozenClock) -> None:
    partner = partner_side()
    for answer in (REFUSED, BUSY, LOST, TAKEN):
        with link(answer):
            attempt(*plain(partner, 1 if answer.ok or answer.status else 2))
        assert (circuit(partner) is None) == (answer in (BUSY, TAKEN))


def test_ordinary_traffic_neither_reads_nor_writes_circuits(time: FrozenClock) -> None:
    circuits.refresh()
    partner = partner_side()
    jobs = plain(partner, 3)
    with CaptureQueriesContext(connection) as queries:
        for job in jobs:
            assert circuits.refuse(job) is circuits.admit(job) is None
        record([(job, TAKEN) for job in jobs])
    assert not [query for query in queries.captured_queries if "circuit" in query["sql"]]


def test_failures_in_one_group_are_one_statement_for_all_servers(time: FrozenClock) -> None:
    partners = [partner_side() for _ in range(3)]
    jobs = [job for partner in partners for job in plain(partner, 2)]
    with link(LOST):
        attempt(*jobs)
    assert [row.failures for row in Circuit.objects.all()] == [2, 2, 2]


# ---- failing at once ----


def test_while_it_is_open_nothing_goes_out_and_the_text_says_why_and_until_when(time: FrozenClock) -> None:
    partner = partner_side(transport_retries=2, transport_retry_interval=7)
    opened(partner)
    message = submit(partner)
    [job] = claim_due(limit=10)
    time.move(2)
    refused = circuits.refuse(job)
    assert refused is not None
    with link() as wire:
        assert attempt(job) == [refused]
    assert wire.parcels == []
    assert refused.cause == "circuit_open"
    assert "could not be reached 3 times in a row (last: connect_refused)" in refused.detail
    assert "stopped at 2026-05-01 12:00:00 UTC" in refused.detail
    assert "at 12:00:03 UTC" in refused.detail
    # Exactly what a failed transport is: its own counter, its own interval.
    pair = partner.outbound
    assert (pair.flow, pair.transport_attempts, pair.retries) == ("resend_wait", 1, 0)
    assert pair.due_at == AT + timedelta(seconds=2 + 7)
    message.refresh_from_db()
    assert (message.state, message.cause, message.cause_detail) == ("retrying", "circuit_open", refused.detail)
    assert Transmission.objects.get(pk=job.transmission_id).cause == "circuit_open"


def test_all_uris_of_a_server_share_it(time: FrozenClock) -> None:
    partner, elsewhere = partner_side(), partner_side()
    neighbour = another(partner)
    opened(partner)
    for side in (neighbour, elsewhere):
        submit(side)
    by_address = {job.parcel.address: job for job in claim_due(limit=10)}
    assert circuits.refuse(by_address[neighbour.terms.partner_address]) is not None
    assert circuits.refuse(by_address[elsewhere.terms.partner_address]) is None


def test_acknowledgements_follow_the_agreements_transport_recovery(time: FrozenClock) -> None:
    partner = partner_side(transport_retries=1, transport_retry_interval=7)
    opened(partner)
    partner.send(partner.message(1))
    [job] = claim_due(limit=10)
    time.move(1)
    assert [receipt.cause for receipt in attempt(job)] == ["circuit_open"]
    signal = Signal.objects.get()
    assert (signal.state, signal.due_at) == ("pending", AT + timedelta(seconds=8))
    Circuit.objects.update(retry_at=AT + timedelta(seconds=60))
    circuits.refresh(at_once=True)
    time.move(7)
    attempt(*claim_due(limit=10))
    signal.refresh_from_db()
    assert (signal.state, signal.due_at) == ("failed", None)


def test_no_pair_is_given_up_on_the_word_of_a_circuit_alone(time: FrozenClock) -> None:
    """The last attempt of a message goes out, whatever the circuit says: the partner may be back."""
    partner = partner_side(timeout=30, retries=1, retry_interval=20, transport_retries=1, transport_retry_interval=5)
    opened(partner)
    Circuit.objects.update(retry_at=AT + timedelta(days=1))
    circuits.refresh(at_once=True)
    submit(partner)
    causes = []
    with link(REFUSED) as wire:
        for wait in (5, 20, 5, 20):
            causes += [receipt.cause for receipt in attempt(*claim_due(limit=10))]
            time.move(wait)
        assert causes == ["circuit_open"] * 3 + ["connect_refused"]
        assert len(wire.parcels) == 1
        assert claim_due(limit=10) == []
    assert partner.outbound.flow == "suspended"


def test_the_last_attempt_may_find_the_server_back(time: FrozenClock) -> None:
    partner = partner_side(retries=0, transport_retries=0)
    opened(partner)
    message = submit(partner)
    with link():
        assert attempt(*claim_due(limit=10)) == [TAKEN]
    message.refresh_from_db()
    assert (message.state, circuit(partner)) == ("awaiting_ack", None)


# ---- the probe ----


def test_one_attempt_is_let_through_at_its_time(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(5)
    first, *others = plain(partner, 3)
    assert circuits.refuse(first) is None, "it may wait for a thread"
    assert circuits.admit(first) is None
    refused = [circuits.admit(job) for job in others]
    assert all(receipt is not None and receipt.cause == "circuit_open" for receipt in refused)
    row = circuit(partner)
    assert row is not None
    assert row.retry_at == AT + timedelta(seconds=5 + circuits_lease(first)), "another, if nothing is heard of this one"


def circuits_lease(job: Job) -> float:
    return job.parcel.connect_timeout + job.parcel.read_timeout + 15


def test_the_longer_a_server_is_away_the_longer_it_is_left_alone(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    waits = []
    for _ in range(6):
        row = circuit(partner)
        assert row is not None and row.retry_at is not None
        time.move((row.retry_at - circuits.clock.now()).total_seconds())
        with link(LOST):
            assert [receipt.cause for receipt in attempt(*plain(partner, 2))] == ["read_timeout", "circuit_open"]
        row = circuit(partner)
        assert row is not None and row.retry_at is not None
        waits.append((row.retry_at - circuits.clock.now()).total_seconds())
        assert (row.opened_at, row.cause) == (AT, "read_timeout")
    assert waits == [3, 3, 3, 3, 3.75, 4.6875]
    assert Event.objects.filter(type="circuit.opened").count() == 1


@pytest.mark.parametrize("answer", [TAKEN, BUSY])
def test_an_answer_to_the_probe_closes_it(answer: Receipt, time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(5)
    with link(answer) as wire:
        attempt(*plain(partner, 1))
        assert circuit(partner) is None
        attempt(*plain(partner, 3))
    assert len(wire.parcels) == 4
    event = Event.objects.get(type="circuit.closed")
    assert event.data == {"server": server(partner), "cause": "connect_refused", "open_seconds": 5}


def test_an_attempt_that_was_under_way_when_it_opened_moves_nothing(time: FrozenClock) -> None:
    partner = partner_side()
    late = plain(partner, 1)
    opened(partner)
    before = circuit(partner)
    time.move(3)
    record([(late[0], LOST)])
    after = circuit(partner)
    assert before is not None and after is not None
    assert (after.failures, after.retry_at, after.cause) == (before.failures, before.retry_at, before.cause)


def test_a_probe_that_was_not_put_on_the_wire_leaves_its_place(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(5)
    first, second = plain(partner, 2)
    assert circuits.admit(first) is None
    record([(first, transports.TOO_LATE)])
    circuits.refresh(at_once=True)
    row = circuit(partner)
    assert row is not None and row.retry_at == AT + timedelta(seconds=5)
    assert circuits.admit(second) is None


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_one_takes_the_probe() -> None:
    partner = partner_side()
    opened(partner)
    Circuit.objects.update(retry_at="2020-01-01T00:00:00Z")
    jobs = plain(partner, 6)
    start = threading.Barrier(6)
    let_through: list[Job] = []

    def worker(job: Job, known: circuits._Known) -> None:
        start.wait(120)
        try:
            if circuits._take_probe(job, server(partner), known.rows[server(partner)], circuits.clock.now()):
                let_through.append(job)
        finally:
            connections.close_all()

    circuits.refresh(at_once=True)
    threads = [threading.Thread(target=worker, args=(job, circuits._known)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(let_through) == 1


def test_another_process_sees_it_within_a_second(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    [job] = plain(partner, 1)
    circuits.forget()  # as if it were another process
    assert circuits.refuse(job) is None
    circuits.refresh()
    assert circuits.refuse(job) is not None
    Circuit.objects.all().delete()
    circuits.refresh()
    assert circuits.refuse(job) is not None, "read less than a second ago"
    circuits.refresh(at_once=True)
    assert circuits.refuse(job) is None


# ---- people ----


def test_a_person_has_it_tried_now(time: FrozenClock, woken: list[str], django_capture_on_commit_callbacks) -> None:
    partner = partner_side()
    opened(partner)
    row = circuit(partner)
    assert row is not None
    with django_capture_on_commit_callbacks(execute=True):
        reset = circuits.circuit_reset(circuit_id=row.public_id, actor=ANN, reason="They say that it is up.")
    assert (reset.state, reset.retry_at) == ("open", AT)
    assert woken == ["messaging.send_due"]
    entry = AuditEntry.objects.get(verb="circuit.reset")
    assert (entry.actor, entry.reason, entry.object_name) == ("ann", "They say that it is up.", server(partner))
    assert entry.before["retry_at"] == "2026-05-01T12:00:03+00:00"
    circuits.refresh(at_once=True)
    with link(REFUSED) as wire:
        attempt(*plain(partner, 2))
    assert len(wire.parcels) == 1
    row.refresh_from_db()
    assert row.retry_at == AT + timedelta(seconds=3), "the waits begin anew"


def test_failures_that_are_only_counted_are_forgotten_by_a_reset(time: FrozenClock) -> None:
    partner = partner_side()
    with link(REFUSED):
        attempt(*plain(partner, 2))
    row = circuit(partner)
    assert row is not None
    reset = circuits.circuit_reset(circuit_id=row.public_id, actor=ANN, reason="A test of ours.")
    assert (reset.state, reset.failures, reset.address) == ("closed", 0, server(partner))
    assert circuit(partner) is None


def test_a_reset_needs_a_reason_and_a_circuit(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    row = circuit(partner)
    assert row is not None
    with pytest.raises(InvalidSubmission):
        circuits.circuit_reset(circuit_id=row.public_id, actor=ANN, reason=" ")
    with pytest.raises(NotFound):
        circuits.circuit_reset(circuit_id="cir_00", actor=ANN, reason="Try it.")
    assert not AuditEntry.objects.exists()


# ---- incidents ----


def test_minutes_without_the_server_are_an_incident_that_closes_itself(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(299)
    assert circuits.watch() == 0
    time.move(1)
    assert (circuits.watch(), circuits.watch()) == (1, 1)
    incident = Incident.objects.get()
    assert (incident.cause, incident.pair, incident.state) == ("server_unreachable", partner.outbound, "open")
    assert server(partner) in incident.detail
    with link():
        attempt(*plain(partner, 1))
    assert circuits.watch() == 0
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by) == ("resolved", "system")


def test_an_incident_that_a_person_has_resolved_does_not_come_back_for_the_same_outage(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(400)
    circuits.watch()
    Incident.objects.update(state="resolved", resolved_at=circuits.clock.now())
    time.move(30)
    assert circuits.watch() == 1
    assert Incident.objects.count() == 1
    Circuit.objects.update(opened_at=circuits.clock.now())
    time.move(300)
    circuits.watch()
    assert Incident.objects.count() == 2


def test_a_server_that_nothing_is_sent_to_any_more_is_forgotten(time: FrozenClock) -> None:
    partner = partner_side()
    opened(partner)
    time.move(24 * 3600 - 1)
    circuits.watch()
    assert circuit(partner) is not None
    time.move(1)
    circuits.watch()
    assert circuit(partner) is None
    assert Event.objects.get(type="circuit.closed").data["unused"] is True


def test_pairs_of_a_server_both_ways(time: FrozenClock) -> None:
    partner, elsewhere = partner_side(), partner_side()
    neighbour = another(partner)
    wanted = {side.pk for partner_ in (partner, neighbour) for side in (partner_.outbound, partner_.inbound)}
    assert set(pairs_at(frozenset({server(partner)}))) == wanted
    assert elsewhere.outbound.pk not in wanted
    assert pairs_at(frozenset()) == []
    submit(partner)
    other = submit(elsewhere)
    jobs = claim_due(limit=10, passed_over=pairs_at(frozenset({server(partner)})))
    assert [job.message_id for job in jobs] == [other.pk]
    assert Message.objects.filter(state="queued").count() == 1


def test_nothing_is_claimed_for_pairs_that_are_passed_over(time: FrozenClock) -> None:
    """Messages that are sent once and acknowledgements, too."""
    partner = partner_side()
    partner.send(partner.message(1))
    submit(partner, semantics="BestEffort")
    submit(partner)
    assert claim_due(limit=10, passed_over=pairs_at(frozenset({server(partner)}))) == []
    assert len(claim_due(limit=10)) == 3


# ---- whoever asks: an answer is an answer ----


def down_for_long(time: FrozenClock, url: str) -> PartnerSide:
    """A partner at this address whose server was not reached for ten minutes: circuit and incident are open."""
    party = make_party()
    partner = partner_side(make_agreement(partner=party, partner_endpoint=make_endpoint(party, url)))
    opened(partner)
    time.move(600)
    assert circuits.watch() == 1
    return partner


def test_a_ping_that_is_answered_closes_circuit_and_incident(time: FrozenClock, woken: list[str]) -> None:
    with serving(heads(b"HTTP/1.1 405 No\r\nConnection: close\r\n\r\n")) as there:
        partner = down_for_long(time, there.url)
        woken.clear()
        probing.ping(pair_id=partner.outbound.pk, actor=ANN)
    assert circuit(partner) is None
    incident = Incident.objects.get()
    assert (incident.state, incident.resolved_by, incident.resolved_at) == ("resolved", "system", clock.now())
    assert list(Event.objects.filter(type__startswith="circuit").values_list("type", flat=True).order_by("id")) == [
        "circuit.opened",
        "circuit.closed",
    ]
    assert circuits.watch() == 0 and Incident.objects.count() == 1


def test_a_ping_that_is_not_answered_changes_nothing(time: FrozenClock) -> None:
    with serving(lambda connection: None) as there:
        partner = down_for_long(time, there.url)
    probing.ping(pair_id=partner.outbound.pk, actor=ANN)
    assert circuit(partner) is not None and Incident.objects.get().state == "open"


def test_an_answer_about_a_message_closes_circuit_and_incident(time: FrozenClock) -> None:
    with serving(heads(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")) as there:
        partner = down_for_long(time, there.url)
        Endpoint.objects.filter(address="", uri=there.url).update(service_address=there.url)
        registry.reset()
        message = submit(partner)
        Message.objects.filter(pk=message.pk).update(attempts=1)
        asked = inquiries.ask(message_id=message.pk, actor=ANN)
    assert asked.http_status == 404
    assert circuit(partner) is None and Incident.objects.get().state == "resolved"


def test_the_incident_closes_with_the_attempt_that_is_answered(time: FrozenClock) -> None:
    """And not with the next round of housekeeping: until then the page would say what is not so."""
    partner = partner_side()
    opened(partner)
    time.move(600)
    circuits.watch()
    with link():
        attempt(*plain(partner, 1))
    assert Incident.objects.get().state == "resolved"


def test_a_pair_that_gave_up_keeps_its_incident_when_the_server_answers(time: FrozenClock) -> None:
    with serving(heads(b"HTTP/1.1 405 No\r\nConnection: close\r\n\r\n")) as there:
        partner = down_for_long(time, there.url)
        Pair.objects.filter(pk=partner.outbound.pk).update(flow="suspended", cause="connect_refused")
        with transaction.atomic():
            incident_open(pair=partner.outbound, cause="connect_refused", now=clock.now())
        probing.ping(pair_id=partner.outbound.pk, actor=ANN)
    states = dict(Incident.objects.values_list("cause", "state"))
    assert states == {"server_unreachable": "resolved", "connect_refused": "open"}


def test_a_server_of_terms_that_are_over_is_known_by_the_pair_that_it_was_tried_for(time: FrozenClock) -> None:
    """A message goes by the terms that it was made under."""
    partner = partner_side()
    jobs = plain(partner, 3)
    elsewhere = [replace(job, parcel=replace(job.parcel, address="https://old.example/msh")) for job in jobs]
    with link(LOST):
        attempt(*elsewhere)
    row = Circuit.objects.get()
    assert row.address == "https://old.example:443" and row.pair == partner.outbound
    (shown,) = selectors.rows(selectors.circuits())
    assert shown.partners == () and selectors.partners_at(shown.circuit) == (partner.terms.partner_name,)
    time.move(600)
    assert circuits.watch() == 1
    assert Incident.objects.get().pair == partner.outbound
    said = browser().get("/servers/").content.decode()
    assert "no agreement in force uses it" not in said and partner.outbound.code.replace(">", "&gt;") in said
