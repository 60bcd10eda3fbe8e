"""The client against the API as it is, and against servers that break off, refuse, and ask for patience."""

from __future__ import annotations

import io
import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from messaging.deliveries.services import triggering
from messaging.engine import subscriptions
from messaging.journal.audit import Actor
from messaging.models import Delivery, Message, Payload
from messaging.notifications.services.webhooks import sign
from rmhub.roles import Role
from rmhub_client import BadSignature, Client, Document, NoAnswer, Problem, Uploaded, check, verify
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import ACTION, SERVICE, partner_side
from tests.messaging.http_server import Server, read_request, serving

SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSBodWI="
ORDER = {"agreement": "tpa:x", "service": "urn:orders", "action": "Order", "documents": [Document(b"<Order/>")]}


@pytest.fixture(scope="session")
def static_folder() -> None:
    """WhiteNoise warns when it is missing, and nobody has collected static files for a test run."""
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def hub(static_folder: None, live_server: Any, transactional_db: None) -> Iterator[Client]:
    client = Client(live_server.url, make_token(make_user(Role.ADMIN)), patience=20)
    yield client
    client.close()


# --- the API as it is ---


def test_a_submission_and_its_repeat_and_what_became_of_it(hub: Client) -> None:
    agreement = partner_side().terms.tpa_id
    documents = [Document(b"<Order/>", "application/xml", "order.xml", "Order"), Document(b"1;2", "text/csv")]
    given: dict[str, Any] = {"agreement": agreement, "service": SERVICE, "action": ACTION, "documents": documents}
    first = hub.submit(**given, key="order-1", attributes={"order": "1"}, document_id="order-1")
    again = hub.submit(**given, key="order-1", attributes={"order": "1"}, document_id="order-1")
    assert (first.replayed, again.replayed, again.id) == (False, True, first.id)
    assert (first.state, first.document_id, first.position, first.warnings) == ("queued", "order-1", 1, ())
    assert [bytes(one.content or b"") for one in Payload.objects.order_by("number")] == [b"<Order/>", b"1;2"]
    found = hub.message(first.id, "events")
    assert found["attributes"] == {"order": "1"} and found["events"][0]["type"] == "message.accepted"
    assert [one["id"] for one in hub.messages(q="order:1")] == [first.id]
    assert hub.payload(first.id, 2) == b"1;2"
    page = next(hub.events(types=["message.accepted"], wait=0))
    assert [event["data"]["message"] for event in page.events] == [first.id] and not page.more
    assert next(hub.events(page.cursor, wait=0)).events == []


def test_a_list_is_read_page_by_page(hub: Client) -> None:
    agreement = partner_side().terms.tpa_id
    made = [
        hub.submit(agreement=agreement, service=SERVICE, action=ACTION, documents=[Document(b"x")]).id for _ in range(5)
    ]
    assert [one["id"] for one in hub.messages(limit=2)] == made[::-1]


def test_a_refusal_is_a_problem_with_all_that_is_wrong(hub: Client) -> None:
    with pytest.raises(Problem) as unknown:
        hub.submit(**{**ORDER, "agreement": "tpa:none"})
    assert (unknown.value.status, unknown.value.code, unknown.value.retryable) == (422, "unknown_agreement", False)
    assert unknown.value.request_id and "tpa:none" in str(unknown.value)
    agreement = partner_side().terms.tpa_id
    with pytest.raises(Problem) as wrong:
        hub.submit(**{**ORDER, "agreement": agreement}, message_id="a b", document_id="\u00e4")
    assert {one["pointer"] for one in wrong.value.errors} == {"#/message_id", "#/document_id"}
    with closing(Client(hub._roots, "rmh_live_nobody")) as nobody, pytest.raises(Problem) as refused:
        nobody.get("/messages")
    assert refused.value.status == 401


def test_a_queue_is_leased_completed_and_given_back(hub: Client) -> None:
    side = partner_side()
    triggering.trigger_create(actor=Actor("ann"), reason="test", name="ERP orders", kind="pull", ordered=False)
    subscriptions.current.forget()
    for number, content in enumerate((b"<A/>", b"<B/>"), start=1):
        assert side.send(side.message(number, f"m{number}@x", content=content)) == 204
    first, second = hub.lease("ERP orders", consumer="import-1")
    assert [first.content(), second.content()] == [b"<A/>", b"<B/>"]
    assert (first.document_id, first.redelivery_count) == ("m1@x", 0)
    hub.extend(first, 60)
    hub.complete(first)
    hub.complete(first)
    hub.release(second)
    [again] = hub.lease("ERP orders", payloads=False)
    with pytest.raises(KeyError):
        again.content()
    hub.fail(again, "no such customer")
    assert sorted(Delivery.objects.values_list("state", flat=True)) == ["completed", "failed"]


def test_other_paths_verbs_and_tags(hub: Client) -> None:
    partner_side()
    rule = hub.post("/attributes", {"name": "order", "kind": "xml", "path": "//Order", "reason": "test"})
    changed = hub.patch(f"/attributes/{rule['id']}", {"path": "//Number", "reason": "test"}, etag="*")
    assert changed["path"] == "//Number"
    hub.delete(f"/attributes/{rule['id']}", {"reason": "test"}, etag="*")
    assert list(hub.pages("/attributes")) == []
    assert Message.objects.count() == 0


def test_a_file_is_uploaded_in_parts_and_submitted(hub: Client) -> None:
    agreement = partner_side().terms.tpa_id
    content = b"0123456789" * 1000
    began: list[str] = []
    upload = hub.upload(io.BytesIO(content), part=3000, began=began.append)
    assert began == [upload] and hub.upload(io.BytesIO(content), id=upload) == upload
    documents = [Uploaded(upload, "text/plain", "numbers.txt", "Numbers"), Document(b"<Order/>", "application/xml")]
    receipt = hub.submit(agreement=agreement, service=SERVICE, action=ACTION, documents=documents, key="k")
    assert hub.payload(receipt.id, 1) == content
    row = Payload.objects.get(number=1)
    assert (row.content_type, row.filename, row.label) == ("text/plain", "numbers.txt", "Numbers")
    assert hub.submit(agreement=agreement, service=SERVICE, action=ACTION, documents=documents, key="k").replayed


def test_a_file_that_has_changed_since_is_not_submitted(hub: Client) -> None:
    agreement = partner_side().terms.tpa_id
    begun = hub.post("/uploads", {"size": 4, "sha256": "0" * 64})
    upload = hub.upload(io.BytesIO(b"that"), id=str(begun["id"]))
    with pytest.raises(Problem) as wrong:
        hub.submit(agreement=agreement, service=SERVICE, action=ACTION, documents=[Uploaded(upload)])
    assert [one["code"] for one in wrong.value.errors] == ["digest_mismatch"]


# --- the network as it is ---


def answer(status: int, body: str = "{}", **headers: str) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (head + "\r\n" + body).encode()


RECEIPT = answer(
    202, '{"id": "msg_1", "state": "queued", "message_id": "m", "document_id": "d", "position": 1, "warnings": []}'
)
SILENCE = b""


class Behind:
    """A server that gives these answers in turn; `asked`: the heads and bodies of the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        self.asked: list[tuple[str, bytes]] = []

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            self.asked.append((head.decode("latin-1"), body))
            octets = next(self.answers)
            if octets == SILENCE:
                return
            connection.sendall(octets)


@pytest.fixture
def behind() -> Iterator[Callable[..., tuple[Behind, Client, list[float]]]]:
    servers: list[Any] = []
    clients: list[Client] = []

    def make(*answers: bytes, patience: float = 30.0, dead: bool = False) -> tuple[Behind, Client, list[float]]:
        behaves = Behind(*answers)
        context = serving(behaves)
        server: Server = context.__enter__()
        servers.append(context)
        waits: list[float] = []
        roots = [f"http://127.0.0.1:{server.port}"]
        if dead:
            with socket.create_server(("127.0.0.1", 0)) as free:
                roots.insert(0, f"http://127.0.0.1:{free.getsockname()[1]}")
        clients.append(Client(roots, "t", patience=patience, sleep=waits.append))
        return behaves, clients[-1], waits

    yield make
    for client in clients:
        client.close()
    for context in servers:
        context.__exit__(None, None, None)


def test_a_submission_is_made_again_under_its_key_until_it_is_answered(behind: Any) -> None:
    server, client, waits = behind(SILENCE, answer(502, "no"), answer(503, Retry_After="7"), RECEIPT)
    assert client.submit(**ORDER, key="k").id == "msg_1"
    assert len({body for _, body in server.asked}) == 1 and len(server.asked) == 4
    assert all('Idempotency-Key: "k"' in head for head, _ in server.asked)
    assert waits[0] < waits[1] < 1 and waits[2] >= 5.6
    client.submit(**ORDER)
    made_up = server.asked[-1][0].partition("Idempotency-Key: ")[2][:34]
    assert made_up.startswith('"') and made_up.endswith('"') and made_up != '"k"'


def test_what_changes_something_without_a_key_is_made_once(behind: Any) -> None:
    server, client, waits = behind(SILENCE, answer(503))
    with pytest.raises(NoAnswer):
        client.post("/pairs/x/resume", {"reason": "test"})
    with pytest.raises(Problem):
        client.post("/pairs/x/resume", {"reason": "test"})
    assert (len(server.asked), waits) == (2, [])


def test_too_many_requests_are_made_later_whatever_they_are(behind: Any) -> None:
    server, client, waits = behind(answer(429, Retry_After="3"), answer(200, '{"done": true}'))
    assert client.post("/pairs/x/resume", {"reason": "test"}) == {"done": True}
    assert len(server.asked) == 2 and 2.4 <= waits[0] <= 3.6


def test_an_upload_goes_on_where_the_hub_is(behind: Any) -> None:
    def here(offset: int, status: int = 204) -> bytes:
        return answer(status, "", Upload_Offset=str(offset))

    moved = answer(409, '{"code": "upload_offset_mismatch", "offset": 4}', Upload_Offset="4")
    server, client, waits = behind(
        *(answer(201, '{"id": "upl_1"}'), here(0, 200), here(3), SILENCE, here(5, 200)),  # broken; two octets came
        *(moved, here(4, 200), here(7), answer(503), here(7, 200), here(9)),
    )
    began: list[str] = []
    assert client.upload(io.BytesIO(b"123456789"), part=3, began=began.append) == "upl_1"
    parts = [(head.partition("Upload-Offset: ")[2][:1], body) for head, body in server.asked if head[:5] == "PATCH"]
    assert parts == [("0", b"123"), ("3", b"456"), ("5", b"678"), ("4", b"567"), ("7", b"89"), ("7", b"89")]
    assert began == ["upl_1"] and len(waits) == 3


def test_an_upload_that_the_hub_refuses_or_that_does_not_move_ends(behind: Any) -> None:
    server, client, _ = behind(answer(200, "", Upload_Offset="0"), answer(507), patience=0)
    with pytest.raises(Problem):
        client.upload(io.BytesIO(b"123"), id="upl_1")
    server, client, waits = behind(answer(200, "", Upload_Offset="0"), answer(413))
    with pytest.raises(Problem):
        client.upload(io.BytesIO(b"123"), id="upl_1")
    assert (len(server.asked), waits) == (2, [])


def test_patience_ends(behind: Any) -> None:
    server, client, _ = behind(answer(503, Retry_After="60"), patience=30)
    with pytest.raises(Problem) as late:
        client.get("/messages")
    assert (late.value.retry_after, late.value.retryable, len(server.asked)) == (60, True, 1)


def test_another_address_of_the_hub_is_tried(behind: Any) -> None:
    server, client, _ = behind(answer(200, '{"ok": true}'), dead=True)
    for _ in range(5):
        assert client.get("/health") == {"ok": True}
    assert len(server.asked) == 5


def test_an_answer_that_is_no_problem_document_is_one_all_the_same(behind: Any) -> None:
    _, client, _ = behind(b"HTTP/1.1 404 X\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>Nginx ")
    with pytest.raises(Problem) as found:
        client.get("/messages")
    assert (found.value.code, found.value.detail) == ("http_404", "<p>Nginx")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no address"):
        Client("hub.example.org", "t").get("/messages")


# --- webhooks ---


def signed(body: bytes = b'{"type": "message.sent", "timestamp": "t", "data": {"a": 1}}', at: int = 1000) -> Any:
    headers = {"Webhook-Id": "dlv_1", "Webhook-Timestamp": str(at)}
    return {**headers, "Webhook-Signature": f"v1,x {sign(SECRET, 'dlv_1', str(at), body)}"}, body


def test_what_the_hub_signs_is_verified() -> None:
    headers, body = signed()
    event = verify(SECRET, headers, body, now=1299)
    assert (event.id, event.type, event.data) == ("dlv_1", "message.sent", {"a": 1})
    assert verify(["whsec_b3RoZXI=", SECRET], headers, body, now=1000).type == "message.sent"
    assert check(SECRET, *signed(b"<Order/>"), now=1000) == "dlv_1"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda headers, body: (headers, body + b" "),
        lambda headers, body: ({**headers, "Webhook-Id": "dlv_2"}, body),
        lambda headers, body: ({**headers, "Webhook-Timestamp": "1001"}, body),
        lambda headers, body: ({**headers, "Webhook-Timestamp": "soon"}, body),
        lambda headers, body: ({**headers, "Webhook-Signature": "v1,"}, body),
        lambda headers, body: ({name: value for name, value in headers.items() if name != "Webhook-Id"}, body),
    ],
)
def test_what_the_hub_has_not_signed_is_not(spoil: Any) -> None:
    with pytest.raises(BadSignature):
        verify(SECRET, *spoil(*signed()), now=1000)


def test_what_is_too_old_or_signed_with_another_secret_is_refused() -> None:
    for now, secret in ((1301, SECRET), (699, SECRET), (1000, "whsec_b3RoZXI=")):
        with pytest.raises(BadSignature):
            verify(secret, *signed(), now=now)
    with pytest.raises(ValueError, match="no event"):
        verify(SECRET, *signed(b"[]"), now=1000)
