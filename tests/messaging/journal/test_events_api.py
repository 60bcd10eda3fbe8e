"""The event feed: everything once, in order, whoever commits late."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from messaging.api import long_poll
from messaging.journal import events
from messaging.models import Event, feed
from messaging.notifications.api import events as view
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import Answer, Api, make_token, make_user
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api(transactional_db: None) -> Api:
    return Api(make_token(make_user(Role.VIEWER)))


def write(kind: str = "pair.paused", **data: object) -> None:
    with transaction.atomic():
        events.write([events.event(kind, clock.now(), data=data)])


def read_all(api: Api, cursor: str = "", **query: str) -> tuple[list[Any], str]:
    """All events there are behind the cursor, and the cursor behind them."""
    found = []
    while True:
        answer = api.get("/events", {**query, **({"cursor": cursor} if cursor else {})})
        assert answer.status == 200, answer.json
        found += answer.json["data"]
        cursor = answer.json["next_cursor"]
        if not answer.json["has_more"]:
            return found, cursor


def test_the_feed_tells_a_message_s_life(api: Api) -> None:
    partner = partner_side()
    with link() as wire:
        message = submit(partner)
        work()
        partner.send(partner.acknowledgement(wire.last))
    found, cursor = read_all(api)
    assert [row["type"] for row in found] == ["message.accepted", "message.delivered"]
    assert {row["data"]["message"] for row in found} == {message.public_id}
    assert {row["data"]["pair"] for row in found} == {partner.outbound.public_id}
    assert len({row["id"] for row in found}) == 2
    assert read_all(api, cursor) == ([], cursor)
    write()
    assert [row["type"] for row in read_all(api, cursor)[0]] == ["pair.paused"]


def test_small_pages_give_the_same_events(api: Api) -> None:
    for number in range(7):
        write(number=number)
    found, _ = read_all(api, limit="3")
    assert [row["data"]["number"] for row in found] == list(range(7))


def test_types_choose(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from messaging.notifications import selectors

    for number in range(5):
        write("pair.paused", number=number)
        write("pair.released", number=number)
    for scan in (10_000, 3):
        monkeypatch.setattr(selectors, "_SCAN", scan)
        found, cursor = read_all(api, types="pair.released,pair.resumed", limit="2")
        assert [row["data"]["number"] for row in found] == list(range(5))
        assert read_all(api, cursor)[0] == []
    assert api.get("/events", {"types": "pair.lost"}).code == "invalid_parameter"


def test_who_starts_at_the_end_sees_what_comes(api: Api) -> None:
    write(number=1)
    start = api.get("/events", {"start": "latest"})
    assert start.json["data"] == []
    write(number=2)
    assert [row["data"]["number"] for row in read_all(api, start.json["next_cursor"])[0]] == [2]


def test_an_event_of_a_transaction_that_commits_late_is_not_passed_over(api: Api) -> None:
    """The hole that "id > last seen" has: a lower number that becomes visible after a higher one."""
    written, may_commit = threading.Event(), threading.Event()

    def late() -> None:
        try:
            with transaction.atomic():
                events.write([events.event("pair.paused", clock.now(), data={"who": "late"})])
                written.set()
                assert may_commit.wait(120)
        finally:
            connection.close()

    thread = threading.Thread(target=late)
    thread.start()
    assert written.wait(120)
    write(who="early")
    early = Event.objects.get()  # visible, and numbered behind the one that is still open
    first, cursor = read_all(api)
    may_commit.set()
    thread.join()
    assert Event.objects.order_by("id").first() != early
    second, cursor = read_all(api, cursor)
    assert [row["data"]["who"] for row in first + second] == ["late", "early"]
    assert read_all(api, cursor)[0] == []


def neighbour() -> psycopg.Connection:
    """A connection to another database of the server."""
    settings = connection.settings_dict
    return psycopg.connect(
        host=settings["HOST"],
        port=settings["PORT"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        dbname="postgres",
    )


def test_a_transaction_in_another_database_holds_nothing_up(api: Api) -> None:
    with neighbour() as slow:
        slow.execute("SELECT pg_current_xact_id()")
        write(who="ours")
        assert [row["data"]["who"] for row in read_all(api)[0]] == ["ours"]


def test_a_transaction_in_another_database_that_began_during_ours_holds_nothing_up(transactional_db: None) -> None:
    """In a transaction the server shows those who ran at its first look."""
    with neighbour() as slow, neighbour() as quick:
        slow.execute("SELECT pg_current_xact_id()")
        write()
        with transaction.atomic():
            feed.horizon()
            slow.rollback()
            number = slow.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            quick.execute("SELECT pg_current_xact_id()")
            quick.commit()
            assert number is not None and feed.horizon() > number[0]


def test_many_writers_and_a_reader_lose_nothing_and_repeat_nothing(api: Api) -> None:
    def writer(name: int) -> None:
        try:
            for number in range(15):
                with transaction.atomic():
                    events.write([events.event("pair.paused", clock.now(), data={"who": [name, number]})])
                    if number % 3 == 0:
                        write(who=[name, number, "inner"])
        finally:
            connection.close()

    threads = [threading.Thread(target=writer, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    seen, cursor = [], ""
    while any(thread.is_alive() for thread in threads):
        found, cursor = read_all(api, cursor, limit="5")
        seen += found
    seen += read_all(api, cursor)[0]
    assert len(seen) == 4 * 20
    assert len({row["id"] for row in seen}) == len(seen)
    for name in range(4):
        own = [row["data"]["who"][1] for row in seen if row["data"]["who"][0] == name]
        assert own == sorted(own)


def test_waiting_ends_with_the_first_event(api: Api) -> None:
    cursor = api.get("/events").json["next_cursor"]
    looked = threading.Event()
    answers: list[Answer] = []

    def wait() -> None:
        try:
            answers.append(api.get("/events", {"cursor": cursor, "wait": "30"}))
        finally:
            connection.close()

    original = view.events.feed

    def feed(**arguments: Any) -> Any:
        page = original(**arguments)
        looked.set()
        return page

    view.events.feed = feed
    try:
        thread = threading.Thread(target=wait)
        thread.start()
        assert looked.wait(120)
        write(who="awaited")
        thread.join(120)
    finally:
        view.events.feed = original
    (answer,) = answers
    assert [row["data"]["who"] for row in answer.json["data"]] == ["awaited"]


def test_beyond_the_number_of_waiters_the_answer_comes_at_once(api: Api) -> None:
    taken = [long_poll._waiters.acquire(blocking=False) for _ in range(long_poll.MAX_WAITERS)]
    try:
        assert all(taken)
        answer = api.get("/events", {"wait": "30"})
        assert (answer.status, answer.json["data"], answer.json["has_more"]) == (200, [], False)
    finally:
        for _ in taken:
            long_poll._waiters.release()


def test_waiting_has_an_end(api: Api) -> None:
    assert api.get("/events", {"wait": "31"}).code == "invalid_parameter"
    assert api.get("/events", {"wait": "1"}).json["data"] == []
    assert long_poll._waiters.acquire(blocking=False)
    long_poll._waiters.release()


def test_the_feed_is_an_index_scan(api: Api) -> None:
    write()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_event (xid, at, type, data)"
            " SELECT n, now(), 'pair.paused', '{}' FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE messaging_event")
        cursor.execute(
            "EXPLAIN SELECT * FROM messaging_event"
            " WHERE (xid, id) > (19000, 0) AND xid < 100000 ORDER BY xid, id LIMIT 51"
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "event_feed" in plan and "Sort" not in plan, plan
