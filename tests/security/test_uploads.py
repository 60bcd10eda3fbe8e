"""Uploads in parts at a real web server: what broke off is kept, nothing is held, and all of it arrives."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import urllib3
from django.conf import settings

from messaging.models import Payload, Upload
from messaging.storage import parts
from rmhub.roles import Role
from rmhub_client import Client, Uploaded
from tests.messaging.api.client import make_token, make_user
from tests.messaging.factories import ACTION, SERVICE, partner_side
from tests.messaging.profiles.repeatable.hubs import Hub, hubs
from tests.rmhub.conditions import eventually
from tests.security.raw import Caller

MIB = 1024 * 1024
SIZE = 64 * MIB
# A process without work has about 150 MiB: see test_large_payloads.
MOST = 300 * MIB
LARGE = {"RMHUB_MAX_MESSAGE_BYTES": str(80 * MIB), "RMHUB_BODY_GRACE_SECONDS": "600"}
PATIENT = {"RMHUB_BODY_GRACE_SECONDS": "600"}


def octets(number: int, offset: int = 0, size: int = SIZE) -> bytes:
    """Of document `number`; no two of its parts are the same."""
    block = hashlib.sha256(b"%d" % number).digest() * 32
    first = offset // len(block)
    text = b"".join(b"%016d" % at + block[16:] for at in range(first, (offset + size) // len(block) + 1))
    return text[offset - first * len(block) :][:size]


class Sender:
    """Somebody who uploads."""

    def __init__(self, hub: Hub, token: str) -> None:
        self.hub = hub
        self.token = f"Authorization: Bearer {token}"

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        name, value = self.token.split(": ")
        sent = {name: value, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if not isinstance(body, bytes | None):
            body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        url = f"{self.hub.url}/api/v1{path}"
        return urllib3.request(method, url, body=body, headers=sent, timeout=300, retries=False)

    def begin(self, size: int = SIZE) -> str:
        answer = self.call("POST", "/uploads", {"size": size})
        assert answer.status == 201, answer.data
        return str(json.loads(answer.data)["id"])

    def offset(self, upload: str) -> int:
        return int(self.call("HEAD", f"/uploads/{upload}").headers["Upload-Offset"])

    def send(self, upload: str, offset: int, part: bytes) -> int:
        kind = {"Content_Type": "application/octet-stream", "Upload_Offset": str(offset)}
        return int(self.call("PATCH", f"/uploads/{upload}", part, **kind).status)

    def half(self, upload: str, offset: int, length: int) -> Caller:
        """A part that has been begun."""
        about = ("Content-Type: application/octet-stream", f"Upload-Offset: {offset}", f"Content-Length: {length}")
        return Caller(self.hub.port).head("PATCH", f"/api/v1/uploads/{upload}", self.token, *about)


@pytest.mark.django_db(transaction=True)
def test_what_came_of_a_part_whose_connection_broke_is_kept(tmp_path: Path) -> None:
    content = octets(1, size=2 * MIB)
    token = make_token(make_user(Role.OPERATOR))
    with hubs(tmp_path, more=PATIENT) as (hub,):
        sender = Sender(hub, token)
        upload = sender.begin(len(content))
        broken = sender.half(upload, 0, len(content)).send(content[:MIB])
        broken.close()
        eventually(lambda: sender.offset(upload) == MIB, 60)
        # One that is still open holds nobody up, and what comes of it later is in nobody's way.
        hanging = sender.half(upload, MIB, MIB).send(content[MIB:][:1000])
        assert sender.send(upload, MIB, content[MIB : MIB + 5000]) == 204
        hanging.send(b"x" * (MIB - 1000))
        late = hanging.answer()
        assert (late.status, late.headers["upload-offset"]) == (409, str(MIB + 5000))
        assert sender.send(upload, 0, b"again") == 409
        unheard = sender.half(upload, 0, 40 * MIB).answer()
        assert unheard.status == 409, "the wrong offset is said before the part is sent"
        assert sender.send(upload, MIB + 5000, content[MIB + 5000 :]) == 204
    row = Upload.objects.get()
    assert row.received == row.size == len(content)
    assert (parts.folder() / row.pk.hex).read_bytes() == content
    assert not any((tmp_path / "var" / "spool").iterdir())


@pytest.mark.django_db(transaction=True)
def test_a_part_that_comes_too_slowly_is_kept_and_told_so(tmp_path: Path) -> None:
    token = make_token(make_user(Role.OPERATOR))
    with hubs(tmp_path, more={"RMHUB_BODY_GRACE_SECONDS": "1", "RMHUB_BODY_RATE": "1000000"}) as (hub,):
        sender = Sender(hub, token)
        upload = sender.begin(MIB)
        answer = sender.half(upload, 0, MIB).send(b"x" * 200_000).answer()
        assert (answer.status, json.loads(answer.body)["code"]) == (408, "body_too_slow")
        assert sender.offset(upload) == 200_000


@pytest.mark.django_db(transaction=True)
def test_parts_pass_through_without_being_held(tmp_path: Path) -> None:
    partner = partner_side(max_message_bytes=80 * MIB)
    token = make_token(make_user(Role.OPERATOR))

    def upload_and_submit(hub: Hub, number: int) -> str:
        sender = Sender(hub, token)
        upload = sender.begin()
        # The whole as one part, and another in a few.
        step = SIZE if number % 2 else 24 * MIB
        for offset in range(0, SIZE, step):
            assert sender.send(upload, offset, octets(number, offset, min(step, SIZE - offset))) == 204
        body = {
            "agreement": partner.terms.tpa_id,
            "service": SERVICE,
            "action": ACTION,
            "payloads": [{"upload": upload}],
        }
        answer = sender.call("POST", "/messages", body, Idempotency_Key=f"large-{number}")
        assert answer.status == 202, answer.data
        return hashlib.sha256(octets(number)).hexdigest()

    with hubs(tmp_path, more=LARGE) as (hub,), ThreadPoolExecutor(4) as threads:
        digests = set(threads.map(lambda number: upload_and_submit(hub, number), range(4)))
        most = hub.most_memory()
    assert {row.sha256 for row in Payload.objects.all()} == digests
    for row in Payload.objects.all():
        with (Path(settings.RMHUB_STORE_DIR) / row.stored_as).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == row.sha256
    assert most < MOST, f"{most // MIB} MiB"
    assert list(parts.folder().iterdir()) == []


@pytest.mark.django_db(transaction=True)
def test_the_client_goes_on_when_the_web_server_was_killed(tmp_path: Path) -> None:
    partner = partner_side()
    token = make_token(make_user(Role.OPERATOR))
    content = octets(1, size=3 * MIB)
    path = tmp_path / "document"
    path.write_bytes(content)
    with hubs(tmp_path, count=2) as (first, second), path.open("rb") as file:
        began: list[str] = []

        def kill_first(upload: str) -> None:
            began.append(upload)
            first.kill()

        client = Client([first.url, second.url], token, sleep=lambda seconds: None)
        upload = client.upload(file, part=MIB // 2, began=kill_first)
        assert began == [upload]
        receipt = client.submit(
            agreement=partner.terms.tpa_id,
            service=SERVICE,
            action=ACTION,
            documents=[Uploaded(upload, "application/xml", "order.xml")],
        )
        client.close()
    assert receipt.state == "queued"
    [payload] = Payload.objects.all()
    assert payload.sha256 == hashlib.sha256(content).hexdigest() and payload.size == len(content)
