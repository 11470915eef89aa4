# SPDX-License-Identifier: Apache-2.0
"""The manifests in `deploy/` are valid Kubernetes objects, and the DaemonSet keeps its promises of least privilege.

Comes in: the YAML files as they are shipped. Goes out: one test for each promise. Won't do: run them; a real kubelet
does that in tests/rig.
"""

import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rdma_plugin.core import config

REPO = Path(__file__).parents[2]
DEPLOY = REPO / "deploy"
BASE = DEPLOY / "base"
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
OBJECT_FILES = [path for path in MANIFESTS if path.name != "kustomization.yaml"]
KUBERNETES = ("1.28", "1.31", "1.34", "1.37")
"""Versions whose schemas the manifests must fit: old, in between, newest."""
HOST_PATHS = {
    "/dev/infiniband": True,
    "/var/lib/kubelet/device-plugins": False,
    "/var/lib/kubelet/plugins_registry": False,
}
"""Every path of the host that the plugin may see, and whether it must be mounted read-only."""


def objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def daemonset() -> dict[str, Any]:
    """Return the plugin's DaemonSet."""
    (found,) = objects(BASE / "daemonset.yaml")
    return found


def pod() -> dict[str, Any]:
    """Return the plugin's pod spec."""
    spec: dict[str, Any] = daemonset()["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    """Return the plugin's only container."""
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


def walk(value: object) -> Iterator[tuple[str, object]]:
    """Yield every key and value at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key), inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


@functools.cache
def run_help() -> str:
    """Return what `rdma-plugin run --help` prints, without any white space: it may break lines at a hyphen."""
    done = subprocess.run(
        [sys.executable, "-m", "rdma_plugin", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=15,
        env={"NO_COLOR": "1", "PATH": "/usr/bin:/bin"},
    )
    return "".join(done.stdout.split())


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", OBJECT_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_object_is_valid(path: Path, version: str) -> None:
    """Each object has the fields that its Kubernetes schema knows, and no other."""
    found = objects(path)
    assert found
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)


def test_validation_is_strict() -> None:
    """A misspelt field is found: the test above can fail."""
    broken = daemonset()
    broken["spec"]["template"]["spec"]["hostNetwrk"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[-1], strict=True)


def test_kustomization_lists_exactly_the_files() -> None:
    """No manifest of the base is forgotten, and none is listed that isn't there."""
    (kustomization,) = objects(BASE / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == sorted(path.name for path in OBJECT_FILES if path.parent == BASE)


@pytest.mark.parametrize("path", sorted(BASE.glob("*.yaml")), ids=lambda path: path.name)
def test_base_lives_in_kube_system(path: Path) -> None:
    """Plain `kubectl apply -f` puts each object where the kustomization would."""
    for document in objects(path):
        if document["kind"] != "Kustomization":
            assert document["metadata"]["namespace"] == "kube-system"


def test_selector_matches_the_template() -> None:
    """The DaemonSet finds its pods, under the selector that lets it replace k8s-rdma-shared-dev-plugin in place."""
    selector = daemonset()["spec"]["selector"]["matchLabels"]
    assert selector == {"name": "rdma-shared-dp-ds"}
    assert selector.items() <= daemonset()["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    "key", ["privileged", "hostPID", "hostIPC", "hostUsers", "add", "procMount", "subPath", "hostPort"]
)
def test_never_asks_for(key: str) -> None:
    """No object of the base asks for what the plugin doesn't need; `add` would be a capability."""
    for path in BASE.glob("*.yaml"):
        assert key not in dict(walk(objects(path)))


def test_container_is_confined() -> None:
    """No new privileges, no capabilities, a read-only root file system."""
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_pod_is_confined() -> None:
    """System calls are filtered; the user is stated, not left to the image."""
    assert pod()["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_pod_has_no_token() -> None:
    """Neither the pod nor its account gets a token for the API server."""
    (account,) = objects(BASE / "serviceaccount.yaml")
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    assert pod()["automountServiceAccountToken"] is False
    assert account["automountServiceAccountToken"] is False


def test_host_paths_are_the_allowed_ones() -> None:
    """Only the known directories of the host are seen, at the same path, read-only where nothing is written."""
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in container()["volumeMounts"]}
    assert set(volumes.values()) == set(HOST_PATHS)
    for name, path in volumes.items():
        assert mounts[name]["mountPath"] == path
        assert mounts[name].get("readOnly", False) is HOST_PATHS[path]


def test_every_volume_is_mounted() -> None:
    """Nothing is mounted into the pod that the container doesn't use, and the other way round."""
    assert {volume["name"] for volume in pod()["volumes"]} == {mount["name"] for mount in container()["volumeMounts"]}


def test_update_keeps_capacity() -> None:
    """The new pod comes before the old one goes."""
    assert daemonset()["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_container_has_bounds() -> None:
    """Memory is requested and bounded, CPU requested."""
    resources = container()["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert "memory" in resources["limits"]


def test_runs_on_gpu_nodes() -> None:
    """The taints that GPU nodes commonly have are tolerated."""
    tolerated = {toleration["key"] for toleration in pod()["tolerations"]}
    assert {"nvidia.com/gpu", "amd.com/gpu"} <= tolerated


def test_image_is_this_version() -> None:
    """The image tag is the version of the project; the name carries no registry, an overlay sets that."""
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert container()["image"] == f"rdma-plugin:{version}"


@pytest.mark.slow
def test_arguments_are_real() -> None:
    """The container starts `run`, and each variable that it sets is one of its flags."""
    assert container()["args"] == ["run"]
    names = [entry["name"] for entry in container()["env"]]
    assert names
    for name in names:
        flag = "--" + name.removeprefix("RDMA_PLUGIN_").lower().replace("_", "-")
        assert flag in run_help(), f"{name}: rdma-plugin run has no {flag}"
        assert f"[envvar:{name}" in run_help(), f"rdma-plugin run doesn't read {name}"


@pytest.mark.slow
def test_host_paths_are_the_defaults_of_run() -> None:
    """The directories of the kubelet are mounted where `run` looks for them without a flag."""
    for path, is_read_only in HOST_PATHS.items():
        assert is_read_only or path in run_help()


def test_config_map_is_the_one_that_is_mounted() -> None:
    """The DaemonSet mounts the ConfigMap's only key as the file that `run` reads by default."""
    (config_map,) = objects(BASE / "configmap.yaml")
    (volume,) = (volume for volume in pod()["volumes"] if "configMap" in volume)
    (mount,) = (mount for mount in container()["volumeMounts"] if mount["name"] == volume["name"])
    assert config_map["metadata"]["name"] == volume["configMap"]["name"] == "rdma-devices"
    assert list(config_map["data"]) == ["config.json"]
    assert volume["configMap"]["items"] == [{"key": "config.json", "path": "config.json"}]
    assert mount["mountPath"] == "/etc/rdma-plugin"
    assert mount["readOnly"] is True


def test_config_map_loads() -> None:
    """The shipped configuration is one that the plugin accepts."""
    (config_map,) = objects(BASE / "configmap.yaml")
    loaded = config.parse(config_map["data"]["config.json"], "configmap.yaml")
    assert [resource.full_name for resource in loaded.config_list] == ["rdma/hca_shared_devices_a"]


@pytest.mark.parametrize("path", sorted((DEPLOY / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_example_is_unprivileged(path: Path) -> None:
    """An example pod gets its devices from the plugin alone: no hostPath, not privileged, IPC_LOCK and nothing more."""
    for document in objects(path):
        found = list(walk(document))
        assert not {key for key, _ in found} & {"privileged", "hostPath", "hostPID", "hostIPC"}
        assert all(value == ["IPC_LOCK"] for key, value in found if key == "add")


@pytest.mark.parametrize("path", sorted((DEPLOY / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_example_asks_for_the_shipped_resource(path: Path) -> None:
    """An example's pods ask for one slot of the resource that the base configures."""
    limits = [value for document in objects(path) for key, value in walk(document) if key == "limits"]
    assert limits
    assert all(limit == {"rdma/hca_shared_devices_a": 1} for limit in limits)
