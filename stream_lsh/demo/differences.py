"""What differs between two texts, word by word, shortened to the places where it does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rich.cells import cell_len

# Scripts without spaces between words are compared character by character.
_CONTINUOUS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
_WORD = re.compile(rf"[{_CONTINUOUS}]|[^\s{_CONTINUOUS}]+")
GAP = " … "


@dataclass(frozen=True)
class Piece:
    """A stretch of text; `changed` if the other text has something else (or nothing) in its place."""

    text: str
    changed: bool


@dataclass(frozen=True)
class _Word:
    text: str
    space: str  # white space in front of it


def differences(
    older: str, newer: str, *, opening: int = 72, context: int = 48, longest: int = 240
) -> tuple[list[Piece], list[Piece]]:
    """Both texts as pieces. Of what they have in common the beginning stays, some `opening` columns of it, and some
    `context` columns on either side of a difference; of a difference its first `longest` columns. What is left out is
    a piece with an ellipsis.
    """
    first, second = _words(older), _words(newer)
    matcher = SequenceMatcher(None, [word.text for word in first], [word.text for word in second], autojunk=False)
    left: list[Piece] = []
    right: list[Piece] = []
    blocks = matcher.get_opcodes()
    for number, (kind, i1, i2, j1, j2) in enumerate(blocks):
        if kind == "equal":
            before = context if number > 0 else opening
            after = context if number < len(blocks) - 1 else 0
            left += _shortened(first[i1:i2], before, after)
            right += _shortened(second[j1:j2], before, after)
        else:
            left += _changed(first[i1:i2], longest)
            right += _changed(second[j1:j2], longest)
    return left, right


def _words(text: str) -> list[_Word]:
    words: list[_Word] = []
    end = 0
    for match in _WORD.finditer(text):
        words.append(_Word(match[0], " " if words and match.start() > end else ""))
        end = match.end()
    return words


def _joined(words: Sequence[_Word]) -> str:
    return "".join(word.space + word.text for word in words)


def _fitting(words: Iterable[_Word], columns: int) -> int:
    """How many words fill these columns; one at least, unless there is no room at all."""
    used = number = 0
    for word in words:
        if used >= columns:
            break
        used += cell_len(word.space + word.text)
        number += 1
    return number


def _shortened(words: Sequence[_Word], before: int, after: int) -> list[Piece]:
    first, last = _fitting(words, before), _fitting(reversed(words), after)
    if first + last + 3 >= len(words):
        return [Piece(_joined(words), False)]
    ends = _joined(words[:first]), _joined(words[len(words) - last :]).lstrip()
    return [piece for piece in (Piece(ends[0], False), Piece(GAP, False), Piece(ends[1], False)) if piece.text]


def _changed(words: Sequence[_Word], longest: int) -> list[Piece]:
    if not words:
        return []
    shown = _fitting(words, longest)
    return [Piece(_joined(words[:shown]), True), *([Piece(GAP, False)] if shown < len(words) else [])]
