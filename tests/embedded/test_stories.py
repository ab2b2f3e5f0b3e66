"""Stories through the whole job: against a plain model that compares all, restarts and kills, deletions, a window."""

from __future__ import annotations

import json
import lzma
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.contents import contents
from support.histories import Changing
from support.kills import COMMITTING, broken_off, kill
from support.models.stories import Stories
from test_likeness_truth import written

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job
from stream_lsh.errors import StateError, UsageError
from stream_lsh.families.likeness import STORY_THRESHOLD
from stream_lsh.index.store import RARE, Store

# No limit is met.
SURE: dict[str, Any] = {
    "likeness": "stories", "bucket_size": 4096, "candidates": 4096, "memory_documents": 32, "generation_documents": 100,
}  # fmt: skip
CHANGING: dict[str, Any] = {
    "on_same_id": "update", "deleted_field": "deleted", "time_field": "ts", "window": "150s",
}  # fmt: skip
OUTPUTS = ("unique", "pairs", "verdicts", "dead_letters", "groups")


@dataclass
class Feed(Changing):
    """Events with names and words of their own, among words that all use."""

    seed: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.common = [self._word() for _ in range(60)]
        self.events = [self._event() for _ in range(30)]
        self.said: list[str] = []

    def _word(self) -> str:
        return "".join(self.chance.choice("bdfgklmnprstvz") + self.chance.choice("aeiou") for _ in range(4))

    def _event(self) -> list[str]:
        names = [self._word().title() for _ in range(4)] + [str(self.chance.randrange(10, 3000))]
        return [*names, *(self._word() for _ in range(8))]

    def value(self) -> str:
        if self.said and self.chance.random() < 0.1:
            return self.chance.choice(self.said)
        event, words = self.chance.choice(self.events), list[str]()
        for _ in range(self.chance.randrange(4, 40)):
            words.append(self.chance.choice(event if self.chance.random() < 0.35 else self.common))
        self.said.append(" ".join(words))
        return self.said[-1]


def rounded(value: Any) -> Any:
    return None if value is None else round(value, 9)


def expected(verdict: Any) -> tuple[Any, ...]:
    kind, first, of, similarity, group, matches, replaces, heir, _ = verdict
    listed = [(id, seq, rounded(value)) for id, seq, value in matches]
    return kind, first, of, rounded(similarity), group, listed, replaces, heir


def told(line: dict[str, Any]) -> tuple[Any, ...]:
    heir = line.get("heir")
    return (
        line["kind"], line.get("first_kind"), line["of"], rounded(line["similarity"]), line["group"],
        [(match["id"], match["seq"], rounded(match["similarity"])) for match in line["matches"]],
        line.get("replaces"), (heir["id"], heir["seq"]) if heir else None,
    )  # fmt: skip


def modelled(records: Sequence[dict[str, Any]], settings: Settings) -> list[Any]:
    model, out = Stories(settings), []
    for seq, record in enumerate(records):
        ts = 1000 * record["ts"] if "ts" in record and settings.time_field else None
        if record.get("deleted"):
            out.append(model.delete(seq, record["id"], ts))
        else:
            out.append(model.judge(seq, record["id"], record["text"], ts))
    return out


def run(folder: Path, inputs: list[str], settings: Settings) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    Job(settings, inputs, {name: str(folder / name) for name in OUTPUTS}, folder / "index").run()
    return [json.loads(line) for line in (folder / "verdicts").read_text().splitlines()]


def compared(verdicts: list[dict[str, Any]], truth: Sequence[Any]) -> None:
    for verdict, true in zip(verdicts, truth, strict=True):
        assert (verdict["seq"], *told(verdict)) == (verdict["seq"], *expected(true))


@pytest.mark.parametrize("changing", [False, True])
def test_stories_are_those_of_a_plain_model(tmp_path: Path, changing: bool) -> None:
    """To the last match; over several generations and runs, restarts, and what fades with a window."""
    feed = Feed(seed=1)
    records = feed.history(450) if changing else feed.plain(450)
    settings = Settings(**(SURE | (CHANGING if changing else {})))
    inputs = written(tmp_path, records)
    run(tmp_path, inputs[:1], settings)
    run(tmp_path, inputs[:2], Settings())
    verdicts = run(tmp_path, inputs, Settings())
    truth = modelled(records, settings)
    compared(verdicts, truth)
    kinds = {verdict["kind"] for verdict in verdicts}
    assert {"unique", "near_duplicate", "exact_duplicate"} <= kinds
    assert not changing or ({"deleted", "outdated", "redelivered"} <= kinds and any(true.heir for true in truth))
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []
    assert facts["settings"]["likeness"] == "stories" and facts["settings"]["threshold"] == settings.least


def test_a_story_that_slept_is_less_similar(tmp_path: Path) -> None:
    """As the plain model has it; not where the times are not known."""
    records = Feed(seed=2).plain(300)
    chance = random.Random(2)
    for i, record in enumerate(records):
        days = i // 30 * chance.choice([3, 3, 3, 9, 30])  # some come late, some are from next month
        record["ts"] = 86400 * days + chance.randrange(86400)
    inputs, settings = written(tmp_path, records), Settings(**SURE, time_field="ts")
    timed = run(tmp_path / "timed", inputs, settings)
    compared(timed, modelled(records, settings))
    plain = run(tmp_path / "plain", inputs, Settings(**SURE))
    compared(plain, modelled(records, Settings(**SURE)))
    assert len({line["group"] for line in timed}) > 1.1 * len({line["group"] for line in plain})
    with pytest.raises(StateError, match="time_field = None"):
        run(tmp_path / "plain", inputs, settings)


@pytest.mark.parametrize("name", ["stories-ecb.jsonl.xz", "stories.jsonl"])
def test_stories_of_news_are_those_of_a_plain_model(tmp_path: Path, shared_data: Path, name: str) -> None:
    path = shared_data / name
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    records = [json.loads(line) for line in data.splitlines()]
    records = [{"id": r["id"], "text": f"{r.get('title', '')} {r['text']}".strip()} for r in records]
    settings = Settings(**(SURE | {"generation_documents": 200}))
    compared(run(tmp_path, written(tmp_path, records), settings), modelled(records, settings))


def test_what_decided_is_told_in_words() -> None:
    with Deduplicator(Settings(likeness="stories")) as deduplicator:
        first, second = deduplicator.process(
            [
                Document(1, "Wladimir Klitschko stopped Hasim Rahman in the seventh round in Mannheim"),
                Document(2, "In Mannheim beat Klitschko his challenger Rahman after seven rounds"),
            ]
        )
    assert (first.kind, second.kind, second.group) == ("unique", "near_duplicate", first.seq)
    (match,) = second.matches
    assert set(match.evidence["terms"]) >= {"klitschko", "rahman", "mannheim"}


def test_stories_of_other_languages_are_others_and_say_their_words() -> None:
    """What is matched within changes terms, but not the words that are told."""
    texts = (
        "Wladimir Klitschko stopped Hasim Rahman in the seventh round in Mannheim",
        "In Mannheim beat Klitschko his challenger Rahman after seven rounds",
    )
    feed = [
        Document(f"{lang}{i}", text, within={"lang": lang}) for i, text in enumerate(texts) for lang in ("en", "de")
    ]
    with Deduplicator(Settings(likeness="stories", match_within=["lang"])) as deduplicator:
        verdicts = {verdict.id: verdict for verdict in deduplicator.process(feed)}
    assert [verdicts[id].of for id in ("en0", "de0", "en1", "de1")] == [None, None, "en0", "de0"]
    for id in ("en1", "de1"):
        (match,) = verdicts[id].matches
        assert set(match.evidence["terms"]) >= {"klitschko", "rahman", "mannheim"}


def test_a_story_has_one_shard_and_keeps_one_of_each() -> None:
    for given, name in (({"shards": 2}, "shards"), ({"against": "any", "verify_matches": 10}, "against")):
        with pytest.raises((UsageError, ValueError), match=f"{name}.* = "):
            Settings(likeness="stories", **given)  # type: ignore[arg-type]


def test_the_threshold_is_that_of_stories_unless_one_is_given(tmp_path: Path) -> None:
    usual = Settings(likeness="stories")
    assert (usual.threshold, usual.least, Settings().threshold) == (STORY_THRESHOLD, STORY_THRESHOLD, 0.8)
    assert Settings(**usual.model_dump()).fingerprint == usual.fingerprint  # as a worker is given them
    assert Settings(likeness="stories", threshold=0.8).least == 0.8
    with Deduplicator(Settings(likeness="stories", threshold=0.4), state=tmp_path / "index"):
        pass
    with Deduplicator(Settings(likeness="stories"), state=tmp_path / "index") as again:
        assert again.settings.threshold == 0.4


def test_a_story_that_is_told_very_often_does_not_fall_apart() -> None:
    chance = random.Random(5)
    words = ["".join(chance.choices("bdfgklmnprst", k=6)) for _ in range(3000)]
    event, others = [word.title() for word in words[:40]], words[40:]
    feed = [Document(i, " ".join(chance.choices(others, k=80))) for i in range(100)]
    for i in range(100, 1000):
        said = chance.choices(event, k=50) + chance.choices(others, k=50)
        feed.append(Document(i, " ".join(chance.sample(said, len(said)))))
    with Deduplicator(Settings(likeness="stories")) as deduplicator:
        groups = [verdict.group for verdict in deduplicator.process(feed)]
    assert len(set(groups[100:])) == 1
    assert len(set(groups[:100])) == 100


def test_what_is_rare_is_rare_among_those_that_a_text_may_match() -> None:
    """One text in twenty is in a language of its own: its stories are those of an index that has no other one."""
    chance, feed = random.Random(1), list[Document]()

    def words(letters: str, n: int) -> list[str]:
        return ["".join(chance.choice(letters) + chance.choice("aeiou") for _ in range(4)) for _ in range(n)]

    common = (words("bdfgk", 40), words("lmnprstvz", 40))
    events = [[words("bdfgk", 10) for _ in range(60)], [words("lmnprstvz", 10) for _ in range(6)]]
    for i in range(2000):
        rare = i % 20 == 7
        said = chance.choices(common[rare], k=10) + chance.sample(chance.choice(events[rare]), 6)  # all are keys
        feed.append(Document(i, " ".join(chance.sample(said, len(said))), within={"lang": int(rare)}))
    with Deduplicator(Settings(likeness="stories", match_within=("lang",))) as deduplicator:
        among = [verdict for verdict in deduplicator.process(feed) if verdict.id % 20 == 7]
    with Deduplicator(Settings(likeness="stories")) as deduplicator:
        alone = list(deduplicator.process([document for document in feed if document.id % 20 == 7]))
    assert [(v.kind, v.of, v.similarity) for v in among] == [(v.kind, v.of, v.similarity) for v in alone]
    assert 3 < sum(v.kind == "unique" for v in alone) < 50


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTPUTS}


def test_a_run_that_is_broken_off_goes_on_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = written(tmp_path, Feed(seed=3).history(300), parts=6)
    settings = Settings(**(SURE | CHANGING))
    run(tmp_path / "one", inputs, settings)
    assert broken_off(monkeypatch, lambda: run(tmp_path / "two", inputs, settings)) > 1
    assert bytes_of(tmp_path / "two") == bytes_of(tmp_path / "one")


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_to_the_byte(tmp_path: Path) -> None:
    inputs = written(tmp_path, Feed(seed=4).history(20_000), parts=2)
    given: dict[str, Any] = {"likeness": "stories", **CHANGING, "memory_documents": 256, "window": "3000s"}
    run(tmp_path / "whole", inputs, Settings(**given))
    (tmp_path / "broken").mkdir()
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    outputs = [word for name in OUTPUTS
               for word in (f"--{name.replace('_', '-')}", str(tmp_path / "broken" / name))]  # fmt: skip
    command = [sys.executable, "-c", COMMITTING, "dedup", *inputs, "--state", str(tmp_path / "broken" / "index"),
               *options, *outputs, "--quiet"]  # fmt: skip
    kill(command, tmp_path / "broken" / "verdicts", (tmp_path / "whole" / "verdicts").stat().st_size, kills=4)
    assert bytes_of(tmp_path / "broken") == bytes_of(tmp_path / "whole")


def test_what_one_commit_has_counted_is_told_by_nothing_when_something_is_erased(tmp_path: Path) -> None:
    """For one of few documents says which words they have; the sum stays, and so do the answers."""
    feed = [Document(record["id"], record["text"]) for record in Feed(seed=6).plain(200)]
    folders = [tmp_path / name for name in ("erased", "whole")]
    for folder in folders:
        with Deduplicator(Settings(likeness="stories", on_same_id="update"), state=folder) as deduplicator:
            for part in (feed[:1], feed[1:100], [Document(feed[0].id, deleted=True)]):
                assert len(list(deduplicator.process(part))) == len(part)
                deduplicator.commit()
    store = Store(folders[0] / "db", read_only=True)
    needle = next(store.rows_of(RARE, 0, 0))[1][29:]
    store.close()
    assert any(needle in data for data in contents(folders[0]))
    assert erase(folders[0], everything=True).erased == 1
    assert not any(needle in data for data in contents(folders[0]))
    answers = []
    for folder in folders:
        with Deduplicator(state=folder) as deduplicator:
            answers.append(list(deduplicator.process(feed[100:])))
    assert answers[0] == answers[1]
    assert any(verdict.kind == "near_duplicate" for verdict in answers[0])
