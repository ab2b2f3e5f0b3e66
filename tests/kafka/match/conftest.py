"""What the tests of the match role start from."""

import pytest

from stream_lsh.kafka.match import kept_answers


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are asked for again for five frames only."""
    monkeypatch.setattr(kept_answers, "KEPT_FRAMES", 5)
    monkeypatch.setattr(kept_answers, "MOST_ROWS", 0)
