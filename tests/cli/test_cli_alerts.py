"""`stream-lsh dedup --alerts` and `stream-lsh alerts`."""

from pathlib import Path

import pytest
from support.commands import run
from support.json_lines import read_lines, write_lines

from stream_lsh.alerts.rule_state import Alert
from stream_lsh.alerts.rules import read_rules
from stream_lsh.cli.alerts import sentence
from stream_lsh.embedded.rehearsal import Rehearsed

TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"
RULES = """
[[rule]]
name = "spreads"
kind = "spread"
members = 3
sources = 3
within = "6h"

[[rule]]
name = "copyist"
kind = "share"
above = 0.4
documents = 2
within = "1d"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose rules have told two alerts, the latter at a document that was kept."""
    folder = tmp_path_factory.mktemp("alerts")
    rows = [("b0", TEXT, "radio"), ("b1", TEXT, "tv"), ("b2", TEXT, "herald"), ("c0", TEXT[::-1], "tv")]
    documents = [
        {"id": id, "text": text, "outlet": outlet, "at": 1_700_000_000 + 3600 * n}
        for n, (id, text, outlet) in enumerate(rows)
    ]
    write_lines(folder / "feed", documents)
    (folder / "rules.toml").write_text(RULES)
    done = run(
        "dedup", folder / "feed", "--index", folder / "index", "--alerts", folder / "alerts.jsonl",
        "--rules", folder / "rules.toml", "--source-field", "outlet", "--time-field", "at", "--unique", "/dev/null",
    )  # fmt: skip
    assert "2 alerts" in done.stderr
    return folder


def test_a_test_shows_the_same_alerts(folder: Path) -> None:
    reported = read_lines(folder / "alerts.jsonl")
    assert [(alert["rule"], alert["id"]) for alert in reported] == [("spreads", "b2"), ("copyist", "c0")]
    done = run("alerts", "test", folder / "rules.toml", "--index", folder / "index")
    shown = read_lines(done.stdout)
    for was, would in zip(reported, shown, strict=True):
        kept = was["rule"] == "copyist"  # a kept document without copies: what its id was is not stored
        assert would.pop("id") == (None if kept else was["id"])
        assert would.pop("group") == (None if kept else was["group"]["group"])
        assert len(would) > 6 and {name: was[name] for name in would if name != "key"}.items() <= would.items()
    assert "2 alerts in 4 documents" in done.stderr and "reads only what the index stores" in done.stderr
    assert len(done.stderr.split()) < 40  # two sentences; the help has the rest


def test_a_test_needs_groups_and_event_times(folder: Path, tmp_path: Path) -> None:
    for name, options, code, says in (
        ("plain", ("--no-groups",), 3, "keeps no groups"),
        ("timeless", (), 2, "have no event times: a rule needs them"),
    ):
        run("dedup", folder / "feed", "--index", tmp_path / name, *options, "--quiet")
        assert says in run("alerts", "test", folder / "rules.toml", "--index", tmp_path / name, code=code).stderr


def test_one_option_without_the_other(folder: Path) -> None:
    done = run("dedup", folder / "feed", "--alerts", "a.jsonl", code=2)
    assert "--alerts: add --rules FILE, which says what for" in done.stderr
    done = run("dedup", folder / "feed", "--rules", folder / "rules.toml", code=2)
    assert "--rules: add --alerts FILE, which they go to" in done.stderr
    assert "--alerts" not in run("pairs", "--help").stdout


def test_people_get_sentences(folder: Path) -> None:
    rule = read_rules(folder / "rules.toml")[0]
    reported = Rehearsed(Alert(rule, 0, 1_700_000_000_000, 7, {"members": 3}), 9, b'"b2"', b'"herald"')
    assert sentence(reported) == '2023-11-14T22:13:20Z  spreads: group 7, members 3, at document 9 "b2"'
