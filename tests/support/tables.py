"""Tables for tests, as files of each kind."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

SUFFIXES = (".parquet", ".arrow", ".arrows", ".csv", ".tsv")
WORDS = [f"word{number}" for number in range(2000)]


def table(count: int) -> pa.Table:
    """Rows of many types, of which each fifth has the text of an earlier row, and each fiftieth no text."""
    chance = random.Random(7)
    texts = [" ".join(chance.choices(WORDS, k=40)) for _ in range(count)]
    for i in range(5, count, 5):
        texts[i] = texts[chance.randrange(i)]
    for i in range(50, count, 50):
        texts[i] = ""
    moments = [datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=i, microseconds=i) for i in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.uint64()),
            "text": pa.array(texts, pa.large_string()),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal(i) / 100 for i in range(count)], pa.decimal128(10, 2)),
            "tags": pa.array([[str(i), None] if i % 3 else None for i in range(count)], pa.list_(pa.string())),
            "source": pa.array([f"outlet {i % 7}" for i in range(count)]).dictionary_encode(),
            "more": pa.array([{"a": i, "b": f"x{i}"} for i in range(count)]),
        },
        metadata={"made by": "a test"},
    )


def write(path: Path, rows: Any, group: int = 300) -> Path:
    """A file by its suffix. CSV has the columns that it can hold. group: rows of a row group or a batch."""
    suffix = "".join(path.suffixes[-1:])
    if suffix == ".parquet":
        pyarrow.parquet.write_table(rows, path, row_group_size=group)
    elif suffix in (".csv", ".tsv"):
        plain = rows.select([column.name for column in rows.schema if not pa.types.is_nested(column.type)])
        texts = pa.table({name: plain[name].cast(pa.string()) for name in plain.column_names})
        options = pyarrow.csv.WriteOptions(delimiter="," if suffix == ".csv" else "\t")
        pyarrow.csv.write_csv(texts, path, options)
    else:
        kind = pa.ipc.new_stream if suffix == ".arrows" else pa.ipc.new_file
        with kind(path, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=group)
    return path


def read(path: Path) -> pa.Table:
    """The rows of a file; those of CSV as texts."""
    suffix = path.suffix
    if suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    if suffix in (".csv", ".tsv"):
        parse = pyarrow.csv.ParseOptions(delimiter="," if suffix == ".csv" else "\t", newlines_in_values=True)
        names = path.read_text().partition("\n")[0].replace('"', "").split(parse.delimiter)
        convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
    source = pa.OSFile(str(path))
    return pa.ipc.open_stream(source).read_all() if suffix == ".arrows" else pa.ipc.open_file(source).read_all()
