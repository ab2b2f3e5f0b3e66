"""The passes that erase ids of removed members from the store of the groups, without a broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.waiting import until

from stream_lsh.embedded.group_store import MEMBER, decoded, encoded, member_removal, member_removal_key, members_key
from stream_lsh.index.erasure.queue import places
from stream_lsh.index.store.rocksdb import Store, name_key
from stream_lsh.judging.groups import NO_ID
from stream_lsh.judging.verdicts import Judgement
from stream_lsh.kafka.groups import erasing as module
from stream_lsh.kafka.groups.erasing import Erasing
from stream_lsh.kafka.groups.store import TIME

KEY, NAMED, ERASED = member_removal_key(3, 5), member_removal(8, 0, b'"victim"'), member_removal(8, 0, NO_ID)
REMOVAL = cast(
    Judgement, SimpleNamespace(seqs=np.array([7, 8]), replaces=np.array([-1, 5]), left=np.array([-1, 3]))
)  # fmt: skip
AFTER, LAG = 100, 1000


def test_an_id_is_erased_when_it_is_due_and_its_entry_afterwards(tmp_path: Path) -> None:
    """A member that takes over before the entry is deleted repeats the pass. A record ends the segment of a pass."""
    store = Store(tmp_path / "db", sync=False)
    store.write({KEY: NAMED})

    def step(now: int) -> dict[bytes, Any]:
        changes = erasing.step(now)
        store.write(changes)
        return changes

    erasing = Erasing(store, AFTER, LAG, 50, stale=False)
    erasing.enter(REMOVAL, 50)
    store.write(erasing.take())
    (place,) = places(store)
    assert erasing.take() == step(50 + AFTER - 1) == {}
    assert step(50 + AFTER) == {KEY: ERASED}
    erasing.close()
    erasing = Erasing(store, AFTER, LAG, 150, stale=True)
    assert step(200) == {KEY: ERASED}
    assert step(200) == {}  # the store is rewritten
    until(lambda: step(200) == {name_key(place.name): None})
    assert list(places(store)) == [] and store.value(KEY) == ERASED
    assert step(200 + LAG - 1) == {} and step(200 + LAG) == {name_key(TIME): None} and step(200 + LAG) == {}
    erasing.close()
    store.close()


def test_ids_that_share_a_value_are_erased_together(tmp_path: Path) -> None:
    """They came in one round, and were removed by two frames. Versions without a value bound a step, too."""
    store, members, key = Store(tmp_path / "db", sync=False), np.zeros(2, MEMBER), members_key(3, 5)
    members["seq"], members["id"] = (5, 6), 4
    store.write({key: encoded(members, [b'"aa"', b'"bb"', b"", b""])})
    erasing = Erasing(store, AFTER, LAG, 50, stale=False)
    for at, seq in ((50, 5), (51, 6)):
        judgement = SimpleNamespace(seqs=np.array([seq + 10]), replaces=np.array([seq]), left=np.array([3]))
        erasing.enter(cast(Judgement, judgement), at)
        store.write(erasing.take())

    def done() -> bool:
        store.write(erasing.step(500))
        return not list(places(store))

    until(done)
    assert decoded(store.value(key) or b"", MEMBER, "id", "source")[1][:2] == [NO_ID, NO_ID]
    erasing.close()
    store.close()


def test_a_pass_is_bounded_and_the_next_one_follows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASS_ENTRIES", 2)
    monkeypatch.setattr(module, "STEP", 1)
    store, left = Store(tmp_path / "db", sync=False), list[int]()
    erasing = Erasing(store, AFTER, LAG, 0, stale=False)
    for second in range(5):
        erasing.enter(REMOVAL, second)
        store.write(erasing.take())

    def done() -> bool:
        store.write(erasing.step(500))
        left.append(len(list(places(store))))
        return not left[-1]

    until(done)
    assert sorted(set(left)) == [0, 1, 2, 3, 4, 5]
    erasing.close()
    store.close()
