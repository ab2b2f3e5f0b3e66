"""rensa and FastSketchLSH with the settings that each publishes: which documents have a near-duplicate, one run.

Their settings contradict each other. rensa's benchmark of both has 3-word shingles, 8 bands of 16, and a sample of the
positions instead of all shingles (rho); FastSketchLSH's documentation has sets of words and 16 bands of 8. Both cut
words at blanks, flag each document that shares a band with another one, check nothing, and start their clock when all
sets are made. So does this. stream-lsh, with an index on disk and exact verification, is given the same sets as JSON,
and its clock includes reading them. The libraries use one thread, stream-lsh both cores. The truth is exhaustive:
documents with another one of at least the threshold.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench import report
from bench.corpora import corpus, read_documents, unpack
from bench.engine import ALL_PAIRS, from_anywhere, own_rate, pairs_command, read_pairs, require_success
from bench.process import watch

COMPONENTS = 128
Sets = Sequence[list[str]]
Flags = Sequence[bool]
COLUMNS = {
    "sets": "sets", "system": "system", "bands": "bands", "rate": "documents/s", "flagged": "flagged",
    "recall": "recall", "precision": "precision",
}  # fmt: skip
EXAMPLE = "python -m bench.published --corpus posts-5k --rounds 1 --out results"


def words(text: str) -> list[str]:
    """The words of a text, cut at blanks."""
    return text.lower().split()


def shingles(text: str) -> list[str]:
    """Its 3-word shingles, or its words if there are fewer."""
    found = words(text)
    return [" ".join(found[at : at + 3]) for at in range(len(found) - 2)] if len(found) >= 3 else found


def rensa(sets: Sets, bands: int) -> Flags:
    """As full_benchmark.py of rensa 0.5.0 does it."""
    from rensa import RMinHash, RMinHashLSH

    matrix = RMinHash.digest_matrix_from_token_sets_rho(sets, num_perm=COMPONENTS, seed=42, probes=4)
    index = RMinHashLSH(threshold=0.8, num_perm=COMPONENTS, num_bands=bands)
    return list(index.query_duplicate_flags_matrix_one_shot(matrix))


def rensa_whole(sets: Sets, bands: int) -> Flags:
    """The same with all shingles."""
    from rensa import RMinHash, RMinHashLSH

    matrix = RMinHash.digest_matrix_from_token_sets(sets, num_perm=COMPONENTS, seed=42)
    index = RMinHashLSH(threshold=0.8, num_perm=COMPONENTS, num_bands=bands)
    return list(index.query_duplicate_flags_matrix_one_shot(matrix))


def fastsketch(sets: Sets, bands: int) -> Flags:
    """As the page of FastSketchLSH 1.0.1 on PyPI does it."""
    from FastSketchLSH import LSH, FastSimilaritySketch

    sketches = FastSimilaritySketch(size=COMPONENTS, seed=42).batch(sets, num_threads=1)
    return LSH(num_perm=COMPONENTS, num_bands=bands, num_threads=1).insert_and_query_duplicates(sketches).tolist()


SYSTEMS: dict[str, Callable[[Sets, int], Flags]] = {
    "rensa, rho": rensa, "rensa, all shingles": rensa_whole, "FastSketchLSH": fastsketch,
}  # fmt: skip


def truth(sets: Sets, threshold: float) -> list[bool]:
    """Whether a document has another one of at least the threshold, by comparison of all that share a rare shingle.

    The rarest `n - ceil(threshold * n) + 1` of n shingles: two documents without a common one among these are less
    similar (the length of prefixes, MMDS 3.9.4).
    """
    counts = Counter(shingle for one in sets for shingle in set(one))
    distinct = [sorted(set(one), key=lambda shingle: (counts[shingle], shingle)) for one in sets]
    index: dict[str, list[int]] = defaultdict(list)
    found = [False] * len(sets)
    whole = [set(one) for one in distinct]
    for number, one in enumerate(distinct):
        prefix = one[: len(one) - int(np.ceil(threshold * len(one) - 1e-9)) + 1]
        for other in {other for shingle in prefix for other in index[shingle]}:
            shared = len(whole[number] & whole[other])
            if shared >= threshold * (len(whole[number]) + len(whole[other]) - shared) - 1e-9:
                found[number] = found[other] = True
        for shingle in prefix:
            index[shingle].append(number)
    return found


def ours(sets: Sets, folder: Path, threshold: float) -> tuple[float, list[bool]]:
    """Documents/s by its own summary, and what is in a pair."""
    file, pairs = folder / "sets.jsonl", folder / "pairs.jsonl"
    file.write_bytes(b"".join(orjson.dumps({"id": n, "set": one}) + b"\n" for n, one in enumerate(sets)))
    options = ["--set-field", "set", "--verify", "exact", "--threshold", str(threshold)]
    options += [word for name, value in ALL_PAIRS.items() for word in ("--" + name.replace("_", "-"), str(value))]
    finished = watch(pairs_command(file, folder / "index", pairs, options))
    require_success(finished, "stream-lsh")
    flags = [False] * len(sets)
    for pair in read_pairs(pairs):
        for number in pair:
            flags[int(number)] = True
    return own_rate(finished.errors) or 0.0, flags


def row(
    kind: str, system: str, bands: int | None, rates: list[float], flags: Flags, true: list[bool]
) -> dict[str, Any]:
    """The figures of a system: medians of its rounds."""
    flagged, right = sum(map(bool, flags)), sum(flag and one for flag, one in zip(flags, true, strict=True))
    return {
        "sets": kind, "system": system, "bands": bands, "rate": statistics.median(rates), "flagged": flagged,
        "recall": right / max(1, sum(true)), "precision": right / max(1, flagged),
    }  # fmt: skip


def main() -> None:
    parser = report.parser("published", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--corpus", default="posts-40k", help="posts-40k, posts-5k, ... (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each system (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity of the truth (%(default)s)")
    given = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"  # rensa reads it at its first call
    where = report.environment(("rensa", "FastSketchLSH", "numpy", "numba", "rocksdict"))
    from_anywhere()
    wanted = corpus(given.corpus)
    texts = [text for _, text in read_documents(unpack(wanted, given.data, given.work), wanted.text_fields)]
    rows = []
    for kind, cut in (("3-word shingles", shingles), ("words", words)):
        sets = [cut(text) for text in texts]
        true = truth(sets, given.threshold)
        print(f"{kind}: {sum(true):,} of {len(sets):,} documents have a near-duplicate", flush=True)
        rates, answers = defaultdict[tuple[str, int | None], list[float]](list), dict[tuple[str, int | None], Flags]()
        for _ in range(given.rounds):
            for system, flag in SYSTEMS.items():
                for bands in (8, 16):
                    start = time.perf_counter()
                    answers[system, bands] = flag(sets, bands)
                    rates[system, bands].append(len(sets) / (time.perf_counter() - start))
            with tempfile.TemporaryDirectory(dir=given.work) as folder:
                rate, answers["stream-lsh", None] = ours(sets, Path(folder), given.threshold)
                rates["stream-lsh", None].append(rate)
        rows += [row(kind, *key, rates[key], flags, true) for key, flags in answers.items()]
    print(report.table(COLUMNS, rows))
    report.write(given.out, "published", where, rows, report.table(COLUMNS, rows, markdown=True))


if __name__ == "__main__":
    main()
