"""Compilation of the index's kernels at the very first start, by a process of its own, while other kernels are
compiled.

Numba compiles one kernel at a time in a process, and these take longer than all others together. What the other process
has compiled is loaded from the cache. If it fails, a kernel is compiled where it is needed. A part of `match` that some
settings do not need, or that another kernel needs too, is a kernel of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from numba import types

from stream_lsh.hashing import cache
from stream_lsh.hashing.compiler import FarKernel, Kernel
from stream_lsh.index.kernel.candidates import gather_provisional
from stream_lsh.index.kernel.compare import compare
from stream_lsh.index.kernel.containment import gather_containment
from stream_lsh.index.kernel.match import match
from stream_lsh.index.kernel.replace import (
    delete,
    remove,
    replace,
    replaced_since,
    representative_row_of,
    store_deletion,
    supersedes,
)
from stream_lsh.index.kernel.rules import keeps_representative
from stream_lsh.index.kernel.shingle_sets import containment_in, measured
from stream_lsh.index.kernel.tf_idf import compare as compare_story
from stream_lsh.index.kernel.tf_idf import counted, is_similar, weigh
from stream_lsh.index.kernel.verify import verify
from stream_lsh.index.kernel.work import Work
from stream_lsh.settings.model import Settings

TYPES = (types.int64, types.int64, Work.numba_type)
"""Argument types of `match`."""
_CHANGES = representative_row_of, remove, store_deletion
FAR: dict[str, tuple[FarKernel, ...]] = {
    "general": (verify, compare),
    "tf-idf": (weigh, compare_story, counted, is_similar),
    "samples": (gather_containment, containment_in),
    "measures": (measured,),
    "late": (gather_provisional,),
    "updates": (replaced_since, *_CHANGES, keeps_representative, replace),
    "deletions": (*_CHANGES, delete),
    "keep": (representative_row_of, supersedes),
}
"""Kernels that `match` calls with some settings only."""
_LOOK = 0.02  # seconds between two checks whether the other process has compiled a kernel
_NEAR = 3  # kernels that are left to the other process, which is likely to have them first
_process: subprocess.Popen[bytes] | None = None
_theirs: list[FarKernel] = []  # what it compiles, in this order
_there: set[str] = set()  # the names in FAR whose kernels are loaded


def needed(settings: Settings) -> list[str]:
    """The names in FAR that settings need, without deletions where there is no `deleted_field`."""
    measure = settings.measure
    chosen = {
        "general": measure != "tf-idf",
        "tf-idf": measure == "tf-idf",
        "samples": measure == "containment",
        "measures": settings.verify == "exact" and measure not in ("jaccard", "tf-idf"),
        "late": settings.late,
        "updates": settings.on_conflict == "update",
        "deletions": settings.deleted_field is not None,
        "keep": settings.keep != "first",
    }
    return [name for name, wanted in chosen.items() if wanted]


def begin(settings: Settings) -> subprocess.Popen[bytes] | None:
    """Start a process that compiles what these settings need, unless it is compiled or being compiled. Returns the
    process, if there is one."""
    global _process, _theirs
    names = needed(settings)
    kernels = _kernels(names)
    there = match.ready(*TYPES) and all(kernel.ready() for kernel in kernels)
    if not there and cache.FOLDER is not None and (_process is None or _process.poll() is not None):
        silent = subprocess.DEVNULL
        # -P: no module is imported from the working directory.
        command = [sys.executable, "-P", "-m", __name__, *names]
        with suppress(OSError):
            _process, _theirs = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent), kernels
            return _process
    return None


def have(names: list[str], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Load or compile `match` and the kernels of these names in FAR. Waits for what the other process compiles, and
    compiles what that process comes to last.

    Args:
        meanwhile: compiles other kernels that this process needs. It is called before this process waits.
    """
    if _there.issuperset(names):
        return
    if _compiling():
        meanwhile()
    _wait(match, *TYPES)
    match.compile(TYPES)
    for kernel in _kernels(names):
        _wait(kernel)
        kernel.load()
    _there.update(names)


def ready_of(names: list[str]) -> tuple[int, int]:
    """How many of `match` and the kernels of these names in FAR are compiled, and how many there are."""
    ready = [match.ready(*TYPES), *(kernel.ready() for kernel in _kernels(names))]
    return sum(ready), len(ready)


def _kernels(names: list[str]) -> list[FarKernel]:
    """The kernels of these names in FAR, each once."""
    return list(dict.fromkeys(kernel for name in names for kernel in FAR[name]))


def _compiling() -> bool:
    return _process is not None and _process.poll() is None


def _wait(kernel: Kernel, *arguments: types.Type) -> None:
    while _process is not None and _process.poll() is None and not kernel.ready(*arguments):
        left = [other for other in _theirs if not other.ready()]
        if len(left) > _NEAR:
            left[-1].load()
        else:
            with suppress(subprocess.TimeoutExpired):
                _process.wait(_LOOK)


if __name__ == "__main__":
    match.compile(TYPES)
    for kernel in _kernels(sys.argv[1:]):
        kernel.load()
