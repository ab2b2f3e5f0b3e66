"""What follows from a measure: collision probabilities, keys, signatures, exact distances (MMDS 3.5 to 3.7)."""

import math
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.models.distances import cosine_distance, euclidean_distance, hamming_distance

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields
from stream_lsh.errors import UsageError
from stream_lsh.families.components import components_of, masks_of
from stream_lsh.families.distances import similarity
from stream_lsh.families.family import signer_of
from stream_lsh.families.items import lines, planes
from stream_lsh.families.measure import collision, similarity_at
from stream_lsh.families.signer import Signed
from stream_lsh.index.rows.keys import Hashes, as_words
from stream_lsh.settings.model import Settings

JACCARD = {  # as they were before there were other measures
    "423ecd260c22edec": {},
    "6aed6237455a797f": {"threshold": 0.5},
    "2f9f6057bf5e736d": {"set_field": "tags"},
    "a3ed5b496ca3b2fd": {"compare_with": "all", "shards": 3, "match_within": ["lang"]},
    "2aaf8186de4bb16c": {"window": "7d", "on_conflict": "update", "deleted_field": "gone", "time_field": "ts"},
    "65a24247b7cbb577": {"verify": "signature", "shards": 2},
}  # fmt: skip
COSINE: dict[str, Any] = {"measure": "cosine", "dimensions": 16}
EUCLIDEAN: dict[str, Any] = {"measure": "euclidean", "dimensions": 16, "max_distance": 2.5}
HAMMING: dict[str, Any] = {"measure": "hamming", "dimensions": 64, "max_distance": 3}
EDITS: dict[str, Any] = {"measure": "levenshtein", "max_distance": 2}
CONTAINMENT: dict[str, Any] = {"measure": "containment", "threshold": 0.5}
PER_SOURCE: dict[str, Any] = {"keep_per": "source", "source_field": "source"}


def signed(settings: Settings, items: list[Any], scopes: NDArray[np.uint64] | None = None) -> Signed:
    kind = "bits" if settings.measure == "hamming" else "vector"
    found = columns([Document(number, **{kind: item}) for number, item in enumerate(items)], Fields(item=settings.item))
    assert not found.rejected
    return signer_of(settings.signing).sign(found.texts, found.ends, scopes, want_shingles=True)


def similar(settings: Settings, one: Any, other: Any) -> float:
    """By the words that stand for the two, as the index compares them."""
    made = signed(settings, [one, other])
    first, second = np.split(made.shingles, made.offsets[1:-1])
    return similarity(settings.measure, first, second, settings.signing.dimensions)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5, 7, 33])
def test_distances_are_those_of_the_definition(dimensions: int) -> None:
    chance = np.random.default_rng(dimensions)
    cosine = Settings(measure="cosine", dimensions=dimensions)
    euclidean = Settings(measure="euclidean", dimensions=dimensions, max_distance=1)
    hamming = Settings(measure="hamming", dimensions=8 * dimensions, max_distance=1)
    for _ in range(10):
        one, other = chance.normal(size=(2, dimensions)).astype(np.float32)
        near = math.cos(math.radians(cosine_distance(one.tolist(), other.tolist())))
        far = euclidean_distance(one.tolist(), other.tolist())
        assert similar(cosine, one, other) == pytest.approx(near, abs=1e-9)
        assert similar(euclidean, one, other) == pytest.approx(1 / (1 + far), abs=1e-9)
        rows = [chance.bytes(dimensions) for _ in range(2)]
        places = [[byte >> bit & 1 for byte in row for bit in range(8)] for row in rows]
        assert similar(hamming, *rows) == 1 - hamming_distance(*places) / (8 * dimensions)


def test_a_document_is_equal_to_itself() -> None:
    """Exactly, whatever his length."""
    chance = np.random.default_rng(1)
    for scale in (1e-40, 1e-20, 1.0, 1e20, 1e37):
        for vector in (chance.normal(size=(40, 16)) * scale).astype(np.float32):
            assert similar(Settings(**COSINE), vector, vector) == 1.0
            assert similar(Settings(**EUCLIDEAN), vector, vector) == 1.0


@pytest.mark.parametrize("dimensions", [8, 64])
def test_the_share_of_equal_bits_is_that_of_the_angle(dimensions: int) -> None:
    """300 pairs at all angles, 1,024 planes that they share: a pair is wrong by 0.1 in fewer than one case of 1e9."""
    settings = Settings(measure="cosine", dimensions=dimensions, signature_size=1024)
    chance, errors = np.random.default_rng(2), []
    for _ in range(300):
        one, other = chance.normal(size=(2, dimensions))
        other = other + chance.choice([0, 1, 2, 5]) * one
        bits = np.unpackbits(signed(settings, [one, other]).signatures, axis=1)
        errors.append((bits[0] == bits[1]).mean() - 1 + cosine_distance(one.tolist(), other.tolist()) / 180)
    assert abs(np.mean(errors)) < 0.01
    assert np.abs(errors).max() < 0.1


@pytest.mark.parametrize("dimensions", [2, 3, 300])
def test_vectors_in_which_few_numbers_count_are_no_exception(dimensions: int) -> None:
    """Beside the diagonal, where planes of ones and minus ones part the nearest neighbours."""
    settings = Settings(measure="cosine", dimensions=dimensions, signature_size=1024)
    one, other = np.zeros((2, dimensions))
    one[:2], other[:2] = (1, 0.99), (0.99, 1)
    bits = np.unpackbits(signed(settings, [one, other]).signatures, axis=1)
    assert (bits[0] == bits[1]).mean() > 0.98


@pytest.mark.parametrize("distance", [0.1, 0.5, 1.0, 2.0, 3.0, 10.0])
def test_lines_collide_as_often_as_it_is_computed(distance: float) -> None:
    """40 pairs at this distance (in units of the limit), 1,024 lines that they share: 0.03 is four standard errors."""
    settings = Settings(measure="euclidean", dimensions=32, max_distance=7, signature_size=1024)
    chance, shares = np.random.default_rng(3), []
    for _ in range(40):
        one, step = chance.normal(size=(2, 32)) * 20
        other = one + step / np.linalg.norm(step) * 7 * distance
        a, b = signed(settings, [one, other]).signatures
        shares.append((a == b).mean())
    assert np.mean(shares) == pytest.approx(collision("euclidean", 0.8, distance), abs=0.03)


def test_probabilities_at_their_ends() -> None:
    assert collision("euclidean", 0.8, 0.0) == 1
    assert collision("euclidean", 0.8, 1e-9) == pytest.approx(1)
    assert collision("euclidean", 0.8, 1.0) == pytest.approx(0.8005, abs=1e-4)
    assert collision("euclidean", 0.8, 1e9) < 1e-8
    assert collision("jaccard", 0.8) == 0.8
    assert collision("cosine", 1.0) == 1
    with pytest.raises(ValueError, match="no random ones"):
        collision("hamming", 0.8)
    assert similarity_at("euclidean", 4, 0) == 0.2
    assert similarity_at("hamming", 3, 64) == 61 / 64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**COSINE, "threshold": 0.9, "bands": 2}, "recall 0.999 at a cosine of 0.9, where a component is the same "
         "with probability 0.856, cannot be reached with bands = 2: .* "
         "set bands to 4 or more, or raise the threshold.$"),
        ({**EUCLIDEAN, "max_distance": 0.5, "rows": 40}, "recall 0.999 at a distance of 0.5, where a component is the "
         "same "
         "with probability 0.801, cannot be reached with 4,096 .* or set rows to 16 or less.$"),
    ],
)  # fmt: skip
def test_bands_that_cannot_be_had_are_refused_in_terms_of_the_measure(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings.load(None, **given)


def met(settings: Settings, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether bit vectors uint8[n, octets] have a key in common with the first of them."""
    signatures = np.zeros((len(rows), components_of(settings.signing).columns), np.uint8)
    signatures[:, : rows.shape[1]] = rows
    words, masks = as_words(signatures), masks_of(settings.signing)
    keys = words[:, None, :] & masks[None]
    found: NDArray[np.bool_] = (keys == keys[:1]).all(axis=2).any(axis=1)
    zeros = np.zeros((len(rows), 2), np.uint64)
    hashed, _ = Hashes(settings.signing, bytes(16)).keys(signatures, zeros, zeros)
    bands = hashed.reshape(len(rows), -1)[:, : settings.signing.bands]
    assert ((bands == bands[:1]).any(axis=1) == found).all()
    return found


@pytest.mark.parametrize(("dimensions", "distance"), [(8, 0), (8, 1), (8, 2), (8, 3), (8, 5), (8, 7), (16, 2), (16, 3)])
def test_rows_within_the_distance_always_meet(dimensions: int, distance: int) -> None:
    """All rows that differ in so many bits, one by one."""
    settings = Settings(measure="hamming", dimensions=dimensions, max_distance=distance)
    flips = [0, *(sum(1 << bit for bit in bits) for k in range(1, distance + 1)
                  for bits in combinations(range(dimensions), k))]  # fmt: skip
    octets = np.array(
        [list((0x5A3C & (1 << dimensions) - 1 ^ flip).to_bytes(dimensions // 8, "big")) for flip in flips]
    )
    assert met(settings, octets.astype(np.uint8)).all()


@pytest.mark.parametrize(
    ("dimensions", "distance"),
    [(32, 3), (64, 0), (64, 1), (64, 3), (64, 8), (64, 10), (64, 63), (72, 4), (128, 10), (256, 31), (1024, 100),
     (1032, 127), (16384, 500)],
)  # fmt: skip
def test_rows_within_the_distance_meet_in_large_ones(dimensions: int, distance: int) -> None:
    """Up to 500 rows, with flips at the worst places, too: evenly over the row, and side by side."""
    settings = Settings(measure="hamming", dimensions=dimensions, max_distance=distance)
    chance, base = np.random.default_rng(dimensions + distance), np.random.default_rng(1).integers(0, 2, dimensions)
    rows = [base]
    for number in range(min(500, 200_000 // dimensions)):
        row = base.copy()
        if number == 0:
            places = np.arange(distance)
        elif number == 1:
            places = np.arange(distance) * dimensions // max(1, distance)
        else:
            places = chance.choice(dimensions, chance.integers(distance + 1), replace=False)
        row[places] ^= 1
        rows.append(row)
    assert met(settings, np.packbits(np.array(rows), axis=1)).all()


def test_a_distance_that_leaves_nothing_in_common_is_refused() -> None:
    for dimensions, distance, most in ((64, 64, 63), (8, 100, 7), (16384, 1024, 1023)):
        with pytest.raises(
            UsageError, match=f"set at most {most}; vectors that differ in more have no block in common"
        ):
            Settings.load(None, measure="hamming", dimensions=dimensions, max_distance=distance)


def some(settings: Settings, n: int = 20) -> list[Any]:
    chance = np.random.default_rng(5)
    if settings.measure == "hamming":
        return [chance.bytes(settings.signing.dimensions // 8) for _ in range(n)]
    return list(chance.normal(size=(n, settings.signing.dimensions)))


@pytest.mark.parametrize("given", [COSINE, EUCLIDEAN, HAMMING])
def test_signatures_do_not_change(given: dict[str, Any]) -> None:
    """From run to run, and neither with the batch."""
    settings = Settings(**given)
    items = some(settings)
    whole, again = signed(settings, items), signed(settings, items)
    planes.cache_clear()
    lines.cache_clear()
    single = [signed(settings, [item]) for item in items]
    for name in ("sizes", "fingerprints", "signatures", "shingles"):
        assert (getattr(whole, name) == getattr(again, name)).all()
        assert (getattr(whole, name) == np.concatenate([getattr(one, name) for one in single])).all()
    assert (whole.sizes == settings.dimensions).all()


def test_signatures_are_those_that_indexes_have() -> None:
    """Indexes depend on them: a change here makes those that are there useless."""
    vector = [(-1) ** n * (n + 1) / 7 for n in range(16)]
    golden = {
        "cosine": "179ec7207a6b7f01b081e02f47688702",
        "euclidean": "ff00ff0000ff01ff",
        "hamming": "0123456789abcdef",
    }
    found = {
        "cosine": signed(Settings(**COSINE), [vector]).signatures[0, :16].tobytes().hex(),
        "euclidean": signed(Settings(**EUCLIDEAN), [vector]).signatures[0, :8].tobytes().hex(),
        "hamming": signed(Settings(**HAMMING), [0x0123456789ABCDEF]).signatures[0].tobytes().hex(),
    }
    assert found == golden


def test_the_length_of_a_vector_says_nothing_about_its_direction() -> None:
    chance = np.random.default_rng(6)
    settings = Settings(**COSINE)
    for vector in chance.normal(size=(20, 16)).astype(np.float32):
        scaled = [vector * np.float32(2.0**power) for power in (-100, -3, 0, 5, 100)]
        made = signed(settings, scaled)
        assert (made.signatures == made.signatures[0]).all()


@pytest.mark.parametrize("given", [COSINE, EUCLIDEAN, HAMMING, {**COSINE, "threshold": 0.1},
                                   {"measure": "hamming", "dimensions": 64, "max_distance": 60}])  # fmt: skip
def test_scopes_set_vectors_apart(given: dict[str, Any]) -> None:
    """Equal items meet in all keys with the same scope, and in none with another."""
    settings = Settings(**given, match_within=["lang"])
    item = some(settings, 1)[0]
    scopes = np.array([2**40, 2**40, 2**41, 3**40, 2**64 - 1], np.uint64)
    made = signed(settings, [item] * 5, scopes)
    hashes = Hashes(settings.signing, bytes(16))
    ids = np.zeros((5, 2), np.uint64)
    keys = hashes.keys(made.signatures, made.fingerprints, ids)[0].reshape(5, -1)[:, :-1]
    assert (keys[0] == keys[1]).all()
    for one, other in combinations(range(1, 5), 2):
        assert not (keys[one] == keys[other]).any()
    assert len({print.tobytes() for print in made.fingerprints}) == 4
    assert (signed(settings, [item] * 5).fingerprints == signed(Settings(**given), [item] * 5).fingerprints).all()


def test_what_is_no_item_signs_as_nothing() -> None:
    """As texts of other dimensions in a damaged index, or the empty text of what was refused."""
    for given, texts in ((COSINE, [b"", b"AAAA", b"!" * 88]), (HAMMING, [b"", b"00", b"x" * 16])):
        ends = np.cumsum([len(text) for text in texts])
        made = signer_of(Settings(**given).signing).sign(b"".join(texts), ends, want_shingles=True)
        assert (made.sizes == 0).all() and not made.signatures.any() and not len(made.shingles)
        assert (made.offsets == 0).all()


@pytest.mark.parametrize(("fingerprint", "given"), JACCARD.items())
def test_indexes_of_copies_are_as_they_were(fingerprint: str, given: dict[str, Any]) -> None:
    assert Settings(normalize="lower,space", **given).fingerprint == fingerprint
    assert not {"measure", "dimensions", "max_distance"} & Settings(**given).answers.keys()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"measure": "cosine"}, "measure = cosine needs dimensions: numbers of a vector, or bits of a bit vector"),
    ({"measure": "euclidean", "dimensions": 8}, "measure = euclidean needs max_distance: distance up to"),
    ({"measure": "hamming", "max_distance": 3}, "measure = hamming needs dimensions: "),
    ({"measure": "hamming", "dimensions": 64}, "measure = hamming needs max_distance: "),
    ({**COSINE, "max_distance": 1}, "max_distance is not used with measure = cosine; leave it out"),
    ({**COSINE, "verify": "signature"}, "verify is not used with measure = cosine; leave it out"),
    ({**EUCLIDEAN, "threshold": 0.5}, "threshold is not used with measure = euclidean; leave it out"),
    ({**EUCLIDEAN, "max_distance": 0}, "0 is too small for similarities of 1 / (1 + distance); 1e-06 is the least"),
    ({**EUCLIDEAN, "max_distance": 1e-7}, "multiply the vectors and the distance by the same number"),
    ({**HAMMING, "threshold": 0.5}, "threshold is not used with measure = hamming; leave it out"),
    ({**HAMMING, "target_recall": 0.9}, "target_recall is not used with measure = hamming; leave it out"),
    (
        {"measure": "levenshtein", "max_distance": 1, "target_recall": 0.9},
        "target_recall is not used with measure = levenshtein; leave it out",
    ),
    ({**HAMMING, "vector_field": "v"}, "vector_field is not used with measure = hamming; leave it out"),
    ({**HAMMING, "dimensions": 65}, "dimensions: 65 bits are no whole bytes; measure = hamming needs them"),
    ({**HAMMING, "max_distance": 2.5}, "distance: 2.5 bits; measure = hamming needs a whole number"),
    ({"dimensions": 64}, "dimensions is not used with measure = jaccard; leave it out"),
    ({**COSINE, "dimensions": 0}, "dimensions"),
    ({**COSINE, "dimensions": 16385}, "16384"),
    ({"measure": "angular", "dimensions": 8}, "hamming, levenshtein, containment"),
    ({"measure": "levenshtein"}, "measure = levenshtein needs max_distance"),
    ({**EDITS, "max_distance": 1.5}, "distance: 1.5 edits; measure = levenshtein takes whole numbers from 0 to 8"),
    ({**EDITS, "max_distance": 9}, "distance: 9 edits"),
    *(({**EDITS, name: value}, f"{name} is not used with measure = levenshtein") for name, value in
      {"threshold": 0.5, "shingles": "chars:3", "verify": "signature", "bands": 3, "dimensions": 3}.items()),
    *(({"measure": "weighted-jaccard", name: value}, f"{name} is not used with measure = weighted-jaccard")
      for name, value in
      {"max_distance": 2, "dimensions": 3, "text_field": "x", "normalize": "none", "bag": True}.items()),
    ({**CONTAINMENT, "normalize": "lower,space,markup"}, "markup is not used with measure = containment"),
    ({**CONTAINMENT, "shards": 2}, "needs compare_with = 'all' with several shards"),
    ({**CONTAINMENT, "set_field": "tags"}, "set_field is not used with measure = containment"),
    ({**CONTAINMENT, "threshold": 0.001}, "too small a share"),
    ({"sampling": 2}, "sampling is not used with measure = jaccard"),
    ({"measure": "tf-idf", "shards": 2}, "shards"),
    ({"measure": "tf-idf", "compare_with": "all", "max_verified_matches": 10}, "compare_with"),
    ({"threshhold": 1}, "threshhold: there is no such setting; did you mean threshold?"),
    ({"threshold": 7}, "threshold = 7: give a number above 0 and of at most 1"),
    ({"shingles": "set"}, "words:K"),
    ({"keep": "best"}, "keep = 'best' needs rank_field"),
    ({"rank_field": "r"}, "rank_field is for keep = 'best'"),
    ({"keep": "newest", "rank_order": ("a",)}, "rank_order is for keep = 'best'"),
    ({"keep": "newest", "compare_with": "all"}, "keep = 'newest' is for compare_with = 'kept'"),
    ({"keep": "newest", "measure": "tf-idf"}, "keep is not used with measure = tf-idf"),
    ({"keep": "longest", "set_field": "set"}, "keep = 'longest' is for texts"),
    ({"keep_per": "source"}, "keep_per = 'source' needs source_field"),
    ({**PER_SOURCE, "compare_with": "all"}, "keep_per = 'source' is for compare_with = 'kept'"),
    ({**PER_SOURCE, "measure": "tf-idf"}, "keep_per is not used with measure = tf-idf"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_does_not_go_together_is_said(given: dict[str, Any], message: str) -> None:
    for make in (partial(Settings.load, None), Settings):
        with pytest.raises(UsageError) as refused:
            make(**given)
        assert message in str(refused.value).replace(" (from command line)", "")
