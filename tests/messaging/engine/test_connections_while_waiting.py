"""Whoever waits for a server, an application or somebody else's commit has no connection to the database meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from messaging.deliveries.services import monitoring
from messaging.engine import memory as hub_memory
from messaging.entrance import smtp_server as mail
from messaging.entrance.smtp_server import Entrance
from messaging.journal.audit import Actor
from messaging.messages.services import inquiries
from messaging.models import PollerState
from messaging.notifications.services import webhooks
from messaging.pairs.services import probing
from messaging.pollers.services import pollers
from partners.choices import ExchangeMode
from rmhub import clock
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.entrance.mail.partners import options
from tests.messaging.factories import partner_side, submit
from tests.messaging.http_server import serving
from tests.messaging.pairs.test_probing import endpoint
from tests.messaging.pollers.conftest import server as sftp
from tests.messaging.pollers.scene import scene
from tests.messaging.profiles.repeatable.callers import T, caller, remembering_since
from tests.messaging.profiles.repeatable.test_synchronous import http_application
from tests.messaging.status_service import messages_in_doubt, status_service
from tests.messaging.transports.sftp_server import SftpServer
from tests.rmhub.test_connections import WAIT, bound, in_threads, server_pid

__all__ = ["bound", "sftp"]
pytestmark = pytest.mark.django_db(transaction=True)
ANN = Actor("ann")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"


class Listening:
    """Answers requests, and notes for each how many connections the process of the test has in use by then."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.in_use: list[int] = []

    def __call__(self, connection: socket.socket) -> None:
        while _head(connection):
            self.look()
            connection.sendall(self.answer)

    def look(self) -> None:
        pool = connection.pool
        assert pool is not None
        self.in_use.append(len(pool._slots))


def _head(connection: socket.socket) -> bytes:
    """A request's head, and its body left behind; empty when the other side closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = sum(lengths) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536))
    return head


def _webhook(there: Listening) -> None:
    with serving(there) as server:
        webhooks.endpoint_create(url=server.url, types=("message.accepted",), name="", actor=ANN)
        submit(partner_side())
        assert webhooks.deliver_due() == 1


def _probe(there: Listening) -> None:
    with serving(there) as server:
        assert probing.probe(endpoint_id=endpoint(partner_side(), address=server.url).pk, actor=ANN).ok


def _inquiry(there: Listening) -> None:
    far = partner_side(profile="repeatable")
    (message,) = messages_in_doubt(far)

    class Answers(dict[str, str | bytes]):
        def get(self, key: str, default: Any = None) -> Any:
            there.look()
            return default

    with status_service(far, Answers(), "processed") as service:
        service.answers = Answers()
        assert inquiries.ask(message_id=message.pk, actor=ANN).answer == "processed"


def _monitor(there: Listening) -> None:
    with serving(there) as server:
        trigger = make_queue(monitor="http", monitor_url=server.url, monitor_interval=60)
        type(trigger).objects.update(state="suspended", monitor_due_at=clock.now())
        monitoring.check_due()


def _synchronous_request(there: Listening) -> None:
    with clock.frozen(T):
        remembering_since(T.replace(month=1))
        partner = caller(exchange_mode=ExchangeMode.SYNCHRONOUS)
        with http_application(there):
            assert partner.post("order-1").status_code == 200


TALKS = [_webhook, _probe, _inquiry, _monitor, _synchronous_request]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__.lstrip("_"))
def test_nothing_is_held_while_somebody_else_is_asked(talk: Callable[[Listening], None]) -> None:
    connection.close()
    there = Listening()
    talk(there)
    assert set(there.in_use) == {0}


def test_nothing_is_held_while_a_file_is_fetched(sftp: SftpServer) -> None:
    files = scene(sftp)
    for number in (1, 2, 3):
        assert files.sends(files.partner.message(number), f"message-{number}").ok
    there = Listening()
    sftp.rules.before["open"] = lambda path: there.look()
    PollerState.objects.update(due_at=clock.now())
    [job] = pollers.claim_due(limit=1)
    connection.close()
    assert pollers.look(job).taken == 3
    assert set(there.in_use) == {0}


def test_the_mail_entrance_s_threads_share_what_there_is(bound: int) -> None:
    """More of them than connections, and none waits for one of which nothing is done."""
    entrance = Entrance(options())
    try:
        for _ in range(3):
            meet = threading.Barrier(8)

            def ask(meet: threading.Barrier = meet) -> int:
                meet.wait(WAIT)  # so that each has a thread of its own
                return mail._in_thread(server_pid)

            asked = [entrance._pool.submit(ask) for _ in range(8)]
            assert all(one.result(WAIT) for one in asked)
    finally:
        entrance.close()


def test_whoever_asks_after_the_memory_is_one_at_a_time(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start all threads of a web server ask at once; the lock's connection is beside the bound."""
    opened, most, lock = 0, 0, threading.Lock()
    locked = hub_memory.locked

    class Counting:
        def __init__(self, key: int) -> None:
            self._held = locked(key)

        def __enter__(self) -> object:
            nonlocal opened, most
            with lock:
                opened += 1
                most = max(most, opened)
            return self._held.__enter__()

        def __exit__(self, *raised: Any) -> Any:
            nonlocal opened
            with lock:
                opened -= 1
            return self._held.__exit__(*raised)

    monkeypatch.setattr(hub_memory, "locked", Counting)
    hub_memory.reset()
    for thread in in_threads(12, lambda: hub_memory.check(clock.now())):
        thread.join(WAIT)
    assert most == 1
    connections.close_all()
