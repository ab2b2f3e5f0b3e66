"""docker-compose.yml, that of examples, and deploy/kubernetes: by their schemas, as built, and against the code."""

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.deploy_files import (
    COMPOSE,
    DEPLOY,
    KUBERNETES,
    PORT,
    ROOT,
    UID,
    WORKLOADS,
    check_command,
    image_environment,
    load,
    manifests,
    name_of,
    of_kind,
    own_services,
    parse_command,
    pods,
    services,
)
from support.missing import missing

from stream_lsh.alerts.rules import read_rules
from stream_lsh.demo.on_kafka import SETTINGS
from stream_lsh.kafka.run.process import DRAIN
from stream_lsh.kafka.settings import GROUP, ROLES, KafkaSettings
from stream_lsh.serve.tokens import Tokens, read_tokens
from stream_lsh.settings.errors import is_secret
from stream_lsh.settings.model import Settings
from stream_lsh.settings.sources import PREFIX

pytestmark = pytest.mark.long  # the gate has the tools


FILES = {
    "compose-spec": [COMPOSE, ROOT / "examples" / "docker-compose.yml"],
    "github-workflows": sorted((ROOT / ".github" / "workflows").iterdir()),
}


@pytest.mark.parametrize("schema", FILES)
def test_files_have_the_form_of_their_specification(schema: str) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, FILES[schema]),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_compose_runs_every_role_and_commands_that_there_are() -> None:
    roles: list[str] = []
    for name, service in own_services().items():
        if "entrypoint" in service:
            (script,) = service["command"]
            for part in script.split("|"):
                program, *words = shlex.split(part)
                assert program == "stream-lsh", name
                check_command(words)
            continue
        check_command(service["command"])
        if service["command"][:2] == ["kafka", "worker"] and not service.get("profiles"):
            roles += service["command"][service["command"].index("--roles") + 1].split(",")
            assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN
    assert sorted(roles) == sorted((*ROLES, GROUP))


def test_the_settings_of_compose_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (image_environment() | own_services()["sign"]["environment"]).items():
        if name.startswith(PREFIX):
            assert name.removeprefix(PREFIX).lower() in KafkaSettings.model_fields, name
            monkeypatch.setenv(name, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value))
    settings = KafkaSettings.load(None)
    assert settings.text_field == ("title", "text")  # where the demo's feed has its text
    assert settings.http_port == PORT
    advertised = services()["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert dict(entry.split("://") for entry in advertised.split(",")) == {
        "INSIDE": settings.bootstrap_servers, "OUTSIDE": KafkaSettings.model_fields["bootstrap_servers"].default
    }  # fmt: skip


@pytest.mark.parametrize("name", ["serve", "page"])
def test_compose_serves_with_tokens(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    service = services()[name]
    given = parse_command(service["command"])
    assert given["token_file"]
    if name == "page":
        assert given["kafka"] and service["environment"] == services()["sign"]["environment"]
        return
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, value)
        assert variable.removeprefix(PREFIX).lower() in Settings.model_fields
    assert Settings.load(None).text_field == ("title", "text")


OVER = ROOT / "examples" / "docker-compose.yml"
FIXED = ("topics", "sign", "match", "control", "feed", "live-page")  # services that need the settings of the pipeline


def merged() -> dict[str, dict[str, Any]]:
    """The services of both files, as `docker compose -f … -f …` merges them."""
    found: dict[str, dict[str, Any]] = dict(load(COMPOSE)["services"])
    for name, service in load(OVER)["services"].items():
        before = found.get(name, {})
        environment = {**before.get("environment", {}), **service.get("environment", {})}
        volumes = [*before.get("volumes", []), *service.get("volumes", [])]
        found[name] = {**before, **service, "environment": environment, "volumes": volumes}
    return found


def mounted(path: str, name: str) -> Path:
    """The file of the repository that a service sees at a path."""
    source, _, target = merged()[name]["volumes"][-1].removesuffix(":ro").rpartition(":")
    assert path.startswith(f"{target}/"), path
    return ROOT / source / path.removeprefix(f"{target}/")


def test_it_names_only_what_there_is() -> None:
    services = merged()
    images = {service["image"] for service in load(COMPOSE)["services"].values()}
    for name in load(OVER)["services"]:
        service = services[name]
        assert service["image"] in images, name
        assert service.get("depends_on", {}).keys() <= services.keys(), name
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in load(COMPOSE)["volumes"] or (ROOT / source).is_dir(), f"{name}: {source}"


def test_its_commands_and_programs_exist() -> None:
    for name, service in load(OVER)["services"].items():
        if "entrypoint" in service:
            program, script = service["entrypoint"]
            assert program == "python" and mounted(script, name).is_file(), name
        elif name == "feed":
            for part in service["command"][0].split("|"):
                check_command(shlex.split(part)[1:])
        elif "command" in service:
            check_command(service["command"])


@pytest.mark.parametrize("name", FIXED)
def test_the_pipeline_has_the_settings_of_the_demo(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in (image_environment() | merged()[name]["environment"]).items():
        if variable.startswith(PREFIX) and "$" not in value:
            monkeypatch.setenv(variable, value)
    settings = KafkaSettings.load(None)
    for field, value in SETTINGS.items():
        assert getattr(settings, field) == (tuple(value) if isinstance(value, list) else value), field
    if name == "control":
        assert settings.alerts is not None
        assert [rule.name for rule in read_rules(mounted(str(settings.alerts), name))] == ["spreads"]


def test_the_page_takes_the_token_that_is_named() -> None:
    service = merged()["live-page"]
    given = parse_command(service["command"])
    assert service["ports"] == [f"127.0.0.1:{given['port']}:{given['port']}"], "its token is public"
    path = mounted(str(given["token_file"]), "live-page")
    Tokens(path)
    assert tomllib.loads(path.read_text())["demo"]["sha256"] == hashlib.sha256(b"demo").hexdigest()


SERVE = KUBERNETES / "serve"


@pytest.mark.parametrize("folder", [KUBERNETES, SERVE], ids=lambda folder: folder.name)
def test_kubernetes_takes_what_kustomize_builds(folder: Path, tmp_path: Path) -> None:
    import kubernetes_validate

    kubectl = shutil.which("kubectl") or missing("there is no kubectl")
    copy = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    copied = copy / folder.relative_to(KUBERNETES)
    listed = copied / "kustomization.yaml"
    listed.write_text(re.sub(r"# (- \w+\.yaml)", r"\1", listed.read_text()))  # also what is optional
    done = subprocess.run([kubectl, "kustomize", str(copied)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    examples = of_kind(folder, "Secret")  # those are filled in and applied by hand
    for version in ("1.30", kubernetes_validate.latest_version()):
        for manifest in (*built, *examples):
            kubernetes_validate.validate(manifest, version, strict=True)
    names = {(manifest["kind"], name_of(manifest)) for manifest in built}
    assert {(manifest["kind"], name_of(manifest)) for manifest in manifests(folder) if manifest not in examples} < names
    (settings,) = (name for kind, name in names if kind == "ConfigMap")  # with a hash of its content
    for manifest in built:
        if manifest["kind"] in WORKLOADS:
            pod = manifest["spec"]["template"]["spec"]
            maps = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
            assert maps == [settings]
            assert {container["image"] for container in containers(pod)} == {own_services()["sign"]["image"]}


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_pods_have_few_rights_and_limits() -> None:
    for name, pod in (*pods(), *pods(SERVE)):
        # The variables that a service's link brings along begin with its name, ours with STREAM_LSH_.
        assert pod["enableServiceLinks"] is pod["automountServiceAccountToken"] is False, name
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == UID, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }, name  # fmt: skip
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
            assert "memory" in container["resources"]["limits"], name


def test_workers_and_services_can_write_where_they_have_to() -> None:
    needed = {image_environment()["XDG_CACHE_HOME"], "/tmp"}
    for manifest in (*of_kind(KUBERNETES, *WORKLOADS), *of_kind(SERVE, *WORKLOADS)):
        name, pod = name_of(manifest), manifest["spec"]["template"]["spec"]
        claims = {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert needed <= mounts.keys(), name
        if name not in ("topics", "status"):
            data = mounts[image_environment()["STREAM_LSH_DATA_FOLDER"]]
            assert (data in claims) == (name in ("match", "serve")), name


def test_the_settings_of_kubernetes_are_settings() -> None:
    settings = KafkaSettings.load(KUBERNETES / "settings.toml")
    (match,) = of_kind(KUBERNETES, "StatefulSet")
    assert settings.standbys < match["spec"]["replicas"] <= settings.shards * (1 + settings.standbys)
    (scaler,) = of_kind(KUBERNETES, "HorizontalPodAutoscaler")
    assert scaler["spec"]["maxReplicas"] <= settings.partitions


def test_secrets_are_settings_and_nowhere_else() -> None:
    (secret,) = of_kind(KUBERNETES, "Secret")
    fields = {name.removeprefix(PREFIX).lower() for name in secret["stringData"]}
    assert fields <= KafkaSettings.model_fields.keys()
    secrets = {name for name, field in KafkaSettings.model_fields.items() if is_secret(field.annotation)}
    for path in (COMPOSE, *DEPLOY.rglob("*")):
        if path.is_file() and path.name != "credentials-example.yaml":
            text = path.read_text(encoding="utf-8").lower()
            assert not any(name in text for name in secrets), path
    for name, pod in pods():
        assert pod["containers"][0]["envFrom"][0] == {"secretRef": {"name": name_of(secret), "optional": True}}, name


def test_kubernetes_runs_every_role_once_and_commands_that_there_are() -> None:
    roles: list[str] = []
    for name, pod in pods():
        (container,) = pod["containers"]
        check_command(container["args"])
        config = parse_command(container["args"])["config"]
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "settings"]
        assert Path(config) == Path(mount["mountPath"]) / "settings.toml", name
        if container["args"][:2] == ["kafka", "worker"]:
            roles += container["args"][container["args"].index("--roles") + 1].split(",")
    assert sorted(roles) == sorted(ROLES)


def test_probes_wait_longer_than_a_worker_does_and_there_is_time_to_stop() -> None:
    give_up = KafkaSettings.load(KUBERNETES / "settings.toml").give_up_seconds
    for name, pod in pods():
        if name in ("topics", "page", "alerts"):
            continue
        assert pod["terminationGracePeriodSeconds"] > DRAIN + 10, name
        (container,) = pod["containers"]
        assert container["ports"] == [{"name": "metrics", "containerPort": PORT}], name
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/health", "port": "metrics"}, name
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["periodSeconds"] * container[probe]["failureThreshold"] > give_up, name


def test_the_service_has_one_owner_of_its_index_and_a_command_that_names_what_is_mounted() -> None:
    (manifest,) = of_kind(SERVE, "StatefulSet")
    assert manifest["spec"]["replicas"] == 1
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe"):  # opening its index may take as long as it needs
        assert container[probe]["httpGet"]["path"] == "/health/live"
    given = parse_command(container["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert [mounts[str(given[name].parent)] for name in ("folder", "token_file", "config")] == [
        "data", "tokens", "settings"
    ]  # fmt: skip
    assert Settings.load(SERVE / given["config"].name).source_field == "source"


def test_the_tokens_of_the_example_allow_no_request(tmp_path: Path) -> None:
    (secret,) = of_kind(SERVE, "Secret")
    ((name, text),) = secret["stringData"].items()
    (tmp_path / name).write_text(text)
    (holder,) = read_tokens(tmp_path / name)
    assert set(holder.sha256) == {"0"}
