"""Figures in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.wording import count, duration, per_second, share, size


def test_counts() -> None:
    assert count(1, "document") == "1 document"
    assert count(1234, "document") == "1,234 documents"
    assert count(0, "match", "matches") == "0 matches"
    assert count(1234) == "1,234"


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_600, "1 MB"), (1_234_567, "1.23 MB"), (7 * 10**9, "7 GB"),
     (5 * 10**12, "5 TB"), (5 * 10**15, "5,000 TB")],
)  # fmt: skip
def test_sizes(octets: int, text: str) -> None:
    assert size(octets) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.35, "0.35 s"), (3.44, "3.4 s"), (9.99, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"),
     (200, "3 min 20 s"), (3600, "1 h 00 min"), (7500, "2 h 05 min"), (86_400 * 3 + 14_400, "3 d 4 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates() -> None:
    assert per_second(38_211.4) == "38,211/s"
    assert per_second(3.25) == "3.2/s"


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_all_reads_100_percent_and_less_than_all_does_not(whole: int, part: int) -> None:
    part = min(part, whole)
    assert (share(part, whole) == "100 %") == (part == whole)
    assert (share(part, whole) == "0 %") == (part == 0)
