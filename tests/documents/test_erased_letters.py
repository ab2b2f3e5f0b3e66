"""Dead letters of ids that were deleted are written over where they stand; all others stay to the byte."""

import json
from pathlib import Path

import pytest

from stream_lsh.documents.dead_letters import dead_letter
from stream_lsh.documents.erased_letters import ERASED_LETTER, erase_letters


def letter(raw: bytes, reason: str = "bad_time", line: int = 1, size: int | None = None) -> bytes:
    return dead_letter(reason, "why", "feed.jsonl", line, 0, raw, size)


OF_A = [
    letter(b'{"id": "a", "text": "never again", "ts": "?"}'),
    letter(b'{"text": "escaped", "id": "\\u0061"}', "missing_field"),
    letter(b'{"id": "a", "text": "cut off', "not_json"),
    letter(b'{"id": "a", "text": "\xff"}', "not_utf8"),
    letter(b'{"id": "a", "text": "' + b"x" * 99, "too_large", size=10**9),
]
OF_7 = [letter(b'{"id": 7, "text": "seven", "ts": "?"}'), letter(b'{"id": 7, "text": "cut', "not_json")]
OTHERS = [
    letter(b'{"id": "b", "text": "a", "ts": "?", "answers": "a", "at": 7}'),
    letter(b'{"id": "ab", "text": "cut a x7', "not_json"),
    letter(b'{"id": "77", "n": 77, "text": "cut', "not_json"),
    letter(b"[]", "not_json"),
]


def test_letters_of_some_ids(tmp_path: Path) -> None:
    file = tmp_path / "letters"
    lines = [OTHERS[0], *OF_A, OTHERS[1], OTHERS[2], *OF_7, OTHERS[3]]
    file.write_bytes(b"".join(lines) + OF_A[0][:30])
    erase_letters(file, {b'"a"', b"7"}, "id")
    after = file.read_bytes().splitlines(keepends=True)
    assert [len(line) for line in after] == [*map(len, lines), 30]
    assert [one for one, other in zip(after, lines, strict=False) if one == other] == OTHERS
    gone = [line for line, before in zip(after, lines, strict=False) if line != before]
    assert {json.dumps(json.loads(line)) for line in gone} == {'{"reason": "erased"}'} and len(gone) == 7
    erase_letters(file, {b'"b"'}, "id")
    assert file.read_bytes().count(ERASED_LETTER) == 8


def test_one_that_a_power_cut_has_left_half_erased(tmp_path: Path) -> None:
    file = tmp_path / "letters"
    file.write_bytes(ERASED_LETTER + OF_A[0][len(ERASED_LETTER) :] + OTHERS[0])
    erase_letters(file, {b'"else"'}, "id")
    assert file.read_bytes() == ERASED_LETTER.ljust(len(OF_A[0]) - 1) + b"\n" + OTHERS[0]


@pytest.mark.parametrize(("id_field", "id"), [("meta.id", b'"a"'), ("@line", b'"feed.jsonl:3"')])
def test_places_of_ids(tmp_path: Path, id_field: str, id: bytes) -> None:
    file = tmp_path / "letters"
    other, mine = (letter(b'{"id": "x", "meta": {"id": "%b"}}' % name, line=n) for name, n in ((b"b", 2), (b"a", 3)))
    file.write_bytes(other + mine)
    erase_letters(file, {id}, id_field)
    assert file.read_bytes() == other + ERASED_LETTER.ljust(len(mine) - 1) + b"\n"


def test_there_are_none(tmp_path: Path) -> None:
    erase_letters(tmp_path / "letters", {b'"a"'}, "id")
    assert not list(tmp_path.iterdir())
