"""Where each microsecond goes: the job, its stages one after the other in one thread, with a clock around each.

It is the job of the command line, as it is, but that reading, signing and matching wait for each other, so that the
times add up. What a stage calls that is a stage of its own is not counted twice. Flushes and merges run in a worker of
their own, beside all this; their processor time is what is left over. The last line is the same job as it really runs.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import report
from bench.corpora import EXAMPLE_NAMES, Corpus, corpus, unpack
from bench.engine import ALL_PAIRS
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.pipeline import Stage
from stream_lsh.settings.model import Settings

EXAMPLE = "python -m bench.stages --corpus posts-40k --out results"
# Stage, module, and the function in it, by the name under which the engine calls it.
CLOCKED = (
    ("parse JSON, collect texts", "stream_lsh.embedded.inputs", "parse_lines"),
    ("shingles, signature, keys", "stream_lsh.families.signer", "Signer.sign"),
    ("keys, hashes, owner", "stream_lsh.index.index", "Index.sign"),
    ("compress texts", "stream_lsh.index.batch", "compress"),
    ("probe the filters", "stream_lsh.index.batch_run", "passing"),
    ("candidates, verify, store", "stream_lsh.index.batch_run", "match"),
    ("read texts of candidates", "stream_lsh.index.batch_run", "BatchRun._load"),
    ("keep ids, texts", "stream_lsh.index.shard", "Shard.keep"),
    ("matches, upkeep", "stream_lsh.index.index", "Index.match"),
    ("judge", "stream_lsh.embedded.engine", "judge"),
    ("write outputs", "stream_lsh.embedded.sink", "Sink.write"),
    ("outputs to the disk", "stream_lsh.embedded.sink", "Sink.checkpoint"),
    ("encode rows", "stream_lsh.index.index", "Index.commit"),
    ("write rows to RocksDB", "stream_lsh.index.store.rocksdb", "Store.write"),
    ("sort the memtable", "stream_lsh.index.shard", "Shard.flush"),
)
READ, REST, START = "read, split lines", "the loop", "open and close"
COLUMNS = {"stage": "stage", "micros": "µs/document", "share": "share"}


class Clock:
    """Seconds by stage; while a stage runs inside another one, only the inner one's time goes on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack: list[str] = []
        self._since = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of a block for a stage."""
        self._switch()
        self._stack.append(name)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the same, with its time counted for a stage."""

        def clocked(*arguments: Any, **named: Any) -> Any:
            with self.stage(name):
                return function(*arguments, **named)

        return clocked

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._since
        self._since = now


class Serial:
    """In place of the pipeline's threads: an item is read and signed when it is asked for."""

    def __init__(self, items: Iterable[Any], work: Callable[[Any], Any], clock: Clock) -> None:
        self._items, self._work, self._clock = iter(items), work, clock

    def get(self, timeout: float | None = None) -> Any:
        """The next item; StopIteration at the end."""
        with self._clock.stage(READ):
            item = next(self._items)
        return self._work(item)

    each = Stage.each


def serial_chain(clock: Clock, items: Iterable[Any], work: Callable[[Any], Any]) -> tuple[Serial, Callable[[], None]]:
    """What `stream_lsh.embedded.pipeline.chain` returns, without threads: the stage, and what stops it."""
    return Serial(items, work, clock), lambda: None


def replaced(stack: ExitStack, module: str, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of a module, or a method of a class in it, until the stack is left.

    Raises:
        SystemExit: the engine has no such function any more, so this benchmark must follow.
    """
    owner: Any = importlib.import_module(module)
    *classes, last = name.split(".")
    try:
        for part in classes:
            owner = getattr(owner, part)
        before = getattr(owner, last)
    except AttributeError:
        raise SystemExit(f"there is no {name} in {module}: bench/stages.py does not fit this engine") from None
    setattr(owner, last, make(before))
    stack.callback(setattr, owner, last, before)


def run(file: Path, settings: Settings, work: Path, clock: Clock | None) -> dict[str, float]:
    """The job over a file with a fresh index; with a clock its stages run one after the other.

    Returns:
        "seconds" and "cpu" of it all, "main": processor seconds of this thread.
    """
    with tempfile.TemporaryDirectory(dir=work, prefix="stages-") as folder, ExitStack() as stack:
        if clock is not None:
            for stage, module, name in CLOCKED:
                replaced(stack, module, name, partial(clock.around, stage))
            serial = partial(serial_chain, clock)
            replaced(stack, "stream_lsh.embedded.job", "chain", lambda _: serial)
            replaced(stack, "stream_lsh.embedded.job", "_Run.go", partial(clock.around, REST))
            replaced(stack, "stream_lsh.embedded.job", "Job.run", partial(clock.around, START))
        job = Job(settings, [str(file)], {"pairs": str(Path(folder) / "pairs.jsonl")}, Path(folder) / "state")
        start, cpu, main = time.perf_counter(), time.process_time(), time.thread_time()
        job.run()
        return {
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - cpu,
            "main": time.thread_time() - main,
        }


def measure(wanted: Corpus, file: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row a stage, in the order of the work: medians over the rounds; then the sums."""
    settings = Settings(**settings_of(wanted, given))
    warm = corpus("posts-1k" if wanted.name.startswith("posts") else "terms-3k")
    run(unpack(warm, given.data, given.work), settings, given.work, Clock())  # load the compiled kernels
    clocks, serial, real = [], [], []
    for _ in range(given.rounds):
        clocks.append(Clock())
        serial.append(run(file, settings, given.work, clocks[-1]))
        real.append(run(file, settings, given.work, None))
    n = wanted.documents
    stages = [READ, *(stage for stage, _, _ in CLOCKED), REST, START]
    micros = {name: 1e6 * statistics.median(clock.seconds[name] for clock in clocks) / n for name in stages}
    total = sum(micros.values())
    rows = [
        {"kind": "stage", "stage": name, "micros": value, "share": f"{100 * value / total:.1f} %"}
        for name, value in micros.items()
    ]
    sums = {
        "all stages, one after the other": total,
        "beside them: worker's processor time": 1e6 * statistics.median(r["cpu"] - r["main"] for r in serial) / n,
        "the job as it runs": 1e6 * statistics.median(r["seconds"] for r in real) / n,
        "the job as it runs, processor time": 1e6 * statistics.median(r["cpu"] for r in real) / n,
    }
    return rows + [{"kind": "sum", "stage": name, "micros": value} for name, value in sums.items()]


def settings_of(wanted: Corpus, given: argparse.Namespace) -> dict[str, Any]:
    """The settings of the comparison with the truth, and what was given in addition."""
    settings: dict[str, Any] = {
        "shingles": "words:3", "tokens": "word", "threshold": given.threshold, "verify": "exact",
        "text_field": wanted.text_fields, **ALL_PAIRS,
    }  # fmt: skip
    for pair in shlex.split(given.settings):
        name, _, value = pair.partition("=")
        settings[name] = value
    return settings


def main() -> None:
    parser = report.parser("stages", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--corpus", default="posts-120k", help=f"one of {EXAMPLE_NAMES} (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity (%(default)s)")
    parser.add_argument("--settings", default="", help='more settings, for example "verify=signature shards=2"')
    given = parser.parse_args()
    try:
        wanted = corpus(given.corpus)
    except ValueError as error:
        parser.error(str(error))
    where = report.environment()
    rows = measure(wanted, unpack(wanted, given.data, given.work), given)
    title = f"{wanted.name}: {wanted.documents:,} documents, medians of {given.rounds}"
    print(f"{title}\n{report.table(COLUMNS, rows)}")
    report.write(given.out, "stages", where, rows, f"{title}\n\n{report.table(COLUMNS, rows, markdown=True)}")


if __name__ == "__main__":
    main()
