"""A fault of the engine: signing or matching raises on texts that have certain words."""

from collections.abc import Callable
from typing import Any

import pytest

from stream_lsh.index import batch_run
from stream_lsh.index.kernel.match import begin
from stream_lsh.index.kernel.work import DONE
from stream_lsh.text import preparation

WORDS = "the text that nothing foresaw"
POISON = " ".join(f"poison{i}" for i in range(1200))
"""A text on which matching fails: it has far more shingles than the others of its test."""
MANY = 100  # shingles


class CrashError(BaseException):
    """The process ends: nothing is written any more."""


def poison(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
    """From now on signing raises on texts with WORDS. error: this one, otherwise a ValueError."""
    real = preparation.unified

    def unified(text: Any, ends: Any, settings: Any) -> Any:
        if WORDS.encode() in text.tobytes():
            raise error or ValueError("a fault\nof " + "a kernel" * 99)
        return real(text, ends, settings)

    monkeypatch.setattr(preparation, "unified", unified)


def poison_matching(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None,
    where: Callable[[Any, int], bool] = lambda work, place: True,
) -> None:  # fmt: skip
    """From now on the kernel raises on texts of more than MANY shingles.

    Args:
        error: this one, otherwise a ValueError.
        where: for which arguments of the kernel, and places.
    """
    real = batch_run.match

    def match(start: int, stop: int, work: Any) -> tuple[int, int]:
        sizes = work.batch.sizes
        bad = next((i for i in range(start, stop) if sizes[i] > MANY and work.limits.store and where(work, i)), None)
        if bad is None:
            return real(start, stop, work)
        if start < bad:
            at, code = real(start, bad, work)
            if (at, code) != (bad, DONE):
                return at, code
        begin(bad, work)
        raise error or ValueError("a fault of the kernel")

    monkeypatch.setattr(batch_run, "match", match)
