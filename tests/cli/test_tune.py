"""`stream-lsh tune`."""

import random
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import Result
from support.commands import figures, run
from support.json_lines import write_lines

from stream_lsh.cli.curve import terminal_plot
from stream_lsh.cli.failures import READER_GONE
from stream_lsh.families.curve import Curve
from stream_lsh.families.tuning import Banding
from stream_lsh.settings.model import Settings


def tune(*arguments: object, code: int = 0) -> Result:
    return run("tune", *arguments, code=code)


def snippet(output: str) -> str:
    return output.split("As a file for --config:")[1]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    words = [f"w{number}" for number in range(400)]
    documents = [
        {"id": number, "text": " ".join(words[(number * 7 + step * step) % 400] for step in range(40))}
        for number in range(120)
    ]
    return write_lines(tmp_path / "feed.jsonl", [*documents, {"id": "x"}])


def test_the_choice_its_curve_and_what_is_beside_it() -> None:
    result = tune("--threshold", "0.8", "--target-recall", "0.999")
    assert "K = 128 components, of which b = 18 bands of r = 5 rows use 90" in result.stdout
    assert "(1/b)^(1/r)              0.561" in result.stdout
    assert "found at the threshold   99.921 %" in result.stdout
    assert "missed at the threshold  0.079 %, 1 pair in 1,269" in result.stdout
    assert "0.8    99.921 %     0.079 %  <- threshold" in result.stdout
    assert "█" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("measure", "over"), [("jaccard", "similarity"), ("weighted-jaccard", "similarity")])
def test_the_curve_says_what_it_is_over(measure: str, over: str) -> None:
    assert f"P(candidate) over {over}\n" in tune("--measure", measure, "--threshold", "0.5").stdout


def test_the_figures_as_json(feed: Path) -> None:
    found = figures("tune", feed, "--threshold", "0.8", "--expected-docs", "1000")
    assert (found["signature_size"], found["bands"], found["rows"], found["documents"]) == (128, 18, 5, 1000)
    assert found["found"] == pytest.approx(0.99921, abs=1e-5)
    assert {"similarity": 0.8, "found": found["found"]} in found["curve"]
    assert {"signature_size", "bands", "rows", "signature_bytes", "found"} == found["alternatives"][0].keys()
    assert (found["sample"]["documents"], found["sample"]["of"], found["sample"]["pairs"]) == (120, 120, 7140)
    assert "words:3/8" in [length["shingles"] for length in found["sample"]["shingles"]]


def test_the_end_is_a_settings_file(tmp_path: Path) -> None:
    text = snippet(
        tune(
            "--threshold", "0.5", "--text-field", "title", "--text-field", 'a "b"', "--bag", "--normalize", "none"
        ).stdout
    )
    expected = {
        "threshold": 0.5, "target_recall": 0.999, "signature_size": 156, "bands": 52, "rows": 3,
        "shingles": Settings().shingles, "text_field": ["title", 'a "b"'], "bag": True, "normalize": "none",
    }  # fmt: skip
    assert tomllib.loads(text) == expected
    (tmp_path / "settings.toml").write_text(text)
    assert Settings.load(tmp_path / "settings.toml").banding == (156, 52, 3)
    again = tune("--config", str(tmp_path / "settings.toml")).stdout
    assert tomllib.loads(snippet(again)) == expected


@pytest.mark.parametrize("options", [(), ("--json",), ("--measure", "tf-idf")])
def test_settings_file_is_written_before_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """`stream-lsh tune --write FILE | head`: the closed pipe ends the command, and the file is there."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("stream_lsh.cli.tune.click.echo", closed)
    monkeypatch.setattr("stream_lsh.cli.failures._discard", lambda _: None)  # standard output is that of pytest
    file = tmp_path / "settings.toml"
    tune("--threshold", "0.6", "--write", file, *options, code=READER_GONE)
    assert Settings.load(file).threshold == 0.6


def test_a_sample_is_measured_as_if_all_could_match(tmp_path: Path, feed: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('match_within = ["lang"]\n')
    shown = tune(feed, "--config", file).stdout
    assert "all pairs are compared: fewer can match within lang" in shown
    assert "all pairs are compared" not in tune(feed).stdout
    assert tomllib.loads(snippet(shown))["match_within"] == ["lang"]


def test_a_part_of_the_input_and_too_few_documents(feed: Path, tmp_path: Path) -> None:
    result = tune(feed, "--limit", "50", "--sample", "20")
    assert "Sample: 20 documents of 50, 190 pairs" in result.stdout and "<- set" in result.stdout
    (tmp_path / "one.jsonl").write_text('{"id": 1, "text": "just one"}\n')
    assert "Too few documents" in tune(tmp_path / "one.jsonl").stdout
    (tmp_path / "none.jsonl").write_text("")
    tune(tmp_path / "none.jsonl")


def test_more_vectors_need_longer_keys(tmp_path: Path) -> None:
    cosine = ("tune", "--measure", "cosine", "--dimensions", "384", "--threshold", "0.9", "--expected-docs")
    names = ("signature_size", "bands", "rows")
    chosen = [tuple(figures(*cosine, documents)[name] for name in names) for documents in (10**5, 4 * 10**5, 10**6)]
    assert chosen == [(1024, 68, 15), (2048, 109, 18), (4096, 176, 21)]
    assert figures(*cosine, "1000000", "--signature-size", "1024")["signature_size"] == 1024
    assert tomllib.loads(snippet(tune(*cosine[1:], "1000000").stdout))["rows"] == 21
    low = (*cosine[:5], "--threshold", "0.5", "--expected-docs", "1000000")  # twice the keys would not halve them
    assert figures(*low)["signature_size"] == 832

    euclidean = ("--measure", "euclidean", "--dimensions", "8", "--max-distance", "1", "--expected-docs", "1000000")
    assert figures("tune", *euclidean)["signature_size"] < 1024  # nothing is known of the others
    chance = random.Random(1)
    far = [{"id": number, "vector": [chance.uniform(0, 6) for _ in range(8)]} for number in range(60)]
    assert figures("tune", write_lines(tmp_path / "vectors.jsonl", far), *euclidean)["signature_size"] > 1024


def test_a_plot_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed
    result = tune("--plot", tmp_path / "curve.png", code=1)
    assert "needs the package matplotlib, which is not installed: pip install 'stream-lsh[plot]'" in result.stderr
    assert result.stdout == ""


def test_impossible_wishes() -> None:
    result = tune("--threshold", "0.05", "--target-recall", "0.9999", code=2)
    assert "recall 0.99972 or less" in result.stderr
    assert result.stdout == ""
    assert "miss the recall of 0.999" in tune("--bands", "5", "--rows", "10").stdout


@pytest.mark.parametrize(
    "banding", [Banding(128, 18, 5), Banding(128, 1, 64), Banding(128, 128, 1), Banding(128, 1, 1)]
)
@pytest.mark.parametrize("threshold", [0.01, 0.5, 0.97, 1.0])
def test_the_plot_fits_80_columns_and_plain_terminals(banding: Banding, threshold: float) -> None:
    for unicode in (True, False):
        lines = terminal_plot(Curve("jaccard", banding, threshold), unicode=unicode)
        assert max(map(len, lines)) <= 80
        assert unicode or "\n".join(lines).isascii()
        assert f"threshold {threshold:.3g}" in "\n".join(lines)
