"""What runs for every delivery, and what people ask, costs the same however much is stored: index scans only.

The tables have 20,000 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction

from messaging.bulk.services import jobs as bulk
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.deliveries.services import attended, claiming, handing_over, history, pulling, settling, talking
from messaging.deliveries.services.job import Job
from messaging.journal.audit import Actor
from messaging.models import (
    BulkJob,
    BulkJobItem,
    Delivery,
    DocumentStarted,
    Event,
    Join,
    Message,
    Pair,
    Payload,
    Trigger,
)
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.documents import SERVICE, documents_from, make_queue
from tests.messaging.deliveries.stage import Application, arrive, claim, copy_of, lose, make_trigger, work
from tests.messaging.factories import PartnerSide
from tests.messaging.full_store import alone, multiply, told
from tests.plans import Plans

pytestmark = pytest.mark.django_db

ANN = Actor("ann")
BIG = [model._meta.db_table for model in (Delivery, DocumentStarted, Event, Join, Message, Pair, Payload)]
BIG.append(r"messaging_documentcompleted_\d+")


@pytest.fixture
def full_store(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    """A year of deliveries, nearly all of them completed, and a long queue behind a trigger that is suspended."""
    make_trigger(app)
    [delivery] = arrive(partner, "old")
    work()
    lost = copy_of(delivery, document_id="lost")
    claim()
    multiply(Pair, sender_uri="'urn:' || n", code="'pair ' || n", due_at="NULL", flow="'idle'", in_flight_id="NULL")
    multiply(Message, message_id="'m' || n", conversation_id="'c' || n", state="'received'", due_at="NULL")
    multiply(Payload, "(SELECT id FROM messaging_message) AS m", message_id="m.id", number="99")
    multiply(
        Delivery,
        "(SELECT id, row_number() OVER () AS n FROM messaging_message WHERE message_id LIKE 'm_%' AND id NOT IN"
        " (SELECT message_id FROM messaging_delivery)) AS m",
        message_id="m.id",
        document_id="'d' || n",
        state="CASE WHEN n % 2 = 0 THEN 'completed' ELSE 'failed' END",
        due_at="NULL",
    )
    multiply(DocumentStarted, document_id="'s' || n", delivery_id="gen_random_uuid()")
    multiply(Event, message_id="gen_random_uuid()")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_documentcompleted SELECT trigger_id, sender_id, 'd' || n, forget_on, delivery_id,"
            " outcome, completed_at"
            " FROM (SELECT * FROM messaging_documentcompleted LIMIT 1) t, generate_series(1, 20000) n"
        )
        cursor.execute("ANALYZE messaging_documentcompleted")
    Delivery.objects.filter(pk=lost.pk).update(state="in_doubt", due_at=None)
    suspended = make_trigger(app, ordered=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_delivery SET trigger_id = %s, state = 'waiting', due_at = %s WHERE state = 'failed'",
            [suspended.pk, clock.now()],
        )
        cursor.execute("UPDATE messaging_trigger SET state = 'suspended' WHERE id = %s", [suspended.pk])
        cursor.execute("ANALYZE messaging_delivery")


SORTS: dict[str, str] = {}
PLANS = Plans(BIG, SORTS)


def scans(run: Callable[[], object]) -> list[str]:
    """What is wrong with the plans of all statements that `run` sends, each with its statement."""
    return PLANS.faults(run)


def reads(run: Callable[[], object]) -> list[str]:
    """The same of what people ask for: it may sort what belongs to one object."""
    return PLANS.faults(run, sorting=True)


def _deliveries(partner: PartnerSide, app: Application) -> None:
    ordered = make_trigger(app, documents=[{"service": "urn:orders", "action": "Ordered"}])
    plain = make_trigger(app, ordered=False, documents=[{"service": "urn:orders", "action": "Plain"}])
    jobs: list[Job] = []
    outcomes: list[tuple[Job, talking.Outcome]] = []
    paths: dict[str, Callable[[], object]] = {}
    paths["nothing is due"] = lambda: claim()
    found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    arrive(partner, *(f"o{n}" for n in range(3)), action="Ordered")
    arrive(partner, *(f"p{n}" for n in range(3)), action="Plain")
    asked_for = next(made for made in arrive(partner, "attended", action="Plain") if made.trigger_id == plain.pk)
    Delivery.objects.filter(pk=asked_for.pk).update(attended=True)

    paths = {
        "one with its caller": lambda: attended._claim(asked_for.pk),
        "what is due is claimed": lambda: jobs.extend(claim()),
        "and talked about": lambda: outcomes.extend((job, talking.talk(job)) for job in jobs),
        "outcomes are recorded": lambda: talking.record(outcomes, more=True),
        "more is claimed": lambda: jobs.extend(claim()),
        "dead workers are looked for": lambda: (
            Delivery.objects.filter(state="running").update(worker=4711),
            claiming.release_dead(clock.now()),
        ),
        "lost ones are taken back": lambda: (lose(*jobs), claim()),
        "the history is looked at": lambda: history.look(ordered, [job.delivery for job in jobs]),
        "hand-overs are taken back": lambda: history.release_all(job.delivery for job in jobs),
    }
    found |= {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert len(jobs) >= 5
    assert not found, told(found)


def _heads_of_ordered_queues() -> None:
    """Ten thousand documents wait in one lane: a claim reads a handful of index pages."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE messaging_trigger SET state = 'active'")
        cursor.execute("SELECT trigger_id FROM messaging_delivery WHERE state = 'waiting' LIMIT 1")
        [trigger_id] = cursor.fetchone()
        cursor.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + claiming.HEADS,
            [trigger_id, trigger_id, trigger_id, clock.now(), 8],
        )
        [[report]] = cursor.fetchone()
    plan = report["Plan"]
    assert plan["Actual Rows"] == 1
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 60


def _lost() -> Delivery:
    return Delivery.objects.get(state="in_doubt")


def _page() -> object:
    """The way of a page of one trigger's deliveries, and of what failed anywhere."""
    newest = deliveries.deliveries(trigger_id=_lost().trigger_id)
    failed = deliveries.deliveries(states=("failed", "in_doubt"))
    return [deliveries.delivery_page(found, limit=50).rows for found in (newest, failed)]


READS: dict[str, Callable[[], object]] = {
    "counters": lambda: in_doubt.counts(clock.now()),
    "groups": lambda: in_doubt.groups(clock.now()),
    "outbound groups": lambda: in_doubt.outbound_groups(clock.now()),
    "documents of a group": lambda: list(in_doubt.documents(_lost().trigger_id, "started_not_completed")[:50]),
    "backlogs": lambda: triggers.trigger_rows(triggers.triggers(), clock.now()),
    "pages": _page,
    "of a message": lambda: deliveries.of_message(_lost().message_id),
    "a delivery": lambda: deliveries.delivery_screen(deliveries.delivery(_lost().pk)),
    "by id": lambda: list(deliveries.deliveries(q=_lost().public_id)),
    "by MessageId": lambda: list(deliveries.deliveries(q="m77")),
}


def _looks() -> None:
    found = {name: scanned for name, read in READS.items() if (scanned := reads(read))}
    assert not found, told(found)


def _a_backlog_is_counted_up_to_a_bound() -> None:
    suspended = Trigger.objects.get(state="suspended")
    backlog = triggers.backlogs([suspended.pk])[suspended.pk]
    assert backlog.waiting == triggers.MOST
    assert f"{triggers.MOST:,} or more documents wait" in triggers.diagnose(suspended, backlog, clock.now()).outlook


def _decisions() -> None:
    lost = _lost()
    for decision in ("duplicate", "resubmit"):
        with transaction.atomic():
            found = reads(
                lambda decision=decision: settling.delivery_settle(  # type: ignore[misc]
                    delivery_id=lost.pk, decision=decision, actor=ANN, reason="looked it up"
                )
            )
            transaction.set_rollback(True)
        assert found == [], decision


def _a_job_over_what_is_in_doubt() -> None:
    lost = _lost()
    Delivery.objects.filter(pk=lost.pk).update(doubt="started_not_completed")
    chosen = {"trigger": lost.trigger.public_id, "doubt": "started_not_completed"}

    def run() -> None:
        bulk.job_create(
            action="settle_deliveries",
            parameters={"decision": "duplicate"},
            filter=chosen,
            actor=ANN,
            reason="looked it up",
        )
        bulk.run_due()

    assert reads(run) == []
    assert BulkJob.objects.get().done == BulkJobItem.objects.filter(state="done").count() == 1


def _joins_and_pull_queues(partner: PartnerSide) -> None:
    a_and_b = [{"service": SERVICE, "action": action} for action in ("A", "B")]
    trigger = make_queue(join_type="all", documents=a_and_b, concurrency=10)
    documents_from(partner, "A", conversation="c1")
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    Join.objects.update(expires_at=clock.now() + timedelta(days=1))
    multiply(Join, activation="'many ' || n", state="CASE WHEN n % 2 = 0 THEN 'fired' ELSE 'open' END")
    documents_from(partner, "B", conversation="c1")
    documents_from(partner, "A", conversation="c2")

    leased: list[pulling.Leased] = []
    paths: dict[str, Callable[[], object]] = {
        "a join fires and is leased": lambda: leased.extend(pulling.lease(trigger.pk, limit=1, consumer="erp")),
        "its documents": lambda: handing_over.parts(leased[0].delivery.join_id),
        "extended": lambda: pulling.extend(leased[0].delivery.pk, leased[0].claim, 60),
        "completed": lambda: pulling.complete(leased[0].delivery.pk, leased[0].claim),
        "the next is absorbed": lambda: pulling.lease(trigger.pk, limit=1, consumer="erp"),
        "no join is out of time": lambda: handing_over.expire_due(),
        "one is": lambda: (
            Join.objects.filter(activation="c2").update(expires_at=clock.now() - timedelta(seconds=1)),
            handing_over.expire_due(),
        ),
    }
    found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert Delivery.objects.filter(cause="join_expired").count() == 1


ROOMS = ("messaging/deliveries",)
# Where the plans of other statements are shown, or why they need none.
ELSEWHERE = {
    "SELECT s.id, s.since, s.usual,": "housekeeping, a row a trigger",
    "SELECT state, count(*) FROM messaging_trigger GROUP BY state": "a row a trigger",
    "SELECT o.trigger_id, count(*), min(o.started_at),": "housekeeping, of what is begun and not in work",
}


def test_nothing_that_is_asked_scans_a_big_table(
    full_store: None, partner: PartnerSide, app: Application, subtests: pytest.Subtests
) -> None:
    def what_runs() -> None:
        _deliveries(partner, app)

    def joins() -> None:
        _joins_and_pull_queues(partner)

    PLANS.forget()
    people = (_looks, _a_backlog_is_counted_up_to_a_bound, _decisions, _a_job_over_what_is_in_doubt)
    alone(subtests, what_runs, _heads_of_ordered_queues, joins, *people)
    assert "\n".join(PLANS.missing(*ROOMS, elsewhere=ELSEWHERE)) == ""
