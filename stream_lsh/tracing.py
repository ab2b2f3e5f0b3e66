"""Spans of OpenTelemetry (extra `otel`): of roles of a pipeline, of requests and of webhooks.

They are on if the standard variables of OpenTelemetry's SDK name an exporter or its endpoint. Otherwise nothing of it
is imported. No output depends on them, except the trace context that a webhook gets.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

from stream_lsh.errors import UsageError
from stream_lsh.wire.trace_context import trace_of
from stream_lsh.wording import missing_package

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

    from stream_lsh.wire.source import Headers

MOST_LINKS = 128  # of a span: the default of OTEL_SPAN_LINK_COUNT_LIMIT
END_SECONDS = 5.0  # that sending the last spans may take
EXPORTER, ENDPOINT = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"
_ENDPOINTS = (ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_GROUP = "opentelemetry_traces_exporter"  # of entry points, as OpenTelemetry's packages name their exporters
WEBHOOK, KEY = "webhook", "stream_lsh.alert"  # the span of a request to a receiver; the attribute with its alert's key
Kind = Literal["INTERNAL", "SERVER", "CLIENT", "CONSUMER"]
Facts = Mapping[str, str | int]
"""Attributes of a span."""


def exporters(environment: Mapping[str, str]) -> list[str]:
    """The exporters that the variables of the SDK name, as their entry points; empty: there are no spans."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    names = [name.strip() for name in (environment.get(EXPORTER) or default).split(",")]
    protocol = next(filter(None, map(environment.get, _PROTOCOLS)), "http")
    otlp = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


class Tracer:
    """Makes spans, and sends them in a thread of its own. Thread-safe.

    Raises:
        UsageError: a package or an exporter is missing.
    """

    def __init__(self, names: Iterable[str]) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.context import Context
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ModuleNotFoundError as error:
            raise UsageError(missing_package("OpenTelemetry (OTEL_…)", error.name, "otel")) from None
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "stream-lsh"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for name in names:
            found = next(iter(entry_points(group=_GROUP, name=name)), None)
            if found is None:
                raise UsageError(
                    f"there is no exporter of traces {name!r}: install its package, or set {EXPORTER} to otlp, "
                    f"console or none"
                )
            self._provider.add_span_processor(BatchSpanProcessor(found.load()()))
        self._tracer = self._provider.get_tracer("stream_lsh")
        self._trace, self._nothing, self._propagator = trace, Context(), TraceContextTextMapPropagator()

    def ended(self, name: str, seconds: float, documents: Iterable[Headers], facts: Facts) -> None:
        """A span that took `seconds` until now, linked to the first spans that headers of documents name."""
        found: dict[bytes, Headers] = {}
        for headers in documents:
            if len(found) == MOST_LINKS:
                break
            if trace := trace_of(headers):
                found.setdefault(trace[0][1], trace)
        end = time.time_ns()
        span = self._tracer.start_span(
            name, self._nothing, self._trace.SpanKind.CONSUMER, facts,
            [self._trace.Link(self._context(trace)) for trace in found.values()], end - int(1e9 * seconds),
        )  # fmt: skip
        span.end(end)

    @contextmanager
    def span(self, name: str, trace: Headers, kind: Kind) -> Iterator[Span]:
        """A span of what is done inside, below the span that a trace context names."""
        with self._tracer.start_as_current_span(name, self._below(trace), self._trace.SpanKind[kind]) as span:
            yield span

    def headers(self, span: Span) -> Headers:
        """The trace context that names a span."""
        found: dict[str, str] = {}
        self._propagator.inject(found, self._trace.set_span_in_context(span))
        return [(name, value.encode()) for name, value in found.items()]

    def _context(self, trace: Headers) -> SpanContext:
        """The span that a trace context names. The propagator of the SDK takes eight times as long."""
        _, number, span, flags = trace[0][1].decode().split("-")
        state = self._trace.TraceState.from_header([value.decode() for _, value in trace[1:]])
        flags_of = self._trace.TraceFlags(int(flags, 16))
        return self._trace.SpanContext(int(number, 16), int(span, 16), True, flags_of, state)

    def _below(self, trace: Headers) -> Context:
        if not trace:
            return self._nothing
        parent = self._trace.NonRecordingSpan(self._context(trace))
        return self._trace.set_span_in_context(parent, self._nothing)

    def close(self) -> None:
        """Send what is left, for a limited time."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(END_SECONDS)


@cache
def tracer() -> Tracer | None:
    """The tracer of this process; None if traces are off. Raises as `Tracer`."""
    names = exporters(os.environ)
    return Tracer(names) if names else None


def close() -> None:
    """Send the last spans of this process."""
    if tracer.cache_info().currsize and (found := tracer()) is not None:
        found.close()


@contextmanager
def sending(name: str, trace: Headers, facts: Facts) -> Iterator[Headers]:
    """A request to another program, made inside on behalf of a document. Yields the trace context for its headers: that
    of a span of its own, or without traces the document's."""
    if (found := tracer()) is None:
        yield trace
        return
    with found.span(name, trace, "CLIENT") as span:
        span.set_attributes(facts)
        yield found.headers(span)
