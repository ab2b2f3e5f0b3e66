"""What a run did, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stream_lsh.documents.times import moment, seconds_of
from stream_lsh.wording import count, duration, per_second, share, size

if TYPE_CHECKING:
    from stream_lsh.embedded.report import Alerted, Summary, WindowReport

REASONS = {
    "not_json": "not JSON",
    "not_csv": "not a row",
    "not_utf8": "not UTF-8",
    "missing_field": "field missing",
    "empty": "no text",
    "too_large": "too large",
    "bad_record": "broken record",
    "no_page": "no page",
    "id_reused": "id of another text",
    "engine_error": "engine error",
}


def summary_lines(
    summary: Summary, *, max_matches: int, dead_letters: str | None, pairs: bool = False, queried: bool = False
) -> Iterator[str]:
    """The summary of a run, line by line; counts of zero that say nothing are left out.

    pairs: they were asked for. queried: nothing was added, and there are no dead letters.
    """
    for name in summary.already_done:
        if name not in summary.unfinished:
            yield f"{name} was finished by an earlier run: nothing to add"
    if summary.again:
        yield f"the lines of {count(summary.again, 'document')} of earlier runs were written again"
    if summary.resumed_from:
        yield f"continued after {count(summary.resumed_from, 'document')} of an earlier run"
    if summary.documents or not summary.already_done:
        yield from _documents(summary, max_matches, pairs, "--top" if queried else "--max-matches")
        if not queried and summary.rejected:
            yield _rejected(summary, dead_letters)
    if summary.alerts is not None:
        yield from _alerts(summary.alerts)
    if summary.window is not None:
        yield from _window(summary.window)
    for name, left in summary.unfinished.items():
        are = "is" if left == 1 else "are"
        yield f"the last line of {name} has no end yet: its {count(left, 'byte')} {are} left for the next run"
    if queried:
        yield f"nothing was added to the index: {count(summary.index_documents, 'document')}"
    elif summary.folder is not None:
        space = f", {size(summary.index_bytes)}" if summary.index_bytes else ""
        yield f"index {summary.folder}: {count(summary.index_documents, 'document')}{space}"


def _documents(summary: Summary, max_matches: int, pairs: bool, option: str) -> Iterator[str]:
    rate = f" ({per_second(summary.documents / summary.seconds)})" if summary.seconds and summary.documents else ""
    yield f"{count(summary.documents, 'document')} in {duration(summary.seconds)}{rate}"
    rejected = sum(summary.rejected.values())
    rows = [
        ("unique", summary.unique, True),
        ("near-duplicate" if summary.near_duplicates == 1 else "near-duplicates", summary.near_duplicates, True),
        ("exact duplicate" if summary.exact_duplicates == 1 else "exact duplicates", summary.exact_duplicates, True),
        ("redelivered (same id, same text)", summary.redelivered, False),
        ("deleted", summary.deleted, False),
        ("outdated (older than the latest version)", summary.outdated, False),
        ("rejected" + _reasons(summary.rejected), rejected, False),
    ]
    width = max(len(f"{number:,}") for _, number, _ in rows)
    for text, number, always in rows:
        if number or always:
            part = f" {share(number, summary.documents):>6}" if summary.documents else ""
            yield f"  {number:>{width},}{part}  {text}"
    if summary.documents and summary.redelivered == summary.documents:
        yield "all of these documents were read before, from a pipe or another file: none is written again"
    if summary.replaced:
        yield f"{count(summary.replaced, 'document')} replaced an earlier version"
    with_kept = " with kept documents only (compare_with = kept)" if pairs and summary.compare_with == "kept" else ""
    yield f"{count(summary.pairs, 'pair')} of similar documents{with_kept}"
    if summary.truncated:
        have = "1 document has" if summary.truncated == 1 else f"{summary.truncated:,} documents have"
        most = count(max_matches, "match", "matches")
        yield f"{have} more than {most}, and only the best are reported; {option} 0 reports all"
    if summary.not_compared:
        have = "1 document was" if summary.not_compared == 1 else f"{summary.not_compared:,} documents were"
        yield (
            f"{have} not compared with every possible match (`not_compared` in the verdict): "
            "larger --max-bucket-rows and --max-candidates compare with more"
        )


def _window(window: WindowReport) -> Iterator[str]:
    if window.jumps:
        yield (
            f"stream time jumped by more than the window ({count(window.jumps, 'jump')}), and the documents before are "
            "forgotten: if event times were wrong, set stream time back with stream-lsh set-stream-time"
        )
    if window.stream_time >= 0:
        yield f"documents from {moment(window.stream_time - 1000 * seconds_of(window.window))} on are remembered"


def _alerts(of: Alerted) -> Iterator[str]:
    yield count(of.alerts, "alert")
    if of.forgotten:
        yield (
            f"the rules had no room for {count(of.forgotten, 'group or source', 'groups or sources')} of the index, "
            "and can alert late or twice: use a shorter `within` or `cooldown`"
        )


def _rejected(summary: Summary, dead_letters: str | None) -> str:
    if dead_letters is not None:
        return f"rejected documents are in {'standard output' if dead_letters == '-' else dead_letters}"
    if summary.folder is not None:
        return f"rejected documents are in {summary.folder}/dead-letters.jsonl"
    return "to keep rejected documents with the reason, give --dead-letters FILE or --index DIR"


def _reasons(rejected: dict[str, int]) -> str:
    if not rejected:
        return ""
    ordered = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    return ": " + ", ".join(f"{number:,} {REASONS.get(reason, reason.replace('_', ' '))}" for reason, number in ordered)
