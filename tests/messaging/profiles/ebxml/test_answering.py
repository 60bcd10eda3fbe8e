"""The partner's answers: those that count move the pair, all others are kept and move nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from django.db import connection

from messaging.choices import Direction
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, Pair, Rejection, Signal, Transmission
from messaging.pairs.services import operating
from messaging.profiles.ebxml import accepting, answering
from messaging.protocol.envelope import RoutingHeader
from messaging.protocol.errors import ErrorCode, Severity
from messaging.transports import Parcel, Receipt
from partners import registry, services
from partners.models import Agreement
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import REFUSED, TAKEN, PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import ERRORS, MSH, edited, items, post
from tests.partners.factories import make_agreement, make_endpoint

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")


@pytest.fixture
def time() -> FrozenClock:
    with frozen(AT) as clock:
        yield clock


def sent(partner: PartnerSide, **fields: object) -> tuple[Message, Parcel]:
    """A message that was handed over and now waits for its answer, and its octets."""
    message = submit(partner, **fields)
    with link() as wire:
        work()
    return message, wire.last


def suspended(partner: PartnerSide, time: FrozenClock) -> tuple[Message, Parcel]:
    """A message that nobody answered until its pair gave up."""
    message, parcel = sent(partner)
    with link():
        while partner.outbound.flow != "suspended":
            time.move(1000)
            work()
    return message, parcel


def look(message: Message) -> tuple[str, str]:
    """State of the message, flow of its pair."""
    message.refresh_from_db()
    return message.state, Pair.objects.get(pk=message.pair_id).flow


def frozen_rows() -> list[object]:
    """What no ignored answer may change."""
    fields = [f.attname for f in Pair._meta.concrete_fields]
    return [
        *Pair.objects.order_by("pk").values_list(*fields),
        *Message.objects.order_by("pk").values_list("state", "cause"),
    ]


def ignored(arrival: Arrival, note: str, *, path: str = MSH) -> Signal:
    """Posts an answer that must move nothing: it is taken, written down with its reason, and never answered."""
    before, events, incidents = frozen_rows(), Event.objects.count(), Incident.objects.count()
    answer = post(arrival, path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert frozen_rows() == before
    assert (Event.objects.count(), Incident.objects.count(), Rejection.objects.count()) == (events, incidents, 0)
    assert not Signal.objects.filter(direction=Direction.OUT).exists(), "answers are not answered"
    signal = Signal.objects.filter(direction=Direction.IN).latest("id")
    assert (signal.state, bytes(signal.body)) == ("ignored", arrival.body)
    assert note in signal.note
    return signal


def test_an_acknowledgement_completes_the_message_and_the_next_may_go(time: FrozenClock, woken: list[str]) -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    following = submit(partner)
    woken.clear()
    time.move(5)
    assert post(partner.acknowledgement(parcel)).status_code == 204
    assert look(message) == ("delivered", "idle")
    message.refresh_from_db()
    assert message.completed_at == time.move(0)
    pair = partner.outbound
    assert (pair.in_flight_id, pair.done, pair.last_success_at, pair.due_at) == (None, 1, time.move(0), time.move(0))
    assert woken == ["messaging.send_due"]
    event = Event.objects.get(type="message.delivered")
    assert (event.message_id, event.data["attempts"]) == (message.pk, 1)
    signal = Signal.objects.get()
    assert (signal.state, signal.kind, signal.about_id, signal.note) == ("matched", "ack", message.pk, "")
    with link() as wire:
        work()
    assert decoded(wire.last).message_id == following.message_id
    assert decoded(wire.last).hop.sequence_number == 2


def test_an_acknowledgement_may_come_to_the_entrance_for_errors() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    post(partner.acknowledgement(parcel), ERRORS)
    assert look(message) == ("delivered", "idle")


@pytest.mark.parametrize("spelling", ["Acknowledgement", "Acknowledgment"])
def test_both_spellings_are_read(spelling: str) -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    post(edited(partner.acknowledgement(parcel), ('"Acknowledgement"', f'"{spelling}"')))
    assert look(message)[0] == "delivered"


def test_of_an_unknown_message() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    signal = ignored(partner.acknowledgement(parcel, ref_to_message_id="nobody@x"), "names no message of ours")
    assert (signal.about_id, signal.ref_to_message_id) == (None, "nobody@x")
    assert look(message) == ("awaiting_ack", "awaiting_ack")
    ignored(edited(partner.acknowledgement(parcel), ("RefToMessageId", "Other")), "names no message of ours")


def test_of_a_message_that_we_received_ourselves() -> None:
    partner = partner_side()
    partner.send(partner.message(1, "theirs@p"))
    with link():
        work()
    Signal.objects.all().delete()
    _, parcel = sent(partner)
    ignored(partner.acknowledgement(parcel, ref_to_message_id="theirs@p"), "names no message of ours")


def test_from_another_partner() -> None:
    """The one to whom the message went has not said that it has it."""
    partner, other = partner_side(), partner_side()
    message, parcel = sent(partner)
    answer = other.acknowledgement(parcel, agreement_id=other.terms.tpa_id)
    signal = ignored(answer, "comes from another partner")
    assert signal.about_id == message.pk
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_from_another_partner_in_the_name_of_the_right_one() -> None:
    partner, other = partner_side(), partner_side()
    message, parcel = sent(partner)
    signal = ignored(other.acknowledgement(parcel), "comes from another partner")
    assert signal.agreement_version_id is None
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_from_another_sender_uri_of_the_same_partner() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    hop = decoded(partner.acknowledgement(parcel)).hop
    elsewhere = RoutingHeader("https://other.example/msh", hop.receiver_uri, hop.error_uri, hop.timestamp)
    ignored(partner.acknowledgement(parcel, routing=(elsewhere,)), "another SenderURI")
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_the_case_of_scheme_and_host_is_no_other_sender_uri() -> None:
    partner = partner_side(make_agreement(partner_uri="https://msh.partner.example/MSH"))
    message, parcel = sent(partner)
    answer = edited(
        partner.acknowledgement(parcel), ("https://msh.partner.example/MSH</S", "HTTPS://MSH.Partner.EXAMPLE/MSH</S")
    )
    assert post(answer).status_code == 204
    assert look(message)[0] == "delivered"


def test_twice() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    ack = partner.acknowledgement(parcel)
    post(ack)
    ignored(ack, "not in flight (delivered)")
    assert look(message) == ("delivered", "idle")
    assert partner.outbound.done == 1


def test_twice_in_one_group_and_of_two_messages() -> None:
    partner, other = partner_side(), partner_side()
    message, parcel = sent(partner)
    second, second_parcel = sent(other)
    acks = [partner.acknowledgement(parcel), other.acknowledgement(second_parcel)]
    accepting.accept([*items(partner, acks[0], acks[0]), *items(other, acks[1])])
    assert (look(message)[0], look(second)[0]) == ("delivered", "delivered")
    assert sorted(Signal.objects.values_list("state", flat=True)) == ["ignored", "matched", "matched"]
    assert Event.objects.filter(type="message.delivered").count() == 2


def test_of_a_message_that_still_waits() -> None:
    """Nobody can have it: it was never sent."""
    partner = partner_side()
    _, parcel = sent(partner)
    waiting = submit(partner)
    ignored(partner.acknowledgement(parcel, ref_to_message_id=waiting.message_id), "not in flight (queued)")
    assert look(waiting)[0] == "queued"


def test_late_after_the_suspension_the_message_is_delivered_and_a_person_still_decides(time: FrozenClock) -> None:
    partner = partner_side(timeout=30, retries=1, retry_interval=10)
    message, parcel = suspended(partner, time)
    following = submit(partner)
    assert look(message) == ("failed", "suspended")
    assert post(partner.acknowledgement(parcel)).status_code == 204
    assert look(message) == ("delivered", "suspended")
    assert Incident.objects.get().state == "open"
    with link() as wire:
        work()
    assert wire.parcels == [], "it is the person who lets the next go"
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="they had it after all")
    with link() as wire:
        work()
    assert decoded(wire.last).message_id == following.message_id
    assert decoded(wire.last).hop.sequence_number == 2
    assert Incident.objects.get().state == "resolved"


def test_after_its_agreement_was_disabled_it_still_counts() -> None:
    """What was sent under an agreement is finished under it."""
    partner = partner_side()
    message, parcel = sent(partner)
    services.agreement_disable(agreement=Agreement.objects.get(pk=partner.terms.agreement_id))
    registry.reset()
    assert post(partner.acknowledgement(parcel)).status_code == 204
    assert look(message) == ("delivered", "idle")
    assert Signal.objects.get().agreement_version_id is None, "no agreement of that name is in force"


def test_without_a_credential_it_is_refused() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    answer = post(partner.acknowledgement(parcel), HTTP_AUTHORIZATION="Basic bm86bm8=")
    assert answer.status_code == 401
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_that_overtakes_the_record_of_our_own_attempt() -> None:
    """The answer is here before the worker has written down that it sent: the outcome then moves nothing."""
    partner = partner_side()
    message = submit(partner)
    [job] = claim_due(limit=10)
    assert look(message) == ("sending", "sending")
    post(partner.acknowledgement(job.parcel))
    assert look(message) == ("delivered", "idle")
    following = submit(partner)
    assert record([(job, TAKEN)]) == [False]
    assert (look(message), look(following)) == (("delivered", "idle"), ("queued", "idle"))
    assert Transmission.objects.get().outcome == "sent"
    [next_job] = claim_due(limit=10)
    assert record([(job, REFUSED), (next_job, TAKEN)]) == [False, True]
    assert look(following) == ("awaiting_ack", "awaiting_ack")


def test_between_two_attempts_it_counts_and_nothing_is_sent_again(time: FrozenClock) -> None:
    partner = partner_side(timeout=30, retries=3, retry_interval=10)
    message, parcel = sent(partner)
    time.move(30)
    with link(REFUSED) as wire:
        work()
    assert look(message) == ("retrying", "resend_wait")
    post(partner.acknowledgement(parcel))
    assert look(message) == ("delivered", "idle")
    time.move(10_000)
    with link() as wire:
        work()
    assert wire.parcels == []


def test_that_arrives_while_the_pair_is_paused_counts() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    following = submit(partner)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason="their request")
    post(partner.acknowledgement(parcel))
    assert (look(message)[0], partner.outbound.gate) == ("delivered", "paused")
    with link() as wire:
        work()
    assert wire.parcels == []
    assert look(following)[0] == "queued"


# ---- error messages ----


def test_an_error_stops_the_pair_and_tells_a_person() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    submit(partner)
    assert post(partner.error(parcel, "NotSupported", description="No such thing."), ERRORS).status_code == 204
    assert look(message) == ("failed", "suspended")
    pair = partner.outbound
    assert (pair.cause, pair.cause_detail) == ("ebms_error_not_supported", "NotSupported: No such thing.")
    assert (pair.due_at, pair.queued, pair.in_flight_id) == (None, 1, message.pk)
    incident = Incident.objects.get()
    assert (incident.cause, incident.message_id, incident.pair_id) == ("ebms_error_not_supported", message.pk, pair.pk)
    kinds = set(Event.objects.values_list("type", flat=True))
    assert kinds >= {"message.failed", "pair.suspended", "incident.opened"}
    signal = Signal.objects.get()
    assert (signal.state, signal.kind, signal.error_code) == ("matched", "error", "NotSupported")


def test_an_error_that_comes_again_moves_nothing_more() -> None:
    """Its sender repeats it like anything else."""
    partner = partner_side()
    message, parcel = sent(partner)
    post(partner.error(parcel, "NotSupported", description="first"))
    assert look(message) == ("failed", "suspended")
    ignored(partner.error(parcel, "Inconsistent", description="second"), "suspended already")
    ignored(partner.error(parcel, "TransientError", min_retry_secs=5), "suspended already")
    assert partner.outbound.cause_detail == "NotSupported: first"


def test_an_error_with_a_code_that_nobody_knows() -> None:
    partner = partner_side()
    _, parcel = sent(partner)
    post(partner.error(parcel, "x" * 500, description="d" * 5000))
    pair = partner.outbound
    assert (pair.cause, len(pair.cause_detail)) == ("ebms_error_unknown", 2000)


def test_an_error_about_nothing() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    ignored(edited(partner.error(parcel), (message.message_id, "nobody@x")), "names no message of ours", path=ERRORS)
    ignored(edited(partner.error(parcel), ("RefToMessageId", "Other")), "names no message of ours", path=ERRORS)


def test_an_error_without_a_body_counts_as_one() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    post(edited(partner.error(parcel), ("ErrorHeader", "SomethingElse")))
    assert look(message) == ("failed", "suspended")
    assert partner.outbound.cause == "ebms_error_unknown"


def test_a_warning_moves_nothing() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    ignored(partner.error(parcel, "Unknown", severity=Severity.WARNING), "a warning")
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_an_error_from_another_partner_moves_nothing() -> None:
    partner, other = partner_side(), partner_side()
    message, parcel = sent(partner)
    answer = edited(other.error(parcel), (partner.terms.tpa_id, other.terms.tpa_id))
    ignored(answer, "comes from another partner")
    assert look(message) == ("awaiting_ack", "awaiting_ack")


def test_an_error_about_a_message_that_is_done_moves_nothing() -> None:
    partner = partner_side()
    _, parcel = sent(partner)
    post(partner.acknowledgement(parcel))
    ignored(partner.error(parcel), "not in flight (delivered)")


def test_an_error_about_an_unreliable_message_moves_nothing() -> None:
    """It was sent once and is done; its fate is not ours to change."""
    partner = partner_side()
    message, parcel = sent(partner, semantics="BestEffort")
    ignored(partner.error(parcel), "not in flight (sent)")
    assert look(message)[0] == "sent"


def test_an_acknowledgement_after_an_error_makes_the_message_delivered() -> None:
    partner = partner_side()
    message, parcel = sent(partner)
    post(partner.error(parcel))
    post(partner.acknowledgement(parcel))
    assert look(message) == ("delivered", "suspended")


def test_a_transient_error_holds_the_pair_for_as_long_as_the_partner_says(time: FrozenClock) -> None:
    partner = partner_side(timeout=30, retries=1, retry_interval=10)
    message, parcel = sent(partner)
    for _ in range(3):  # more often than there are retries: it does not use them up
        post(partner.error(parcel, "TransientError", min_retry_secs=120))
        assert look(message) == ("retrying", "holding")
        time.move(119)
        with link() as wire:
            work()
        assert wire.parcels == []
        time.move(1)
        with link() as wire:
            work()
        assert wire.last.body == parcel.body
    assert partner.outbound.retries == 0
    assert not Incident.objects.exists()


def test_transient_errors_for_longer_than_the_ceiling_open_an_incident_and_go_on(time: FrozenClock) -> None:
    partner = partner_side(timeout=30, retries=1, retry_interval=10, transient_ceiling=100)
    message, parcel = sent(partner)
    post(partner.error(parcel, "TransientError", min_retry_secs=60))
    assert not Incident.objects.exists()
    time.move(60)
    with link():
        work()
    post(partner.error(parcel, "TransientError", min_retry_secs=60))
    incident = Incident.objects.get()
    assert (incident.cause, incident.message_id) == ("transient_ceiling", message.pk)
    assert partner.outbound.flow == "holding"
    post(partner.acknowledgement(parcel))
    incident.refresh_from_db()
    assert (look(message)[0], incident.state, incident.resolved_by) == ("delivered", "resolved", "system")


def test_a_pause_of_thirty_years_does_not_go_unnoticed(time: FrozenClock) -> None:
    partner = partner_side()
    _, parcel = sent(partner)
    post(partner.error(parcel, "TransientError", min_retry_secs=999_999_999))
    assert Incident.objects.get().cause == "transient_ceiling"


def test_an_error_that_overtakes_the_record_of_our_own_attempt() -> None:
    partner = partner_side()
    message = submit(partner)
    [job] = claim_due(limit=10)
    post(partner.error(job.parcel, "Inconsistent"))
    assert look(message) == ("failed", "suspended")
    assert record([(job, TAKEN)]) == [False]
    assert look(message) == ("failed", "suspended")


def test_success_disproves_an_incident_about_the_transport(time: FrozenClock) -> None:
    """A 404 is shown to a person at once and tried again all the same; the acknowledgement closes the incident."""
    partner = partner_side()
    submit(partner)
    with link(Receipt(ok=False, status=404, cause="http_404", detail="HTTP 404", permanent=True)):
        work()
    assert Incident.objects.get().cause == "http_404"
    time.move(1000)
    with link() as wire:
        work()
    post(partner.acknowledgement(wire.last))
    assert Incident.objects.get().state == "resolved"


def test_the_answer_to_one_of_several_pairs_of_a_partner_is_matched_to_the_right_one() -> None:
    agreement = make_agreement().agreement
    partners = [
        partner_side(
            make_agreement(
                own_party=agreement.own_party,
                partner=agreement.partner,
                partner_endpoint=make_endpoint(agreement.partner),
            )
        )
        for _ in range(2)
    ]
    (first, _), (second, parcel) = sent(partners[0]), sent(partners[1])
    post(partners[0].acknowledgement(parcel))
    assert (look(first)[0], look(second)[0]) == ("awaiting_ack", "delivered")


@pytest.mark.django_db(transaction=True)
def test_acknowledgement_and_record_at_once_complete_each_message_once() -> None:
    """The answer and the outcome of the attempt race for the pair's lock: whoever is first, it is delivered."""
    partner = partner_side()
    for _ in range(10):
        message = submit(partner)
        [job] = claim_due(limit=10)
        ack = partner.acknowledgement(job.parcel)
        start = threading.Barrier(2)

        def run(call, start=start) -> None:
            try:
                start.wait(120)
                call()
            finally:
                connection.close()

        calls = (lambda ack=ack: partner.send(ack), lambda job=job: record([(job, TAKEN)]))
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert look(message) == ("delivered", "idle")
    assert partner.outbound.done == 10
    assert set(Transmission.objects.values_list("outcome", flat=True)) == {"sent"}


def test_two_parties_of_ours_may_have_used_the_same_message_id() -> None:
    """Each acknowledgement counts for the message that went to its sender."""
    partners = [partner_side(), partner_side()]
    messages = [sent(partner, message_id="same@us") for partner in partners]
    for partner, (message, parcel) in reversed(list(zip(partners, messages, strict=True))):  # not the one found first
        post(partner.acknowledgement(parcel))
        assert look(message) == ("delivered", "idle")


def test_what_the_locked_pair_says_counts_and_not_what_was_read_before_the_lock(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message had failed when it was looked up; before its pair was locked a person resumed it."""
    partner = partner_side()
    message, parcel = suspended(partner, time)
    look_up = answering.targets

    def then_somebody_is_faster(ids: Iterable[str]) -> dict[str, list[Message]]:
        found = look_up(ids)
        assert [one.state for one in found[message.message_id]] == ["failed"]
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="Their server is up again.")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(answering, "targets", then_somebody_is_faster)
        assert partner.send(partner.error(parcel, ErrorCode.TRANSIENT_ERROR, min_retry_secs=60)) == 204
    assert look(message) == ("retrying", "holding")
