"""deploy/kubernetes/serve and the services over HTTP of docker-compose.yml."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from support.deploy_files import (
    KUBERNETES,
    OWN_IMAGE,
    SERVICES,
    UID,
    documents,
    image_environment,
    load,
    named,
    parse_command,
)

from stream_lsh.settings import Settings
from stream_lsh.settings_sources import PREFIX

FOLDER = KUBERNETES / "serve"
FILES = ["serve.yaml", "tokens-example.yaml"]
MANIFESTS = [manifest for file in FILES for manifest in documents(FOLDER / file)]
(SET,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "StatefulSet"]
POD: dict[str, Any] = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=named)
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_manifests_have_the_form_that_kubernetes_wants(manifest: dict[str, Any], version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) is not None


def test_kustomize_takes_what_is_there() -> None:
    kustomization = load(FOLDER / "kustomization.yaml")
    assert {*kustomization["resources"], "kustomization.yaml", "tokens-example.yaml"} == {
        path.name for path in FOLDER.glob("*.yaml")
    }
    assert load(FOLDER / "namespace.yaml") == load(KUBERNETES / "namespace.yaml")  # whichever is applied first
    assert kustomization["images"] == load(KUBERNETES / "kustomization.yaml")["images"]
    (settings,) = kustomization["configMapGenerator"]
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == settings["name"]
    secret = next(manifest for manifest in MANIFESTS if manifest["kind"] == "Secret")
    assert volumes["tokens"]["secret"]["secretName"] == secret["metadata"]["name"]
    if tool := shutil.which("kustomize"):
        subprocess.run([tool, "build", str(FOLDER)], check=True, capture_output=True)


def test_the_tokens_of_the_example_let_nobody_in(tmp_path: Path) -> None:
    from stream_lsh.serve.tokens import read_tokens

    (secret,) = [manifest for manifest in MANIFESTS if manifest["kind"] == "Secret"]
    ((name, text),) = secret["stringData"].items()
    (tmp_path / name).write_text(text)
    (holder,) = read_tokens(tmp_path / name)
    assert set(holder.sha256) == {"0"}


def test_its_command_is_one_and_names_what_is_mounted() -> None:
    given = parse_command(CONTAINER["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert CONTAINER["image"] == OWN_IMAGE
    assert mounts[str(given["state"].parent)] == "data" == SET["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]
    assert mounts[str(given["token_file"].parent)] == "tokens"
    assert mounts[str(given["config"].parent)] == "settings"
    assert {image_environment()["XDG_CACHE_HOME"], "/tmp"} <= mounts.keys()
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": given["port"]}]
    assert Settings.load(FOLDER / given["config"].name).source_field == "source"


def test_its_pod_has_few_rights_and_one_owner_of_the_index() -> None:
    assert SET["spec"]["replicas"] == 1
    assert POD["enableServiceLinks"] is POD["automountServiceAccountToken"] is False
    context = POD["securityContext"]
    assert context["runAsNonRoot"] and context["runAsUser"] == context["fsGroup"] == UID
    for container in (*POD["initContainers"], CONTAINER):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert "memory" in container["resources"]["limits"]
    for probe, path in (("startupProbe", "ready"), ("readinessProbe", "ready"), ("livenessProbe", "live")):
        assert CONTAINER[probe]["httpGet"] == {"path": f"/health/{path}", "port": "http"}


def test_compose_serves_with_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    service = SERVICES["serve"]
    given = parse_command(service["command"])
    assert service["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"]
    assert str(given["token_file"]) == f"/run/secrets/{service['secrets'][0]}"
    assert service["volumes"] == [f"serve-data:{given['state'].parent}"]
    assert service["healthcheck"]["test"][-1].count(f"http://127.0.0.1:{given['port']}/health/ready") == 1
    assert service["profiles"] == ["serve"] and "depends_on" not in service  # it needs no Kafka
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, value)
        assert name.removeprefix(PREFIX).lower() in Settings.model_fields
    assert Settings.load(None).text_field == ("title", "text")


def test_compose_serves_the_pipeline_with_tokens() -> None:
    service = SERVICES["page"]
    given = parse_command(service["command"])
    assert given["kafka"] and service["environment"] == SERVICES["sign"]["environment"]  # the settings of the workers
    assert service["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"]
    assert str(given["token_file"]) == f"/run/secrets/{service['secrets'][0]}"
    assert service["healthcheck"]["test"][-1].count(f"http://127.0.0.1:{given['port']}/health/ready") == 1
    assert service["profiles"] == ["page"] and service["depends_on"]["topics"]
