"""A fault of the engine: signing raises on texts that have certain words."""

from typing import Any

import pytest

from stream_lsh.text import preparation

WORDS = "the text that nothing foresaw"


def poison(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """From now on signing raises on texts with WORDS. error: this one, otherwise a ValueError."""
    real = preparation.unified

    def unified(text: Any, ends: Any, settings: Any) -> Any:
        if WORDS.encode() in text.tobytes():
            raise error or ValueError("a fault\nof " + "a kernel" * 99)
        return real(text, ends, settings)

    monkeypatch.setattr(preparation, "unified", unified)
