"""What every test starts from: the installed package, real data, signals as in a terminal, no example too slow."""

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from support.missing import missing

import stream_lsh
from stream_lsh.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROOT = Path(__file__).parents[1]
# bench is not installed. Its folder comes last, so that stream_lsh stays the installed one.
sys.path.append(str(ROOT))
# Processes that tests start find what tests share, and do not find the sources in the folder that they start in.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
os.environ["PYTHONSAFEPATH"] = "1"
os.environ["PYTHONFAULTHANDLER"] = "1"  # one that hangs prints its stacks (tests/support/hang.py)

# A machine that others use may be slow for a while, which says nothing about an example.
settings.register_profile("tests", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A job that a script starts in the background ignores Ctrl-C, and so would the programs that the tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"stream_lsh: {Path(stream_lsh.__file__).parent}"


def pytest_configure() -> None:
    """In CI the sources beside the tests would hide what the wheel lacks."""
    if os.environ.get("CI") and Path(stream_lsh.__file__).is_relative_to(ROOT / "stream_lsh"):
        raise pytest.UsageError("CI tests the installed wheel, and stream_lsh comes from the sources")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Processes of one run load the test modules from different places on: in a fresh clone each of them would rewrite
    the assertions of all modules."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not number or session.config.args != session.config.getini("testpaths"):
        return
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    begin = int(number) * len(modules) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in modules[begin:] + modules[:begin]:
        sys.path.insert(0, str(path.parent))
        with suppress(Exception, pytest.skip.Exception):  # collecting it says so
            importlib.import_module(path.stem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A test's handlers of signals end with it: the programs that later tests start would inherit an ignored one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the environment."""
    for name in KafkaSettings.model_fields:
        monkeypatch.delenv(f"STREAM_LSH_{name.upper()}", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data with exact truth: $STREAM_LSH_DATA, or ../shared/data beside the project."""
    folder = Path(os.environ.get("STREAM_LSH_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        missing(f"no real data at {folder}; set STREAM_LSH_DATA")
    return folder


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus' tool for rules (CONTRIBUTING.md says where it comes from)."""
    return shutil.which("promtool") or missing("there is no promtool")


@pytest.fixture(scope="module")
def chrome() -> Iterator["Chrome"]:
    """A headless Chromium."""
    from bench.browser import browser, installed  # here: few tests need it

    if not installed():
        missing("there is no chromium with chromedriver (CONTRIBUTING.md)")
    with browser() as driver:
        yield driver
