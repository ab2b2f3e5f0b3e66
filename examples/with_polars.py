"""Deduplicate Parquet files with polars: new rows only, over several days.

    python with_polars.py INDEX OUT.parquet MONDAY.parquet TUESDAY.parquet ...

The files need the columns `id` and `text`. The index remembers the rows of earlier files and runs.
"""

import sys

import polars as pl

from stream_lsh import Deduplicator, Settings


def new_rows(deduplicator: Deduplicator, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that are no near-duplicate of an earlier row, with all columns."""
    verdicts = pl.from_arrow(deduplicator.process_arrow(rows.select("id", "text")))
    assert isinstance(verdicts, pl.DataFrame)
    return rows.filter(verdicts["kind"].cast(pl.String) == "unique")


if __name__ == "__main__":
    index, out, *files = sys.argv[1:]
    with Deduplicator(Settings(threshold=0.7), index=index) as deduplicator:
        kept = pl.concat([new_rows(deduplicator, pl.read_parquet(file)) for file in files])
    kept.write_parquet(out)
    print(f"{kept.height} rows are new")
