"""Webhooks: signed so that anybody can check it, again and again until they arrive, and never into the house."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from messaging import dispatch
from messaging.dispatch import wake
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Message, WebhookDelivery, WebhookEndpoint
from messaging.notifications.services import webhooks
from messaging.transports.bounded import public_pool
from rmhub import clock
from rmhub.celery import app
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.factories import partner_side, submit
from tests.messaging.http_server import WAIT, answering, read_request, serving

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
LEASE = 120


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock
    webhooks._any_pool.clear()


def endpoint(url: str = "http://127.0.0.1:1/hook", types: tuple[str, ...] = ("message.accepted",), name: str = ""):
    made, secret = webhooks.endpoint_create(url=url, types=types, name=name, actor=ANN)
    return made, secret


def delivery() -> WebhookDelivery:
    return WebhookDelivery.objects.get()


def claim() -> list[WebhookDelivery]:
    due = WebhookDelivery.objects.filter(endpoint__enabled=True).select_related("endpoint")
    return webhooks.claim(due, timedelta(seconds=LEASE), 10)


class Taking:
    """A handler that writes down what comes and answers what it is told."""

    def __init__(self, answer: bytes = TAKEN) -> None:
        self.answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            lines = head.decode().split("\r\n")[1:]
            self.requests.append(({k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}, body))
            connection.sendall(self.answer)


def status(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} x", "Content-Length: 0", *headers, "", ""]).encode()


# ---- what is sent ----


def test_an_event_arrives_signed_and_anybody_with_the_secret_can_check_it() -> None:
    taking = Taking()
    with serving(taking) as server:
        _, secret = endpoint(server.url)
        message = submit(partner_side())
        assert webhooks.deliver_due() == 1
    [(headers, body)] = taking.requests
    assert json.loads(body) == {
        "type": "message.accepted",
        "timestamp": AT.isoformat(),
        "data": {
            "message": message.public_id,
            "pair": message.pair.public_id,
            "message_id": message.message_id,
            "agreement": message.agreement_version.agreement.tpa_id,
            "service": message.service,
            "action": message.action,
            "size": message.size,
        },
    }
    assert headers["content-type"] == "application/json"
    assert headers["webhook-id"] == delivery().public_id
    assert headers["webhook-timestamp"] == str(int(AT.timestamp()))
    # Standard Webhooks 1.0: base64(HMAC-SHA256(base64-decoded secret, "id.timestamp.body")), with its version in front.
    key = base64.b64decode(secret.split("_", 1)[1])
    assert len(key) >= 24
    signed = headers["webhook-id"].encode() + b"." + headers["webhook-timestamp"].encode() + b"." + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    found = delivery()
    assert (found.state, found.attempts, found.last_status, found.due_at, found.delivered_at) == (
        "delivered", 1, 204, None, AT,
    )  # fmt: skip


def test_the_signature_of_a_published_example() -> None:
    """The example of the Standard Webhooks reference libraries."""
    assert (
        webhooks.sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            b'{"test": 2432232314}',
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_only_the_types_that_were_asked_for_are_sent_and_all_if_none_were() -> None:
    endpoint(types=("message.delivered",))
    every, _ = endpoint(types=())
    submit(partner_side())
    assert list(WebhookDelivery.objects.values_list("endpoint", flat=True)) == [every.pk]


def test_an_endpoint_is_told_of_the_first_event_after_it_was_made_however_soon_that_comes() -> None:
    partner = partner_side()
    submit(partner)  # nobody is to be told
    endpoint()
    submit(partner)
    assert WebhookDelivery.objects.count() == 1


def test_an_event_that_is_rolled_back_is_not_sent(woken: list[str]) -> None:
    endpoint()
    partner = partner_side()
    with pytest.raises(RuntimeError), transaction.atomic():
        submit(partner)
        raise RuntimeError
    assert not WebhookDelivery.objects.exists()


def test_connections_are_kept() -> None:
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        for _ in range(3):
            submit(partner_side())
            webhooks.deliver_due()
        assert (len(taking.requests), len(server.connections)) == (3, 1)


# ---- when it does not arrive ----


def test_it_is_tried_again_on_the_schedule_and_given_up_after_the_last(time: FrozenClock) -> None:
    taking = Taking(status(500))
    with serving(taking) as server:
        made, _ = endpoint(server.url)
        submit(partner_side())
        waits = []
        while delivery().due_at is not None:
            assert webhooks.deliver_due() == 1
            if (due := delivery().due_at) is not None:
                wait = (due - time.move(0)).total_seconds()
                waits.append(wait)
                time.move(wait - 0.001)
                assert webhooks.deliver_due() == 0, "not before its time"
                time.move(0.001)
    assert len(taking.requests) == len(webhooks.SCHEDULE) + 1 == 10
    assert all(planned <= wait <= planned * 1.1 for planned, wait in zip(webhooks.SCHEDULE, waits, strict=True))
    assert waits != list(webhooks.SCHEDULE), "spread, so that what failed together does not come back together"
    found = delivery()
    assert (found.state, found.attempts, found.last_status) == ("failed", 10, 500)
    ids = {headers["webhook-id"] for headers, _ in taking.requests}
    assert ids == {found.public_id}, "one id over all attempts: the receiver can tell repeats"
    made.refresh_from_db()
    assert (made.enabled, made.failing_since) == (True, AT)


def test_a_success_ends_the_trouble(time: FrozenClock) -> None:
    taking = Taking(status(503))
    with serving(taking) as server:
        made, _ = endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
        taking.answer = TAKEN
        time.move(10)
        webhooks.deliver_due()
    made.refresh_from_db()
    assert (delivery().state, delivery().attempts, made.failing_since) == ("delivered", 2, None)


@pytest.mark.parametrize(("seconds", "wait"), [("600", 600), ("0", 5), ("soon", 5), ("-5", 5), ("9999999", 5)])
def test_retry_after_is_respected_when_it_is_longer(seconds: str, wait: int) -> None:
    with serving(Taking(status(429, f"Retry-After: {seconds}"))) as server:
        endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
    due = delivery().due_at
    assert due is not None
    assert wait <= (due - AT).total_seconds() <= wait * 1.1


def test_gone_switches_the_endpoint_off() -> None:
    taking = Taking(status(410))
    with serving(taking) as server:
        made, _ = endpoint(server.url)
        partner = partner_side()
        submit(partner)
        assert webhooks.deliver_due() == 1
        made.refresh_from_db()
        assert (made.enabled, made.disabled_reason) == (False, "The endpoint answered 410 Gone.")
        assert (delivery().state, delivery().due_at) == ("failed", None)
        submit(partner)
        assert WebhookDelivery.objects.count() == 1, "nothing more is owed to it, seen at once"
        assert webhooks.deliver_due() == 0


def test_a_redirect_is_a_failure_and_not_followed() -> None:
    with serving(Taking()) as elsewhere, serving(Taking(status(307, f"Location: {elsewhere.url}"))) as server:
        endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
        assert elsewhere.connections == []
    assert (delivery().state, delivery().last_status) == ("pending", 307)


@pytest.mark.parametrize(
    "handler",
    [
        answering(b"\x00\x01 not http\r\n\r\n"),
        answering(b"HTTP/1.1 2"),
        lambda connection: None,
    ],
    ids=["not http", "cut off", "closed"],
)
def test_an_answer_that_is_none_is_tried_again(handler) -> None:
    with serving(handler) as server:
        endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
    found = delivery()
    assert (found.state, found.last_status) == ("pending", None)
    assert found.last_error
    assert found.last_error.isprintable()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    endpoint(f"http://127.0.0.1:{port}/")
    submit(partner_side())
    webhooks.deliver_due()
    assert "refused" in delivery().last_error


def dripping(connection: socket.socket) -> None:
    read_request(connection)
    pause = threading.Event()
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(6000):  # two minutes
        connection.sendall(b"0")
        pause.wait(0.02)
    connection.sendall(b"\r\n\r\n")


def test_an_endpoint_that_answers_slowly_has_one_time_limit_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT", 0.2)
    with serving(dripping) as server:
        endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
    assert delivery().last_status is None


def test_slow_endpoints_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is claimed is done before its lease ends: else another worker would post it a second time."""
    assert webhooks.TIMEOUT * (50 / webhooks.POSTERS) < LEASE
    inside, all_in = [], threading.Event()

    def slow(connection: socket.socket) -> None:
        read_request(connection)
        inside.append(1)
        if len(inside) == webhooks.POSTERS:
            all_in.set()
        all_in.wait(WAIT)
        connection.sendall(TAKEN)

    with serving(slow) as server:
        endpoint(server.url)
        partner = partner_side()
        for _ in range(webhooks.POSTERS):
            submit(partner)
        assert webhooks.deliver_due() == webhooks.POSTERS
    assert all_in.is_set(), "all were on their way at the same time"
    assert set(WebhookDelivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_an_endpoint_whose_secret_cannot_be_read_holds_up_nobody() -> None:
    taking = Taking()
    with serving(taking) as server:
        broken, _ = endpoint(server.url + "/broken")
        WebhookEndpoint.objects.filter(pk=broken.pk).update(secret_encrypted=b"rubbish")
        healthy, _ = endpoint(server.url)
        submit(partner_side())
        webhooks.deliver_due()
    assert len(taking.requests) == 1
    found = WebhookDelivery.objects.get(endpoint=broken)
    assert (found.state, found.last_status) == ("pending", None)
    assert "secret" in found.last_error
    assert WebhookDelivery.objects.get(endpoint=healthy).state == "delivered"


# ---- leases ----


def test_what_a_dead_worker_had_claimed_is_posted_after_its_lease(time: FrozenClock) -> None:
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        submit(partner_side())
        [stale] = claim()
        time.move(LEASE - 1)
        assert webhooks.deliver_due() == 0
        time.move(1)
        assert webhooks.deliver_due() == 1
        webhooks._record([(stale, webhooks.Outcome(500))])
    found = delivery()
    assert (found.state, found.attempts, found.last_status) == ("delivered", 2, 204), "a late failure undoes no success"


def test_a_late_outcome_moves_nothing_of_the_attempt_that_came_after_it(time: FrozenClock) -> None:
    endpoint()
    submit(partner_side())
    [stale] = claim()
    time.move(LEASE)
    [claimed] = claim()
    webhooks._record([(stale, webhooks.Outcome(410))])
    found = delivery()
    assert (found.state, found.attempts, found.due_at) == ("pending", 2, claimed.due_at)
    assert WebhookEndpoint.objects.get().enabled


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_post_each_delivery_once() -> None:
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        partner = partner_side()
        for _ in range(20):
            submit(partner)
        posted: list[int] = []

        def run() -> None:
            try:
                posted.append(webhooks.deliver_due(limit=3))
            finally:
                connection.close()

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
    assert sum(posted) == len(taking.requests) == 20
    assert len({headers["webhook-id"] for headers, _ in taking.requests}) == 20


# ---- what comes next is claimed where the outcomes before are written ----


def events_of(taking: Taking) -> list[str]:
    return [json.loads(body)["data"]["message"] for _, body in taking.requests]


def accepted(count: int, time: FrozenClock) -> list[str]:
    """So many messages, a second apart; their ids."""
    partner = partner_side()
    made = []
    for _ in range(count):
        time.move(1)
        made.append(submit(partner).public_id)
    return made


@pytest.mark.django_db(transaction=True)
def test_batches_take_one_look_and_one_transaction_each(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = webhooks.claim
    monkeypatch.setattr(webhooks, "claim", lambda *given: looks.append(1) or look(*given))
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        accepted(7, time)
        with CaptureQueriesContext(connection) as asked:
            assert webhooks.deliver_due(limit=4) == 7
    assert len(looks) == 1
    assert [query["sql"] for query in asked].count("COMMIT") == 3, "the look, and each batch with the claim after it"
    assert {found.state for found in WebhookDelivery.objects.all()} == {"delivered"}


@pytest.mark.django_db(transaction=True)
def test_nobody_is_woken_while_one_posts(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes due then is found by the claim that follows, or by whoever the next wake-up wakes."""
    said: list[str] = []
    monkeypatch.setattr(dispatch, "taken", lambda task: said.append(f"{task} may be woken"))
    monkeypatch.setattr(dispatch, "busy", lambda task: said.append(f"{task} is at it"))
    with serving(Taking()) as server:
        endpoint(server.url)
        accepted(2, time)
        assert webhooks.deliver_due(limit=1) == 2
    woken, at_it = f"{dispatch.WEBHOOKS} may be woken", f"{dispatch.WEBHOOKS} is at it"
    assert said == [woken, at_it, woken, at_it, woken]


@pytest.mark.django_db(transaction=True)
def test_each_endpoint_is_told_in_order_whatever_the_batches(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "POSTERS", 1)
    one, other = Taking(), Taking()
    with serving(one) as first, serving(other) as second:
        endpoint(first.url)
        endpoint(second.url)
        made = accepted(5, time)
        assert webhooks.deliver_due(limit=3) == 10
    assert (events_of(one), events_of(other)) == (made, made)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.django_db(transaction=True)
def test_what_was_claimed_with_the_outcomes_before_is_due_again_after_its_lease(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking()
    post = webhooks.post

    def dies(delivery: WebhookDelivery) -> webhooks.Outcome:
        if len(taking.requests) >= 2:
            raise Killed
        return post(delivery)

    monkeypatch.setattr(webhooks, "POSTERS", 1)
    with serving(taking) as server:
        endpoint(server.url)
        made = accepted(4, time)
        monkeypatch.setattr(webhooks, "post", dies)
        with pytest.raises(Killed):
            webhooks.deliver_due(limit=2)
        monkeypatch.setattr(webhooks, "post", post)
        assert events_of(taking) == made[:2]
        assert WebhookDelivery.objects.filter(state="delivered").count() == 2, "their outcomes are kept"
        claimed = WebhookDelivery.objects.filter(state="pending")
        assert {(row.attempts, row.due_at) for row in claimed} == {(1, clock.now() + timedelta(seconds=LEASE))}
        time.move(LEASE - 1)
        assert webhooks.deliver_due() == 0
        time.move(1)
        assert webhooks.deliver_due() == 2
    assert events_of(taking) == made


def test_outcomes_stay_written_whatever_is_wrong_with_what_comes_next(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        accepted(3, time)
        take, takes = webhooks._take, []

        def breaks(*given: object) -> list[WebhookDelivery]:
            takes.append(1)
            if len(takes) > 1:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
            return take(*given)

        monkeypatch.setattr(webhooks, "_take", breaks)
        assert webhooks.deliver_due(limit=2) == 2
        monkeypatch.setattr(webhooks, "_take", take)
        assert WebhookDelivery.objects.filter(state="delivered").count() == 2
        assert webhooks.deliver_due() == 1


@pytest.mark.django_db(transaction=True)
def test_one_that_is_made_just_after_a_look_wakes_at_once(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL.rpartition("/")[0] + "/13", socket_timeout=60)
    key = f"rmhub:wake:{dispatch.WEBHOOKS}"
    client.delete(key)
    sent: list[str] = []
    monkeypatch.setattr(dispatch, "valkey", lambda: client)
    monkeypatch.setattr(dispatch, "_down_until", 0.0)
    monkeypatch.setattr(app, "send_task", sent.append)
    monkeypatch.setattr(dispatch, "wake", wake)
    partner = partner_side()
    taking = Taking()
    with serving(taking) as server:
        endpoint(server.url)
        submit(partner)
        assert webhooks.deliver_due() == 1
        submit(partner)
        assert sent.count(dispatch.WEBHOOKS) == 2
    client.delete(key)
    client.close()


# ---- endpoints ----


def test_the_secret_is_shown_once_and_stored_encrypted() -> None:
    _, secret = endpoint("http://hook.example/", name="ERP")
    assert secret.startswith("whsec_")
    stored = WebhookEndpoint.objects.get()
    assert secret.encode() not in bytes(stored.secret_encrypted)
    assert stored.enabled
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor) == ("webhook.create", "ann")
    assert secret not in json.dumps([entry.before, entry.after])
    assert endpoint()[1] != secret


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("url", {"url": "ftp://x.example/"}),
        ("url", {"url": "hook.example"}),
        ("url", {"url": ""}),
        ("url", {"url": "http://"}),
        ("url", {"url": "http://[::1"}),
        ("url", {"url": "http://x.example:abc/"}),
        ("url", {"url": "http://x.example:0/"}),
        ("url", {"url": "http://x.example:99999/"}),
        ("url", {"url": "https://user:password@x.example/"}),
        ("url", {"url": "https://x.example/a b"}),
        ("url", {"url": "https://x.example/\x00"}),
        ("url", {"url": "https://x.example/\ud800"}),
        ("url", {"url": "https://x.example/" + "a" * 500}),
        ("types", {"types": ["message.exploded"]}),
        ("name", {"name": "n" * 81}),
        ("name", {"name": "n\x00"}),
    ],
)
def test_an_endpoint_that_could_not_work_is_refused(field: str, given: dict[str, object]) -> None:
    right = {"url": "https://x.example/", "types": [], "name": ""}
    with pytest.raises(InvalidSubmission) as refused:
        webhooks.endpoint_create(**{**right, **given}, actor=ANN)  # type: ignore[arg-type]
    assert list(refused.value.errors) == [field]
    assert not WebhookEndpoint.objects.exists()
    made, _ = endpoint()
    with pytest.raises(InvalidSubmission) as refused:
        webhooks.endpoint_update(endpoint_id=made.pk, actor=ANN, **given)  # type: ignore[arg-type]
    assert list(refused.value.errors) == [field]


PRIVATE = [
    "https://127.0.0.1/",
    "https://localhost/",
    "https://10.1.2.3/",
    "https://192.168.0.1/",
    "https://172.16.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://0.0.0.0/",
    "https://[::1]/",
    "https://[fe80::1]/",
    "https://[fd00::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0x7f.1/",
    "http://93.184.216.34/",
    "https://no-such-host.invalid/",
]


def test_private_addresses_are_refused_unless_the_installation_allows_them(settings) -> None:
    for url in PRIVATE:
        settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = False
        with pytest.raises(InvalidSubmission, match="url"):
            pytest.fail(f"{url} was taken: {endpoint(url)}")
        settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = True
        endpoint(url)


def test_an_address_that_became_private_is_not_posted_to(settings) -> None:
    """Allowed when it was made; the setting, or its name, points elsewhere now."""
    with serving(Taking()) as server:
        endpoint(server.url)
        settings.RMHUB_WEBHOOK_ALLOW_PRIVATE = False
        submit(partner_side())
        webhooks.deliver_due()
        assert server.connections == []
    assert delivery().state == "pending"
    assert delivery().last_error


def test_a_name_that_is_looked_up_twice_cannot_lead_into_the_house() -> None:
    """DNS rebinding: the check of the name passed, and the connection goes elsewhere."""
    with serving(Taking()) as server:
        with pytest.raises(Exception, match="not a public address"):
            public_pool().request("POST", f"https://localhost:{server.port}/", body=b"x", timeout=2)
        assert [c for c in server.connections if c.fileno() != -1 and _received(c)] == []


def _received(connection: socket.socket) -> bytes:
    try:
        connection.setblocking(False)
        return connection.recv(10)
    except OSError:
        return b""


def test_an_endpoint_is_changed_and_the_audit_log_says_how() -> None:
    made, _ = endpoint(name="old")
    revision = webhooks.revision(made)
    webhooks.endpoint_update(
        endpoint_id=made.pk, actor=ANN, reason="moved", name="new", types=["message.failed"], expected=revision
    )
    made.refresh_from_db()
    assert (made.name, made.types) == ("new", ["message.failed"])
    entry = AuditEntry.objects.latest("id")
    assert (entry.verb, entry.reason, entry.before["name"], entry.after["name"]) == (
        "webhook.update", "moved", "old", "new",
    )  # fmt: skip
    with pytest.raises(Stale):
        webhooks.endpoint_update(endpoint_id=made.pk, actor=ANN, name="newer", expected=revision)


def test_what_waits_for_an_endpoint_that_is_switched_on_again_goes_out_at_once(time: FrozenClock) -> None:
    taking = Taking()
    with serving(taking) as server:
        made, _ = endpoint(server.url)
        submit(partner_side())
        webhooks.endpoint_update(endpoint_id=made.pk, enabled=False, actor=ANN, reason="maintenance")
        made.refresh_from_db()
        assert (made.disabled_reason, webhooks.deliver_due()) == ("maintenance", 0)
        webhooks.endpoint_update(endpoint_id=made.pk, enabled=True, actor=ANN)
        assert webhooks.deliver_due() == 1


def test_one_that_does_not_exist() -> None:
    for call in (
        lambda: webhooks.endpoint_update(endpoint_id=uuid7(), enabled=True, actor=ANN),
        lambda: webhooks.endpoint_delete(endpoint_id=uuid7(), actor=ANN),
    ):
        with pytest.raises(NotFound, match="whe_"):
            call()


@pytest.mark.django_db(transaction=True)
def test_traffic_goes_on_when_an_endpoint_is_deleted() -> None:
    """Every process remembers the endpoints for a second: none of what it writes then may fail for one that is gone."""
    made, _ = endpoint(types=())
    partner = partner_side()
    submit(partner)
    assert WebhookDelivery.objects.count() == 1
    webhooks.endpoint_delete(endpoint_id=made.pk, actor=ANN, reason="not used any more")
    assert not WebhookDelivery.objects.exists()
    submit(partner)
    assert partner.send(partner.message(1)) == 204
    assert (Message.objects.count(), WebhookDelivery.objects.count()) == (3, 0)
    assert AuditEntry.objects.latest("id").verb == "webhook.delete"


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_is_deleted_while_its_deliveries_are_on_the_wire() -> None:
    made, _ = endpoint()
    submit(partner_side())
    [claimed] = claim()
    webhooks.endpoint_delete(endpoint_id=made.pk, actor=ANN)
    webhooks._record([(claimed, webhooks.Outcome(204))])
    assert not WebhookDelivery.objects.exists()


def test_deliveries_say_when_they_are_next_due() -> None:
    endpoint()
    submit(partner_side())
    found = delivery()
    assert (found.state, found.due_at, found.attempts) == ("pending", AT, 0)
    [claimed] = claim()
    assert claimed.due_at == AT + timedelta(seconds=LEASE)
    assert Event.objects.get(pk=found.event_id).type == "message.accepted"
