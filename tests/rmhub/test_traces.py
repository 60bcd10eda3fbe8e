"""Spans on their way to a collector: which, whose, how many at most; and nothing at all where none is named."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rmhub import clock, metrics, traces
from rmhub.hubs import BASE
from rmhub.ids import uuid7
from rmhub.traces import Kind
from tests.rmhub.collector import Collector, collecting

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # the example of W3C Trace Context, 3.2


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    with collecting() as made:
        settings.RMHUB_TRACES_URL = made.url
        yield made
        traces.close()


def counted(outcome: str) -> float:
    return float(metrics.REGISTRY.get_sample_value("rmhub_spans_total", {"outcome": outcome}) or 0)


def tell(number: int = 1) -> None:
    for _ in range(number):
        key = uuid7()
        tracing = traces.of(key)
        assert tracing is not None
        tracing.happened("submit", key, Kind.PRODUCER, {}, began=clock.now(), is_root=True)


def test_spans_of_two_processes_make_one_trace_with_the_id_of_the_message(collector: Collector) -> None:
    key = uuid7()
    tracing = traces.of(key)
    assert tracing is not None
    tracing.happened("submit", key, Kind.PRODUCER, {"size": 7}, began=clock.now(), is_root=True, led_by=FOREIGN)
    traces.close()  # the process that took it is gone
    again = traces.of(key)
    assert again is not None and again is not tracing
    with again.span("send", key, Kind.CLIENT, {}):
        current = traces.current()
    assert traces.current() == ""
    traces.close()
    submit, send = collector.spans
    assert (submit.trace, submit.parent, submit.attributes) == (key.hex, "", {"size": 7})
    assert (send.trace, send.parent, send.traceparent) == (key.hex, submit.span, current)
    assert submit.traceparent == traces.root(key)
    # Whoever sends us something does not say what our traces are: it is linked to.
    assert submit.links == (("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),)
    traces.close()


def test_a_request_of_an_application_is_in_its_trace_and_leads_to_that_of_the_message(collector: Collector) -> None:
    key, tracing = uuid7(), traces.active()
    assert tracing is not None
    with tracing.joined(FOREIGN, "POST /messages", {}):
        traces.refer(key)
    for unknown in ("", "nonsense", FOREIGN[:-2] + "00", "00-" + "0" * 32 + FOREIGN[35:]):
        with tracing.joined(unknown, "POST /messages", {}) as span:
            assert span is None and traces.current() == ""
    traces.close()
    [request] = collector.spans
    assert (request.trace, request.parent) == tuple(FOREIGN.split("-")[1:3])
    assert request.links == ((key.hex, f"{traces.root_span(key):016x}"),)


def test_what_fails_is_said_without_its_text_and_what_comes_again_is_not_told(collector: Collector) -> None:
    class Again(BaseException):
        pass

    key = uuid7()
    tracing = traces.of(key)
    assert tracing is not None
    with pytest.raises(ValueError, match="secret"), tracing.span("deliver", key, Kind.CLIENT, {}):
        raise ValueError("secret")
    with pytest.raises(Again), tracing.span("deliver", key, Kind.CLIENT, {}):
        raise Again
    traces.close()
    [span] = collector.spans
    assert span.failed and span.attributes == {"error.type": "ValueError"}
    assert b"secret" not in b"".join(collector.bodies)


def test_every_process_chooses_the_same_share(collector: Collector, settings: Any) -> None:
    """Also of ids that are made within one millisecond, and so may follow each other."""
    keys = [uuid7() for _ in range(1000)]
    settings.RMHUB_TRACES_SHARE = 0.1
    chosen = [key for key in keys if traces.of(key) is not None]
    assert 40 < len(chosen) < 180
    assert [key for key in keys if traces.root(key)] == chosen
    for key in keys:
        if (tracing := traces.of(key)) is not None:
            tracing.happened("submit", key, Kind.PRODUCER, {}, began=clock.now(), is_root=True)
    traces.close()
    assert {span.trace for span in collector.spans} == {key.hex for key in chosen}
    settings.RMHUB_TRACES_SHARE = 0.0
    assert not any(traces.of(key) for key in keys)


def test_the_collector_is_told_who_we_are_at_the_path_of_otlp(collector: Collector, settings: Any) -> None:
    settings.RMHUB_TRACES_HEADERS = {"Authorization": "Bearer token"}
    settings.RMHUB_NAME = "Acme"
    tell()
    traces.close()
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["authorization"] == "Bearer token"
    said = {one.key: one.value.string_value for one in collector.requests[0].resource_spans[0].resource.attributes}
    assert (said["service.name"], said["service.namespace"]) == ("rmhub", "Acme")
    settings.RMHUB_TRACES_URL = f"{collector.url}/otlp"
    tell()
    traces.close()
    assert collector.paths[1:] == ["/otlp"]


def test_spans_beyond_the_queue_are_dropped_and_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmhub.traces import otlp

    monkeypatch.setattr(otlp, "QUEUE", 20)
    monkeypatch.setattr(otlp, "BATCH", 5)
    collector.opened.clear()  # it takes the first batch, and does not answer
    dropped, exported = counted("dropped"), counted("exported")
    tell(50)
    assert counted("dropped") - dropped == 30
    collector.opened.set()
    traces.close()
    assert counted("exported") - exported == len(collector.spans) == 20


@pytest.mark.parametrize("status", [400, None])
def test_a_collector_that_takes_nothing_changes_nothing_and_is_said_once(
    collector: Collector,
    status: int | None,
    settings: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rmhub.traces import otlp

    monkeypatch.setattr(otlp, "EXPORT_SECONDS", 0.5)  # less than until a second try
    if status is None:
        settings.RMHUB_TRACES_URL = "http://127.0.0.1:1"
    else:
        collector.status = status
    failed = counted("failed")
    with caplog.at_level(logging.WARNING, "rmhub.traces.otlp"):
        tell(3)
        traces.close()
    assert counted("failed") - failed == 3
    assert [record.action for record in caplog.records if record.name.startswith("rmhub")] == ["spans_not_taken"]


NOTHING = """
import django, sys
django.setup()
import messaging.tasks, rmhub.asgi, messaging.management.commands.mail
from messaging import tracing
from messaging.claim import Job, JobKind
from messaging.engine import kinds
from messaging.transports import Parcel
from rmhub import traces
from rmhub.ids import uuid7
key = uuid7()
job = Job(JobKind.PAIR, key, "http", Parcel("http://127.0.0.1:1/", "text/plain", b""), key, message_id=key)
kinds.circuits.admit = lambda job: None
assert kinds.talk(job).cause == "connect_refused"
assert traces.root(key) == traces.current() == traces.given({"HTTP_TRACEPARENT": "x"}) == "" and not traces.headers()
# What the Redis client imports where it is installed: the interface of metrics, of which it uses nothing.
ours = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto", "rmhub.traces.")
print([name for name in sys.modules if name.startswith(ours)])
"""


def test_without_a_collector_nothing_of_tracing_is_imported() -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("RMHUB_TRACES", "OTEL_"))}
    ended = subprocess.run(
        [sys.executable, "-c", NOTHING],
        cwd=BASE,
        env={**environment, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["[]"]), ended.stderr
