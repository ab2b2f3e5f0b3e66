"""The story of the demo that spreads, is corrected and withdrawn: the same whatever the seed is, but for its words."""

import json
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from stream_lsh.demo.spread import CORRECTED, LATE, PRINTED, TWICE, Spreading, lines, make_spread, run_spread
from stream_lsh.demo.timeline import rows, timeline
from stream_lsh.settings.model import Settings

SETTINGS = Settings.model_validate({"text_field": ("title", "text")})
COPIES = PRINTED + TWICE + LATE


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spreading, Path]:
    folder = tmp_path_factory.mktemp("demo") / "spread"
    return run_spread(folder, 1, SETTINGS), folder


def test_the_feed_follows_from_the_seed() -> None:
    assert make_spread(3) == make_spread(3)
    assert make_spread(3) != make_spread(4)
    entries = make_spread(3)
    assert [entry.ts for entry in entries] == sorted(entry.ts for entry in entries)
    assert [json.loads(line) for line in lines(entries)] == [entry.record for entry in entries]


@pytest.mark.parametrize("seed", [1, 2, 3, 20])
def test_what_happens_is_what_was_meant(tmp_path: Path, seed: int) -> None:
    """One group: all copies join it, the corrected ones stay, and who printed it first is left."""
    spreading = run_spread(tmp_path / "spread", seed, SETTINGS)
    assert Counter(event["event"] for event in spreading.events) == {
        "created": 1, "joined": COPIES - 1, "updated": 1 + CORRECTED, "representative_changed": 1, "left": COPIES - 1,
    }  # fmt: skip
    assert {event["group"] for event in spreading.events} == {0}
    last = spreading.events[-1]
    assert (last["total_members"], last["live_members"], last["sources"]) == (1 + COPIES, 1, 1 + PRINTED + LATE)
    assert last["representative"]["id"] == spreading.entries[1].record["id"]
    (alert,) = spreading.alerts
    assert (alert["rule"], alert["members"]) == ("spreads", 10)


def test_the_table_tells_it(found: tuple[Spreading, Path]) -> None:
    reported = [(row.papers, row.last.what, row.event.get("event")) for row in rows(found[0])]
    early = reported.pop(2)[0]
    assert reported == [
        (1, "write", None), (1, "print", "created"), (reported[2][0], "print", "joined"), (1, "correct", "updated"),
        (LATE, "print", "joined"), (CORRECTED, "correct", "updated"), (1, "withdraw", "representative_changed"),
        (PRINTED + LATE - 1, "withdraw", "left"),
    ]  # fmt: skip
    assert [row.alert is not None for row in rows(found[0])].index(True) == 2
    assert early == 8  # the first member and the first copy were there before


@pytest.mark.parametrize("width", [40, 80, 160])
def test_it_fits_every_width(found: tuple[Spreading, Path], width: int) -> None:
    output = StringIO()
    Console(file=output, width=width, highlight=False).print(timeline(found[0], width, 84))
    assert all(cell_len(line) <= width for line in output.getvalue().splitlines())
    if width > 80:
        assert "nordwire withdraws it" in output.getvalue()
        assert "alert: spreads" in output.getvalue() and "10 members of 10 sources within" in output.getvalue()
        assert "29 sources, 1 origin." in output.getvalue()
