"""The examples with other libraries run, each as a program of its own."""

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
from support import tables
from support.missing import missing

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = "the council has voted for the new bridge over the river and work begins in spring"


def run(name: str, *words: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def news(path: Path, ids: list[int], texts: list[str]) -> Path:
    outlets = [f"outlet {id}" for id in ids]
    return tables.write(path, pa.table({"id": ids, "text": texts, "outlet": outlets}))


def needed(package: str) -> None:
    if find_spec(package) is None:
        missing(f"no {package}: pip install 'stream-lsh[gate]'")


@pytest.mark.long
def test_polars_keeps_new_rows_of_several_files(tmp_path: Path) -> None:
    needed("polars")
    monday = news(tmp_path / "monday.parquet", [1, 2], [TEXT, f"{TEXT} soon"])
    tuesday = news(tmp_path / "tuesday.parquet", [3, 4], ["something else altogether", TEXT])
    out = tmp_path / "out.parquet"
    assert run("with_polars.py", tmp_path / "index", out, monday, tuesday) == "2 rows are new\n"
    kept = tables.read(out)
    assert kept["id"].to_pylist() == [1, 3] and kept.column_names == ["id", "text", "outlet"]


@pytest.mark.long
def test_spark_repeats_a_batch_that_the_index_does_not_have(tmp_path: Path) -> None:
    """As after a crash before the commit of the index: Spark repeats the batch, and its file is the same again."""
    pytest.importorskip("pyspark", reason="pip install 'stream-lsh[nightly]', which is 400 MB")
    if shutil.which("java") is None:
        missing("Spark needs Java")
    names = ("index", "in", "out", "checkpoint")
    index, source, out, checkpoint = folders = [tmp_path / name for name in names]
    source.mkdir(), out.mkdir()
    for number, texts in enumerate([[TEXT, f"{TEXT} soon"], ["something else altogether", TEXT]]):
        rows = pa.table({"id": [2 * number, 2 * number + 1], "text": texts})
        tables.write(source / f"{number}.parquet", rows)
        if number:
            shutil.copytree(index, tmp_path / "before")
        run("with_spark.py", *folders)
    whole = {path.name: tables.read(path)["id"].to_pylist() for path in out.iterdir()}
    assert whole == {"batch=0.parquet": [0], "batch=1.parquet": [2]}
    for path in [*(checkpoint / "commits").glob("*1*"), *(checkpoint / "commits").glob(".*1*")]:
        path.unlink(missing_ok=True)
    (out / "batch=1.parquet").unlink()
    shutil.rmtree(index)
    (tmp_path / "before").rename(index)
    run("with_spark.py", *folders)
    assert {path.name: tables.read(path)["id"].to_pylist() for path in out.iterdir()} == whole


@pytest.mark.long
def test_faststream_passes_on_new_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a batch is repeated, as after a crash before its offsets were committed."""
    needed("faststream")
    from faststream.kafka import TestKafkaBroker

    monkeypatch.setenv("INDEX", str(tmp_path / "index"))
    spec = importlib.util.spec_from_file_location("with_faststream", EXAMPLES / "with_faststream.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(example := importlib.util.module_from_spec(spec))
    batch = [{"id": n, "text": text} for n, text in enumerate([TEXT, f"{TEXT} soon", "something else altogether"])]

    async def passed_on() -> list[object]:
        async with TestKafkaBroker(example.broker) as broker:
            for _ in range(2):
                await broker.publish_batch(*batch, topic="documents")
            return [call.args for call in example.passed_on.mock.call_args_list]

    assert asyncio.run(passed_on()) == 2 * [([batch[0], batch[2]],)]
    example.close()


@pytest.mark.long
def test_duckdb_joins_verdicts_with_the_table(tmp_path: Path) -> None:
    needed("duckdb")
    file = news(tmp_path / "news.parquet", [1, 2, 3], [TEXT, "something else altogether", f"{TEXT} soon"])
    assert run("with_duckdb.py", tmp_path / "index", file) == "outlet 3 has 1 of outlet 1 (0.93)\n"
