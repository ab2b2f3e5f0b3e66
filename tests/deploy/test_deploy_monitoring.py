"""deploy/prometheus and deploy/grafana: only metrics that there are, and all of them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.deploy_files import DEPLOY, load
from support.exposition import exposition
from support.pages import METRICS, rows

from stream_lsh.documents.engine_errors import ENGINE_ERROR
from stream_lsh.judging.verdicts import Kind
from stream_lsh.kafka.run.metrics import FOREIGN
from stream_lsh.kafka.settings import GROUP, ROLES

pytestmark = pytest.mark.long  # the gate has the tools

ALERTS = DEPLOY / "prometheus" / "alerts.yml"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
TESTS = Path(__file__).with_name("alert_tests.yml")


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """What is told to Prometheus: the name of each sample and its labels."""
    from prometheus_client.parser import text_string_to_metric_families

    # The samples of a service, by the table of its metrics. tests/serve compares the table with a service.
    seen = {}
    for name, labels, meaning in rows(METRICS, "metric of serve"):
        kinds = ("_bucket", "_sum", "_count") if meaning.startswith("histogram") else ("",)
        for kind in kinds:
            seen[name.strip("`") + kind] = {*labels.split(", "), *(["le"] if kind == "_bucket" else [])} - {""}
    found: dict[str, set[str]] = {"up": set(), "process_resident_memory_bytes": set()} | seen
    for family in text_string_to_metric_families(exposition()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    """What the alerts and the dashboards ask for."""
    asked = [rule["expr"] for group in load(ALERTS)["groups"] for rule in group["rules"]]
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            asked += [target["expr"].replace("$__rate_interval", "1m") for target in panel.get("targets", [])]
    return asked


def selectors(expression: str) -> list[Any]:
    import promql_parser

    found: list[Any] = []

    def see(part: Any) -> None:
        if isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)
        elif isinstance(part, promql_parser.VectorSelector):
            found.append(part)

    promql_parser.walk(promql_parser.parse(expression), see)
    return found


def test_expressions_ask_for_what_there_is(samples: dict[str, set[str]]) -> None:
    jobs = {job["job_name"] for job in load(PROMETHEUS)["scrape_configs"]}
    reasons = {FOREIGN, ENGINE_ERROR}
    known = {"role": {*ROLES, GROUP}, "kind": {kind.label for kind in Kind}, "job": jobs, "reason": reasons}
    for expression in expressions():
        found = selectors(expression)
        assert found, expression
        for selector in found:
            assert selector.name in samples, expression
            for matcher in selector.matchers.matchers:
                assert matcher.name in samples[selector.name] | {"job", "instance"}, expression
                assert matcher.value in known[matcher.name], expression


def test_alerts_and_dashboards_show_every_metric(samples: dict[str, set[str]]) -> None:
    shown = {selector.name for expression in expressions() for selector in selectors(expression)}
    bases = {name for name in samples if name.startswith("stream_lsh_") and not name.endswith("_created")}
    stem = re.compile(r"_(bucket|sum|count)$")
    assert {stem.sub("", name) for name in bases} <= {stem.sub("", name) for name in shown}


def test_promtool_agrees_and_every_alert_is_tested(promtool: str) -> None:
    for words in (["check", "config", "--syntax-only", str(PROMETHEUS)], ["test", "rules", str(TESTS)]):
        result = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
    raised = {
        case["alertname"] for test in load(TESTS)["tests"] for case in test["alert_rule_test"] if case["exp_alerts"]
    }
    assert raised == {rule["alert"] for group in load(ALERTS)["groups"] for rule in group["rules"]}
