"""deploy/kubernetes: each manifest by the schema of Kubernetes, and what they say against each other and the code."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.deploy_files import (
    COMPOSE,
    DEPLOY,
    KUBERNETES,
    MANIFESTS,
    OURS,
    OWN_IMAGE,
    PORT,
    UID,
    WORKLOADS,
    check_command,
    image_environment,
    load,
    named,
    parse_command,
    pods,
)

from stream_lsh.kafka.run.process import DRAIN
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.settings_sources import PREFIX, is_secret


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=named)
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_manifests_have_the_form_that_kubernetes_wants(file: str, manifest: dict[str, Any], version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) is not None


def test_the_check_of_manifests_finds_mistakes() -> None:
    manifest = next(manifest for _, manifest in MANIFESTS if manifest["kind"] == "StatefulSet")
    changed = json.loads(json.dumps(manifest))
    changed["spec"]["template"]["spec"]["containers"][0]["readyProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, "1.30", strict=True)


def test_kustomize_takes_every_file() -> None:
    kustomization = load(KUBERNETES / "kustomization.yaml")
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "credentials-example.yaml"}
    assert set(kustomization["resources"]) == files
    (settings,) = kustomization["configMapGenerator"]
    assert settings["files"] == ["settings.toml"]
    (image,) = kustomization["images"]
    assert image["name"] == OWN_IMAGE
    assert f"{image['newName']}:{image['newTag']}" == OURS["sign"]["image"]
    volumes = [volume for _, pod in pods() for volume in pod["volumes"] if volume["name"] == "settings"]
    assert {volume["configMap"]["name"] for volume in volumes} == {settings["name"]}
    assert all(
        container["image"] == OWN_IMAGE
        for _, pod in pods()
        for container in (*pod.get("initContainers", []), *pod["containers"])
    )


def test_kustomize_builds_it() -> None:
    tool = shutil.which("kustomize")
    if tool is None:
        pytest.skip("there is no kustomize here")
    result = subprocess.run([tool, "build", str(KUBERNETES)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for manifest in yaml.safe_load_all(result.stdout):
        kubernetes_validate.validate(manifest, "1.30", strict=True)


def test_the_settings_of_kubernetes_are_settings() -> None:
    settings = KafkaSettings.load(KUBERNETES / "settings.toml")
    workers = next(manifest["spec"]["replicas"] for _, manifest in MANIFESTS if manifest["kind"] == "StatefulSet")
    assert settings.standbys < workers <= settings.shards * (1 + settings.standbys)
    scaler = next(manifest["spec"] for _, manifest in MANIFESTS if manifest["kind"] == "HorizontalPodAutoscaler")
    assert scaler["maxReplicas"] <= settings.partitions


def test_secrets_are_settings_and_nowhere_else() -> None:
    secret = next(manifest for _, manifest in MANIFESTS if manifest["kind"] == "Secret")
    fields = {name.removeprefix(PREFIX).lower() for name in secret["stringData"]}
    assert fields <= KafkaSettings.model_fields.keys()
    secrets = {name for name, field in KafkaSettings.model_fields.items() if is_secret(field.annotation)}
    for path in (COMPOSE, *DEPLOY.rglob("*")):
        if path.is_file() and path.name != "credentials-example.yaml":
            text = path.read_text(encoding="utf-8").lower()
            assert not any(name in text for name in secrets), path
    for name, pod in pods():
        (source,) = pod["containers"][0]["envFrom"]
        assert source == {"secretRef": {"name": secret["metadata"]["name"], "optional": True}}, name


def test_kubernetes_runs_every_role_once_and_commands_that_there_are() -> None:
    roles: list[str] = []
    for name, pod in pods():
        (container,) = pod["containers"]
        check_command(container["args"])
        config = parse_command(container["args"])["config"]
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "settings"]
        assert Path(config) == Path(mount["mountPath"]) / "settings.toml", name
        if container["args"][0] == "worker":
            roles += container["args"][container["args"].index("--roles") + 1].split(",")
    assert sorted(roles) == sorted(ROLES)


def test_pods_have_few_rights() -> None:
    for name, pod in pods():
        # The variables that a service's link brings along begin with its name, ours with STREAM_LSH_.
        assert pod["enableServiceLinks"] is False, name
        assert pod["automountServiceAccountToken"] is False, name
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == UID, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


def test_pods_can_write_where_they_have_to() -> None:
    needed = {image_environment()["XDG_CACHE_HOME"], "/tmp"}
    for _, manifest in MANIFESTS:
        if manifest["kind"] not in WORKLOADS:
            continue
        name, pod = manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
        claims = {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
        known = {volume["name"] for volume in pod["volumes"]} | claims
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert set(mounts.values()) <= known, name
        assert needed <= mounts.keys(), name
        if name not in ("topics", "status"):
            data = mounts[image_environment()["STREAM_LSH_DATA_FOLDER"]]
            assert (data in claims) == (name == "match"), name


def test_probes_wait_longer_than_a_worker_does() -> None:
    give_up = KafkaSettings.load(KUBERNETES / "settings.toml").give_up_seconds
    for name, pod in pods():
        if name == "topics":
            continue
        (container,) = pod["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"metrics": PORT}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/health", "port": "metrics"}, name
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["periodSeconds"] * container[probe]["failureThreshold"] > give_up, name


def test_pods_have_time_to_stop() -> None:
    for name, pod in pods():
        if name != "topics":
            assert pod["terminationGracePeriodSeconds"] > DRAIN + 10, name


def test_selectors_meet_their_pods() -> None:
    labels = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["metadata"]["labels"]
        for _, manifest in MANIFESTS
        if manifest["kind"] in WORKLOADS
    }
    assert len({json.dumps(found, sort_keys=True) for found in labels.values()}) == len(labels)
    for _, manifest in MANIFESTS:
        kind, name, spec = manifest["kind"], manifest["metadata"]["name"], manifest.get("spec", {})
        if kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            assert spec["selector"]["matchLabels"] == labels[name], (kind, name)
        if kind == "Service":
            assert spec["selector"] == labels[name]
            assert spec["clusterIP"] == "None"
        if kind == "StatefulSet":
            assert any(m["kind"] == "Service" and m["metadata"]["name"] == spec["serviceName"] for _, m in MANIFESTS)
        if kind == "HorizontalPodAutoscaler":
            target = spec["scaleTargetRef"]
            (workload,) = [m for _, m in MANIFESTS if m["kind"] == target["kind"] and m["metadata"]["name"] == name]
            assert target["name"] == name
            assert "replicas" not in workload["spec"]  # the two would set it in turns


def test_pods_say_where_their_metrics_are() -> None:
    for _, manifest in MANIFESTS:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            assert manifest["spec"]["template"]["metadata"]["annotations"] == {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(PORT),
                "prometheus.io/path": "/metrics",
            }
