"""bench/levenshtein.py: small runs of the engine and of rapidfuzz."""

import orjson

from bench.levenshtein import beside


def test_the_engine_and_brute_force_find_the_same() -> None:
    titles = [f"{'abcdefgh'[i % 8] * (5 + i % 30)} title {i % 97}" for i in range(400)]
    engine, brute = beside(titles, 2)
    assert (engine["system"], brute["system"]) == ("stream-lsh", "rapidfuzz, brute force")
    assert engine["recall"] == engine["precision"] == 1
    assert 0 < engine["dropped"] < 100
    assert engine["disk"] > 0
    assert orjson.dumps([engine, brute])
