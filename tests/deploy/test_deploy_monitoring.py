"""deploy/prometheus and deploy/grafana: only metrics that there are, and all of them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.deploy_files import DEPLOY, KUBERNETES, MANIFESTS, OURS, PORT, SEEN, SERVICES, load

from stream_lsh.judging.verdicts import Kind
from stream_lsh.kafka.run.metrics import Registry, Watch
from stream_lsh.kafka.settings import GROUP, ROLES
from stream_lsh.kafka.tools.exporter import metrics


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """What workers and `stream-lsh status` tell Prometheus: the name of each sample and its labels."""
    registry = Registry()
    watch = Watch("match", registry)
    watch.documents(1)
    watch.batch(1, 0.1)
    watch.verdicts("unique", 1)
    watch.pairs(1)
    watch.lag(0, 1)
    watch.committed()
    watch.ignored("replay")
    watch.index(0, 1, 1, 1)
    watch.log_time(1, 0)
    watch.recovery(0, 1)
    watch.restarted()
    watch.stalled("no_flow")
    watch.in_flight(1)
    watch.waited([0.1])
    watch.rejected("not_json")
    watch.grouped({"created": 1}, {"spreads": 1}, 1)
    watch.registry.aborted.labels("judge")
    text = registry.exposition()[0].decode() + metrics(SEEN).decode()
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    return [rule for group in load(DEPLOY / "prometheus" / "alerts.yml")["groups"] for rule in group["rules"]]


def dashboards() -> list[Path]:
    return sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(path.read_text(encoding="utf-8"))["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    shown = [target["expr"] for path in dashboards() for panel in panels(path) for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + [text.replace("$__rate_interval", "1m") for text in shown]


def selectors(expression: str) -> list[Any]:
    found: list[Any] = []

    def see(part: Any) -> None:
        if isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)
        elif isinstance(part, promql_parser.VectorSelector):
            found.append(part)

    promql_parser.walk(promql_parser.parse(expression), see)
    return found


@pytest.mark.parametrize("expression", expressions())
def test_expressions_ask_for_what_there_is(expression: str, samples: dict[str, set[str]]) -> None:
    known = {"role": {*ROLES, GROUP}, "kind": {kind.label for kind in Kind}, "job": jobs(), "reason": {"foreign"}}
    found = selectors(expression)
    assert found
    for selector in found:
        assert selector.name in samples, selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name in samples[selector.name] | {"job", "instance"}, matcher.name
            assert matcher.value in known[matcher.name]


def test_the_dashboard_shows_every_metric(samples: dict[str, set[str]]) -> None:
    shown = {selector.name for expression in expressions() for selector in selectors(expression)}
    bases = {name for name in samples if name.startswith("stream_lsh_") and not name.endswith("_created")}
    stem = re.compile(r"_(bucket|sum|count)$")
    assert {stem.sub("", name) for name in bases} <= {stem.sub("", name) for name in shown}


def jobs() -> set[str]:
    return {job["job_name"] for job in load(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]}


def test_prometheus_looks_at_every_worker() -> None:
    configuration = load(DEPLOY / "prometheus" / "prometheus.yml")
    (job,) = configuration["scrape_configs"]
    (names,) = job["dns_sd_configs"]
    assert names["port"] == PORT
    asked = {name for name, service in OURS.items() if service["command"][0] in ("worker", "status")}
    assert set(names["names"]) == asked
    assert all(service["command"][-1] == str(PORT) for service in OURS.values() if service["command"][0] == "status")
    for file in configuration["rule_files"]:
        assert (DEPLOY / "prometheus" / file).is_file()


def test_prometheus_finds_the_pods() -> None:
    (job,) = load(DEPLOY / "prometheus" / "kubernetes.yml")["scrape_configs"]
    assert {job["job_name"]} == jobs()
    (pods,) = job["kubernetes_sd_configs"]
    assert pods["namespaces"]["names"] == [load(KUBERNETES / "kustomization.yaml")["namespace"]]
    keep = next(rule for rule in job["relabel_configs"] if rule["action"] == "keep")
    name, port = keep["regex"].split(";")
    for _, manifest in MANIFESTS:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            template = manifest["spec"]["template"]
            assert template["metadata"]["labels"]["app.kubernetes.io/name"] == name
            assert [found["name"] for found in template["spec"]["containers"][0]["ports"]] == [port]


def test_alerts_say_what_they_mean() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    tested = load(Path(__file__).with_name("alert_tests.yml"))["tests"]
    raised = {case["alertname"] for test in tested for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert raised == set(names)


def test_promtool_agrees(promtool: str) -> None:
    for words in (
        ["check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")],
        ["test", "rules", str(Path(__file__).with_name("alert_tests.yml"))],
    ):
        result = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_dashboard_is_whole() -> None:
    (path,) = dashboards()
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{(\w+)\}", json.dumps(dashboard["panels"])))
    assert used <= variables
    (link,) = dashboard["links"]
    (page,) = [variable for variable in dashboard["templating"]["list"] if f"${{{variable['name']}}}" == link["url"]]
    (port,) = SERVICES["page"]["ports"]
    assert page["query"] == page["current"]["value"] == f"http://{port.rpartition(':')[0]}"
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].endswith(f"/{path.name}")


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = load(provisioning / "datasources" / "prometheus.yml")["datasources"]
    port = SERVICES["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    (provider,) = load(provisioning / "dashboards" / "stream-lsh.yml")["providers"]
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
