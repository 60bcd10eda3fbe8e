"""Posts 4 KiB again and again over kept connections, as fast as the answers come.

    python -m tests.benchmarks.post_load PORT CONNECTIONS SECONDS [PATH AUTHORIZATION]

On bare sockets, so that it is the server that is measured and not a client library. With a path each post is a
repeatable request (spec 2) with an id of its own, first sent now. Prints one JSON line: requests, seconds, latencies in
ms (a sample of them).
"""

from __future__ import annotations

import email.utils
import json
import selectors
import socket
import sys
import time
import uuid

BODY = b"x" * 4096


def run(port: int, connections: int, seconds: float, path: str = "", authorization: str = "") -> dict[str, object]:
    """One request at a time on each connection. Raises RuntimeError for an answer that is not 202 or 204."""
    selector = selectors.DefaultSelector()
    begun: dict[int, float] = {}
    for _ in range(connections):
        each = socket.create_connection(("127.0.0.1", port), timeout=10)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(each, selectors.EVENT_READ)

    def send(connection: object) -> None:
        assert isinstance(connection, socket.socket)
        begun[connection.fileno()] = time.perf_counter()
        connection.sendall(_request(path, authorization))

    latencies: list[float] = []
    start = time.perf_counter()
    for key in list(selector.get_map().values()):
        send(key.fileobj)
    requests = 0
    end = start + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(timeout=10):
            answer = key.fileobj.recv(65536)  # type: ignore[union-attr]
            if not answer.startswith((b"HTTP/1.1 202", b"HTTP/1.1 204")):
                raise RuntimeError(f"the server answered {answer[:400]!r}")
            latencies.append(time.perf_counter() - begun[key.fd])
            requests += 1
            send(key.fileobj)
    taken = time.perf_counter() - start
    step = max(1, len(latencies) // 20_000)
    return {
        "requests": requests,
        "seconds": taken,
        "latencies_ms": [round(value * 1000, 3) for value in sorted(latencies)[::step]],
    }


def _request(path: str, authorization: str) -> bytes:
    lines = [f"POST {path or '/bare'} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(BODY)}"]
    if path:
        lines += [
            "Content-Type: application/xml",
            f"Authorization: {authorization}",
            f"Repeatability-Request-ID: {uuid.uuid4()}",
            f"Repeatability-First-Sent: {email.utils.formatdate(usegmt=True)}",
            "RM-Service: urn:bench:documents",
            "RM-Action: Send",
        ]
    else:
        lines.append("Content-Type: application/octet-stream")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + BODY


if __name__ == "__main__":
    port, connections, seconds, *secured = sys.argv[1:]
    print(json.dumps(run(int(port), int(connections), float(seconds), *secured)))
