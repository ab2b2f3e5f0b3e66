"""What is counted by the second."""

from stream_lsh.serve.counts import Tally


def test_latencies_have_their_true_maximum() -> None:
    tally = Tally(lambda: 0, lambda: 0, lambda: 0)
    tally.answered(0.0123)
    (second,) = tally.history(60)
    assert [second[name] for name in ("p50_ms", "p99_ms", "max_ms")] == [12.3, 12.3, 12.3]
    tally.answered(7.5)  # beyond the last class
    last = tally.history(60)[-1]
    assert (last["p99_ms"], last["max_ms"]) == (7500, 7500)
    tally.verdict({"kind": "unique"})
    assert all(second["max_ms"] is not None for second in tally.history(60) if second["p50_ms"] is not None)
