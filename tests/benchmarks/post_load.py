"""Posts 4 KiB again and again over kept connections, as fast as the answers come.

    python -m tests.benchmarks.post_load PORT CONNECTIONS SECONDS

On bare sockets and with a ready-made request, so that it is the server that is measured and not a client library.
Prints one JSON line: requests, seconds, latencies in ms (a sample of them).
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

REQUEST = (
    b"POST /bare HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\nContent-Length: 4096\r\n\r\n"
    + b"x" * 4096
)
GOOD = b"HTTP/1.1 204"


def run(port: int, connections: int, seconds: float) -> dict[str, object]:
    """One request at a time on each connection. Raises RuntimeError for an answer that is not 204."""
    selector = selectors.DefaultSelector()
    begun: dict[int, float] = {}
    for _ in range(connections):
        each = socket.create_connection(("127.0.0.1", port), timeout=10)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(each, selectors.EVENT_READ)
    latencies: list[float] = []
    start = time.perf_counter()
    for key in list(selector.get_map().values()):
        _send(key.fileobj, begun)
    requests = 0
    end = start + seconds
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(timeout=10):
            answer = key.fileobj.recv(65536)  # type: ignore[union-attr]
            if not answer.startswith(GOOD) or not answer.endswith(b"\r\n\r\n"):
                raise RuntimeError(f"the server answered {answer[:200]!r}")
            now = time.perf_counter()
            latencies.append(now - begun[key.fd])
            requests += 1
            _send(key.fileobj, begun)
    taken = time.perf_counter() - start
    step = max(1, len(latencies) // 20_000)
    return {
        "requests": requests,
        "seconds": taken,
        "latencies_ms": [round(value * 1000, 3) for value in sorted(latencies)[::step]],
    }


def _send(connection: object, begun: dict[int, float]) -> None:
    assert isinstance(connection, socket.socket)
    begun[connection.fileno()] = time.perf_counter()
    connection.sendall(REQUEST)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
