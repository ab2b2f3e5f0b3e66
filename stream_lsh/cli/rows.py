"""Rows for people that fit their terminal: columns, and below a row a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEAST = 12  # cells that the last column has, however narrow the terminal is
INDENT = 4  # cells before a note


def print_rows(names: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], numbers: int) -> None:
    """Print rows under their names. The last column and the notes are folded into the width of the terminal.

    Args:
        rows: the cells of a row, and its note, "" if it has none. numbers: so many columns are aligned to the right.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    lines = [(names, ""), *rows]
    widths = [max(cell_len(cells[i]) for cells, _ in lines) for i in range(len(names) - 1)]
    left = sum(width + 2 for width in widths)
    for number, (cells, note) in enumerate(lines):
        head = Text(style="" if number else "bold")
        for i, (cell, width) in enumerate(zip(cells, widths, strict=False)):
            space = " " * (width - cell_len(cell))
            head.append(f"{space}{cell}  " if i < numbers else f"{cell}{space}  ")
        last = Text(cells[-1], style=head.style).wrap(console, max(console.width - left, LEAST), overflow="fold")
        for i, part in enumerate(last or [Text()]):
            console.print((head if i == 0 else Text(" " * left)) + part, soft_wrap=True)
        for part in Text(note, style="dim").wrap(console, max(console.width - INDENT, LEAST), overflow="fold"):
            part.rstrip()
            if note:
                console.print(Text(" " * INDENT) + part, soft_wrap=True)
