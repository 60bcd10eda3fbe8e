"""Large documents go to applications as they lie in the store: piece by piece."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from messaging import storage
from messaging.applications import Document, Part
from messaging.deliveries.services import calling
from messaging.notifications.services.webhooks import sign
from rmhub import clock
from rmhub.ids import uuid7
from tests import ROOT
from tests.messaging.http_server import taking
from tests.messaging.profiles.repeatable.hubs import environment

MIB = 1024 * 1024
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLlSw"


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> None:
    settings.RMHUB_STORE_DIR = tmp_path / "store"
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 10


def part(content: bytes) -> Part:
    kept = storage.keep(content)
    return Part(storage.opened(kept.content, kept.stored_as), "application/xml", "order.xml")


def document(*parts: Part) -> Document:
    return Document(
        delivery="dly_1",
        trigger="Warehouse",
        document_id="order-1",
        redelivery_count=0,
        message=uuid7(),
        message_id="m-1@partner",
        conversation_id="c-1",
        ref_to_message_id="",
        agreement="tpa:x",
        sender="Globex",
        profile="ebxml",
        service="urn:orders",
        action="Order",
        received_at=clock.now(),
        parts=parts,
    )


def whole(body: calling.Octets) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


@pytest.mark.parametrize("contents", [[b"a" * 300_000], [b"a" * 300_000, b"small"], [b"a" * 1000, b"b" * 700_000]])
def test_the_request_has_the_same_octets_whether_they_are_held_or_not(contents: list[bytes]) -> None:
    held = calling.request(document(*(Part(content, "application/xml", "order.xml") for content in contents)))
    large = calling.request(document(*map(part, contents)))
    assert isinstance(held[1], bytes) and not isinstance(large[1], bytes)
    assert whole(large[1]) == held[1] == whole(large[1]), "and they can be read again"
    assert len(large[1]) == len(held[1])
    same = [(name, value) for name, value in held[0] if name != "RM-Received-At"]
    assert [(name, value) for name, value in large[0] if name != "RM-Received-At"] == same
    assert sign(SECRET, "id", "1", large[1]) == sign(SECRET, "id", "1", held[1])


def test_a_callable_reads_a_large_document_as_a_file_or_whole() -> None:
    large = part(b"<order/>" * 50_000)
    assert large.open().read(8) == b"<order/>"
    assert large.content == b"<order/>" * 50_000 == large.open().read()


def test_what_is_sought_is_found_where_two_pieces_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.storage.large.PIECE", 10)
    large = storage.Large(io.BytesIO(b"0123456789abcdefghij"))
    for sought in (b"9a", b"89ab", b"0", b"j", b"789abcdefghij", b"0123456789abcdefghij"):
        assert sought in large, sought
    assert b"9b" not in large and b"jj" not in large


def test_any_part_of_a_body_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messaging.storage.large.PIECE", 3)
    octets = b"head0123456789middleabcdefghtail"
    body = storage.join(
        [b"head", storage.Large(io.BytesIO(b"0123456789")), b"middle", storage.Large(io.BytesIO(b"abcdefgh")), b"tail"]
    )
    assert isinstance(body, storage.Body) and b"".join(body) == octets and len(body) == len(octets)
    for begin in range(len(octets)):
        for end in range(begin, len(octets) + 1):
            assert body.part(begin, end).opened().read() == octets[begin:end] == body[begin:end]
            assert body.find(octets[begin:end]) == octets.find(octets[begin:end])
            file = body.part(begin, end).opened()
            assert b"".join(iter(lambda file=file: file.read(2), b"")) == octets[begin:end]  # type: ignore[misc]


_HAND_OVER = """
import sys, django
django.setup()
from pathlib import Path
from tests.messaging.deliveries.test_large import document, Part, calling, storage, SECRET
names = sys.argv[2:]
parts = [Part(storage.opened(None, name), "application/octet-stream") for name in names]
for given in ([parts[0]], parts):
    headers, body = calling.request(document(*given))
    answered = calling.post(sys.argv[1], headers, body, key="dly_1", secret=SECRET, timeout=300, keep=100)
    assert answered.status == 200, answered
print(*[line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")])
"""


def test_a_process_that_hands_over_holds_none_of_it(settings: Any, tmp_path: Path) -> None:
    size = 64 * MIB
    names = []
    for number in range(4):
        file = tmp_path / f"{number}"
        file.write_bytes(bytes([number]) * size)
        with file.open("rb") as opened:
            names.append(storage.keep(storage.Large(opened)).stored_as)
    with taking() as (url, taken):
        ran = subprocess.run(
            [sys.executable, "-c", _HAND_OVER, url, *names],
            cwd=ROOT,
            env=environment(tmp_path / "var"),
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert taken[0] == (size, hashlib.sha256(bytes(size)).hexdigest())
    assert 4 * size < taken[1][0] < 4 * size + 10_000
    most = int(ran.stdout.split()[-2]) * 1024
    assert most < 250 * MIB, f"{most // MIB} MiB"  # 110 without a document: three of the five copies would not fit
