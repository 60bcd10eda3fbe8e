"""Spans on their way to a collector: OpenTelemetry's SDK, and its exporter for OTLP over HTTP.

Nobody waits for them. They are handed over by a thread of its own, a few seconds later and many at once. What a
collector that is away, or too slow, does not take is dropped and counted (`rmhub_spans_total`).
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util import types

from rmhub import clock, logs, traces
from rmhub.metrics import SPANS
from rmhub.traces import Kind

log = logging.getLogger(__name__)

Attributes = Mapping[str, str | int | bool]

QUEUE = 8192  # spans that wait, or are being handed over; what comes beyond is dropped
BATCH = 512
EVERY_MS = 2000
EXPORT_SECONDS = 5.0  # for one batch, with its repetitions
FLUSH_SECONDS = 3.0  # for what is left when a process ends
_LONGEST = 256  # characters of an attribute
_ROOT = Context()
_KINDS = {kind: SpanKind[kind.name] for kind in Kind}


class Tracing:
    """What takes the spans of this process."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=ParentBased(_Share(settings.RMHUB_TRACES_SHARE)),
            resource=Resource.create(_of_process()),
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(
            endpoint=traces.endpoint(),
            headers=settings.RMHUB_TRACES_HEADERS,
            timeout=EXPORT_SECONDS,
            compression=Compression.Gzip,
        )
        self._provider.add_span_processor(_Bounded(exporter))
        self._tracer = self._provider.get_tracer("rmhub")
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)  # callables of RMHUB_APPS make their own spans below ours
        atexit.register(self.close)

    def close(self) -> None:
        """Hands over what is left, within FLUSH_SECONDS."""
        atexit.unregister(self.close)
        ending = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)

    def current(self) -> str:
        """The `traceparent` of the span that this thread is in; "" without one."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid or not context.trace_flags.sampled:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    @contextmanager
    def span(
        self, name: str, key: uuid.UUID, kind: Kind, attributes: Attributes, *, rooted: bool = True
    ) -> Iterator[Span]:
        """A span in the trace of `key` around what is done in the block, below the trace's first span.

        `rooted`: False: the trace has no such span.
        """
        if rooted:
            made = self._tracer.start_span(name, _below_root(key), _KINDS[kind], attributes)
        else:
            with self._ids.given(key.int, None):
                made = self._tracer.start_span(name, _ROOT, _KINDS[kind], attributes)
        with _inside(made):
            yield made

    @contextmanager
    def joined(self, traceparent: str, name: str, attributes: Attributes) -> Iterator[Span | None]:
        """A span around a request of somebody who may say which trace it belongs to; None when that is not told."""
        parent = _read(traceparent)
        if parent is None or not parent.trace_flags.sampled:
            yield None
            return
        within = trace.set_span_in_context(NonRecordingSpan(parent), _ROOT)
        made = self._tracer.start_span(name, within, SpanKind.SERVER, attributes)
        with _inside(made):
            yield made

    def happened(
        self,
        name: str,
        key: uuid.UUID,
        kind: Kind,
        attributes: Attributes,
        *,
        began: datetime,
        is_root: bool = False,
        led_by: str = "",
        failed: bool = False,
    ) -> None:
        """Tells of something in the trace of `key` that began then and has ended now.

        `led_by`: the `traceparent` of the request that led to it. It becomes a link: whoever sends it does not say what
        our traces are.
        """
        links = [Link(context)] if led_by and (context := _read(led_by)) is not None else []
        start = _nanoseconds(began)
        if is_root:
            with self._ids.given(key.int, traces.root_span(key)):
                made = self._tracer.start_span(name, _ROOT, _KINDS[kind], attributes, links, start)
        else:
            made = self._tracer.start_span(name, _below_root(key), _KINDS[kind], attributes, links, start)
        if failed:
            made.set_status(Status(StatusCode.ERROR))
        made.end(max(start, _nanoseconds(clock.now())))

    def refer(self, traceparent: str) -> None:
        """Link the span that this thread is in to another."""
        if (context := _read(traceparent)) is not None:
            trace.get_current_span().add_link(context)


@contextmanager
def _inside(made: Span) -> Iterator[None]:
    """Makes the span that of this thread, and names its trace in the log. What failed is said without its text, which
    may be of a document.

    Whoever leaves to come again (`front.bodies.Wanted`, no error) has done nothing yet: such a span is not told.
    """
    context = made.get_span_context()
    token = attach(trace.set_span_in_context(made))
    try:
        with logs.about(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}"):
            yield
    except Exception as error:
        made.set_attribute("error.type", type(error).__name__)
        made.set_status(Status(StatusCode.ERROR))
        made.end()
        raise
    else:
        made.end()
    finally:
        detach(token)


def _of_process() -> dict[str, str]:
    """What is the same for all spans of this process; OTEL_RESOURCE_ATTRIBUTES adds to it."""
    return {
        "service.name": "rmhub",
        "service.namespace": settings.RMHUB_NAME,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        "deployment.environment.name": settings.RMHUB_ENVIRONMENT,
    }


def _below_root(key: uuid.UUID) -> Context:
    parent = SpanContext(key.int, traces.root_span(key), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(parent), _ROOT)


def _read(traceparent: str) -> SpanContext | None:
    found = TraceContextTextMapPropagator().extract({traces.HEADER: traceparent}, _ROOT)
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


class _Ids(RandomIdGenerator):
    """Chance, or what this thread has said before it begins a trace."""

    def __init__(self) -> None:
        self._given = threading.local()

    @contextmanager
    def given(self, trace_id: int, span_id: int | None) -> Iterator[None]:
        """The next trace of this thread has this id, and its first span that one (None: chance)."""
        self._given.ids = trace_id, span_id
        try:
            yield
        finally:
            self._given.ids = None

    def generate_trace_id(self) -> int:
        ids = getattr(self._given, "ids", None)
        return super().generate_trace_id() if ids is None else int(ids[0])

    def generate_span_id(self) -> int:
        ids = getattr(self._given, "ids", None)
        return super().generate_span_id() if ids is None or ids[1] is None else int(ids[1])


class _Share(Sampler):
    """Takes the share of all traces that `traces.is_chosen` does, those that callables begin too."""

    def __init__(self, share: float) -> None:
        self._share = share

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: types.Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        taken = traces.is_chosen(trace_id, self._share)
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes) if taken else SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return f"Share({self._share})"


class _Bounded(BatchSpanProcessor):
    """Keeps QUEUE spans at most, those that are being handed over included, and counts what becomes of each."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._pending = 0
        self._counting = threading.Lock()
        super().__init__(
            _Counted(exporter, self._done),
            max_queue_size=QUEUE,
            schedule_delay_millis=EVERY_MS,
            max_export_batch_size=BATCH,
        )

    def on_end(self, span: ReadableSpan) -> None:
        if not (span.context and span.context.trace_flags.sampled):
            return
        with self._counting:
            full = self._pending >= QUEUE
            self._pending += not full
        if full:
            SPANS.labels("dropped").inc()
        else:
            super().on_end(span)

    def _done(self, count: int) -> None:
        with self._counting:
            self._pending -= count


class _Counted(SpanExporter):
    """The exporter, with what it does counted. `done`: gets the number of spans that it has let go."""

    def __init__(self, exporter: SpanExporter, done: Callable[[int], None]) -> None:
        self._exporter = exporter
        self._done = done

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        finally:
            self._done(len(spans))
        taken = result is SpanExportResult.SUCCESS
        SPANS.labels("exported" if taken else "failed").inc(len(spans))
        if not taken:
            log.warning("the collector does not take spans", extra={"action": "spans_not_taken", "spans": len(spans)})
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
