"""Over real web servers: two of them at once, one that is killed, and clients that know nothing of this hub."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3

from messaging import applications
from messaging.choices import DeliveryState
from messaging.deliveries.services import claiming, talking, triggering
from messaging.engine import memory as hub_memory
from messaging.engine import subscriptions
from messaging.journal.audit import Actor
from messaging.models import Delivery, Message, RememberedRequest, Trigger
from messaging.protocol.codecs.repeatable import imf_fixdate
from partners.choices import ExchangeMode
from rmhub import clock
from tests.messaging.http_server import Handler, Server, read_request, serving
from tests.messaging.profiles.repeatable.callers import BODY, Caller, brief, caller, new_id
from tests.messaging.profiles.repeatable.hubs import Hub, hubs

pytestmark = pytest.mark.django_db(transaction=True)


class Application:
    """A small application behind HTTP: counts what it does."""

    def __init__(self) -> None:
        self.executions: list[str] = []
        self.reached = threading.Event()
        self.hangs = False
        self._lock = threading.Lock()

    def __call__(self, connection) -> None:
        while True:
            head, _ = read_request(connection)
            if not head:
                return
            named = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:])
            names = {name.lower(): value for name, value in named.items()}
            with self._lock:
                self.executions.append(names["rm-message-id"])
                count = len(self.executions)
            self.reached.set()
            if self.hangs:
                connection.recv(1)  # until whoever asked is gone
                return
            body = json.dumps({"executions": count}).encode()
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: a=b\r\nContent-Length: %d\r\n\r\n"
                % len(body)
                + body
            )


@contextmanager
def answered_by(application: Application, **settings: object) -> Iterator[Trigger]:
    with serving(application) as server:
        trigger, _ = triggering.trigger_create(
            actor=Actor("test"),
            reason="test",
            **{"name": "application", "kind": "http", "url": server.url, "answers": True, "timeout": 5, **settings},
        )
        subscriptions.current.forget()
        yield trigger


@pytest.fixture
def partner() -> Caller:
    hub_memory.check(clock.now())
    return caller(exchange_mode=ExchangeMode.SYNCHRONOUS, repeat_interval=1)


def headers(partner: Caller, request_id: str) -> dict[str, str]:
    return {
        "Authorization": partner.authorization,
        "Content-Type": "application/xml",
        "Repeatability-Request-ID": request_id,
        "Repeatability-First-Sent": imf_fixdate(clock.now()),
    }


def test_x18_g19_of_many_first_copies_at_two_hubs_one_is_executed(partner: Caller, tmp_path: Path) -> None:
    application = Application()
    pool = urllib3.PoolManager(maxsize=20, retries=False)
    with answered_by(application), hubs(tmp_path, 2) as servers:
        for round_ in range(3):
            sent = headers(partner, f"order-{round_}")
            barrier = threading.Barrier(20)

            def copy(number: int, sent: dict[str, str] = sent, barrier: threading.Barrier = barrier):
                url = servers[number % 2].url + partner.path
                barrier.wait(120)
                return pool.request("POST", url, body=BODY, headers=sent, timeout=60)

            with ThreadPoolExecutor(20) as threads:
                answers = list(threads.map(copy, range(20)))
            statuses = {answer.status for answer in answers}
            assert statuses <= {200, 409}, statuses
            assert {answer.headers["Repeatability-Result"] for answer in answers} == {"accepted"}
            done = {answer.data for answer in answers if answer.status == 200}
            assert done == {json.dumps({"executions": round_ + 1}).encode()}
            for server in servers:
                again = pool.request("POST", server.url + partner.path, body=BODY, headers=sent, timeout=60)
                assert (again.status, {again.data}) == (200, done)
    assert application.executions == ["order-0", "order-1", "order-2"]
    assert Message.objects.count() == 3


def round_of_a_worker() -> None:
    jobs = claiming.claim_due(limit=10)
    while jobs:
        jobs = talking.record([(job, talking.talk(job)) for job in jobs])
        jobs = [job for job in jobs if job is not None]


@pytest.mark.parametrize(
    ("says", "expected", "executions"),
    [
        pytest.param(None, (412, "rejected", "in-doubt"), 1, id="G22-without-resolver"),
        pytest.param("DUPLICATE", (204, "accepted", ""), 1, id="G22-resolver-duplicate"),
        pytest.param("NEW", (200, "accepted", ""), 2, id="G22-resolver-new"),
        pytest.param("IN DOUBT", (412, "rejected", "in-doubt"), 1, id="G22-resolver-in-doubt"),
    ],
)
def test_g22_killed_in_the_middle_of_the_work(
    partner: Caller, tmp_path: Path, says: str | None, expected: tuple, executions: int
) -> None:
    application = Application()
    application.hangs = True
    settings = {} if says is None else {"resolver": "callable", "resolver_callable": "test.resolver"}
    first_sent = clock.now().replace(microsecond=0)
    asked = []

    def resolver(document: applications.Document) -> object:
        asked.append(document.message_id)
        return says

    applications.RESOLVERS["test.resolver"] = resolver
    try:
        with answered_by(application, **settings), hubs(tmp_path) as (hub,):
            sent = {**headers(partner, "order-1"), "Repeatability-First-Sent": imf_fixdate(first_sent)}
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(
                    urllib3.request, "POST", hub.url + partner.path, body=BODY, headers=sent, retries=False, timeout=60
                )
                assert application.reached.wait(120)
                hub.kill()
                assert isinstance(answer.exception(30), urllib3.exceptions.HTTPError)
            application.hangs = False
            assert brief(partner.post("order-1", first_sent)) == (409, "accepted", "in-work")
            with clock.frozen(clock.now() + timedelta(minutes=2)):
                round_of_a_worker()
                for _ in range(2):
                    assert brief(partner.post("order-1", first_sent)) == expected
    finally:
        del applications.RESOLVERS["test.resolver"]
    assert application.executions == ["order-1"] * executions
    assert asked == ([] if says is None else ["order-1"])
    if expected[0] == 412:
        assert Delivery.objects.get().state == DeliveryState.IN_DOUBT
        assert RememberedRequest.objects.get().state == "in_doubt"


def test_strangers_clients(partner: Caller, tmp_path: Path) -> None:
    """curl, and urllib3's own retries over a link that loses the first answer."""
    application = Application()
    with answered_by(application), hubs(tmp_path) as (hub,):
        _curl(partner, hub)
        _replayed_dates(partner, hub)
        _two_headers(partner, hub)
        assert application.executions == ["curl-1", "dates"]
        _retries(partner, hub, lambda: len(application.executions))


def _curl(partner: Caller, hub: Hub) -> None:
    sent = headers(partner, "curl-1")
    command = ["curl", "-sS", "-i", "--data-binary", "@-", hub.url + partner.path]
    for name, value in sent.items():
        command += ["-H", f"{name}: {value}"]
    answers = [subprocess.run(command, input=BODY, capture_output=True, check=True).stdout for _ in range(2)]
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"repeatability-result: accepted" in head.lower()
        assert body == b'{"executions": 1}'
    told = subprocess.run(
        ["curl", "-sS", "-H", f"Authorization: {partner.authorization}", hub.url + partner.path],
        capture_output=True,
        check=True,
    )
    assert json.loads(told.stdout)["window_seconds"] == 7200
    chunked = [*command, "-H", "Transfer-Encoding: chunked"]
    assert subprocess.run(chunked, input=BODY, capture_output=True, check=True).stdout.endswith(b'{"executions": 1}')
    head = subprocess.run(
        ["curl", "-sS", "-I", f"{hub.url}/.well-known/reliable-messaging"], capture_output=True, check=True
    )
    assert head.stdout.startswith(b"HTTP/1.1 200 ")


def _replayed_dates(partner: Caller, hub: Hub) -> None:
    """G35, on the wire."""
    for _ in range(2):
        answer = urllib3.request(
            "POST", hub.url + partner.path, body=BODY, headers=headers_of(partner, "dates"), timeout=120
        )
        assert answer.status == 200
        assert "Set-Cookie" not in answer.headers
        age = clock.now() - parsedate_to_datetime(answer.headers["Date"])
        assert abs(age) < timedelta(seconds=30)
        assert len(answer.headers.getlist("Content-Length")) == 1


_SENT: dict[str, dict[str, str]] = {}


def headers_of(partner: Caller, request_id: str) -> dict[str, str]:
    """The same for each copy."""
    return _SENT.setdefault(request_id, headers(partner, request_id))


def _two_headers(partner: Caller, hub: Hub) -> None:
    """G33 and G03, on the wire: however a server joins two lines of one name, they are refused."""
    import http.client

    for name, values in (
        ("Repeatability-First-Sent", ["Tue, 10 Mar 2026 12:00:00 GMT"] * 2),
        ("Idempotency-Key", ['"a"', '"b"']),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=120)
        connection.putrequest("POST", partner.path)
        connection.putheader("Authorization", partner.authorization)
        connection.putheader("Content-Length", "0")
        if name != "Idempotency-Key":
            connection.putheader("Repeatability-Request-ID", new_id())
        for value in values:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Repeatability-Result"]) == (400, "rejected"), name
        connection.close()


def losing_first(hub: Hub, lost: list[bytes]) -> Handler:
    """Hands each request on to the hub; the first answer never comes back."""

    def handle(connection) -> None:
        head, body = read_request(connection)
        if not head:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = line.split(" ")
        sent = dict(one.split(": ", 1) for one in lines)
        answer = urllib3.request(method, hub.url + path, body=body, headers=sent, retries=False, timeout=120)
        if not lost:
            lost.append(answer.data)
            return
        connection.sendall(
            b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (answer.status, len(answer.data)) + answer.data
        )

    return handle


def _retries(partner: Caller, hub: Hub, executions: Callable[[], int]) -> None:
    lost: list[bytes] = []
    before = executions()
    with serving(losing_first(hub, lost)) as link:
        answer = urllib3.request(
            "POST",
            _through(link, partner.path),
            body=BODY,
            headers=headers(partner, "retried"),
            retries=urllib3.Retry(total=3, allowed_methods=None, status_forcelist=(409, 503)),
            timeout=120,
        )
    assert lost == [answer.data]
    assert executions() == before + 1


def _through(link: Server, path: str) -> str:
    return f"http://{urlsplit(link.url).netloc}{path}"
