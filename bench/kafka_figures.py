"""Arithmetic on what was measured: quantiles, and when a share of the documents was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from aiokafka import TopicPartition
from numpy.typing import NDArray

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "slowest": 1.0}


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99 and the slowest; None where there are no values."""
    if not values:
        return dict.fromkeys(QUANTILES)
    found = np.quantile(np.asarray(values), list(QUANTILES.values())).tolist()
    return dict(zip(QUANTILES, found, strict=True))


def done_by(
    ends: Sequence[tuple[float, Mapping[TopicPartition, int]]],
    weights: Mapping[TopicPartition, Sequence[tuple[int, float]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many documents were done at each look at some topics.

    Args:
        ends: (seconds, end offset by partition) of each look.
        weights: by partition, (offset, documents it stands for) of each record, in order.

    Returns:
        times float64[n], documents float64[n], growing.
    """
    times = np.array([at for at, _ in ends])
    total = np.zeros(len(ends))
    for place, records in weights.items():
        offsets = np.array([offset for offset, _ in records], np.int64)
        sums = np.concatenate([[0.0], np.cumsum([weight for _, weight in records])])
        seen = np.array([found.get(place, 0) for _, found in ends], np.int64)
        total += sums[np.searchsorted(offsets, seen)]
    return times, total


def span(
    times: NDArray[np.float64], documents: NDArray[np.float64], first: float = 0.1, last: float = 0.9
) -> tuple[float, float, float]:
    """The middle of a run, without its start and end: begin and end (seconds), documents in between.

    It begins with the first look at which the share `first` of all was done, and ends with the first at which `last`
    was. Where records stand for so many documents that these are one look, it is the whole run, from the look before
    anything was done.
    """
    whole = documents[-1]
    begin, end = (int(np.searchsorted(documents, share * whole)) for share in (first, last))
    if begin == end:
        begin = max(0, int(np.searchsorted(documents, 0.0, side="right")) - 1)
        end = int(np.searchsorted(documents, whole))
    return float(times[begin]), float(times[end]), float(documents[end] - documents[begin])


def micros(cpu: Mapping[str, float], documents: float, without: str = "") -> dict[str, float]:
    """Processor microseconds a document, by process; those that did nothing are left out, and one more."""
    return {
        name: 1e6 * seconds / documents
        for name, seconds in cpu.items()
        if documents and seconds > 0 and name != without
    }


def in_words(values: Mapping[str, Any], unit: str = "") -> str:
    """`name 12.3, other 4.5` for a table's cell; large figures without decimals."""
    return ", ".join(
        f"{name} {value:,.0f}{unit}" if value >= 100 else f"{name} {value:.3g}{unit}" for name, value in values.items()
    )
