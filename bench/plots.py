"""The plots of bench/growth.py and bench/kafka_soak.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def growth_plot(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Write growth.png and growth.svg: documents a second, and memory, against documents."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    millions = [row["documents"] / 1e6 for row in rows]
    figure, (speed, memory) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), constrained_layout=True)
    speed.plot(millions, [row["rate"] for row in rows], color="tab:blue")
    speed.set_ylabel("documents/s")
    for key, label, color in (
        ("resident_mb", "resident", "tab:blue"),
        ("anonymous_mb", "of it the process's own", "tab:orange"),
        ("mapped_mb", "of it file-backed", "tab:green"),
    ):
        if all(row.get(key) is not None for row in rows):
            memory.plot(millions, [row[key] for row in rows], label=label, color=color)
    memory.axhline(3 * 2**30 / 1e6, color="grey", linestyle=":", label="3 GiB")
    memory.set_ylabel("memory, MB")
    memory.set_xlabel("documents, millions")
    memory.legend(loc="best", fontsize="small")
    for axes in (speed, memory):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for suffix in (".png", ".svg"):
        figure.savefig(out / f"growth{suffix}", dpi=120)
    plt.close(figure)


def soak_plot(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """Write soak.png and soak.svg: latency, memory and index against minutes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    minutes = [row["minute"] for row in rows]
    figure, (late, memory) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), constrained_layout=True)
    for key in ("p50", "p99"):
        late.plot(minutes, [row[key] for row in rows], label=key)
    late.set_ylabel("document to pair, ms")
    for key, label in (("sign", "sign"), ("match", "match"), ("rest", "sequence, judge, forward")):
        memory.plot(minutes, [row[key] for row in rows], label=label)
    memory.set_ylabel("resident, MB")
    memory.set_xlabel("minutes")
    for axes in (late, memory):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize="small")
    for suffix in (".png", ".svg"):
        figure.savefig(out / f"soak{suffix}", dpi=120)
    plt.close(figure)
