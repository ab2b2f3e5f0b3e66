"""The two lower cases that depend on more than one character: U+0130, which becomes two characters, and the final
sigma.

Both are rare. They are rewritten before the main loop, which then needs neither context nor extra room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.utf8 import decode
from stream_lsh.text.unicode import CASE_IGNORABLE, CASED, record_of, unicode_data


@njit(allocates=True)
def _rewrite(text, ends, rare, pages, records, flags, out, out_ends):  # type: ignore[no-untyped-def]
    write = 0
    read = 0
    for document in range(ends.shape[0]):
        end = ends[document]
        if not rare[document]:
            out[write : write + end - read] = text[read:end]
            write += end - read
            read = end
        cased_before = False
        sigma = -1  # place of a sigma whose form depends on the next characters
        while read < end:
            point, size = decode(text, read, end)
            flag = flags[record_of(point, pages, records)]
            if not flag & CASE_IGNORABLE:
                if sigma >= 0:
                    out[sigma] = 0x83 if flag & CASED else 0x82
                    sigma = -1
                if point == 0x3A3:
                    out[write] = 0xCF
                    out[write + 1] = 0x83
                    if cased_before:
                        sigma = write + 1
                    write += 2
                elif point == 0x130:
                    out[write] = 0x69
                    out[write + 1] = 0xCC
                    out[write + 2] = 0x87
                    write += 3
                cased_before = (flag & CASED) != 0
            if point != 0x3A3 and point != 0x130:
                for i in range(read, read + size):
                    out[write] = text[i]
                    write += 1
            read += size
        if sigma >= 0:
            out[sigma] = 0x82
        out_ends[document] = write
    return write


def rewrite_rare(
    texts: NDArray[np.uint8], ends: NDArray[np.int64], rare: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All U+0130 as "i" and U+0307, and all capital sigmas in lower case, as `str.lower` writes them.

    Args:
        texts: the documents in UTF-8, concatenated.
        ends: where each ends.
        rare: 0 where a document has neither; empty if none has.

    Returns:
        The new texts and ends; the same arrays if there is nothing to do.
    """
    if not len(rare) or not rare.any():
        return texts, ends
    data = unicode_data()
    out = np.empty(len(texts) + len(texts) // 2 + 3, dtype=np.uint8)
    out_ends = np.empty_like(ends)
    size = _rewrite(texts, ends, rare, data.pages, data.records, data.flags, out, out_ends)
    out = out[:size]
    out.flags.writeable = False  # kernels are compiled for read-only arrays, which `bytes` give
    return out, out_ends
