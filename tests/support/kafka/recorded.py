"""What Prometheus would have stored of metrics that were really told, for its own evaluation of the alerts."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
STEP = 15  # seconds between two scrapes
AGES = ("stream_lsh_oldest_provisional_seconds", "stream_lsh_role_lag_seconds")  # what grows while nothing moves
NOW = "_timestamp_seconds"  # of the clock that runs here; in the test it begins with 0


def scraped(port: int) -> str | None:
    """The metrics of a process of this machine, if it answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=3) as answer:
            return str(answer.read(), "utf-8")
    except (OSError, urllib.error.URLError):
        return None


class Recorded:
    """Scrapes, one after the other; each may stand for minutes in which nothing changes."""

    def __init__(self) -> None:
        self._series: dict[str, list[str]] = {}
        self._expected: dict[float, set[str]] = {}
        self._scrapes = 0

    @property
    def minutes(self) -> float:
        return self._scrapes * STEP / 60

    def scrape(self, minutes: float, reported: Mapping[str, str | None]) -> None:
        """What is told now, by instance (None: it does not answer), for as many minutes."""
        times = int(minutes * 60 / STEP)
        for instance, text in reported.items():
            self._add(f'up{{job="stream-lsh", instance="{instance}"}}', [float(text is not None)] * times)
            for family in text_string_to_metric_families(text or ""):
                for sample in family.samples:
                    labels = "".join(f", {name}={json.dumps(value)}" for name, value in sample.labels.items())
                    series = f'{sample.name}{{job="stream-lsh", instance="{instance}"{labels}}}'
                    self._add(series, self._values(sample.name, sample.value, times))
        self._scrapes += times

    def _values(self, name: str, value: float, times: int) -> list[float]:
        if name in AGES and value:
            return [value + number * STEP for number in range(times)]
        if name.endswith(NOW) and value:
            value += self._scrapes * STEP - time.time()
        return [value] * times

    def _add(self, series: str, values: list[float]) -> None:
        found = self._series.setdefault(series, [])
        found += ["_"] * (self._scrapes - len(found)) + [f"{value:.10g}" for value in values]

    def expect(self, *alerts: str, ago: float = 0) -> None:
        """Just these are raised now, or some minutes ago."""
        self._expected[self.minutes - ago] = set(alerts)

    def check(self, promtool: str, folder: Path) -> None:
        """Whether it was as expected."""
        test = {
            "interval": f"{STEP}s",
            "input_series": [{"series": name, "values": " ".join(values)} for name, values in self._series.items()],
            "promql_expr_test": [
                {
                    "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{int(at * 60) - STEP}s",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
                }
                for at, alerts in self._expected.items()
            ],
        }
        path = folder / "recorded.yml"
        path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": [test]}))
        result = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
