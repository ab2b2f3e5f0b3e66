"""Signer end to end: shingle sets, fingerprints, layouts, sizes, threads, documents of 10 MB."""

import gc
import hashlib
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.long_form import LONG, rotating
from support.models.minhash import jaccard
from support.models.signing import make_settings, normalise, pack, shingle_hashes, shingles, sign
from support.models.siphash import siphash

from stream_lsh.errors import UsageError
from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signer
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.hashing.siphash import KEY_BYTES, LAST_ROUNDS, ROUNDS
from stream_lsh.index.store.heap import trim
from stream_lsh.settings.model import Settings
from stream_lsh.text.settings import SigningSettings

MB = 1_000_000
words = st.sampled_from(
    [
        *"abcdef",
        "the",
        "The",
        "naïve",
        "漢",
        "字",
        "ก็",
        "한국어",
        "क्\u200dष",
        "…",
        "!",
        "👍",
        "longer_than_16_bytes_it_is",
    ]
)
documents = st.lists(words, max_size=40).map(" ".join) | st.text("abc 漢字.", max_size=60)
choices = st.builds(
    make_settings,
    kind=st.sampled_from(["words", "chars", "set"]),
    k=st.sampled_from([1, 2, 3, 5, 9, 64]),
    continuous_k=st.sampled_from([1, 2, 3, 8, 64]),
    bag=st.booleans(),
    lower=st.booleans(),
    space=st.booleans(),
    punctuation=st.booleans(),
    tokens=st.sampled_from(["unicode", "word"]),
)


@hypothesis_settings(max_examples=800 if LONG else 250, deadline=None)
@given(st.lists(documents, max_size=6), choices)
def test_shingles_are_those_of_plain_python(texts: list[str], settings: SigningSettings) -> None:
    """Sizes and equalities are those of sets of tuples of strings; false alarm: two of 1000 hashes collide, 1e-14."""
    if settings.kind == "set":
        texts = [text.replace(" ", "\x1f").replace("the", " the  dog ") for text in texts]
    signed = sign(texts, settings)
    hashes = shingle_hashes(signed)
    expected = [shingles(text, settings) for text in texts]
    assert signed.sizes.tolist() == [len(one) for one in hashes] == [len(one) for one in expected]
    assert all(len(set(one)) == len(one) for one in hashes)
    for i, j in itertools.combinations(range(len(texts)), 2):
        assert jaccard(set(hashes[i]), set(hashes[j])) == jaccard(expected[i], expected[j])
    everything = {element for one in expected for element in one}
    assert len({element for one in hashes for element in one}) == len(everything)


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.lists(documents, max_size=5), choices)
def test_fingerprint_is_the_keyed_hash_of_the_normalised_text(texts: list[str], settings: SigningSettings) -> None:
    for key in (bytes(KEY_BYTES), bytes(range(KEY_BYTES))):
        signed = Signer(settings, key).sign(*pack(texts), want_shingles=False)
        normal = [normalise(text, settings).encode("utf-8", "surrogatepass") for text in texts]
        expected = [siphash(text, key, ROUNDS, LAST_ROUNDS) for text in normal]
        assert [row.astype("<u8").tobytes() for row in signed.fingerprints] == expected


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=8))
def test_murmur_is_mmh3(parts: list[bytes]) -> None:
    found = murmur128(b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))
    assert found.shape == (len(parts), 2)
    assert [tuple(row) for row in found.tolist()] == [mmh3.hash64(part, 0, True, signed=False) for part in parts]


@hypothesis_settings(max_examples=50, deadline=None)
@given(st.lists(documents, max_size=5), choices)
def test_a_document_does_not_depend_on_its_batch(texts: list[str], settings: SigningSettings) -> None:
    together = sign(texts, settings)
    for place, text in enumerate(texts):
        alone = sign([text], settings)
        for name in ("sizes", "fingerprints", "signatures"):
            assert np.array_equal(getattr(alone, name)[0], getattr(together, name)[place]), name


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6])
def test_layout(rows: int) -> None:
    settings = make_settings(rows=rows, bands=20)
    signed = sign(["one two three four", "", "  ", "five"], settings)
    assert signed.sizes.tolist() == [2, 0, 0, 1]
    assert (signed.sizes.dtype, signed.fingerprints.dtype) == (np.uint32, np.uint64)
    assert signed.signatures.dtype == {1: np.uint32, 2: np.uint32, 3: np.uint16}.get(rows, np.uint8)
    assert (signed.signatures.shape, signed.fingerprints.shape) == ((4, 128), (4, 2))
    assert signed.offsets.tolist() == [0, 2, 2, 2, 3]
    assert len(set(signed.shingles.tolist())) == 3
    keys = band_keys(signed.signatures, 20, rows)
    assert keys.shape == (4, 20)
    assert len(np.unique(keys[0])) == 20
    less = Signer(settings).sign(*pack(["one two three four", "", "  ", "five"]), want_shingles=False)
    assert (len(less.shingles), len(less.offsets)) == (0, 0)
    for name in ("sizes", "fingerprints", "signatures"):
        assert np.array_equal(getattr(less, name), getattr(signed, name))


def test_what_stored_signatures_depend_on() -> None:
    """Indexes are made with these very bytes: they never change again."""
    signed = Signer(Settings().signing, bytes(range(KEY_BYTES))).sign(
        *pack(["the quick brown fox jumps over the lazy dog", "naïve 漢字 text", "", "a"]), want_shingles=True
    )
    data = b"".join(column.tobytes() for column in (signed.signatures, signed.fingerprints, signed.shingles))
    assert hashlib.sha256(data).hexdigest() == "09965482570877ef6f051299ba70f3ccbdd9cb53c74b7ccf370941a943142de7"
    text = "The quick brown fox jumps over the lazy dog. 漢字かな naïve"
    keys = band_keys(sign([text], make_settings()).signatures, 18, 5)
    assert keys[0, :2].tolist() == [8678337931482979779, 9209679975100361733]
    assert Settings().fingerprint == "a19910f3d3a0e328"


@pytest.mark.parametrize(("rows", "size"), [(1, 128), (3, 128), (5, 128), (5, 100), (5, 1024)])
def test_scopes_set_documents_apart_and_change_nothing_else(rows: int, size: int) -> None:
    """With one scope documents agree as without, with different ones only by accident; fingerprints tell the scope."""
    settings = make_settings(rows=rows, bands=20, signature_size=size)
    text = " ".join(f"word{number}" for number in range(60))
    texts = [text, text, text + " and more", text, text + " and more", text]
    scopes = np.array([5, 5, 5, 6, 6, 2**64 - 1], np.uint64)
    plain = Signer(settings).sign(*pack(texts), want_shingles=True)
    scoped = Signer(settings).sign(*pack(texts), scopes, want_shingles=True)
    for name in ("sizes", "shingles", "offsets"):
        assert np.array_equal(getattr(plain, name), getattr(scoped, name)), name
    assert np.array_equal(scoped.fingerprints[:, 0] ^ plain.fingerprints[:, 0], scopes)
    assert np.array_equal(scoped.fingerprints[:, 1], plain.fingerprints[:, 1])
    for a, b in itertools.combinations(range(len(texts)), 2):
        agree = np.count_nonzero(scoped.signatures[a] == scoped.signatures[b])
        if scopes[a] == scopes[b]:
            assert agree == np.count_nonzero(plain.signatures[a] == plain.signatures[b]) > size / 2
        else:  # the expected number is size / 256 with one byte a component
            assert agree <= 3 + size / 64
    again = Signer(settings).sign(*pack(texts[3:]), scopes[3:], want_shingles=False)
    assert np.array_equal(again.signatures, scoped.signatures[3:])
    empty = Signer(settings).sign(*pack([" ", text]), scopes[:2], want_shingles=False)
    assert not empty.signatures[0].any() and np.array_equal(empty.signatures[1], scoped.signatures[0])
    none = Signer(settings).sign(*pack(texts), np.empty(0, np.uint64), want_shingles=False)
    assert np.array_equal(none.signatures, plain.signatures)


def test_what_is_empty_and_what_is_not() -> None:
    texts = ["", " \n\t\u3000", "!", "...", "👍", "\x00", "a", "\ud800"]
    assert sign(texts, make_settings()).sizes.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert sign(texts, make_settings(space=False)).sizes.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert sign(texts, make_settings(punctuation=True)).sizes.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sign(texts, make_settings("chars", 5)).sizes.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert sign(["", "\x1f", " \x1f ", "a\x1f a \x1fA"], make_settings("set")).sizes.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "lines"}, {"tokens": "bytes"}, {"k": 0}, {"k": 65}, {"continuous_k": 65}, {"signature_size": 0},
        {"bands": 26}, {"rows": 0}, {"bands": 0},
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Signer(make_settings(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [[5, 3], [-1], [12], [3, 12]])
def test_ends_that_leave_the_texts_are_refused(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="ends must rise"):
        Signer(make_settings()).sign(b"some texts.", np.array(ends), want_shingles=True)


def test_markup_and_compatibility_forms() -> None:
    plain = "The dog & the cat, once upon a time: fine"
    html = (
        "<html><head><style>p { x: y }</style><script>var a = '<p>';</script></head><!-- never <p> shown -->"
        "<p class='a'>The <b>d</b>og &amp; the&nbsp;cat,<br>once upon a <i>time</i>: ﬁne</p>"
    )
    signed = sign([plain, html], make_settings(markup=True, nfkc=True))
    assert np.array_equal(signed.fingerprints[0], signed.fingerprints[1])
    kept = ["1 < 2 and 3 > 2", "a <unclosed", "<!-- open", "x<3"]
    signed = sign(kept, make_settings(markup=True))
    assert np.array_equal(signed.fingerprints, sign(kept, make_settings()).fingerprints)
    elements = sign(["<b>Ａ</b>\x1fb", "a\x1fb"], make_settings("set", markup=True, nfkc=True))
    assert np.array_equal(elements.signatures[0], elements.signatures[1])


@pytest.mark.parametrize(
    "piece", ["<!--", "<a", "&#x", *rotating(["<", "<script>", "<script", "</b", "&", "<p><!--"], 2)]
)
def test_markup_never_takes_quadratic_time(piece: str) -> None:
    """Quadratic, these would take hours."""
    assert sign([piece * (MB // len(piece))], make_settings(markup=True)).sizes[0] >= 0


def test_threads_share_a_signer() -> None:
    generator = random.Random(7)
    vocabulary = [f"w{number}" for number in range(500)]
    batches = [pack([" ".join(generator.choices(vocabulary, k=200)) for _ in range(50)]) for _ in range(8)]
    signer = Signer(make_settings(bag=True))
    expected = [signer.sign(*batch, want_shingles=True) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = pool.map(lambda batch: signer.sign(*batch, want_shingles=True), batches)
            for one, other in zip(expected, found, strict=True):
                assert np.array_equal(one.signatures, other.signatures)
                assert np.array_equal(one.shingles, other.shingles)


# Documents of 10 MB


ONE_THING = [
    ("漢", make_settings(), 1),  # one shingle of eight, again and again
    ("\u200d", make_settings(), 1),  # no token: the whole text
    ("İ", make_settings("chars", 2), 2),
    ("a\x1f", make_settings("set"), 1),
    ("a ", make_settings(bag=True), 5 * MB - 2),
]
OTHER_THINGS = [
    ("a", make_settings(), 1),
    ("a ", make_settings(), 1),
    ("a\u200d", make_settings(), 1),
    ("x" + "\u200d" * 1000 + " ", make_settings(), 1),
    ("\u0301", make_settings(), 1),
    (" ", make_settings(), 0),
    ("Σ", make_settings(), 1),
    ("ab", make_settings("chars", 9), 2),
    ("\x1f", make_settings("set"), 0),
]


@pytest.mark.parametrize(
    ("piece", "settings", "size"),
    [*ONE_THING, *rotating(OTHER_THINGS, 3)],
    ids=lambda value: ascii(value)[:12] if isinstance(value, str) else None,
)
def test_10_mb_of_one_thing(piece: str, settings: SigningSettings, size: int) -> None:
    text = piece * (10 * MB // len(piece.encode()))
    assert sign([text, "an other one"], settings).sizes.tolist()[0] == size


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_10_mb_leave_no_memory_behind() -> None:
    def resident() -> int:
        gc.collect()
        trim()  # what other tests have freed is no matter
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    signer = Signer(make_settings())
    texts, ends = pack([" ".join(f"{number:x}" for number in range(1_500_000))])
    signer.sign(*pack(["warm up"]), want_shingles=False)
    before = resident()
    for _ in range(3):
        assert signer.sign(texts, ends, want_shingles=False).sizes[0] > MB
    assert resident() - before < 64 * MB
