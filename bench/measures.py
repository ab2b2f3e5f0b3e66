"""Vectors and bit vectors beside faiss: documents a second as a stream, what is found, bytes on disk, a restart.

The vectors are made by a recipe, from a seed: as many centres as a hundredth of the documents, normally distributed;
each document is a centre and noise of the same size (cosine 0.5 within a cluster, 0 elsewhere); a tenth of the
documents are near-copies of an earlier one instead, at a cosine of 0.9 to 0.99. Bit vectors are random, a tenth of
them copies with up to 3 bits changed.

Every system is asked for the same: a document within the threshold of one that was kept is dropped, any other is kept.
The engine gets NumPy arrays and an index on disk, with the signature that `stream-lsh tune --expected-docs` chooses.
faiss gets batches of the same size: each is searched (the 10 nearest, then the threshold), compared within itself by a
matrix product, and what was not found is added; it works in memory, with all cores, and is written to a file once at
the end; one that takes longer than `--peer-seconds` is stopped there, and what the engine did with as many documents
stands beside it. Recall: of a sample of the near-copies (no other documents are within the threshold of each other),
those that were dropped among those for which, by exhaustive comparison, the very same system had kept one within the
threshold before. Precision: of the pairs named, those within the threshold.
Memory: what the process has more at the end of the feed than before it, files not counted. CPU: of all threads; it
says more than the speed where the machine has something else to do.

A million vectors want 6 GB of memory, 4 GB of disk and a quiet machine:

    python -m bench.measures --documents 1000000 --measures cosine --dense-documents 100000

Then what is dense: one vector over and over; near-copies of one vector, all within the threshold; and copies of one
vector each a little too far from all others, so that all are kept.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.process import folder_bytes, memory_of
from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.cli.tune_bands import sized

EXAMPLE = "python -m bench.measures --documents 20000 --measures cosine --out results"
BATCH = 1024
NEIGHBOURS = 10
DIMENSIONS, BITS, FLIPPED = 384, 64, 3
THRESHOLD = 0.9
NEAR = (0.9, 0.99)  # cosines of near-copies
SHARE = 0.1  # of the documents are near-copies
DENSE = {"one vector": 1.0, "near-copies": 0.97, "a little too far": 0.92}  # cosine of the copies with their original
COLUMNS = {
    "measure": "measure", "system": "system", "documents": "documents", "rate": "documents/s",
    "last": "of the last tenth", "cpu": "CPU, µs/document", "engine": "the engine by then",
    "recall": "recall", "precision": "precision",
    "kept": "kept %", "not_compared": "not compared %", "memory": "bytes/document in memory",
    "disk": "bytes/document on disk", "restart": "restart, ms",
}  # fmt: skip
DENSE_COLUMNS = {
    "feed": "feed", "documents": "documents", "rate": "documents/s", "kept": "kept %", "not_compared": "not compared %",
}  # fmt: skip
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Feed:
    """Documents of one measure, with what they are judged by.

    items: float32[n, DIMENSIONS], or uint8[n, BITS / 8]. copies: the near-copies among them, ascending. most: distance
    (of vectors squared), or least cosine, that peers compare with.
    """

    measure: str
    items: NDArray[Any]
    copies: NDArray[np.int64]
    most: float
    settings: Settings


def vectors(documents: int, seed: int = 12) -> tuple[Vectors, NDArray[np.int64]]:
    """The vectors of the recipe, float32[documents, DIMENSIONS], and which of them are near-copies."""
    chance = np.random.default_rng(seed)
    centres = chance.standard_normal((max(1, documents // 100), DIMENSIONS), np.float32)
    made = np.empty((documents, DIMENSIONS), np.float32)
    for start in range(0, documents, 65536):
        part = made[start : start + 65536]
        part[:] = centres[chance.integers(0, len(centres), len(part))]
        part += chance.standard_normal(part.shape, np.float32)
    copies = 1 + np.flatnonzero(chance.random(documents - 1) < SHARE)
    originals = (chance.random(len(copies)) * copies).astype(np.int64)
    for copy, original, cosine in zip(copies, originals, chance.uniform(*NEAR, len(copies)), strict=True):
        made[copy] = near(made[original], cosine, chance)
    return made, copies


def near(vector: Vectors, cosine: float, chance: np.random.Generator) -> Vectors:
    """A vector of the same length at this cosine to another."""
    length = np.linalg.norm(vector)
    away = chance.standard_normal(DIMENSIONS)
    away -= vector * (away @ vector) / length**2
    found = cosine * vector + np.sqrt(max(0.0, 1 - cosine**2)) * length / np.linalg.norm(away) * away
    return np.asarray(found, np.float32)


def rows_of_bits(documents: int, seed: int = 12) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bit vectors, uint8[documents, BITS / 8], and which of them are near-copies."""
    chance = np.random.default_rng(seed)
    made = chance.integers(0, 256, (documents, BITS // 8), np.uint8)
    copies = 1 + np.flatnonzero(chance.random(documents - 1) < SHARE)
    for copy in copies.tolist():
        flips = np.zeros(BITS, np.uint8)
        flips[chance.choice(BITS, chance.integers(0, FLIPPED + 1), replace=False)] = 1
        made[copy] = made[chance.integers(0, copy)] ^ np.packbits(flips)
    return made, copies


@dataclass
class Run:
    """What a system did with a feed, or with the part of it that it came to.

    of: whom each document was dropped for (-1: it was kept). ends, cpu: seconds, and of all threads, from the beginning
    to the end of each batch. memory, disk: bytes. restart: seconds. not_compared: per cent of the verdicts, None where
    there is no such thing.
    """

    of: NDArray[np.int64]
    ends: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: int = 0
    disk: int = 0
    restart: float = 0.0
    not_compared: float | None = None

    def took(self, began: float, before: float, documents: int) -> None:
        """Write down that a batch has ended; and say so ten times."""
        self.ends.append(time.perf_counter() - began)
        self.cpu.append(time.process_time() - before)
        done = len(self.ends) * BATCH
        if done * 10 // documents > (done - BATCH) * 10 // documents:
            print(
                f"{done:,} of {documents:,}: {self.ends[-1]:.1f} s, CPU {self.cpu[-1]:.1f} s",
                file=sys.stderr,
                flush=True,
            )

    def rate(self, documents: int) -> float | None:
        """Documents a second of so many, the first ones."""
        batches = -(-documents // BATCH)
        return documents / self.ends[batches - 1] if 0 < batches <= len(self.ends) else None

    @property
    def last(self) -> float | None:
        """Documents a second of the last tenth."""
        tenth = len(self.ends) // 10
        return BATCH * tenth / (self.ends[-1] - self.ends[-1 - tenth]) if tenth else None


def anonymous() -> int:
    """Memory of this process that is no file, bytes, without what it could give back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory_of(os.getpid()).get("anonymous", 0)


class System(Protocol):
    """What finds near-duplicates in a stream."""

    def run(self, items: NDArray[Any], folder: Path) -> Run:
        """Take all items, in order; leave an index in the folder, open it again and ask for the first item."""


@dataclass
class Engine:
    """stream-lsh, embedded."""

    settings: Settings

    def run(self, items: NDArray[Any], folder: Path) -> Run:
        of, not_compared, memory = np.full(len(items), -1, np.int64), 0, -anonymous()
        run, state, began, before = Run(of), folder / "state", time.perf_counter(), time.process_time()
        with Deduplicator(self.settings, index=state) as deduplicator:
            for start in range(0, len(items), BATCH):
                for verdict in deduplicator.process(self._documents(items[start : start + BATCH], start)):
                    not_compared += verdict.not_compared > 0
                    if verdict.matches:
                        of[verdict.seq] = verdict.matches[0].seq
                run.took(began, before, len(items))
            memory += anonymous()
        began = time.perf_counter()
        with Deduplicator(index=state, read_only=True) as deduplicator:
            wanted = items[0].tobytes() if self.settings.measure == "hamming" else items[0]
            assert deduplicator.query(wanted)
            restart = time.perf_counter() - began
        return replace(
            run, memory=memory, disk=folder_bytes(state), restart=restart, not_compared=100 * not_compared / len(items)
        )

    def _documents(self, items: NDArray[Any], start: int) -> list[Document]:
        if self.settings.measure == "hamming":
            return [Document(start + i, bits=item.tobytes()) for i, item in enumerate(items)]
        return [Document(start + i, vector=item) for i, item in enumerate(items)]


@dataclass
class Faiss:
    """An index of faiss in memory. kind: flat, HNSW, IVF or MultiHash. most: as in `Feed`. limit: seconds."""

    measure: str
    kind: str
    most: float
    limit: float = float("inf")

    def run(self, items: NDArray[Any], folder: Path) -> Run:
        import faiss

        of, kept, memory = np.full(len(items), -1, np.int64), [np.empty(0, np.int64)], -anonymous()
        run, began, before = Run(of), time.perf_counter(), time.process_time()
        index = self._index(faiss, items)
        for start in range(0, len(items), BATCH):
            if run.ends and run.ends[-1] > self.limit:
                run.of = of = of[:start]
                break
            batch, known = comparable(self.measure, items[start : start + BATCH]), np.concatenate(kept)
            found = of[start : start + BATCH]
            if len(known):
                scores, places = index.search(batch, NEIGHBOURS)
                best = scores[:, 0]
                good = (places[:, 0] >= 0) & (best >= self.most if self.measure == "cosine" else best <= self.most)
                found[good] = known[places[good, 0]]
            self._within(batch, found, start)
            new = np.flatnonzero(found < 0)
            index.add(np.ascontiguousarray(batch[new]))
            kept = [known, start + new]
            run.took(began, before, len(items))
        memory += anonymous()
        file, binary = folder / "index", self.measure == "hamming"
        (faiss.write_index_binary if binary else faiss.write_index)(index, str(file))
        del index
        began = time.perf_counter()
        index = (faiss.read_index_binary if binary else faiss.read_index)(str(file))
        index.search(comparable(self.measure, items[:1]), NEIGHBOURS)
        return replace(run, memory=memory, disk=file.stat().st_size, restart=time.perf_counter() - began)

    def _index(self, faiss: Any, items: NDArray[Any]) -> Any:
        if self.measure == "hamming":
            if self.kind == "flat":
                return faiss.IndexBinaryFlat(BITS)
            return faiss.IndexBinaryMultiHash(BITS, FLIPPED + 1, BITS // (FLIPPED + 1))  # pigeonhole, as the engine
        metric = faiss.METRIC_INNER_PRODUCT if self.measure == "cosine" else faiss.METRIC_L2
        if self.kind == "flat":
            return faiss.IndexFlat(DIMENSIONS, metric)
        if self.kind == "HNSW":
            index = faiss.IndexHNSWFlat(DIMENSIONS, 32, metric)
            index.hnsw.efSearch = 64
            return index
        lists = 4 * int(len(items) ** 0.5)
        flat = faiss.IndexFlat(DIMENSIONS, metric)
        index = faiss.IndexIVFFlat(flat, DIMENSIONS, lists, metric)
        index.nprobe, self._flat = 16, flat  # the latter must live as long
        index.train(comparable(self.measure, items[: 40 * lists]))
        return index

    def _within(self, batch: NDArray[Any], found: NDArray[np.int64], start: int) -> None:
        """Compare a batch with itself, in order."""
        alike = close(self.measure, batch, batch, self.most)
        kept = found < 0
        for i in np.flatnonzero(kept & np.tril(alike, -1).any(axis=1)).tolist():
            before = np.flatnonzero(alike[i, :i] & kept[:i])
            if len(before):
                found[i], kept[i] = start + before[0], False


def comparable(measure: str, items: NDArray[Any]) -> NDArray[Any]:
    """Items as they are compared: of the length 1 where only the direction counts."""
    return items / np.linalg.norm(items, axis=1, keepdims=True) if measure == "cosine" else items


def close(measure: str, one: NDArray[Any], other: NDArray[Any], most: float) -> NDArray[np.bool_]:
    """Who is within the threshold of whom: bool[one, other]."""
    one, other = comparable(measure, one), comparable(measure, other)
    if measure == "hamming":
        words, others = (np.ascontiguousarray(part).view(np.uint64)[:, 0] for part in (one, other))
        return np.asarray(np.bitwise_count(words[:, None] ^ others[None]) <= most)
    products = one @ other.T
    if measure == "cosine":
        return np.asarray(products >= most)
    squares = (np.square(part, dtype=np.float64).sum(axis=1) for part in (one, other))
    mine, theirs = squares
    return np.asarray(mine[:, None] + theirs[None] - 2 * products <= most)


def scored(feed: Feed, run: Run, queries: int) -> dict[str, float | None]:
    """Recall of a run, on a sample of the near-copies that it came to, and its precision."""
    items, measure, most = feed.items, feed.measure, feed.most
    copies = feed.copies[feed.copies < len(run.of)]
    sample = np.sort(np.random.default_rng(1).choice(copies, min(queries, len(copies)), replace=False))
    kept = np.flatnonzero(run.of < 0)
    due = np.zeros(len(sample), np.bool_)
    for start in range(0, len(kept), 16384):
        part = kept[start : start + 16384]
        due |= (close(measure, items[sample], items[part], most) & (part[None] < sample[:, None])).any(axis=1)
    dropped = run.of[sample] >= 0
    named = np.flatnonzero(run.of >= 0)
    true = [close(measure, items[i : i + 1], items[run.of[i] : run.of[i] + 1], most)[0, 0] for i in named.tolist()]
    return {
        "recall": float((due & dropped).sum() / due.sum()) if due.any() else None,
        "precision": float(np.mean(true)) if true else None,
        "due": int(due.sum()),
    }


def feeds(documents: int, measures: list[str]) -> Iterator[Feed]:
    """The feed of each measure."""
    made = vectors(documents) if {"cosine", "euclidean"} & {*measures} else None
    for measure in measures:
        if measure == "hamming":
            settings = Settings(measure="hamming", dimensions=BITS, max_distance=FLIPPED)
            yield Feed(measure, *rows_of_bits(documents), float(FLIPPED), settings)
            continue
        assert made is not None
        if measure == "cosine":
            settings = Settings(measure="cosine", dimensions=DIMENSIONS, threshold=THRESHOLD)
            yield Feed(measure, *made, THRESHOLD, sized(settings, None, documents))
        else:
            # The distance at which vectors of the usual length have this cosine.
            distance = float(round((2 * DIMENSIONS * 2 * (1 - THRESHOLD)) ** 0.5, 1))
            settings = Settings(measure="euclidean", dimensions=DIMENSIONS, max_distance=distance)
            yield Feed(measure, *made, distance**2, settings)


def benchmark(given: argparse.Namespace) -> None:
    where = report.environment(("faiss-cpu", "numpy", "numba", "rocksdict"))
    given.work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for feed in feeds(given.documents, given.measures):
        measure = feed.measure
        once(Engine(feed.settings), feed.items[:2000], given.work)  # compile the kernels
        kinds = ("flat", "MultiHash") if measure == "hamming" else ("flat", "IVF", "HNSW")
        systems: dict[str, System] = {"stream-lsh": Engine(feed.settings)}
        for kind in kinds:
            if kind in given.peers:
                systems[f"faiss {kind}"] = Faiss(measure, kind, feed.most, given.peer_seconds)
        ours = None
        for name, system in systems.items():
            run = once(system, feed.items, given.work)
            row = {"kind": "feed", "measure": measure, "system": name, **figures(run)}
            row |= {"engine": ours and ours.rate(len(run.of)), "banding": list(feed.settings.banding)}
            ours = ours or run
            rows.append(row | scored(feed, run, given.queries))
            print(f"{measure} {name}: {rows[-1]}", file=sys.stderr, flush=True)
    title = f"{given.documents:,} documents; vectors of {DIMENSIONS} dimensions, rows of {BITS} bits"
    show(title, COLUMNS, rows, texts)
    if given.dense and "cosine" in given.measures:
        show("Dense feeds, cosine", DENSE_COLUMNS, list(dense(given)), texts, rows)
    report.write(given.out, "measure", where, rows, "\n\n".join(texts))


def dense(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Feeds of copies of one vector."""
    chance = np.random.default_rng(3)
    original = chance.standard_normal(DIMENSIONS).astype(np.float32)
    settings = Settings(measure="cosine", dimensions=DIMENSIONS, threshold=THRESHOLD)
    for name, cosine in DENSE.items():
        copies = given.dense_documents
        items = np.array([original if cosine == 1 else near(original, cosine, chance) for _ in range(copies)])
        yield {"kind": "dense", "feed": name, **figures(once(Engine(settings), items, given.work))}


def once(system: System, items: NDArray[Any], work: Path) -> Run:
    """A run in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=work, prefix="measure-") as folder:
        return system.run(items, Path(folder))


def figures(run: Run) -> dict[str, Any]:
    n = len(run.of)
    return {
        "documents": n, "rate": run.rate(n), "last": run.last, "kept": 100 * float((run.of < 0).mean()),
        "cpu": 1e6 * run.cpu[-1] / n, "tenths": [run.cpu[len(run.cpu) * tenth // 10 - 1] for tenth in range(1, 11)],
        "not_compared": run.not_compared, "memory": run.memory / n, "disk": run.disk / n, "restart": 1000 * run.restart,
        "seconds": run.ends[-1],
    }  # fmt: skip


def show(
    title: str,
    columns: Mapping[str, str],
    rows: list[dict[str, Any]],
    texts: list[str],
    every: list[dict[str, Any]] | None = None,
) -> None:
    """Print a table, and keep it."""
    if every is not None:
        every += rows
    print(f"\n{title}\n{report.table(columns, rows)}", flush=True)
    texts.append(f"{title}\n\n{report.table(columns, rows, markdown=True)}")


def main() -> None:
    parser = report.parser("measure", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=100_000, help="of each measure (%(default)s)")
    parser.add_argument("--measures", default="cosine,euclidean,hamming", help="comma list (%(default)s)")
    parser.add_argument("--peers", default="flat,IVF,HNSW,MultiHash", help="indexes of faiss (%(default)s)")
    parser.add_argument("--peer-seconds", type=float, default=180, help="that an index of faiss gets (%(default)s)")
    parser.add_argument("--queries", type=int, default=1000, help="near-copies whose truth is computed (%(default)s)")
    parser.add_argument("--dense-documents", type=int, default=20_000, help="of each dense feed (%(default)s)")
    parser.add_argument("--no-dense", dest="dense", action="store_false", help="leave out the dense feeds")
    given = parser.parse_args()
    given.measures, given.peers = given.measures.split(","), given.peers.split(",")
    benchmark(given)


if __name__ == "__main__":
    main()
