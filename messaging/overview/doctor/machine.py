"""Checks of this machine, of the broker, and of what is stored."""

from __future__ import annotations

import os
import resource
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import redis
from django.conf import settings

from messaging import dispatch, storage
from messaging.access.services.rekeying import COLUMNS
from messaging.overview.doctor.check import Finding, failed, ok, warning
from messaging.overview.selectors.health import Part, PartState, health, store_part
from messaging.overview.selectors.roles import wrong_with
from messaging.storage import StoreUnavailable
from messaging.storage.folder import Folder
from partners import secrets
from partners.checks import stored_secrets
from rmhub import broker

if TYPE_CHECKING:  # what it needs is loaded by hubs that have a bucket
    from messaging.storage.objects import Objects

OLDEST_BROKER = (6, 2)
FILES = 8192


def configuration() -> Iterator[Finding]:
    """They were all checked when this command began; here is what is allowed and not meant for others to reach."""
    host = urlsplit(settings.RMHUB_PUBLIC_URL).hostname or ""
    loopback = _is_loopback(host)
    if settings.DEBUG:
        yield failed("RMHUB_DEBUG is on: errors show settings and code", "Switch it off.")
    if not loopback and not settings.SECURE:
        yield warning("RMHUB_HTTPS is off, and RMHUB_PUBLIC_URL is not on loopback", "Put the hub behind a TLS proxy.")
    if not loopback and not _is_allowed(host):
        yield failed(f"RMHUB_ALLOWED_HOSTS does not name {host}, the host of RMHUB_PUBLIC_URL", "Add it.")
    if os.geteuid() == 0:
        yield warning("this command runs as root", "Run the hub as a user of its own.")
    yield ok("all settings were read")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_allowed(host: str) -> bool:
    return any(
        known in ("*", host) or (known.startswith(".") and (host.endswith(known) or host == known[1:]))
        for known in settings.ALLOWED_HOSTS
    )


def proxies() -> Iterator[Finding]:
    """Only they are believed when they name a client, and with it its certificate."""
    trusted = settings.RMHUB_TRUSTED_PROXIES
    if any(network.prefixlen == 0 for network in trusted):
        yield failed("RMHUB_TRUSTED_PROXIES names everybody: any client may say who it is", "Name the proxies only.")
    elif settings.SECURE:
        yield ok(f"{', '.join(map(str, trusted))}")
    else:
        yield ok("none is needed without RMHUB_HTTPS" if not trusted else f"{', '.join(map(str, trusted))}")


def wakes() -> Iterator[Finding]:
    """It wakes workers, counts requests, and forgets nothing of that by itself."""
    try:
        found: dict[str, Any] = dispatch.valkey().info()
    except (redis.RedisError, OSError) as error:
        yield failed(
            f"it does not answer: {broker.said(error)}", "Check REDIS_URL. Meanwhile workers look by themselves."
        )
        return
    name = "Valkey" if "valkey_version" in found else "Redis"
    version = str(found.get("valkey_version") or found["redis_version"])
    if tuple(map(int, version.split(".")[:2])) < OLDEST_BROKER:
        yield failed(f"{name} {version} is too old", f"Upgrade it to {'.'.join(map(str, OLDEST_BROKER))} or later.")
    else:
        yield ok(f"{name} {version}")
    policy, most = found.get("maxmemory_policy", "noeviction"), int(found.get("maxmemory", 0))
    if most and policy != "noeviction":
        yield warning(
            f"maxmemory-policy is {policy}: when it is full it drops wake-ups and counts of requests",
            "Set it to noeviction. Nothing is lost by it, but work begins up to two seconds late.",
        )
    elif most and int(found.get("used_memory", 0)) > 0.9 * most:
        yield warning("its memory is nearly full", "Raise maxmemory.")
    else:
        yield ok("nothing is dropped" if most else "its memory is not limited, so nothing is dropped")


def store() -> Iterator[Finding]:
    """Payloads can be written, there is room for them, and they survive a restart."""
    part = store_part()
    place = storage.place()
    if not isinstance(place, Folder):
        yield from _bucket(cast("Objects", place), part)
        return
    folder = place.root
    if part.state is not PartState.OK:
        made = failed if part.state is PartState.DOWN else warning
        yield made(f"{folder}: {part.detail}", "Make room, or name another folder in RMHUB_STORE_DIR.")
        return
    status = os.statvfs(folder)
    if status.f_files and status.f_favail < 1000:
        yield failed(f"{folder} has no inode left for more files", "Make room: each large payload is a file.")
    if _kind(folder) in ("tmpfs", "ramfs"):
        yield failed(f"{folder} is kept in memory: payloads are lost with it", "Name a folder on a disk.")
    else:
        yield ok(f"{folder}, {status.f_bavail * status.f_frsize // 1_000_000_000} GB are free")


def _bucket(place: Objects, part: Part) -> Iterator[Finding]:
    """Of a bucket: that it takes objects, and that it neither shows nor removes them."""
    bucket = place.bucket
    if part.state is not PartState.OK:
        yield failed(
            f"{bucket.shown}: {part.detail}",
            "Check RMHUB_STORE_URL, the keys, and what they allow: put, get, delete and list.",
        )
        return
    try:
        next(place.names(), None)
        expiry = place.expiry()
    except StoreUnavailable as error:
        yield failed(
            f"{bucket.shown} cannot be listed: {error.strerror}", "Allow listing: without it nothing is found."
        )
        return
    endpoint = urlsplit(bucket.endpoint)
    if endpoint.scheme == "http" and not _is_loopback(endpoint.hostname or ""):
        yield warning(f"{bucket.endpoint} is not encrypted: payloads travel in clear", "Use https.")
    if expiry:
        yield failed(
            f"{bucket.shown}: the rule {expiry} removes objects after some time",
            "Payloads are removed by the hub only.",
        )
    else:
        yield ok(f"{bucket.shown} takes and lists objects")


def _kind(folder: Path) -> str:
    """The kind of file system that the folder lies on (proc(5), mounts); "" when that is not known."""
    best, kind = "", ""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        point, found = line.split()[1:3]
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def keys() -> Iterator[Finding]:
    """Every secret that is stored can be read with the present keys."""
    for message in stored_secrets(None, databases=["default"]):
        yield failed(str(message.msg), str(message.hint))
    unreadable: dict[str, int] = {}
    count = 0
    for model, columns in COLUMNS:
        for row in model._default_manager.only("pk", *columns).iterator():
            for stored in (bytes(getattr(row, name)) for name in columns):
                count += bool(stored)
                if stored and not _is_readable(stored):
                    name = str(model._meta.verbose_name)
                    unreadable[name] = unreadable.get(name, 0) + 1
    if unreadable:
        listed = ", ".join(f"{number} of a {name}" for name, number in unreadable.items())
        yield failed(
            f"secrets cannot be decrypted: {listed}",
            "Put the key under which they were stored back into RMHUB_SECRET_KEYS.",
        )
    else:
        yield ok(f"{count} secrets of webhooks, triggers, users and notifications can be read")


def _is_readable(stored: bytes) -> bool:
    try:
        secrets.decrypt(stored)
    except secrets.SecretUnreadable:
        return False
    return True


def workers() -> Iterator[Finding]:
    """They run, and nothing waits for them."""
    (part,) = (part for part in health().parts if part.name == "workers")
    if part.state is PartState.OK:
        yield ok("they run, and nothing is late")
    else:
        yield warning(part.detail, "See the log of the workers, and docs/operations.md, Outages.")


def files() -> Iterator[Finding]:
    """Each connection of the web server is an open file; it raises its limit to what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "without limit" if hard == resource.RLIM_INFINITY else f"{hard} open files a process"
    if hard != resource.RLIM_INFINITY and hard < FILES:
        yield warning(f"{shown}: fewer connections than the web server could take", "systemd: LimitNOFILE=65536.")
    else:
        yield ok(shown)


def zones() -> Iterator[Finding]:
    """People choose theirs."""
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
        yield ok(f"{len(zoneinfo.available_timezones())} time zones are known")
    except zoneinfo.ZoneInfoNotFoundError:
        yield failed(
            "no time zone is known", "Install the packages of requirements.txt (tzdata), or the system's tzdata."
        )


def mail_entrance() -> Iterator[Finding]:
    """Partners reach it, if it is switched on."""
    if settings.RMHUB_SMTP_LISTEN is None:
        yield ok("off (RMHUB_SMTP_LISTEN)")
    elif wrong := wrong_with("mail"):
        yield failed(wrong, "Start manage.py mail; ports below 1024 need CAP_NET_BIND_SERVICE or a redirect.")
    else:
        yield ok("it greets")
