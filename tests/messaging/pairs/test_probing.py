"""Looks at a partner's endpoint, against real servers on loopback: each rung, and where it breaks."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from messaging.exceptions import NotFound, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Pair, ProbeReport
from messaging.pairs.services import probing
from messaging.transports.probe import ProbeStep
from partners.models import AgreementVersion, Endpoint
from rmhub.ids import uuid7
from tests.messaging.factories import PartnerSide, partner_side
from tests.messaging.http_server import Handler, serving
from tests.messaging.transports.test_http import certificate, over_tls

pytestmark = pytest.mark.django_db

ANN = Actor("ann", "console")
OK = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


def endpoint(side: PartnerSide, **values: object) -> Endpoint:
    key = AgreementVersion.objects.values_list("partner_endpoint_id", flat=True).get(pk=side.terms.version_id)
    Endpoint.objects.filter(pk=key).update(**{"connect_timeout": 2, "read_timeout": 2, **values})
    return Endpoint.objects.get(pk=key)


def look(side: PartnerSide, **values: object) -> dict[str, dict[str, object]]:
    report = probing.probe(endpoint_id=endpoint(side, **values).pk, actor=ANN)
    return {step["name"]: step for step in report.steps}


def verdicts(steps: dict[str, dict[str, object]]) -> dict[str, object]:
    return {name: step["verdict"] for name, step in steps.items()}


def heads(answer: bytes, seen: list[bytes] | None = None) -> Handler:
    """Answers one request without a body."""

    def handle(connection: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(4096)
            if not piece:
                return
            data += piece
        if seen is not None:
            seen.append(data)
        connection.sendall(answer)

    return handle


def test_a_server_that_answers(settings: object) -> None:
    side = partner_side()
    seen: list[bytes] = []
    with serving(heads(OK, seen)) as server:
        steps = look(side, address=server.url)
    assert verdicts(steps) == {"dns": "ok", "tcp": "ok", "tls": "skipped", "http": "ok", "echo": "skipped"}
    assert steps["http"]["facts"] == {"status": 204}
    report = ProbeReport.objects.get()
    assert (report.ok, report.cause, report.actor, report.address) == (True, "", "ann", server.url)
    entry = AuditEntry.objects.get(verb="endpoint.probe")
    assert entry.after["report"] == report.public_id
    # Nothing of a message, and no credential, goes to a server that is only looked at.
    assert seen[0].startswith(b"HEAD /msh ") and b"Authorization" not in seen[0]


@pytest.mark.parametrize(
    ("status", "verdict"), [(405, "ok"), (501, "ok"), (401, "ok"), (404, "warning"), (503, "warning"), (302, "ok")]
)
def test_any_answer_is_an_answer(status: int, verdict: str) -> None:
    with serving(
        heads(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n" % status)
    ) as server:
        steps = look(partner_side(), address=server.url)
    assert steps["http"]["verdict"] == verdict
    assert ProbeReport.objects.get().ok


def test_a_name_that_nobody_knows() -> None:
    steps = look(partner_side(), address="http://no-such-host.invalid/msh")
    assert verdicts(steps) == {"dns": "failed"}
    assert ProbeReport.objects.get().cause == "dns_error"


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    steps = look(partner_side(), address=f"http://127.0.0.1:{port}/msh")
    assert verdicts(steps) == {"dns": "ok", "tcp": "failed"}
    assert ProbeReport.objects.get().cause == "connect_refused"


def test_a_server_that_says_nothing_costs_a_bounded_time() -> None:
    def silent(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.recv(1)

    with serving(silent) as server:
        steps = look(partner_side(), address=server.url, connect_timeout=1, read_timeout=1)
    assert steps["http"]["verdict"] == "failed"
    assert ProbeReport.objects.get().cause == "read_timeout"


@pytest.mark.parametrize(("days", "cause"), [(-1, "cert_expired"), (60, "cert_untrusted")])
def test_a_certificate_that_is_no_good_is_shown_all_the_same(tmp_path: Path, days: int, cause: str) -> None:
    files = certificate(tmp_path, days=days)
    with serving(over_tls(files, heads(OK))) as server:
        steps = look(partner_side(), address=server.url.replace("http:", "https:"))
    assert verdicts(steps) == {"dns": "ok", "tcp": "ok", "tls": "failed", "certificate": "failed"}
    report = ProbeReport.objects.get()
    assert (report.ok, report.cause) == (False, cause)
    facts = steps["certificate"]["facts"]
    assert isinstance(facts, dict) and "127.0.0.1" in facts["subject"] and len(facts["sha256"]) == 64
    assert facts["days_left"] < 0 if days < 0 else facts["days_left"] > 50


@pytest.mark.parametrize(("days", "verdict"), [(60, "ok"), (5, "warning")])
def test_the_endpoints_own_trust_counts(tmp_path: Path, days: int, verdict: str) -> None:
    files = certificate(tmp_path, days=days)
    pem = Path(files[0]).read_text()
    with serving(over_tls(files, heads(OK))) as server:
        steps = look(partner_side(), address=server.url.replace("http:", "https:"), trusted_certificates=pem)
    assert verdicts(steps) == {
        "dns": "ok",
        "tcp": "ok",
        "tls": "ok",
        "certificate": verdict,
        "http": "ok",
        "echo": "skipped",
    }


@pytest.mark.parametrize(("status", "verdict"), [(200, "ok"), (401, "failed"), (500, "failed")])
def test_the_echo_service_says_whether_it_knows_us(status: int, verdict: str) -> None:
    body = json.dumps({"partner": "us"}).encode()
    seen: list[bytes] = []
    answer = (
        b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
    )
    with serving(heads(answer, seen)) as server:
        steps = look(partner_side(), address=server.url, service_address=f"http://127.0.0.1:{server.port}/partner/")
    assert steps["echo"]["verdict"] == verdict
    assert seen[1].startswith(b"GET /partner/echo ")


def test_a_mail_server_greets() -> None:
    def greeting(connection: socket.socket) -> None:
        connection.sendall(b"220 mail.partner.example ESMTP\r\n")
        connection.recv(100)

    with serving(greeting) as server:
        steps = look(
            partner_side(),
            transport="smtp",
            address="mailto:orders@partner.example",
            server=f"smtp://127.0.0.1:{server.port}",
        )
    assert steps["smtp"]["verdict"] == "ok"
    assert "mail.partner.example" in str(steps["smtp"]["detail"])


def test_a_server_that_never_ends_its_greeting_costs_a_bounded_time() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"220 mx.globex.example\r\n")
        end = time.monotonic() + 120
        with contextlib.suppress(OSError):
            while time.monotonic() < end:  # every line says that another one comes
                connection.sendall(b"250-more\r\n" * 1000)

    side = partner_side()
    with serving(drip) as server:
        steps = look(
            side,
            transport="smtp",
            address="mailto:edi@globex.example",
            server=f"smtp+starttls://127.0.0.1:{server.port}",
            connect_timeout=1,
            read_timeout=1,
        )
    assert (steps["smtp"]["verdict"], steps["smtp"]["cause"]) == ("failed", "read_timeout")


def test_a_mail_server_that_refuses() -> None:
    with serving(lambda connection: connection.sendall(b"554 no mail here\r\n")) as server:
        steps = look(
            partner_side(),
            transport="smtp",
            address="mailto:o@partner.example",
            server=f"smtp://127.0.0.1:{server.port}",
        )
    assert (steps["smtp"]["verdict"], ProbeReport.objects.get().cause) == ("failed", "smtp_5xx")


def test_what_is_no_file_server_is_said() -> None:
    with serving(lambda connection: connection.sendall(b"HTTP/1.1 400 no\r\n")) as server:
        steps = look(partner_side(), transport="sftp", address=f"sftp://127.0.0.1:{server.port}/in/")
    assert steps["sftp"]["verdict"] == "failed"


def test_a_ping_is_for_the_pairs_endpoint() -> None:
    side = partner_side()
    with serving(heads(OK)) as server:
        where = endpoint(side, address=server.url)
        report = probing.ping(pair_id=side.outbound.pk, actor=ANN)
    assert (report.endpoint_id, report.pair_id) == (where.pk, side.outbound.pk)


def test_a_ping_needs_a_pair_and_an_agreement() -> None:
    with pytest.raises(NotFound):
        probing.ping(pair_id=uuid7(), actor=ANN)
    with pytest.raises(NotFound):
        probing.probe(endpoint_id=uuid7(), actor=ANN)
    side = partner_side()
    template = side.outbound
    other = Pair.objects.create(
        direction="out",
        sender_uri="http://nobody.example",
        receiver_uri="http://nowhere.example",
        own_party=template.own_party,
        partner=template.partner,
        code="NOBODY>NOWHERE",
    )
    with pytest.raises(WrongState):
        probing.ping(pair_id=other.pk, actor=ANN)


def test_old_reports_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_KEPT", 2)
    side = partner_side()
    for _ in range(4):
        look(side, address="http://no-such-host.invalid/msh")
    assert ProbeReport.objects.count() == 2


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        ([ProbeStep("tcp"), ProbeStep("certificate", "warning", cause="cert_expires")], ""),
        ([ProbeStep("tcp", "failed"), ProbeStep("tls", "failed", cause="tls_handshake")], "tls_handshake"),
        (
            [
                ProbeStep("tls", "failed", cause="tls_handshake"),
                ProbeStep("certificate", "failed", cause="cert_expired"),
            ],
            "cert_expired",
        ),
    ],
)
def test_the_most_telling_cause_of_a_failure_is_named(steps: list[ProbeStep], cause: str) -> None:
    assert probing._cause(steps) == cause
