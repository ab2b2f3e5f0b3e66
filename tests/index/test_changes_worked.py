"""What updates and deletions mean, as worked histories on each step of which index and model agree."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.feeds import SECOND, START
from support.indexes import SURE, UNIQUE, opened, verdicts_of
from support.models.forgetting import Verdict, model_of

from stream_lsh.documents.document import Document
from stream_lsh.index.index import Index
from stream_lsh.settings.model import Settings

BASE, NEAR, NEARER, OTHER = "a b c d e f", "a b c d e g", "a b c d e h", "u v w x y z"
half = pytest.mark.parametrize("feed", [{"threshold": 0.5}], indirect=True)


class Feed:
    """Documents and deletions, one after the other; times are in seconds."""

    def __init__(self, index: Index) -> None:
        self._index, self._model, self._seq = index, model_of(index.settings), -1

    def says(self, id: str, text: str, time: int | None = None) -> Verdict:
        return self._step(Document(id, text, time=None if time is None else START + SECOND * time))

    def deletes(self, id: str, time: int | None = None) -> Verdict:
        return self._step(Document(id, time=None if time is None else START + SECOND * time, deleted=True))

    def _step(self, document: Document) -> Verdict:
        self._seq += 1
        (found,) = verdicts_of(self._index, [document], self._seq)
        given = self._seq, str(document.id)
        judge, delete = self._model.judge, self._model.delete
        assert found == (
            delete(*given, document.time) if document.deleted else judge(*given, document.text or "", document.time)
        )
        return found


@pytest.fixture
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    """With a threshold of 0.6 and updates, unless the test says something else."""
    settings = {**SURE, **UNIQUE, "threshold": 0.6, "on_conflict": "update", **getattr(request, "param", {})}
    with opened(Settings(**settings), tmp_path) as index:
        yield Feed(index)


def test_an_update_is_judged_with_its_old_version_invisible(feed: Feed) -> None:
    feed.says("a", BASE)
    verdict = feed.says("a", NEAR)
    assert (verdict.kind, verdict.duplicate_of, verdict.replaces) == ("unique", None, 0)
    assert feed.says("b", BASE).duplicate_of == "a"  # by the new version
    assert feed.says("b", BASE).kind == "redelivered"


def test_a_kept_one_that_becomes_another_leaves_a_representative(feed: Feed) -> None:
    feed.says("a", BASE)
    feed.says("b", NEAR)
    feed.says("c", NEARER)
    verdict = feed.says("a", OTHER)
    assert (verdict.kind, verdict.group, verdict.replaces, verdict.new_representative) == ("unique", 3, 0, ("b", 1))
    # The others stay dropped, whatever they are like to the new representative; who comes now is compared with it, in
    # the same group. What they were dropped for is not named again.
    assert feed.says("c", NEARER)[:5] == ("redelivered", "near_duplicate", None, None, 0)
    assert feed.says("d", NEAR)[:5] == ("exact_duplicate", None, "b", 1.0, 0)
    assert feed.says("e", OTHER)[:5] == ("exact_duplicate", None, "a", 1.0, 3)


@half
def test_an_update_that_does_not_stay_is_a_deletion_and_then_a_new_document(feed: Feed) -> None:
    """So it is compared with the new representative of its old version."""
    feed.says("a", "a b c d")
    feed.says("h", "c d a e f")
    verdict = feed.says("a", "c d e f x")
    assert verdict == Verdict("near_duplicate", None, "h", 4 / 6, 0, (("h", 1, 4 / 6),), 0, ("h", 1))
    assert feed.deletes("h").new_representative == ("a", 2)


def test_what_is_not_there_can_be_deleted(feed: Feed) -> None:
    assert feed.deletes("a") == feed.deletes("a", 5) == Verdict("deleted")
    assert feed.says("a", BASE, 4).kind == "outdated"
    assert feed.says("a", BASE, 5).kind == "unique"


def test_a_deletion_takes_the_version_that_it_met_and_all_before(feed: Feed) -> None:
    feed.says("a", BASE, 5)
    assert feed.deletes("a", 4).kind == "outdated"
    assert feed.deletes("a").kind == "deleted"  # without a time of its own
    assert feed.says("a", BASE, 5).kind == "outdated"
    assert feed.says("a", BASE, 6).kind == "unique"
    assert feed.deletes("a", 6).kind == "deleted"
    assert feed.deletes("a", 3).kind == "deleted"  # there is nothing that it could be older than
    assert feed.says("a", NEAR, 6).kind == "outdated"
    assert feed.says("a", NEAR).kind == "unique"  # no time is never older
    feed.deletes("a")
    assert feed.says("a", BASE, 1).kind == "unique"  # nor is anything older than what has none


def test_what_is_older_than_its_id_s_newest_version_is_outdated(feed: Feed) -> None:
    feed.says("a", BASE, 5)
    assert feed.says("a", NEAR, 4) == Verdict("outdated")
    assert feed.says("a", BASE, 4).kind == "redelivered"
    assert feed.says("a", NEAR, 5).replaces == 0
    assert feed.says("a", BASE, 6).replaces == 3
    assert feed.says("a", NEAR).replaces == 4
    assert feed.says("a", BASE, 1).replaces == 5
    assert feed.says("a", " ", 9) == Verdict("rejected")
    assert feed.says("a", BASE).kind == "redelivered"


@pytest.mark.parametrize("feed", [{"on_conflict": "reject"}], indirect=True)
def test_without_updates_another_text_is_rejected_but_the_id_can_be_deleted(feed: Feed) -> None:
    feed.says("a", BASE, 5)
    assert feed.says("a", NEAR, 6) == feed.says("a", NEAR, 4) == Verdict("rejected")
    assert feed.deletes("a", 6).replaces == 0
    assert feed.says("a", NEAR, 5).kind == "outdated"
    assert feed.says("a", NEAR, 6).kind == "unique"


@pytest.mark.parametrize("feed", [{"window": "10s"}], indirect=True)
def test_a_window_forgets_versions_deletions_and_representatives(feed: Feed) -> None:
    for id in ("first", "a"):
        feed.says(id, BASE, 100)
    for _ in range(3):
        feed.says("b", NEAR, 108)
    assert feed.deletes("first").new_representative == ("a", 1)
    for _ in range(9):
        feed.says("clock", "tick", 111)
    # `a` stands for the group but is not seen any more: expiry needs no representative, and its id is new.
    assert feed.says("c", NEAR, 111).kind == "unique"
    assert feed.deletes("a", 111) == Verdict("deleted")
    assert feed.says("first", BASE, 100).kind == "outdated"  # the deletion is remembered as long as the window
    for _ in range(20):
        feed.says("clock", "tick", 130)
    assert feed.says("first", BASE, 100).kind == "unique"
