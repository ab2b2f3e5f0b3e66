"""Where a signer begins, by what is committed, sequenced and still there."""

from dataclasses import replace

import pytest
from aiokafka.structs import ConsumerRecord, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.errors import StoreError
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.position import Beginning, Last, Note, another_topic, beginning, noted, recovered
from stream_lsh.wire.frames import CONTINUES, JUMPS, STARTS

PRINT = KafkaSettings().fingerprint
LAST = Last(9, 1000, 77)
READ = Note(PRINT, "json", "murmur2", LAST)
BEGUN = Note(PRINT, "json", "murmur2", begun=True)
DELETED = {"accept_deleted_records": "documents:3:10"}
LOST = {"accept_lost_position": "documents:3:12"}


def record(offset: int = 9, timestamp: int = 1000, key: bytes | None = b"k", value: bytes | None = b"v") -> Last:
    given = ("t", 0, offset, timestamp, 0, key, value, None, 0, 0, ())
    return Last.of(ConsumerRecord(*given))


def begin(
    committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int], **losses: str
) -> Beginning:
    return beginning(TopicPartition("documents", 3), committed, accepted, bounds, KafkaSettings(**losses))


@given(
    st.sampled_from(["", PRINT]), st.sampled_from([None, "json", "text"]),
    st.sampled_from([None, "murmur2", "crc32"]), st.booleans(),
    st.none() | st.builds(Last, st.integers(0, 2**62), st.integers(-1, 2**62), st.integers(0, 2**32 - 1)),
)  # fmt: skip
def test_a_note_is_read_back(
    fingerprint: str, format: str | None, partitioner: str | None, begun: bool, last: Last | None
) -> None:
    note = Note(fingerprint, format, partitioner, last, begun)
    assert Note.of(note.metadata(), "group") == note
    assert len(note.metadata()) < 200  # brokers take 4096


WITHOUT_PARTITIONER = f'{{"version":2,"fingerprint":"{PRINT}","format":"json"}}'


@pytest.mark.parametrize("text", ["{", "{}", WITHOUT_PARTITIONER])
def test_what_is_no_note(text: str) -> None:
    with pytest.raises(StoreError, match=r"group news\.sign are not from signers .*--to-current --execute"):
        Note.of(text, "news.sign")
    with pytest.raises(StoreError, match=r"news\.sign were written by version 3, this is 2: upgrade this worker"):
        Note.of('{"version":3,"what":1}', "news.sign")


def test_a_documents_topic_keeps_its_number() -> None:
    second = Note(PRINT, "json", "murmur2", number=1)
    assert Note.of(second.metadata(), "group") == second
    second.check_number(1, "crawl")
    with pytest.raises(StoreError, match="crawl is number 2 of the documents topics so far, and number 1 here"):
        second.check_number(0, "crawl")


@pytest.mark.parametrize("text", ["", PRINT, "1234567890123456", "12345678e0123456"])
def test_position_of_an_earlier_revision_or_set_by_hand_continues(text: str) -> None:
    settings = KafkaSettings()
    found = noted(Topics.of(settings), {"stream-lsh.documents": {3: (10, text)}, "other": {0: (1, "")}})
    assert found == {3: (10, Note(text, None, None, number=None))}
    found[3][1].check_number(1, "crawl")
    assert begin(found[3], 10, (0, 20)) == Beginning(10)


def test_recovered_position_needs_a_record_to_compare_or_nothing_sequenced_since() -> None:
    records = {
        0: (10, READ),
        1: (10, READ),
        2: (0, BEGUN),
        3: (0, BEGUN),
        4: (0, BEGUN),
        5: (10, replace(READ, paused=7)),
    }
    assert recovered(records, {0: 10, 1: 12, 2: 5, 3: 0}) == {
        0: (10, READ), 1: (12, READ), 3: (0, BEGUN), 4: (0, BEGUN), 5: (10, READ),
    }  # fmt: skip


def test_other_settings_are_refused() -> None:
    READ.check(PRINT, "json", "murmur2", "documents")
    Note("", None, None).check(PRINT, "text", "murmur2", "documents")
    Note(PRINT, None, None).check(PRINT, "text", "murmur2", "documents")
    with pytest.raises(StoreError, match=r"other settings so far \(fingerprint .*reindex"):
        READ.check("0" * 16, "json", "murmur2", "documents")
    with pytest.raises(StoreError, match=r"document_format = json so far, here it is text.*reindex"):
        READ.check(PRINT, "text", "murmur2", "documents")
    other = Note(PRINT, "json", "crc32")
    other.check(PRINT, "json", "crc32", "documents")
    for note, there, here in ((other, "crc32", "murmur2"), (READ, "murmur2", "crc32")):
        with pytest.raises(StoreError, match=f"partitioner = {there}, and here it is {here}.*Set partitioner"):
            note.check(PRINT, "json", here, "documents")


def test_what_distinguishes_a_record_from_another() -> None:
    others = [record(8), record(timestamp=1001), record(key=b"l"), record(value=b"w"), record(key=None, value=b"kv")]
    assert record() == record() and record() not in others


@pytest.mark.parametrize(
    ("committed", "accepted", "bounds", "losses", "expected"),
    [
        (None, None, (4, 20), {}, Beginning(4, STARTS, new=True)),
        ((4, BEGUN), None, (4, 20), {}, Beginning(4, STARTS)),
        ((4, BEGUN), 15, (4, 20), {}, Beginning(15)),
        ((10, READ), 15, (0, 20), {}, Beginning(10, CONTINUES, LAST, again=True)),
        ((10, READ), None, (0, 10), {}, Beginning(10, CONTINUES, LAST, again=True)),
        ((4, READ), 10, (0, 20), {}, Beginning(4)),  # moved back, with its note
        ((12, READ), 12, (9, 12), {}, Beginning(12, CONTINUES, LAST, again=True)),
        ((12, READ), 12, (10, 12), {}, Beginning(12, CONTINUES, LAST)),  # retention has taken it
        ((10, Note(PRINT, None, None)), 10, (0, 20), {}, Beginning(10)),
        (None, 12, (0, 20), LOST, Beginning(12)),
    ],
)
def test_where_it_begins(
    committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int], losses: dict[str, str],
    expected: Beginning,
) -> None:  # fmt: skip
    assert begin(committed, accepted, bounds, **losses) == expected


def test_where_it_begins_after_a_loss_that_is_accepted() -> None:
    found = begin((10, READ), 10, (15, 20), **DELETED)
    assert (found.position, found.first, found.last) == (15, JUMPS, None) and "without 5 documents" in found.warning
    found = begin((10, BEGUN), None, (15, 20), **DELETED)
    assert (found.position, found.first) == (15, JUMPS)


@pytest.mark.parametrize(
    ("committed", "accepted", "bounds", "words"),
    [
        (
            None,
            12,
            (0, 20),
            r"partition 3, has no committed position.*up to offset 12.*lost-position documents:3:12",
        ),
        (None, 0, (0, 20), r"has no committed position"),
        (
            (10, READ),
            10,
            (15, 20),
            r"5 documents from offset 10 on were deleted.*deleted-records documents:3:10",
        ),
        ((4, BEGUN), None, (5, 20), r"1 documents from offset 4 on were deleted"),
        ((10, READ), 10, (0, 9), r"ends at offset 9, but has been read up to 10.*another topic_prefix"),
    ],
)
def test_positions_that_cannot_be_resumed(
    committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int], words: str
) -> None:
    with pytest.raises(StoreError, match=words):
        begin(committed, accepted, bounds)


def test_a_position_behind_the_end_is_no_loss_to_accept() -> None:
    with pytest.raises(StoreError, match="ends at offset 9"):
        begin((10, READ), 10, (0, 9), **DELETED)


def test_a_topic_that_was_read_stays_a_documents_topic() -> None:
    one = Topics.of(KafkaSettings(documents_topic="a", topic_prefix="news"))
    two = Topics.of(KafkaSettings(documents={"a": {}, "b": {}}, topic_prefix="news"))
    for read in {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}:
        assert another_topic(two, read) is None
    assert another_topic(one, {"a": 1}) is None
    assert "news has read b so far, and documents_topic is a now" in str(another_topic(one, {"b": 2}))
    assert "news has read a, b so far, and the documents topics are a now: keep a table" in str(
        another_topic(one, {"a": 1, "b": 2})
    )
    assert "news has read a, c so far, and the documents topics are a, b now" in str(
        another_topic(two, {"c": 1, "a": 2})
    )


@pytest.mark.parametrize(
    ("committed", "accepted", "bounds", "losses"),
    [
        ((11, READ), 11, (15, 20), DELETED),
        ((10, READ), 10, (15, 20), {"accept_deleted_records": "others:3:10"}),
        (None, 13, (0, 20), LOST),
        (None, 12, (0, 20), {"accept_deleted_records": "documents:3:12"}),
    ],
)
def test_acceptance_of_another_loss_has_no_effect(
    committed: tuple[int, Note] | None, accepted: int | None, bounds: tuple[int, int], losses: dict[str, str]
) -> None:
    with pytest.raises(StoreError):
        begin(committed, accepted, bounds, **losses)
