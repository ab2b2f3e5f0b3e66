"""Alerts of a job: each rule on a feed with a known answer, once, whatever is interrupted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support import commands, jobs

from stream_lsh import Settings
from stream_lsh.alerts import rule_state as module
from stream_lsh.alerts.rules import read_rules
from stream_lsh.documents.times import moment
from stream_lsh.embedded.group_table import table
from stream_lsh.embedded.rehearsal import rehearse
from stream_lsh.embedded.report import Summary
from stream_lsh.errors import StoreError, UsageError

WORDS = [f"w{number}" for number in range(400)]
RULES = """
[[rule]]
name = "spreads"
kind = "spread"
members = 4
sources = 3
within = "1h"

[[rule]]
name = "copied"
kind = "copied"
source = "nordwire"
by = "herald"
similarity = 0.9

[[rule]]
name = "copyist"
kind = "share"
above = 0.6
documents = 5
within = "2h"

[[rule]]
name = "grows"
kind = "growth"
members = 5
within = "30m"
cooldown = "1h"
"""
START = 1_700_000_000
SETTINGS = {"time_field": "at", "source_field": "outlet", "memtable_documents": 256, "segment_documents": 700}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path / "rules.toml"


def run(folder: Path, inputs: list[Path], rules: Path | None, settings: dict[str, Any] | None = None) -> Summary:
    outputs = ["alerts"] if rules is not None else []
    return jobs.run(folder, inputs, Settings(**SETTINGS | (settings or {})), outputs, rules)


def alerts(folder: Path) -> list[dict[str, Any]]:
    return jobs.read(folder / "alerts")


def text(number: int) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=40))


def known(folder: Path) -> Path:
    """A feed whose alerts can be told beforehand: a document a minute."""
    plan = [("nordwire", 0), ("radio", 1), ("herald", 0), ("radio", 0), ("herald", 2), ("tv", 0)]  # spreads at the last
    plan += [("tv", 3 + number) for number in range(20)]  # keeps to itself
    plan += [("thief", number) for number in (1, 2, 3, 4)] + [("thief", 99), ("thief", 5)]  # 4 of 5, then 5 of 6
    plan += [("", 50)] + [("", 50) for _ in range(8)]  # grows by 5 at the fifth copy
    lines = [
        {"id": f"d{seq}", "text": text(number), "at": START + 60 * seq} | ({"outlet": outlet} if outlet else {})
        for seq, (outlet, number) in enumerate(plan)
    ]
    return jobs.write(folder / "known.jsonl", *lines)


def test_each_rule_on_a_feed_with_a_known_answer(tmp_path: Path, rules: Path) -> None:
    feed = known(tmp_path)
    summary = run(tmp_path, [feed], rules)
    found = alerts(tmp_path)
    assert [(alert["rule"], alert["id"]) for alert in found] == [
        ("copied", "d2"), ("spreads", "d5"), ("copyist", "d30"), ("grows", "d37")
    ]  # fmt: skip
    copied, spreads, copyist, grows = found
    assert (copied["copied"], copied["source"], copied["similarity"]) == ("nordwire", "herald", 1.0)
    assert spreads["members"] == 4 and spreads["group"]["first_sources"] == ["nordwire", "herald", "radio", "tv"]
    assert (spreads["group"]["total_members"], spreads["group"]["version"], spreads["group"]["group"]) == (4, 3, 0)
    assert (copyist["source"], copyist["documents"], copyist["duplicates"]) == ("thief", 5, 4)
    assert copyist["group"] is None
    assert (grows["members"], grows["group"]["total_members"], grows["source"]) == (5, 6, None)
    assert summary.alerts is not None and (summary.alerts.alerts, summary.alerts.forgotten) == (4, 0)


def test_a_time_is_over_in_a_later_run_too(tmp_path: Path, rules: Path) -> None:
    """Eight copies of one text, in as many runs, an hour apart: none within half an hour; then five in five minutes."""
    inputs = []
    for number, minute in enumerate([0, *(60 * hour for hour in range(1, 9)), *range(1000, 1005)]):
        document = {"id": number, "text": text(0), "at": START + 60 * minute}
        inputs.append(jobs.write(tmp_path / f"{number}.jsonl", document))
        run(tmp_path, inputs, rules, {"window": "40d"})
    # Stream time is the median: it comes to the last five when they are the larger half of the latest 64.
    assert alerts(tmp_path) == []
    more = jobs.write(tmp_path / "more.jsonl", *(
        {"id": f"m{n}", "text": text(0), "at": START + 60 * 1005 + n} for n in range(20)
    ))  # fmt: skip
    run(tmp_path, [*inputs, more], rules, {"window": "40d"})
    assert [alert["rule"] for alert in alerts(tmp_path)] == ["grows"]


def test_what_alerts_need_is_said(tmp_path: Path, rules: Path) -> None:
    feed = known(tmp_path)
    with pytest.raises(UsageError, match=r"alerts go by the times of the documents: name the field .* --time-field"):
        run(tmp_path / "a", [feed], rules, {"time_field": None})
    with pytest.raises(UsageError, match=r"rule 'spreads' \(spread\) needs the source .* --source-field"):
        run(tmp_path / "b", [feed], rules, {"source_field": None})
    with pytest.raises(UsageError, match="only under --compare-with kept there are groups"):
        run(tmp_path / "c", [feed], rules, {"compare_with": "all"})
    run(tmp_path / "d", [feed], None)
    with pytest.raises(StoreError, match=r"keeps no groups: .* without --no-groups"):
        run(tmp_path / "d", [feed], rules)


def long_feed(folder: Path, documents: int, files: int, *, mistakes: bool = True) -> list[Path]:
    """Copies and edits of some texts by a dozen sources, with times that jump; bad lines, and lines that come again."""
    chance, lines, now = random.Random(documents), list[str](), START
    for number in range(documents):
        words = text(chance.randrange(10 + number // 8) if number % 8 else number % 3).split()
        if chance.random() < 0.4:
            words[chance.randrange(40)] = "edited"
        now += chance.choice((0, 1, 20, 20, 20, 400))
        outlet = chance.choice(("nordwire", "herald", "radio", *(f"o{n}" for n in range(9)), None))
        at = now - chance.choice((0, 0, 0, 5000, -90_000_000))
        lines.append(json.dumps({"id": number, "text": " ".join(words), "at": at, "outlet": outlet}) + "\n")
        if mistakes and chance.random() < 0.02:
            lines[-1] = chance.choice((lines[0], "{\n"))
    paths = [folder / f"{number:03}.jsonl" for number in range(files)]
    for number, path in enumerate(paths):
        path.write_text("".join(lines[number * documents // files : (number + 1) * documents // files]))
    return paths


@pytest.mark.parametrize(
    "settings", [pytest.param({}, marks=pytest.mark.long), {"window": "12h"}], ids=["all", "window"]
)
def test_what_is_in_memory_and_when_it_is_committed_changes_nothing(
    tmp_path: Path, rules: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = long_feed(tmp_path, 900, 5)
    monkeypatch.setattr(module, "MOST", 40)  # groups have to go
    once = run(tmp_path / "once", inputs, rules, settings)
    monkeypatch.setattr("stream_lsh.embedded.job.COMMIT_SECONDS", 0.0)
    for last in range(1, 6):
        often = run(tmp_path / "often", inputs[:last], rules, settings)
    assert (tmp_path / "often" / "alerts").read_bytes() == (tmp_path / "once" / "alerts").read_bytes()
    assert {alert["rule"] for alert in alerts(tmp_path / "once")} == {"spreads", "copied", "copyist", "grows"}
    assert once.alerts is not None and often.alerts is not None
    assert often.alerts.forgotten == once.alerts.forgotten > 0
    keys = [alert["key"] for alert in alerts(tmp_path / "once")]
    assert len(keys) == len(set(keys)) == once.alerts.alerts


def test_a_rehearsal_shows_the_same_where_all_is_stored_that_counts(tmp_path: Path, rules: Path) -> None:
    inputs = long_feed(tmp_path, 2000, 3, mistakes=False)
    run(tmp_path, inputs, rules)
    rehearsed = rehearse(tmp_path / "index", read_rules(rules))
    fired, would = alerts(tmp_path), [json.loads(alert.line) for alert in rehearsed.alerts]
    assert {alert["rule"] for alert in fired} == {"spreads", "copied", "copyist", "grows"}
    apart = {"key", "group", "id"}
    assert [{name: alert[name] for name in alert.keys() - apart} for alert in would] == [
        {name: alert[name] for name in alert.keys() - apart} for alert in fired
    ]
    for was, could in zip(fired, would, strict=True):
        assert could["group"] == (was["group"] and was["group"]["group"])
        assert could["id"] in (was["id"], None)
    assert any(could["id"] is not None for could in would)
    assert rehearsed.documents == 2000


@pytest.mark.parametrize("settings", [{}, {"window": "12h"}], ids=["all", "window"])
def test_after_stream_time_is_set_back_the_alerts_are_those_without_a_jump(
    tmp_path: Path, rules: Path, settings: dict[str, Any]
) -> None:
    """Also in a rehearsal; and what grows is counted from stream time, not from the wrong times."""
    later, found = long_feed(tmp_path, 500, 1, mistakes=False), []
    for name, at in (("plain", START), ("jump", START + 10 * 86_400)):
        lines = [{"id": f"f{n}", "text": text(1000 + n), "at": at} for n in range(70)]
        run(tmp_path / name, [jobs.write(tmp_path / f"{name}.jsonl", *lines)], rules, settings)
        index = tmp_path / name / "index"
        if name == "jump":
            commands.run("set-stream-time", moment(1000 * START), "--index", str(index))
            assert table(index, "growing") == []
        jobs.run(tmp_path / name, later, Settings(**SETTINGS | settings), ["alerts"], rules, only_new=True)
        growing = [row.json for row in table(index, "growing", 2 * 3_600_000)]
        found.append((alerts(tmp_path / name), [alert.line for alert in rehearse(index, read_rules(rules)).alerts]))
        assert growing
    assert found[0] == found[1] and min(map(len, found[0])) > 3
