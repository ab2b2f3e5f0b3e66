"""Outputs: complete lines, whatever happens; and the same bytes however a run was interrupted."""

import gzip
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_lsh.embedded import outputs
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.embedded.outputs import FRAME_BYTES, Output, OutputState, is_there
from stream_lsh.errors import OutputError, UsageError


def _unzstd(data: bytes) -> bytes:
    result = b""
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        result += frame.decompress(data)
        assert frame.eof
        data = frame.unused_data
    return result


DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": _unzstd,
}
SUFFIXES = list(DECOMPRESS)


def write_all(path: Path, data: list[bytes]) -> bytes:
    output = Output.create(path)
    for line in data:
        output.write(line)
    output.finish()
    output.close()
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_an_output_without_lines_is_a_valid_file(tmp_path: Path, suffix: str) -> None:
    packed = write_all(tmp_path / f"out{suffix}", [])
    assert packed and DECOMPRESS[suffix](packed) == b""
    assert suffix != ".gz" or packed[4:8] == bytes(4), "no time"


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[int, bool, bool, float]]]:
    """Lines, and steps: how many lines a write takes, whether a checkpoint follows, whether a crash, what it leaves."""
    widths = st.sampled_from([1, 2, 50, 300, FRAME_BYTES // 3, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1])
    made = [
        (b"%d" % i * width)[: width - 1] + b"\n"
        for i, width in enumerate(draw(st.lists(widths, min_size=1, max_size=25)))
    ]
    step = st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 4).map(lambda n: n == 0), st.floats(0, 1))
    return made, draw(st.lists(step, max_size=30))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SUFFIXES), runs())
def test_interrupted_runs_write_the_same_bytes(
    suffix: str, run: tuple[list[bytes], list[tuple[int, bool, bool, float]]]
) -> None:
    data, steps = run
    folder = Path(tempfile.mkdtemp())
    try:
        expected = write_all(folder / f"whole{suffix}", data)
        path = folder / f"out{suffix}"
        output = Output.create(path)
        at = saved_at = 0
        state = output.checkpoint(sync=False)
        for count, saves, crashes, left in steps:
            output.write(b"".join(data[at : at + count]))
            at = min(at + count, len(data))
            if saves:
                state, saved_at = output.checkpoint(sync=False), at
            if crashes:
                if at == len(data):
                    output.finish()
                output.close()
                length = path.stat().st_size
                assert length >= state.length
                os.truncate(path, state.length + int(left * (length - state.length)))
                if left > 0.5:  # what a crash leaves behind the last sync may be anything
                    with path.open("ab") as file:
                        file.write(b"\0rubbish")
                output = Output.resume(path, state)
                at = saved_at
        output.write(b"".join(data[at:]))
        output.finish()
        output.close()
        assert path.read_bytes() == expected
        assert DECOMPRESS[suffix](expected) == b"".join(data)
    finally:
        shutil.rmtree(folder)


def test_create_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"dear\n")
    with pytest.raises(OutputError, match="there already"):
        Output.create(path)
    assert path.read_bytes() == b"dear\n"
    output = Output.create(path, overwrite=True)
    output.write(b"new\n")
    output.close()
    assert path.read_bytes() == b"new\n"


def test_create_where_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="create the folder first"):
        Output.create(tmp_path / "none" / "out")
    with pytest.raises(OutputError, match="not a folder"):
        Output.create(tmp_path)
    with pytest.raises(OutputError, match="cannot create"):
        Output.create(str(tmp_path / "a\0b"))


def test_resume_refuses_what_it_has_not_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(OutputError, match=r"missing.*put the file back"):
        Output.resume(path, OutputState(5))
    output = Output.create(path)
    output.write(b"first\nsecond\n")
    state = output.checkpoint(sync=True)
    output.close()
    path.write_bytes(b"first\n")
    with pytest.raises(OutputError, match="6 bytes, fewer than the 13"):
        Output.resume(path, state)
    path.write_bytes(b"other\ncontent\nand more\n")
    with pytest.raises(OutputError, match="not the file"):
        Output.resume(path, state)
    assert path.read_bytes() == b"other\ncontent\nand more\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device() -> None:
    output = Output.create("/dev/full")
    with pytest.raises(OutputError, match=r"/dev/full.*make room"):
        output.write(b"x\n")
    output.close()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_can_grow_no_more_ends_with_a_complete_line(tmp_path: Path, suffix: str) -> None:
    # In a process of its own, because the limit holds for all files of a process.
    path = tmp_path / f"out{suffix}"
    program = f"""
import os, resource
from stream_lsh.embedded.outputs import Output
from stream_lsh.errors import OutputError
output = Output.create({str(path)!r})
output.write(b"".join(b"%d %s\\n" % (i, os.urandom(50).hex().encode()) for i in range(5000)))
state = output.checkpoint(sync=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (state.length + 1000, state.length + 1000))
try:
    output.write(b"".join(b"%d %s\\n" % (i, os.urandom(50).hex().encode()) for i in range(5000)))
except OutputError as error:
    print(error, end="")
assert output.checkpoint(sync=True).length == os.stat({str(path)!r}).st_size
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert str(path) in done.stdout and "ulimit" in done.stdout
    data = DECOMPRESS[suffix](path.read_bytes())
    assert data.endswith(b"\n")
    if not suffix:
        assert len(data.splitlines()) > 5000


def test_ctrl_c_in_the_middle_leaves_complete_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    output = Output.create(path)
    output.write(b"before\n")
    write = os.write

    def interrupted(descriptor: int, data: bytes) -> int:
        if len(data) < 5:
            raise KeyboardInterrupt
        return write(descriptor, data[:10])

    monkeypatch.setattr("stream_lsh.embedded.outputs.os.write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write(b"while\nit hap\n")
    assert path.read_bytes() == b"before\n"
    assert output.checkpoint(sync=False).length == 7


def test_a_reader_that_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(outputs, "STANDARD_OUTPUT", writer)
    output = Output.standard()
    output.write(b"x\n")
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        output.write(b"y\n")
    os.close(writer)


def test_a_pipe_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    monkeypatch.setattr(outputs, "STANDARD_OUTPUT", writer)
    data = b"x" * 999_999 + b"\n"
    received: list[bytes] = []

    def consume() -> None:
        while block := os.read(reader, 1 << 16):
            received.append(block)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    output = Output.standard()
    output.write(data)
    assert output.checkpoint(sync=True) == OutputState(-1)
    os.close(writer)
    consumer.join(60)
    assert not consumer.is_alive()
    os.close(reader)
    assert b"".join(received) == data


def test_a_compressed_pipe_holds_nothing_back_at_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "out.gz"
    os.mkfifo(path)
    received: list[bytes] = []
    consumer = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    consumer.start()
    output = Output.create(path)
    output.write(b"x\n")
    assert output.checkpoint(sync=True) == OutputState(-1)
    output.close()
    consumer.join(60)
    assert not consumer.is_alive()
    assert gzip.decompress(received[0]) == b"x\n"


def standard(path: Path, flags: int, state: OutputState | None, monkeypatch: pytest.MonkeyPatch) -> tuple[Output, int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    monkeypatch.setattr(outputs, "STANDARD_OUTPUT", descriptor)
    return Output.standard(state), descriptor


def test_standard_output_continues_when_it_is_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"earlier\n")
    output, descriptor = standard(path, os.O_APPEND, None, monkeypatch)
    output.write(b"one\n")
    state = output.checkpoint(sync=True)
    output.write(b"lost\n")
    os.close(descriptor)
    output, descriptor = standard(path, os.O_APPEND, state, monkeypatch)
    output.write(b"two\n")
    assert output.checkpoint(sync=True).length == 16
    os.close(descriptor)
    assert path.read_bytes() == b"earlier\none\ntwo\n"


def test_whether_standard_output_has_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if the shell has emptied it, if it is another file now, or if it is none."""
    path = tmp_path / "out"
    output, descriptor = standard(path, os.O_APPEND, None, monkeypatch)
    output.write(b"one\n")
    state = output.checkpoint(sync=True)
    output.write(b"two\n")
    assert is_there("-", state)
    os.close(descriptor)
    for content, there in ((b"one\n", True), (b"on", False), (b"else\n", not Path("/proc/self/fd").exists())):
        path.write_bytes(content)
        _, descriptor = standard(path, os.O_APPEND, None, monkeypatch)
        assert is_there("-", state) is there
        os.close(descriptor)
    _, descriptor = standard(path, os.O_TRUNC, None, monkeypatch)
    assert not is_there("-", state)
    os.close(descriptor)
    reader, writer = os.pipe()
    monkeypatch.setattr(outputs, "STANDARD_OUTPUT", writer)
    assert not is_there("-", state)
    os.close(reader)
    os.close(writer)


def test_two_outputs_to_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.link(tmp_path / "a", tmp_path / "hard")
    (tmp_path / "sub").mkdir()
    a = str(tmp_path / "a")
    for other in (a, str(tmp_path / "link"), str(tmp_path / "hard"), str(tmp_path / "sub" / ".." / "a")):
        with pytest.raises(UsageError, match=r"--pairs.*--unique"):
            check_outputs({"--unique": a, "--pairs": other})
    new = str(tmp_path / "new")
    with pytest.raises(UsageError):
        check_outputs({"--unique": new, "--pairs": str(tmp_path / "sub" / ".." / "new")})
    with pytest.raises(UsageError):
        check_outputs({"--unique": "-", "--pairs": "-"})
    with pytest.raises(UsageError, match="the input"):
        check_outputs({"--unique": a}, inputs=["-", str(tmp_path / "link")])
    check_outputs({"--unique": a, "--pairs": new, "--verdicts": "-"}, inputs=["-", "missing"])
    check_outputs({"--unique": "/dev/null", "--pairs": "/dev/null"})
