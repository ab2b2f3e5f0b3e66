"""Run a command and watch it: wall time, CPU time, memory, how far it has read (the last two need Linux's /proc)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

KIB = 1024
MEMORY = {"VmRSS": "resident", "VmHWM": "peak", "RssAnon": "anonymous", "RssFile": "mapped"}


@dataclass(frozen=True)
class Sample:
    """A process at one moment; bytes, None where the system does not tell. `position`: bytes read of its input."""

    seconds: float
    resident: int | None = None
    peak: int | None = None
    anonymous: int | None = None
    mapped: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class Finished:
    """What a command took.

    `peak`: the most memory it ever had resident, bytes. `others`: cores that were busy with something else meanwhile
    (None where the system does not tell); with more than a little of that, the times are worth nothing.
    """

    seconds: float
    code: int
    cpu_seconds: float
    peak: int
    errors: str
    others: float | None = None
    samples: list[Sample] = field(default_factory=list)


def own_peak() -> int:
    """The most memory that this process ever had resident, bytes."""
    status = memory_of(os.getpid())
    if status.get("peak"):
        return status["peak"]
    # Kept across exec, so it can be the parent's; in KiB on Linux, in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB


def watch(
    command: Sequence[str],
    *,
    every: float = 0.1,
    reads: Path | None = None,
    source: IO[bytes] | None = None,
    output: Path | None = None,
    environment: Mapping[str, str] | None = None,
    on_sample: Callable[[Sample], None] | None = None,
) -> Finished:
    """Run a command to its end, looking at it every so many seconds from a thread of its own.

    Args:
        reads: an input file; the samples tell how far the command has read it. source: its standard input.
        output: where standard output goes; without it, nowhere.
        environment: variables to set in addition to those of this process.
    """
    with tempfile.TemporaryFile() as errors, (output or Path(os.devnull)).open("wb") as standard:
        busy, own = busy_seconds(), time.process_time()
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=source or subprocess.DEVNULL, stdout=standard, stderr=errors,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        samples: list[Sample] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                sample = Sample(
                    time.perf_counter() - start, **memory_of(process.pid), position=_position(process, reads)
                )
                if sample.resident is not None:
                    samples.append(sample)
                    if on_sample is not None:
                        on_sample(sample)
                done.wait(every)

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            seconds = time.perf_counter() - start
            done.set()
        process.returncode = os.waitstatus_to_exitcode(status)
        looker.join()
        errors.seek(0)
        peaks = [sample.peak for sample in samples if sample.peak]
        peak = max(peaks) if peaks else usage.ru_maxrss * (1 if sys.platform == "darwin" else KIB)
        text = errors.read().decode("utf-8", "replace")
        cpu, others = usage.ru_utime + usage.ru_stime, None
        if busy is not None and (now := busy_seconds()) is not None:
            others = max(0.0, now - busy - cpu - (time.process_time() - own)) / seconds
        return Finished(seconds, process.returncode, cpu, peak, text, others, samples)


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder; files that go away while it looks are left out."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(path) / name).stat().st_size
            except OSError:
                continue
    return total


def busy_seconds() -> float | None:
    """Seconds that all processors together have been busy, or taken away by the host, since the system started."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, *interrupts = (int(value) for value in fields[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> dict[str, int]:
    """Memory of a process by the names of `Sample`, bytes, from /proc; empty where there is none, or it is over."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in MEMORY:
            found[MEMORY[name]] = int(value.split()[0]) * KIB
    return found


def _position(process: subprocess.Popen[bytes], reads: Path | None) -> int | None:
    """How far a process has read a file that it has open; None if it has not."""
    if reads is None:
        return None
    try:
        wanted = reads.stat()
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            if os.path.samestat(descriptor.stat(), wanted):
                info = Path(f"/proc/{process.pid}/fdinfo/{descriptor.name}").read_text(encoding="ascii")
                return int(info.split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return None
