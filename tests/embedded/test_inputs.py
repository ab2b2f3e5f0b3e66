"""Inputs: every way in, positions, damage, latency."""

import gzip
import io
import json
import lzma
import os
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.documents.columns import LINE_ID, Fields, Position
from stream_lsh.embedded import inputs
from stream_lsh.embedded.feed import open_input
from stream_lsh.embedded.lines import Batch, LineSplitter
from stream_lsh.errors import InputError, UsageError

START = Position()

Compress = Callable[[bytes], bytes]
COMPRESS: dict[str, Compress] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def document(i: int, text: str = "some text") -> bytes:
    return json.dumps({"id": i, "text": f"{text} {i}"}).encode()


def feed(count: int) -> bytes:
    return b"".join(document(i) + b"\n" for i in range(count))


def read(path: Path | str, position: Position = START, fields: Fields | None = None, most: int = 2048) -> list[Batch]:
    source = open_input(str(path), fields or Fields())
    source.max_documents = most
    return list(source.batches(position))


def rows(batches: list[Batch]) -> list[tuple[bytes, bytes, int, int, str | None]]:
    return [
        (
            batch.ids[i],
            batch.lines.raw(i),
            int(batch.lines.numbers[i]),
            int(batch.lines.offsets[i]),
            batch.rejected[i].reason if i in batch.rejected else None,
        )
        for batch in batches
        for i in range(len(batch))
    ]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_of_lines(tmp_path: Path, suffix: str) -> None:
    data = feed(5000)
    path = write(tmp_path / f"in.jsonl{suffix}", COMPRESS[suffix](data))
    opened = open_input(str(path), Fields())
    opened.check()
    batches = list(opened.batches(START))
    found = rows(batches)
    assert [row[1] for row in found] == data.splitlines()
    assert [row[2] for row in found] == list(range(1, 5001))
    assert all(data[offset : offset + len(raw)] == raw for _, raw, _, offset, _ in found)
    assert batches[-1].lines.position == Position(len(data), 5000)
    assert opened.raw_position == opened.size == path.stat().st_size
    assert {len(batch) <= 2048 for batch in batches} == {True}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_resuming_from_every_position(tmp_path: Path, suffix: str) -> None:
    data = b"\xef\xbb\xbf" + b"\n" + feed(20) + b" \t\r\n\n" + feed(10)[:-1]
    path = write(tmp_path / f"in.jsonl{suffix}", COMPRESS[suffix](data))
    batches = read(path, most=1)
    everything = rows(batches)
    assert len(everything) == 30
    for i, batch in enumerate(batches):
        assert rows(read(path, batch.lines.position)) == everything[i + 1 :]


def test_empty_files(tmp_path: Path) -> None:
    assert read(write(tmp_path / "in", b"")) == []
    for suffix in (".gz", ".xz", ".zst"):
        assert read(write(tmp_path / f"in{suffix}", COMPRESS[suffix](b""))) == []
        with pytest.raises(InputError, match="ends in the middle"):
            read(write(tmp_path / f"in{suffix}", b""))


def test_lines_ids_name_the_input(tmp_path: Path) -> None:
    path = write(tmp_path / "in", b'{"text":"a"}\n\n{"text":"b"}\n')
    assert read(path, fields=Fields(id_field=LINE_ID))[0].ids == [json.dumps(f"{path}:{n}").encode() for n in (1, 3)]


def test_dead_letters_have_their_positions(tmp_path: Path) -> None:
    path = write(tmp_path / "in", document(1) + b'\n{"id":2}\n')
    letter = json.loads(read(path)[0].dead_letter(1))
    assert (letter["input"], letter["line"], letter["offset"]) == (str(path), 2, len(document(1)) + 1)
    assert (letter["reason"], letter["original"]) == ("missing_field", '{"id":2}')


def test_missing_and_unreadable(tmp_path: Path) -> None:
    for name in ("missing.jsonl", "missing\0"):
        with pytest.raises(InputError, match="missing"):
            open_input(str(tmp_path / name), Fields()).check()
    path = write(tmp_path / "secret", b"")
    path.chmod(0)
    if not os.access(path, os.R_OK):
        with pytest.raises(InputError, match="permission"):
            open_input(str(path), Fields()).check()


def test_a_compressed_file_that_does_not_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"end in \.gz"):
        read(write(tmp_path / "in.jsonl", gzip.compress(feed(3))))


def test_identity_survives_growth_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "in", feed(3))
    before = open_input(str(path), Fields()).identity()
    assert before is not None and before.path == str(path.resolve())
    assert (before.head_bytes, before.size) == (len(feed(3)), len(feed(3)))
    assert open_input(str(path), Fields()).matches(before)
    write(path, feed(1000))
    assert open_input(str(path), Fields()).matches(before)
    after = open_input(str(path), Fields()).identity()
    assert after is not None and after.head_bytes == 4096
    write(path, feed(2))
    assert not open_input(str(path), Fields()).matches(before)
    write(path, b"x" + feed(3))
    assert not open_input(str(path), Fields()).matches(before)
    assert open_input("-", Fields()).identity() is None


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_that_shrank(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"in{suffix}", COMPRESS[suffix](feed(10)))
    position = read(path)[-1].lines.position
    write(path, COMPRESS[suffix](feed(9)))
    with pytest.raises(InputError, match="shorter"):
        read(path, position)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_several_members(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESS[suffix]
    data = feed(3000)
    cuts = [0, 0, 1, 777, 40_000, len(data)]
    packed = b"".join(compress(data[a:b]) for a, b in pairwise(cuts))
    padding = b"" if suffix == ".zst" else b"\0" * 512
    found = read(write(tmp_path / f"in{suffix}", packed + padding))
    assert b"".join(row[1] + b"\n" for row in rows(found)) == data


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_truncated_anywhere(tmp_path: Path, suffix: str) -> None:
    data = b"".join(document(i, os.urandom(30).hex()) + b"\n" for i in range(3000))
    packed = COMPRESS[suffix](data)
    path = tmp_path / f"in{suffix}"
    delivered = []
    for cut in (1, 5, len(packed) // 2, len(packed) * 9 // 10, len(packed) - 1):
        write(path, packed[:cut])
        found: list[Batch] = []
        with pytest.raises(InputError) as caught:
            for batch in open_input(str(path), Fields()).batches(START):
                found.append(batch)
        lines = rows(found)
        assert [row[1] for row in lines] == data.splitlines()[: len(lines)]
        assert str(path) in str(caught.value) and f"{len(lines)} lines" in str(caught.value)
        delivered.append(len(lines))
    assert delivered == sorted(delivered) and delivered[-1] > 2000


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_corrupt_and_followed_by_rubbish(tmp_path: Path, suffix: str) -> None:
    data = b"".join(document(i, os.urandom(30).hex()) + b"\n" for i in range(3000))
    packed = bytearray(COMPRESS[suffix](data))
    for damaged in (bytes(packed) + b"rubbish", b"rubbish rubbish", _flipped(packed)):
        path = write(tmp_path / f"in{suffix}", damaged)
        found: list[Batch] = []
        with pytest.raises(InputError, match=r"damaged|middle"):
            for batch in open_input(str(path), Fields()).batches(START):
                found.append(batch)
        if damaged.endswith(b"rubbish") and len(damaged) > 100:
            assert len(rows(found)) == 3000


def _flipped(packed: bytearray) -> bytes:
    packed[len(packed) * 3 // 4] ^= 0x55
    return bytes(packed)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_bomb_does_not_fill_the_memory(tmp_path: Path, suffix: str) -> None:
    size = 64 << 20
    path = tmp_path / f"bomb{suffix}"
    block = b"x" * (1 << 20)
    if suffix == ".gz":
        data = COMPRESS[suffix](block) * (size >> 20)
    else:
        data = b"".join([COMPRESS[suffix](block)] * (size >> 20))
    write(path, data + COMPRESS[suffix](b"\n" + feed(1)))
    found = rows(read(path, fields=Fields(max_document_bytes=1 << 20)))
    assert [(row[2], row[4]) for row in found] == [(1, "too_large"), (2, None)]
    assert found[1][3] == size + 1


def test_a_huge_line_is_skipped(tmp_path: Path) -> None:
    huge = b'{"id":1,"text":"' + b"x" * 5_000_000 + b'"}'
    path = write(tmp_path / "in", feed(2) + huge + b"\n" + feed(1) + huge)
    batches = read(path, fields=Fields(max_document_bytes=1_000_000))
    found = rows(batches)
    assert [row[4] for row in found] == [None, None, "too_large", None, "too_large"]
    assert [len(row[1]) for row in found if row[4]] == [65536, 65536]
    letter = next(json.loads(batch.dead_letter(i)) for batch in batches for i in batch.rejected)
    assert (letter["truncated"], letter["size"], letter["original"]) == (True, len(huge), huge[:65536].decode())
    assert batches[-1].lines.position == Position(path.stat().st_size, 5)
    position = next(batch.lines.position for batch in batches if batch.rejected)
    assert [row[2:] for row in rows(read(path, position, fields=Fields(max_document_bytes=1_000_000)))] == [
        row[2:] for row in found[3:]
    ]


def split(data: bytes, cuts: list[int], limit: int, lines: int, start: Position = START) -> list[tuple[Any, ...]]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    blocks = [data[a:b] for a, b in pairwise(edges)]
    found = []
    for part in LineSplitter(start, limit, lines).split(blocks):
        for i in range(len(part.starts)):
            raw = part.data[int(part.starts[i]) : int(part.ends[i])]
            found.append((raw, int(part.numbers[i]), int(part.offsets[i]), part.rejected.get(i)))
        assert part.position.offset > 0
    return found


@settings(max_examples=400 if LONG else 100)
@given(
    st.lists(st.binary(max_size=20) | st.sampled_from([b"", b" ", b"\t\r", b"\xef\xbb\xbf"]), max_size=12),
    st.booleans(),
    st.lists(st.integers(0, 1000), max_size=20),
    st.integers(1, 15),
    st.integers(1, 4),
)
def test_lines_do_not_depend_on_the_blocks(
    pieces: list[bytes], mark: bool, cuts: list[int], limit: int, lines: int
) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + b"\n".join(pieces)
    expected = []
    offset = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        begin = 3 if offset == 0 and line.startswith(b"\xef\xbb\xbf") else 0
        raw = line[begin:]
        if raw.strip(b" \t\r") or len(raw) > limit:
            expected.append((raw, number, offset + begin, len(raw) > limit))
        offset += len(line) + 1
    found = [(raw, number, at, bool(why)) for raw, number, at, why in split(data, cuts, limit, lines)]
    blank_and_large = [row for row in expected if row[3] and not row[0].strip(b" \t\r")]
    assert [row for row in found if row not in blank_and_large] == [
        row for row in expected if row not in blank_and_large
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(60_000, 70_000))
def test_kept_beginnings_do_not_depend_on_the_blocks(cuts: list[int], limit: int) -> None:
    data = b"a\n" + b"x" * 66_000 + b"\n" + b"y" * 200_000 + b"\nb\n" + b"z" * 100_000
    whole = split(data, [], limit, 100)
    assert split(data, cuts, limit, 100) == whole
    assert max(len(row[0]) for row in whole) <= max(65536, limit)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write to of what is standard input for the inputs."""
    reader, writer = os.pipe()
    monkeypatch.setattr(inputs, "STANDARD_INPUT", reader)
    yield writer
    os.close(reader)


def test_a_line_is_given_as_soon_as_it_is_there(pipe: int) -> None:
    batches = open_input("-", Fields()).batches(START)
    for i in range(5):
        os.write(pipe, document(2 * i) + b"\n" + document(2 * i + 1)[:7])
        assert next(batches).ids == ([b"%d" % (2 * i - 1)] if i else []) + [b"%d" % (2 * i)]
        os.write(pipe, document(2 * i + 1)[7:] + (b"\n" if i < 4 else b""))
    os.close(pipe)
    assert next(batches).ids == [b"9"]
    assert list(batches) == []


def test_a_fast_pipe_makes_large_batches(pipe: int) -> None:
    data = feed(30_000)

    def produce() -> None:
        with io.FileIO(pipe, "w") as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    producer = threading.Thread(target=produce)
    producer.start()
    batches = list(open_input("-", Fields()).batches(START))
    producer.join()
    assert b"".join(row[1] + b"\n" for row in rows(batches)) == data
    assert all(sum(len(batch.lines.raw(i)) for i in range(len(batch))) <= 2 << 20 for batch in batches)


def test_a_pipe_that_does_not_wait(pipe: int) -> None:
    os.set_blocking(inputs.STANDARD_INPUT, False)
    batches = open_input("-", Fields()).batches(START)

    def produce() -> None:
        os.write(pipe, feed(1))
        os.close(pipe)

    timer = threading.Timer(0.05, produce)
    timer.start()
    assert rows(list(batches))[0][0] == b"0"
    timer.join()


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gz"
    os.mkfifo(path)
    opened = open_input(str(path), Fields())
    opened.check()
    assert opened.identity() is None and opened.size is None
    # A daemon: opening a pipe waits for the other end, for ever if the test has failed before.
    producer = threading.Thread(target=lambda: path.write_bytes(gzip.compress(feed(10))), daemon=True)
    producer.start()
    assert len(rows(list(opened.batches(START)))) == 10
    producer.join(60)
    assert not producer.is_alive()


def test_a_folder_of_texts(tmp_path: Path) -> None:
    for name, data in {
        "b.txt": b"zwei\n",
        "a/z.txt": b"\xef\xbb\xbfone",
        "a.txt": "čtyři \0".encode(),
        "empty": b"",
        "latin": b"caf\xe9\n",
        "large": b"x" * 200,
        "quotes": b'"' * 99,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, data)
    fields = Fields(id_field="other", text_fields=("title", "body"), max_document_bytes=100)
    opened = open_input(str(tmp_path), fields)
    opened.check()
    opened.max_documents = 2
    batches = list(opened.batches(START))
    found = rows(batches)
    names = ["a.txt", "a/z.txt", "b.txt", "empty", "latin", "large", "quotes"]
    expected = sorted(names, key=os.fsencode)
    assert [row[4] for row in found] == [
        {"empty": "empty", "latin": "not_utf8", "large": "too_large"}.get(name) for name in expected
    ]
    assert [row[2] for row in found] == list(range(1, 8))
    for name, row in zip(expected, found, strict=True):
        if row[4] in (None, "empty"):
            text = (tmp_path / name).read_bytes().removeprefix(b"\xef\xbb\xbf").decode()
            assert row[0] == json.dumps(name).encode()
            assert json.loads(row[1]) == {"id": name, "text": text}
    total = sum((tmp_path / name).stat().st_size for name in names)
    assert batches[-1].lines.position == Position(total, 7)
    assert opened.size == total == opened.raw_position
    for i, batch in enumerate(batches):
        assert rows(list(opened.batches(batch.lines.position))) == found[2 * i + 2 :]
    latin = next(batch for batch in batches if any(why.reason == "not_utf8" for why in batch.rejected.values()))
    letter = next(json.loads(latin.dead_letter(i)) for i, why in latin.rejected.items() if why.reason == "not_utf8")
    assert letter["original_base64"] == "Y2Fm6Qo=" and "latin" in letter["detail"]


def test_folders_that_cannot_be_inputs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        open_input(str(tmp_path), Fields()).check()
    write(tmp_path / "a", b"x")
    with pytest.raises(UsageError, match="--set-field"):
        open_input(str(tmp_path), Fields(set_field="tags")).check()


def test_identity_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "b", b"x")
    before = open_input(str(tmp_path), Fields()).identity()
    assert before is not None
    write(tmp_path / "c", b"y")
    assert open_input(str(tmp_path), Fields()).matches(before)
    write(tmp_path / "a", b"z")
    assert not open_input(str(tmp_path), Fields()).matches(before)
    with pytest.raises(InputError, match="shorter"):
        list(open_input(str(tmp_path), Fields()).batches(Position(9, 9)))


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    try:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_bytes(b"x")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    batch = read(tmp_path)[0]
    assert batch.ids == [b"null"] and batch.rejected[0].reason == "not_utf8"


def test_a_file_that_cannot_be_read_at_its_beginning_is_named() -> None:
    path = Path("/proc/self/mem")  # opens, and gives an error at every unmapped address
    if not path.exists():
        pytest.skip("no /proc here")
    with pytest.raises(InputError, match=f"cannot read {path}"):
        open_input(str(path), Fields()).identity()
