"""The documentation keeps step with the code: settings, links, examples, commands."""

import re
import tomllib
from pathlib import Path

import click
import pytest
from markup import FENCE, LINK, blocks

from stream_lsh import __version__
from stream_lsh.cli import main
from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.judging.events import Change
from stream_lsh.judging.verdicts import EMPTY, ID_REUSED, Kind
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """The names under which a page's headings can be linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(path: Path) -> None:
    for _, target in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other.read_text(encoding="utf-8")), target


def test_menu_of_the_site_has_every_page_once() -> None:
    listed = re.findall(r'"([\w/-]+\.md)"', page("zensical.toml"))
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))


def test_start_page_leads_to_every_tutorial_and_guide() -> None:
    docs, index = ROOT / "docs", page("docs/index.md")
    guides = [*(docs / "how-to").glob("*.md"), *(docs / "tutorials").glob("*.md")]
    assert [path.name for path in guides if f"({path.relative_to(docs).as_posix()})" not in index] == []


def test_readme_has_every_extra() -> None:
    extras = set(tomllib.loads(page("pyproject.toml"))["project"]["optional-dependencies"])
    shown = {name for found in re.findall(r"'\.\[([\w,]+)\]'", page("README.md")) for name in found.split(",")}
    assert shown <= extras and extras - shown == {"nightly", "quix", "gate", "bench", "dev"}  # of tests and benchmarks


def test_every_kafka_command_has_its_permissions() -> None:
    group = resolve(["kafka"])
    assert isinstance(group, click.Group)
    section = page("docs/how-to/connect-your-topic.md").partition("| role | reads | writes |")[2]
    named = set(re.findall(r"`kafka ([\w-]+)", section)) | {"worker", "status"}  # by role, and in the table above
    assert set(group.list_commands(click.Context(group))) - named == {"broker"}


def test_permissions_of_a_service_have_the_topics_that_its_copy_reads() -> None:
    topics = Topics.of(KafkaSettings())
    section = page("docs/how-to/serve.md").partition("### Permissions on Kafka")[2].partition("\n## ")[0]
    for topic in (topics.changelog, topics.decisions, topics.matches):
        assert f"`PREFIX.{topic.removeprefix(f'{topics.prefix}.')}`" in section


def test_every_kind_event_and_reason_is_described() -> None:
    text = page("docs/reference/outputs.md") + page("docs/reference/errors.md")
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "stream_lsh").rglob("*.py")))
    reasons = set(re.findall(r'(?:Refused|Rejection)\(\s*"(\w+)"', sources))
    reasons |= {EMPTY.reason, ID_REUSED.reason, ENGINE_ERROR}
    assert {"not_json", "too_large", "bad_time"} <= reasons
    for name in reasons | {kind.label for kind in Kind} | {change.label for change in Change}:
        assert f"| `{name}` |" in text, name


def resolve(words: list[str]) -> click.Command | None:
    """The command that the words behind `stream-lsh` begin with, down to a command of a group."""
    command: click.Command | None = main
    for word in words:
        if not isinstance(command, click.Group) or (command.invoke_without_command and word.startswith("-")):
            break
        command = command.get_command(click.Context(command), word)
        if command is None:
            return None
    return command


def test_commands_in_the_pages_exist_and_have_the_options_shown() -> None:
    seen = 0
    for path in PAGES:
        for block in blocks(path.read_text(encoding="utf-8"), "sh", "console", "ini"):
            for line in re.findall(
                r"(?<!-n )(?<!--namespace )stream-lsh (\w[^|>\n#]*)", block
            ):  # a namespace is no command
                words = line.split()
                command = resolve(words)
                assert command is not None, f"{path.name}: {line}"
                assert not isinstance(command, click.Group) or command.invoke_without_command, f"{path.name}: {line}"
                known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
                for option in re.findall(r"(?<!\S)--[\w-]+", line):
                    assert option in known, f"{path.name}: {line}"
                    seen += 1
    assert seen > 10


def test_modules_in_the_tour_exist() -> None:
    package = ROOT / "stream_lsh"
    found = {
        path.relative_to(package).with_suffix("").as_posix()
        for path in package.rglob("*")
        if path.is_dir() or path.suffix == ".py"
    }
    cells = re.findall(r"^\| (`[^|]+) \|", page("docs/internals/modules.md"), re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([\w/]+)`", cell)}
    assert len(named) > 100
    assert named <= found


def test_pages_named_in_code_exist() -> None:
    """A docstring, a message or a manifest names pages by their path from the root of the project."""
    for folder in ("stream_lsh", "deploy", "bench", ".ci", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yml", ".yaml", ".toml", ".html", ".md"):
                for name in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
                    assert name.endswith("/ALERT.md") or (ROOT / name).exists(), f"{path}: {name}"


def test_images_have_the_version_of_the_package() -> None:
    assert f'version = "{__version__}"' in page("pyproject.toml")
    for name in (
        "docker-compose.yml", "examples/docker-compose.yml", "deploy/kubernetes/kustomization.yaml",
        "deploy/kubernetes/serve/kustomization.yaml", "docs/how-to/kubernetes.md",
    ):  # fmt: skip
        tags = re.findall(r"(?:stream-lsh:|newTag: )([\d.]+)", page(name))
        assert set(tags) == {__version__}, name
