"""A hundred partners of the repeatable profile in one process, each a server of its own, one of which can be dead.

    python -m tests.benchmarks.circuit_partners COUNT DELAY_MS

Prints one JSON line with their ports. Then each line of its standard input says what the last one does from now on:
`well` answers like the others, `mute` takes connections and requests and never answers, `blackhole` takes no connection
any more (its queue of connections is full, so that attempts time out). Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nRepeatability-Result: accepted\r\nContent-Length: 2\r\n\r\nok"


class Partner:
    """One server. `mode`: see the module."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.mode = "well"
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)
        self.listener.setblocking(False)
        self.fillers: list[socket.socket] = []
        self.open: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        while True:
            if self.mode == "blackhole":
                await asyncio.sleep(0.05)
                continue
            try:
                connection, _ = await asyncio.wait_for(loop.sock_accept(self.listener), 0.2)
            except TimeoutError:
                continue
            task = asyncio.create_task(self._talk(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _talk(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        self.open.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(length)
                await asyncio.sleep(self.delay)
                while self.mode != "well":
                    await asyncio.sleep(0.05)
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    def become(self, mode: str) -> None:
        self.mode = mode
        for writer in list(self.open):
            writer.close()
        for filler in self.fillers:
            filler.close()
        self.fillers.clear()
        self.listener.listen(0 if mode == "blackhole" else 1024)
        if mode == "blackhole":
            for _ in range(8):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", self.port))
                self.fillers.append(filler)


async def main() -> None:
    count, delay = int(sys.argv[1]), float(sys.argv[2]) / 1000
    partners = [Partner(delay) for _ in range(count)]
    serving = [asyncio.create_task(partner.serve()) for partner in partners]
    print(json.dumps([partner.port for partner in partners]), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        partners[-1].become(line.strip())
        print(json.dumps({"mode": partners[-1].mode}), flush=True)
    for task in serving:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
