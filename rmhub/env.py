"""Settings from the environment: strict, so that a slip fails at start and not at the first message."""

from __future__ import annotations

import ipaddress
import os
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def env_str(name: str, default: str = "") -> str:
    """The variable's text; `NAME_FILE` names a file that holds it (for secrets)."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        return Path(path).read_text().strip()
    return os.environ.get(name, default)


def env_bool(name: str, default: bool = False) -> bool:
    """Raises ImproperlyConfigured for anything but true/false, yes/no, on/off, 1/0."""
    text = os.environ.get(name)
    if text is None:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name}={text!r} is neither true nor false")


def env_int(name: str, default: int, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """Raises ImproperlyConfigured for no whole number, or one out of bounds."""
    text = os.environ.get(name)
    if text is None or text == "":
        return default
    try:
        value = int(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={text!r} is not a whole number") from error
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise ImproperlyConfigured(f"{name}={value} is not between {minimum} and {maximum}")
    return value


def env_list(name: str, default: str = "") -> list[str]:
    """A comma-separated list without blanks."""
    return [item.strip() for item in os.environ.get(name, default).split(",") if item.strip()]


def env_hour(name: str, default: str = "") -> str:
    """A time of the day as `HH:MM`, or "" for none. Raises ImproperlyConfigured for anything else."""
    text = os.environ.get(name, default).strip()
    if text:
        try:
            datetime.strptime(text, "%H:%M")
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}={text!r} is not a time of the day such as 03:15") from error
    return text


def database_from_url(url: str) -> dict[str, object]:
    """Django's DATABASES entry for `postgresql://user:password@host:port/name`.

    Raises ImproperlyConfigured for another scheme: PostgreSQL is the only dialect.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"DATABASE_URL must name PostgreSQL, not {parts.scheme or url!r}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or 5432),
    }


def env_roles(name: str, default: str) -> dict[str, str]:
    """Comma-separated `value=role`. Raises ImproperlyConfigured for anything else."""
    found = {}
    for text in env_list(name, default):
        value, _, role = text.rpartition("=")
        if not value or role not in ("viewer", "operator", "admin"):
            raise ImproperlyConfigured(f"{name}: {text!r} is not of the form value=role (viewer, operator or admin)")
        found[value.strip()] = role
    return found


def env_networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Comma-separated networks or addresses. Raises ImproperlyConfigured for anything else."""
    networks = []
    for text in env_list(name):
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {text!r} is not a network such as 192.0.2.0/28 ({error})") from error
    return networks


def env_listen(name: str) -> tuple[str, int] | None:
    """`host:port`, where an IPv6 host stands in brackets and no host means every interface; None without a value."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65_536:
        raise ImproperlyConfigured(f"{name}={text!r} is not host:port, such as 0.0.0.0:25 or [::]:25")
    return host.removeprefix("[").removesuffix("]"), int(port)


def smtp_name(host: str) -> str:
    """`host` as a mail server calls itself: a name, or an address in brackets (RFC 5321, 4.1.3)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[IPv6:{address}]" if address.version == 6 else f"[{address}]"
