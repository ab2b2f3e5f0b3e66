"""A collector of OpenTelemetry: takes spans over OTLP/HTTP, and keeps them."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.listening import Quiet, listening


@dataclass(frozen=True)
class Span:
    """What a span says. links: as traceparent has them, without version and flags."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    facts: dict[str, Any]


@dataclass
class Collector:
    """environment: makes a process send here."""

    environment: dict[str, str] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _spans(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _facts(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                links = tuple(f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links)
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                yield Span(service, span.name, *ids, links, _facts(span.attributes))


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.spans += _spans(body)
            self.send_response(200)
            self.end_headers()

    with listening(Handler) as url:
        collector.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        yield collector
