"""`manage.py doctor`: a hub that is well, and each thing that is not as it must be, with its line and exit status 1."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.management import call_command
from django.db import connection

from messaging import dispatch, storage
from messaging.management.commands import doctor as command
from messaging.overview.doctor import (
    CHECKS,
    PARTNERS,
    Check,
    Finding,
    State,
    check,
    database,
    examine,
    machine,
    network,
)
from messaging.overview.selectors import health
from partners.models import Endpoint, Party
from rmhub.hubs import free_ports
from tests.messaging.console.scenes import trigger_for
from tests.messaging.factories import partner_side
from tests.messaging.outages import outage
from tests.messaging.profiles.repeatable.hubs import hubs
from tests.partners.factories import make_outbound_credential
from tests.rmhub.collector import collecting

pytestmark = pytest.mark.django_db(transaction=True)
BY_NAME = {one.name: one for one in CHECKS}


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    health.forget()
    yield
    health.forget()
    connection.close()


def run(**options: Any) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("doctor", stdout=out, **options)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


def found(name: str) -> dict[State, str]:
    """What one check says, by state; several of one state are joined."""
    said: dict[State, str] = {}
    for _, finding in examine([BY_NAME[name]]):
        said[finding.state] = "; ".join(filter(None, (said.get(finding.state), f"{finding.text} {finding.advice}")))
    return said


def test_a_hub_that_is_well_has_no_failure_and_exit_status_0(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests' server is a throw-away one, which forgets what it has at a crash.
    durable = database._setting
    monkeypatch.setattr(database, "_setting", lambda name: "on" if name in _FORGETFUL else durable(name))
    with hubs(tmp_path, more={"RMHUB_LOG_LEVEL": "ERROR"}) as (hub,):
        settings.RMHUB_PUBLIC_URL = hub.url
        code, said = run()
        assert code == 0, said
        assert {line.split()[0] for line in said.splitlines()[:-1]} <= {"ok", "warning"}
        assert all(f"{one.name}: " in said for one in (*CHECKS, command.PIPELINE))
        assert said.splitlines()[-1].startswith("0 failed, ")
        code, said = run(json=True)
    known = json.loads(said)
    assert (code, known["failed"]) == (0, 0)
    assert known["ok"] == sum(one["state"] == "ok" for one in known["findings"]) > 15
    assert set(known["findings"][0]) == {"check", "state", "text", "advice"}


_FORGETFUL = ("fsync", "full_page_writes", "synchronous_commit", "autovacuum")


def test_a_database_that_is_away_is_one_failure_and_exit_status_1(settings: Any) -> None:
    connection.close()
    with outage():
        code, said = run(json=True)
    states = {one["check"]: one["state"] for one in json.loads(said)["findings"]}
    assert code == 1 and states["database"] == "failed"
    assert {states[one.name] for one in CHECKS if one.asks_database} == {"skipped"}
    assert states["broker"] == "ok", "the others are looked at all the same"


def test_a_look_that_fails_is_a_finding() -> None:
    def broken() -> Iterator[Finding]:
        yield check.ok("so far")
        raise RuntimeError("no\nmore")

    states = [(finding.state, finding.text) for _, finding in examine([Check("x", broken)])]
    assert states == [(State.OK, "so far"), (State.FAILED, "cannot be looked at: no")]


# ---- the database


def answer(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """The server says this of its settings."""
    real = database._setting
    monkeypatch.setattr(database, "_setting", lambda name: values.get(name) or real(name))


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("database", {"server_version_num": "130005"}, "PostgreSQL 13.5"),
        ("database encoding", {"server_encoding": "SQL_ASCII"}, "encoded in SQL_ASCII"),
        ("database role", {"transaction_read_only": "on"}, "read-only"),
        ("database role", {"session_replication_role": "replica"}, "triggers"),
        ("durability", {"fsync": "off"}, "fsync is off"),
        ("durability", {"synchronous_commit": "off"}, "synchronous_commit is off"),
        ("durability", {"autovacuum": "off"}, "autovacuum is off"),
        ("connections", {"max_connections": "8"}, "of 8 connections are left"),
    ],
)
def test_what_the_hub_takes_for_granted_of_the_database(
    monkeypatch: pytest.MonkeyPatch, name: str, values: dict[str, str], said: str
) -> None:
    answer(monkeypatch, **values)
    assert said in found(name)[State.FAILED]


def test_the_write_ahead_log_is_enough_for_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, wal_level="minimal")
    assert "no standby" in found("write-ahead log")[State.WARNING]


def test_a_log_that_cannot_be_archived_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = database._one
    archiver = ("000000010000000000000007",)
    monkeypatch.setattr(database, "_one", lambda asked, *more: archiver if "archiver" in asked else real(asked, *more))
    assert "000000010000000000000007 could not be archived" in found("write-ahead log")[State.FAILED]


@pytest.mark.parametrize(
    ("count", "names", "said", "state"),
    [
        (0, "", "none is connected", State.OK),
        (2, "", "2 are connected, and no commit waits for one", State.WARNING),
        (2, "ANY 1 (db2, db3)", "2 are connected; commits wait for ANY 1 (db2, db3)", State.OK),
    ],
)
def test_standby_servers_that_commits_do_not_wait_for(
    monkeypatch: pytest.MonkeyPatch, count: int, names: str, said: str, state: State
) -> None:
    server = {"synchronous_standby_names": names, "synchronous_commit": "on"}
    monkeypatch.setattr(database, "_setting", lambda name: server[name])
    monkeypatch.setattr(database, "_one", lambda asked: (count,))
    assert said in found("standby servers")[state]


def test_of_several_servers_each_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two addresses of one server are as bad as two servers: both take writes."""
    known = connection.settings_dict
    away = free_ports(1)[0]
    monkeypatch.setitem(known, "HOST", "127.0.0.1,localhost,127.0.0.1")
    monkeypatch.setitem(known, "PORT", f"{known['PORT']},{known['PORT']},{away}")
    port = known["PORT"].split(",")[0]
    said = found("standby servers")
    assert f"127.0.0.1:{port} and localhost:{port} all take writes" in said[State.FAILED]
    assert f"127.0.0.1:{away} does not answer" in said[State.WARNING]
    connection.close()
    assert f"at 127.0.0.1:{port}/" in found("database")[State.OK], "the one that it is connected to"


def test_migrations_that_are_missing_or_of_a_newer_hub() -> None:
    assert State.OK in found("migrations")
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('messaging', '0099_later', now())")
        try:
            assert "messaging.0099_later" in found("migrations")[State.FAILED]
            cursor.execute("UPDATE django_migrations SET name = name || '_was' WHERE app = 'partners'")
            assert "manage.py migrate" in found("migrations")[State.FAILED]
        finally:
            cursor.execute("DELETE FROM django_migrations WHERE name = '0099_later'")
            cursor.execute("UPDATE django_migrations SET name = replace(name, '_was', '') WHERE app = 'partners'")


@pytest.mark.parametrize(("seconds", "state"), [(0, State.OK), (5, State.WARNING), (-60, State.FAILED)])
def test_clocks_that_differ(monkeypatch: pytest.MonkeyPatch, seconds: int, state: State) -> None:
    time = database.time.time
    monkeypatch.setattr(database.time, "time", lambda: time() + seconds)
    assert set(found("clocks")) == {state}


# ---- broker, store, keys, machine


def test_a_broker_that_is_away_or_drops_things(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not limited" in found("broker")[State.OK]

    class Full:
        def info(self) -> dict[str, Any]:
            return {"redis_version": "6.0.1", "maxmemory": 1000, "maxmemory_policy": "allkeys-lru"}

    monkeypatch.setattr(dispatch, "_client", Full())
    said = found("broker")
    assert "6.0.1 is too old" in said[State.FAILED] and "allkeys-lru" in said[State.WARNING]
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(dispatch, "_client", None)
    assert "does not answer" in found("broker")[State.FAILED]


def test_a_store_that_takes_nothing_or_forgets(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert State.OK in found("payload store")
    monkeypatch.setattr(machine, "_kind", lambda folder: "tmpfs")
    assert "kept in memory" in found("payload store")[State.FAILED]
    (tmp_path / "file").write_text("in the way")
    settings.RMHUB_STORE_DIR = tmp_path / "file"
    health.forget()
    assert "cannot be written" in found("payload store")[State.FAILED]
    monkeypatch.setattr(storage, "room", lambda: storage.Room("", False, 1))
    health.forget()
    assert "is full" in found("payload store")[State.FAILED]


def test_a_key_that_was_dropped_too_early(settings: Any) -> None:
    partner = partner_side()
    make_outbound_credential(Party.objects.get(pk=partner.terms.partner_id), secret="shown-to-them")
    trigger_for(partner, "Warehouse")
    assert found("secret keys")[State.OK].startswith("1 secrets")
    settings.RMHUB_SECRET_KEYS = [Fernet.generate_key().decode()]
    said = found("secret keys")[State.FAILED]
    assert "1 of a trigger" in said and "The secret of cred_" in said


def test_settings_that_others_can_misuse(settings: Any) -> None:
    settings.DEBUG, settings.RMHUB_PUBLIC_URL = True, "http://hub.example.org"
    settings.ALLOWED_HOSTS = ["other.example.org", ".example.net"]
    said = found("settings")
    assert "RMHUB_DEBUG is on" in said[State.FAILED] and "does not name hub.example.org" in said[State.FAILED]
    assert "RMHUB_HTTPS is off" in said[State.WARNING]
    settings.ALLOWED_HOSTS = [".example.org"]
    assert "does not name" not in found("settings")[State.FAILED]
    settings.RMHUB_TRUSTED_PROXIES = [ipaddress.ip_network("0.0.0.0/0")]
    assert "everybody" in found("trusted proxies")[State.FAILED]


def test_few_open_files_and_no_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (256, 1024))
    assert "1024 open files" in found("open files")[State.WARNING]

    def unknown(name: str) -> None:
        raise machine.zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(machine.zoneinfo, "ZoneInfo", unknown)
    assert State.FAILED in found("time zones")


def test_workers_that_are_lost_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "presences", list)
    assert "No worker runs" in found("workers")[State.WARNING]


# ---- names and servers


def test_names_that_nobody_knows(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    partner_side()
    Endpoint.objects.filter(party__is_own=False).update(uri="https://msh.partner.invalid/msh", address="", server="")
    settings.RMHUB_PUBLIC_URL = "https://hub.invalid"
    assert "hub.invalid of RMHUB_PUBLIC_URL has no address" in found("public name")[State.FAILED]
    assert "msh.partner.invalid has no address" in found("partners' names")[State.WARNING]
    for name in ("public certificate", "public address"):
        assert State.FAILED in found(name)


def test_partners_servers_are_connected_to_only_where_it_is_asked_for(settings: Any) -> None:
    partner_side()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        uri = f"http://127.0.0.1:{port}/msh"
        Endpoint.objects.filter(party__is_own=False).update(uri=uri, address="", server="")
        server.setblocking(False)
        list(examine([BY_NAME["partners' names"]]))
        with pytest.raises(BlockingIOError):
            server.accept()
        [(_, well)] = examine([PARTNERS])
        server.accept()[0].close()
    [(_, away)] = examine([PARTNERS])
    assert well.state is State.OK and away.state is State.WARNING and f"127.0.0.1:{port}" in away.text


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                made, _ = server.accept()
                with made:
                    try:
                        answer(made)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        socket.create_connection(server.getsockname()).close()
        thread.join(120)


@pytest.mark.parametrize(("greeting", "state"), [(b"220 relay\r\n", State.OK), (b"SSH-2.0\r\n", State.FAILED)])
def test_mail_servers_are_greeted_by(settings: Any, greeting: bytes, state: State) -> None:
    with serving(lambda made: made.sendall(greeting)) as port:
        settings.RMHUB_SMTP_RELAY = f"smtp://127.0.0.1:{port}"
        assert set(found("mail servers")) == {state}
    assert "cannot be reached" in found("mail servers")[State.FAILED]


@pytest.mark.parametrize(("status", "state"), [(200, State.OK), (401, State.WARNING)])
def test_the_collector_of_traces_is_asked_and_given_nothing(settings: Any, status: int, state: State) -> None:
    assert "none is set" in found("collector of traces")[State.OK]
    with collecting() as collector:
        collector.status = status
        settings.RMHUB_TRACES_URL = collector.url
        settings.RMHUB_TRACES_HEADERS = {"X-Team": "blue"}
        assert set(found("collector of traces")) == {state}
    assert (collector.paths, collector.bodies) == (["/v1/traces"], [b""])
    assert collector.headers[0]["x-team"] == "blue"
    settings.RMHUB_TRACES_URL = "http://127.0.0.1:1"
    assert "nobody answers" in found("collector of traces")[State.WARNING]


def certificate(folder: Path, days: float) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=90))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@pytest.mark.parametrize(
    ("days", "state"), [(90.5, State.OK), (20.5, State.WARNING), (1.5, State.FAILED), (-1, State.FAILED)]
)
def test_the_certificate_of_the_public_address(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, state: State
) -> None:
    cert, key = certificate(tmp_path, days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with serving(lambda made: context.wrap_socket(made, server_side=True).close()) as port:
        settings.RMHUB_PUBLIC_URL = f"https://127.0.0.1:{port}"
        assert "not valid" in found("public certificate")[State.FAILED], "nobody has signed it"
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        said = found("public certificate")
    assert set(said) == {state}
    assert days < 0 or f"ends in {int(days)} days" in said[state]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"name": "Another Hub"}', "is the hub 'Another Hub'"),
        (b"<html>welcome</html>", "not as a hub does"),
        (b"[]", "not as a hub does"),
    ],
)
def test_what_answers_at_the_public_address_is_this_hub(settings: Any, body: bytes, said: str) -> None:
    def answer(made: socket.socket) -> None:
        made.recv(65_536)
        made.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))

    with serving(answer) as port:
        settings.RMHUB_PUBLIC_URL = f"http://127.0.0.1:{port}"
        assert said in found("public address")[State.FAILED]


def test_a_mail_entrance_that_does_not_run(settings: Any) -> None:
    assert State.OK in found("mail entrance")
    settings.RMHUB_SMTP_LISTEN = ("127.0.0.1", 1)
    assert "Nobody answers" in found("mail entrance")[State.FAILED]


def test_what_the_pipeline_misses_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.pipeline, "findings", lambda: iter([command.pipeline.Finding(False, "No Java.")]))
    [(_, finding)] = examine([command.PIPELINE])
    assert (finding.state, finding.text) == (State.WARNING, "No Java.")


def test_the_checks_have_names_of_their_own() -> None:
    names = [one.name for one in (*CHECKS, PARTNERS, command.PIPELINE)]
    assert len(set(names)) == len(names) and check.DATABASE in names
    assert network.PORTS.keys() >= {"http", "https", "sftp", "smtp"}
