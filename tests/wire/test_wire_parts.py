"""Records in parts: below the limit nothing changes, and only the parts of one record are put together."""

import pytest
from support.kafka.replica_play import settings_of

from stream_lsh.errors import FormatError
from stream_lsh.wire.parts import Adjacent, Part, Place, cut

SETTINGS = settings_of()
PLACE = Place(2, 7, 5)
RECORD = bytes(range(256)) * 5


def whole(records: list[bytes], first: int = 10) -> list[tuple[int, bytes]]:
    adjacent = Adjacent(SETTINGS)
    return [found for at, data in enumerate(records, first) if (found := adjacent.add(at, data)) is not None]


def test_a_record_is_cut_only_if_it_is_too_large() -> None:
    assert cut(RECORD, PLACE, len(RECORD), SETTINGS) == [RECORD]
    parts = cut(RECORD, PLACE, len(RECORD) - 1, SETTINGS)
    assert len(parts) == 2 and Part.decode(parts[1], SETTINGS).place == PLACE
    assert whole([b"before", *parts, b"after"]) == [(10, b"before"), (11, RECORD), (13, b"after")]


@pytest.mark.parametrize("most", range(256, 1300, 9))
def test_parts_are_within_the_limit_and_none_is_empty(most: int) -> None:
    parts = cut(RECORD, PLACE, most, SETTINGS)
    assert max(map(len, parts)) <= most and whole(parts) == [(10, RECORD)]
    assert len(parts) == 1 or all(len(Part.decode(part, SETTINGS).data) for part in parts)


def test_parts_with_something_between_them_count_for_nothing() -> None:
    mine, other = cut(RECORD, PLACE, 600, SETTINGS), cut(RECORD[::-1], PLACE, 600, SETTINGS)
    assert len(mine) == 3
    for records in (mine[1:], mine[:2], mine[::-1], [mine[0], other[1], mine[2]], [*mine[:2], b"", mine[2]]):
        assert [data for _, data in whole(records)] == [data for data in records if data == b""]
    assert whole([*other[:2], *mine, *other[2:], *other]) == [(12, RECORD), (16, RECORD[::-1])]
    begun = Adjacent(SETTINGS)
    begun.add(4, mine[0])
    assert begun.begin == 4 and begun.add(6, mine[1]) is None and begun.begin is None


def test_damaged_parts_are_named() -> None:
    first, last = cut(RECORD, PLACE, 1000, SETTINGS)
    damaged = first[:-8] + b"damaged!"
    with pytest.raises(FormatError, match="the parts of a record are damaged"):
        whole([damaged, last])
    with pytest.raises(FormatError, match="a part was made with other settings"):
        Part.decode(first, settings_of(threshold=0.6))
