"""What runs for every message costs the same however much is stored: index scans only, on tables with 20,000 rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from django.db import connection
from django.test import TestCase

from messaging.archive import selectors as archive
from messaging.engine import circuits, handover, kinds, leases, subscriptions
from messaging.engine.claiming import Job, claim_due
from messaging.engine.handover import Seat
from messaging.engine.looking import look
from messaging.engine.missing import missing
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.messages.selectors import finding, searching
from messaging.messages.selectors.finding import MessageFilters
from messaging.messages.selectors.messages import of_document
from messaging.models import (
    ArchivedMessage,
    Delivery,
    Message,
    Pair,
    Transmission,
    Trigger,
    WebhookDelivery,
    Worker,
)
from messaging.models import feed as feeds
from messaging.notifications.selectors import OLDEST, feed, of_message, of_pair
from messaging.notifications.services import webhooks
from messaging.overview.selectors import finding as overview
from messaging.pairs.selectors import pairs
from messaging.pairs.selectors.sequence import flight
from messaging.pairs.services import operating
from messaging.profiles.repeatable.remembering import Key, stored_as_requests
from messaging.profiles.stream import moving
from messaging.transports import Receipt
from partners import registry
from rmhub import clock
from rmhub.clock import frozen
from tests.messaging.archive import archive_scenes
from tests.messaging.factories import LOST, REFUSED, TAKEN, answered, link, partner_side, submit
from tests.messaging.full_store import BIG, alone, fill, multiply, told
from tests.messaging.profiles.stream.partner import stream_side
from tests.messaging.profiles.stream.test_sending import acknowledge
from tests.messaging.profiles.wsat.test_outgoing import set_up
from tests.plans import Plans

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def full_store() -> None:
    fill()


SORTS = {
    "gate = 'open' AND direction = 'out' ORDER BY due_at": "the pairs that are due, which no index has on purpose",
    "OR id = ANY(%s) AND flow = 'sending' AND transmission_id = ANY(%s)": "the pairs of one group of outcomes",
    "AND t.worker = ANY(%s)) AND due_at < %s ORDER BY id": "what those workers have in hand",
    "JOIN unnest(%s::uuid[], %s::timestamptz[]) AS u(id, due)": "the jobs of this worker that wait",
}
PLANS = Plans([model._meta.db_table for model in BIG], SORTS)


def scans(run: Callable[[], object]) -> list[str]:
    """What is wrong with the plans of all statements that `run` sends, each with its statement."""
    return PLANS.faults(run)


def _repeatable_requests() -> None:
    side = partner_side(profile="repeatable", partner_window=3600)
    jobs: list[Job] = []
    actor = Actor("ann")
    paths: dict[str, Callable[[], object]] = {}
    with frozen(AT) as time:
        messages = [submit(side) for _ in range(4)]
        paths["messages are put in flight"] = lambda: jobs.extend(claim_due(limit=64))
        paths["answers are recorded"] = lambda: record([(jobs[0], answered()), (jobs[1], LOST), (jobs[2], REFUSED)])
        keys = [Key(side.terms.partner_id, messages[0].message_id)]
        paths["ids are looked for among those of requests"] = lambda: stored_as_requests(keys)
        paths["they are repeated"] = lambda: time.move(60) and jobs.extend(claim_due(limit=64))
        paths["one is refused"] = lambda: record([(jobs[-1], answered(400, "rejected"))])
        paths["the next repeat is looked for"] = lambda: pairs.next_repeat(side.outbound.pk)
        paths["what is on the way is shown"] = lambda: list(pairs.in_flight(side.outbound.pk)[:10])
        paths["a person wants them now"] = lambda: operating.pair_retry_now(
            pair_id=side.outbound.pk, actor=actor, reason="Now."
        )
        paths["a window is over"] = lambda: time.move(7200) and claim_due(limit=64)
        found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert "in_doubt" in {message.state for message in Message.objects.filter(pk__in=[m.pk for m in messages])}


def _streams() -> None:
    side = stream_side(retries=2, stream_concurrency=8)
    jobs: list[Job] = []
    actor = Actor("ann")
    paths: dict[str, Callable[[], object]] = {}
    taken = Receipt(ok=True, status=202)
    with frozen(AT) as time:
        messages = [submit(side) for _ in range(4)]  # type: ignore[arg-type]
        short = submit(side, time_to_live=70)  # type: ignore[arg-type]
        paths["messages are put in flight"] = lambda: jobs.extend(claim_due(limit=64))
        paths["outcomes are recorded"] = lambda: record([(jobs[0], taken), (jobs[1], LOST), (jobs[2], REFUSED)])
        paths["they are acknowledged"] = lambda: acknowledge(side, 2)
        paths["all goes out again"] = lambda: time.move(60) and jobs.extend(claim_due(limit=64))
        paths["a stale acknowledgement"] = lambda: acknowledge(side, 1)
        paths["what is in flight is shown"] = lambda: list(flight(side.outbound.pk)[:10])
        paths["a life is over"] = lambda: time.move(30) and [jobs.extend(claim_due(limit=64)) for _ in range(2)]
        paths["what waits for too long is looked for"] = moving.expire_waiting
        paths["a person restarts it"] = lambda: (
            Pair.objects.filter(pk=side.outbound.pk).update(flow="suspended"),
            record([(job, taken) for job in jobs]),
            operating.pair_restart_sequence(pair_id=side.outbound.pk, actor=actor, reason="They lost theirs."),
        )
        found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert Message.objects.get(pk=short.pk).state == "in_doubt"
    assert Message.objects.get(pk=messages[0].pk).state == "delivered"


def _messages() -> None:
    partner = partner_side()
    repeated = partner.message(1)
    jobs = []
    paths: dict[str, Callable[[], object]] = {}
    hooks = WebhookDelivery.objects.filter(endpoint__enabled=True).select_related("endpoint")
    with frozen(AT), link() as wire:
        paths["a message is submitted"] = lambda: submit(partner, idempotency_key="k", message_id="mine@x")
        paths["and again"] = lambda: submit(partner, idempotency_key="k", message_id="mine@x")
        paths["a message is received"] = lambda: partner.send(repeated)
        paths["and again, its acknowledgement owed once more"] = lambda: partner.send(repeated)
        paths["a number is refused"] = lambda: partner.send(partner.message(9))
        paths["an unreliable one is submitted"] = lambda: submit(partner, semantics="BestEffort")
        paths["what is due is claimed"] = lambda: jobs.extend(claim_due(limit=64))
        paths["outcomes are recorded"] = lambda: record([(job, TAKEN) for job in jobs])
        paths["an acknowledgement is taken"] = lambda: partner.send(
            partner.acknowledgement(next(job.parcel for job in jobs if job.kind == "pair"))
        )
        paths["nothing is due"] = lambda: claim_due(limit=64)
        paths["dead workers are looked for"] = lambda: leases.release_dead(AT)
        paths["webhooks are claimed"] = lambda: jobs.extend(webhooks.claim(hooks, webhooks._LEASE, 10))
        paths["webhooks are recorded"] = lambda: webhooks._record(
            [(d, webhooks.Outcome(204)) for d in jobs if isinstance(d, WebhookDelivery)], following=10
        )
        paths["the feed is read"] = lambda: feed(after=OLDEST, limit=100)
        paths["the history of a message is read"] = lambda: list(of_message(Message.objects.latest("id").pk))
        paths["the history of a pair is read"] = lambda: list(of_pair(partner.outbound.pk)[:50])
        found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert wire.parcels == []
    assert not found, told(found)


def _handed_over() -> None:
    partner = partner_side()
    caller = partner_side(profile="repeatable", ordered=True)
    side = stream_side(max_in_flight=2, stream_concurrency=2)
    jobs: list[Job] = []
    paths: dict[str, Callable[[], object]] = {}
    claimed = mock.patch.object(handover, "post", lambda seat, some: jobs.extend(some))
    with frozen(AT), claimed, mock.patch.object(handover, "seat", lambda: Seat(4711, 64)):
        for to in (partner, caller, side):
            for _ in range(3):
                submit(to)  # type: ignore[arg-type]
        first, request, *streamed = sorted(claim_due(limit=64), key=_speaks)
        paths["an answer frees the next"] = lambda: record([(request, answered())])
        paths["so does an order acknowledgement"] = lambda: (
            record([(job, TAKEN) for job in streamed]),
            acknowledge(side, 2),
        )
        paths["a message of a stream is acknowledged"] = lambda: side.send(side.message(1, requested=True))
        paths["an acknowledgement frees the next"] = lambda: partner.send(partner.acknowledgement(first.parcel))
        paths["a message is acknowledged"] = lambda: partner.send(partner.message(1))
        paths["what did not come is looked for"] = lambda: missing(4711, [])
        paths["all kinds of work are looked for"] = lambda: look(4711)
        with TestCase.captureOnCommitCallbacks(execute=True):
            found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert [(_speaks(job), job.kind) for job in jobs] == [
        ("repeatable", "own"),
        ("stream", "own"),
        ("stream", "signal"),
        ("ebxml", "pair"),
        ("ebxml", "signal"),
    ]


def _transactions() -> None:
    scene = set_up()
    jobs: list[Job] = []
    paths: dict[str, Callable[[], object]] = {
        "a message is put into the outbox": scene.send,
        "it is claimed": lambda: jobs.extend(claim_due(limit=64)),
        "its outcome is recorded": lambda: record([(job, TAKEN) for job in jobs]),
    }
    with frozen(AT):
        found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert "own" in {job.kind for job in jobs}
    assert Transmission.objects.get(pk=jobs[-1].transmission_id).outcome == "sent"


def _speaks(job: Job) -> str:
    return registry.current().version(job.version_id).profile


def _leases() -> None:
    """What a worker does once a second for itself and for others, and when it stops."""
    partner = partner_side()
    caller = partner_side(profile="repeatable")
    once = partner_side(semantics="BestEffort")
    jobs: list[Job] = []
    worker, other = leases.WorkerLock(), leases.WorkerLock()
    paths: dict[str, Callable[[], object]] = {}
    paths["a worker comes"] = worker.hold
    paths["and another, which hangs"] = other.hold
    found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    for to in (partner, caller, once):
        submit(to)
    partner.send(partner.message(1))
    jobs.extend(claim_due(limit=64, worker=worker.number))
    assert {job.kind.value for job in jobs} >= {"pair", "signal", "own", "unreliable"}
    Worker.objects.filter(pk=other.number).update(renewed_at=clock.now() - timedelta(hours=1), node="elsewhere")
    Worker.objects.filter(pk=worker.number).update(held_since=clock.now() - timedelta(hours=1), renewed_at=clock.now())
    worker._renewed = float("-inf")
    paths = {
        "it renews its presence and strikes off the other": worker.hold,
        "leases of others": lambda: leases._extend([worker.number]),
        "workers are shown": leases.presences,
        "jobs that wait keep their leases": lambda: kinds.renew(jobs),
        "a worker that stops gives back": lambda: kinds.give_back(jobs),
    }
    found |= {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)
    assert list(Worker.objects.values_list("pk", flat=True)) == [worker.number]


def _servers_that_fail() -> None:
    """A row of each is made, moved and removed with the attempts that it is about."""
    partner = partner_side()
    submit(partner)
    job = next(job for job in claim_due(limit=64) if job.kind == "pair")
    paths: dict[str, Callable[[], object]] = {
        "one fails": lambda: circuits.record([(job, REFUSED)], clock.now()),
        "all are read": lambda: circuits.refresh(at_once=True),
        "it answers": lambda: circuits.record([(job, TAKEN)], clock.now()),
        "whoever is unused is forgotten": lambda: circuits.drop_unused(clock.now()),
    }
    found = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not found, told(found)


def _feeds() -> None:
    """The hub's own readers of events, from anywhere in the feed."""
    paths: dict[str, Callable[[], object]] = {
        "what comes next": lambda: feeds.read_all(after=OLDEST, limit=100),
        "of rare types": lambda: feeds.read_types(after=feeds.latest(), types=["incident.opened"], limit=100),
        "how far behind it is": lambda: feeds.first_unread(OLDEST),
    }
    wrong = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not wrong, told(wrong)


def _documents_by_id() -> None:
    """By the partial indexes of what differs from the MessageId, which are small in most stores and large in some."""
    partner = partner_side()
    Trigger.objects.create(name="orders", kind="pull", document_id_path="//ID")
    subscriptions.current.forget()
    partner.send(partner.message(1, content=b"<Order><ID>4711</ID></Order>", document_id="order-4711"))
    assert Delivery.objects.get().document_id_from == "document"
    others = "SELECT id AS stored, row_number() OVER () AS n FROM messaging_message WHERE id NOT IN"
    stored = f"({others} (SELECT message_id FROM messaging_delivery)) AS m"
    multiply(Delivery, stored, message_id="stored", document_id="'d' || n", state="'completed'", due_at="NULL")
    multiply(Message, message_id="'d' || n", document_id="'n' || n", due_at="NULL", state="'delivered'")
    found: list[object] = []
    paths: dict[str, Callable[[], object]] = {
        "by what it says itself": lambda: found.extend(Message.objects.filter(of_document("4711"))),
        "by what its sender called it": lambda: found.extend(Message.objects.filter(of_document("order-4711"))),
    }
    wrong = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not wrong, told(wrong)
    assert [message.document_id for message in found] == ["order-4711"] * 2


def _attributes() -> None:
    """By one index, in which all names and values are."""
    partner = partner_side()
    mine = submit(partner, attributes={"invoice": "4711", "kind": "credit note"})
    multiply(
        Message, message_id="'a' || n", attributes="jsonb_build_object('invoice', 'i' || n, 'kind', 'k' || n % 1000)"
    )
    found: list[Message] = []
    both = MessageFilters(attributes=(("invoice", "4711"), ("kind", "credit note")))
    paths: dict[str, Callable[[], object]] = {
        "by name and value": lambda: found.extend(finding.message_page(both).rows),
        "by its value": lambda: found.extend(finding.message_page(MessageFilters(q="4711")).rows),
        "by what a few have": lambda: finding.message_page(MessageFilters(attributes=(("kind", "k77"),))),
    }
    wrong = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not wrong, told(wrong)
    assert found == [mine] * 2


def _archived_attributes() -> None:
    """By an index of the archive's own, as what has left is found by its ids."""
    partner = partner_side()
    mine = archive_scenes.left(submit(partner, document_id="order-1", attributes={"invoice": "4711"}))
    multiply(
        ArchivedMessage,
        message_id="'a' || n",
        conversation_id="'c' || n",
        document_id="'d' || n",
        attributes="jsonb_build_object('invoice', 'i' || n)",
    )
    found: list[object] = []
    paths: dict[str, Callable[[], object]] = {
        "by name and value": lambda: found.extend(archive.left("", attributes=(("invoice", "4711"),))),
        "by its value": lambda: found.extend(archive.left("4711")),
        "by any id or value": lambda: found.extend(archive.archived_page(archive.archived(q="4711"), limit=9).rows),
        "by its document id": lambda: found.extend(archive.archived(document="order-1")),
    }
    wrong = {name: scanned for name, run in paths.items() if (scanned := scans(run))}
    assert not wrong, told(wrong)
    assert found == [mine] * 4


def _planned_for_values() -> None:
    """What looks for a few of many by an attribute, however often it is asked."""
    mine = submit(partner_side(), attributes={"invoice": "4711"})
    archive_scenes.left(submit(partner_side(), attributes={"invoice": "gone"}))
    for number in range(20):
        overview.find(f"invoice:{number}")
        overview.find(f"i-{number}")
        searching.given_attribute(f"invoice:{number}")
    assert overview.find("invoice:4711").only == overview.MESSAGE.hit(mine)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
            " WHERE statement LIKE 'SELECT%%attributes%%@%%' AND statement NOT LIKE '%%pg_prepared_statements%%'"
        )
        plans = cursor.fetchall()
    assert plans and [row for row in plans if row[1]] == []


ROOMS = (
    "messaging/claim.py",
    "messaging/engine",
    "messaging/journal",
    "messaging/models/bulk.py",
    "messaging/models/feed.py",
    "messaging/models/message.py",
    "messaging/models/pair.py",
    "messaging/profiles/ebxml",
    "messaging/profiles/repeatable",
    "messaging/profiles/stream/in_flight.py",
    "messaging/profiles/stream/moving.py",
    "messaging/profiles/wsat",
)
# Where the plans of other statements of these rooms are shown, or why they need none.
ELSEWHERE = {
    "SELECT * FROM messaging_memoryepoch ORDER BY id LIMIT 1": "the table has one row",
    "SELECT count(*) FROM … WHERE state IN ('running', 'in_doubt')": "profiles/repeatable/test_plans.py",
}


def test_hot_paths_scan_no_table(full_store: None, subtests: pytest.Subtests) -> None:
    PLANS.forget()
    alone(
        subtests,
        _messages,
        _handed_over,
        _leases,
        _servers_that_fail,
        _feeds,
        _repeatable_requests,
        _streams,
        _transactions,
        _documents_by_id,
        _attributes,
        _archived_attributes,
        _planned_for_values,
    )
    assert "\n".join(PLANS.missing(*ROOMS, elsewhere=ELSEWHERE)) == ""
