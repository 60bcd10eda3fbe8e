"""HTTP by hand: sockets that send what no client would, as slowly as they like."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


class Caller:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def send(self, octets: bytes | str) -> Caller:
        self.socket.sendall(octets.encode() if isinstance(octets, str) else octets)
        return self

    def head(self, method: str, path: str, *headers: str) -> Caller:
        return self.send("\r\n".join((f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", "")))

    @property
    def was_answered(self) -> bool:
        """Whether something can be read: an answer, or the end."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def answer(self) -> Said:
        """The next answer; ends the connection. Raises ConnectionError when there is none."""
        with self.socket, self.socket.makefile("rb") as file:
            line = file.readline()
            if not line:
                raise ConnectionError("closed without an answer")
            headers = {}
            while (said := file.readline()) not in (b"\r\n", b""):
                name, _, value = said.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            return Said(int(line.split()[1]), headers, file.read(int(headers.get("content-length", "0"))))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


@contextlib.contextmanager
def callers(port: int, count: int) -> Iterator[list[Caller]]:
    """So many connections; all are closed afterwards."""
    made: list[Caller] = []
    try:
        for _ in range(count):
            made.append(Caller(port))
        yield made
    finally:
        for each in made:
            each.close()
