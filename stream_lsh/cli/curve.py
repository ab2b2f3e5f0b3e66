"""The banding curve on a terminal and as an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stream_lsh.cli.image import image
from stream_lsh.families.curve import Curve
from stream_lsh.families.measure import CERTAIN

if TYPE_CHECKING:
    from stream_lsh.evaluation.items import ItemBackground
    from stream_lsh.evaluation.sample import Background

WIDTH, HEIGHT = 60, 10  # characters; with the labels 68 columns and 14 lines
HALFWAY = "(1/b)^(1/r)"
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def terminal_plot(curve: Curve, *, unicode: bool = True) -> list[str]:
    """P(candidate) over similarity or distance as lines of at most 80 columns; plain ASCII if not `unicode`."""
    marks, reach = [(curve.asked, _asked(curve))], _reach(curve)
    if curve.measure == "jaccard":
        marks.append((curve.banding.halfway, HALFWAY))
    heights = [curve.at((column + 0.5) / WIDTH * reach) * HEIGHT for column in range(WIDTH)]
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        label = f"{100 * (row + 1) / HEIGHT:4.0f} %" if row in (HEIGHT - 1, HEIGHT // 2 - 1) else "      "
        cells = (_cell(height - row, unicode) for height in heights)
        lines.append(f"{label} {'│' if unicode else '|'}{''.join(cells)}".rstrip())
    step = WIDTH // 10
    tick, line = ("┴", "─") if unicode else ("+", "-")
    lines.append(f"   0 % {'└' if unicode else '+'}" + (line * (step - 1) + tick) * 10)
    ticks = (f"{number / 10:.1f}" if reach == 1 else f"{reach * number / 10:.3g}" for number in range(1, 11))
    lines.append(" " * 7 + "0" + "".join(f"{tick:>{step}}" for tick in ticks))
    for place, name in sorted(marks):
        column = 7 + min(WIDTH, round(place / reach * WIDTH))
        label = f"{name} {place:.3g}"
        arrow = "↑" if unicode else "^"
        left = column + 2 + len(label) <= 80
        text = f"{arrow} {label}" if left else f"{label} {arrow}"
        lines.append(" " * (column if left else column - len(label) - 1) + text)
    return lines


def _cell(filled: float, unicode: bool) -> str:
    if unicode:
        return _EIGHTHS[max(0, min(8, round(filled * 8)))]
    return "#" if filled >= 0.5 else " "


def _reach(curve: Curve) -> float:
    """The end of a plot's axis: 1 for a cosine; for a distance, that of unrelated documents."""
    if curve.measure == "hamming":
        return max(curve.asked + 1, curve.dimensions / 2)
    if curve.measure == "levenshtein":
        return 2 * curve.asked + 2
    return 8 * curve.asked if curve.by_distance else 1.0


def _asked(curve: Curve) -> str:
    return "distance" if curve.by_distance else "threshold"


def write_plot(
    path: Path, curve: Curve, others: list[Curve], background: Background | ItemBackground | list[int] | None
) -> None:
    """Write the curve, those of the alternatives and the background, if that says how similar pairs are, as PNG or SVG;
    the same input gives the same bytes.

    Raises:
        OutputError: the file cannot be written.
    """
    reach, blocks = _reach(curve), curve.measure in CERTAIN
    grid = [reach * number / 400 for number in range(401)]
    if blocks:
        grid = [float(bits) for bits in range(int(reach) + 1)]
    with image(path) as axes:
        if background is not None and not isinstance(background, list) and background.pairs:
            right = axes.twinx()
            counts, edges = background.binned(reach)
            right.bar(edges, counts, width=reach / 50, color="tab:blue", alpha=0.25)
            right.set_yscale("log")
            right.set_ylabel("pairs of the sample", color="tab:blue")
        for other in others:
            if other != curve:
                label = f"{other.banding.bands} × {other.banding.rows}"
                if curve.measure == "containment":
                    label = f"one in {other.sampling} of {other.shingles:,}"
                axes.plot(grid, [other.at(x) for x in grid], linewidth=0.8, alpha=0.6, label=label)
        label = f"{curve.banding.bands} {'keys' if blocks else 'bands'} × {curve.banding.rows} "
        label += {"hamming": "blocks", "levenshtein": "pieces"}.get(curve.measure, "rows")
        if curve.measure == "containment":
            label = f"one shingle in {curve.sampling} of {curve.shingles:,}"
        axes.plot(grid, [curve.at(x) for x in grid], color="black", linewidth=2, label=label)
        found = f"{_asked(curve)} {curve.asked:g}: {100 * curve.at(curve.asked):.4g} % found"
        axes.axvline(curve.asked, color="tab:red", linewidth=1, label=found)
        formula = ""
        if curve.measure == "jaccard":
            half, formula = curve.banding.halfway, " = 1 - (1 - s^r)^b"
            axes.axvline(half, color="tab:gray", linewidth=1, linestyle=":", label=f"{HALFWAY} = {half:.3f}")
        names = {
            "jaccard": "Jaccard similarity s",
            "euclidean": "distance", "hamming": "bits that differ", "levenshtein": "edits", "containment": "share",
            "weighted-jaccard": "weighted Jaccard similarity",
        }  # fmt: skip
        named = names.get(curve.measure, curve.measure)
        axes.set(xlim=(0, reach), ylim=(0, 1.02), xlabel=named, ylabel=f"P(candidate){formula}")
        axes.legend(loc="upper right" if curve.by_distance else "upper left", fontsize=8)
