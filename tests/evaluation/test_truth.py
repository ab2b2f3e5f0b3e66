"""Pairs from files of several shapes, and what is wrong with a line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from stream_lsh.errors import InputError
from stream_lsh.evaluation.exact import Pairs
from stream_lsh.evaluation.truth import read_pairs

IDS = [b'"a"', b'"b"', b"17", b'"18"', b'"\xc3\xa9"']


def read(tmp_path: Path, name: str, content: str) -> tuple[Pairs, int]:
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8") if not name.endswith(".gz") else gzip.compress(content.encode("utf-8")))
    return read_pairs(str(path), IDS)


def listed(given: Pairs) -> list[tuple[int, int, float | None]]:
    similarities = [None if np.isnan(value) else float(value) for value in given.similarity]
    return list(zip(given.first.tolist(), given.second.tolist(), similarities, strict=True))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.tsv", "a\tb\t0.5\n17\té\n\n18\ta\t1\n"),
        ("p.tsv", "a\tb\t0.5\r\n17\té\r\n18\ta\t1"),
        ("p.tsv.gz", "a\tb\t0.5\n17\té\n18\ta\t1\n"),
        ("p.jsonl", '["a", "b", 0.5]\n[17, "é"]\n["18", "a", 1]\n'),
        ("p.jsonl", '["a", "b", 0.5]\n["17", "é"]\n[18, "a", 1.0]\n'),
        (
            "p.jsonl.gz",
            '{"older": "a", "newer": "b", "similarity": 0.5}\n{"a": 17, "b": "é"}\n'
            '{"id1": "18", "id2": "a", "jaccard": 1}\n',
        ),
    ],
)
def test_shapes(tmp_path: Path, name: str, content: str) -> None:
    assert listed(read(tmp_path, name, content)[0]) == [(0, 1, 0.5), (2, 4, None), (3, 0, 1.0)]


def test_pairs_of_unknown_documents_are_counted(tmp_path: Path) -> None:
    given, unknown = read(tmp_path, "p.tsv", "a\tb\na\tzzz\nyyy\tzzz\n")
    assert listed(given) == [(0, 1, None)]
    assert unknown == 2


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("p.tsv", "a", "expected id, id"),
        ("p.tsv", "a\t\t0.5", "expected id, id"),
        ("p.tsv", "a\tb\tmuch", "the similarity is 'much'"),
        ("p.tsv", "a\tb\t1.5", "the similarity is '1.5'"),
        ("p.tsv", "a\tb\tnan", "the similarity is 'nan'"),
        ("p.tsv", "a\ta", "two different documents"),
        ("p.jsonl", "{", "not JSON"),
        ("p.jsonl", "[" * 5000, "not JSON"),
        ("p.jsonl", '"a"', "expected a list of two ids"),
        ("p.jsonl", '["a"]', "expected a list of two ids"),
        ("p.jsonl", '{"x": "a"}', '"older" and "newer"'),
        ("p.jsonl", '["a", null]', "the id is null"),
        ("p.jsonl", '["a", "b", true]', "the similarity is 'True'"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, name: str, line: str, says: str) -> None:
    good = "a\tb\n" if name.endswith("tsv") else '["a", "b"]\n'
    with pytest.raises(InputError, match=r"line 3: ") as caught:
        read(tmp_path, name, f"{good}\n{line}\n")
    assert says in str(caught.value)
    assert name in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_bytes(b"a\tb\n\xff\tb\n")
    for name, says in (("p.tsv", "line 2: byte 1 is not UTF-8"), ("missing", "missing")):
        with pytest.raises(InputError, match=says):
            read_pairs(str(tmp_path / name), IDS)


def test_the_shared_products(shared_data: Path) -> None:
    ids = [f'"{shop}-{number}"'.encode() for shop in ("abt", "buy") for number in range(1200)]
    given, unknown = read_pairs(str(shared_data / "products.pairs.jsonl"), ids)
    assert (len(given.first), unknown) == (1076, 0)
