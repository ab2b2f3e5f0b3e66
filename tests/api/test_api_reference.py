"""The reference of the Python API: its examples run, and the page has all that is exported."""

import doctest
import inspect
from pathlib import Path

import pytest

import stream_lsh
from stream_lsh import Deduplicator
from stream_lsh.api import questions
from stream_lsh.documents import document

ROOT = Path(__file__).parents[2]


def test_reference_has_all_that_is_exported() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    for name in set(stream_lsh.__all__) - {"Kind", "Signer"}:  # the one is in Verdict, the other for batches of bytes
        assert f"## {name}\n" in page or f"| `{name}` |" in page, name
    for name, value in inspect.getmembers(Deduplicator):
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert f"### Deduplicator: {name}\n" in page, name


@pytest.mark.parametrize("module", [inspect.getmodule(Deduplicator), questions, document], ids=lambda m: m.__name__)
def test_examples_of_docstrings_run(module: object) -> None:
    names = {name: getattr(stream_lsh, name) for name in ("Deduplicator", "Document", "Settings")}
    tests = [test for test in doctest.DocTestFinder().find(module, extraglobs=names) if test.examples]
    assert tests
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
