"""Checks of names and servers elsewhere: where this hub is found, and whom it has to reach."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import SplitResult, urlsplit

import urllib3
from django.conf import settings

from messaging.overview.doctor.check import Finding, failed, ok, warning
from partners.models import Endpoint
from partners.transports import mail_server
from rmhub import traces

SECONDS = 10.0
AT_ONCE = 16
DAYS_WARNING, DAYS_FAILED = 30, 3  # until a certificate ends
PORTS = {"http": 80, "https": 443, "sftp": 22, "smtp": 25, "smtp+starttls": 25, "smtps": 465}
_ADVICE = "Check the name in the DNS, and the resolver of this machine."


def _unresolved(host: str) -> str:
    """Why this name has no address; "" when it has one, or is one."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def public_name() -> Iterator[Finding]:
    """Users and partners find this hub by it."""
    host = urlsplit(settings.RMHUB_PUBLIC_URL).hostname or ""
    if wrong := _unresolved(host):
        yield failed(f"{host} of RMHUB_PUBLIC_URL has no address: {wrong}", _ADVICE)
    else:
        yield ok(f"{host} has an address")


def public_certificate() -> Iterator[Finding]:
    """Browsers and partners trust it, for some time yet."""
    parts = urlsplit(settings.RMHUB_PUBLIC_URL)
    if parts.scheme != "https":
        yield ok("RMHUB_PUBLIC_URL is not https")
        return
    host, port = parts.hostname or "", parts.port or 443
    try:
        with (
            socket.create_connection((host, port), timeout=SECONDS) as made,
            ssl.create_default_context().wrap_socket(made, server_hostname=host) as secured,
        ):
            certificate = secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        yield failed(f"the certificate of {host}:{port} is not valid: {error.verify_message}", "Renew or replace it.")
        return
    except OSError as error:
        yield failed(f"{host}:{port} cannot be reached by TLS: {error.strerror or error}", "Check the TLS proxy.")
        return
    ends = str(certificate["notAfter"])
    days = int((ssl.cert_time_to_seconds(ends) - time.time()) // 86_400)
    text = f"the certificate of {host}:{port} ends in {days} days ({ends})"
    if days < DAYS_FAILED:
        yield failed(text, "Renew it now.")
    elif days < DAYS_WARNING:
        yield warning(text, "Renew it.")
    else:
        yield ok(text)


def public_answer() -> Iterator[Finding]:
    """What answers there is this hub."""
    url = f"{settings.RMHUB_PUBLIC_URL}/api/v1/health"
    advice = "Start the web server; check the proxy before it, and RMHUB_PUBLIC_URL."
    try:
        answer = urllib3.request("GET", url, retries=False, timeout=SECONDS, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        yield failed(f"nobody answers at {url}: {str(error).rpartition(': ')[2]}", advice)
        return
    try:
        found = json.loads(answer.data)
        name = found.get("name") if answer.status == 200 else found.get("code")
    except (ValueError, AttributeError):
        name = None
    if answer.status == 503 and name == "unhealthy":
        yield failed(f"the hub answers at {url} that it can take nothing", "See the other checks.")
    elif answer.status != 200 or name is None:
        yield failed(f"{url} answers {answer.status}, and not as a hub does", advice)
    elif name != settings.RMHUB_NAME:
        yield failed(f"{url} is the hub {name!r}, not {settings.RMHUB_NAME!r}", advice)
    else:
        yield ok(f"this hub answers at {url}")


def mail_servers() -> Iterator[Finding]:
    """They greet; nothing is sent."""
    urls = {
        name: getattr(settings, name) for name in ("RMHUB_SMTP_RELAY", "RMHUB_MAIL_SERVER") if getattr(settings, name)
    }
    if not urls:
        yield ok("none is set (RMHUB_MAIL_SERVER, RMHUB_SMTP_RELAY)")
    for name, url in urls.items():
        server = mail_server(url)
        at = f"{server.host}:{server.port}"
        try:
            with closing(_connected(server.host, server.port, tls=server.tls)) as made:
                greeting = made.recv(512)
        except OSError as error:
            yield failed(
                f"{at} ({name}) cannot be reached: {error.strerror or error}", "Check the name and the firewall."
            )
            continue
        if greeting.startswith(b"220"):
            yield ok(f"{at} ({name}) greets")
        else:
            yield failed(f"{at} ({name}) does not greet as a mail server", f"Check {name}.")


def collector() -> Iterator[Finding]:
    """It takes spans; it is given none."""
    if not settings.RMHUB_TRACES_URL:
        yield ok("none is set (RMHUB_TRACES_URL)")
        return
    url = traces.endpoint()
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2], query="").geturl()
    headers = {"Content-Type": "application/x-protobuf", **settings.RMHUB_TRACES_HEADERS}
    try:
        answer = urllib3.request("POST", url, body=b"", headers=headers, retries=False, timeout=SECONDS, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        yield warning(
            f"nobody answers at {shown}: {str(error).rpartition(': ')[2]}", "Check RMHUB_TRACES_URL; messages go on."
        )
        return
    if answer.status == 200:
        yield ok(f"{shown} takes spans")
    else:
        yield warning(f"{shown} answers {answer.status}", "Check RMHUB_TRACES_URL and RMHUB_TRACES_HEADERS.")


def _connected(host: str, port: int, *, tls: bool) -> socket.socket:
    made = socket.create_connection((host, port), timeout=SECONDS)
    if not tls:
        return made
    try:
        return ssl.create_default_context().wrap_socket(made, server_hostname=host)
    except BaseException:
        made.close()
        raise


def partner_names() -> Iterator[Finding]:
    """The servers of partners have addresses. Only names are asked for, and nobody is sent anything."""
    hosts = sorted({host for host, _ in _servers()})
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = {host: wrong for host, wrong in zip(hosts, threads.map(_unresolved, hosts), strict=True) if wrong}
    for host, wrong in found.items():
        yield warning(f"{host} has no address: {wrong}", "Check the endpoint, or ask the partner.")
    if not found:
        yield ok(f"{len(hosts)} names of partners' servers have an address")


def partner_servers() -> Iterator[Finding]:
    """The servers of partners accept a connection, which is closed at once."""
    servers = sorted(_servers())
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = dict(zip(servers, threads.map(_refused, servers), strict=True))
    for (host, port), wrong in found.items():
        if wrong:
            yield warning(f"{host}:{port} cannot be reached: {wrong}", "Ask the partner; check the firewall.")
    if not any(found.values()):
        yield ok(f"{len(servers)} servers of partners accept a connection")


def _refused(server: tuple[str, int]) -> str:
    try:
        socket.create_connection(server, timeout=SECONDS).close()
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _servers() -> Iterable[tuple[str, int]]:
    """Host and port of each server to which messages go."""
    found = set()
    for endpoint in Endpoint.objects.filter(party__is_own=False).only("uri", "address", "server", "transport"):
        parts = _split(endpoint.server or endpoint.address or endpoint.uri)
        # Mail without a server of its own goes by the relay, which has a check of its own.
        if parts is not None and parts.hostname:
            found.add((parts.hostname, parts.port or PORTS[parts.scheme]))
    return found


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
        return parts if parts.scheme in PORTS else None
    except ValueError:
        return None
