"""Rules of alerts: what a file may say, and what is said of one that says something else."""

from pathlib import Path

import pytest

from stream_lsh.alerts.rules import Copied, Growth, Share, Spread, read_rules
from stream_lsh.errors import UsageError

GOOD = """
[[rule]]
name = "spreads"
kind = "spread"
members = 10
sources = 3
within = "6h"
cooldown = "2d"

[[rule]]
name = "copies us"
kind = "copied"
source = "nordwire"
similarity = 0.9

[[rule]]
name = "copyist"
kind = "share"
above = 0.5
documents = 20
within = "1d"

[[rule]]
name = "grows"
kind = "growth"
members = 5
within = "PT90S"
"""


def rules_of(folder: Path, text: str) -> tuple[object, ...]:
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    return read_rules(folder / "rules.toml")


def test_a_rule_of_each_kind(tmp_path: Path) -> None:
    spread, copied, share, growth = rules_of(tmp_path, GOOD)
    assert isinstance(spread, Spread) and (spread.within_ms, spread.cooldown_ms) == (6 * 3_600_000, 2 * 86_400_000)
    assert isinstance(copied, Copied) and (copied.source_text, copied.by_text) == (b'"nordwire"', None)
    assert isinstance(share, Share) and (share.above, share.documents, share.cooldown_ms) == (0.5, 20, 86_400_000)
    assert isinstance(growth, Growth) and growth.within_ms == 90_000


def test_numbers_are_sources_too(tmp_path: Path) -> None:
    text = '[[rule]]\nname = "a"\nkind = "copied"\nsource = 17\nby = "17"\nsimilarity = 1\n'
    (rule,) = rules_of(tmp_path, text)
    assert isinstance(rule, Copied) and (rule.source_text, rule.by_text) == (b"17", b'"17"')


def test_a_rule_that_says_anything_else_is_another_one(tmp_path: Path) -> None:
    before = [rule.fingerprint for rule in rules_of(tmp_path, GOOD)]  # type: ignore[attr-defined]
    after = [rule.fingerprint for rule in rules_of(tmp_path, GOOD.replace("20", "21"))]  # type: ignore[attr-defined]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "members = 10",
            "members = 1",
            r"rule 1 \(spreads\): members = 1: give an integer of at least 2 .*first member",
        ),
        ("members = 10", 'members = "10"', r"rule 1 \(spreads\): members = '10': give an integer"),
        ("members = 10\n", "", r"rule 1 \(spreads\): members is missing: members that came within the time"),
        ("members = 10", "member = 10", r"member: there is no such key in a rule of this kind; did you mean members\?"),
        ('"6h"', '"6 hours"', r"rule 1 \(spreads\): within = '6 hours': '6 hours' is no duration: a number with s"),
        ('"2d"', "2", r"cooldown = 2: give a text .*a duration such as"),
        (
            'kind = "spread"',
            'kind = "spreads"',
            r"kind = 'spreads' is none \(did you mean spread\?\); kinds are spread, copied",
        ),
        ('kind = "spread"', "", r"rule 1 \(spreads\): kind is missing; kinds are"),
        ('name = "copies us"', "", r"rule 2: name is missing: a name of its own"),
        ('name = "grows"', 'name = "copyist"', r"rule 4: name = 'copyist' is there twice; give each its own"),
        ('source = "nordwire"', "", r"rule 2 \(copies us\): name one of source and by, or both"),
        ('source = "nordwire"', 'source = "a"\nby = "a"', r"source and by are both 'a': name two sources"),
        ('source = "nordwire"', "source = true", r"rule 2 \(copies us\): source = true: give a text or an integer "),
        ("similarity = 0.9", "similarity = 1.1", r"similarity = 1.1: give a number above 0 and of at most 1 "),
        ("above = 0.5", "above = 1", r"above = 1: give a number of at least 0 and below 1"),
        ("[[rule]]", "[rule]", "is not TOML|has no rules"),
        (GOOD, "", r"rules.toml has no rules: each is a table \[\[rule\]\]"),
        (GOOD, "rule = 3", r"rules.toml has no rules: each is a table \[\[rule\]\]"),
        (GOOD, "rules = 3", r"there is no 'rules'; rules are tables \[\[rule\]\]"),
        (GOOD, "[[rule", "rules.toml is not TOML"),
    ],
)
def test_mistakes_are_named_with_file_rule_key_and_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=r"^rules file \S*rules\.toml") as error:
        rules_of(tmp_path, GOOD.replace(old, new, 1))
    assert error.match(said)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rules file \S*none: No such file"):
        read_rules(tmp_path / "none")
