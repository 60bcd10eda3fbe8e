"""What runs for every delivery costs the same however much is stored: index scans only, on tables with 20,000 rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.deliveries.services import attended, claiming, history, talking
from messaging.deliveries.services.job import Job
from messaging.models import Delivery, DocumentStarted, Event, Message, Pair, Payload
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.delivering.stage import Application, arrive, claim, copy_of, lose, make_trigger, work
from tests.messaging.factories import PartnerSide
from tests.messaging.test_plans import multiply

pytestmark = pytest.mark.django_db

BIG = [model._meta.db_table for model in (Delivery, DocumentStarted, Event, Message, Pair, Payload)]
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


def scans(run: Callable[[], object]) -> list[str]:
    """Sequential scans of big tables in the plans of all statements that `run` sends, each with its statement."""
    with CaptureQueriesContext(connection) as captured:
        run()
    found = []
    statements = [q["sql"] for q in captured if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT)\b", q["sql"])]
    assert statements, "it asked the database nothing"
    for statement in statements:
        plan = _plan(statement)
        if _scans_a_big_table(plan):
            # Statistics are samples: with fresh ones of all tables the answer is the planner's own.
            with connection.cursor() as cursor:
                cursor.execute(f"ANALYZE {', '.join(sorted(connection.introspection.table_names(cursor)))}")
                # A small table may be cheaper to scan up to a LIMIT where a jump costs four times a step, as on a disk
                # that turns; the question is whether there is an index that a large one can go by.
                cursor.execute("SET LOCAL random_page_cost = 1.1")
                plan = _plan(statement)
                cursor.execute("SET LOCAL random_page_cost TO DEFAULT")
        if _scans_a_big_table(plan):
            found.append(f"{statement[:300]}\n{plan}")
    return found


def _plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + statement)
        return "\n".join(row[0] for row in cursor.fetchall())


def _scans_a_big_table(plan: str) -> bool:
    return any(re.search(rf"Seq Scan on {table}\b", plan) for table in BIG)


def test_deliveries_scan_no_table(full_store: None, partner: PartnerSide, app: Application, time: FrozenClock) -> None:
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
        "outcomes are recorded": lambda: talking.record(outcomes),
        "more is claimed": lambda: jobs.extend(claim()),
        "dead workers are looked for": lambda: claiming.release_dead(clock.now()),
        "lost ones are taken back": lambda: (lose(*jobs), claim()),
        "the history is looked at": lambda: history.look(ordered, [job.delivery for job in jobs]),
    }
    found |= {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert len(jobs) >= 5
    assert not found, "\n\n".join(f"{name}:\n" + "\n".join(scanned) for name, scanned in found.items())


def test_the_heads_of_ordered_queues_are_found_without_reading_the_queues(
    full_store: None, partner: PartnerSide, app: Application
) -> None:
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
