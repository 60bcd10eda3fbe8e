"""Large documents go out to partners piece by piece, and with the same octets as small ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from messaging import storage
from messaging.engine import preparing
from messaging.engine.claiming import claim_due
from messaging.messages.services.submitting import NewPayload, message_submit, message_submit_again
from messaging.models import Message, Payload
from messaging.protocol.codecs import ebxml
from tests import ROOT
from tests.messaging.factories import ACTION, SERVICE, PartnerSide, partner_side
from tests.messaging.http_server import taking
from tests.messaging.profiles.repeatable.hubs import environment

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    settings.RMHUB_MAX_MESSAGE_BYTES = 80 * MIB


def submit(partner: PartnerSide, *contents: bytes | storage.Large) -> Message:
    payloads = [NewPayload(content, "application/octet-stream", label="Plan") for content in contents]
    submission = message_submit(agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads)
    return submission.message


@pytest.mark.django_db
@pytest.mark.parametrize("profile", ["ebxml", "stream"])
def test_what_goes_out_is_read_as_it_was_handed_in(profile: str) -> None:
    contents = [b"a" * 300_000, b"small", b"b" * 700_000]
    message = submit(partner_side(profile=profile), *contents)
    [job] = claim_due(limit=10)
    body = job.parcel.body
    assert not isinstance(body, bytes)
    message.refresh_from_db()
    payloads = list(Payload.objects.filter(message=message).order_by("number"))
    assert b"".join(body) == preparing.stored_body(message, payloads) == job.parcel.octets
    assert len(body) == len(job.parcel.octets)
    if profile == "ebxml":
        read = ebxml.decode(message.content_type, job.parcel.octets)
        assert [part.content for part in read.payloads] == contents


@pytest.mark.django_db
def test_a_boundary_that_a_large_document_holds_is_not_taken() -> None:
    """It holds the one of its own message, which a sender can know."""
    partner = partner_side()
    plain = submit(partner, b"x" * 300_000)
    claim_due(limit=10)
    plain.refresh_from_db()
    boundary = plain.content_type.rpartition('boundary="')[2].rstrip('"').encode()
    token = plain.message_id.partition("@")[0].encode()
    known = b"b7.0001"
    content = b"y" * 262_140 + b"--" + boundary.replace(token, known) + b"y" * 300_000
    payloads = [NewPayload(content)]
    other = partner_side()
    message_submit(
        agreement=other.terms.tpa_id,
        service=SERVICE,
        action=ACTION,
        payloads=payloads,
        message_id=f"{known.decode()}@hub.example",
    )
    [job] = claim_due(limit=10)
    [part] = ebxml.decode(job.parcel.content_type, job.parcel.octets).payloads
    assert part.content == content


@pytest.mark.django_db
def test_a_large_document_is_submitted_again_without_being_held(monkeypatch: pytest.MonkeyPatch) -> None:
    message = submit(partner_side(), b"x" * 300_000)

    def hold(*_: object) -> bytes:
        raise AssertionError("it is held")

    monkeypatch.setattr(storage, "load", hold)
    again = message_submit_again(message, state=message.state, submitted_by="ann").message
    first, second = (Payload.objects.get(message=one) for one in (message, again))
    assert again.pk != message.pk
    assert (second.stored_as, second.sha256, second.size) == (first.stored_as, first.sha256, 300_000)


_SEND = """
import django
django.setup()
from pathlib import Path
from messaging.engine import kinds
from messaging.engine.claiming import claim_due
jobs = claim_due(limit=10)
assert len(jobs) == 4, jobs
for job in jobs:
    assert kinds.talk(job).ok
print(*[line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")])
"""


@pytest.mark.django_db(transaction=True)
def test_a_process_that_sends_four_large_messages_holds_none(tmp_path: Path) -> None:
    size = 64 * MIB
    with taking() as (url, taken):
        for number in range(4):
            file = tmp_path / f"{number}"
            file.write_bytes(bytes([number]) * size)
            with file.open("rb") as opened:
                submit(partner_side(partner_uri=f"{url}/{number}", max_message_bytes=80 * MIB), storage.Large(opened))
        ran = subprocess.run(
            [sys.executable, "-c", _SEND],
            cwd=ROOT,
            env=environment(tmp_path / "var"),
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert {digest for _, digest in taken} == set(Message.objects.values_list("digest", flat=True))
    assert len(taken) == 4 and all(length > size for length, _ in taken)
    most = int(ran.stdout.split()[-2]) * 1024
    assert most < 250 * MIB, f"{most // MIB} MiB"  # the four do not fit
