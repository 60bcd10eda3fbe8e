"""`manage.py mail` as a process of its own, and its settings."""

from __future__ import annotations

import ipaddress
import os
import signal
import smtplib
import subprocess
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from messaging.management.commands.mail import entrance_options
from rmhub.env import env_listen, env_networks, mail_name
from rmhub.hubs import Hub, free_ports
from tests.rmhub.conditions import eventually


def test_without_an_address_it_says_what_to_set(settings: LazySettings) -> None:
    settings.RMHUB_SMTP_LISTEN = None
    with pytest.raises(CommandError, match="RMHUB_SMTP_LISTEN"):
        call_command("mail")


def test_a_certificate_that_cannot_be_used_ends_it(settings: LazySettings, tmp_path: Path) -> None:
    settings.RMHUB_SMTP_LISTEN = ("127.0.0.1", free_ports(1)[0])
    settings.RMHUB_SMTP_TLS_CERT = str(tmp_path / "none.pem")
    with pytest.raises(CommandError, match="RMHUB_SMTP_TLS_CERT"):
        call_command("mail")


def test_the_entrance_is_as_the_settings_say(settings: LazySettings) -> None:
    settings.RMHUB_SMTP_TRUSTED_RELAYS = [ipaddress.ip_network("192.0.2.0/28")]
    settings.RMHUB_SMTP_TRUSTED_CHECKER = "mx.us.example"
    settings.RMHUB_SMTP_CONNECTIONS = 7
    found = entrance_options()
    assert (found.checker, found.connections, found.name) == ("mx.us.example", 7, "[127.0.0.1]")
    assert list(found.relays) == [ipaddress.ip_network("192.0.2.0/28")]
    assert found.max_mail_bytes > settings.RMHUB_MAX_MESSAGE_BYTES * 78 / 57


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("0.0.0.0:25", ("0.0.0.0", 25)),
        (":2525", ("", 2525)),
        ("[::]:25", ("::", 25)),
        ("mail.example:465", ("mail.example", 465)),
    ],
)
def test_where_it_listens(monkeypatch: pytest.MonkeyPatch, text: str, address: tuple[str, int] | None) -> None:
    monkeypatch.setenv("X", text)
    assert env_listen("X") == address


@pytest.mark.parametrize("text", ["25", "host", "host:", "host:0", "host:65536", "host:2x"])
def test_where_nobody_can_listen(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("X", text)
    with pytest.raises(ImproperlyConfigured, match="host:port"):
        env_listen("X")


def test_relays_are_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "192.0.2.7, 2001:db8::/32")
    assert [str(network) for network in env_networks("X")] == ["192.0.2.7/32", "2001:db8::/32"]
    monkeypatch.setenv("X", "relay.example")
    with pytest.raises(ImproperlyConfigured, match=r"192\.0\.2\.0/28"):
        env_networks("X")


@pytest.mark.parametrize(
    ("host", "name"), [("hub.example", "hub.example"), ("192.0.2.7", "[192.0.2.7]"), ("::1", "[IPv6:::1]")]
)
def test_what_it_calls_itself(host: str, name: str) -> None:
    assert mail_name(host) == name


@pytest.mark.acceptance
def test_the_process_listens_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    hub = Hub(
        "mailtest",
        os.environ.get("DATABASE_URL", "postgresql://127.0.0.1:1/none"),
        "redis://127.0.0.1:1/0",
        tmp_path,
        8000,
        settings={"RMHUB_SMTP_LISTEN": f"127.0.0.1:{port}", "RMHUB_SMTP_NAME": "hub.example"},
    )
    (process,) = (process for process in hub.processes() if process.name == "mail")
    assert process.ready is not None
    with subprocess.Popen(process.argv, env=process.env, cwd=process.cwd) as child:
        try:
            ready = process.ready
            eventually(lambda: child.poll() is not None or _answers(ready))
            assert child.poll() is None
            with smtplib.SMTP("127.0.0.1", port, local_hostname="x.example", timeout=120) as smtp:
                assert smtp.ehlo()[1].startswith(b"hub.example")
                assert smtp.mail("someone@else.example")[0] == 530
                child.send_signal(signal.SIGTERM)
                assert child.wait(120) == 0
        finally:
            child.kill()


def _answers(ready: object) -> bool:
    try:
        return bool(ready())  # type: ignore[operator]
    except OSError:
        return False
