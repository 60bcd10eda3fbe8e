"""Looks at a partner's endpoint step by step, as far as it answers: name, connection, TLS, certificate, HTTP, echo.

Nothing of a message goes over the wire; what is sent at most is an HTTP request without a body, a greeting of mail, or
the beginning of SSH. Names and addresses come from the endpoint alone. One time limit holds for all steps together.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from messaging.transports.base import Login, printable, server_of
from messaging.transports.bounded import bounded_pool, time_limit
from messaging.transports.connecting import NotReached, connect, context_for, looking_context
from messaging.transports.http import cause_of, sentence_of, status_cause
from partners import certificates, transports
from partners.transports import HTTP

EXPIRING_DAYS = 30
# Names of steps; a transport's own has the transport's name.
STEPS = (
    *("dns", "tcp", "tls", "certificate", HTTP.name, "echo"),
    *(one.name for one in transports.ALL if one is not HTTP),
    "host_key",
    "ping",
)
_MAX_BODY = 4096
_USER_AGENT = "rmhub"


@dataclass(frozen=True, slots=True)
class Target:
    """What is looked at. `trusted`, `client`: PEM, "" = the machine's, none.

    `echo`: URL of the partner's echo service, "" = it has none. `seconds`: for all of it.
    """

    transport: str
    address: str
    server: str = ""
    host_key: str = ""
    trusted: str = ""
    client: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    login: Login | None = field(default=None, repr=False)
    echo: str = ""
    seconds: float = 20.0


@dataclass(slots=True)
class ProbeStep:
    """One rung. `verdict`: ok, failed, warning, skipped. `cause`: stable code (docs/causes.md) of a failure."""

    name: str
    verdict: str = "ok"
    detail: str = ""
    seconds: float = 0.0
    cause: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON for `ProbeReport.steps`."""
        return {**asdict(self), "seconds": round(self.seconds, 4)}


class Failed(Exception):
    """A rung broke: `cause`, and a sentence."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


@dataclass(slots=True)
class Look:
    """The steps so far, and what is left of the time."""

    target: Target
    now: datetime
    end: float
    steps: list[ProbeStep] = field(default_factory=list)

    @property
    def left(self) -> float:
        return max(0.1, self.end - time.monotonic())

    @contextmanager
    def step(self, name: str) -> Iterator[ProbeStep]:
        """Measures a rung; what breaks it becomes its verdict, and ends the look."""
        made = ProbeStep(name)
        self.steps.append(made)
        begun = time.monotonic()
        try:
            yield made
        except Failed as error:
            made.verdict, made.cause, made.detail = "failed", error.cause, str(error)
            raise
        except NotReached as error:
            made.verdict, made.cause, made.detail = "failed", error.cause, str(error)
            raise Failed(error.cause, str(error)) from error
        except (HTTPError, OSError, ValueError) as error:
            made.cause, _ = cause_of(error)
            made.verdict, made.detail = "failed", sentence_of(error)
            raise Failed(made.cause, made.detail) from error
        finally:
            made.seconds = time.monotonic() - begun

    def skip(self, name: str, why: str) -> None:
        self.steps.append(ProbeStep(name, "skipped", why))


def look(target: Target, now: datetime) -> list[ProbeStep]:
    """All rungs, up to the first that breaks. Never raises for anything that the network can do."""
    found = Look(target, now, time.monotonic() + target.seconds)
    with suppress(Failed):
        if target.transport == HTTP.name:
            _http(found)
        else:
            import_module(f"messaging.transports.{target.transport}").look(found)
    return found.steps


def split(url: str) -> tuple[str, str, int]:
    """(scheme, host, port) of an address. Raises Failed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise Failed("internal_error", f"{printable(url)[:200]} is not an address: {error}") from error
    if not host or not port:
        raise Failed(
            "internal_error", f"{printable(url)[:200]} names no host and port: correct the endpoint's address."
        )
    return parts.scheme, host, port


def reach(found: Look) -> tuple[str, str, socket.socket]:
    """The name, then a connection. Returns scheme, host, and the connection."""
    server = server_of(found.target.address, found.target.server)
    with found.step("dns") as step:
        scheme, host, port = split(server)
        step.facts = {"host": host, "port": port}
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Failed("dns_error", f"{host}: {printable(str(error))[:300]}") from error
        addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        step.facts["addresses"] = addresses[:8]
        step.detail = f"{host} is {', '.join(addresses[:4])}{' …' if len(addresses) > 4 else ''}."
    with found.step("tcp") as step:
        sock = connect(host, port, found.left)
        peer = sock.getpeername()
        step.facts = {"address": str(peer[0]), "port": port}
        step.detail = f"Port {port} of {peer[0]} takes connections."
    return scheme, host, sock


def secure(found: Look, sock: socket.socket, host: str) -> ssl.SSLSocket:
    """TLS with the endpoint's trust. A certificate that is not trusted is still shown."""
    peer = sock_address(sock)
    with found.step("tls") as step:
        try:
            sock.settimeout(found.left)
            secured = context_for(found.target.trusted, found.target.client).wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            cause, _ = cause_of(error)
            sock.close()
            step.detail = error.verify_message or "The certificate is not trusted."
            step.verdict, step.cause = "failed", cause
            step.seconds = 0.0
            found.steps.append(certificate_step(_shown(found, host, peer), found.now, cause))
            raise Failed(cause, step.detail) from error
        except OSError as error:
            sock.close()
            raise error
        cipher = secured.cipher()
        step.facts = {"version": secured.version() or "", "cipher": cipher[0] if cipher else ""}
        step.detail = f"{step.facts['version']}, {step.facts['cipher']}."
    found.steps.append(certificate_step(secured.getpeercert(binary_form=True), found.now))
    return secured


def sock_address(sock: socket.socket) -> tuple[str, int]:
    """The peer's address and port."""
    name = sock.getpeername()
    return str(name[0]), int(name[1])


def _shown(found: Look, host: str, peer: tuple[str, int]) -> bytes | None:
    """The certificate that a server shows although it is not trusted. Nothing is sent over that connection."""
    try:
        with (
            connect(peer[0], peer[1], found.left) as sock,
            looking_context().wrap_socket(sock, server_hostname=host) as secured,
        ):
            return secured.getpeercert(binary_form=True)
    except (OSError, NotReached, ValueError):
        return None


def certificate_step(der: bytes | None, now: datetime, cause: str = "") -> ProbeStep:
    """What a server's certificate says: its dates, for whom, from whom. `cause`: why it is not trusted, "" if it is."""
    step = ProbeStep("certificate")
    if not der:
        step.verdict, step.detail = "skipped", "The server showed no certificate that could be read."
        return step
    try:
        facts = certificates.facts(der)
    except ValueError as error:
        step.verdict, step.detail = "warning", str(error)
        return step
    left = facts.days_left(now)
    step.facts = {
        "subject": facts.subject,
        "issuer": facts.issuer,
        "not_before": facts.not_before.isoformat(),
        "not_after": facts.not_after.isoformat(),
        "sha256": facts.fingerprint,
        "names": list(facts.names)[:10],
        "days_left": left,
    }
    until = f"{facts.not_after:%Y-%m-%d %H:%M} UTC"
    if facts.expired(now):
        step.verdict, step.cause, step.detail = (
            "failed",
            "cert_expired",
            f"{facts.subject}: past its date since {until}.",
        )
    elif facts.not_yet(now):
        step.verdict, step.cause = "failed", "cert_untrusted"
        step.detail = f"{facts.subject}: valid from {facts.not_before:%Y-%m-%d %H:%M} UTC on."
    elif cause:
        step.verdict, step.cause = "failed", cause
        step.facts["pem"] = facts.pem  # so that a person who has compared it can say that it is to be trusted
        step.detail = f"{facts.subject}, from {facts.issuer}, is not among what the hub trusts for this endpoint."
    elif left <= EXPIRING_DAYS:
        step.verdict, step.detail = "warning", f"{facts.subject}: {left} days left, until {until}."
    else:
        step.detail = f"{facts.subject}, from {facts.issuer}, until {until}."
    return step


def _http(found: Look) -> None:
    scheme, host, sock = reach(found)
    if scheme == "https":
        sock = secure(found, sock, host)
    else:
        found.skip("tls", "The address has no TLS: anyone on the network path can read the traffic.")
    sock.close()
    with found.step("http") as step:
        status, _ = _ask(found, "HEAD", found.target.address, authorized=False)
        step.facts = {"status": status}
        step.detail = f"A web server answers: HTTP {status}."
        # 501: it knows no HEAD, which a server that takes posts only need not.
        if status >= 500 and status != 501:
            step.verdict, step.cause = "warning", status_cause(status)
            step.detail = f"The server answers HTTP {status}: it is up, but reports an error."
        elif status in (404, 410):
            step.verdict, step.detail = "warning", f"The server answers HTTP {status}: check the address."
    _echo(found)


def _echo(found: Look) -> None:
    """Whether the partner's service takes our credentials (docs/partner-services.md)."""
    if not found.target.echo:
        found.skip("echo", "The partner has no test service (its address is not set at the endpoint).")
        return
    with found.step("echo") as step:
        status, body = _ask(found, "GET", found.target.echo, authorized=True)
        step.facts = {"status": status, "answer": printable(body.decode("utf-8", "replace"))[:500]}
        if status in (401, 403):
            raise Failed("http_401_403", f"The partner does not take our credentials: HTTP {status}.")
        if not 200 <= status < 300:
            raise Failed(status_cause(status), f"The test service answers HTTP {status}.")
        step.detail = "The partner's messaging service knows us."


def _ask(found: Look, method: str, url: str, *, authorized: bool) -> tuple[int, bytes]:
    """One bounded request without a body, no redirects. Returns status and the beginning of the answer."""
    headers = {"User-Agent": _USER_AGENT}
    if authorized and found.target.authorization:
        headers["Authorization"] = found.target.authorization
    pool = bounded_pool(num_pools=1, maxsize=1, ssl_context=context_for(found.target.trusted, found.target.client))
    try:
        with time_limit(found.left):
            answer = pool.request(
                method,
                url,
                headers=headers,
                redirect=False,
                retries=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=found.left, read=found.left),
            )
            try:
                body = answer.read(_MAX_BODY, decode_content=False) if method != "HEAD" else b""
            finally:
                answer.close()
            return int(answer.status), body
    finally:
        pool.clear()


def line_of(found: Look, sock: socket.socket) -> str:
    """The next line that a server says, at most 512 bytes."""
    data = b""
    while not data.endswith(b"\n") and len(data) < 512:
        # A server that says a little now and then must not keep us for longer than the look may take.
        if time.monotonic() > found.end:
            raise Failed("read_timeout", "The server was too slow with its greeting.")
        sock.settimeout(found.left)
        more = sock.recv(1)
        if not more:
            break
        data += more
    return printable(data.decode("latin-1")).strip()
