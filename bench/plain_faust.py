"""The plain Faust way, to compare with: one agent, one event a document, a RocksDB table with a key for each band.

It signs each document with the same code and settings as stream-lsh, looks up and extends the list of ids under each
of its band keys, estimates the similarity of the candidates from signatures in a second table, and sends a verdict: as
a tutorial would have it. One source partition, because with several the same band key would be looked for in several
partitions of the table. As a program it is the worker.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.kafka_feed import Post, fill
from bench.kafka_figures import micros, span
from bench.kafka_processes import cpu_between, others_between
from bench.kafka_rig import MYSELF, POSTS, Progress, Rig, Run, parse_settings
from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.settings import KafkaSettings

READY = 3  # documents that are through before the clock starts: Faust, its tables and the kernels are up


def application(settings: KafkaSettings, folder: Path) -> Any:
    """The Faust app; topics `<prefix>.documents` and `<prefix>.verdicts`."""
    import faust

    prefix = settings.topic_prefix
    app = faust.App(
        f"{prefix}.plain", broker=f"kafka://{settings.bootstrap_servers}", store="rocksdb://", datadir=str(folder),
        web_enabled=False, topic_partitions=1, topic_replication_factor=1, consumer_auto_offset_reset="earliest",
        topic_disable_leader=True,
    )  # fmt: skip
    documents = app.topic(f"{prefix}.documents", value_type=bytes, value_serializer="raw", key_serializer="raw")
    verdicts = app.topic(f"{prefix}.verdicts", value_serializer="json", key_serializer="raw")
    bands = app.Table("bands", key_type=str, default=list)
    signatures = app.Table("signatures", key_type=str)
    signer, shape = Signer(settings.signing), settings.signing

    @app.agent(documents)
    async def match(stream: Any) -> None:
        async for value in stream:
            document = orjson.loads(value)
            name = document["id"]
            text = " ".join(document[field] for field in settings.text_field).encode("utf-8", "surrogatepass")
            signed = signer.sign(text, np.array([len(text)]), want_shingles=False)
            signature = signed.signatures[0]
            candidates = set()
            for number, key in enumerate(band_keys(signed.signatures, shape.bands, shape.rows)[0].tolist()):
                bucket = f"{number}:{key:x}"
                ids = bands[bucket]
                candidates.update(ids)
                bands[bucket] = [*ids, name]
            matches = []
            for other in sorted(candidates):
                similarity = float(np.mean(np.array(signatures[other], signature.dtype) == signature))
                if similarity >= settings.threshold:
                    matches.append({"id": other, "similarity": similarity})
            signatures[name] = signature.tolist()
            kind = "near_duplicate" if matches else "unique"
            await verdicts.send(key=name.encode(), value={"id": name, "kind": kind, "matches": matches})

    return app


async def measure(rig: Rig, documents: Sequence[Post]) -> dict[str, Any]:
    """Documents a second of the plain way, over the middle of so many; and its processor time."""
    async with rig.run("plain", partitions=1) as run:
        await fill(run.settings, run.topics.documents, 1, documents)
        process, log = _start(run)
        processes = rig.watch()
        processes.add(process.pid, "faust")
        try:
            async with Progress(run, [run.topics.verdicts], processes) as progress:
                name, n = run.topics.verdicts, len(documents)
                if process.poll() is not None:
                    raise SystemExit(f"the Faust worker ended:\n{log.read_text(encoding='utf-8')[-3000:]}")
                found = await progress.records(name, lambda found: len(found) >= n, n)
                kinds = [orjson.loads(record.value)["kind"] for record in found]
                times = np.array([at for at, _ in progress.ends])
                done = np.array([float(sum(ends.values())) for _, ends in progress.ends])
                begin, end, inside = span(times, done, READY / n, 1.0)
                cpu = micros(cpu_between(processes.looks, begin, end), inside, MYSELF)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Faust takes its time to stop, and nothing of it is needed
            process.wait()
        return {
            "kind": "plain", "name": "plain Faust", "documents": n, "rate": inside / (end - begin),
            "near_duplicates": kinds.count("near_duplicate"), "cpu": sum(cpu.values()), "micros": cpu,
            "others": others_between(processes.looks, begin, end),
        }  # fmt: skip


def _start(run: Run) -> tuple[subprocess.Popen[bytes], Path]:
    log = run.folder / "faust.log"
    given = " ".join(f"{name}={value}" for name, value in run.given.items())
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.plain_faust", "--settings", given, "--folder", str(run.folder / "faust")],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    return process, log


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.plain_faust",
        description="The worker of the plain way; bench.kafka_throughput starts it.",
        epilog='example: python -m bench.plain_faust --folder plain --settings "bootstrap_servers=127.0.0.1:9092"',
    )  # fmt: skip
    parser.add_argument("--settings", default="", help="settings of stream-lsh, name=value, with blanks between them")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the tables")
    given = parser.parse_args()
    import faust

    settings = KafkaSettings(**{**POSTS, **parse_settings(given.settings)})
    faust.Worker(application(settings, given.folder), loglevel="WARN").execute_from_commandline()


if __name__ == "__main__":
    main()
