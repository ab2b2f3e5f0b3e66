"""Measures other than `jaccard` over HTTP: the answers of `dedup` and `query`; two documents side by side."""

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.indexes import take_key
from support.json_lines import read_lines, write_lines
from support.long_form import rotating
from support.serving import Serving, events

from stream_lsh.embedded.job import Job
from stream_lsh.embedded.querying import query
from stream_lsh.serve.problems import Problem
from stream_lsh.settings.model import Settings

GIVEN: dict[str, dict[str, Any]] = {
    "tf-idf": {"match_within": ("lang",)},
    "containment": {"threshold": 0.6, "min_passage_words": 6},
    "levenshtein": {"max_distance": 2},
    "weighted-jaccard": {"threshold": 0.5, "set_field": "basket"},
    "euclidean": {"dimensions": 8, "max_distance": 0.5},
    "hamming": {"dimensions": 64, "max_distance": 3, "match_within": ("lang",)},
}
KEY = bytes(range(16))  # of all indexes: it decides which terms share a counter, and so a little of a similarity
FIELDS = {"weighted-jaccard": "basket", "euclidean": "vector", "hamming": "bits"}
Feed = list[dict[str, Any]]


class Made:
    """Documents some of which are made of earlier ones."""

    def __init__(self, measure: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.measure = measure
        self.words = ["".join(self.chance.choices("bdfgklmnprstvaeiou", k=6)) for _ in range(300)]
        self.made: list[Any] = []

    def feed(self, n: int, name: str) -> Feed:
        field = FIELDS.get(self.measure, "text")
        found = [{"id": f"{name}{i}", field: self._next(), "lang": self.chance.choice(("en", "de"))} for i in range(n)]
        found[n // 2] = found[n // 3]  # it comes again
        return [*found, {"id": f"{name} bad", field: "?" if self.measure == "hamming" else 7}]

    def _next(self) -> Any:
        make: Callable[[Any], Any] = getattr(self, f"_{self.measure}".replace("-", "_"))
        old = self.chance.choice(self.made[-60:]) if self.made and self.chance.random() < 0.6 else None
        self.made.append(make(old))
        return self.made[-1]

    def _some(self, n: int) -> list[str]:
        return self.chance.sample(self.words, n)

    def _tf_idf(self, old: str | None) -> str:
        """The same names and numbers, other words."""
        names = [word.title() for word in self._some(4)] + [str(self.chance.randrange(100, 3000))]
        if old is not None:
            names = [word for word in old.split() if not word.islower()]
        said = [*names, *self._some(12)]
        self.chance.shuffle(said)
        return " ".join(said)

    def _containment(self, old: str | None) -> str:
        words = old.split() if old else self._some(40)
        part = words[self.chance.randrange(max(1, len(words) - 20)) :][: self.chance.choice((20, 40))]
        return "  ".join([*self._some(self.chance.choice((0, 3, 8))), *part]) + "."

    def _levenshtein(self, old: str | None) -> str:
        if old is None:
            return " ".join(self._some(3))
        at = self.chance.randrange(len(old))
        return f"{old[:at]}x{old[at + self.chance.randrange(3) :]}"

    def _weighted_jaccard(self, old: dict[str, float] | None) -> dict[str, float]:
        if old is None:
            return {word: self.chance.choice((1, 2, 0.5)) for word in self._some(6)}
        return {**dict(list(old.items())[self.chance.randrange(2) :]), self._some(1)[0]: 0.5}

    def _euclidean(self, old: list[float] | None) -> list[float]:
        """Numbers that float32 has."""
        if old is None:
            return [self.chance.randrange(-128, 128) / 64 for _ in range(8)]
        return [old[0] + self.chance.choice((0.25, 2.0)), *old[1:]]

    def _hamming(self, old: str | None) -> str:
        flips = sum(1 << bit for bit in self.chance.sample(range(64), self.chance.choice((1, 3, 4))))
        return f"{self.chance.getrandbits(64) if old is None else int(old, 16) ^ flips:016x}"


@pytest.fixture(scope="module", params=["tf-idf", *rotating([name for name in GIVEN if name != "tf-idf"], 1)])
def measure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(measure: str) -> tuple[Feed, Feed]:
    """What is added, and what is only asked."""
    feeds = Made(measure, 5)
    return feeds.feed(160, "d"), feeds.feed(40, "q")


def settings_of(measure: str) -> Settings:
    return Settings.model_validate({"measure": measure, **GIVEN[measure]})


@pytest.fixture(scope="module")
def served(measure: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    options = [word for name, value in {"measure": measure, **GIVEN[measure]}.items()
               for one in (value if isinstance(value, tuple) else (value,))
               for word in (f"--{name.replace('_', '-')}", str(one))]  # fmt: skip
    folder = tmp_path_factory.mktemp(measure) / "index"
    take_key(settings_of(measure), folder, KEY)
    with Serving(folder, *options) as it:
        yield it


@pytest.fixture(scope="module")
def answered(served: Serving, made: tuple[Feed, Feed]) -> list[dict[str, Any]]:
    """The answers to what was added."""
    return served.add_all(made[0])


def unrepeated(answer: dict[str, Any]) -> dict[str, Any]:
    """As `dedup` writes it: without the reason, and what comes again under its number of now."""
    found = {name: value for name, value in answer.items() if name not in ("reason", "detail", "redelivered")}
    if "redelivered" in answer:
        found |= {"kind": "redelivered", "first_kind": found["kind"], "seq": answer["redelivered"]}
    return found


@pytest.mark.long
def test_answers_and_pairs_are_those_of_dedup(
    served: Serving, answered: list[dict[str, Any]], made: tuple[Feed, Feed], measure: str, tmp_path: Path
) -> None:
    outputs = {name: str(tmp_path / name) for name in ("verdicts", "pairs")}
    take_key(settings_of(measure), tmp_path / "index", KEY)
    Job(settings_of(measure), [str(write_lines(tmp_path / "feed", made[0]))], outputs, tmp_path / "index").run()
    assert [unrepeated(answer) for answer in answered] == read_lines(tmp_path / "verdicts")
    pairs = read_lines(tmp_path / "pairs")
    evidence = {"tf-idf": "terms", "containment": "passages"}.get(measure)
    assert len(pairs) >= 30 and (evidence is None or all(pair[evidence] for pair in pairs))
    with served.client.stream("GET", "/v1/events?kinds=pair", headers={"Last-Event-ID": "0.0"}) as answer:
        events_of = (event["data"] for event in events(answer.iter_lines()) if "event" in event)
        assert [next(events_of) for _ in pairs] == pairs


def test_what_is_only_asked_gets_the_answers_of_query(
    served: Serving, answered: list[dict[str, Any]], made: tuple[Feed, Feed], tmp_path: Path
) -> None:
    assert answered and served.state is not None
    found = served.add_all(made[1], "/v1/check")
    query(Settings(), [str(write_lines(tmp_path / "asked", made[1]))], str(tmp_path / "said"), served.state)
    said = [{name: value for name, value in verdict.items() if name not in ("input", "line", "offset")}
            for verdict in read_lines(tmp_path / "said")]  # fmt: skip
    assert found == said
    assert sum(bool(verdict["matches"]) for verdict in found) > 5


def test_matches_side_by_side(
    served: Serving, answered: list[dict[str, Any]], made: tuple[Feed, Feed], measure: str
) -> None:
    """As similar as their verdicts say, with what they say; of stories as words weigh now, which `check` goes by."""
    given, compared = {document["id"]: document for document in made[0]}, 0
    for verdict in answered:
        if not verdict["matches"]:
            continue
        of = verdict["duplicate_of"] or verdict["matches"][0]["id"]
        match = next(match for match in verdict["matches"] if match["id"] == of)
        found = served.client.get("/v1/compare", params={"a": of, "b": verdict["id"]}).json()
        assert [found[side]["id"] for side in "ab"] == [of, verdict["id"]]
        assert found["same_group"] == (verdict["kind"] != "unique")
        if measure == "tf-idf":
            assert found["terms"] == match["terms"]
            another = f"{found['b']['text']} ."
            again = {"id": "new", "text": another, "lang": given[verdict["id"]]["lang"]}
            (said,) = served.add_all([again], "/v1/check")
            now = {one["id"]: one["similarity"] for one in said["matches"]}
            assert found["similarity"] == now.get(of, found["similarity"])
            compared += of in now
            continue
        assert (found["match"], found["similarity"]) == (True, match["similarity"])
        compared += 1
        if measure == "containment":
            sides = [{"words": one["words"], "a": one["older"], "b": one["newer"]} for one in match["passages"]]
            assert found["passages"] == sides
        elif measure == "euclidean":
            vector = np.frombuffer(base64.b64decode(found["b"]["text"]), "<f4")
            assert vector.tolist() == given[verdict["id"]]["vector"]
        elif measure == "hamming":
            assert found["b"]["text"] == given[verdict["id"]]["bits"]
            assert found["why"].startswith("a distance of ") and found["why"].endswith("is not above that of 3")
    assert compared > 20


@pytest.mark.parametrize("measure", ["tf-idf"], indirect=True)
def test_what_must_not_match_is_compared_and_does_not(served: Serving) -> None:
    text = "Wladimir Klitschko stopped Hasim Rahman in the seventh round in Mannheim on Saturday"
    other = "In Mannheim the champion Klitschko beat his challenger Rahman after seven rounds"
    for id, said, lang in (("k1", text, "en"), ("k2", other, "en"), ("k3", other, "de")):
        served.add({"id": id, "text": said, "lang": lang})
    near, apart = (
        served.client.get("/v1/compare", params={"a": "k1", "b": id}).json() for id in ("k2", "k3")
    )  # fmt: skip
    assert near["match"] and near["same_group"] and near["why"].startswith("similarity 0.")
    assert "is not below the threshold of 0.26, with the current document frequencies" in near["why"]
    assert not apart["match"] and not apart["same_group"]
    assert apart["why"] == "their values of lang differ (match_within)"
    assert {"klitschko", "rahman", "mannheim"} <= set(near["terms"]) == set(apart["terms"])
    assert near["similarity"] == pytest.approx(apart["similarity"], abs=0.02)
    assert [(near[side]["spans"], near[side]["shingles"]) for side in "ab"] == [([], None)] * 2


@pytest.mark.long
async def test_a_pipeline_says_why_it_compares_no_stories() -> None:
    from stream_lsh.kafka.settings import KafkaSettings
    from stream_lsh.serve.pipeline.service import PipelineService

    service = PipelineService(KafkaSettings(measure="tf-idf"))
    with pytest.raises(Problem) as error:
        await service.compared("a", "b")
    said = json.loads(error.value.json)
    assert (said["status"], said["field"]) == (409, "measure")
    assert "depends on the document frequencies" in said["detail"]
