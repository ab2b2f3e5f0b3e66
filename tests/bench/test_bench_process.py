"""Watching a process: what it said, how it ended, how far it has read."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.engine import own_rate
from bench.process import Sample, watch

READS = """
import pathlib, sys, time
file = open(sys.argv[1], "rb", 0)
file.read(1000)
print("ready", flush=True)
deadline = time.monotonic() + 120
while not pathlib.Path(sys.argv[2]).exists() and time.monotonic() < deadline:
    time.sleep(0.01)
print("3 documents in 0.5 s (1,234/s)", file=sys.stderr)
sys.exit(7)
"""


def test_watch(tmp_path: Path) -> None:
    data, output, looked = tmp_path / "data", tmp_path / "output", tmp_path / "looked"
    data.write_bytes(bytes(5000))
    seen: list[Sample] = []
    positions = Path("/proc/self/fdinfo").is_dir()
    if not positions:
        looked.touch()

    def on_sample(sample: Sample) -> None:
        seen.append(sample)
        if sample.position == 1000:
            looked.touch()

    command = [sys.executable, "-c", READS, str(data), str(looked)]
    finished = watch(command, every=0.01, reads=data, output=output, on_sample=on_sample)
    assert finished.code == 7
    assert output.read_bytes() == b"ready\n"
    assert own_rate(finished.errors) == 1234
    assert finished.peak > 0
    assert finished.samples == seen
    if positions:
        assert 1000 in {sample.position for sample in seen}
