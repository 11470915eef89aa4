# SPDX-License-Identifier: Apache-2.0
"""The real plugin process against a kubelet: the same cases for the fake kubelet's two rules and for real kubelets."""

import socket
from pathlib import Path

import pytest

from tests.e2e.conftest import Kubelet, plugin, write_config
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import PluginProcess
from tests.rig.kubelet import PodResult

RESOURCE = "rdma/hca_shared_devices_a"
SHOW = (
    'for n in /dev/infiniband/*; do [ -c "$n" ] && echo "dev $n rw"; done; env | sed "s/^/env /"; echo shown; sleep 600'
)
"""What a pod runs to show its nodes and variables in the fake kubelet's words."""
ALL = {str(number): True for number in range(200)}

pytestmark = pytest.mark.slow


def shown(kubelet: Kubelet, name: str, count: int = 1) -> tuple[set[str], dict[str, str]]:
    """Run a pod that asks for `count` slots; return the nodes and the variables that it sees."""
    if isinstance(kubelet, FakeKubelet):
        pod = kubelet.run_pod(name, {RESOURCE: count}, SHOW)
    else:
        pod = kubelet.run_pod(name, {RESOURCE: count}, SHOW, until=has_shown)
    assert pod.phase == "Running", pod
    lines = [line.split(" ", 1) for line in pod.logs.splitlines()]
    devices = {line[1].split()[0] for line in lines if line[0] == "dev"}
    env = dict(line[1].split("=", 1) for line in lines if line[0] == "env" and "=" in line[1])
    return devices, env


def has_shown(pod: PodResult) -> bool:
    """The pod has written what it sees and is known to run, or it is over."""
    return pod.phase == "Failed" or (pod.phase == "Running" and "shown" in pod.logs)


def our_sockets(kubelet: Kubelet) -> list[Path]:
    """The sockets of the plugin in both of the kubelet's directories."""
    folders = (kubelet.device_plugin_dir, kubelet.plugin_registry_dir)
    return [path for folder in folders if folder.exists() for path in folder.iterdir() if "rdma-plugin" in path.name]


@pytest.mark.parametrize("registration", ["kubelet", "watcher", "auto"])
def test_pod_gets_the_nodes_of_its_hca(kubelet: Kubelet, node: Path, config: Path, registration: str) -> None:
    """200 slots are listed; a pod that asks for one sees rdma_cm and ibs108's uverbs, and nothing else."""
    with plugin(kubelet, node, config, registration) as process:
        assert kubelet.wait_slots(RESOURCE, 200) == ALL
        devices, env = shown(kubelet, "one")
        assert devices == {"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}
        assert env["RDMA_HCA_SHARED_DEVICES_A"] == "mlx5_0"
        (slots,) = kubelet.allocated(RESOURCE).values()
        assert len(slots) == 1
        assert slots[0] in ALL
        assert process.stop() == 0
    assert our_sockets(kubelet) == []


def test_two_pods_share_the_hca(kubelet: Kubelet, node: Path, config: Path) -> None:
    """Two pods get the same nodes and different slots."""
    with plugin(kubelet, node, config):
        kubelet.wait_slots(RESOURCE, 200)
        first, second = shown(kubelet, "first"), shown(kubelet, "second", 2)
        assert first[0] == second[0] == {"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}
        slots = kubelet.allocated(RESOURCE)
        assert sorted(map(len, slots.values())) == [1, 2]
        assert len({slot for ids in slots.values() for slot in ids}) == 3


def test_pod_that_asks_for_too_much_is_not_admitted(kubelet: Kubelet, node: Path, config: Path) -> None:
    """201 of 200 slots: the kubelet refuses the pod with its own reason, and the next pod still runs."""
    with plugin(kubelet, node, config):
        kubelet.wait_slots(RESOURCE, 200)
        pod = kubelet.run_pod("greedy", {RESOURCE: 201}, SHOW)
        assert (pod.phase, RESOURCE in pod.message) == ("Failed", True), pod
        assert pod.reason.startswith(("OutOf", "UnexpectedAdmissionError")), pod
        shown(kubelet, "modest")


def test_node_that_vanished_is_refused_with_the_reason(kubelet: Kubelet, node: Path, config: Path) -> None:
    """With its uverbs node gone, Allocate fails: the pod's status names the node instead of a pod with a dead path."""
    with plugin(kubelet, node, config):
        kubelet.wait_slots(RESOURCE, 200)
        (node / "dev/infiniband/uverbs0").unlink()
        pod = kubelet.run_pod("refused", {RESOURCE: 1}, SHOW)
        assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError"), pod
        assert "/dev/infiniband/uverbs0" in pod.message


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_plugin_restarts(kubelet: Kubelet, node: Path, config: Path, registration: str, end: str) -> None:
    """After a stop or a crash the next process registers the same slots; no dead socket stays."""
    with plugin(kubelet, node, config, registration) as first:
        kubelet.wait_slots(RESOURCE, 200)
        shown(kubelet, "before")
        held = kubelet.allocated(RESOURCE)
        first.stop() if end == "stop" else first.kill()
    kubelet.wait_slots(RESOURCE, 0)
    with plugin(kubelet, node, config, registration):
        assert kubelet.wait_slots(RESOURCE, 200) == ALL
        assert kubelet.allocated(RESOURCE) == held
        assert all(is_alive(path) for path in our_sockets(kubelet))
        shown(kubelet, "after")


def is_alive(path: Path) -> bool:
    """Somebody accepts connections at the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
@pytest.mark.parametrize("ends", ["older", "newer"])
def test_one_of_two_instances_ends(kubelet: Kubelet, node: Path, config: Path, registration: str, ends: str) -> None:
    """A rolling update: two instances live, one ends; the other one's 200 slots are there and can be allocated."""
    with plugin(kubelet, node, config, registration) as older:
        kubelet.wait_slots(RESOURCE, 200)
        with plugin(kubelet, node, config, registration) as newer:
            newer.wait_line(is_stream)
            assert kubelet.wait_slots(RESOURCE, 200) == ALL
            count = len(older.lines)
            (older if ends == "older" else newer).stop()
            if ends == "newer":
                # a kubelet up to 1.36 has dropped the older instance and says nothing; from 1.37 it hasn't, which the
                # plugin can't know, so it registers again in either case
                older.wait_line(is_stream, after=count)
            assert kubelet.wait_slots(RESOURCE, 200, 20) == ALL
            shown(kubelet, f"after-{ends}")


def is_stream(line: object) -> bool:
    """The plugin says that the kubelet reads its list."""
    return "ListAndWatch" in str(line)


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("registration", "rounds"), [("kubelet", 20), ("watcher", 3), ("auto", 3)])
def test_kubelet_restarts(kubelet: Kubelet, node: Path, config: Path, registration: str, rounds: int) -> None:
    """The kubelet deletes every socket and starts again: the plugin registers by itself, slots and ids as before."""
    with plugin(kubelet, node, config, registration) as process:
        kubelet.wait_slots(RESOURCE, 200)
        shown(kubelet, "before")
        held = kubelet.allocated(RESOURCE)
        for _ in range(rounds):
            kubelet.restart()
            assert kubelet.wait_slots(RESOURCE, 200) == ALL
            assert kubelet.allocated(RESOURCE) == held
        shown(kubelet, "after")
        assert process.process.poll() is None


def test_plugin_before_kubelet(kubelet: Kubelet, node: Path, config: Path) -> None:
    """The plugin waits for a kubelet that comes later, and registers then."""
    kubelet.stop()
    with plugin(kubelet, node, config) as process:
        process.wait_line(lambda line: line["level"] == "warning" and "kubelet" in line["event"])
        kubelet.start()
        assert kubelet.wait_slots(RESOURCE, 200) == ALL


def test_nothing_matches(kubelet: Kubelet, node: Path, tmp_path: Path) -> None:
    """A resource that matches nothing stays at zero, and the log says why and what to do."""
    config = write_config(tmp_path / "none.json", selectors={"ifNames": ["ens9"]})
    with plugin(kubelet, node, config) as process:
        line = process.wait_line(lambda line: line.get("resource") == RESOURCE and "reason" in line)
        assert "ifNames" in line["reason"]
        assert "ibs108" in line["hint"]
        process.wait_line(is_stream)
        assert not any(kubelet.slots(RESOURCE).values())


def test_flags_are_environment_variables(kubelet: Kubelet, node: Path, config: Path) -> None:
    """Each flag of `run` is also RDMA_PLUGIN_…, as the DaemonSet sets them."""
    env = {
        "RDMA_PLUGIN_ROOT": str(node),
        "RDMA_PLUGIN_CONFIG": str(config),
        "RDMA_PLUGIN_REGISTRATION": "kubelet",
        "RDMA_PLUGIN_DEVICE_PLUGIN_DIR": str(kubelet.device_plugin_dir),
        "RDMA_PLUGIN_PLUGIN_REGISTRY_DIR": str(kubelet.plugin_registry_dir),
    }
    with PluginProcess(env=env) as process:
        assert kubelet.wait_slots(RESOURCE, 200) == ALL, process.text
