"""What a hub does after its database became an older one: a backup, traffic, the restore, and what comes then.

The entrance, the services and PostgreSQL are real; the restore is a savepoint that is rolled back to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection, transaction
from lxml import html

from messaging.bulk.services import jobs
from messaging.deliveries.services import settling
from messaging.engine import memory as hub_memory
from messaging.engine import pairs
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.invariants import RULES, look
from messaging.journal.audit import SYSTEM, Actor
from messaging.models import (
    AuditEntry,
    BulkJobItem,
    Delivery,
    Event,
    Incident,
    IncomingStream,
    Message,
    Pair,
    Transmission,
)
from messaging.pairs.services import operating
from messaging.protocol.envelope import MessageType, Semantics
from messaging.transports import Parcel
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import browser
from tests.messaging.deliveries.stage import application, make_trigger, verdict
from tests.messaging.deliveries.stage import work as deliver
from tests.messaging.factories import LOST, PartnerSide, answered, decoded, link, partner_side, submit, work
from tests.messaging.profiles.ebms2.partner import ebms2_side
from tests.messaging.profiles.repeatable.callers import SKEW, caller, remembering_since
from tests.messaging.profiles.repeatable.callers import application as callables
from tests.messaging.profiles.stream.partner import stream_side

pytestmark = pytest.mark.django_db
ANN = Actor("ann")


@pytest.fixture
def now() -> Iterator[FrozenClock]:
    with clock.frozen(datetime(2026, 3, 10, 12, tzinfo=UTC)) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def rows_prove_the_invariants(_django_db_helper: None) -> Iterator[None]:
    """`check_invariants` is run after a restore: what a restore leaves behind must not alarm anybody."""
    yield
    with connection.cursor() as cursor:
        assert {rule.id: found.rows for rule in RULES if (found := look(cursor, rule)).count} == {}


class Restore:
    """A backup that was taken when this was made."""

    def __init__(self) -> None:
        hub_memory.look()
        self._saved = transaction.savepoint()

    def __call__(self) -> None:
        transaction.savepoint_rollback(self._saved)
        pairs.reset()
        hub_memory.lost(clock.now(), reason="The database was restored.", actor=SYSTEM)


def acknowledge_all(partner: PartnerSide) -> list[tuple[int | None, str]]:
    """Sends what is due, and the partner acknowledges it: numbers and ids, in order."""
    sent = []
    with link() as wire:
        while work():
            pass
        for parcel in wire.of(MessageType.NORMAL):
            envelope = decoded(parcel)
            sent.append((envelope.hop.sequence_number, envelope.message_id))
            partner.send(partner.acknowledgement(parcel))
    return sent


def all_of_it(partner: PartnerSide) -> list[tuple[int | None, str]]:
    """The same, message after message, until nothing waits."""
    sent = []
    while some := acknowledge_all(partner):
        sent += some
    return sent


class Literal:
    """A partner that goes by spec 1, 5.2 to the letter, and by numbers alone where that is allowed."""

    def __init__(self) -> None:
        self.last, self.last_id = 0, ""
        self.stored: list[str] = []

    def take(self, partner: PartnerSide, parcel: Parcel) -> None:
        envelope = decoded(parcel)
        number = envelope.hop.sequence_number
        if number == self.last and (number != 1 or envelope.message_id == self.last_id):
            pass
        elif number in (1, self.last + 1):
            self.last, self.last_id = number, envelope.message_id
            self.stored.append(envelope.message_id)
        else:
            raise AssertionError(f"number {number} after {self.last} is refused")
        partner.send(partner.acknowledgement(parcel))


def exchange(partner: PartnerSide, literal: Literal) -> None:
    while True:
        with link() as wire:
            if not work():
                return
        for parcel in wire.of(MessageType.NORMAL):
            literal.take(partner, parcel)


def test_x21_a_new_document_is_never_taken_for_one_that_a_literal_partner_has() -> None:
    partner, literal = partner_side(), Literal()
    submit(partner)
    exchange(partner, literal)
    restore = Restore()
    submit(partner)
    exchange(partner, literal)
    restore()
    new = submit(partner)
    exchange(partner, literal)
    new.refresh_from_db()
    assert new.state == "delivered"
    assert new.message_id in literal.stored, "delivered means that the partner has it"
    assert new.sequence_number == 1


def test_x21_what_was_in_flight_keeps_its_id_and_octets_and_what_follows_begins_at_1(now: FrozenClock) -> None:
    partner = partner_side(retries=1, timeout=30, retry_interval=30)
    first = submit(partner)
    acknowledge_all(partner)
    second = submit(partner)
    with link(LOST) as wire:
        work()
        before = wire.last.body
        now.move(30)
        work()
    third = submit(partner)
    restore = Restore()
    acknowledge_all(partner)
    restore()
    pair = partner.outbound
    assert (pair.flow, pair.retries, pair.queued) == ("resend_wait", 0, 1), "how often it was asked since is forgotten"
    with link() as wire:
        work()
        assert wire.last.body == before
        partner.send(partner.acknowledgement(wire.last))
    assert acknowledge_all(partner) == [(1, third.message_id)]
    states = dict(Message.objects.filter(direction="out").values_list("message_id", "state"))
    assert states == {one.message_id: "delivered" for one in (first, second, third)}


def test_x21_a_hub_follows_a_partner_that_sends_again_what_its_backup_has_as_waiting() -> None:
    """All of it is known here, under the numbers that it had; then comes something new."""
    partner = partner_side()
    for number in (1, 2, 3, 4):
        partner.send(partner.message(number, f"document-{number}"))
    for number, name in enumerate(("document-2", "document-3", "document-4", "new-5", "new-6"), start=1):
        partner.send(partner.message(number, name))
    assert partner.inbound.last_sequence == 5
    partner.send(partner.message(5, "new-6"))
    held = list(Message.objects.filter(direction="in").order_by("position").values_list("message_id", flat=True))
    assert held == ["document-1", "document-2", "document-3", "document-4", "new-5", "new-6"]
    assert set(Incident.objects.values_list("cause", flat=True)) <= {"same_id_other_content"}


@pytest.mark.parametrize("flow", ["suspended", "holding", "idle"])
def test_x21_a_pause_and_a_persons_decision_outlive_a_restore(flow: str) -> None:
    partner = partner_side()
    submit(partner)
    acknowledge_all(partner)
    if flow != "idle":
        submit(partner)
        with link() as wire:
            work()
            code = "TransientError" if flow == "holding" else "Unknown"
            partner.send(partner.error(wire.last, code, min_retry_secs=60 if flow == "holding" else None))
    Restore()()
    pair = partner.outbound
    assert (pair.flow, pair.last_sequence) == (flow, 0)


def test_x21_each_pair_has_its_incident_and_its_mark() -> None:
    partners = [partner_side() for _ in range(3)]
    for partner in partners:
        assert partner.inbound and partner.outbound
    restore = Restore()
    restore()
    assert Pair.objects.count() == 6
    assert set(Incident.objects.filter(cause="needs_resync").values_list("pair", flat=True)) == set(
        Pair.objects.values_list("pk", flat=True)
    )
    assert Event.objects.filter(type="pair.needs_resync").count() == 6
    assert not Pair.objects.filter(resync_since=None).exists()
    assert Incident.objects.filter(cause="memory_lost", pair=None).count() == 1
    assert AuditEntry.objects.filter(verb="memory.start_again").count() == 1
    restore = Restore()
    restore()
    assert Incident.objects.filter(cause="needs_resync").count() == 6, "a second loss is told in the same incidents"


@pytest.mark.parametrize("executed", [False, True])
def test_x21_a_request_that_was_queued_goes_out_under_the_earliest_time_and_is_in_doubt_when_refused(
    executed: bool, now: FrozenClock
) -> None:
    partner = partner_side(profile="repeatable", partner_window=3600)
    message = submit(partner)
    restore = Restore()
    as_of = clock.now()
    now.move(600)
    with link(answered()):
        work()
    restore()
    reply = answered(400, "rejected") if executed else answered()
    with link(reply) as wire:
        work()
        headers = dict(wire.last.headers)
    message.refresh_from_db()
    assert message.first_sent_at == as_of
    assert headers["Repeatability-Request-ID"] == message.message_id
    assert (message.state, message.cause) == (("in_doubt", "outcome_unknown") if executed else ("delivered", ""))
    assert Transmission.objects.filter(message=message, outcome="lost").count() == 1


def test_x21_a_request_that_the_partner_may_have_forgotten_is_never_sent_again(now: FrozenClock) -> None:
    partner = partner_side(profile="repeatable", partner_window=3600)
    message = submit(partner)
    restore = Restore()
    now.move(4000)
    restore()
    with link(answered()) as wire:
        work()
        assert wire.parcels == []
    message.refresh_from_db()
    assert (message.state, message.cause) == ("in_doubt", "outcome_unknown")
    pair = partner.outbound
    assert (pair.queued, pair.out_now) == (0, 0)


def test_x21_what_goes_out_once_at_most_and_may_have_gone_out_has_failed() -> None:
    partner = partner_side()
    message = submit(partner, semantics="AtMostOnce")
    Restore()()
    with link() as wire:
        work()
        assert wire.parcels == []
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "needs_resync")
    assert Event.objects.filter(type="message.failed", message=message.pk).exists()


PROFILES = ("ebxml", "stream", "key", "ebms2")


@dataclass(frozen=True, slots=True)
class Sender:
    """A partner of one profile that sends one document, under its number in the order."""

    profile: str
    side: Any

    def send(self, number: int, message_id: str) -> None:
        if self.profile == "ebxml":
            assert self.side.send(self.side.message(number, message_id)) == 204
        elif self.profile == "stream":
            assert self.side.send(self.side.message(number, message_id)).status == 202
        elif self.profile == "ebms2":
            assert self.side.bring(self.side.business(message_id)).status == 204
        else:
            answer = self.side.post(None, None, headers={"Idempotency-Key": f'"{message_id}"'})
            assert answer.status_code == 202, answer.content

    @property
    def pair(self) -> Pair:
        return Pair.objects.get(pk=pairs.inbound_pair_id(self.side.terms))


def sender(profile: str) -> Sender:
    if profile == "ebxml":
        return Sender(profile, partner_side())
    if profile == "stream":
        return Sender(profile, stream_side())
    if profile == "ebms2":
        return Sender(profile, ebms2_side())
    remembering_since(clock.now() - timedelta(days=30))
    return Sender(profile, caller(exchange_identity="key"))


@pytest.mark.parametrize("resolver", ["none", "NEW", "DUPLICATE"])
@pytest.mark.parametrize("profile", PROFILES)
def test_x22_a_repeat_of_what_was_executed_after_the_backup_is_not_executed_in_silence(
    profile: str, resolver: str, now: FrozenClock
) -> None:
    partner = sender(profile)
    with application() as app:
        make_trigger(app, resolver="none" if resolver == "none" else "http")
        partner.send(1, "document-a")
        deliver()
        restore = Restore()
        partner.send(2, "document-b")
        deliver()
        assert app.documents == ["document-a", "document-b"]
        restore()
        app.plan("/resolver", verdict(resolver))
        partner.send(2, "document-b")
        deliver()
        delivery = Delivery.objects.get(document_id="document-b")
        assert app.documents.count("document-b") == (2 if resolver == "NEW" else 1)
        assert len(app.at("/resolver")) == (0 if resolver == "none" else 1)
        expected = {"none": "in_doubt", "NEW": "completed", "DUPLICATE": "duplicate"}[resolver]
        assert (delivery.state, delivery.memory_lost) == (expected, True)
        if resolver == "none":
            assert delivery.doubt == "memory_lost"
            assert [step["step"] for step in delivery.evidence] == ["redelivery", "history", "memory"]
            assert Incident.objects.filter(cause="documents_in_doubt").exists()


@pytest.mark.parametrize("kept", [{"use_history": False}, {"detect_duplicates": False}])
def test_x22_triggers_without_history_and_without_checks(kept: dict[str, bool]) -> None:
    partner = sender("ebxml")
    with application() as app:
        make_trigger(app, **kept)
        restore = Restore()
        restore()
        partner.send(1, "document-b")
        deliver()
        assert app.documents == ([] if "use_history" in kept else ["document-b"])


def test_x22_what_was_sent_once_at_most_may_have_been_processed_too() -> None:
    partner = partner_side(semantics="AtMostOnce")
    with application() as app:
        make_trigger(app)
        Restore()()
        partner.send(partner.message(None, "document-b", semantics=Semantics.BEST_EFFORT))
        deliver()
        assert app.documents == []
    assert Delivery.objects.get().doubt == "memory_lost"


def test_x22_best_effort_without_a_look_for_repeats_goes_on() -> None:
    partner = partner_side()
    with application() as app:
        make_trigger(app)
        Restore()()
        partner.send(partner.message(None, "document-b", semantics=Semantics.BEST_EFFORT))
        deliver()
        assert app.documents == ["document-b"]


def test_x22_a_request_that_was_first_sent_after_memory_starts_is_new(now: FrozenClock) -> None:
    remembering_since(clock.now() - timedelta(days=30))
    partner = caller()
    with application() as app:
        make_trigger(app)
        restore = Restore()
        restore()
        assert partner.post("document-a", clock.now()).status_code == 412
        now.move(1)
        assert partner.post("document-b", clock.now() + SKEW).status_code == 202
        deliver()
        assert app.documents == ["document-b"]


def test_x19_the_partner_goes_on_where_it_is_and_then_numbers_count_again() -> None:
    partner = sender("ebxml")
    partner.send(1, "document-1")
    restore = Restore()
    for number in (2, 3, 4):
        partner.send(number, f"document-{number}")
    restore()
    assert partner.pair.takes_any_number
    partner.send(5, "document-5")
    partner.send(6, "document-6")
    assert not partner.pair.takes_any_number
    assert partner.pair.last_sequence == 6
    assert not Incident.objects.filter(cause="out_of_sequence").exists()
    partner.send(9, "document-9")  # answered by an Error message
    assert Incident.objects.filter(cause="out_of_sequence").exists()
    held = set(Message.objects.filter(direction="in").values_list("message_id", flat=True))
    assert held == {"document-1", "document-5", "document-6"}


def test_x19_known_ids_stay_repeats_whatever_number_is_next() -> None:
    partner = sender("ebxml")
    partner.send(1, "document-1")
    restore = Restore()
    restore()
    partner.send(1, "document-1")
    assert partner.pair.takes_any_number, "a repeat does not say where the partner is"
    partner.send(7, "document-7")
    assert Message.objects.filter(direction="in").count() == 2


def test_x19_a_streams_counters_are_rolled_back_and_what_comes_is_not_taken_for_new_in_silence() -> None:
    partner = sender("stream")
    partner.send(1, "document-1")
    restore = Restore()
    for number in (2, 3, 4):
        partner.send(number, f"document-{number}")
    restore()
    assert partner.pair.resync_since is not None
    assert IncomingStream.objects.get().number == 1
    assert partner.side.send(partner.side.message(5, "document-5")).status == 503, "it follows what is forgotten"
    # Its sender leads past that: the first in flight follows nothing.
    with application() as app:
        make_trigger(app)
        assert partner.side.send(partner.side.message(5, "document-5", previous=0)).status == 202
        deliver()
        assert app.documents == []
    assert Delivery.objects.get().doubt == "memory_lost"


def test_x19_what_waited_for_a_callable_is_new_for_its_effects_went_with_the_database() -> None:
    partner = sender("ebxml")
    with callables(answers=False) as app:
        partner.send(1, "document-1")
        Restore()()
        partner.send(2, "document-2")
        deliver()
        assert app.executions == 2


def test_x19_a_folder_that_takes_no_note_stops_nobody_and_hides_no_loss(settings: Any, monkeypatch: Any) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    hub_memory.look()
    hub_memory.reset()
    monkeypatch.setattr("tempfile.mkstemp", full)
    hub_memory.look()
    assert not AuditEntry.objects.exists()
    hub_memory.reset()
    (Path(settings.RMHUB_STORE_DIR) / hub_memory.FILE).unlink()
    with pytest.raises(OSError, match="No space left"):
        hub_memory.look()


def test_x19_tables_that_were_made_anew_are_noticed_however_short_before_the_backup_was(settings: Any) -> None:
    """A dump that is read back within one heartbeat differs in nothing but the objects that hold it."""
    hub_memory.look()
    file = Path(settings.RMHUB_STORE_DIR) / hub_memory.FILE
    noted = json.loads(file.read_text())
    file.write_text(json.dumps({**noted, "tables": "1/2"}))
    pair = partner_side().inbound
    hub_memory.reset()
    hub_memory.look()
    pair.refresh_from_db()
    assert pair.resync_since is not None
    assert "read back from a dump" in AuditEntry.objects.get(verb="memory.start_again").reason
    hub_memory.reset()
    hub_memory.look()
    assert AuditEntry.objects.filter(verb="memory.start_again").count() == 1


def test_x22_a_persons_resubmission_that_waited_in_the_backup_is_not_processed_again_in_silence() -> None:
    partner = sender("ebxml")
    with application() as app:
        make_trigger(app)
        partner.send(1, "document-a")
        Delivery.objects.update(state="in_doubt", doubt="started_not_completed", due_at=None)
        doubtful = Delivery.objects.get()
        settling.delivery_settle(delivery_id=doubtful.pk, decision="resubmit", actor=ANN, reason="they have none of it")
        restore = Restore()
        deliver()
        assert app.documents == ["document-a"]
        restore()
        deliver()
        assert app.documents == ["document-a"], "what ANN said may have been followed since"
        again = Delivery.objects.get(resubmission_of=doubtful)
        assert (again.state, again.doubt) == ("in_doubt", "memory_lost")
        # Whoever says so now has looked.
        settling.delivery_settle(delivery_id=again.pk, decision="resubmit", actor=ANN, reason="they have none of it")
        deliver()
        assert app.documents == ["document-a"] * 2


def test_x22_a_job_that_ran_in_the_backup_sends_nothing_a_second_time() -> None:
    partner = partner_side()
    first = [submit(partner) for _ in range(3)]
    assert len(all_of_it(partner)) == 3
    ids = [one.pk for one in first]
    job = jobs.job_create(
        action="messages_resubmit", parameters={}, actor=ANN, reason="they have lost their disk", ids=ids
    )
    plan = jobs.job_plan(action="messages_resubmit", parameters={}, actor=ANN, ids=ids)
    restore = Restore()
    jobs.run_due()
    assert len(all_of_it(partner)) == 3
    restore()
    assert jobs.run_due() == 0
    assert acknowledge_all(partner) == [], "what was sent since the backup is not sent again"
    job.refresh_from_db()
    assert (job.state, job.done, job.refused, job.due_at) == ("finished", 0, 3, None)
    said = BulkJobItem.objects.filter(job=job).values_list("state", "detail")
    assert all(state == "refused" and "The database was restored" in detail for state, detail in said)
    assert Event.objects.filter(type="bulk_operation.finished").count() == 1
    with pytest.raises(WrongState, match="too old"):
        jobs.job_execute(job_id=plan.pk, expect_count=3, actor=ANN, reason=EVIDENCE)
    # Whoever has looked lets it go on.
    again = jobs.job_retry(job_id=job.pk, actor=ANN)
    jobs.job_execute(job_id=again.pk, expect_count=3, actor=ANN, reason=EVIDENCE)
    jobs.run_due()
    assert len(all_of_it(partner)) == 3


# --- a person compares both sides ---

EVIDENCE = "GLOBEX's list of the night was compared: nothing is missing"


def restored_partner() -> PartnerSide:
    partner = partner_side()
    partner.send(partner.message(1, "document-1"))
    Restore()()
    return partner


def test_x22_once_a_person_has_cleared_the_pair_documents_are_new_again() -> None:
    partner = restored_partner()
    pair = partner.inbound
    with application() as app:
        make_trigger(app)
        operating.pair_clear_resync(pair_id=pair.pk, actor=ANN, reason=EVIDENCE, expected_version=pair.version)
        partner.send(partner.message(5, "document-5"))
        deliver()
        assert app.documents == ["document-5"]
    pair.refresh_from_db()
    assert (pair.resync_since, pair.resync_from) == (None, None)
    entry = AuditEntry.objects.get(verb="pair.clear_resync")
    assert (entry.actor, entry.reason, entry.after["resync_since"]) == ("ann", EVIDENCE, None)
    assert entry.before["resync_since"] and entry.before["resync_from"]
    incident = Incident.objects.get(pair=pair, cause="needs_resync")
    assert (incident.state, incident.resolved_by, incident.resolution) == ("resolved", "ann", EVIDENCE)
    assert Event.objects.filter(type="pair.resynced", pair=pair.pk).count() == 1
    assert Pair.objects.get(pk=partner.outbound.pk).resync_since is not None, "one pair was meant"
    with pytest.raises(WrongState, match="does not need resync"):
        operating.pair_clear_resync(pair_id=pair.pk, actor=ANN, reason=EVIDENCE)


def test_x22_evidence_is_a_reason_that_says_something() -> None:
    partner = restored_partner()
    with pytest.raises(InvalidSubmission):
        operating.pair_clear_resync(pair_id=partner.inbound.pk, actor=ANN, reason="ok")
    assert partner.inbound.resync_since is not None


def test_x19_other_actions_leave_the_mark_and_its_incident() -> None:
    partner = restored_partner()
    pair = partner.inbound
    operating.pair_expect_sequence(pair_id=pair.pk, expected=5, actor=ANN, reason="as they say")
    pair.refresh_from_db()
    assert pair.resync_since is not None
    assert not pair.takes_any_number, "a person has said which number is next"
    assert Incident.objects.get(pair=pair, cause="needs_resync").state == "open"


def test_x21_one_action_brings_all_pairs_back() -> None:
    made = [partner_side() for _ in range(3)]
    stuck = made[0]
    submit(stuck)
    with link() as wire:
        work()
        stuck.send(stuck.error(wire.last))
    assert all(partner.inbound and partner.outbound for partner in made)
    Restore()()
    admin = Api(make_token(make_user(Role.ADMIN)))
    listed = admin.get("/pairs?resync=true&limit=50").json["data"]
    assert len(listed) == 6
    assert {one["state"] for one in listed} == {"resync", "suspended"}
    assert all(one["resync_since"] and "clear-resync" in one["allowed_actions"] for one in listed)
    plan = admin.post("/bulk-operations", {"action": "pairs_clear_resync", "filter": {"resync": "true"}})
    assert (plan.status, plan.json["matched"]) == (201, 6)
    path = plan.headers["location"].removeprefix("/api/v1")
    assert admin.post(f"{path}/execute", {"expect_count": 6, "reason": EVIDENCE}).status == 202
    jobs.run_due()
    assert not Pair.objects.exclude(resync_since=None).exists()
    assert AuditEntry.objects.filter(verb="pair.clear_resync", reason=EVIDENCE).count() == 6
    operator = Api(make_token(make_user(Role.OPERATOR)))
    refused = operator.post(f"/pairs/{stuck.inbound.public_id}/clear-resync", {"reason": EVIDENCE}, If_Match="*")
    assert (refused.status, refused.json["required_scope"]) == (403, "pairs:skip")


def test_x19_the_console_says_what_is_missing_and_clears_it() -> None:
    partner = restored_partner()
    pair = partner.inbound
    client = browser()
    address = f"/pairs/{quote(pair.code)}/"
    words = " ".join(html.fromstring(client.get(address).content).text_content().split())
    assert "Both sides have to be compared." in words
    assert "may be missing here" in words
    assert "Compare with the partner what each side has of that time" in words
    assert "Whatever number comes next is taken" in words
    (numbers,) = html.fromstring(client.get(address).content).xpath("//*[@id='sequence']/following-sibling::span")
    assert "any number is accepted next" in numbers.text_content()
    assert "expected" not in numbers.text_content()
    rows = html.fromstring(client.get("/pairs/?state=resync").content).xpath("//*[@data-testid='pair-row']")
    assert len(rows) == Pair.objects.count()
    board = " ".join(html.fromstring(client.get("/").content).text_content().split())
    assert f"{Pair.objects.count()} to be compared after a loss of memory" in board
    with transaction.atomic():
        Pair.objects.filter(pk=pair.pk).update(retries=1)
        board = " ".join(html.fromstring(client.get("/").content).text_content().split())
        assert f"{Pair.objects.count()} to be compared after a loss of memory, 1 retrying" in board
        transaction.set_rollback(True)
    dialog = client.get(f"{address}actions/clear-resync/")
    assert "You say that you have compared" in " ".join(html.fromstring(dialog.content).text_content().split())
    said = {"reason": EVIDENCE, "version": str(pair.version)}
    assert client.post(f"{address}actions/clear-resync/", {**said, "reason": "ok"}).status_code == 422
    assert client.post(f"{address}actions/clear-resync/", said).status_code == 303
    assert client.post(f"{address}actions/clear-resync/", said).status_code == 409
    assert "Both sides have to be compared." not in client.get(address).content.decode()
