import random
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_lsh.errors import DamagedError, StoreError
from stream_lsh.index.postings import run as module
from stream_lsh.index.postings.bloom_filter import filter_mask, filter_word
from stream_lsh.index.postings.bucket import count, earliest, key_range, passing, read, read_before
from stream_lsh.index.postings.memtable import BEHIND_ALL, Memtable, find
from stream_lsh.index.postings.posting import posting_bytes
from stream_lsh.index.postings.run import Run, merge, read_header
from stream_lsh.index.rows.keys import KEY_BITS
from stream_lsh.index.store.files import disk_bytes

ROOM = 64  # keys read at once
LOW = np.uint64(2 ** (64 - KEY_BITS))  # keys differ by this at least


def postings(seed: int, n: int, first: int, common: int = 0) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Sorted postings with random keys; `common` keys occur in every run made with them."""
    chance = np.random.default_rng(seed)
    keys = chance.integers(1, 2**64, n, np.uint64, endpoint=False)
    shared = np.random.default_rng(0).integers(1, 2**64, max(common, 1), np.uint64, endpoint=False)
    keys[:common] = shared[:common]
    keys = keys // LOW * LOW
    rows = chance.integers(first, first + 1000, n).astype(np.uint32)
    order = np.lexsort((rows, keys))
    return keys[order], rows[order]


def looked_up(run: Run, key: np.uint64, first: int = 0) -> list[int]:
    """All rows under a key, the oldest first."""
    table, memory, out = run.line(first)[None], Memtable.of(1), np.empty(10_000, np.int64)
    room = np.empty(ROOM, np.uint64)
    hits = np.empty((1, (len(table) + 63) >> 6), np.uint64)
    passing(np.array([key]), table, hits)
    slot = find(memory, key)
    n, more = read(key, slot, hits, 0, table, memory, first, np.int64(len(out)), room, out)
    start, stop, _ = key_range(table, 0, key, first, BEHIND_ALL, room)
    assert not more and n == stop - start == count(key, slot, hits, table, memory, first, room)
    for limit in (1, 3, n - 1):
        if 0 < limit < n:
            few = np.empty(n, np.int64)
            assert read(key, slot, hits, 0, table, memory, first, np.int64(limit), room, few) == (limit, True)
            assert np.array_equal(few[:limit], out[:limit])
    for row in {first + 1, first + 1000, *out[:n].tolist(), *(out[: n : max(7, n // 20)] + 1).tolist()}:
        later = out[:n][out[:n] >= row]
        assert count(key, slot, hits, table, memory, row, room) == len(later)
        some = np.empty(n, np.int64)
        assert read(key, slot, hits, 0, table, memory, row, np.int64(n), room, some) == (len(later), False)
        assert np.array_equal(some[: len(later)], later)
        for end in {row + 1, row + 500, int(out[0]), int(out[n // 2]) + 1}:
            between = later[later < end]
            for most in (1, 3, n):
                got = read_before(key, slot, hits, 0, table, memory, row, end, np.int64(most), room, some)
                assert got == (min(most, len(between)), len(between) > most)
                assert np.array_equal(some[: got[0]], between[:most])
        for most in (1, 3, n):
            assert earliest(key, slot, hits, table, memory, row, np.int64(most), room, some) == min(most, len(later))
            assert np.array_equal(some[: min(most, len(later))], later[::-1][:most])
    return out[:n][::-1].tolist()


@pytest.mark.parametrize("n", [1, 5, 1000, 70_000])
def test_every_key_is_found_and_passes_the_filter(tmp_path: Path, n: int) -> None:
    keys, rows = postings(1, n, 0, common=n // 3)
    run = Run.of(keys, rows, 0, 1000)
    run.write(tmp_path / "run-0-1.bin")
    opened = Run.open(tmp_path / "run-0-1.bin", check=True)
    for one in (run, opened):
        for i in range(0, n, max(1, n // 300)):
            expected = rows[keys == keys[i]].tolist()
            assert looked_up(one, keys[i]) == expected
            mask = filter_mask(keys[i])
            assert one.filter[filter_word(keys[i], np.uint64(len(one.filter)))] & mask == mask


def test_a_bucket_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    """Its ends are found by bisection, those of its neighbours too."""
    keys, rows = postings(1, 3000, 0)
    keys[700:2500] = keys[700]
    rows[700:2500].sort()
    run = Run.of(keys, rows, 0, 1000)
    run.write(tmp_path / "run-0-1.bin")
    for one in (run, Run.open(tmp_path / "run-0-1.bin", check=True)):
        for i in (699, 700, 2500):
            assert looked_up(one, keys[i]) == rows[keys == keys[i]].tolist()
        assert looked_up(one, keys[700] + LOW) == []
        assert looked_up(one, keys[700] - LOW) == []


def test_few_foreign_keys_pass_the_filter() -> None:
    """Expected are about 1 %; 3 % of 20,000 would be more than 20 standard deviations away."""
    run = Run.of(*postings(1, 200_000, 0), 0, 1000)
    foreign = np.random.default_rng(9).integers(1, 2**64, 20_000, np.uint64, endpoint=False)
    passed = sum(
        run.filter[filter_word(key, np.uint64(len(run.filter)))] & filter_mask(key) == filter_mask(key)
        for key in foreign
    )
    assert passed < 600


def test_merging_equals_sorting_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1000)  # many chunks
    parts = [postings(seed, size, 1000 * seed, common=20) for seed, size in ((0, 3000), (1, 20), (2, 5000), (3, 2500))]
    runs = []
    for number, (keys, rows) in enumerate(parts):
        run = Run.of(keys, rows, 1000 * number, 1000 * (number + 1))
        run.write(tmp_path / f"run-0-{number}.bin")
        runs.append(Run.open(tmp_path / f"run-0-{number}.bin"))
    merge(runs, tmp_path / "run-0-9.bin")
    merged = Run.open(tmp_path / "run-0-9.bin", check=True)
    keys = np.concatenate([part[0] for part in parts])
    rows = np.concatenate([part[1] for part in parts])
    order = np.lexsort((rows, keys))
    for start, stop in ((0, len(keys)), (17, 4001), (len(keys) - 1, len(keys)), (5, 5)):
        found_keys, found_rows = merged.between(start, stop)
        assert np.array_equal(found_keys, keys[order][start:stop])
        assert np.array_equal(found_rows, rows[order][start:stop])
    for at in range(0, len(keys), 500):
        key = int(keys[order][at])
        assert merged.position(key) == np.searchsorted(keys[order], np.uint64(key))
    assert (merged.level, merged.first, merged.last) == (1, 0, 4000)
    whole = Run.of(keys[order], rows[order], 0, 4000)
    assert np.array_equal(merged.filter, whole.filter)
    assert np.array_equal(merged.directory, whole.directory)


@pytest.mark.parametrize("where", [5, 100, 4096, -3000])
def test_damage_is_named(tmp_path: Path, where: int) -> None:
    path = tmp_path / "run-0-1.bin"
    Run.of(*postings(1, 5000, 0), 0, 1000).write(path)
    data = bytearray(path.read_bytes())
    data[where] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"run-0-1\.bin.*rebuilt from the rows"):
        Run.open(path, check=True)


def test_merge_stops_at_damaged_postings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever byte of whichever run is changed: the new file would have a checksum that fits."""
    monkeypatch.setattr(module, "CHUNK", 1000)  # many chunks
    for number, size in enumerate((3000, 20, 2500)):
        Run.of(*postings(number, size, 1000 * number), 1000 * number, 1000 * (number + 1)).write(
            tmp_path / f"run-0-{number}.bin"
        )
    paths, chance = sorted(tmp_path.iterdir()), random.Random(1)
    whole = [path.read_bytes() for path in paths]
    for turn in range(60):
        path = paths[turn % 3]
        section = read_header(path)["postings"]
        data = bytearray(whole[turn % 3])
        size = posting_bytes(section["count"], 1000) * section["count"]
        at = section["start"] + (0, size - 1, chance.randrange(size))[turn // 3 % 3]
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        said = rf"{path} is damaged \(postings\); delete the folder {tmp_path} and start again"
        with pytest.raises(DamagedError, match=said):
            merge([Run.open(each) for each in paths], tmp_path / "run-0-9.bin")
        assert sorted(tmp_path.iterdir()) == paths and path.read_bytes() == data
        path.write_bytes(whole[turn % 3])
    merge([Run.open(each) for each in paths], tmp_path / "run-0-9.bin")
    Run.open(tmp_path / "run-0-9.bin", check=True)


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space"):
        Run.of(*postings(1, 50, 0), 0, 1000).write(tmp_path / "run-0-1.bin")
    assert list(tmp_path.iterdir()) == []


def test_the_size_of_a_folder_whose_files_come_and_go(tmp_path: Path) -> None:
    """A flush gives files their names while the summary of a job counts them."""
    (tmp_path / "stays").write_bytes(bytes(100))
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(20):
                (tmp_path / f"{number}.writing").touch()
            for number in range(20):
                (tmp_path / f"{number}.writing").rename(tmp_path / f"{number}.bin")
            stop.wait(0.001)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {disk_bytes(tmp_path) for _ in range(500)} == {100}
        assert thread.is_alive()  # or nothing came and went
    finally:
        stop.set()
        thread.join()
