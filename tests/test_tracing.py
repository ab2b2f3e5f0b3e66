"""Traces are off unless OpenTelemetry's variables turn them on; off, nothing of it is loaded."""

import os
import subprocess
import sys
from typing import Any

import pytest
from support.collector import collecting

from stream_lsh.errors import UsageError
from stream_lsh.tracing import MOST_LINKS, Tracer, exporters
from stream_lsh.wire.trace_context import trace_of

URL = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({"OTEL_SERVICE_NAME": "a"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": URL}, []),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": URL}, []),
    ],
)
def test_variables_name_exporters(variables: dict[str, str], names: list[str]) -> None:
    assert exporters(variables) == names


def test_off_loads_nothing() -> None:
    program = (
        "import pkgutil, sys\n"
        "from stream_lsh.kafka.run.metrics import Probe\n"
        "from stream_lsh.kafka.run.process import STAGES\n"
        "for path in STAGES.values(): pkgutil.resolve_name(path)\n"
        "Probe('sign').traced(1.0, 1, lambda: 1 / 0)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no exporter of traces 'zipkin'"):
        Tracer(["zipkin"])
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UsageError, match=r"stream-lsh\[otel\]"):
        Tracer(["console"])


def test_span_has_a_link_for_each_span_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def document(number: int, flags: bytes = b"01") -> list[tuple[str, bytes]]:
        return [("baggage", b"b"), ("traceparent", b"00-%032x-%016x-%b" % (number, number, flags))]

    with collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        tracer = Tracer(["otlp_proto_http"])
        tracer.ended("few", 2.0, [document(n) for n in (1, 1, 0, 2)] + [[]], {})
        tracer.ended("many", 2.0, map(document, range(1, 1000)), {"stream_lsh.frame": 7})
        tracer.close()
    few, many = collector.spans
    assert few.links == tuple(f"{n:032x}-{n:016x}" for n in (1, 2))
    assert len(many.links) == MOST_LINKS and many.facts == {"stream_lsh.frame": 7}
    assert {few.service, few.parent} == {"stream-lsh", ""}


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({"traceparent": b"00-" + 32 * b"a" + b"-" + 16 * b"b" + b"-01", "tracestate": b"a=1", "x": b"y"}, 2),
        ({"traceparent": b"00-" + 32 * b"a" + b"-" + 16 * b"b" + b"-01", "tracestate": 513 * b"a"}, 1),
        ({"traceparent": b"00-" + 32 * b"0" + b"-" + 16 * b"b" + b"-01"}, 0),
        ({"traceparent": b"00-aa\r\nX: 1"}, 0),
        ({"traceparent": None, "tracestate": b"a=1"}, 0),
    ],
)
def test_only_valid_trace_contexts_count(headers: dict[str, Any], kept: int) -> None:
    assert len(trace_of(headers.items())) == kept
