"""Histories as hypothesis draws them: few ids and words, so that everything happens to each of them."""

from hypothesis import strategies as st

from stream_lsh.documents.document import Document
from stream_lsh.documents.times import LAST_TIME
from support.feeds import SECOND, START

_seconds = st.sampled_from((0, 0, 1, 5, 5, 20)) | st.sampled_from((100, 1000, 100_000, -20, -500))
_times = st.tuples(_seconds, st.sampled_from(("", "", "", "", "", "", "missing", "absurd", "ancient")))
_texts = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5).map(" ".join) | st.just("")
_steps = st.tuples(
    st.integers(0, 15), _texts, _times, st.sampled_from(("", "", "", "", "", "", "deleted", "timeless deletion"))
)


@st.composite
def short_histories(draw: st.DrawFn) -> list[Document]:
    """Up to 150 documents and deletions of few ids, whose event times go on in steps of seconds; the first has one."""
    out, now = [Document("begin", "to begin with", time=START)], START
    changing = draw(st.booleans())
    for id, text, (step, what), action in draw(st.lists(_steps, min_size=1, max_size=150)):
        now = max(START - 10**9, now + step * SECOND)
        time = {"missing": None, "absurd": LAST_TIME - 1, "ancient": 0}.get(what, now)
        if changing and action:
            out.append(Document(str(id), time=time if action == "deleted" else None, deleted=True))
        else:
            out.append(Document(str(id), text, time=time))
    return out
