"""Payloads that are larger than a process may be: they pass through it piece by piece, whoever brings them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
import urllib3
from django.conf import settings

from messaging import storage
from messaging.engine import preparing
from messaging.entrance.refusals import Arrival
from messaging.models import Message, Payload
from messaging.protocol.codecs.mime import encode_base64
from messaging.protocol.codecs.repeatable import imf_fixdate
from partners.choices import Semantics
from rmhub import clock
from rmhub.roles import Role
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, partner_side
from tests.messaging.profiles.repeatable.callers import caller, new_id
from tests.messaging.profiles.repeatable.hubs import Hub, hubs
from tests.messaging.profiles.stream.partner import stream_side

MIB = 1024 * 1024
SIZE = 64 * MIB
# A process without work has about 150 MiB. Four copies of 64 MiB, or two of each of two, would not fit.
MOST = 300 * MIB
LARGE = {"RMHUB_MAX_MESSAGE_BYTES": str(80 * MIB), "RMHUB_BODY_GRACE_SECONDS": "600"}


def part(number: int) -> Iterator[bytes]:
    """A document of `SIZE` bytes, in pieces; no two are the same."""
    yield b"%064d" % number
    for _ in range(SIZE // MIB - 1):
        yield bytes([number]) * MIB
    yield bytes([number]) * (MIB - 64)


def digest(number: int) -> str:
    found = hashlib.sha256()
    for piece in part(number):
        found.update(piece)
    return found.hexdigest()


def submit(hub: Hub, token: str, partner: PartnerSide, number: int) -> int:
    fields = {"agreement": partner.terms.tpa_id, "service": SERVICE, "action": ACTION}
    head = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()
    )
    head += '--b\r\nContent-Disposition: form-data; name="payload"; filename="large.bin"\r\n'
    head += "Content-Type: application/octet-stream\r\n\r\n"
    tail = b"\r\n--b--\r\n"
    headers = {
        "Authorization": f"Bearer {token}",
        "Idempotency-Key": f"large-{number}",
        "Content-Type": "multipart/form-data; boundary=b",
        "Content-Length": str(len(head) + SIZE + len(tail)),
    }
    body = (piece for pieces in ([head.encode()], part(number), [tail]) for piece in pieces)
    return urllib3.request(
        "POST", f"{hub.url}/api/v1/messages", body=body, headers=headers, timeout=300, retries=False
    ).status


def download(hub: Hub, token: str, message: Message, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """(status, SHA-256) of what the API hands out of the only payload."""
    answer = urllib3.request(
        "GET",
        f"{hub.url}/api/v1/messages/{message.public_id}/payloads/1",
        headers={"Authorization": f"Bearer {token}", **(headers or {})},
        preload_content=False,
        timeout=300,
        retries=False,
    )
    found = hashlib.sha256()
    for piece in answer.stream(MIB):
        found.update(piece)
    assert answer.headers["Content-Length"] == str(answer.tell())
    return answer.status, found.hexdigest()


@pytest.mark.django_db(transaction=True)
def test_large_documents_are_stored_and_handed_out_without_being_held(tmp_path: Path) -> None:
    partner = partner_side(max_message_bytes=80 * MIB)
    token = make_token(make_user(Role.OPERATOR))
    with hubs(tmp_path, more=LARGE) as (hub,), ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(lambda number: submit(hub, token, partner, number), range(1, 5)))
        stored = list(Message.objects.all())
        loaded = list(threads.map(lambda message: download(hub, token, message), stored))
        end = download(hub, token, stored[0], {"Range": f"bytes={SIZE - 1000}-"})
        most = hub.most_memory()
    assert statuses == [202] * 4, (tmp_path / "hub0.log").read_text()[-2000:]
    assert Message.objects.count() == 4
    assert {row.sha256 for row in Payload.objects.all()} == {digest(number) for number in range(1, 5)}
    assert loaded == [(200, Payload.objects.get(message=message).sha256) for message in stored]
    last = (Path(settings.RMHUB_STORE_DIR) / Payload.objects.get(message=stored[0]).stored_as).read_bytes()[-1000:]
    assert end == (206, hashlib.sha256(last).hexdigest())
    for row in Payload.objects.all():
        assert row.content is None and row.size == SIZE
        with (Path(settings.RMHUB_STORE_DIR) / row.stored_as).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == row.sha256
    assert most < MOST, f"{most // MIB} MiB"
    assert not any((tmp_path / "var" / "spool").iterdir()), "nothing has a name there"


PLACE = b"here"


def around(arrival: Arrival) -> tuple[bytes, bytes]:
    """What comes before and behind the document of a message."""
    assert isinstance(arrival.body, bytes)
    before, _, behind = arrival.body.partition(PLACE)
    return before, behind


def bring(hub: Hub, path: str, headers: dict[str, str], pieces: Callable[[], Iterable[bytes]]) -> int:
    length = sum(map(len, pieces()))
    answer = urllib3.request(
        "POST",
        hub.url + path,
        body=iter(pieces()),
        headers={**headers, "Content-Length": str(length)},
        timeout=300,
        retries=False,
    )
    return answer.status


def shown(arrival: Arrival) -> dict[str, str]:
    return {"Authorization": arrival.presented.authorization, "Content-Type": arrival.content_type}


@pytest.mark.django_db(transaction=True)
def test_what_partners_send_is_stored_without_being_held(tmp_path: Path) -> None:
    """By each profile that carries documents; by ebXML twice on one pair, whose messages go through one transaction."""
    terms = {"max_message_bytes": 80 * MIB}
    ebxml, streams, requests = partner_side(**terms), stream_side(**terms), caller(**terms)
    first, second = (ebxml.message(None, content=PLACE, semantics=Semantics.BEST_EFFORT) for _ in range(2))
    third = streams.message(1, content=PLACE)
    asking = {
        "Authorization": requests.authorization,
        "Content-Type": "application/octet-stream",
        "Repeatability-Request-ID": new_id(),
        "Repeatability-First-Sent": imf_fixdate(clock.now()),
    }

    def whole(arrival: Arrival, number: int) -> Callable[[], Iterable[bytes]]:
        before, behind = around(arrival)
        return lambda: chain([before], part(number), [behind])

    sent: list[tuple[str, dict[str, str], Callable[[], Iterable[bytes]]]] = [
        ("/ebxml/msh", shown(first), whole(first, 1)),
        ("/ebxml/msh", shown(second), whole(second, 2)),
        ("/stream/large", shown(third), whole(third, 3)),
        (requests.path, asking, lambda: part(4)),
    ]
    with hubs(tmp_path, more=LARGE) as (hub,), ThreadPoolExecutor(4) as threads:
        statuses = list(threads.map(lambda one: bring(hub, *one), sent))
        again = bring(hub, *sent[0])
        most = hub.most_memory()
    assert [*statuses, again] == [204, 204, 202, 202, 204], (tmp_path / "hub0.log").read_text()[-2000:]
    assert most < MOST, f"{most // MIB} MiB"
    assert {row.sha256 for row in Payload.objects.all()} >= {digest(number) for number in range(1, 5)}
    for message in Message.objects.all():
        payloads = list(Payload.objects.filter(message=message))
        assert [row.content for row in payloads] == [None]
        assert storage.digest(preparing.stored_body(message, payloads)) == message.digest


@pytest.mark.django_db(transaction=True)
def test_a_large_body_whose_parts_are_encoded_waits_for_memory_and_is_taken(tmp_path: Path) -> None:
    partner = partner_side(max_message_bytes=80 * MIB)
    arrival = partner.message(None, content=PLACE, semantics=Semantics.BEST_EFFORT)
    before, behind = around(arrival)
    head, blank, rest = before.rpartition(b"\r\n\r\n")
    content = b"an order" * MIB * 2
    lines = encode_base64(content)
    pieces = [head, b"\r\nContent-Transfer-Encoding: base64", blank, rest, lines, behind]
    with hubs(tmp_path, more=LARGE) as (hub,):
        assert bring(hub, "/ebxml/msh", shown(arrival), lambda: pieces) == 204
    assert Payload.objects.get().sha256 == storage.digest(content)
