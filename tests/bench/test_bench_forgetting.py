"""bench/forgetting.py: what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from bench.forgetting import by_window, score


def test_pairs_by_log_time() -> None:
    log = np.arange(40) * 1000
    true = [(0, 3), (1, 9), (2, 5)]  # of each ten documents
    found = score([(0, 3), (10, 13), (12, 15), (22, 29), (3, 39)], true, log, 10, 7000)
    # Inside the window are (0, 3) and (2, 5) of each ten; of those the second ones of 0, 20, 30 and the first of 20 and
    # 30 were not found, but 39 was dropped and 22 was not.
    assert found == {"pairs": 5, "too_old": 1, "true_pairs": 8, "missed": 5}
    assert score([], true, log[:19], 10, 9000) == {"pairs": 0, "too_old": 0, "true_pairs": 3, "missed": 3}


def test_windows_beside_the_second() -> None:
    rows = [
        {
            "documents": 50 * i, "seconds": float(i + (i > 4)), "disk_mb": 10.0 * min(i, 4),
            "resident_mb": 100.0 + i % 2,
            "batch_ms": i, "commit_ms": 2 * i, "generations": min(i, 3),
        }
        for i in range(1, 7)
    ]  # fmt: skip
    first, second, third = by_window(rows, 100)
    assert (first["rate"], first["disk_mb"], first["generations"]) == (50, 20, 2)
    assert "to_second" not in first
    assert (second["to_second"], second["disk_mb"], second["batch_ms"], second["commit_ms"]) == (1, 40, 4, 8)
    assert third["to_second"] == pytest.approx(2 / 3)
    assert (third["disk_to_second"], third["memory_to_second"]) == (1, 1)
