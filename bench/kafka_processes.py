"""Processor time and memory of a worker's processes, by the roles that each of them has, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.process import busy_seconds

MEMBER = "stream_lsh.kafka.run.process"  # the module that a worker's child is started with; its roles stand behind it
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
RESCAN = 0.5  # seconds between two searches for children


@dataclass(frozen=True)
class Usage:
    """Processor seconds since the start of all processes of a name, and bytes resident of those that live."""

    cpu: float
    resident: int


@dataclass(frozen=True)
class Look:
    """All processes at one moment. at: seconds since 1970. busy: seconds that the system's processors have worked."""

    at: float
    usage: Mapping[str, Usage]
    busy: float | None = None


def parse_stat(text: str) -> tuple[int, float, int]:
    """Of /proc/PID/stat: the parent, processor seconds, bytes resident."""
    # The name of the program stands in parentheses and may itself have blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * PAGE


def role_of(arguments: Sequence[str], name: str) -> str:
    """What to call a process: the roles of a worker's child, else the name of the one it descends from."""
    for place, argument in enumerate(arguments[:-1]):
        if argument == MEMBER:
            return arguments[place + 1]
    return name


def tree(parents: Mapping[int, int], roots: Iterable[int]) -> dict[int, int]:
    """The processes that descend from some, themselves included: process -> the root it descends from."""
    found = {root: root for root in roots}
    changed = True
    while changed:
        new = {pid: found[parent] for pid, parent in parents.items() if parent in found and pid not in found}
        found.update(new)
        changed = bool(new)
    return found


@dataclass
class Processes:
    """Watches processes and all their children. What a process that has ended had used stays counted."""

    roots: dict[int, str] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _cpu: dict[int, float] = field(default_factory=dict)
    _scanned: float = 0.0

    def add(self, pid: int, name: str) -> None:
        """Watch a process from now on; children that are not a worker's go by its name."""
        self.roots[pid] = name
        self._scanned = 0.0

    def pids(self, name: str) -> list[int]:
        """The processes of a name that live."""
        self._scan()
        return [pid for pid, found in self._names.items() if found == name and _stat(pid) is not None]

    def look(self) -> Look:
        """Read the figures of all processes and keep them."""
        now = time.time()
        if now - self._scanned >= RESCAN:
            self._scan()
            self._scanned = now
        resident: dict[str, int] = dict.fromkeys(self._names.values(), 0)
        for pid, name in self._names.items():
            found = _stat(pid)
            if found is not None:
                self._cpu[pid] = found[1]
                resident[name] += found[2]
        cpu = dict.fromkeys(resident, 0.0)
        for pid, name in self._names.items():
            cpu[name] += self._cpu.get(pid, 0.0)
        look = Look(now, {name: Usage(cpu[name], resident[name]) for name in resident}, busy_seconds())
        self.looks.append(look)
        return look

    def _scan(self) -> None:
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (found := _stat(int(entry.name))) is not None:
                parents[int(entry.name)] = found[0]
        for pid, root in tree(parents, self.roots).items():
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            # A child that has just been forked still has its parent's command line.
            self._names[pid] = role_of(arguments, self.roots[root])


def _stat(pid: int) -> tuple[int, float, int] | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (OSError, IndexError, ValueError):
        return None


def cpu_between(looks: Sequence[Look], start: float, end: float) -> dict[str, float]:
    """Processor seconds of each name between two moments; in between two looks it is taken to grow evenly."""
    times = [look.at for look in looks]
    found = {}
    for name in {name for look in looks for name in look.usage}:
        values = [look.usage[name].cpu if name in look.usage else 0.0 for look in looks]
        first, last = np.interp([start, end], times, values)
        found[name] = float(last - first)
    return found


def others_between(looks: Sequence[Look], start: float, end: float) -> float | None:
    """Cores that were busy with what is not watched; with more than a little of that, times are worth nothing."""
    known = [(look.at, look.busy) for look in looks if look.busy is not None]
    if not known:
        return None
    first, last = np.interp([start, end], [at for at, _ in known], [busy for _, busy in known])
    return max(0.0, float(last - first) - sum(cpu_between(looks, start, end).values())) / (end - start)


def most_resident(looks: Sequence[Look], start: float, end: float) -> dict[str, int]:
    """The most bytes that each name had resident between two moments."""
    found: dict[str, int] = {}
    for look in looks:
        if start <= look.at <= end:
            for name, usage in look.usage.items():
                found[name] = max(found.get(name, 0), usage.resident)
    return found
