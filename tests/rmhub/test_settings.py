"""Settings that are wrong end every command with one line and exit status 2; those of DATABASE_URL all count."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from rmhub.env import database_from_url, env_str
from rmhub.hubs import BASE, Hub

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


def right(tmp_path: Path) -> dict[str, str]:
    return {
        "DATABASE_URL": "postgresql://rmhub:very-secret@127.0.0.1:1/rmhub",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "RMHUB_VAR": str(tmp_path),
    }


def manage(tmp_path: Path, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run a command that needs no server, with nothing but these settings."""
    return python(tmp_path, str(BASE / "manage.py"), *arguments, **changed)


def python(tmp_path: Path, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("RMHUB_", "DATABASE", "REDIS"))}
    settings = {"DJANGO_SETTINGS_MODULE": "rmhub.settings", **right(tmp_path), **changed}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=BASE,
        env={**kept, **{name: text for name, text in settings.items() if text}},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("RMHUB_SEND_THREAD", "4", "RMHUB_SEND_THREAD is not a setting: did you mean RMHUB_SEND_THREADS?"),
        ("RMHUB_COLOUR_OF_THE_SKY", "blue", "RMHUB_COLOUR_OF_THE_SKY is not a setting"),
        ("RMHUB_SEND_THREADS", "many", "RMHUB_SEND_THREADS='many' is not a whole number"),
        ("RMHUB_SEND_THREADS", "0", "RMHUB_SEND_THREADS=0 is less than 1"),
        ("RMHUB_HTTPS", "perhaps", "RMHUB_HTTPS='perhaps' is neither true nor false"),
        ("RMHUB_LOG_LEVEL", "chatty", "RMHUB_LOG_LEVEL='CHATTY' is not one of DEBUG"),
        ("REDIS_URL", "127.0.0.1:6379", "REDIS_URL"),
        ("RMHUB_STORE_URL", "https://s3.example.org/bucket", "RMHUB_STORE_URL is not of the form s3://bucket/prefix?"),
        ("RMHUB_STORE_URL", "s3://Bucket_1", "RMHUB_STORE_URL is not of the form s3://"),
        ("RMHUB_STORE_URL", "s3://bucket?zone=x", "RMHUB_STORE_URL: 'zone' is not one of endpoint and region"),
        ("RMHUB_STORE_URL", "s3://bucket?endpoint=s3.example.org", "RMHUB_STORE_URL: the endpoint is not a URL"),
        ("RMHUB_STORE_URL", "s3://key:word@bucket", "RMHUB_STORE_URL is no place for keys"),
        ("RMHUB_STORE_SECRET_KEY", "abc", "RMHUB_STORE_ACCESS_KEY and RMHUB_STORE_SECRET_KEY go together"),
        (
            "REDIS_URL",
            "http://127.0.0.1:6379/0",
            "REDIS_URL: http://127.0.0.1:6379/0 is not a URL that begins with redis://",
        ),
        ("REDIS_URL", "redis://:very-secret@h:70000/0", "REDIS_URL"),
        ("REDIS_URL", "sentinel://:very-secret@h1:26379,h2:26379/0", "REDIS_URL: one master_name has to say"),
        ("REDIS_URL", "sentinel://:very-secret@h1:26379;h2:26379/0?master_name=m", "separated by commas"),
        ("REDIS_URL", "sentinel://:very-secret@h1:26379,h2:x/0?master_name=m", "separated by commas"),
        ("REDIS_URL", "sentinel://:very-secret@h1/main?master_name=m", "the number of a database"),
        ("REDIS_URL", "sentinel://h/0?master_name=m&password=very-secret", "password is not a parameter; there are"),
        ("RMHUB_SECRET_KEYS", "very-secret", "RMHUB_SECRET_KEYS: key 1 of 1 is not a Fernet key"),
        ("RMHUB_SECRET_KEYS", f"{KEY},very-secret", "RMHUB_SECRET_KEYS: key 2 of 2 is not a Fernet key"),
        (
            "RMHUB_ALLOWED_HOSTS",
            "https://hub.example.org",
            "RMHUB_ALLOWED_HOSTS: 'https://hub.example.org' is not a host",
        ),
        ("RMHUB_ALLOWED_HOSTS", "hub.example.org:8000", "RMHUB_ALLOWED_HOSTS"),
        ("RMHUB_TRUSTED_ORIGINS", "hub.example.org", "RMHUB_TRUSTED_ORIGINS: 'hub.example.org' is not an origin"),
        ("RMHUB_PUBLIC_URL", "hub.example.org", "RMHUB_PUBLIC_URL"),
        ("RMHUB_FINGERPRINT_HEADER", "X_Client_Fp", "RMHUB_FINGERPRINT_HEADER='X_Client_Fp' is not of the form"),
        ("RMHUB_OIDC_ISSUER", "https://login.example", "RMHUB_OIDC_ISSUER and RMHUB_OIDC_CLIENT_ID go together"),
        ("RMHUB_SMTP_RELAY", "relay.example:25", "RMHUB_SMTP_RELAY"),
        (
            "RMHUB_TRACE_URL",
            "http://collector:4318",
            "RMHUB_TRACE_URL is not a setting: did you mean RMHUB_TRACES_URL?",
        ),
        ("RMHUB_TRACES_URL", "collector:4318", "RMHUB_TRACES_URL: collector://"),
        ("RMHUB_TRACES_HEADERS", "very-secret", "RMHUB_TRACES_HEADERS: header 1 is not of the form name=value"),
        ("RMHUB_TRACES_SHARE", "10%", "RMHUB_TRACES_SHARE='10%' is not a number from 0 to 1"),
        ("RMHUB_TRACES_SHARE", "nan", "RMHUB_TRACES_SHARE='nan' is not a number from 0 to 1"),
        ("RMHUB_MAIL_FROM", "the hub", "RMHUB_MAIL_FROM='the hub' is not of the form"),
        ("RMHUB_SMTP_TLS_CERT", "/nowhere/cert.pem", "RMHUB_SMTP_TLS_CERT='/nowhere/cert.pem' cannot be read"),
        ("RMHUB_SPARK_MEMORY", "lots", "RMHUB_SPARK_MEMORY='lots' is not of the form 1g or 2048m"),
        ("RMHUB_STORAGE_PRICE_GB_MONTH", "cheap", "RMHUB_STORAGE_PRICE_GB_MONTH='cheap' is not a number"),
        ("DATABASE_URL", "mysql://u:very-secret@h/x", "DATABASE_URL must begin with postgresql://"),
        ("DATABASE_URL", "postgresql://u:very-secret@h/x?sslmod=require", 'invalid URI query parameter: "sslmod"'),
        ("DATABASE_URL", "postgresql://u:very-secret@h:port/x", "DATABASE_URL cannot be read"),
        ("DATABASE_URL", "postgresql://u:very-secret@h:5432", "DATABASE_URL names no database"),
        ("DATABASE_URL", "postgresql://u:very-secret%zz@h:5432/x", "DATABASE_URL cannot be read"),
        ("DATABASE_URL", "postgresql://u:very-secret@h1:1,h2:2,h3:3/x?port=1,2", "3 hosts and 2 ports"),
        ("DATABASE_URL", "postgresql://u:very-secret@h1:1,:2/x", "a host between the commas has no name"),
        ("DATABASE_URL", "postgresql://u:very-secret@h1,h2/x?target_session_attrs=any", "it can only be read-write"),
        ("DATABASE_URL", "postgresql://u:very-secret@h/x?target_session_attrs=standby", "it can only be read-write"),
        ("DATABASE_URL", "postgresql://u:very-secret@h/x?sslmode=on", "sslmode=on is not one of disable, allow"),
        (
            "DATABASE_URL",
            "postgresql://u:very-secret@h/x?connect_timeout=5s",
            "connect_timeout=5s is not a whole number",
        ),
        (
            "DATABASE_URL",
            "postgresql://u:very-secret@h/x?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
            "sslrootcert=/nowhere/ca.pem cannot be read: No such file",
        ),
        ("RMHUB_SECRET_KEY_FILE", "/nowhere/key", "RMHUB_SECRET_KEY_FILE='/nowhere/key' cannot be read"),
        ("DATABASE_URL_FILE", "/nowhere/url", "DATABASE_URL and DATABASE_URL_FILE are both set"),
    ],
)
def test_a_wrong_setting_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    for variable in [*os.environ]:
        if variable.startswith(("RMHUB_", "DATABASE", "REDIS")):
            monkeypatch.delenv(variable)
    for variable, value in {**right(tmp_path), name: text}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ImproperlyConfigured) as refused:
        runpy.run_path(str(BASE / "rmhub" / "settings.py"))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value) and "very-secret" not in str(refused.value)


WRONG = {
    "RMHUB_SEND_THREADS": "many",
    "DATABASE_URL": "mysql://u:very-secret@h/x",
    "RMHUB_HTTPS": "1",
    "RMHUB_SMTP_TLS_CERT_FILE": "/nowhere/cert",
    "RMHUB_SECRET_KEYS": "very-secret",
    "RMHUB_APPS": "json,no_such_application.orders",
    "RMHUB_SEND_THREAD": "4",
    "RMHUB_COLOUR": "blue",
}
TOLD = [
    "RMHUB_SECRET_KEYS: key 1 of 1 is not a Fernet key",
    "RMHUB_APPS: there is no module 'no_such_application.orders'",
    "DATABASE_URL must begin with postgresql://",
    "RMHUB_SEND_THREADS='many' is not a whole number",
    "RMHUB_SMTP_TLS_CERT_FILE='/nowhere/cert' cannot be read",
    "RMHUB_HTTPS=1, but RMHUB_TRUSTED_PROXIES names no proxy",
    "RMHUB_COLOUR is not a setting",
    "RMHUB_SEND_THREAD is not a setting: did you mean RMHUB_SEND_THREADS?",
]
CELERY = ("-m", "celery", "-q", "-A", "rmhub")


@pytest.mark.parametrize(
    "command",
    [
        (str(BASE / "manage.py"), "up"),
        (str(BASE / "manage.py"), "migrate"),
        (str(BASE / "manage.py"), "pipeline", "serve"),
        ("-m", "rmhub.front.serving"),
        (*CELERY, "worker", "-P", "threads"),
        (*CELERY, "beat"),
    ],
    ids=lambda command: " ".join(command[-2:]).rpartition("/")[2],
)
def test_wrong_settings_end_every_process_with_a_line_each_and_exit_status_2(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    ended = python(tmp_path, *command, **WRONG)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2, ended.stderr
    assert [line for line, said in zip(lines, TOLD, strict=True) if not line.startswith(said)] == []
    assert "very-secret" not in ended.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is written for them"


def test_wrong_settings_are_told_before_servers_are_started(tmp_path: Path) -> None:
    ended = manage(tmp_path, "migrate", DATABASE_URL="", REDIS_URL="", RMHUB_SEND_THREADS="many", RMHUB_COLOUR="blue")
    assert (ended.returncode, ended.stderr.count("\n"), list(tmp_path.iterdir())) == (2, 2, []), ended.stderr


def test_what_a_wrong_setting_contradicts_is_not_told_as_well(tmp_path: Path) -> None:
    ended = manage(tmp_path, "check", RMHUB_HTTPS="1", RMHUB_TRUSTED_PROXIES="the proxy")
    assert ended.stderr.count("\n") == 1 and ended.stderr.startswith("RMHUB_TRUSTED_PROXIES: 'the proxy' is not")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = manage(tmp_path, "check", RMHUB_VAR=str(tmp_path / "file"))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "RMHUB_VAR" in ended.stderr


def test_secrets_that_were_damaged_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text("{")
    ended = manage(tmp_path, "check")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "secrets.json is damaged" in ended.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"RMHUB_HTTPS": "1", "RMHUB_PUBLIC_URL": "http://hub.example.org"},
            "RMHUB_HTTPS=1, but RMHUB_PUBLIC_URL begins with http://",
        ),
        ({"RMHUB_HTTPS": "1"}, "RMHUB_HTTPS=1, but RMHUB_TRUSTED_PROXIES names no proxy"),
        (
            {"RMHUB_FINGERPRINT_HEADER": "X-Client-Fingerprint"},
            "RMHUB_FINGERPRINT_HEADER is set, but RMHUB_TRUSTED_PROXIES names no proxy",
        ),
        (
            {"RMHUB_TRACES_HEADERS": "Authorization=Bearer x"},
            "RMHUB_TRACES_HEADERS is set, but RMHUB_TRACES_URL names no collector",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    ended = manage(tmp_path, "check", **settings)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_right_settings_are_taken(tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text("postgresql://rmhub@127.0.0.1:1/rmhub\n")
    ended = manage(
        tmp_path,
        "check",
        DATABASE_URL="",
        DATABASE_URL_FILE=str(url),
        RMHUB_SECRET_KEYS=f"{KEY}, {KEY}",
        RMHUB_ALLOWED_HOSTS="*,.example.org,hub.example.org,192.0.2.1,[::1]",
        RMHUB_HTTPS="1",
        RMHUB_TRUSTED_PROXIES="127.0.0.1,10.0.0.0/8,::1",
        RMHUB_FINGERPRINT_HEADER="X-Client-Fingerprint",
        RMHUB_FORWARDED_HEADER="Forwarded",
        RMHUB_TRUSTED_ORIGINS="https://hub.example.org:8443,https://*.example.org",
        RMHUB_TRACES_URL="https://collector.example.org",
        RMHUB_TRACES_HEADERS="Authorization=Bearer a%2Cb==, x-team=blue",
        RMHUB_TRACES_SHARE="0.05",
        RMHUB_TOKEN="rmh_something",  # an integrator's shell has it
    )
    assert ended.returncode == 0, ended.stderr


def test_every_parameter_of_the_database_url_reaches_the_driver(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("")
    found = database_from_url(
        "postgresql://rm%40hub:p%3Aw@db1.internal:5433,db2.internal:5434/r%2Fm"
        f"?sslmode=verify-full&sslrootcert={authorities}&target_session_attrs=primary"
    )
    assert found == {
        "ENGINE": "rmhub.postgresql",
        "NAME": "r/m",
        "USER": "rm@hub",
        "PASSWORD": "p:w",
        "HOST": "db1.internal,db2.internal",
        "PORT": "5433,5434",
        "OPTIONS": {
            "sslmode": "verify-full",
            "sslrootcert": str(authorities),
            "target_session_attrs": "primary",
        },
    }
    shown = (
        "from django.db import connection; parameters = connection.get_connection_params();"
        " print(parameters['sslmode'], parameters['connect_timeout'])"
    )
    ended = manage(
        tmp_path,
        "shell",
        "--no-imports",
        "-c",
        shown,
        DATABASE_URL="postgresql://h/x?sslmode=verify-full&connect_timeout=9",
    )
    assert ended.stdout.split() == ["verify-full", "9"], ended.stderr


def test_of_several_hosts_the_one_that_takes_writes_is_meant() -> None:
    found = database_from_url("postgresql://u@db1,db2:5433,db3/x")
    assert (found["HOST"], found["PORT"]) == ("db1,db2,db3", "5432,5433,5432")
    assert found["OPTIONS"] == {"target_session_attrs": "read-write"}
    assert database_from_url("postgresql://u@db1/x?target_session_attrs=any")["OPTIONS"] == {
        "target_session_attrs": "any"
    }
    assert database_from_url("postgresql://u@db1/x")["OPTIONS"] == {}
    assert database_from_url("postgresql://u@db1,db2/x?port=5439")["PORT"] == "5439"


def test_a_value_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "value").write_text("from the file\n")
    monkeypatch.setenv("SOMETHING_FILE", str(tmp_path / "value"))
    assert env_str("SOMETHING") == "from the file"
    monkeypatch.setenv("SOMETHING", "from the variable")
    with pytest.raises(ImproperlyConfigured, match="both set"):
        env_str("SOMETHING")


def test_a_hub_of_its_own_addresses_does_not_inherit_the_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL_FILE", "/run/secrets/database-url")
    hub = Hub("one", "postgresql://127.0.0.1/one", "redis://127.0.0.1/0", tmp_path, 8000)
    environment = hub.environment()
    assert environment["DATABASE_URL"] == "postgresql://127.0.0.1/one"
    assert "DATABASE_URL_FILE" not in environment


def test_what_the_hub_writes_is_its_own_users_only(tmp_path: Path) -> None:
    lake = tmp_path / "lake" / "part.parquet"
    code = f"from pathlib import Path; p = Path({str(lake)!r}); p.parent.mkdir(); p.write_text('x')"
    ended = manage(tmp_path, "shell", "--no-imports", "-c", code)
    assert ended.returncode == 0, ended.stderr
    assert (lake.stat().st_mode & 0o077, lake.parent.stat().st_mode & 0o077) == (0, 0)
