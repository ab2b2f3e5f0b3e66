"""`stream-lsh schema`: real outputs have the fields and types that it says, and no others."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.schemas import checker

from stream_lsh.cli import main
from stream_lsh.cli.schema import OUTPUTS

TEXT = "The council has voted for the new bridge over the river and work begins in spring"
RULE = '[[rule]]\nname = "r"\nkind = "growth"\nmembers = 2\nwithin = "1d"\n'
TEXTS = [TEXT, TEXT.upper(), TEXT + " or so", None, TEXT]


def run(*words: str) -> str:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("measure", ["jaccard", "containment", "tf-idf"])
def test_outputs_have_their_schema(measure: str, tmp_path: Path) -> None:
    feed, rules, index = tmp_path / "feed.jsonl", tmp_path / "rules.toml", str(tmp_path / "index")
    rules.write_text(RULE)
    documents = [{"id": i, "text": text, "ts": 1_700_000_000 + i, "by": "b"} for i, text in enumerate(TEXTS)]
    feed.write_text("".join(json.dumps(document) + "\n" for document in [*documents, {**documents[0], "text": "new"}]))
    files = {output: tmp_path / output for output in OUTPUTS}
    names = ("--verdicts", "--pairs", "--groups", "--alerts", "--dead-letters")
    outputs = [word for name, file in zip(names, files.values(), strict=True) for word in (name, str(file))]
    run(
        "dedup", str(feed), "--index", index, "--rules", str(rules), "--time-field", "ts", "--source-field", "by",
        "--on-conflict", "update", "--measure", measure, "--quiet", "--unique", str(tmp_path / "unique"), *outputs,
    )  # fmt: skip
    for output, file in files.items():
        check = checker(json.loads(run("schema", output)))
        lines = file.read_text().splitlines()
        assert lines, output
        for line in lines:
            check(json.loads(line))
