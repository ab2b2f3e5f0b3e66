"""Deduplicate a query of DuckDB, and join the verdicts with the table.

    python with_duckdb.py INDEX NEWS.parquet

The file needs the columns `id`, `text` and `outlet`. Prints how many copies each outlet has of others.
"""

import sys

import duckdb

from stream_lsh import Deduplicator, Settings

if __name__ == "__main__":
    index, file = sys.argv[1:]
    news = duckdb.read_parquet(file)
    with Deduplicator(Settings(threshold=0.7), index=index) as deduplicator:
        verdicts = deduplicator.process_arrow(news.select("id, text"))
    copies = duckdb.sql("""
        SELECT copy.outlet, original.outlet AS copied_from, count(*) AS copies, avg(similarity) AS similarity
        FROM verdicts
        JOIN news AS copy ON copy.id = verdicts.id
        JOIN news AS original ON original.id = verdicts.duplicate_of
        WHERE verdicts.kind IN ('near_duplicate', 'exact_duplicate')
        GROUP BY ALL ORDER BY ALL
    """)
    for outlet, copied_from, count, similarity in copies.fetchall():
        print(f"{outlet} has {count} of {copied_from} ({similarity:.2f})")
