"""An input that is not what was read before is noticed; one that has grown, moved or been copied goes on."""

import gzip
import os
import random
import shutil
from pathlib import Path

import pytest

from stream_lsh import Settings
from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded import checksums
from stream_lsh.embedded.checksums import Checksums
from stream_lsh.embedded.inputs import LineInput
from stream_lsh.embedded.job import Job
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import InputError

NOISE = random.Random(7)
LINES = [b'{"id":%d,"text":"a line of a dump: %s"}\n' % (n, NOISE.randbytes(50).hex().encode()) for n in range(300)]
FEED = b"".join(LINES)


def run(folder: Path, feed: Path) -> Summary:
    outputs = {"verdicts": str(folder / "verdicts")}
    return Job(Settings(), [str(feed)], outputs, folder / "index").run()


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("longer", [True, False])
def test_a_corrected_dump_is_noticed(tmp_path: Path, suffix: str, longer: bool) -> None:
    """The same beginning, a line behind the first 4,096 bytes that is another, and something new at its end."""

    def pack(*parts: bytes) -> bytes:
        return b"".join(map(gzip.compress, parts) if suffix else parts)

    feed, new = tmp_path / f"feed.jsonl{suffix}", b'{"id":"new","text":"a line that is new in the dump"}\n'
    feed.write_bytes(pack(b"".join(LINES[:150]), b"".join(LINES[150:])))
    run(tmp_path, feed)
    before = (tmp_path / "verdicts").read_bytes()
    lines = [*LINES]
    lines[200] = lines[200].replace(b"a dump", b"a dump, corrected" if longer else b"a damp")
    feed.write_bytes(pack(b"".join(lines[:150]), b"".join([*lines[150:], new])))
    with pytest.raises(InputError, match=r"has changed where it was read before \(to line 300\)"):
        run(tmp_path, feed)
    assert (tmp_path / "verdicts").read_bytes() == before
    feed.write_bytes(pack(FEED, new))
    assert run(tmp_path, feed).documents == 1


def test_a_file_that_was_touched_or_copied_is_the_same(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(FEED)
    run(tmp_path, feed)
    os.utime(feed, (1, 1))
    assert run(tmp_path, feed).already_done == (str(feed),)
    shutil.copy(feed, tmp_path / "copy")
    (tmp_path / "copy").replace(feed)
    assert run(tmp_path, feed).already_done == (str(feed),)
    link = tmp_path / "link.jsonl"
    link.symlink_to(feed)
    assert run(tmp_path, link).already_done == (str(link),)


def test_checksums_go_on_wherever_a_run_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a block, of a chunk of blocks, behind a line that was too large, a blank one, or none at all."""
    monkeypatch.setattr("stream_lsh.embedded.checksums.BLOCK", 1000)
    monkeypatch.setattr("stream_lsh.embedded.feed.BLOCK", 1000)
    monkeypatch.setattr("stream_lsh.embedded.feed.CHUNK", 4)
    chance, feed = random.Random(2), tmp_path / "feed.jsonl"
    parts = [b"\xef\xbb\xbf" + LINES[0], b"\n \n", b"x" * 5000 + b"\n", *LINES[1:], b"\n", b'{"id":"y","text":"z w"}']
    written, whole = 0, b"".join(parts)
    while written < len(whole):
        written = min(len(whole), written + chance.choice((1, 4500, 9000, 20_000)))
        feed.write_bytes(whole[:written])
        Job(Settings(max_document_bytes=1000), [str(feed)], {}, tmp_path / "index").run()
    for at in chance.sample(range(4096, len(whole)), 4):
        feed.write_bytes(changed(whole, at))
        with pytest.raises(InputError, match=f"from {at // 1000 * 1000:,} to"):
            run(tmp_path, feed)


def test_of_a_long_file_a_sample_is_compared_unless_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read last always is: there a change of any length shows."""
    monkeypatch.setattr(checksums, "BLOCK", 100)
    monkeypatch.setattr(checksums, "MOST", 8)
    data = random.Random(1).randbytes(10_050)
    path = tmp_path / "long"
    made = Checksums(Position(), [])
    made.add(data)
    position = Position(len(data), 7, made.begun)
    input, reads = LineInput(str(path), Fields()), 0
    pread = os.pread

    def counted(*given: int) -> bytes:
        nonlocal reads
        reads += 1
        return pread(*given)

    monkeypatch.setattr(os, "pread", counted)
    for at in (9_700, 10_020):
        path.write_bytes(changed(data, at))
        assert input.difference(position, made.whole, everything=False) == at // 100 * 100
    path.write_bytes(data + b"more")
    reads = 0
    assert input.difference(position, made.whole, everything=False) is None
    assert reads == 9
    path.write_bytes(changed(data, 4_242))
    assert input.difference(position, made.whole, everything=True) == 4_200
