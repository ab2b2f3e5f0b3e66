"""An exception that nothing foresaw costs the document that raises it, and a bounded number of calls."""

from collections.abc import Mapping

import numpy as np
import pytest

from stream_lsh.documents import lines
from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.fields import Fields
from stream_lsh.errors import StoreError


class Work:
    """Raises on the documents of `bad`."""

    def __init__(self, bad: set[int], error: BaseException | None = None) -> None:
        self.bad, self.error = bad, error
        self.calls = self.documents = 0

    def __call__(self, begin: int, end: int, rejected: Mapping[int, Rejection]) -> Mapping[int, Rejection]:
        self.calls += 1
        self.documents += end - begin
        if found := self.bad & set(range(begin, end)) - rejected.keys():
            raise self.error or IndexError(f"{min(found)} \ud800")
        return rejected


@pytest.mark.parametrize("bad", [set[int](), {617}, {0, 1, 999}])
def test_documents_that_raise_are_rejected_after_few_calls(bad: set[int]) -> None:
    work = Work(bad)
    found = isolating(work, 1000)
    assert found.keys() == bad and {why.reason for why in found.values()} <= {"engine_error"}
    for i, why in found.items():
        assert why.detail.startswith("the engine raised IndexError in stream_lsh.documents.engine_errors, line ")
        assert why.detail.endswith(f": {i} ?")
    assert work.calls <= 1 + (len(bad) > 0) + 20 * len(bad)


def test_a_fault_of_every_document_costs_a_bounded_number_of_calls() -> None:
    work = Work(set(range(512)))
    assert len(isolating(work, 512)) == 512
    assert (work.calls, work.documents) == (1024, 512 * 11)


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "full"), StoreError("broken"), KeyboardInterrupt()])
def test_what_no_document_causes_is_raised(error: BaseException) -> None:
    work = Work({3}, error)
    with pytest.raises(type(error)):
        isolating(work, 8)
    assert work.calls == 1


def test_an_exception_that_remains_without_the_documents_is_raised() -> None:
    def work(begin: int, end: int, rejected: Mapping[int, Rejection]) -> None:
        raise RuntimeError("always")

    for n in (0, 5):
        with pytest.raises(RuntimeError):
            isolating(work, n)


def test_parsing_rejects_the_line_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [b'{"id":%d,"text":"text %d"}' % (i, i) for i in range(20)]
    ends = np.cumsum([len(line) for line in given])

    def parsed() -> Columns:
        known = {11: Rejection("too_large", "it is")}
        return lines.parse_lines(b"".join(given), np.concatenate(([0], ends[:-1])), ends, Fields(), rejected=known)

    whole, real = parsed(), lines.gather_texts

    def gather(buffer: np.ndarray, spans: np.ndarray, *rest: object) -> int:
        if any(b"text 13" in buffer[a:b].tobytes() for a, b in spans[:, 1].tolist()):
            raise OverflowError
        return real(buffer, spans, *rest)

    monkeypatch.setattr(lines, "gather_texts", gather)
    found = parsed()
    assert {i: why.reason for i, why in found.rejected.items()} == {11: "too_large", 13: "engine_error"}
    assert found.rejected[13].detail.startswith("the engine raised OverflowError in stream_lsh.documents.lines, line ")
    assert found.ids == [b"null" if i == 13 else id for i, id in enumerate(whole.ids)]
    assert found.texts == whole.texts.replace(b"text 13", b"")
