"""Figures as text for people: counts, sizes, times, shares; and plain tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def count(number: int, noun: str = "", plural: str | None = None) -> str:
    """`1,234 documents`; the plural is the noun and an s unless given."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(octets: int) -> str:
    """`512 B`, `1.5 MB`: powers of 1000, three digits."""
    value = float(octets)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{octets} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB" if value < 999.5 else f"{value:,.0f} TB"


def duration(seconds: float) -> str:
    """`0.35 s`, `12 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds >= 0.01 else "0 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def per_second(rate: float) -> str:
    """`38,211/s`, `3.2/s`."""
    return f"{rate:,.0f}/s" if rate >= 9.95 else f"{rate:.1f}/s"


def share(part: float, whole: float) -> str:
    """`42 %`, `0.3 %`, `<0.1 %`; nothing of nothing is 0 %; less than all never reads 100 %."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    if percent < 1:
        return f"{percent:.1g} %"
    return f"{min(percent, 100 if part >= whole else 99):.0f} %"


def percent(share: float) -> str:
    """`12 %`, `0.52 %`, `99.92 %`: two digits of what is there, or of what is missing."""
    value = 100 * share
    if value == 0 or value == 100:
        return f"{value:.0f} %"
    if min(value, 100 - value) < 0.001:
        return "< 0.001 %" if value < 50 else "> 99.999 %"
    if 10 <= value <= 90:
        return f"{value:.0f} %"
    digits = 1
    while digits < 3 and min(value, 100 - value) < 10 ** (1 - digits):
        digits += 1
    return f"{value:.{digits}f} %"


def few(count: float) -> str:
    """`1,234`, `3.2`, `0.012`: a number of false candidates, two digits where it is small."""
    if count == 0:
        return "0"
    if count < 0.001:
        return "< 0.001"
    return f"{count:,.0f}" if count >= 100 else f"{count:.2g}"


def odds(part: int, whole: int) -> str:
    """`1 in 1,234`, `12 %`, `none`."""
    if part == 0 or whole == 0:
        return "none"
    return percent(part / whole) if part * 100 >= whole else f"1 in {whole / part:,.0f}"


def ratio(value: float | None) -> str:
    """Four decimals, rounded down so that 1.0000 means all; a dash for nothing of nothing."""
    return "     -" if value is None else f"{int(value * 10_000 + 1e-9) / 10_000:.4f}"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows in columns, line by line; right: the columns that are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.rjust(width) if number in right else text.ljust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def plain_table(title: str | None, *columns: str, header: bool = True) -> Table:
    """A table without lines, for a terminal. columns: their names; one that begins with > is aligned to the right."""
    from rich.table import Table  # here, because it takes time

    table = Table(
        title=title, title_justify="left", title_style="bold", show_header=header, box=None, pad_edge=False,
        padding=(0, 2, 0, 0),
    )  # fmt: skip
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    return table


def missing_package(what: str, package: str | None, extra: str) -> str:
    """What an error says where a package of an extra is needed and not installed. what: needs it."""
    return f"{what} needs the package {package}, which is not installed: pip install 'stream-lsh[{extra}]'"


def printable(text: str) -> str:
    """A text as a terminal may show it, control characters escaped."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
