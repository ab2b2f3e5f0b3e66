"""Speed, recall and precision beside datasketch, rensa, gaoya, FastSketchLSH and incrededup: same documents, one run.

Every system runs in a process of its own, one after the other, round after round (A B C D, A B C D, ...), so that a
slow minute of the machine hits all of them. The peers work on one core, and all but incrededup in memory; how each is
used stands in bench/systems.py and bench/incrededup.py. All but incrededup are given the same shingles. It has its own
words, and names one pair for each duplicate, so that its recall and precision are not those of pairs. "restart" is how
long it takes a new process to know all documents again: in memory, it reads them again. stream-lsh is its installed
command line with a persistent index and exact verification.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import incrededup, report
from bench.corpora import EXAMPLE_NAMES, Corpus, corpus, known_ids, unpack
from bench.engine import comparison_options, from_anywhere, own_rate, pairs_command, read_pairs, require_success
from bench.process import folder_bytes, watch
from bench.scoring import Pair, read_truth, score
from bench.systems import SYSTEMS
from bench.tokens import TOKENIZERS

OURS = "stream-lsh"
QUIET = 0.1  # cores busy with something else that do not matter
DEFAULT = ("datasketch", "datasketch-mmh3", "rensa", "fastsketch", "gaoya", "gaoya-words", OURS)
ALL = (*SYSTEMS, incrededup.NAME, OURS)
COLUMNS = {
    "system": "system", "rate": "documents/s", "whole": "whole process", "cpu_micros": "CPU µs/document",
    "recall": "recall", "precision": "precision", "peak_mb": "peak MB", "disk": "bytes/document on disk",
    "restart": "restart, s", "others": "other load",
}  # fmt: skip
EXAMPLE = "python -m bench.peers --corpora posts-5k --rounds 1 --systems rensa,gaoya,stream-lsh --out results"


def run_peer(system: str, wanted: Corpus, file: Path, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run of a peer: its figures, and its pairs under "pairs"."""
    return peer(system, file, folder, wanted.text_fields, given.threshold, given.tokenizer, threads=given.peer_threads)


def peer(
    system: str,
    file: Path,
    folder: Path,
    text_fields: Sequence[str],
    threshold: float,
    tokenizer: str = "regex",
    *,
    unique: bool = False,
    updates: bool = False,
    threads: int = 1,
) -> dict[str, Any]:
    """One run of a peer over a file, its pairs in a folder; as `run_peer`."""
    pairs, said = folder / "pairs.tsv", folder / "said.json"
    command = [sys.executable, "-m", "bench.systems", system, str(file), "--pairs", str(pairs)]
    command += ["--text-field", ",".join(text_fields), "--threshold", str(threshold), "--tokenizer", tokenizer]
    environment = {name: str(threads) for name in ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command += ["--unique"] * unique + ["--updates"] * updates
    finished = watch(command, every=0.5, output=said, environment=environment)
    require_success(finished, system)
    own = json.loads(said.read_bytes())
    found = [tuple(line.split("\t")) for line in pairs.read_text(encoding="utf-8").splitlines()]
    return {
        "documents": own["documents"], "rate": own["documents"] / own["seconds"],
        "whole": own["documents"] / finished.seconds, "cpu_micros": 1e6 * own["cpu"] / own["documents"],
        "peak_mb": own["peak"] / 1e6, "disk": None, "restart": finished.seconds,
        "others": finished.others, "pairs": found,
    }  # fmt: skip


def run_ours(wanted: Corpus, file: Path, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run of stream-lsh into a fresh index: as `run_peer`; `rate` is what its own summary says."""
    pairs, state = folder / "pairs.jsonl", folder / "state"
    options = comparison_options(given.threshold, wanted.text_fields) + shlex.split(given.options)
    command = pairs_command(file, state, pairs, options)
    finished = watch(command, every=0.05)
    require_success(finished, OURS)
    size, found = folder_bytes(state), list(read_pairs(pairs))
    again = watch(command)
    require_success(again, OURS)
    shutil.rmtree(state)
    return {
        "documents": wanted.documents, "rate": own_rate(finished.errors), "whole": wanted.documents / finished.seconds,
        "cpu_micros": 1e6 * finished.cpu_seconds / wanted.documents, "peak_mb": finished.peak / 1e6,
        "disk": size / wanted.documents, "restart": again.seconds, "others": finished.others, "pairs": found,
    }  # fmt: skip


def run(system: str, wanted: Corpus, file: Path, given: argparse.Namespace) -> dict[str, Any]:
    """One run of one system in a temporary folder of the work folder."""
    with tempfile.TemporaryDirectory(dir=given.work, prefix="run-") as folder:
        if system == OURS:
            return run_ours(wanted, file, given, Path(folder))
        if system == incrededup.NAME:
            return incrededup.run(file, wanted.text_fields, given.threshold, Path(folder), given.peer_threads)
        return run_peer(system, wanted, file, given, Path(folder))


def measure(wanted: Corpus, systems: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rounds over one corpus, a row a run."""
    file = unpack(wanted, given.data, given.work)
    truth: dict[Pair, float] = read_truth(given.data / wanted.truth)
    known = known_ids(file, wanted)
    if OURS in systems:  # compile the kernels into numba's cache, as the first start of a user does it once
        run(OURS, corpus("posts-1k"), unpack(corpus("posts-1k"), given.data, given.work), given)
    for number in range(given.rounds):
        for system in systems:
            row = run(system, wanted, file, given)
            found = score(row.pop("pairs"), truth, given.threshold, known)
            row = {
                "kind": "run", "corpus": wanted.name, "system": system, "round": number, "tokenizer": given.tokenizer,
                "threshold": given.threshold, **row, "recall": found.recall, "precision": found.precision,
                "true_pairs": found.true, "reported_pairs": found.reported,
            }  # fmt: skip
            line = f"  {wanted.name}, round {number + 1}: {system} {row['rate'] or row['whole']:,.0f} documents/s"
            print(line + disturbance(row["others"]), flush=True)
            yield row


def disturbance(others: float | None) -> str:
    """A warning if other processes were at work during a run."""
    return f" (while {others:.1f} cores were busy with something else)" if others and others > QUIET else ""


def summarize(rows: list[dict[str, Any]], systems: list[str]) -> list[dict[str, Any]]:
    """Medians over the rounds, a row a system."""
    medians = []
    for system in systems:
        own = [row for row in rows if row["system"] == system]
        keys = [key for key in COLUMNS if key != "system"]
        values = {key: [row[key] for row in own if row[key] is not None] for key in keys}
        medians.append(
            {"kind": "median", "corpus": own[0]["corpus"], "system": system, "rounds": len(own)}
            | {key: statistics.median(found) if found else None for key, found in values.items()}
        )
    return medians


def ratios(medians: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Ours, by its whole process, over the peers, by their own time: the hard way to count. None without either."""
    ours = [row for row in medians if row["system"] == OURS]
    peers = [row for row in medians if row["system"] != OURS]
    if not ours or not peers:
        return None
    fastest = max(peers, key=lambda row: row["rate"])
    rate = ours[0]["whole"]
    result = {
        "kind": "ratio",
        "corpus": ours[0]["corpus"],
        "fastest": fastest["system"],
        "to_fastest": rate / fastest["rate"],
    }
    return result | {f"to_{row['system']}": rate / row["rate"] for row in peers}


def sentence(ratio: dict[str, Any]) -> str:
    """The ratios in words."""
    others = [
        f"{value:.3g} times {key[3:]}" for key, value in ratio.items() if key[:3] == "to_" and key != "to_fastest"
    ]
    return (
        f"{OURS}, its whole process counted, against the peers' own time: {', '.join(others)}; "
        f"the fastest of them is {ratio['fastest']}."
    )


def main() -> None:
    parser = report.parser("peers", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument(
        "--corpora", default="posts-40k,posts-120k", help=f"comma list of {EXAMPLE_NAMES} (%(default)s)"
    )
    parser.add_argument(
        "--systems",
        default=",".join(DEFAULT),
        help=f"comma list of {', '.join([*SYSTEMS, incrededup.NAME, OURS])} (%(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each system (%(default)s)")
    parser.add_argument("--threshold", type=float, default=0.8, help="Jaccard similarity (%(default)s)")
    parser.add_argument(
        "--tokenizer", choices=TOKENIZERS, default="regex",
        help="how the peers' words are cut in Python: by the definition, or by a faster way for ASCII (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--peer-threads", type=int, default=1, help="threads the peers may use (%(default)s)")
    parser.add_argument("--options", default="", help='more options for stream-lsh, for example "--shards 2"')
    given = parser.parse_args()
    systems = given.systems.split(",")
    for system in systems:
        if system not in ALL:
            parser.error(f"there is no system {system!r}")
        if system == incrededup.NAME and not incrededup.available():
            parser.error("incrededup is not on the PATH: cargo install incrededup")
    try:
        wanted = [corpus(name) for name in given.corpora.split(",")]
    except ValueError as error:
        parser.error(str(error))

    where = report.environment(("datasketch", "rensa", "gaoya", "FastSketchLSH", "numpy", "numba", "rocksdict"))
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    results: list[dict[str, Any]] = []
    texts = []
    for one in wanted:
        rows = list(measure(one, systems, given))
        medians = summarize(rows, systems)
        ratio = ratios(medians)
        title = (
            f"{one.name}: {one.documents:,} documents, Jaccard >= {given.threshold:g}, tokenizer of the peers: "
            f"{given.tokenizer}, medians of {given.rounds}"
        )
        print(f"\n{title}\n{report.table(COLUMNS, medians)}")
        texts.append(f"{title}\n\n{report.table(COLUMNS, medians, markdown=True)}")
        if ratio:
            print(sentence(ratio))
            texts[-1] += "\n\n" + sentence(ratio)
        results += rows + medians + ([ratio] if ratio else [])
        report.write(given.out, "peers", where, results, "\n\n".join(texts))  # after each: a long run may be stopped


if __name__ == "__main__":
    main()
