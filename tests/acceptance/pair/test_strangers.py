"""Programs that know nothing of this hub, curl and urllib3, get exactly-once from it by two headers (spec 2)."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import urllib3

from messaging.demo.seeding import ORDERS
from messaging.demo.stage import Receiving, Stage, application_process
from messaging.protocol.codecs.repeatable import imf_fixdate
from rmhub.hubs import free_ports, link_process
from rmhub.supervisor import Process, Supervisor
from tests.partners.factories import basic

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

ONE_WAY, SYNCHRONOUS = "tpa:stranger:one-way", "tpa:stranger:synchronous"
WINDOW = 86_400  # seconds
# Two agreements of the repeatable profile at the seller's hub, and a trigger for each; prints the triggers' secrets.
SET_UP = """
from messaging.demo import seeding
from messaging.deliveries.services import triggering
from messaging.engine import pairs
from messaging.journal.audit import Actor
from partners import services
from partners.models import Party

own, partner = (Party.objects.get(name=side.name) for side in (seeding.SELLER, seeding.BUYER))
for mode in ("one_way", "synchronous"):
    name = "stranger:" + mode.replace("_", "-")
    ends = [
        services.endpoint_create(party=party, name=name, uri=uri, error_uri=uri)
        for party in (own, partner)
        for uri in [f"http://msh.{party.name.split()[0].lower()}.example/exchange/{name}/"]
    ]
    agreement = services.agreement_create(
        tpa_id=f"tpa:{name}", own_party=own, partner=partner, own_endpoint=ends[0], partner_endpoint=ends[1],
        services=seeding.SERVICES, profile="repeatable", exchange_mode=mode, memory_window=WINDOW, repeat_interval=1,
    )
    services.version_activate(version=agreement.versions.get())
    trigger, secret = triggering.trigger_create(
        actor=Actor("test"), reason="a test", name=name, agreement_id=agreement.pk, url="URL/documents",
        resolver="http", resolver_url="URL/resolve", answers=mode == "synchronous", retry_until="success",
    )
    print(secret)
pairs.ensure_pairs()
"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.body)
        return found


@dataclass(frozen=True, slots=True)
class Stranger:
    """A partner's program: the buyer's credentials, and the seller's hub as its other side."""

    stage: Stage
    folder: Path

    @property
    def credentials(self) -> str:
        return f"partner:{self.stage.secrets['a_to_b']}"

    def curl(self, *arguments: str, url: str, body: bytes | None = None) -> Answer:
        """Runs curl. Its exit code must be 0: whatever the status, there was an answer."""
        head, out = self.folder / "head", self.folder / "out"
        data = ["--data-binary", "@-"] if body is not None else []
        run = subprocess.run(
            ["curl", "-sS", "--max-time", "120", "-D", head, "-o", out, "-w", "%{http_code}", *data, *arguments, url],
            input=body,
            capture_output=True,
            timeout=600,
        )
        assert run.returncode == 0, run.stderr.decode()
        last = head.read_text().replace("\r", "").rstrip().split("\n\n")[-1]
        headers = dict(line.split(": ", 1) for line in last.split("\n")[1:] if ": " in line)
        return Answer(int(run.stdout), {name.lower(): value for name, value in headers.items()}, out.read_bytes())

    def headers(self, request_id: str, first_sent: datetime) -> dict[str, str]:
        return {
            "Repeatability-Request-ID": request_id,
            "Repeatability-First-Sent": imf_fixdate(first_sent),
            "RM-Service": ORDERS,
            "RM-Action": "Order",
            "Content-Type": "application/json",
        }

    def post(
        self,
        body: bytes,
        request_id: str,
        first_sent: datetime,
        *arguments: str,
        agreement: str = ONE_WAY,
        url: str = "",
        method: str = "POST",
        without: str = "",
    ) -> Answer:
        headers = self.headers(request_id, first_sent)
        given = [word for name in headers if name != without for word in ("-H", f"{name}: {headers[name]}")]
        address = f"{url or self.stage.seller.url}/exchange/{agreement}/"
        return self.curl("-X", method, "-u", self.credentials, *given, *arguments, url=address, body=body)

    def effects(self, wanted: set[str]) -> Counter[str]:
        """How often each of the documents had its effect, when the seller's hub has nothing under way any more."""
        under_way = "SELECT count(*) FROM messaging_delivery WHERE state IN ('waiting', 'running')"

        def quiet() -> bool:
            with psycopg.connect(self.stage.seller.database_url) as seller:
                return seller.execute(under_way).fetchone() == (0,)

        wait_until(quiet)
        with closing(sqlite3.connect(self.stage.effects)) as file:
            found = file.execute("SELECT document_id FROM effect").fetchall()
        return Counter(row[0] for row in found if row[0] in wanted)

    def is_taken(self, agreement: str) -> bool:
        """Whether a request under the agreement is stored and goes to a trigger; web servers notice both with delay."""
        probe = new_id()
        self.post(b"{}", probe, now(), agreement=agreement)
        with psycopg.connect(self.stage.seller.database_url) as seller:
            query = "SELECT count(*) FROM messaging_delivery WHERE document_id = %s"
            return seller.execute(query, [probe]).fetchone() == (1,)

    def copies(self, wanted: set[str]) -> dict[str, int]:
        """How many repeats of each stored request the seller's hub has turned away."""
        with psycopg.connect(self.stage.seller.database_url) as seller:
            rows = seller.execute(
                "SELECT message_id, copies FROM messaging_message WHERE direction = 'in' AND message_id = ANY(%s)",
                [list(wanted)],
            ).fetchall()
        assert len(rows) == len(wanted), "stored twice, or not at all"
        return dict(rows)


def wait_until(true: Callable[[], bool], within: float = 180) -> None:
    until = time.monotonic() + within
    while not true():
        assert time.monotonic() < until
        threading.Event().wait(0.05)


def new_id() -> str:
    return str(uuid.uuid4())


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def alongside(*processes: Process) -> Iterator[None]:
    """Runs more processes beside the hubs."""
    supervisor = Supervisor(list(processes), output=lambda name, line: None)
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()


@pytest.fixture(scope="module")
def stranger(hubs: tuple[Stage, Supervisor], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    stage, _ = hubs
    (port,) = free_ports(1)
    set_up = SET_UP.replace("URL", f"http://127.0.0.1:{port}").replace("WINDOW", str(WINDOW))
    run = subprocess.run(
        stage.seller.manage("shell", "-v", "0", "-c", set_up),
        env=stage.seller.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    made = Stranger(stage, tmp_path_factory.mktemp("curl"))
    with alongside(application_process(Receiving(), port, stage.effects, run.stdout.split())):
        for agreement in (ONE_WAY, SYNCHRONOUS):
            wait_until(lambda: made.is_taken(agreement))  # noqa: B023
        yield made


@pytest.fixture
def beside(stranger: Stranger) -> Iterator[Callable[[Process], None]]:
    """Starts one more process and ends it after the test."""
    with ExitStack() as stack:
        yield lambda process: stack.enter_context(alongside(process))


def test_curl_gets_the_same_acknowledgement_for_a_repeat(stranger: Stranger) -> None:
    request_id, sent = new_id(), now()
    first = stranger.post(b'{"order": 1}', request_id, sent)
    assert (first.status, first.headers["repeatability-result"]) == (202, "accepted")
    assert first.json["message_id"] == request_id
    again = stranger.post(b'{"order": 1}', request_id.upper(), sent)  # G17
    assert (again.status, again.headers["repeatability-result"], again.body) == (202, "accepted", first.body)
    assert stranger.copies({request_id}) == {request_id: 1}
    assert stranger.effects({request_id}) == {request_id: 1}


def test_curl_gets_the_answer_of_the_application_once_more(stranger: Stranger) -> None:
    request_id, sent = new_id(), now()
    first = stranger.post(b'{"order": 2}', request_id, sent, agreement=SYNCHRONOUS)
    assert (first.status, first.headers["repeatability-result"]) == (200, "accepted")
    assert first.json["document"] == request_id
    again = stranger.post(b'{"order": 2}', request_id, sent, agreement=SYNCHRONOUS)
    assert (again.status, again.headers["repeatability-result"], again.body) == (200, "accepted", first.body)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert stranger.effects({request_id}) == {request_id: 1}


def test_curl_is_told_what_is_wrong_and_nothing_is_executed(stranger: Stranger) -> None:
    request_id, sent = new_id(), now()
    assert stranger.post(b'{"order": 3}', request_id, sent).status == 202
    old, lonely = new_id(), new_id()
    cases = {
        "other content": (stranger.post(b'{"order": 4}', request_id, sent), 400),
        "other first-sent": (stranger.post(b'{"order": 3}', request_id, sent + timedelta(minutes=1)), 400),
        "too old": (stranger.post(b'{"order": 3}', old, sent - timedelta(days=500)), 412),
        "ahead of time": (stranger.post(b'{"order": 3}', old, sent + timedelta(hours=1)), 412),
        "one header only": (stranger.post(b"{}", lonely, sent, without="Repeatability-First-Sent"), 400),
        "another verb": (stranger.post(b"{}", new_id(), sent, method="PATCH"), 501),
    }
    for name, (answer, status) in cases.items():
        assert (name, answer.status, answer.headers["repeatability-result"]) == (name, status, "rejected")
        assert (name, answer.headers["content-type"]) == (name, "application/problem+json")
        assert (name, answer.json["status"]) == (name, status)
    too_old, _ = cases["too old"]
    assert int(too_old.headers["repeatability-window"]) == too_old.json["window_seconds"] == WINDOW
    assert {"server_time", "memory_start", "earliest_accepted_first_sent"} <= too_old.json.keys()
    assert stranger.effects({request_id, old, lonely}) == {request_id: 1}


def test_curl_without_a_password_learns_nothing(stranger: Stranger) -> None:
    request_id, sent = new_id(), now()
    assert stranger.post(b"{}", request_id, sent).status == 202
    known, unknown = (stranger.post(b"{}", one, sent, "-u", "partner:wrong") for one in (request_id, new_id()))
    assert (known.status, known.body) == (unknown.status, unknown.body)
    assert known.status == 401


def test_curl_asks_for_window_and_memory(stranger: Stranger) -> None:
    address = f"{stranger.stage.seller.url}/exchange/{ONE_WAY}/"
    told = stranger.curl("-u", stranger.credentials, url=address)
    assert told.status == 200
    assert told.json["window_seconds"] == WINDOW
    assert "repeatability-result" not in told.headers
    options = stranger.curl("-X", "OPTIONS", "-u", stranger.credentials, url=address)
    assert {"POST", "PUT", "GET"} <= set(options.headers["allow"].replace(" ", "").split(","))
    head = stranger.curl("-I", "-u", stranger.credentials, url=address)
    assert (head.status, head.body[:5]) == (200, b"HTTP/")  # curl -I writes the head
    anywhere = stranger.curl(url=f"{stranger.stage.seller.url}/.well-known/reliable-messaging")
    assert (anywhere.status, anywhere.headers["content-type"]) == (200, "application/json")


def cut_off(stranger: Stranger, start: Callable[[Process], None], seed: int) -> str:
    """The root URL of the seller's hub behind a link that cuts off every other exchange, before or after."""
    (port,) = free_ports(1)
    start(
        link_process({port: stranger.stage.seller.port}, drop=0.5, duplicate=0.2, delay_ms=0, seed=seed, name="cutter")
    )
    return f"http://127.0.0.1:{port}"


def test_the_retries_of_curl_are_safe(stranger: Stranger, beside: Callable[[Process], None]) -> None:
    url = cut_off(stranger, beside, seed=5)
    sent = {new_id() for _ in range(8)}
    for request_id in sent:
        patiently = ("--retry", "30", "--retry-all-errors", "--retry-delay", "0", "--retry-max-time", "300")
        answer = stranger.post(b'{"order": 5}', request_id, now(), *patiently, url=url)
        assert (answer.status, answer.headers["repeatability-result"]) == (202, "accepted")
    assert sum(stranger.copies(sent).values()) > 0, "no answer was cut off: the test shows nothing"
    assert stranger.effects(sent) == dict.fromkeys(sent, 1)


@pytest.mark.parametrize(("agreement", "status"), [(ONE_WAY, 202), (SYNCHRONOUS, 200)], ids=["one way", "synchronous"])
def test_the_retries_of_urllib3_are_safe(
    stranger: Stranger, beside: Callable[[Process], None], agreement: str, status: int
) -> None:
    url = cut_off(stranger, beside, seed=6)
    retries = urllib3.Retry(
        total=40,
        allowed_methods={"POST"},
        status_forcelist={409, 429, 502, 503, 504},
        backoff_factor=0.05,
        backoff_max=0.5,
        respect_retry_after_header=True,
    )
    sent = {new_id() for _ in range(20)}
    with urllib3.PoolManager(retries=retries, timeout=120) as pool:
        for request_id in sent:
            answer = pool.request(
                "POST",
                f"{url}/exchange/{agreement}/",
                body=b'{"order": 6}',
                headers={
                    "Authorization": basic("partner", stranger.stage.secrets["a_to_b"]),
                    **stranger.headers(request_id, now()),
                },
            )
            assert (answer.status, answer.headers["Repeatability-Result"]) == (status, "accepted")
    assert sum(stranger.copies(sent).values()) > 0, "no answer was cut off: the test shows nothing"
    assert stranger.effects(sent) == dict.fromkeys(sent, 1)


def test_x18_two_web_processes_take_one_request_once(stranger: Stranger, beside: Callable[[Process], None]) -> None:
    """G19 through two processes: one executes; the other is told the same, or that the first is still in progress."""
    (port,) = free_ports(1)
    second = dataclasses.replace(stranger.stage.seller, port=port)
    beside(second.processes(prefix="second-")[0])
    both = [stranger.stage.seller.url, second.url]
    pool = urllib3.PoolManager(maxsize=2, retries=False, timeout=300)
    barrier = threading.Barrier(2)

    def post(root: str, agreement: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        barrier.wait()
        answer = pool.request("POST", f"{root}/exchange/{agreement}/", body=b'{"order": 7}', headers=headers)
        return answer.status, answer.headers["Repeatability-Result"], answer.data

    sent: set[str] = set()
    with ThreadPoolExecutor(2) as threads:
        for number in range(40):
            agreement, done = ((ONE_WAY, 202), (SYNCHRONOUS, 200))[number % 2]
            request_id = new_id()
            sent.add(request_id)
            headers = {
                "Authorization": basic("partner", stranger.stage.secrets["a_to_b"]),
                **stranger.headers(request_id, now()),
            }
            answers = list(threads.map(lambda root: post(root, agreement, headers), both))  # noqa: B023
            assert {answer[1] for answer in answers} == {"accepted"}
            statuses = sorted(answer[0] for answer in answers)
            assert statuses in ([done, done], [done, 409])
            if statuses == [done, done]:
                assert answers[0] == answers[1]
    pool.clear()
    assert stranger.copies(sent).keys() == sent
    assert stranger.effects(sent) == dict.fromkeys(sent, 1)
