"""How rare terms are, counted, fading, kept in the store; and the process that compiles beside the others."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.errors import DamagedError
from stream_lsh.families.terms import TERM_SHIFT
from stream_lsh.index.kernel import compiling
from stream_lsh.index.kernel.document_frequency import (
    UNIT,
    Counted,
    DocumentFrequency,
    count,
    folded,
    idf_of,
    most_rare,
    superseded,
    weigh_among,
)
from stream_lsh.index.kernel.match import match
from stream_lsh.index.store.rocksdb import FREQUENCIES, Store, rows_key
from stream_lsh.settings.model import Settings


def fed(counted: Counted, documents: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for _ in range(documents):
        terms = chance.integers(1, 1 << 23, 50).astype(np.uint64) << TERM_SHIFT
        count(counted.frequencies, terms, 0, len(terms), TERM_SHIFT)


def new(store: Store) -> Counted:
    return Counted(store, 0, DocumentFrequency.of(4, 16, 32))


@pytest.mark.parametrize("folds", [False, True])
def test_what_is_kept_is_what_was_counted(tmp_path: Path, folds: bool) -> None:
    """Also where the values become one now and then, while more is counted."""
    store = Store(tmp_path / "db")
    counted = new(store)
    counted.begin(0, fades=True)
    for turn in range(60):
        if turn == 30:
            counted.begin(1, fades=True)
        fed(counted, 10, turn)
        if folds and turn % 5 == 0:
            values, ranges = folded(store, 0, trimmed=False)
            store.write(values, ranges=ranges)
            assert len(list(store.rows_of(FREQUENCIES, 0, 0))) == min(turn, 1)
        values, ranges = counted.take()
        store.write(values, ranges=ranges)
        if turn % 7 == 0:
            again = new(store)
            assert (again.frequencies.counts == counted.frequencies.counts).all()
            counted = again
    assert 0 < int(counted.frequencies.counts.sum()) < 600 * 50 * UNIT
    assert len(list(store.rows_of(FREQUENCIES, 0, 0))) <= 31
    store.close()


def values_of(store: Store, turns: int) -> list[dict[bytes, bytes]]:
    """What so many commits to an empty store would write, of which the fifth begins a segment."""
    counted, out = new(store), []
    for turn in range(turns):
        counted.begin(int(turn >= 4), fades=True)
        fed(counted, 3, turn)
        out.append(counted.take()[0])
    return out


def test_a_copy_needs_what_the_last_whole_one_begins_with(tmp_path: Path) -> None:
    store, stored = Store(tmp_path / "db"), dict[bytes, bytes]()
    values = values_of(store, 7)
    for part in values[:2]:
        store.write(part)
    for part in values[2:]:
        stored |= part
    passed = superseded(stored)
    assert sorted(stored) == [rows_key(FREQUENCIES, 0, 0, number) for number in (4, 5, 6)]
    store.write(stored, ranges=passed)
    assert [number for number, _ in store.rows_of(FREQUENCIES, 0, 0)] == [4, 5, 6]
    again = new(store)
    assert 0 < int(again.frequencies.counts.sum()) < 21 * 50 * UNIT
    with closing(Store(tmp_path / "whole")) as whole:
        for part in values:
            whole.write(part)
        assert (new(whole).frequencies.counts == again.frequencies.counts).all()


def test_what_a_trimmed_changelog_has_left_is_a_beginning(tmp_path: Path) -> None:
    """A count that is missing is damage anywhere else."""
    store = Store(tmp_path / "db")
    for part in values_of(store, 4)[2:]:
        store.write(part)
    with pytest.raises(DamagedError, match="the document frequencies of shard 0 are damaged"):
        new(store)
    counted = Counted(store, 0, DocumentFrequency.of(4, 16, 32), trimmed=True)
    assert int(counted.frequencies.counts.sum()) == 6 * 50 * UNIT
    values, ranges = folded(store, 0, trimmed=True)
    store.write(values, ranges=ranges)
    assert (new(store).frequencies.counts == counted.frequencies.counts).all()


def test_an_eighth_fades_and_little_is_removed_at_last(tmp_path: Path) -> None:
    counted = new(Store(tmp_path / "db"))
    counted.begin(0, fades=True)
    terms = np.array([7 << 9], np.uint64)
    for _ in range(8):
        count(counted.frequencies, terms, 0, 1, TERM_SHIFT)
    counted.begin(1, fades=True)
    counted.begin(1, fades=True)  # again after a restart: it has begun
    assert int(counted.frequencies.counts[7]) == 7 * UNIT
    for segment in range(2, 60):
        counted.begin(segment, fades=True)
    assert not counted.frequencies.counts.any()


def test_rare_terms_say_more(tmp_path: Path) -> None:
    frequencies = new(Store(tmp_path / "db")).frequencies
    for n in range(100):
        count(frequencies, np.array([1 << 9, (2 + n % 50) << 9], np.uint64), 0, 2, TERM_SHIFT)
    weigh_among(frequencies, np.uint64(2))
    assert frequencies.among == 2 + 10
    weigh_among(frequencies, np.uint64(1))
    assert frequencies.among == 100 + 10
    said = [idf_of(frequencies, np.uint64(term), 0.0) for term in (1, 2, 60)]
    assert said == sorted(said) and said[0] < 0.3 and said[2] <= most_rare(frequencies) * 1.2


def test_damaged_frequencies_are_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "db")
    counted = new(store)
    counted.begin(0, fades=False)
    fed(counted, 3, 1)
    values, ranges = counted.take()
    store.write({**values, rows_key(FREQUENCIES, 0, 0, 0): next(iter(values.values()))[:-3]}, ranges=ranges)
    with pytest.raises(DamagedError, match="the document frequencies of shard 0 are damaged"):
        new(store)


class _Missing:
    """The kernel, as it is before the first start."""

    @staticmethod
    def ready(*_: object) -> bool:
        return False


def test_it_finds_the_package_and_nothing_of_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stream_lsh", "numba", "json"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiling, "match", _Missing)
    monkeypatch.setattr(compiling, "_process", None)
    process = compiling.begin(Settings())
    assert process is not None and process.wait() == 0
    assert not (tmp_path / "imported").exists()
    assert match.ready(*compiling.TYPES)


def test_it_is_not_started_when_the_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    match.compile(compiling.TYPES)
    monkeypatch.setattr(compiling, "_process", None)
    assert compiling.begin(Settings()) is None


def test_what_it_compiles_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is there, or the process has ended."""
    looks = iter([False, False, True])

    class Kernel:
        def ready(self, *_: object) -> bool:
            return next(looks)

    class Process:
        asked = 0

        def poll(self) -> int | None:
            return None

        def wait(self, seconds: float) -> None:
            self.asked += 1
            raise subprocess.TimeoutExpired("compiling", seconds)

    process = Process()
    monkeypatch.setattr(compiling, "_process", process)
    compiling._wait(Kernel())  # type: ignore[arg-type]
    assert process.asked == 2
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(compiling, "_process", ended)
    compiling._wait(_Missing())  # type: ignore[arg-type]


def test_this_process_compiles_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs itself, then the last ones of the other process, needed here or not."""
    done: list[object] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def ready(self, *_: object) -> bool:
            return self.name in done

        def load(self) -> None:
            if not self.ready():
                done.append(self.name)

        def compile(self, _: object) -> None:
            self.load()

    class Process:
        def poll(self) -> int | None:
            return None

        def wait(self, _: float) -> None:
            done.extend(["match", "a", "b", "c"])

    kernels = {"some": tuple(map(Kernel, "abc")), "more": tuple(map(Kernel, "de"))}
    monkeypatch.setattr(compiling, "_process", Process())
    monkeypatch.setattr(compiling, "_theirs", [kernel for name in kernels for kernel in kernels[name]])
    monkeypatch.setattr(compiling, "match", Kernel("match"))
    monkeypatch.setattr(compiling, "FAR", kernels)
    compiling.have(["some"], lambda: done.append("own"))
    assert done == ["own", "e", "d", "match", "a", "b", "c"]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["general"]),
        ({"measure": "tf-idf"}, ["tf-idf"]),
        ({"measure": "containment"}, ["general", "samples", "measures"]),
        ({"measure": "hamming", "dimensions": 16, "max_distance": 1}, ["general", "measures"]),
        ({"shards": 2}, ["general", "late"]),
        ({"on_conflict": "update", "deleted_field": "gone"}, ["general", "updates", "deletions"]),
    ],
)
def test_what_settings_need_besides(chosen: dict[str, object], names: list[str]) -> None:
    assert compiling.needed(Settings.model_validate(chosen)) == names
