"""A bad link between two hubs: an HTTP forwarder that loses, repeats and delays.

    python -m messaging.demo.link --route 9001=127.0.0.1:8001 --route 9000=127.0.0.1:8000 --drop 0.2 --duplicate 0.2

A route leads to one port, or to several in turn (`9001=127.0.0.1:8001,8002`): the machines of one hub.

Half of the losses happen before the request is forwarded, half after (the request arrives, its answer does not), so
that both kinds of ignorance occur. A repeat is forwarded a second time, at the same moment as the first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

_MAX_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests (0 to 1) that are lost or repeated; delay of each way in seconds."""

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """Head and body of one HTTP message with a Content-Length (or none); None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    try:
        return head, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Route:
    """One listening port and where it leads. Connections to the far side are kept and used again."""

    def __init__(self, host: str, ports: Sequence[int], faults: Faults, chance: random.Random) -> None:
        self._host = host
        self._ports = itertools.cycle(ports)
        self._faults = faults
        self._chance = chance
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {port: [] for port in ports}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a sender, request after request."""
        try:
            while (request := await _read_message(reader)) is not None:
                answer = await self._pass_on(b"".join(request))
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _pass_on(self, request: bytes) -> bytes | None:
        """The answer for the sender; None when it is to see a broken connection."""
        lose = self._chance.random() < self._faults.drop
        before = self._chance.random() < 0.5
        repeat = self._chance.random() < self._faults.duplicate
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        if lose and before:
            return None
        copies = [self._forward(request) for _ in range(2 if repeat else 1)]
        answers = await asyncio.gather(*copies)
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        return None if lose else answers[0]

    async def _forward(self, request: bytes) -> bytes | None:
        port = next(self._ports)
        idle = self._idle[port]
        while True:  # kept connections may have been closed meanwhile; a fresh one tells the truth
            kept = bool(idle)
            try:
                reader, writer = idle.pop() if kept else await asyncio.open_connection(self._host, port)
            except OSError:
                return None
            try:
                writer.write(request)
                await writer.drain()
                answer = await _read_message(reader)
            except ConnectionError:
                answer = None
            if answer is not None:
                idle.append((reader, writer))
                return b"".join(answer)
            writer.close()
            if not kept:
                return None


async def run(routes: dict[int, tuple[str, list[int]]], faults: Faults, seed: int) -> None:
    """Serves all routes on 127.0.0.1 until SIGTERM or SIGINT."""
    chance = random.Random(seed)  # noqa: S311  (faults, not secrets)
    servers = [
        await asyncio.start_server(Route(host, ports, faults, chance).serve, "127.0.0.1", listen, limit=_MAX_HEAD)
        for listen, (host, ports) in routes.items()
    ]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--route", action="append", required=True, help="LISTEN_PORT=HOST:PORT[,PORT], once or more")
    parser.add_argument("--drop", type=float, default=0.0)
    parser.add_argument("--duplicate", type=float, default=0.0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    routes = {}
    for route in options.route:
        listen, _, target = route.partition("=")
        host, _, ports = target.rpartition(":")
        routes[int(listen)] = (host, [int(port) for port in ports.split(",")])
    asyncio.run(run(routes, Faults(options.drop, options.duplicate, options.delay_ms / 1000), options.seed))


if __name__ == "__main__":
    main()
