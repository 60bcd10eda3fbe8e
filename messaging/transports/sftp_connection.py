"""Connections to SFTP servers: the server's key is pinned, everything has a time limit, and idle ones are kept a while.

paramiko waits without a limit in some places (opening the subsystem), so a connection that is set up is closed from
outside when its time is over.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import paramiko

from messaging.transports.base import Login, printable

DEFAULT_PORT = 22
IDLE_SECONDS = 30.0  # a kept connection is closed after so long without use
MOST_IDLE = 2  # kept for one server and log-in
_KEYS: tuple[type[paramiko.PKey], ...] = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)


class Trouble(Exception):
    """What a server or the network did. `cause`: stable code; `permanent`: another try is not likely to help."""

    def __init__(self, cause: str, detail: str, *, permanent: bool = False) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = printable(detail)[:500]
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Place:
    """Where files lie. `folder`: absolute, or relative to the log-in's own directory (`/~/` in the URL)."""

    host: str
    port: int
    folder: str

    def path(self, name: str) -> str:
        """The path of a file or folder in it."""
        return f"{self.folder.rstrip('/')}/{name}" if self.folder != "/" else f"/{name}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server, how it is known, and who we are there."""

    host: str
    port: int
    host_key: str
    login: Login


@dataclass(slots=True)
class Session:
    """An open connection. `sftp`: paramiko's client, whose operations end within what `limit` allows."""

    transport: paramiko.Transport
    sftp: paramiko.SFTPClient
    fresh: bool = True
    used_at: float = field(default_factory=time.monotonic)

    def limit(self, seconds: float) -> None:
        """How long the next operations may take, each. Raises TimeoutError when nothing is left."""
        if seconds <= 0:
            raise TimeoutError("timed out")
        self.sftp.get_channel().settimeout(seconds)

    def close(self) -> None:
        """Never raises."""
        with suppress(Exception):
            self.transport.close()


def place_of(url: str, server: str = "") -> Place:
    """Host, port and folder of sftp://host:port/folder/; `server` (sftp://host:port) replaces the first two.

    Raises Trouble for what is no such URL: it was checked on entry, so that only old data has it.
    """
    try:
        parts = urlsplit(url)
        at = urlsplit(server) if server else parts
        host, port = at.hostname, at.port or DEFAULT_PORT
    except ValueError as error:
        raise Trouble("internal_error", f"{url} is not an address: {error}", permanent=True) from error
    folder = unquote(parts.path) or "/"
    if parts.scheme != "sftp" or at.scheme != "sftp" or not host or ".." in folder.split("/") or "\x00" in folder:
        raise Trouble("internal_error", f"{url} is not an address of a folder on an SFTP server.", permanent=True)
    if folder.startswith("/~/"):
        folder = folder[3:] or "."
    return Place(host, port, folder.rstrip("/") or folder[:1])


def fingerprint(key: paramiko.PKey) -> str:
    """As `ssh-keygen -l` prints it: SHA256: and base64 without padding."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


def pinned(host_key: str) -> frozenset[str]:
    """The fingerprints that a server may show: one, or several while a key is replaced."""
    return frozenset(re.split(r"[\s,]+", host_key.strip())) - {""}


class _Kept:
    """Idle connections by server. Closed by the next user of any connection once they are too old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Server, list[Session]] = {}

    def take(self, server: Server) -> Session | None:
        """A connection that was used before and still stands, or None."""
        stale: list[Session] = []
        found: Session | None = None
        edge = time.monotonic() - IDLE_SECONDS
        with self._lock:
            for key in list(self._idle):
                live = [one for one in self._idle[key] if one.used_at >= edge and one.transport.is_active()]
                stale += [one for one in self._idle[key] if one not in live]
                if key == server and live:
                    found = live.pop()
                if live:
                    self._idle[key] = live
                else:
                    del self._idle[key]
        for one in stale:
            one.close()
        return found

    def give_back(self, server: Server, session: Session) -> None:
        session.used_at = time.monotonic()
        session.fresh = False
        with self._lock:
            idle = self._idle.setdefault(server, [])
            if len(idle) < MOST_IDLE and session.transport.is_active():
                idle.append(session)
                return
        session.close()

    def close(self) -> None:
        with self._lock:
            sessions = [one for idle in self._idle.values() for one in idle]
            self._idle.clear()
        for one in sessions:
            one.close()


_kept = _Kept()


def close_idle() -> None:
    """Closes the connections that nobody uses right now."""
    _kept.close()


@contextmanager
def session(
    server: Server, *, connect_timeout: float, read_timeout: float, within: float, new: bool = False
) -> Iterator[Session]:
    """A connection, kept for the next user unless something went wrong on it. `new`: not one that was used before.

    After `within` seconds it is cut off, whatever goes on: single time limits do not stop a server that sends a byte
    now and then. Raises Trouble; what paramiko and the socket raise inside of it comes out as Trouble too.
    """
    open_session: Session | None = None
    over = threading.Event()
    watchdog: threading.Timer | None = None
    until = time.monotonic() + within
    try:
        open_session = None if new else _kept.take(server)
        if open_session is None:
            open_session = _connect(server, connect_timeout, read_timeout)
        watchdog = _cut_off(open_session, until - time.monotonic(), over)
        yield open_session
    except Trouble as trouble:
        if open_session is not None:
            # What the server said in good order leaves the connection as it is.
            _after(server, open_session, sound=trouble.cause in _ORDERLY)
        raise
    except _NETWORK as error:
        found = Trouble("read_timeout", f"Not done within {within:.0f} s.") if over.is_set() else trouble_of(error)
        if open_session is not None:
            _after(server, open_session, sound=found.cause in _ORDERLY)
        raise found from error
    except BaseException:
        if open_session is not None:
            open_session.close()
        raise
    else:
        _after(server, open_session, sound=not over.is_set())
    finally:
        if watchdog is not None:
            watchdog.cancel()


def _cut_off(open_session: Session, seconds: float, over: threading.Event) -> threading.Timer:
    """Closes the connection after so many seconds, unless it is cancelled before."""

    def cut() -> None:
        over.set()
        open_session.close()

    watchdog = threading.Timer(max(seconds, 0.0), cut)
    watchdog.daemon = True
    watchdog.start()
    return watchdog


_NETWORK = (OSError, EOFError, paramiko.SSHException)
_ORDERLY = ("folder_missing", "folder_closed")


def _after(server: Server, used: Session, *, sound: bool) -> None:
    if sound:
        _kept.give_back(server, used)
    else:
        used.close()


def trouble_of(error: BaseException) -> Trouble:
    """What an exception of paramiko or of the socket means."""
    text = str(error) or type(error).__name__
    if isinstance(error, Trouble):
        return error
    if isinstance(error, socket.gaierror):
        return Trouble("dns_error", text)
    if isinstance(error, ConnectionRefusedError):
        return Trouble("connect_refused", text)
    if isinstance(error, TimeoutError):
        return Trouble("read_timeout", "No answer in time.")
    if isinstance(error, OSError) and error.errno == errno.ENOENT:
        return Trouble("folder_missing", f"The server says: {text}", permanent=True)
    if isinstance(error, OSError) and error.errno == errno.EACCES:
        return Trouble("folder_closed", f"The server says: {text}", permanent=True)
    # paramiko says "Socket is closed" in the same way as it hands on SFTP's own "Failure" (a full disk, for instance).
    if isinstance(error, OSError) and error.errno is None and "closed" not in text:
        return Trouble("file_failed", f"The server says: {text}")
    return Trouble("connection_reset", text)


def _connect(server: Server, connect_timeout: float, read_timeout: float) -> Session:
    """A connection that is set up within both times. Raises Trouble, and what `_NETWORK` names."""
    known = pinned(server.host_key)
    if not known:
        raise Trouble(
            "host_key_missing", f"No host key is known for {server.host}, so nothing is sent there.", permanent=True
        )
    key = _private_key(server.login) if server.login.is_key else None
    sock = _socket(server.host, server.port, connect_timeout)
    limit = connect_timeout + read_timeout
    transport = paramiko.Transport(sock)
    transport.banner_timeout = transport.auth_timeout = transport.channel_timeout = limit
    watchdog = threading.Timer(limit, transport.close)
    watchdog.daemon = True
    watchdog.start()
    began = time.monotonic()
    try:
        transport.start_client(timeout=limit)
        shown = fingerprint(transport.get_remote_server_key())
        if shown not in known:
            name = transport.get_remote_server_key().get_name()
            raise Trouble(
                "host_key_mismatch",
                f"{server.host} shows the key {shown} ({name}); known are {', '.join(sorted(known))}.",
                permanent=True,
            )
        if key is not None:
            transport.auth_publickey(server.login.username, key)
        else:
            transport.auth_password(server.login.username, server.login.secret)
        if not transport.is_authenticated():
            raise Trouble("login_refused", f"{server.host} wants a further proof of identity.", permanent=True)
        client = paramiko.SFTPClient.from_transport(transport)
        if client is None:
            raise Trouble("login_refused", f"{server.host} offers no file transfer (SFTP).", permanent=True)
        client.get_channel().settimeout(read_timeout)
        return Session(transport, client)
    except paramiko.AuthenticationException as error:
        transport.close()
        if time.monotonic() - began >= limit:
            raise Trouble("read_timeout", "No answer in time.") from error
        raise Trouble(
            "login_refused", f"{server.host} refuses the log-in of {server.login.username!r}: {error}", permanent=True
        ) from error
    except BaseException as error:
        transport.close()
        if isinstance(error, _NETWORK) and time.monotonic() - began >= limit:
            raise Trouble("read_timeout", "No answer in time.") from error
        raise
    finally:
        watchdog.cancel()


def _socket(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the first address of the host that answers; all attempts together within `seconds`."""
    until = time.monotonic() + seconds
    last: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        left = until - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left)
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            last = error
    if isinstance(last, ConnectionError):
        raise last
    raise Trouble("connect_timeout", f"{host}:{port} does not answer: {last or 'timed out'}")


def _private_key(login: Login) -> paramiko.PKey:
    """The key of a log-in, which was checked when it was entered."""
    for kind in _KEYS:
        try:
            return kind.from_private_key(io.StringIO(login.secret))
        except (paramiko.SSHException, ValueError, IndexError):
            continue
    raise Trouble("login_refused", "The private key that is stored cannot be read: store it again.", permanent=True)
