"""The clock of bench/stages.py, and that the engine still has the functions that it puts clocks around."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bench import stages


@pytest.mark.parametrize(("module", "name"), [(module, name) for _, module, name in stages.CLOCKED])
def test_the_engine_has_the_stages(module: str, name: str) -> None:
    with ExitStack() as stack:
        stages.replaced(stack, module, name, lambda before: before)


def test_a_missing_stage_is_named() -> None:
    with ExitStack() as stack, pytest.raises(SystemExit, match=r"no judging in stream_lsh\.embedded\.job"):
        stages.replaced(stack, "stream_lsh.embedded.job", "judging", lambda before: before)


def test_inner_stages_are_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, 1.0, 3.0, 7.0, 15.0])  # made, outer in, inner in, inner out, outer out
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(ticks))
    clock = stages.Clock()
    inner = clock.around("inner", lambda: 5)
    assert clock.around("outer", inner)() == 5
    assert clock.seconds == {"outer": 2.0 + 8.0, "inner": 4.0}
