"""A real SFTP server on loopback for tests: paramiko's server side over a folder, one thread a connection.

`SftpServer.calls` lists what clients asked for; `SftpServer.before` may hold hooks by operation ("remove", "rename",
"open", "write" ...): called with the path before it is carried out, and whatever OSError they raise is answered.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
from paramiko import SFTPAttributes, SFTPHandle, SFTPServerInterface
from paramiko.sftp import CMD_EXTENDED, SFTP_OK, SFTP_OP_UNSUPPORTED

from messaging.transports.sftp_connection import fingerprint

USER, PASSWORD = "hub", "a-password-of-the-hub"
HOST_KEY = paramiko.ECDSAKey.generate()


@dataclass(slots=True)
class Rules:
    """How a server behaves."""

    root: Path
    password: str = PASSWORD
    key: paramiko.PKey | None = None  # the client's public key, instead of the password
    posix_rename: bool = True
    swallows: bool = False  # says that it has written the second chunk, and has not
    silent: bool = False  # takes connections and says nothing
    calls: list[tuple[str, str]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    extra_names: list[str] = field(default_factory=list)  # listed as plain files, by a server that lies
    before: dict[str, Callable[[str], None]] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)  # all that were opened

    def note(self, operation: str, path: str) -> None:
        self.calls.append((operation, path))
        if operation in self.before:
            self.before[operation](path)


class _Login(paramiko.ServerInterface):
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def check_auth_password(self, username: str, password: str) -> int:
        self._rules.logins.append(username)
        right = username == USER and self._rules.key is None and password == self._rules.password
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = username == USER and self._rules.key is not None and key == self._rules.key
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey" if self._rules.key is not None else "password"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class _Handle(SFTPHandle):
    rules: Rules
    name: str

    def write(self, offset: int, data: bytes) -> int:
        try:
            self.rules.note("write", self.name)
        except OSError as error:
            return SFTPServerInterface_error(error)
        if self.rules.swallows and offset:
            return SFTP_OK
        return super().write(offset, data)

    def read(self, offset: int, length: int) -> Any:
        try:
            self.rules.note("read", self.name)
        except OSError as error:
            return SFTPServerInterface_error(error)
        return super().read(offset, length)

    def stat(self) -> Any:
        return SFTPAttributes.from_stat(os.fstat((self.readfile or self.writefile).fileno()))


def SFTPServerInterface_error(error: OSError) -> int:
    return paramiko.SFTPServer.convert_errno(error.errno)


def _answered(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: _Files, path: str, *rest: Any) -> Any:
        try:
            self.rules.note(function.__name__, path)
            return function(self, path, *rest)
        except OSError as error:
            return SFTPServerInterface_error(error)

    return wrapped


class _Files(SFTPServerInterface):
    def __init__(self, server: paramiko.ServerInterface, rules: Rules) -> None:
        super().__init__(server)
        self.rules = rules

    def _real(self, path: str) -> Path:
        return self.rules.root / self.canonicalize(path).lstrip("/")

    @_answered
    def list_folder(self, path: str) -> Any:
        found = [SFTPAttributes.from_stat(os.stat(__file__), name) for name in self.rules.extra_names]
        for entry in os.scandir(self._real(path)):
            try:
                found.append(SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name))
            except FileNotFoundError:
                continue  # renamed meanwhile
        return found

    @_answered
    def stat(self, path: str) -> Any:
        return SFTPAttributes.from_stat(os.stat(self._real(path)))

    @_answered
    def lstat(self, path: str) -> Any:
        return SFTPAttributes.from_stat(os.lstat(self._real(path)))

    @_answered
    def open(self, path: str, flags: int, attr: SFTPAttributes) -> Any:
        number = os.open(self._real(path), flags, 0o640)
        file = os.fdopen(number, "rb" if flags & (os.O_WRONLY | os.O_RDWR) == 0 else "wb", buffering=0)
        self.rules.files.append(file)  # a connection that breaks off may leave it open
        handle = _Handle(flags)
        handle.rules, handle.name = self.rules, path
        handle.readfile = handle.writefile = file  # type: ignore[attr-defined]
        return handle

    @_answered
    def remove(self, path: str) -> int:
        os.remove(self._real(path))
        return SFTP_OK

    @_answered
    def rename(self, path: str, target: str) -> int:
        if os.path.lexists(self._real(target)):  # SFTP 3: not onto what is there
            raise FileExistsError(17, "exists")
        os.rename(self._real(path), self._real(target))
        return SFTP_OK

    @_answered
    def posix_rename(self, path: str, target: str) -> int:
        if not self.rules.posix_rename:
            return SFTP_OP_UNSUPPORTED
        os.replace(self._real(path), self._real(target))
        return SFTP_OK

    @_answered
    def mkdir(self, path: str, attr: SFTPAttributes) -> int:
        os.mkdir(self._real(path))
        return SFTP_OK


class SftpServer:
    """Listens from its making to `close`. `rules` may be changed at any time."""

    def __init__(self, root: Path, host_key: paramiko.PKey = HOST_KEY) -> None:
        self.rules = Rules(root)
        self.host_key = fingerprint(host_key)
        self._key = host_key
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: list[Any] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def url(self, folder: str) -> str:
        return f"sftp://127.0.0.1:{self.port}/{folder}/"

    def folder(self, name: str) -> Path:
        found = self.rules.root / name
        found.mkdir(exist_ok=True)
        return found

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            if self.rules.silent:
                continue
            transport = paramiko.Transport(sock)
            self._open.append(transport)
            transport.add_server_key(self._key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files, self.rules)
            try:
                transport.start_server(server=_Login(self.rules), event=threading.Event())
            except (paramiko.SSHException, EOFError):
                transport.close()

    def drop_connections(self) -> None:
        """Breaks off every connection, as a restart of the server does."""
        for one in self._open:
            one.close()
        self._open.clear()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(120)
        self.drop_connections()
        for file in self.rules.files:
            file.close()


__all__ = ["CMD_EXTENDED", "HOST_KEY", "PASSWORD", "USER", "Rules", "SftpServer"]
