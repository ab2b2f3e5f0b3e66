"""Passages and sampled shingles against plain Python, the tokens that shingles are made of, and throws of dice."""

import json
import math
import random
import re

import numpy as np
import pytest

from stream_lsh import Settings
from stream_lsh.families import passages as module
from stream_lsh.families.containment import needed, probability, sampling_of, slack
from stream_lsh.families.passages import MOST, Passages
from stream_lsh.families.sampled import SampledSigner, sampled
from stream_lsh.text.tokens import Placing


def passages(**given: object) -> Passages:
    settings = Settings(**({"measure": "containment"} | given))  # type: ignore[arg-type]
    return Passages(settings.signing)


def plain(new: list[str], old: list[str], least: int) -> list[tuple[int, int, int]]:
    """Tokens and begin in both, by definition: the longest runs first, without those of the new text that are taken."""
    runs = []
    for i in range(len(new)):
        for j in range(len(old)):
            if new[i] != old[j] or (i and j and new[i - 1] == old[j - 1]):
                continue
            size = 0
            while i + size < len(new) and j + size < len(old) and new[i + size] == old[j + size]:
                size += 1
            if size >= least:
                runs.append((-size, i, j))
    taken, found = set[int](), []
    for size, i, j in sorted(runs):
        pieces, length = [(0, 0)], 0
        for at in range(i, i - size):
            length = 0 if at in taken else length + 1
            pieces.append((length, at - length + 1))
        best = max(pieces, key=lambda piece: (piece[0], -piece[1]))
        if best[0] >= least:
            taken |= set(range(best[1], best[1] + best[0]))
            found.append((best[0], best[1], j + best[1] - i))
    return sorted(found, key=lambda run: (-run[0], run[1]))


def words_of(text: str) -> list[tuple[str, int, int]]:
    return [(match.group().lower(), *match.span()) for match in re.finditer(r"\w+", text)]


def text_of(chance: random.Random, words: list[str]) -> str:
    """With capitals, points and blanks, and letters of two and of four bytes."""
    parts = [word.upper() if chance.random() < 0.1 else word for word in words]
    return "".join(part + chance.choice((" ", "  ", ", ", ". — ", "\n", " 🙂 ")) for part in parts)


def test_more_runs_than_there_is_room_for_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [f"a{k} b{k} c{k}" for k in range(20)]
    one, two = (f" {mark} ".join(parts).encode() for mark in "xy")
    found = passages(min_passage_words=3).between(one, two).tolist()
    assert len(found) == len(parts)
    monkeypatch.setattr(module, "_RUNS", 1)
    assert passages(min_passage_words=3).between(one, two).tolist() == found


@pytest.mark.parametrize("seed", range(40))
def test_passages_are_those_of_plain_python(seed: int) -> None:
    chance = random.Random(seed)
    vocabulary = [f"{'wörd' if k % 2 else 'w'}{k}" for k in range(chance.choice((4, 30, 1000)))]
    old = [chance.choice(vocabulary) for _ in range(chance.choice((5, 60, 200)))]
    new: list[str] = []
    for _ in range(chance.randrange(1, 5)):
        begin = chance.randrange(len(old))
        new += old[begin : begin + chance.randrange(1, 50)] + [chance.choice(vocabulary) for _ in range(7)]
    least = chance.choice((1, 4, 12))
    one, two = text_of(chance, new), text_of(chance, old)
    found = passages(min_passage_words=least).between(one.encode(), two.encode()).tolist()
    wanted = plain(new, old, least)
    assert [item[0] for item in found] == [size for size, _, _ in wanted] or len(vocabulary) < 1000
    taken: list[tuple[int, int]] = []
    for size, begin, end, where, until in found:
        assert [w for w, _, _ in words_of(one[begin:end])] == [w for w, _, _ in words_of(two[where:until])]
        assert len(words_of(one[begin:end])) == size >= least
        assert all(end <= a or begin >= b for a, b in taken)
        taken.append((begin, end))
    if len(vocabulary) == 1000:
        places, others = words_of(one), words_of(two)
        assert found == [
            [size, places[i][1], places[i + size - 1][2], others[j][1], others[j + size - 1][2]]
            for size, i, j in wanted
        ]
    assert found or not wanted


@pytest.mark.parametrize(
    "text",
    [
        "The harbour was closed; l'été — naïve “quotes” and under_score 12,5 %",
        "由于西边来的风暴，港口关闭 on Tuesday 第二天ok早上",
        "किताब में हिन्दी के शब्द हैं और ยังมีภาษาไทย",
        "e\u0301te\u0301 a\u200db c\u200d d\u200d\u200de \u200dx",
        "ΟΔΟΣ Ὀδυσσεύς ODOS İstanbul ǅ",
        "a\ud800b \U0001f642x",
        "x",
        "...",
    ],
)
def test_tokens_are_where_the_signer_sees_them(text: str) -> None:
    """The same tokens as those of shingles of one word, whatever the script."""
    settings = Settings(measure="containment", shingles="words:1/1")
    data = text.encode(errors="surrogatepass")
    tokens = Placing(settings.signing)(data)
    pieces = [text[a:b] for a, b in zip(tokens.begins.tolist(), tokens.ends.tolist(), strict=True)]
    assert len(set(tokens.hashes.tolist())) == len({piece.lower().replace("ς", "σ") for piece in pieces})
    explain = Passages(settings.signing)
    shingles, _ = explain._signer.shingle(data, np.array([len(data)]))
    mine: list[int] = []
    for piece in pieces:
        raw = piece.encode(errors="surrogatepass")
        one, _ = explain._signer.shingle(raw, np.array([len(raw)]))
        assert len(one) == 1, piece
        mine += one.tolist()
    if "İ" not in text and "Σ" not in text and pieces:  # which lower case depends on what stands around
        assert set(mine) == set(shingles.tolist())


def test_what_is_said_of_a_match() -> None:
    words = [f"w{k}" for k in range(400)]
    explain = passages(shingles="words:3")
    new, old = " ".join(words[100:130]), " ".join(words)
    (said,) = explain(new.encode(), [old.encode()])
    found = json.loads(b"{" + said[1:] + b"}")
    assert found["contained_in"] == 1.0
    assert found["contains"] == 28 / 398
    (passage,) = found["passages"]
    assert passage["words"] == 30
    assert new[slice(*passage["newer"])] == new == old[slice(*passage["older"])]
    # More than are listed.
    parts = " ".join(" ".join(words[at : at + 15]) + " and" for at in range(0, 400, 30))
    (said,) = explain(parts.encode(), [old.encode()])
    found = json.loads(b"{" + said[1:] + b"}")
    assert len(found["passages"]) == MOST
    assert found["more_passages"] == 13 - MOST
    (said,) = explain(b"nothing of it at all", [old.encode()])
    assert json.loads(b"{" + said[1:] + b"}") == {"contained_in": 0.0, "contains": 0.0, "passages": []}


def test_large_texts_are_kept_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word{k}" for k in range(20_000)]
    book, read = " ".join(words).encode(), []
    explain = passages()
    original = Passages._read
    monkeypatch.setattr(Passages, "_read", lambda self, text: read.append(len(text)) or original(self, text))
    for at in range(0, 1000, 100):
        post = " ".join(words[at : at + 20]).encode()
        assert explain(post, [memoryview(book)]) == passages()(post, [book])
    assert read.count(len(book)) == 1 + 10  # once, and once for each of the others
    monkeypatch.setattr(module, "KEPT_BYTES", 1)
    other = b" ".join(b"x%d" % k for k in range(20_000))
    explain(b"x1", [memoryview(book), other])
    assert len(explain._kept) == 1


def test_texts_of_one_word_have_a_bounded_price() -> None:
    found = passages().between(b"a " * 100_000, b"a " * 99_000)
    assert found[0].tolist()[0] == 99_000


@pytest.mark.parametrize(
    ("share", "shingles", "threshold", "sampling"),
    [(0.8, 32, 0.8, 4), (0.5, 32, 0.5, 2), (0.4, 100, 0.8, 4), (0.7, 300, 0.8, 3), (1.0, 10, 0.9, 8)],
)
def test_probability_is_that_of_throws(share: float, shingles: int, threshold: float, sampling: int) -> None:
    throws, chance = 200_000, np.random.default_rng(1)
    common = round(share * shingles)
    inside = chance.binomial(common, 1 / sampling, throws)
    keys = inside + chance.binomial(shingles - common, 1 / sampling, throws)
    least = np.maximum(1, np.ceil(threshold * keys - slack(threshold, sampling) * np.sqrt(keys) - 1e-9))
    found = float((inside >= least).mean())
    expected = probability(share, shingles, threshold, sampling)
    # Of a share of so many throws the deviation is below five of its standard ones, but once in a million.
    assert abs(found - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 1 / throws) / throws)


def test_every_shingle_as_a_key_is_certain() -> None:
    for threshold in (0.1, 0.5, 0.8, 1.0):
        for shingles in (1, 7, 100):
            common = math.ceil(threshold * shingles - 1e-9)
            assert probability(common / shingles, shingles, threshold, 1) == pytest.approx(1)
            assert needed(shingles, threshold, 1) == max(1, common)
            if common > 1:
                assert probability((common - 1) / shingles, shingles, threshold, 1) == 0


def test_the_sampling_keeps_the_promise() -> None:
    for threshold in (0.3, 0.5, 0.8, 0.95):
        for least in (1, 8, 32, 200):
            chosen = sampling_of(threshold, 0.999, least)
            share = math.ceil(threshold * least - 1e-9) / least
            assert chosen == 1 or probability(share, least, threshold, chosen) >= 0.999 - 1e-9
            assert chosen == 64 or probability(share, least, threshold, chosen + 1) < 0.999
    assert [Settings(measure="containment", threshold=t).sampled for t in (0.5, 0.8)] == [2, 4]
    assert Settings(measure="containment", min_shingles=1).sampled == 1
    assert json.loads(json.dumps(Settings(measure="containment", threshold=0.5).answers))["sampling"] == 2


def test_keys_are_a_share_and_the_same_at_any_place() -> None:
    signer = SampledSigner(Settings(measure="containment", shingles="words:3").signing)
    words = [f"w{k}" for k in range(20_000)]
    texts = [" ".join(words).encode(), " ".join(words[100:1000]).encode()]
    shingles, offsets = signer.shingle(b"".join(texts), np.cumsum([len(text) for text in texts]))
    nothing = np.zeros(2, np.uint64)
    keys, starts = sampled(shingles, offsets, nothing, np.uint64(5), 4)
    assert abs(starts[1] - 20_000 / 4) < 5 * math.sqrt(20_000 * 3 / 16)
    assert set(keys[starts[1] :].tolist()) < set(keys[: starts[1]].tolist())
    # Under another secret, and with a scope, there are as many, and all of them are others.
    for secret, scopes in ((6, nothing), (5, np.array([1, 2], np.uint64))):
        others, begins = sampled(shingles, offsets, scopes, np.uint64(secret), 4)
        assert begins.tolist() == starts.tolist()
        assert not {*others.tolist()} & {*keys.tolist()}
    every, _ = sampled(shingles, offsets, nothing, np.uint64(5), 1)
    assert len(every) == len(shingles)
