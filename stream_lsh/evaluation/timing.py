"""How long the comparison of all documents with all others will take: by what some of them take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_SOME = 500  # documents that are compared


def seconds_of(
    words: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    run: Callable[[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]], object],
) -> float:
    """Seconds for n documents, of which document i has words[offsets[i]:offsets[i + 1]].

    run: compares some of them, given as these are, and which of all they are.
    """
    n = len(offsets) - 1
    size = min(_SOME, n)
    chosen = np.sort(np.random.default_rng(0).choice(n, size, replace=False))
    starts, ends = offsets[chosen], offsets[chosen + 1]
    pieces = [words[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    some = np.concatenate([np.empty(0, np.uint64), *pieces])
    places = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - starts)))
    run(some, places, chosen)  # compiling is not what is timed
    began = time.perf_counter()
    run(some, places, chosen)
    return (time.perf_counter() - began) * (n / max(1, size)) ** 2
