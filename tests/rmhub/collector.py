"""A collector of traces on loopback: takes what comes by OTLP over HTTP, read by OpenTelemetry's own classes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Told:
    """One span. Ids are hexadecimal; `parent` "" = the first of its trace. `links`: (trace, span) each."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, str | int]
    failed: bool
    began: int
    ended: int

    @property
    def operation(self) -> str:
        """Without what it is about."""
        return self.name.split(" ")[0]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.span}-01"


@dataclass(slots=True)
class Collector:
    """`status`: what it answers. `opened`: it answers nothing before this is set."""

    url: str = ""
    status: int = 200
    opened: threading.Event = field(default_factory=threading.Event)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Told]:
        """All that have come, in the order in which they began."""
        found = [
            Told(
                name=span.name,
                kind=span.kind,
                trace=span.trace_id.hex(),
                span=span.span_id.hex(),
                parent=span.parent_span_id.hex(),
                links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                attributes={one.key: one.value.string_value or one.value.int_value for one in span.attributes},
                failed=span.status.code == span.status.STATUS_CODE_ERROR,
                began=span.start_time_unix_nano,
                ended=span.end_time_unix_nano,
            )
            for request in self.requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        return sorted(found, key=lambda span: span.began)

    def of(self, operation: str) -> Told:
        """The only span of an operation."""
        [found] = [span for span in self.spans if span.operation == operation]
        return found


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that takes everything."""
    made = Collector()
    made.opened.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.opened.wait()
            made.paths.append(self.path)
            made.headers.append({name.lower(): value for name, value in self.headers.items()})
            made.bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        made.opened.set()
        server.shutdown()
        server.server_close()
        thread.join()
