"""Settings from the environment: strict, so that a slip fails at start and not at the first message.

Whoever reads many of them (rmhub/settings.py) is told of all slips at once: between `gather` and `refuse`, a setting
that is wrong is noted down and read as if it were not set.
"""

from __future__ import annotations

import difflib
import importlib.util
import ipaddress
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from psycopg import conninfo

from rmhub import broker

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}
_HOST = re.compile(r"\*|\.?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_asked: set[str] = set()  # names that a setting was read from
_wrong: dict[str, str] | None = None  # name -> what is wrong with it; None while nobody gathers

P = ParamSpec("P")
T = TypeVar("T")


def gather() -> None:
    """Begin to note down what is wrong, instead of raising it."""
    global _wrong
    _wrong = {}


def refuse() -> None:
    """Raise ImproperlyConfigured, with a line for each setting that was wrong since `gather`, if one was."""
    global _wrong
    found, _wrong = _wrong, None
    if found:
        raise ImproperlyConfigured("\n".join(found.values()))


def contradiction(found: bool, text: str, *names: str) -> None:
    """Note that these settings cannot all be meant, unless one of them is wrong by itself."""
    assert _wrong is not None, "settings are being gathered"
    if found and not _wrong.keys() & set(names):
        _wrong[" ".join(names)] = text


def _gathered(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Make a reader of one setting note down that it is wrong, while settings are gathered."""

    @wraps(read)
    def reader(name: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(name, *args, **kwargs)
        except ImproperlyConfigured as error:
            if _wrong is None or name in _wrong:
                raise
            _wrong[name] = str(error)
            return read(name, *args, **kwargs)

    return reader


@_gathered
def env_str(name: str, default: str = "") -> str:
    """Return the variable's text, without blanks around it; `NAME_FILE` names a file that holds it (for secrets).

    Raises ImproperlyConfigured when both are set, or when the file cannot be read.
    """
    _asked.add(name)
    if _wrong is not None and name in _wrong:
        return default
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name, default).strip()
    if os.environ.get(name):
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set: keep one of them")
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{name}_FILE={path!r} cannot be read: {error}") from error


def refuse_unknown(prefix: str, known_elsewhere: Iterable[str]) -> None:
    """Note down each variable that begins with `prefix` and that nothing reads: a slip, surely."""
    assert _wrong is not None, "settings are being gathered"
    known = _asked | set(known_elsewhere)
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in known and name.removesuffix("_FILE") not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            meant = f"did you mean {near[0]}?" if near else "docs/operations.md lists those that exist"
            _wrong[name] = f"{name} is not a setting: {meant}"


@_gathered
def env_bool(name: str, default: bool = False) -> bool:
    """Raises ImproperlyConfigured for anything but true/false, yes/no, on/off, 1/0."""
    text = env_str(name, "1" if default else "0")
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={text!r} is neither true nor false")


@_gathered
def env_int(name: str, default: int, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Raises ImproperlyConfigured for no whole number, or one out of bounds."""
    text = env_str(name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={text!r} is not a whole number") from error
    if minimum is not None and value < minimum:
        raise ImproperlyConfigured(f"{name}={value} is less than {minimum}")
    if maximum is not None and value > maximum:
        raise ImproperlyConfigured(f"{name}={value} is more than {maximum}")
    return value


def env_list(name: str, default: str = "") -> list[str]:
    """A comma-separated list without blanks."""
    return [item.strip() for item in env_str(name, default).split(",") if item.strip()]


@_gathered
def env_choice(name: str, default: str, choices: Iterable[str]) -> str:
    """One of `choices`, in capital letters. Raises ImproperlyConfigured for anything else."""
    text = env_str(name, default).upper()
    if text not in choices:
        raise ImproperlyConfigured(f"{name}={text!r} is not one of {', '.join(choices)}")
    return text


@_gathered
def env_match(name: str, default: str, pattern: str, example: str) -> str:
    """A text of the form `pattern`, or "" for none. Raises ImproperlyConfigured for anything else."""
    text = env_str(name, default)
    if text and not re.fullmatch(pattern, text):
        raise ImproperlyConfigured(f"{name}={text!r} is not of the form {example}")
    return text


@_gathered
def env_url(name: str, default: str, schemes: Iterable[str]) -> str:
    """A URL with one of `schemes` and a host, or "" for none. Raises ImproperlyConfigured; shows no password."""
    text = env_str(name, default)
    if not text:
        return text
    try:
        parts = urlsplit(text)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        _ = parts.port  # ValueError for one that is none
        good = parts.scheme in schemes and bool(parts.hostname)
    except ValueError:
        good, shown = False, "the value"
    if not good:
        raise ImproperlyConfigured(
            f"{name}: {shown} is not a URL that begins with {' or '.join(f'{s}://' for s in schemes)}"
        )
    return text


@_gathered
def env_broker(name: str, default: str) -> str:
    """The broker's URL (rmhub/broker.py). Raises ImproperlyConfigured; shows no password."""
    text = env_str(name, default)
    if not broker.is_sentinel(text):
        return env_url(name, default, ("redis", "rediss", *broker.SCHEMES))
    try:
        broker.sentinels(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from error
    return text


@_gathered
def env_apps(name: str) -> list[str]:
    """Django apps. Raises ImproperlyConfigured for one that cannot be found."""
    apps = env_list(name)
    for app in apps:
        if importlib.util.find_spec(app.partition(".")[0]) is None:
            raise ImproperlyConfigured(f"{name}: there is no module {app!r} on the Python path")
    return apps


@_gathered
def env_hosts(name: str, default: str = "") -> list[str]:
    """Host names as requests name them. Raises ImproperlyConfigured for a URL, a port or a path."""
    hosts = env_list(name, default)
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ImproperlyConfigured(
                f"{name}: {host!r} is not a host name: write it without scheme, port and path, such as hub.example.org"
            )
    return hosts


@_gathered
def env_origins(name: str) -> list[str]:
    """Origins of pages. Raises ImproperlyConfigured for one without a scheme, or with a path."""
    origins = env_list(name)
    for origin in origins:
        if not re.fullmatch(r"https?://[^/\s@]+", origin):
            raise ImproperlyConfigured(f"{name}: {origin!r} is not an origin such as https://hub.example.org")
    return origins


@_gathered
def env_amount(name: str) -> str:
    """A number that is not negative, as it was written, or "". Raises ImproperlyConfigured for anything else."""
    text = env_str(name)
    try:
        if text and not (Decimal(text).is_finite() and Decimal(text) >= 0):
            raise InvalidOperation
    except InvalidOperation as error:
        raise ImproperlyConfigured(f"{name}={text!r} is not a number such as 0.023") from error
    return text


@_gathered
def env_share(name: str, default: float) -> float:
    """A part of a whole, from 0 to 1. Raises ImproperlyConfigured for anything else."""
    text = env_str(name)
    try:
        value = float(text) if text else default
        if not 0 <= value <= 1:
            raise ValueError
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={text!r} is not a number from 0 to 1, such as 0.1") from error
    return value


@_gathered
def env_headers(name: str) -> dict[str, str]:
    """Comma-separated `name=value`, the value percent-encoded where it has a comma (as OTEL_EXPORTER_OTLP_HEADERS has
    them). Raises ImproperlyConfigured that says which one is none; shows no value.
    """
    found = {}
    for number, text in enumerate(env_list(name), start=1):
        header, equals, value = text.partition("=")
        header, value = header.strip(), unquote(value.strip())
        if not equals or not _TOKEN.fullmatch(header) or not value or not value.isascii() or not value.isprintable():
            raise ImproperlyConfigured(f"{name}: header {number} is not of the form name=value")
        found[header] = value
    return found


@_gathered
def env_keys(name: str) -> list[str]:
    """Fernet keys, comma separated. Raises ImproperlyConfigured that says which one is none; shows no key."""
    keys = env_list(name)
    for number, key in enumerate(keys, start=1):
        try:
            Fernet(key)
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name}: key {number} of {len(keys)} is not a Fernet key (32 bytes, URL-safe base64; `python -c"
                ' "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"` makes one)'
            ) from error
    return keys


@_gathered
def env_file(name: str) -> str:
    """The path of a file that can be read, or "". Raises ImproperlyConfigured for anything else."""
    path = env_str(name)
    if path:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ImproperlyConfigured(f"{name}={path!r} cannot be read: {error.strerror}") from error
    return path


@_gathered
def env_hour(name: str, default: str = "") -> str:
    """A time of the day as `HH:MM`, or "" for none. Raises ImproperlyConfigured for anything else."""
    text = env_str(name, default)
    if text:
        try:
            datetime.strptime(text, "%H:%M")
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}={text!r} is not a time of the day such as 03:15") from error
    return text


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where payloads lie as objects. `prefix`: "" or ends with a slash; `endpoint`: "" = that of AWS."""

    name: str
    prefix: str
    endpoint: str
    region: str

    @property
    def shown(self) -> str:
        return f"s3://{self.name}/{self.prefix}" + (f" at {self.endpoint}" if self.endpoint else "")


@_gathered
def env_bucket(name: str) -> Bucket | None:
    """`s3://bucket/prefix?endpoint=URL&region=NAME`, where all but the bucket may be left out; None without a value.

    Raises ImproperlyConfigured for anything else; shows no password.
    """
    text = env_str(name)
    if not text:
        return None
    form = "s3://bucket/prefix?endpoint=https://s3.example.org&region=eu-central-1"
    try:
        parts = urlsplit(text)
        said = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is not of the form {form}") from error
    if "@" in parts.netloc:
        raise ImproperlyConfigured(f"{name} is no place for keys: name them in RMHUB_STORE_ACCESS_KEY and _SECRET_KEY")
    if parts.scheme != "s3" or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc) or parts.fragment:
        raise ImproperlyConfigured(f"{name} is not of the form {form}")
    options = dict(said)
    for option in options:
        if option not in ("endpoint", "region") or len(said) != len(options):
            raise ImproperlyConfigured(f"{name}: {option!r} is not one of endpoint and region, or is there twice")
    endpoint = options.get("endpoint", "").rstrip("/")
    if endpoint and not re.fullmatch(r"https?://[^/\s@?#]+", endpoint):
        raise ImproperlyConfigured(f"{name}: the endpoint is not a URL such as https://s3.example.org, without a path")
    prefix = parts.path.strip("/")
    return Bucket(parts.netloc, f"{prefix}/" if prefix else "", endpoint, options.get("region", ""))


@_gathered
def env_database(name: str, default: str) -> dict[str, Any]:
    """Django's DATABASES entry for a URL. Raises ImproperlyConfigured, as `database_from_url` does."""
    return database_from_url(env_str(name, default))


# What libpq would refuse only when it connects (PostgreSQL documentation, 34.1.2).
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_WRITABLE = ("read-write", "primary")
_SECONDS = ("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")
_TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


def database_from_url(url: str) -> dict[str, Any]:
    """Return Django's DATABASES entry for `postgresql://user:password@host:port/name?parameter=value`.

    libpq's own rules hold: several hosts with their ports, and every parameter that it knows (sslmode,
    target_session_attrs ...; PostgreSQL documentation, 34.1.1). They stand in OPTIONS, where Django hands them on.
    Of several hosts the one that takes writes is meant. Raises ImproperlyConfigured for another scheme (PostgreSQL is
    the only dialect), for parameters that libpq does not know or that lead to a server without writes, for values that
    it would refuse at the first connection, and without a database's name; shows no password.
    """
    scheme = url.partition("://")[0]
    if scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured("DATABASE_URL must begin with postgresql://")
    try:
        found = conninfo.conninfo_to_dict(url)
        ports = [int(port) for port in str(found.get("port") or "5432").split(",") if port]
    except (psycopg.Error, ValueError) as error:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {_without_password(str(error), url)}") from error
    if not found.get("dbname"):
        raise ImproperlyConfigured("DATABASE_URL names no database: postgresql://user:password@host:5432/name")
    if not all(0 < port < 65_536 for port in ports):
        raise ImproperlyConfigured("DATABASE_URL: a port is a number from 1 to 65535")
    wrong = _wrong_hosts(found) or _wrong_value(found)
    if wrong:
        raise ImproperlyConfigured(f"DATABASE_URL: {wrong}")
    several = "," in str(found.get("host") or found.get("hostaddr") or "")
    return {
        "ENGINE": "rmhub.postgresql",
        "NAME": found.pop("dbname"),
        "USER": found.pop("user", ""),
        "PASSWORD": found.pop("password", ""),
        "HOST": found.pop("host", ""),
        "PORT": ",".join(port or "5432" for port in str(found.pop("port", "")).split(",")),
        "OPTIONS": {**({"target_session_attrs": "read-write"} if several else {}), **found},
    }


def _wrong_hosts(found: dict[str, Any]) -> str:
    """What is wrong with the list of servers; "" = nothing."""
    hosts = str(found.get("host") or found.get("hostaddr") or "").split(",")
    ports = str(found.get("port") or "").split(",")
    if len(hosts) > 1 and not all(hosts):
        return "a host between the commas has no name"
    if len(ports) not in (1, len(hosts)):
        return f"{len(hosts)} hosts and {len(ports)} ports: give each host its own, or one port for all"
    wanted = found.get("target_session_attrs")
    if wanted and wanted not in (*_WRITABLE, *(("any",) if len(hosts) == 1 else ())):
        return f"target_session_attrs={wanted}: the hub writes, so it can only be read-write or primary"
    return ""


def _wrong_value(found: dict[str, Any]) -> str:
    """Which parameter has a value that libpq would refuse at the first connection; "" = none."""
    mode = found.get("sslmode")
    if mode is not None and mode not in _SSL_MODES:
        return f"sslmode={mode} is not one of {', '.join(_SSL_MODES)}"
    for name in _SECONDS:
        if name in found and not re.fullmatch(r"[0-9]{1,6}", str(found[name])):
            return f"{name}={found[name]} is not a whole number"
    for name in _TLS_FILES:
        path = found.get(name)
        if path and not (name == "sslrootcert" and path == "system"):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                return f"{name}={path} cannot be read: {error.strerror}"
    return ""


def _without_password(text: str, url: str) -> str:
    """libpq names what it could not read, and that may be the password or hold it."""
    password = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return "it is not a URL as libpq reads it" if password and password in text else text.strip()


@_gathered
def env_roles(name: str, default: str) -> dict[str, str]:
    """Comma-separated `value=role`. Raises ImproperlyConfigured for anything else."""
    found = {}
    for text in env_list(name, default):
        value, _, role = text.rpartition("=")
        if not value or role not in ("viewer", "operator", "admin"):
            raise ImproperlyConfigured(f"{name}: {text!r} is not of the form value=role (viewer, operator or admin)")
        found[value.strip()] = role
    return found


@_gathered
def env_networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Comma-separated networks or addresses. Raises ImproperlyConfigured for anything else."""
    networks = []
    for text in env_list(name):
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {text!r} is not a network such as 192.0.2.0/28 ({error})") from error
    return networks


@_gathered
def env_listen(name: str) -> tuple[str, int] | None:
    """`host:port`, where an IPv6 host stands in brackets and no host means every interface; None without a value."""
    text = env_str(name)
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65_536:
        raise ImproperlyConfigured(f"{name}={text!r} is not host:port, such as 0.0.0.0:25 or [::]:25")
    return host.removeprefix("[").removesuffix("]"), int(port)


def mail_name(host: str) -> str:
    """`host` as a mail server calls itself: a name, or an address in brackets (RFC 5321, 4.1.3)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[IPv6:{address}]" if address.version == 6 else f"[{address}]"
