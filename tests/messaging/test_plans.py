"""Every statement that is written by hand has its plan in a test, or a reason why it needs none.

What claims, talks and records is explained where it is tested (engine, deliveries, profiles). Here is what else runs
for messages: what counts and tells them, what looks after them now and then, and what people and machines ask of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from prometheus_client import generate_latest

from messaging import dispatch, servers, tasks
from messaging.access.services import sessions
from messaging.bulk.services import jobs, plans
from messaging.engine import circuits
from messaging.engine import memory as hub_memory
from messaging.engine.claiming import claim_due
from messaging.entrance import partner_views, refusals, throttling
from messaging.entrance.authentication import enter
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.messages.services import cancelling, inquiries, resubmitting, settling
from messaging.models import (
    AuditEntry,
    BulkJob,
    Coordination,
    Incident,
    LiveMinute,
    Message,
    Notification,
    Pair,
    Rejection,
    Route,
    Signal,
    TrafficHour,
)
from messaging.notifications.services import notifying, rules, webhook_deliveries
from messaging.overview.selectors import health, metrics, overview, records, traffic
from messaging.pairs.selectors import pairs, screens
from messaging.pairs.services import silence
from messaging.protocol.atomic.words import Note, Phase, Protocol
from messaging.protocol.envelope import PartyId
from messaging.reports.services import live_watch
from messaging.reports.services.live_watch import Memory, Minute
from messaging.routing import selectors as routes_read
from messaging.routing.services import routes, upstream
from partners import registry
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.api.client import make_user
from tests.messaging.deliveries import test_plans as of_deliveries
from tests.messaging.engine import test_plans as of_engine
from tests.messaging.factories import LOST, REFUSED, link, partner_side, submit, work
from tests.messaging.full_store import BIG, alone, fill, multiply, told
from tests.messaging.profiles.ebms2 import test_plans as of_ebms2
from tests.messaging.profiles.repeatable import test_plans as of_requests
from tests.messaging.profiles.stream import test_plans as of_streams
from tests.messaging.profiles.wsat.kit import Place, peer
from tests.plans import Plans, modules, within

pytestmark = pytest.mark.django_db

ANN = Actor("ann", "console")
WHY = "looked it up with the partner"
MORE = (AuditEntry, Incident, LiveMinute, Notification, Rejection, TrafficHour)
SORTS = {"s.state = 'held' AND s.owed > 0 ORDER BY s.id": "what waits for the messages that one pair has to send"}
PLANS = Plans([model._meta.db_table for model in (*BIG, *MORE)], SORTS)

# Rooms whose statements are explained in another test.
SHOWN = (*of_engine.ROOMS, *of_deliveries.ROOMS, *of_requests.ROOMS, *of_streams.ROOMS, *of_ebms2.ROOMS)
# Rooms whose statements no message waits for, and what they do.
BESIDE = {
    "messaging/archive": "takes what is finished out of the store, some hundred at a time, by ids that it was given",
    "messaging/demo": "a sample application with tables of its own, and what judges it",
    "messaging/invariants": "a person's check of the whole store, which reads all of it",
    "messaging/management": "a person's command",
    "messaging/pipeline": "reads a snapshot, page by page: tests/pipeline/test_extract.py has its plan",
}
ROOMS = (
    "messaging/access",
    "messaging/bulk",
    "messaging/models/pipeline.py",
    "messaging/overview",
    "messaging/pairs",
    "messaging/reports",
    "messaging/routing",
    "messaging/servers.py",
    "messaging/sla",
)
# Why other statements of these rooms need no plan.
ELSEWHERE = {
    "DELETE FROM … WHERE run_id = ANY(%s)": "reports that are published anew, by the key of their run",
}


@pytest.fixture
def full_store(time: FrozenClock) -> None:
    hub_memory.check(clock.now())  # or all pairs would be taken for those of a hub that was restored
    fill()
    partner_side().send(partner_side().message(1))
    multiply(Rejection)
    multiply(AuditEntry, number="1000 + n")


def scans(paths: dict[str, Callable[[], object]], **how: Any) -> None:
    found = {name: scanned for name, run in paths.items() if (scanned := PLANS.faults(run, **how))}
    assert not found, told(found)


def of(*models: Any) -> Iterable[str]:
    return [model._meta.db_table for model in models]


def _what_a_worker_does_by_itself() -> None:
    """All of its tasks but those whose steps are explained in engine/ and deliveries/, which have their own threads."""
    mine = partner_side(acknowledged_within=60)
    Pair.objects.filter(pk=mine.outbound.pk).update(expected_every=60)
    rules.rule_create(
        name="On call", actor=ANN, events=["incident.opened"], channel="mail", recipients=["oncall@hub.test"]
    )
    submit(mine)
    with link():
        work()
    notifying.notify_due()
    with link(REFUSED):
        submit(mine)
        work()
    apart = {dispatch.SEND, dispatch.DELIVER, dispatch.POLLERS}
    found = {name: run for name, run in tasks._WORK.items() if name not in apart}
    # Pairs follow their agreements: all are looked at, and those of none are shut.
    Pair.objects.filter(code__startswith="pair ").update(gate="disabled")
    scans({"all pairs": found.pop("messaging.housekeeping")}, sorting=True, whole=of(Pair))
    scans(found, sorting=True)


def _what_counts() -> None:
    """Live counts, by the batch; and one look whether something is unusual, which asks for every open pair."""
    pair = partner_side().outbound
    now = clock.now()
    begun: list[live_watch.Place] = []

    def count() -> None:
        [place] = begun
        ends = {"begin": 0, "counted": place.through, "through": place.through + 1_000_000, "as_of": now}
        minutes = [Minute(pair.pk, now.replace(second=0, microsecond=0), accepted=1, received=1)]
        live_watch.apply(query=place.query, epoch=place.epoch, batch=0, minutes=minutes, **ends)

    scans({"begin": lambda: begun.append(live_watch.begin(lambda epoch: False)), "a batch": count})
    Pair.objects.filter(code__startswith="pair ").update(gate="disabled")  # looked at are those that are open
    everyone = "(SELECT id AS pair, row_number() OVER () AS n FROM messaging_pair WHERE code LIKE 'pair %') AS p"
    multiply(
        LiveMinute, everyone, pair_id="p.pair", minute=f"'{now}'::timestamptz - make_interval(mins => (n % 9000)::int)"
    )
    scans({"a look": lambda: live_watch.look(begun[0], Memory())}, sorting=True, whole=of(Pair))


def _what_goes_on_to_the_next_hop() -> None:
    """What keeps acknowledgements back until the next hop has the message (spec 1, 4.1.3)."""
    before, behind = partner_side(), partner_side()
    [(context, value)] = behind.terms.partner_identifiers
    routes.route_create(
        name="onward",
        party_context=context,
        party_value=value,
        onward=behind.terms.agreement_id,
        mode="confirm_through",
        actor=ANN,
        reason=WHY,
    )
    registry.reset()
    for_them = {"to_parties": (PartyId(value, context),), "agreement_id": "between the two"}
    multiply(
        Message,
        message_id="'f' || n",
        pair_id=f"'{behind.outbound.pk}'",
        direction="'out'",
        forwarded_from_id="gen_random_uuid()",
        state="'delivered'",
        due_at="NULL",
    )
    now = clock.now()
    first = before.message(1, **for_them)

    def came() -> Message:
        return Message.objects.get(pair=before.inbound)

    paths: dict[str, Callable[[], object]] = {
        "one comes": lambda: before.send(first),
        "and once more": lambda: before.send(first),
        "the pair is suspended": lambda: upstream.onward_stopped(behind.outbound, "No way.", now, seconds=60),
        "one is given up": lambda: upstream.onward_ended([(came().pk, "skipped")], now),
        "one is delivered": lambda: upstream.onward_ended([(came().pk, "delivered")], now),
        "how many wait": lambda: routes_read.waiting(Route.objects.get()),
    }
    scans(paths)
    assert Message.objects.get(forwarded_from=came().pk).pair_id == behind.outbound.pk
    assert Signal.objects.get(about=came().pk, kind="ack").state == "pending"


def _what_transactions_say() -> None:
    """Of one that is begun by a partner, in which another takes part (spec 5)."""
    app, shop = peer(), peer()
    places: list[Place] = []

    def begin() -> None:
        context = app.create()
        places.extend((app.register(context, Protocol.COMPLETION), shop.register(context, Protocol.DURABLE)))

    paths: dict[str, Callable[[], object]] = {
        "it is begun": begin,
        "it is to be committed": lambda: places[0].say(Note.COMMIT),
        "its votes come": lambda: places[1].say(Note.PREPARED),
        "it has ended": lambda: places[1].say(Note.COMMITTED),
    }
    scans(paths)
    assert Coordination.objects.get().phase == Phase.COMMITTED


def _what_strangers_and_partners_ask() -> None:
    """Whoever is refused, and whoever asks what became of a message: as many as they like."""
    partner = partner_side()
    arrival = partner.message(1)
    partner.send(arrival)
    message = Message.objects.filter(pair=partner.inbound).get()
    principal = enter(partner.presented, "192.0.2.7").principal
    assert principal is not None
    paths: dict[str, Callable[[], object]] = {
        "a stranger": lambda: refusals.refuse(arrival, 401, "unauthenticated", "Who?"),
        "a partner": lambda: refusals.refuse(arrival, 413, "body_too_large", "Too large.", principal=principal),
        "a guess": lambda: throttling.attempt("ann", "192.0.2.9"),
        "may it be tried": lambda: throttling.wait_for("ann", "192.0.2.9"),
        "what it was": lambda: throttling.succeeded("ann", "192.0.2.9"),
        "the status of a message": lambda: partner_views.status_of(message.message_id, principal),
        "of one that nobody knows": lambda: partner_views.status_of("none@partner", principal),
    }
    scans(paths)


def _servers_that_hold_up_others() -> None:
    partner = partner_side()
    submit(partner)
    job = next(job for job in claim_due(limit=64) if job.kind == "pair")
    server = servers.server_of_terms(partner.terms)
    servers.reset()
    paths: dict[str, Callable[[], object]] = {
        "whose pairs they are": lambda: servers.pairs_at(frozenset({server})),
        "one answers no more": lambda: [circuits.record([(job, REFUSED)], clock.now()) for _ in range(20)],
        "it is told": circuits.watch,
        "how late work is": lambda: health._oldest_due(clock.now()),
    }
    scans(paths)


def _what_people_do() -> None:
    partner = partner_side()
    first, second, third = (submit(partner, document_id=f"doc-{n}") for n in range(3))
    with link(LOST):
        work()
    Message.objects.filter(pk=first.pk).update(state="in_doubt")
    user = make_user()
    stuck = partner_side().outbound
    Pair.objects.filter(pk=stuck.pk).update(flow="suspended", cause="connect_refused")
    planned: list[BulkJob] = []
    endpoint = webhook_deliveries.WebhookEndpoint.objects.get()
    paths: dict[str, Callable[[], object]] = {
        "cancel": lambda: cancelling.message_cancel(message_id=third.pk, actor=ANN, reason=WHY),
        "resubmit": lambda: resubmitting.message_resubmit(message_id=third.pk, actor=ANN, reason=WHY),
        "settle": lambda: settling.message_settle(message_id=first.pk, decision="resubmit", actor=ANN, reason=WHY),
        "a message's partner is asked": lambda: inquiries.ask_many(message_ids=[second.pk], actor=ANN),
        "a job is planned": lambda: planned.append(
            plans.job_plan(action="pairs_resume", parameters={}, ids=[stuck.pk], actor=ANN)
        ),
        "it is executed": lambda: jobs.job_execute(
            job_id=planned[0].pk, expect_count=1, actor=ANN, reason=WHY, parameters={"stagger": 1}
        ),
        "its items": jobs.run_due,
        "missed webhooks": lambda: webhook_deliveries.replay(
            endpoint_id=endpoint.pk, since=clock.now() - timedelta(minutes=5), actor=ANN, reason=WHY
        ),
        "a log-in": lambda: sessions._note(user.pk, "key", "192.0.2.9", "Firefox", "password", clock.now()),
        "a pair's rhythm": lambda: silence.look(clock.now()),
    }
    scans(paths, sorting=True)
    assert BulkJob.objects.get().done == 1


def _what_people_see() -> None:
    """Pages that refresh themselves, and what a monitoring system scrapes: they ask for all pairs, and for no more."""
    partner = partner_side()
    for _ in range(3):
        submit(partner)
    with link(REFUSED):
        work()
    incidents.incident_open(pair=partner.outbound, cause="silent", now=clock.now())
    now = clock.now()
    Pair.objects.filter(pk=partner.outbound.pk).update(cause="connect_refused")
    paths: dict[str, Callable[[], object]] = {
        "what every page says": screens.nav_counts,
        "rows of pairs": lambda: screens.pair_rows(pairs.pairs(partner_id=partner.terms.partner_id), now),
        "the dashboard": lambda: overview.overview(now),
        "traffic of a partner": lambda: traffic.of_partner(partner.terms.partner_id, now),
        "a scrape": lambda: generate_latest(metrics.registry_of()),
        "who did something": partial(records.audit_values, "actor"),
        "what was done": partial(records.audit_values, "verb"),
    }
    scans(paths, sorting=True, whole=of(Pair))


def test_what_runs_beside_the_messages_scans_no_table(
    full_store: None, settings: Any, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    settings.RMHUB_MAIL_SERVER, settings.RMHUB_MAIL_FROM = "smtp://mail.hub.test", "hub@hub.test"
    # What a test writes is of a transaction that is still open.
    monkeypatch.setattr("messaging.models.feed.horizon", lambda: 1 << 40)
    monkeypatch.setattr("messaging.models.feed.is_ahead", lambda place: False)
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    PLANS.forget()
    alone(
        subtests,
        _what_transactions_say,
        _what_counts,
        _what_goes_on_to_the_next_hop,
        _what_strangers_and_partners_ask,
        _servers_that_hold_up_others,
        _what_people_do,
        _what_people_see,
        _what_a_worker_does_by_itself,
    )
    assert "\n".join(PLANS.missing(*ROOMS, elsewhere=ELSEWHERE)) == ""


def test_no_statement_is_written_where_no_test_looks() -> None:
    found = modules("messaging", "partners", "rmhub")
    known = (*SHOWN, *ROOMS, *BESIDE)
    assert [path for path in found if not within(path, known)] == []
    assert [room for room in known if not any(within(path, [room]) for path in found)] == []
