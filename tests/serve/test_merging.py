"""Events of several topics in one order, whoever reads them, from wherever, and however they come."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.serve.events import KINDS, Kind, Ring, Said
from stream_lsh.serve.pipeline.merging import BLOCK, Merge, tell

ALL = frozenset(KINDS)


def stream(seed: int, documents: int) -> list[list[Said]]:
    """Partitions of the outputs: two of verdicts, two of pairs, one of groups, one of alerts."""
    chance = random.Random(seed)
    lanes: list[list[Said]] = [[] for _ in range(6)]
    for number in range(documents):
        seq, partition = 7 * number, chance.randrange(2)
        lanes[partition].append((seq, "verdict", b"v%d" % seq))
        for i in range(chance.choice([0, 0, 1, 3])):
            lanes[2 + partition].append((seq, "pair", b"p%d,%d" % (seq, i)))
        if chance.random() < 0.3:
            lanes[4].append((seq, "group", b"g%d" % seq))
        if chance.random() < 0.05:
            lanes[5].append((seq, "alert", b"a%d" % seq))
    return lanes


def merged(lanes: list[list[Said]], seed: int, most: int) -> Ring:
    """The ring of somebody who reads these partitions in an order of his own."""
    chance, ring, merge = random.Random(seed), Ring(0, most), Merge(most)
    at = [0] * len(lanes)
    last = max(lane[-1][0] for lane in lanes if lane) + 1
    while any(place < len(lane) for place, lane in zip(at, lanes, strict=True)):
        before = chance.randrange(last + 1)
        for _ in range(chance.randrange(40)):
            number = chance.randrange(len(lanes))
            if at[number] < len(lanes[number]):
                seq, kind, data = lanes[number][at[number]]
                at[number] += 1
                merge.add(seq, kind, data)
        for number, lane in enumerate(lanes):  # all are read that far
            while at[number] < len(lane) and lane[at[number]][0] < before:
                seq, kind, data = lane[at[number]]
                at[number] += 1
                merge.add(seq, kind, data)
        before = max(before, ring.end[0])
        tell(ring, merge.take(before), merge.begin, before)
    tell(ring, merge.take(last), merge.begin, last)
    return ring


def all_of(ring: Ring) -> bytes:
    place, found = ring.begin, []
    while place != ring.end:
        text, place = ring.after(place, ALL)
        found.append(b"\n".join(line for line in text.split(b"\n\n") if b"event:" in line))
    return b"\n".join(found)


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_the_order_is_the_same_for_everybody(seed: int, documents: int) -> None:
    lanes = stream(seed, documents)
    one, other = merged(lanes, seed, 10**6), merged(lanes, seed + 1, 10**6)
    assert all_of(one) == all_of(other)
    wanted = sorted((item for lane in lanes for item in lane), key=lambda item: (item[0], KINDS.index(item[1])))
    assert [line.partition(b"data: ")[2] for line in all_of(one).splitlines() if line.startswith(b"data")] == [
        data for _, _, data in wanted
    ]
    kept = merged(lanes, seed, 50)
    assert all_of(one).endswith(all_of(kept))
    assert (kept.end == one.end and kept.begin[0] > 0) or len(wanted) <= 50 + 10


def test_a_later_life_goes_on_where_the_last_one_was() -> None:
    ring = Ring(0)
    first: list[Said] = [(seq, "verdict", b"%d" % seq) for seq in range(10)]
    tell(ring, first, 0, 10)
    more: list[Said] = [(seq, "verdict", b"%d" % seq) for seq in range(4, 20)]
    tell(ring, more, 4, 20)
    assert all_of(ring).count(b"event: verdict") == 20 and ring.begin == (0, 0) and ring.end == (20, 0)
    tell(ring, [(30, "verdict", b"30")], 25, 40)  # from 20 to 25 something is missing
    assert (ring.begin, ring.end) == ((25, 0), (31, 0))
    assert ring.after((20, 0), ALL)[0].startswith(b'event: gap\ndata: {"from":"20.0","to":"25.0"}')
    tell(ring, [(3, "verdict", b"3")], 0, 5)  # the topics were made anew
    assert (ring.begin, ring.end) == ((0, 0), (4, 0))


def test_blocks_do_not_part_a_document() -> None:
    ring, kind = Ring(0), "pair"
    said: list[Said] = [(seq, "verdict", b"v") for seq in range(BLOCK - 1)]
    said += [(BLOCK, _kind(kind), b"%d" % i) for i in range(5)] + [(BLOCK + 1, "verdict", b"w")]
    tell(ring, said, 0, BLOCK + 2)
    text, place = ring.after((BLOCK, 2), ALL)
    assert text.count(b"event: pair") == 3 and place >= (BLOCK + 1, 0)
    blocks = [(block.begin, block.end) for block in ring._blocks]
    assert all(one[1] == other[0] for one, other in pairwise(blocks))


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind == name)
