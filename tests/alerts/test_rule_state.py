"""What rules of alerts say, as a model that counts anew; what a file of rules may say, and what is wrong in one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_form import LONG

from stream_lsh.alerts import rule_state as module
from stream_lsh.alerts.rule_state import SLOTS, Alert, RuleStates, Seen
from stream_lsh.alerts.rules import KINDS, Copied, Growth, Rule, Share, Spread, read_rules
from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import UsageError

Document = tuple[bool, int, int, int | None, str, float]  # dropped, group, log, event time, source, similarity
Reported = tuple[str, int, Any, dict[str, Any]]  # rule, number of the document, group or source, what was found


class Model:
    """The rules, slowly: all documents are kept, and counted anew for each."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules
        self.documents: list[Document] = []
        self.fired: dict[tuple[str, Any], int] = {}

    def step(self, document: Document) -> list[Reported]:
        self.documents.append(document)
        dropped, group, log, _, source, _ = document
        alerts_of: list[Reported] = []
        for rule in self.rules:
            found = self.found(rule) if dropped or isinstance(rule, Share) else None
            subject = source if isinstance(rule, Share) else group
            last = self.fired.get((rule.name, subject))
            if found is not None and (last is None or log - last >= rule.cooldown_ms):
                self.fired[rule.name, subject] = log
                alerts_of.append((rule.name, len(self.documents) - 1, subject, found))
        return alerts_of

    def found(self, rule: Rule) -> dict[str, Any] | None:
        _, group, now, _, source, similarity = self.documents[-1]
        if isinstance(rule, Copied):
            first_member = self.documents[group][4]
            named = source and first_member and source != first_member
            fits = rule.source in (None, first_member) and rule.by in (None, source)
            return (
                {"copied": first_member, "similarity": similarity}
                if named and fits and similarity >= rule.similarity
                else None
            )

        def recent(time: int | None) -> bool:
            width = rule.within_ms // SLOTS
            return time is not None and now // width - time // width < SLOTS

        if isinstance(rule, Share):
            theirs = [
                document for document in self.documents if source and document[4] == source and recent(document[2])
            ]
            dropped = sum(document[0] for document in theirs)
            if len(theirs) < rule.documents or dropped / len(theirs) <= rule.above:
                return None
            return {"documents": len(theirs), "duplicates": dropped}
        members = [document for document in self.documents if document[0] and document[1] == group]
        came = [(member[4], member[2]) for member in members if recent(member[2])]
        if isinstance(rule, Spread):
            first_member = self.documents[group]
            first = None if first_member[3] is None else min(first_member[3], members[0][2])
            came += [(first_member[4], first)] if recent(first) else []  # type: ignore[list-item]
            if len({source for source, _ in came} - {""}) < rule.sources:
                return None
        return {"members": len(came)} if len(came) >= rule.members else None


def alerts_of(alerts: list[Alert], seen: Seen) -> list[Reported]:
    return [
        (alert.rule.name, seen.seqs[alert.at], json.loads(str(alert.subject)), dict(alert.found)) for alert in alerts
    ]


SHIFT = 86_400_000  # a multiple of the slots of all rules


def seen_of(documents: list[Document], start: int, stop: int, shift: int = 0) -> Seen:
    def text(source: str) -> bytes:
        return json.dumps(source).encode() if source else b""

    def first_member(seq: int) -> tuple[int, bytes]:
        assert seq < stop, "of a document that is not there yet"
        return NO_TIME if documents[seq][3] is None else documents[seq][3], text(documents[seq][4])  # type: ignore[return-value]

    dropped, groups, log, _, sources, similarities = zip(*documents[start:stop], strict=True)
    return Seen(
        range(stop - start), range(start, stop), dropped, dropped, groups, [time + shift for time in log], similarities,
        [text(s) for s in sources], first_member, shift,
    )  # fmt: skip


def states(
    rules: list[Rule], documents: list[Document], cuts: list[int], restarts: set[int], shift: int = 0
) -> tuple[list[Reported], int]:
    """The alerts of a feed that comes in these batches; at some of the cuts everything is left but what was stored."""
    states, stored, out, start = RuleStates(rules), dict[int, Any](), list[Reported](), 0
    for stop in [*sorted({cut for cut in cuts if 0 < cut < len(documents)}), len(documents)]:
        seen = seen_of(documents, start, stop, shift)
        alerts = states.look(seen)
        out += alerts_of(alerts, seen)
        for alert in alerts:
            assert alert.time == documents[seen.seqs[alert.at]][2]
            line = json.loads(alert.line(alert.at, b'"id"', seen.sources[alert.at], b"null"))
            assert line.items() >= dict(alert.found).items() and line["rule"] == alert.rule.name
        stored.update(states.take())
        if stop in restarts:
            states = RuleStates(rules, json.loads(json.dumps(list(stored.items()))), states.forgotten)
        start = stop
    return out, states.forgotten


NAMES = ["", "a", "b", "c", 'd"\ud800']


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    found: list[Rule] = []
    for number, kind in enumerate(draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5))):
        rule: dict[str, Any] = {
            "name": f"r{number}",
            "kind": kind,
            "cooldown": draw(st.sampled_from(["1s", "2m", "1d"])),
        }
        if kind == "copied":
            source, by = draw(st.sampled_from([(None, "b"), ("a", None), ("a", "c"), ("b", "a")]))
            rule |= {"source": source, "by": by, "similarity": draw(st.sampled_from([0.5, 0.9, 1.0]))}
        else:
            rule["within"] = draw(st.sampled_from(["1s", "1m", "1h"]))
        if kind == "share":
            rule |= {"above": draw(st.sampled_from([0.0, 0.4, 0.9])), "documents": draw(st.integers(1, 6))}
        if kind == "growth":
            rule["members"] = draw(st.integers(1, 6))
        if kind == "spread":
            rule |= {"members": draw(st.integers(2, 6)), "sources": draw(st.integers(1, 4))}
        found.append(KINDS[kind].model_validate(rule))
    return found


@st.composite
def feeds(draw: st.DrawFn) -> list[Document]:
    """Few groups and sources; stream time that stands still, goes on by a little, and by more than any rule counts."""
    documents: list[Document] = []
    kept: list[int] = []
    log = draw(st.sampled_from([0, 1_700_000_000_000]))
    for seq in range(draw(st.integers(1, 70))):
        log += draw(st.sampled_from([0, 0, 7, 400, 1100, 30_000, 61_000, 4_000_000]))
        time = draw(st.sampled_from([log, log, None, max(0, log - 500), max(0, log - 50_000), log + 10**9]))
        dropped = bool(kept) and draw(st.integers(0, 3)) > 0
        group = draw(st.sampled_from(kept[-4:])) if dropped else seq
        if not dropped:
            kept.append(seq)
        similarity = draw(st.sampled_from([0.8, 0.9, 1.0])) if dropped else 0.0
        documents.append((dropped, group, log, time, draw(st.sampled_from(NAMES)), similarity))
    return documents


CUTS = st.lists(st.integers(1, 69), max_size=8)


@settings(max_examples=400 if LONG else 100, deadline=None)
@given(rules(), feeds(), CUTS, st.sets(st.integers(1, 69)), st.sampled_from((0, SHIFT)))
def test_alerts_are_those_of_the_model(
    given_rules: list[Rule], documents: list[Document], cuts: list[int], restarts: set[int], shift: int
) -> None:
    model = Model(given_rules)
    expected = [alert for document in documents for alert in model.step(document)]
    assert states(given_rules, documents, cuts, restarts | set(cuts[:2]), shift) == (expected, 0)


@settings(max_examples=100 if LONG else 40, deadline=None)
@given(rules(), feeds(), CUTS, CUTS, st.integers(1, 3))
def test_what_there_is_no_room_for_does_not_depend_on_batches_either(
    given_rules: list[Rule], documents: list[Document], cuts: list[int], others: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", most)
        first = states(given_rules, documents, cuts, set(cuts))
        assert first == states(given_rules, documents, others, set(others[:3]))


def spread(**more: Any) -> Rule:
    rule = {"name": "spreads", "kind": "spread", "members": 3, "sources": 2, "within": "1m", "cooldown": "1h"}
    return Spread.model_validate(rule | more)


def test_what_was_forgotten_too_early_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    rule = Growth.model_validate({"name": "grows", "kind": "growth", "members": 2, "within": "1m", "cooldown": "1s"})
    kept: list[Document] = [(False, seq, 0, 0, "", 0.0) for seq in range(3)]
    late, soon = ([*kept, *((True, group, 0, 0, "", 0.9) for group in range(2)),
                   *((True, group, now, now, "", 0.9) for group in (2, 0))] for now in (90_000, 1))  # fmt: skip
    assert states([rule], late, [], set()) == ([], 0)  # they were too old to matter
    assert states([rule], soon, [], set()) == ([], 2)  # 0 had to go for 2, and 1 for 0
    monkeypatch.setattr(module, "MOST", 3)
    assert states([rule], soon, [], set()) == ([("grows", 6, 0, {"members": 2})], 0)


def test_what_is_stored_is_as_much_as_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    documents: list[Document] = [(False, seq, seq, seq, "", 0.0) for seq in range(50)]
    documents += [(True, seq, 50 + seq, 50 + seq, f"s{seq}", 0.9) for seq in range(50)]
    states, stored = RuleStates([spread(), spread(name="again")]), dict[int, Any]()
    for start in range(0, 100, 10):
        states.look(seen_of(documents, start, start + 10))
        stored.update(states.take())
    assert sorted(stored) == list(range(10))
    # A rule that is not there any more leaves its numbers to others.
    other = RuleStates([spread(name="other")], list(stored.items()))
    other.look(seen_of(documents, 40, 60))
    assert other.take().keys() <= stored.keys()


def test_a_line_has_a_key_of_its_own() -> None:
    alert = Alert(spread(), 0, 1_700_000_000_000, 7, {"members": 3})
    line = alert.line(9, b'"x"', b'"a"', b'{"group":7}')
    assert json.loads(line) == {
        "key": json.loads(line)["key"], "rule": "spreads", "kind": "spread", "time": 1_700_000_000_000, "seq": 9,
        "id": "x", "source": "a", "members": 3, "group": {"group": 7},
    }  # fmt: skip
    keys = {json.loads(alert.line(seq, b'"x"', source, b"null"))["key"] for seq in (1, 2) for source in (b"", b'"a"')}
    assert len(keys) == 4 and all(len(key) == 32 for key in keys)


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
