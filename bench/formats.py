"""Formats of records in the signer: documents a second of reading and signing frames, beside plain JSON.

The formats take turns in one run, on the same posts. It is what sign does with records between Kafka and Kafka: decode,
parse, sign and encode frames. The time of the processor stands beside wall time.

Reading alone: Avro to the bytes of JSON, beside what a user would write: fastavro's reader for each value, and orjson.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import orjson
from aiokafka.structs import ConsumerRecord
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from bench import report
from bench.kafka_feed import posts
from stream_lsh.embedded.warming import warm_up
from stream_lsh.families.family import signer_of
from stream_lsh.kafka.names import largest_record
from stream_lsh.kafka.registry.decoding import Schemas
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer

EXAMPLE = "python -m bench.formats --rounds 5 --out results"
COLUMNS = {
    "format": "format", "rate": "documents/s", "ratio": "of plain JSON", "processor": "processor µs/document",
    "processor_ratio": "processor, JSON by this",
}  # fmt: skip
READING = {"reader": "reader", "processor": "processor µs/document", "processor_ratio": "fastavro by this"}
FIELDS = ("id", "title", "text")
ROW: dict[str, Any] = {
    "type": "record", "name": "Row", "fields": [{"name": name, "type": "string"} for name in FIELDS]
}  # fmt: skip
CHANGE = {
    "type": "record", "name": "Change",
    "fields": [
        {"name": "op", "type": "string"}, {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]}, {"name": "ts_ms", "type": "long"},
    ],
}  # fmt: skip
EVENT = {"specversion": "1.0", "id": "e", "source": "/posts", "type": "post"}
CE = [(f"ce_{name}", value.encode()) for name, value in EVENT.items()]
AVRO, AVRO_CHANGE, JSON = 1, 2, 3
HEAD, BATCH = 5, 1000  # bytes before a value with a schema; records of a chunk
TEXTS: dict[str, Any] = {"text_field": ("title", "text")}
REGISTRY: dict[str, Any] = {**TEXTS, "document_format": "registry", "registry_url": "http://registry"}
UPDATED: dict[str, Any] = {"envelope": "debezium", "on_conflict": "update"}

Post = dict[str, Any]


class Known:
    """A registry that has the schemas above."""

    def schema(self, id: int) -> dict[str, Any]:
        kind = {"schemaType": "JSON"} if id == JSON else {}
        return {"schema": json.dumps({AVRO: ROW, AVRO_CHANGE: CHANGE, JSON: {}}[id]), **kind}

    def reference(self, subject: str, version: int, kind: str) -> dict[str, Any]:
        raise LookupError(subject)


def avro(id: int, schema: dict[str, Any]) -> Callable[[Post], bytes]:
    """An encoder with a schema."""
    parsed = parse_schema(schema)

    def encode(value: Post) -> bytes:
        stream = BytesIO()
        schemaless_writer(stream, parsed, value)
        return b"\0" + id.to_bytes(4, "big") + stream.getvalue()

    return encode


def change(post: Post) -> Post:
    """A post as Debezium's event."""
    return {"op": "c", "before": None, "after": post, "ts_ms": 1_700_000_000_000}


def formats() -> dict[str, tuple[dict[str, Any], Callable[[Post], bytes], list[tuple[str, bytes]]]]:
    """By name: settings, the value of a post, and its headers."""
    schema = {"type": "struct", "fields": [{"field": name, "type": "string", "optional": False} for name in FIELDS]}
    change_in_avro = avro(AVRO_CHANGE, CHANGE)
    return {
        "JSON": (TEXTS, orjson.dumps, []),
        "Debezium": (TEXTS | UPDATED, lambda post: orjson.dumps(change(post)), []),
        "Debezium with schema": (
            TEXTS | UPDATED, lambda post: orjson.dumps({"schema": schema, "payload": change(post)}), []
        ),
        "CloudEvents, structured": (
            TEXTS | {"envelope": "cloudevents"}, lambda post: orjson.dumps({**EVENT, "data": post}), []
        ),
        "CloudEvents, binary": (TEXTS | {"envelope": "cloudevents"}, orjson.dumps, CE),
        "CloudEvents, binary, `ce_source`": (
            TEXTS | {"envelope": "cloudevents", "match_within": ("ce_source",)}, orjson.dumps, CE
        ),
        "Avro": (REGISTRY, avro(AVRO, ROW), []),
        "Debezium in Avro": (REGISTRY | UPDATED, lambda post: change_in_avro(change(post)), []),
        "JSON Schema": (REGISTRY, lambda post: b"\0\0\0\0\3" + orjson.dumps(post), []),
    }  # fmt: skip


def known() -> Schemas:
    """The schemas, fetched."""
    schemas = Schemas(Known())
    for id in (AVRO, AVRO_CHANGE, JSON):
        schemas.fetch(id)
    return schemas


def framer(settings: KafkaSettings) -> Framer:
    """What signs, with the schemas."""
    schemas = None
    if settings.document_format == "registry":
        schemas = known()
    return Framer(settings, signer_of(settings.signing, bytes(16)), largest_record(settings), schemas)


def rows_of(times: dict[str, list[tuple[float, float]]]) -> list[dict[str, Any]]:
    """A row for each format, from the medians of its rounds; ratios with the first."""
    rows: list[dict[str, Any]] = []
    for name, taken in times.items():
        wall, processor = (statistics.median(side) for side in zip(*taken, strict=True))
        first = rows[0] if rows else {"rate": 1 / wall, "processor": 1e6 * processor}
        rows.append(
            {
                "kind": "formats", "format": name, "rate": 1 / wall, "ratio": 1 / wall / first["rate"],
                "processor": 1e6 * processor, "processor_ratio": first["processor"] / (1e6 * processor),
            }
        )  # fmt: skip
    return rows


def reading(rows: Sequence[Post], rounds: int) -> list[dict[str, Any]]:
    """Rows: the time of the processor for the reading of Avro, of two readers that take turns."""
    ours, table = known(), list[dict[str, Any]]()

    def batched(values: Sequence[bytes]) -> list[bytes]:
        found = list[bytes]()
        for at in range(0, len(values), BATCH):
            data, starts, ends = ours.decode(values[at : at + BATCH], {})
            found += [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return found

    for name, schema in (("Avro", ROW), ("Debezium in Avro", CHANGE)):
        values, parsed = [formats()[name][1](row) for row in rows], parse_schema(schema)

        def alone(values: Sequence[bytes], parsed: Any = parsed) -> list[bytes]:
            return [orjson.dumps(schemaless_reader(BytesIO(value[HEAD:]), parsed, None)) for value in values]

        assert list(map(orjson.loads, batched(values))) == list(map(orjson.loads, alone(values)))
        times: dict[str, list[float]] = {"fastavro and orjson": [], "stream_lsh": []}
        for _ in range(rounds):
            for reader, read in zip(times, (alone, batched), strict=True):
                begin = time.process_time()
                read(values)
                times[reader].append((time.process_time() - begin) / len(rows))
        slow, fast = (1e6 * statistics.median(taken) for taken in times.values())
        table += [
            {"kind": "reading", "reader": f"{name}, {reader}", "processor": taken, "processor_ratio": slow / taken}
            for reader, taken in zip(times, (slow, fast), strict=True)
        ]
    return table


def main() -> None:
    parser = report.parser("formats", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=20_000, help="posts (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each format (%(default)s)")
    given = parser.parse_args()
    where = report.environment(("numpy", "numba", "fastavro", "orjson"))
    found = [orjson.loads(post.value) for post in posts(given.data, given.work, given.documents)]
    rows = [{name: str(post[name]) for name in FIELDS} for post in found]
    warm_up(KafkaSettings())
    ready: dict[str, tuple[Framer, Sequence[Chunk]]] = {}
    for name, (settings, encode, headers) in formats().items():
        records = [
            ConsumerRecord("posts", 0, i, 1_700_000_000_000, 0, b"k", encode(row), None, 1, 1, tuple(headers))
            for i, row in enumerate(rows)
        ]
        chunks = [Chunk(0, records[at : at + BATCH], at, at + BATCH) for at in range(0, len(records), BATCH)]
        ready[name] = framer(KafkaSettings(**settings)), chunks
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ready}
    for number in range(given.rounds + 1):  # the first round compiles, and does not count
        for name, (one, chunks) in ready.items():
            begin = time.perf_counter(), time.process_time()
            frames = [frame for chunk in chunks for frame in one.frames([chunk], 1_700_000_000_000)]
            taken = time.perf_counter() - begin[0], time.process_time() - begin[1]
            assert sum(frame.documents for frame in frames) == len(rows) and not any(f.source.rejected for f in frames)
            if number:
                times[name].append((taken[0] / len(rows), taken[1] / len(rows)))
    table = rows_of(times)
    read = reading(rows, given.rounds)
    texts = [report.table(COLUMNS, table, markdown=True), report.table(READING, read, markdown=True)]
    report.write(given.out, "formats", where, [*table, *read], "\n\n".join(texts))
    print(f"{report.table(COLUMNS, table)}\n\n{report.table(READING, read)}")


if __name__ == "__main__":
    main()
