"""Where `match` differs between `tf-idf` (`tf_idf`) and all other measures (`compare`)."""

from __future__ import annotations

from stream_lsh.hashing.kernels import far, njit
from stream_lsh.index.kernel.compare import begin, compare, is_similar
from stream_lsh.index.kernel.replace import representative_row_of
from stream_lsh.index.kernel.tf_idf import compare as compare_story
from stream_lsh.index.kernel.tf_idf import counted, weigh
from stream_lsh.index.kernel.tf_idf import is_similar as is_similar_story
from stream_lsh.index.kernel.work import CODE_AND_ROW, DONE, NOTHING, NUMBER, WORK


@njit
def prepare(i, work):  # type: ignore[no-untyped-def]
    """Compute keys and signature of document i if they depend on earlier documents. Returns DONE, or what is
    missing."""
    return weigh(i, work) if work.limits.stories else DONE


@njit
def matches_of(i, work):  # type: ignore[no-untyped-def]
    """Find the matches of a document. Returns DONE or what is missing; the row that it is certainly dropped for (with
    `compare_with = all`, the row of the same text in this segment); and the place of its leader among the rows met.
    Both may be -1."""
    if not work.limits.stories:
        return compare(i, work)
    begin(i, work.results.found, work)
    code, row = compare_story(i, work)
    return code, row, NOTHING


@far(CODE_AND_ROW(NUMBER, NUMBER, WORK))
def keeps_representative(i, old, work):  # type: ignore[no-untyped-def]
    """Whether document i, which matches nothing, is similar to the version that it replaces, and that version was a
    representative. Returns DONE or what is missing, and that version or -1. With several shards the resolution decides
    whether the version was a representative, and whether anything matches."""
    if not work.limits.late and representative_row_of(old, work) < 0:
        return DONE, NOTHING
    if work.limits.stories:
        return DONE, old if is_similar_story(old, work) else NOTHING
    return is_similar(i, old, work)


@njit
def stored(i, work):  # type: ignore[no-untyped-def]
    """Count document i, which was stored."""
    if work.limits.stories:
        counted(i, work)
