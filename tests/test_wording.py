"""Figures in words."""

from hypothesis import given
from hypothesis import strategies as st

from stream_lsh.wording import count, duration, few, odds, per_second, percent, share, size

SIZES = {0: "0 B", 999: "999 B", 1500: "1.5 kB", 999_600: "1 MB", 1_234_567: "1.23 MB", 7 * 10**9: "7 GB"}
SIZES |= {5 * 10**12: "5 TB", 5 * 10**15: "5,000 TB"}
DURATIONS = {0: "0 s", 0.35: "0.35 s", 3.44: "3.4 s", 9.99: "10 s", 59.4: "59 s", 59.6: "1 min 00 s"}
PERCENT = {0: "0 %", 1: "100 %", 0.5: "50 %", 0.042: "4.2 %", 0.00018: "0.018 %", 0.99921: "99.921 %"}
PERCENT |= {1e-9: "< 0.001 %", 1 - 1e-9: "> 99.999 %", 0.9943: "99.43 %"}
DURATIONS |= {200: "3 min 20 s", 3600: "1 h 00 min", 7500: "2 h 05 min", 86_400 * 3 + 14_400: "3 d 4 h"}


def test_figures() -> None:
    assert [size(octets) for octets in SIZES] == list(SIZES.values())
    assert [duration(seconds) for seconds in DURATIONS] == list(DURATIONS.values())
    assert [count(n, "match", "matches") for n in (0, 1, 1234)] == ["0 matches", "1 match", "1,234 matches"]
    assert [percent(part) for part in PERCENT] == list(PERCENT.values())
    assert [few(n) for n in (0, 0.0001, 0.0123, 3.21, 42.0, 1234.5)] == ["0", "< 0.001", "0.012", "3.2", "42", "1,234"]
    assert [odds(*n) for n in ((0, 5), (1, 2000), (1, 2), (0, 0))] == ["none", "1 in 2,000", "50 %", "none"]
    assert (count(0, "document"), count(1234)) == ("0 documents", "1,234")
    assert (per_second(38_211.4), per_second(3.25)) == ("38,211/s", "3.2/s")


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_all_reads_100_percent_and_less_than_all_does_not(whole: int, part: int) -> None:
    part = min(part, whole)
    assert (share(part, whole) == "100 %") == (part == whole)
    assert (share(part, whole) == "0 %") == (part == 0)
