"""Resource monitors of suspended triggers, and what a restart of the hub resumes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from messaging import applications, dispatch, tasks
from messaging.applications import Transient
from messaging.choices import IncidentState, TriggerState
from messaging.deliveries.services import monitoring, triggering
from messaging.engine.looking import look
from messaging.models import Event, Incident, Trigger
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.deliveries.stage import PERSON
from tests.messaging.http_server import Handler, serving

pytestmark = pytest.mark.django_db


class Says:
    """A monitor that says these things one after another, the last one for ever; an exception is raised."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> object:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


Register = Callable[..., Says]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    def registered(name: str, *answers: object) -> Says:
        made = Says(*answers)
        monkeypatch.setitem(applications.MONITORS, name, made)
        return made

    return registered


def suspend(trigger: Trigger, cause: str = "service_unreachable") -> None:
    with transaction.atomic():
        locked = Trigger.objects.select_for_update().get(pk=trigger.pk)
        triggering.suspend_now(locked, cause, "Connection refused.", clock.now())


def state(trigger: Trigger) -> str:
    trigger.refresh_from_db()
    return trigger.state


def test_w30_a_monitor_is_polled_until_it_says_yes_and_all_that_share_it_resume(
    time: FrozenClock, register: Register
) -> None:
    says = register("erp", False, "false", "true")
    first = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    second = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=3600)
    register("other", False)
    other = make_queue(monitor="callable", monitor_callable="other", monitor_interval=60)
    for trigger in (first, second, other):
        suspend(trigger)
    resumed = []
    for _ in range(180):
        time.move(1)
        resumed.append(monitoring.check_due())
    assert says.asked == 3
    assert [second for second, count in enumerate(resumed, start=1) if count] == [180]
    assert resumed[-1] == 2
    assert (state(first), state(second), state(other)) == (
        TriggerState.ACTIVE,
        TriggerState.ACTIVE,
        TriggerState.SUSPENDED,
    )
    assert Event.objects.filter(type="trigger.resumed").count() == 2
    unresolved = Incident.objects.exclude(state=IncidentState.RESOLVED)
    assert [incident.trigger_id for incident in unresolved] == [other.pk]
    time.move(600)
    assert monitoring.check_due() == 0
    assert says.asked == 3


@pytest.mark.parametrize(
    "answer",
    [ValueError("no such table"), Transient("later"), None, "maybe", 1, 0, "", "yes", [True], {"isAvailable": True}],
    ids=repr,
)
def test_w31_a_monitor_that_raises_or_says_nonsense_says_no(
    time: FrozenClock, register: Register, caplog: pytest.LogCaptureFixture, answer: object
) -> None:
    says = register("erp", answer)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    suspend(trigger)
    time.move(60)
    with caplog.at_level(logging.WARNING):
        assert monitoring.check_due() == 0
    assert says.asked == 1
    assert state(trigger) == TriggerState.SUSPENDED
    assert trigger.monitor_due_at == NOON + timedelta(seconds=120)
    assert any(getattr(record, "action", "") == "monitor_says_no" for record in caplog.records)


def test_w31_a_monitor_that_nobody_registers_any_more_says_no(time: FrozenClock, register: Register) -> None:
    register("erp", True)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    suspend(trigger)
    del applications.MONITORS["erp"]
    time.move(60)
    assert monitoring.check_due() == 0
    assert state(trigger) == TriggerState.SUSPENDED


def test_what_a_person_suspended_is_not_resumed_by_a_monitor(time: FrozenClock, register: Register) -> None:
    says = register("erp", True)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    shared = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="stocktaking")
    time.move(3600)
    assert monitoring.check_due() == 0
    assert says.asked == 0
    suspend(shared)
    time.move(60)
    assert monitoring.check_due() == 1
    assert (state(trigger), state(shared)) == (TriggerState.SUSPENDED, TriggerState.ACTIVE)


def test_a_trigger_that_a_person_suspends_while_its_monitor_is_asked_stays_suspended(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def says_yes_too_late() -> bool:
        triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="stocktaking")
        return True

    monkeypatch.setitem(applications.MONITORS, "erp", says_yes_too_late)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    suspend(trigger)
    time.move(60)
    assert monitoring.check_due() == 0
    assert state(trigger) == TriggerState.SUSPENDED


def test_nobody_asks_while_somebody_asks(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def asks_again() -> bool:
        asked.append(monitoring.check_due())
        return False

    monkeypatch.setitem(applications.MONITORS, "erp", asks_again)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    suspend(trigger)
    time.move(60)
    monitoring.check_due()
    assert asked == [0]


def test_a_worker_that_dies_while_it_asks_delays_the_next_question_by_a_minute(
    time: FrozenClock, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die() -> bool:
        raise Killed

    trigger_says = register("erp", True)
    trigger = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=5)
    suspend(trigger)
    time.move(5)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setitem(applications.MONITORS, "erp", die)
        monitoring.check_due()
    time.move(59)
    assert monitoring.check_due() == 0
    time.move(1)
    assert monitoring.check_due() == 1
    assert trigger_says.asked == 1
    assert state(trigger) == TriggerState.ACTIVE


def saying(answer: bytes, heads: list[bytes]) -> Handler:
    """Answers one request without a body."""

    def handle(connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return
            data += piece
        heads.append(data)
        connection.sendall(answer)

    return handle


def http(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.mark.parametrize(
    ("answer", "resumed"),
    [
        pytest.param(http("200 OK", b'{"isAvailable": "true"}'), 1, id="spec"),
        pytest.param(http("200 OK", b'{"isAvailable": true}'), 1, id="json"),
        pytest.param(http("200 OK", b"true"), 1, id="bare"),
        pytest.param(http("200 OK", b'{"isAvailable": "false"}'), 0, id="no"),
        pytest.param(http("200 OK", b"<html>all is well</html>"), 0, id="W31-a-page"),
        pytest.param(http("200 OK", b""), 0, id="W31-nothing"),
        pytest.param(http("200 OK", b"[" * 5000), 0, id="W31-deep"),
        pytest.param(http("200 OK", b'{"isAvailable": true, "x": "' + b"x" * 5000 + b'"}'), 0, id="W31-long"),
        pytest.param(http("503 Later", b'{"isAvailable": true}'), 0, id="W31-status"),
        pytest.param(http("302 Found\r\nLocation: http://127.0.0.1:1/", b"true"), 0, id="W31-redirect"),
        pytest.param(b"", 0, id="W31-hangs-up"),
    ],
)
def test_http_monitor(time: FrozenClock, answer: bytes, resumed: int) -> None:
    with serving(saying(answer, [])) as server:
        trigger = make_queue(monitor="http", monitor_url=server.url, monitor_interval=60)
        suspend(trigger)
        time.move(60)
        assert monitoring.check_due() == resumed
    assert state(trigger) == (TriggerState.ACTIVE if resumed else TriggerState.SUSPENDED)


def test_http_monitor_that_is_down_says_no(time: FrozenClock) -> None:
    with serving(saying(b"", [])) as server:
        url = server.url
    trigger = make_queue(monitor="http", monitor_url=url, monitor_interval=60)
    suspend(trigger)
    time.move(60)
    assert monitoring.check_due() == 0
    assert state(trigger) == TriggerState.SUSPENDED


def test_the_question_is_signed_with_the_triggers_secret(time: FrozenClock) -> None:
    heads: list[bytes] = []
    with serving(saying(http("200 OK", b"true"), heads)) as server:
        trigger, secret = triggering.trigger_create(
            actor=PERSON, reason="test", name="signed", kind="pull", monitor="http", monitor_url=server.url
        )
        suspend(trigger)
        time.move(60)
        assert monitoring.check_due() == 1
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "GET /msh HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}".lower()


def test_w32_without_a_monitor_it_stays_suspended_until_somebody_resumes_it(time: FrozenClock) -> None:
    trigger = make_queue()
    suspend(trigger)
    for _ in range(3):
        time.move(86_400)
        assert monitoring.check_due() == 0
    assert state(trigger) == TriggerState.SUSPENDED
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="it is up again")
    assert state(trigger) == TriggerState.ACTIVE


def test_w32_a_restart_resumes_what_trouble_suspended(time: FrozenClock, register: Register) -> None:
    says = register("erp", False)
    trouble = make_queue()
    monitored = make_queue(monitor="callable", monitor_callable="erp")
    by_error = make_queue(suspend_on_error=True)
    by_person = make_queue()
    disabled = make_queue()
    suspend(trouble, "resolver_unavailable")
    suspend(monitored)
    suspend(by_error, "service_error")
    triggering.trigger_suspend(trigger_id=by_person.pk, actor=PERSON, reason="stocktaking")
    triggering.trigger_disable(trigger_id=disabled.pk, actor=PERSON, reason="not used")
    time.move(10)
    assert monitoring.resume_after_restart() == 1
    assert state(trouble) == TriggerState.ACTIVE
    for trigger in (monitored, by_error, by_person):
        assert state(trigger) == TriggerState.SUSPENDED
    assert state(disabled) == TriggerState.DISABLED
    assert says.asked == 0
    assert monitoring.resume_after_restart() == 0
    assert not Incident.objects.filter(trigger=trouble).exclude(state=IncidentState.RESOLVED).exists()


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_starts_resumes_and_beat_has_monitors_asked(time: FrozenClock, register: Register) -> None:
    register("erp", True)
    trouble = make_queue()
    monitored = make_queue(monitor="callable", monitor_callable="erp", monitor_interval=60)
    suspend(trouble)
    suspend(monitored)
    tasks._first()  # what a worker does before anything else
    assert (state(trouble), state(monitored)) == (TriggerState.ACTIVE, TriggerState.SUSPENDED)
    time.move(60)
    assert dispatch.MONITORS in look(0)
    assert tasks.monitors_due() == "resumed 1"
    assert state(monitored) == TriggerState.ACTIVE
