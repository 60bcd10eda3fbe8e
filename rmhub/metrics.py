"""What this process counts about itself, in the OpenMetrics format; what the database knows is `overview.selectors`.

Each process is asked for its own: the web server by `/metrics`, the worker at `RMHUB_METRICS_LISTEN`. So nothing is
shared between processes, and nothing is counted twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from rmhub.postgresql import base as database

log = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_LATEST
WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

REQUESTS = Histogram(
    "rmhub_http_request_seconds",
    "Requests that this web server answered, and how long that took, without the time that their bodies took to come.",
    ("road", "status"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
TALKS = Histogram(
    "rmhub_talk_seconds",
    "What this worker put on the wire, handed to applications or asked for, and how long the other side took.",
    ("work",),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
TRANSMISSIONS = Counter(
    "rmhub_transmissions",
    "Attempts whose outcome this worker recorded.",
    ("kind", "outcome"),
)
GROUPS = Histogram(
    "rmhub_group_size",
    "How much was committed in one transaction.",
    ("work",),
    buckets=(1, 2, 4, 8, 16, 32, 64),
)
SPANS = Counter(
    "rmhub_spans",
    "Spans of traces, by what became of them: taken by the collector, not taken, or dropped because too many waited.",
    ("outcome",),
)

# First segments of paths that have a value of their own: callers cannot make others.
_ROADS = {
    "api": "api",
    "ebxml": "ebxml",
    "exchange": "repeatable",
    "stream": "stream",
    "ws-tx": "wsat",
    "partner": "partner",
    "static": "static",
}
Read = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


class Gauges(Collector):
    """Values that are read when they are asked for: name -> what it is, its labels, and how it is read."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, tuple[str, ...], Read]] = {}

    def add(self, name: str, about: str, labels: tuple[str, ...], read: Read) -> None:
        """Says one more; the same name again replaces it."""
        self._known[name] = (about, labels, read)

    def describe(self) -> Iterator[Metric]:
        yield from (GaugeMetricFamily(name, about, labels=labels) for name, (about, labels, _) in self._known.items())

    def collect(self) -> Iterator[Metric]:
        for name, (about, labels, read) in self._known.items():
            family = GaugeMetricFamily(name, about, labels=labels)
            for values, value in read():
                family.add_metric(values, value)
            yield family


OF_PROCESS = Gauges()
OF_PROCESS.add(
    "rmhub_database_connections",
    "Connections of this process to the database; limit is RMHUB_DB_CONNECTIONS.",
    ("state",),
    lambda: [((state,), float(number)) for state, number in database.usage().items()],
)
REGISTRY.register(OF_PROCESS)


def exposition(*registries: CollectorRegistry) -> bytes:
    """What this process knows, then what `registries` know: one document."""
    parts = [_written(registry).removesuffix(b"# EOF\n") for registry in (REGISTRY, *registries)]
    return b"".join([*parts, b"# EOF\n"])


def _written(registry: CollectorRegistry) -> bytes:
    octets: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return octets


def timed(application: WSGI) -> WSGI:
    """The application, with its requests counted."""

    def measured(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun = time.perf_counter()
        status = "500"

        def start(line: str, *rest: Any) -> Any:
            nonlocal status
            status = line[:3]
            return start_response(line, *rest)

        try:
            return application(environ, start)
        finally:
            first = environ.get("PATH_INFO", "").partition("/")[2].partition("/")[0]
            REQUESTS.labels(_ROADS.get(first, "console"), f"{status[:1]}xx").observe(time.perf_counter() - begun)

    return measured


def serve(listen: tuple[str, int]) -> None:
    """Answers `/metrics` of this process at an address of its own. A port that is taken is said in the log."""
    host, port = listen
    try:
        start_http_server(port, addr=host or "0.0.0.0")  # noqa: S104  (no host means every interface, as elsewhere)
    except OSError as error:
        log.error("metrics are not served", extra={"action": "metrics_refused", "error": str(error)})
