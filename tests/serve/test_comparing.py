"""Two texts side by side: what is marked is what both have, by the hashes that the index compares."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.demo.feed import make_feed
from stream_lsh.documents.weights import weights_text
from stream_lsh.families.family import signer_of
from stream_lsh.families.signer import Signer
from stream_lsh.serve.comparing import MOST_CHARACTERS, compare, compared_documents, side_by_side
from stream_lsh.settings.model import Settings

ONE = "The council has voted for the new bridge over the river; work begins in spring."
OTHER = "THE council has voted for the new bridge  over the river; work begins in autumn."


def shingles(signer: Signer, text: str) -> set[int]:
    data = text.encode("utf-8", "surrogatepass")
    return set(signer.shingle(data, np.array([len(data)]))[0].tolist())


def marked(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[begin:end] for begin, end in spans]


def test_what_both_have_is_marked() -> None:
    found = compare(Signer(Settings().signing), ONE, OTHER)
    assert marked(ONE, found.spans[0]) == [ONE[: ONE.index(" spring")]]
    assert marked(OTHER, found.spans[1]) == [OTHER[: OTHER.index(" autumn")]]
    assert (found.shared, found.sizes) == (12, (13, 13))
    assert found.similarity == 12 / 14


@pytest.mark.parametrize(
    "given", [{}, {"shingles": "words:3"}, {"shingles": "chars:9"}, {"normalize": "lower,space,punctuation"},
              {"bag": True}, {"normalize": "none"}], ids=str,
)  # fmt: skip
def test_all_that_is_shared_is_found_in_every_language(given: dict[str, object]) -> None:
    """Of the demo's feed, whose stories come in eight languages, each document beside the one that it was made of."""
    signer, feed = Signer(Settings(**given).signing), make_feed(400, 3)
    by_id = {entry.id: entry for entry in feed.entries}
    pairs = [(entry, by_id[entry.parent]) for entry in feed.entries if entry.parent in by_id][:25]
    assert len(pairs) > 20
    for entry, parent in pairs:
        texts = [one.document["text"] for one in (entry, parent)]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            continue
        found = compare(signer, *texts)
        sets = [shingles(signer, text) for text in texts]
        assert (found.shared, found.similarity) == (
            len(sets[0] & sets[1]),
            len(sets[0] & sets[1]) / len(sets[0] | sets[1]),
        )
        if given.get("bag"):  # the second occurrence of a shingle has another hash than a text that is only it
            continue
        for text, spans in zip(texts, found.spans, strict=True):
            pieces = set().union(*(shingles(signer, piece) for piece in marked(text, spans)), set())
            missed = (sets[0] & sets[1]) - pieces
            blanks = 2 * len(spans) if "chars" in str(given) else 0  # a piece loses those at its ends
            assert len(missed) <= blanks


@settings(max_examples=200 if LONG else 40)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(one: str, other: str) -> None:
    signer = Signer(Settings().signing)
    found = compare(signer, one, other)
    sets = shingles(signer, one), shingles(signer, other)
    assert found.shared == len(sets[0] & sets[1])
    for text, spans in zip((one, other), found.spans, strict=True):
        assert all(0 <= begin < end <= len(text) or not text for begin, end in spans)
        assert all(a[1] < b[0] for a, b in pairwise(spans))


def test_sets_are_compared_by_their_elements() -> None:
    signer = Signer(Settings(set_field="tags").signing)
    found = compare(signer, "red\x1fgreen\x1fblue", "blue\x1fyellow")
    assert (found.shared, marked("red\x1fgreen\x1fblue", found.spans[0])) == (1, ["blue"])


def test_quotations_are_compared_by_what_the_smaller_one_has() -> None:
    settings = Settings(measure="containment", min_passage_words=5)
    one, other = f"They write: {ONE} Nobody says why.", ONE
    found = compare(signer_of(settings.signing), one, other)
    assert found.similarity == found.shared / found.sizes[1] == 1.0
    (passage,) = found.evidence["passages"]
    assert passage["words"] == 15
    assert one[slice(*passage["a"])] == other[slice(*passage["b"])] == ONE[:-1]
    again = compare(signer_of(settings.signing), one, other, later=True)
    assert again.evidence == found.evidence


def test_the_sample_of_a_large_set_is_compared_whole() -> None:
    settings = Settings(measure="weighted-jaccard", threshold=0.5)
    texts = [weights_text({f"element {n:06}": 1 for n in range(begin, 20_000)}, "the set", b"") for begin in (0, 100)]
    assert min(map(len, texts)) > MOST_CHARACTERS
    one, other = ({"text": text, "seq": seq, "group": 0} for seq, text in enumerate(texts))
    found = compared_documents(signer_of(settings.signing), settings, one, other)
    assert found.similarity == 19_900 / 20_000
    said = side_by_side(settings, one, other, found, apart=False)
    assert (said["match"], said["shared"], said["a"]["cut"], said["a"]["text"]) == (True, None, False, texts[0])


def test_short_texts_that_are_far_apart() -> None:
    settings = Settings(measure="levenshtein", max_distance=3)
    one, other = ({"text": letter * 300, "seq": seq, "group": None} for seq, letter in enumerate("ab"))
    found = compared_documents(signer_of(settings.signing), settings, one, other)
    said = side_by_side(settings, one, other, found, apart=False)
    assert (said["match"], said["why"]) == (False, "a distance of more than 256 is above that of 3")
