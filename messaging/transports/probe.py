"""Looks at a partner's endpoint step by step, as far as it answers: name, connection, TLS, certificate, HTTP, echo.

Nothing of a message goes over the wire; what is sent at most is an HTTP request without a body, a greeting of mail, or
the beginning of SSH. Names and addresses come from the endpoint alone. One time limit holds for all steps together.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from messaging.transports.base import Login, printable, server_of
from messaging.transports.bounded import bounded_pool, time_limit
from messaging.transports.connecting import NotReached, connect, context_for, looking_context
from messaging.transports.http import cause_of, sentence_of, status_cause
from partners import certificates

EXPIRING_DAYS = 30
_MAX_BODY = 4096
_USER_AGENT = "rmhub"


@dataclass(frozen=True, slots=True)
class Target:
    """What is looked at. `transport`: http, smtp or sftp. `trusted`, `client`: PEM, "" = the machine's, none.

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


class _Failed(Exception):
    """A rung broke: `cause`, and a sentence."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


@dataclass(slots=True)
class _Look:
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
        except _Failed as error:
            made.verdict, made.cause, made.detail = "failed", error.cause, str(error)
            raise
        except NotReached as error:
            made.verdict, made.cause, made.detail = "failed", error.cause, str(error)
            raise _Failed(error.cause, str(error)) from error
        except (HTTPError, OSError, ValueError) as error:
            made.cause, _ = cause_of(error)
            made.verdict, made.detail = "failed", sentence_of(error)
            raise _Failed(made.cause, made.detail) from error
        finally:
            made.seconds = time.monotonic() - begun

    def skip(self, name: str, why: str) -> None:
        self.steps.append(ProbeStep(name, "skipped", why))


def look(target: Target, now: datetime) -> list[ProbeStep]:
    """All rungs, up to the first that breaks. Never raises for anything that the network can do."""
    found = _Look(target, now, time.monotonic() + target.seconds)
    with suppress(_Failed):
        _LOOKS[target.transport](found)
    return found.steps


def _split(url: str) -> tuple[str, str, int]:
    """(scheme, host, port) of an address. Raises _Failed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise _Failed("internal_error", f"{printable(url)[:200]} is not an address: {error}") from error
    if not host or not port:
        raise _Failed(
            "internal_error", f"{printable(url)[:200]} names no host and port: correct the endpoint's address."
        )
    return parts.scheme, host, port


def _reach(found: _Look) -> tuple[str, str, socket.socket]:
    """The name, then a connection. Returns scheme, host, and the connection."""
    server = server_of(found.target.address, found.target.server)
    with found.step("dns") as step:
        scheme, host, port = _split(server)
        step.facts = {"host": host, "port": port}
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _Failed("dns_error", f"{host}: {printable(str(error))[:300]}") from error
        addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
        step.facts["addresses"] = addresses[:8]
        step.detail = f"{host} is {', '.join(addresses[:4])}{' …' if len(addresses) > 4 else ''}."
    with found.step("tcp") as step:
        sock = connect(host, port, found.left)
        peer = sock.getpeername()
        step.facts = {"address": str(peer[0]), "port": port}
        step.detail = f"Port {port} of {peer[0]} takes connections."
    return scheme, host, sock


def _tls(found: _Look, sock: socket.socket, host: str) -> ssl.SSLSocket:
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
            raise _Failed(cause, step.detail) from error
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


def _shown(found: _Look, host: str, peer: tuple[str, int]) -> bytes | None:
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
        step.detail = f"{facts.subject}, from {facts.issuer}, is not among what the hub trusts for this endpoint."
    elif left <= EXPIRING_DAYS:
        step.verdict, step.detail = "warning", f"{facts.subject}: {left} days left, until {until}."
    else:
        step.detail = f"{facts.subject}, from {facts.issuer}, until {until}."
    return step


def _http(found: _Look) -> None:
    scheme, host, sock = _reach(found)
    if scheme == "https":
        sock = _tls(found, sock, host)
    else:
        found.skip("tls", "The address has no TLS: whoever is on the way can read along.")
    sock.close()
    with found.step("http") as step:
        status, _ = _ask(found, "HEAD", found.target.address, authorized=False)
        step.facts = {"status": status}
        step.detail = f"A web server answers: HTTP {status}."
        # 501: it knows no HEAD, which a server that takes posts only need not.
        if status >= 500 and status != 501:
            step.verdict, step.cause = "warning", status_cause(status)
            step.detail = f"The server answers HTTP {status}: it is up, and in trouble."
        elif status in (404, 410):
            step.verdict, step.detail = "warning", f"The server answers HTTP {status}: check the address."
    _echo(found)


def _echo(found: _Look) -> None:
    """Whether the partner's service takes our credentials (docs/partner-services.md)."""
    if not found.target.echo:
        found.skip("echo", "The partner has no test service (its address is not set at the endpoint).")
        return
    with found.step("echo") as step:
        status, body = _ask(found, "GET", found.target.echo, authorized=True)
        step.facts = {"status": status, "answer": printable(body.decode("utf-8", "replace"))[:500]}
        if status in (401, 403):
            raise _Failed("http_401_403", f"The partner does not take our credentials: HTTP {status}.")
        if not 200 <= status < 300:
            raise _Failed(status_cause(status), f"The test service answers HTTP {status}.")
        step.detail = "The partner's messaging service knows us."


def _ask(found: _Look, method: str, url: str, *, authorized: bool) -> tuple[int, bytes]:
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


def _smtp(found: _Look) -> None:
    scheme, host, sock = _reach(found)
    if scheme == "smtps":
        sock = _tls(found, sock, host)
    with sock:
        with found.step("smtp") as step:
            greeting = _said(found, sock, "220")
            step.facts = {"greeting": greeting}
            step.detail = f"The mail server greets: {greeting[4:200]}"
            if scheme == "smtp+starttls":
                sock.sendall(b"EHLO rmhub\r\n")
                while _said(found, sock, "250")[3:4] == "-":
                    pass
                sock.sendall(b"STARTTLS\r\n")
                _said(found, sock, "220")
        if scheme == "smtp+starttls":
            _tls(found, sock, host).close()
        elif scheme == "smtp":
            found.skip("tls", "The server's address has no TLS: whoever is on the way can read along.")


def _said(found: _Look, sock: socket.socket, wanted: str) -> str:
    """The mail server's next line. Raises _Failed when it does not begin with the wanted code."""
    line = _line(found, sock)
    if not line.startswith(wanted):
        raise _Failed("smtp_4xx" if line.startswith("4") else "smtp_5xx", f"The mail server says: {line[:200]}")
    return line


def _sftp(found: _Look) -> None:
    _, _, sock = _reach(found)
    with sock, found.step("sftp") as step:
        banner = _line(found, sock)
        step.facts = {"banner": banner}
        if not banner.startswith("SSH-2.0"):
            raise _Failed("connection_reset", f"This is no SSH server; it says: {banner[:200]}")
        step.detail = f"An SSH server answers: {banner[:120]}"
    if not found.target.host_key:
        found.steps.append(
            ProbeStep("host_key", "warning", "The endpoint has no host key: nothing is sent without one.")
        )
        return
    with found.step("host_key") as step:
        shown = _host_key(found)
        step.facts = {"shown": shown, "expected": found.target.host_key}
        if shown != found.target.host_key.strip():
            raise _Failed("host_key_mismatch", f"The server shows {shown}, the endpoint has {found.target.host_key}.")
        step.detail = f"The host key is the agreed one: {shown}."


def _host_key(found: _Look) -> str:
    """The fingerprint of the key that an SSH server shows."""
    # Loaded by whoever needs it, as in `transports._put_file`.
    import paramiko

    from messaging.transports.sftp_connection import fingerprint

    _, host, port = _split(server_of(found.target.address, found.target.server))
    sock = connect(host, port, found.left)
    session = paramiko.Transport(sock)
    try:
        session.start_client(timeout=found.left)
        return fingerprint(session.get_remote_server_key())
    except paramiko.SSHException as error:
        raise _Failed("connection_reset", printable(str(error))[:300]) from error
    finally:
        session.close()


def _line(found: _Look, sock: socket.socket) -> str:
    """The next line that a server says, at most 512 bytes."""
    data = b""
    while not data.endswith(b"\n") and len(data) < 512:
        # A server that says a little now and then must not keep us for longer than the look may take.
        if time.monotonic() > found.end:
            raise _Failed("read_timeout", "The server was too slow with its greeting.")
        sock.settimeout(found.left)
        more = sock.recv(1)
        if not more:
            break
        data += more
    return printable(data.decode("latin-1")).strip()


_LOOKS: dict[str, Callable[[_Look], None]] = {"http": _http, "smtp": _smtp, "sftp": _sftp}
