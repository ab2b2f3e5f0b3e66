"""The help: fast to come, complete, with examples."""

import re
import subprocess
import sys

import pytest
from support import commands

from stream_lsh.cli import COMMANDS
from stream_lsh.cli.group import folded
from stream_lsh.cli.options import PROPERTIES
from stream_lsh.families.measure import DEFAULTS, MEASURES
from stream_lsh.mcp import FOR_NOTES
from stream_lsh.settings.model import Settings

ALL = dict(commands.every())
COMPARING = [words for words, command in ALL.items() if "measure" in {param.name for param in command.params}]


def fits_a_screen(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80


def shown(*words: str) -> str:
    result = commands.run(*words)
    return result.output


def test_the_help_lists_every_command_with_examples() -> None:
    result = commands.run("--help")
    assert all(f"  {name} " in result.output for name in COMMANDS)
    assert result.output.rstrip().splitlines()[-1].startswith("  stream-lsh ")


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_fits_a_screen_and_ends_with_examples(words: tuple[str, ...]) -> None:
    text = shown(*words, "--help")
    fits_a_screen(text)
    assert text.count("[") == text.count("]")  # nothing is cut within a default
    title, _, examples = text.rpartition("Example")
    assert title
    lines = examples.replace(" \\\n", "").splitlines()[1:]
    assert lines
    assert all(f"stream-lsh {' '.join(words)}" in line and line.count("stream-lsh ") == 1 for line in lines)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("words", COMPARING, ids=" ".join)
def test_help_with_a_measure_fits_a_screen(words: tuple[str, ...], measure: str) -> None:
    text = shown(*words, "--measure", measure, "--help")
    fits_a_screen(text)
    assert f"Options with --measure {measure}:\n" in text


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("words", COMPARING, ids=" ".join)
def test_help_shows_the_defaults_of_the_measure(words: tuple[str, ...], measure: str) -> None:
    text = shown(*words, "--measure", measure, "--help-all")
    own = {**DEFAULTS.get(measure, {}), **(FOR_NOTES if words == ("mcp",) else {})}
    for name in ("threshold", "max_candidates", "max_bucket_rows"):
        default = own.get(name, Settings.model_fields[name].default)
        found = re.search(rf"^  --{name.replace('_', '-')} .*?\[([^\]]*)\]", text, re.DOTALL | re.MULTILINE)
        assert found is None or found[1] == str(default)


def test_the_threshold_of_tf_idf_is_its_own() -> None:
    for words in COMPARING:
        if words != ("mcp",):
            assert "[0.26]" in shown(*words, "--measure", "tf-idf", "--help")


def test_a_long_example_is_continued_before_an_option_or_a_pipe() -> None:
    line = 'stream-lsh query "one -- two" --index index --top 5 | head'
    assert folded(line, 80, 2) == f"  {line}\n"
    assert folded(line, 38, 2) == '  stream-lsh query "one -- two" \\\n    --index index --top 5 | head\n'


def test_help_before_the_measure_is_the_same() -> None:
    assert shown("dedup", "--help", "--measure", "cosine") == shown("dedup", "--measure", "cosine", "--help")


def test_help_with_an_unknown_measure_is_the_one_of_all() -> None:
    assert shown("dedup", "--measure", "foo", "--help") == shown("dedup", "--help")


@pytest.mark.parametrize("words", [("dedup",), ("pairs",), ("kafka", "produce")], ids=" ".join)
def test_commands_that_read_tables_say_so(words: tuple[str, ...]) -> None:
    assert ".parquet, .arrow, .csv, .tsv" in " ".join(shown(*words, "--help-all").split())


def test_help_all_has_the_other_options_by_topic() -> None:
    brief, whole = shown("dedup", "--help"), shown("dedup", "--help-all")
    for option in ("--bands", "--memtable-documents", "--max-bucket-rows", "--signature-size"):
        assert f"{option} " in whole and option not in brief
    assert "Similarity:" in whole and "Documents:" in whole and "--help-all" in brief


@pytest.mark.parametrize(
    ("measure", "there", "others"),
    [
        ("jaccard", "--shingles", "--dimensions"),
        ("euclidean", "--max-distance", "--shingles"),
        ("hamming", "--bits-field", "--threshold"),
        ("containment", "--min-passage-words", "--vector-field"),
    ],
)
def test_options_of_a_measure_are_shown_with_it(measure: str, there: str, others: str) -> None:
    text = shown("dedup", "--measure", measure, "--help")
    assert f"  {there} " in text and f"  {others} " not in text and "  --index " not in text


def test_properties_are_settings_of_the_connection() -> None:
    whole = " ".join(shown("kafka", "worker", "--help-all").split())
    assert all(name in whole for name in PROPERTIES)
    assert not {"sasl_password", "ssl_password"} & set(PROPERTIES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sasl_mechanisms=PLAIN", "there is no key 'sasl_mechanisms'; did you mean sasl_mechanism?"),
        ("shards=3", "there is no key 'shards'; it is the option --shards"),
        ("linger_ms", "give a value, -X linger_ms=VALUE"),
        ("linger_ms=soon", "linger_ms = 'soon'"),
    ],
)
def test_a_wrong_property_is_named(given: str, said: str) -> None:
    assert said in commands.run("kafka", "worker", "-X", given, code=2).output


def test_a_password_that_is_given_as_a_property_is_not_shown() -> None:
    result = commands.run("kafka", "worker", "-X", "sasl_password=swordfish", code=2)
    assert "sasl_password" in result.output and "swordfish" not in result.output


def test_the_help_imports_nothing_that_takes_time() -> None:
    script = (
        "import sys\n"
        "from stream_lsh.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'numba', 'numpy', 'pydantic', 'rich', 'rocksdict', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(slow)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("word", "said"), [("dedupe", "did you mean dedup?"), ("xyzzy", "there are dedup, pairs, query")]
)
def test_an_unknown_command_is_guessed_or_the_known_ones_are_named(word: str, said: str) -> None:
    assert said in commands.run(word, code=2).output
