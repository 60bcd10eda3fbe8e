"""What belongs to one request is stored by one commit, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, models

from messaging.engine import subscriptions
from messaging.engine.group import GroupCommit
from messaging.models import Delivery, Event, Message, RememberedRequest, Trigger
from messaging.profiles.repeatable import admitting, exchanging
from partners.models import AgreementVersion
from tests.messaging.outages import Killed
from tests.messaging.profiles.repeatable.callers import (
    NEW_ORDER,
    ORDERS,
    Caller,
    T,
    brief,
    caller,
    remembering_since,
    stored,
)
from tests.partners.factories import make_agreement, make_endpoint
from tests.rmhub.conditions import eventually

ACCEPTED = (202, "accepted", "")
UNAVAILABLE = (503, "rejected", "unavailable")


@pytest.mark.django_db(transaction=True)
def test_x02_killed_between_any_two_statements_leaves_all_or_nothing(now) -> None:
    remembering_since(T.replace(month=1))
    partner = caller()
    Trigger.objects.create(name="orders", kind="pull")
    subscriptions.current.forget()
    partner.post("order-0")
    before = stored(), Event.objects.count(), partner.pair.done
    statements = 0
    while True:
        with connection.execute_wrapper(Killed(statements)):
            answer = partner.post("order-1")
        if answer.status_code == 202:
            break
        assert brief(answer) == UNAVAILABLE
        assert (stored(), Event.objects.count(), partner.pair.done) == before
        statements += 1
    assert statements >= 8
    assert Message.objects.count() == Delivery.objects.count() == RememberedRequest.objects.count() == 2
    assert brief(partner.post("order-1")) == ACCEPTED
    assert Message.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_x02_what_fails_at_the_commit_was_never_answered(
    now, commit_fails: Callable[[type[models.Model]], AbstractContextManager[None]]
) -> None:
    remembering_since(T.replace(month=1))
    partner = caller()
    with commit_fails(Message):
        assert brief(partner.post("order-1")) == UNAVAILABLE
    assert not Message.objects.exists()
    assert not RememberedRequest.objects.exists()
    assert brief(partner.post("order-1")) == ACCEPTED


@pytest.mark.django_db(transaction=True)
def test_the_same_id_at_once_under_two_agreements_and_of_two_days(now, monkeypatch) -> None:
    """Neither the pair's lock nor the primary key is in the way of the second: ids belong to their sender."""
    remembering_since(T.replace(month=1))
    partner = caller(memory_window=3 * 86_400)
    first = AgreementVersion.objects.get(pk=partner.terms.version_id).agreement
    second = make_agreement(
        own_endpoint=make_endpoint(first.own_party, "https://us.example/exchange/second/"),
        partner_endpoint=make_endpoint(first.partner, "https://them.example/exchange/second/"),
        profile="repeatable",
        memory_window=3 * 86_400,
        allowed=((ORDERS, NEW_ORDER, "both"),),
    )
    other = Caller(caller(second).terms, partner.authorization)
    looked, go_on = threading.Event(), threading.Event()
    write = admitting._write

    def late(batch: object) -> None:
        monkeypatch.setattr(admitting, "_write", write)
        looked.set()
        assert go_on.wait(120)
        write(batch)

    monkeypatch.setattr(admitting, "_write", late)
    answers: dict[datetime, Any] = {}

    def send(sender: Caller, first_sent: datetime) -> threading.Thread:
        def run() -> None:
            try:
                answers[first_sent] = sender.post("order-1", first_sent)
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    one = send(partner, T)
    assert looked.wait(120)
    # As in another process: its groups do not wait for this one's.
    monkeypatch.setattr(exchanging, "_group", GroupCommit(admitting.admit))
    earlier = T - timedelta(days=1)
    two = send(other, earlier)
    eventually(waiting_for_an_advisory_lock)
    go_on.set()
    one.join(120)
    two.join(120)
    assert brief(answers[T]) == ACCEPTED
    assert brief(answers[earlier]) == (400, "rejected", "first-sent-differs")
    assert Message.objects.count() == 1


def waiting_for_an_advisory_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def test_a_group_is_one_transaction_and_each_gets_what_is_its_own(partner: Caller, monkeypatch) -> None:
    """New, repeat, other content and out of the window, of one partner in one group."""
    items: list[admitting.Item] = []

    class Collector:
        def submit(self, item: admitting.Item) -> admitting.Outcome:
            items.append(item)
            return admitting.admit([item])[0]

    partner.post("order-0")
    with monkeypatch.context() as patched:
        patched.setattr(exchanging, "_group", Collector())
        partner.post("order-1")
        partner.post("order-1", body=b"<Other/>")
        partner.post("order-2", T.replace(hour=1))
        partner.post("order-0")
    RememberedRequest.objects.filter(request_id="order-1").delete()
    Message.objects.filter(message_id="order-1").delete()
    new, other, outside, known = items
    outcomes = admitting.admit([new, new, other, outside, known])
    assert [(str(one.verdict), one.code) for one in outcomes] == [
        ("execute", ""),
        ("replay", ""),
        ("refuse", "content-differs"),
        ("refuse", "outside-memory-window"),
        ("replay", ""),
    ]
    assert Message.objects.get(message_id="order-1").copies == 1
    assert outcomes[0].received_at == outcomes[1].received_at == T
