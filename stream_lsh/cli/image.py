"""Plots as image files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stream_lsh.cli.extra import require
from stream_lsh.errors import OutputError, UsageError

SUFFIXES = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Check, before there is anything to draw, that it can be drawn.

    Raises:
        UsageError: the suffix does not say which image to write. StreamLshError: what draws is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: the suffix says what to write, and it must be {' or '.join(SUFFIXES)}.")
    require("--plot", "plot", ("matplotlib",))


@contextmanager
def image(path: Path) -> Iterator[Any]:
    """Axes of matplotlib; what is drawn on them is written as PNG or SVG at the end, the same with the same bytes.

    Raises:
        OutputError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "stream-lsh", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        try:
            yield axes
            metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
            figure.savefig(path, format=path.suffix.lower()[1:], dpi=150, metadata=metadata)
        except OSError as error:
            raise OutputError(f"--plot {path} cannot be written: {error.strerror or error}.") from None
        finally:
            pyplot.close(figure)
