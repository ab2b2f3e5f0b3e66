"""Passages of a text, marked, with some words of context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

SHOWN = 3
"""Passages of a match that are shown, the longest."""
AROUND = 40  # characters before and behind a passage
MOST = 240  # characters of a passage; the middle of a longer one is left out
STYLE = "bold black on yellow"


def marked(text: str, passages: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """The longest passages of a text, each a line or two; `newer` says where each begins and ends in it."""
    from rich.text import Text

    for passage in passages[:SHOWN]:
        begin, end = passage["newer"]
        there = "-".join(f"{place:,}" for place in passage["older"])
        line = Text(f"    {passage['words']} words, there at {there}: ", style="dim")
        line.append(("..." if begin > AROUND else "") + _flat(text[max(0, begin - AROUND) : begin]), style="dim")
        line.append(_shortened(_flat(text[begin:end])), style=STYLE)
        line.append(_flat(text[end : end + AROUND]) + ("..." if end + AROUND < len(text) else ""), style="dim")
        yield line


def _flat(text: str) -> str:
    """In one line."""
    return "".join(" " if character.isspace() else character for character in text)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST // 2]} ... {text[-MOST // 2 :]}"
