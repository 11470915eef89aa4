# SPDX-License-Identifier: Apache-2.0
"""The real process follows its node and its configuration: what changes on disk reaches the kubelet by itself.

The node is laid out below a root, so there are no kernel events here: the glance every two seconds finds what changed.
The events themselves are proved on a real kernel (tests/guest).
"""

import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import plugin_arguments, write_config
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import EXAMPLE_CONFIG, PluginProcess
from tests.rig.kubelet import PodResult
from tests.rig.wait import wait_until

RESOURCE = "rdma/hca_shared_devices_a"
pytestmark = pytest.mark.slow


@pytest.fixture
def fake(short_dir: Path) -> Any:
    """A running kubelet; the rule doesn't matter here."""
    with FakeKubelet(short_dir / "kubelet") as kubelet:
        yield kubelet


def start(fake: FakeKubelet, root: Path, config: Path, *more: str) -> PluginProcess:
    """The plugin for this node; only what is noticed by itself counts, so there is no periodic update."""
    text = json.loads(config.read_text()) | {"periodicUpdateInterval": 0}
    config.write_text(json.dumps(text))
    return PluginProcess(*plugin_arguments(fake, root, config), *more)


def port(root: Path, device: str) -> Path:
    """The state file of a device's port."""
    return root / "sys/class/infiniband" / device / "ports/1/state"


def test_port_that_goes_down_and_comes_back(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """Slots turn unhealthy with the reason in the log, and healthy again by themselves; ids stay."""
    with start(fake, dgx, config) as process:
        ids = fake.wait_slots(RESOURCE, 200).keys()
        port(dgx, "mlx5_0").write_text("1: DOWN\n")
        assert fake.wait_slots(RESOURCE, 0).keys() == ids
        line = process.wait_line(lambda line: line["event"] == "resource changed" and line["healthy"] == 0)
        assert "port 1 is DOWN" in line["reason"]
        port(dgx, "mlx5_0").write_text("4: ACTIVE\n")
        assert fake.wait_slots(RESOURCE, 200).keys() == ids


def test_hca_that_vanishes_and_comes_back_under_another_number(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """A driver reload: unhealthy while it is gone; afterwards a pod gets the new node, never the old path."""
    link = dgx / "sys/class/infiniband/mlx5_0"
    target = link.readlink()
    verbs = dgx / "sys/class/infiniband_verbs"
    with start(fake, dgx, config):
        fake.wait_slots(RESOURCE, 200)
        link.unlink()
        fake.wait_slots(RESOURCE, 0)
        refused = fake.run_pod("meanwhile", {RESOURCE: 1}, "")
        assert refused.phase == "Failed"
        (verbs / "uverbs0").rename(verbs / "uverbs40")
        (dgx / "dev/infiniband/uverbs0").rename(dgx / "dev/infiniband/uverbs40")
        link.symlink_to(target)
        fake.wait_slots(RESOURCE, 200)
        assert "dev /dev/infiniband/uverbs40 rw" in fake.run_pod("afterwards", {RESOURCE: 1}, "").logs


def test_netns_mode_that_changes(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """Exclusive mode while running: unhealthy with the reason; shared again: healthy."""
    mode = dgx / "sys/module/ib_core/parameters/netns_mode"
    with start(fake, dgx, config) as process:
        fake.wait_slots(RESOURCE, 200)
        mode.write_text("N\n")
        fake.wait_slots(RESOURCE, 0)
        process.wait_line(lambda line: "exclusive" in str(line.get("reason")))
        mode.write_text("Y\n")
        fake.wait_slots(RESOURCE, 200)


def test_node_that_gets_its_driver_late(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """Started before any RDMA driver: zero with the reason; the devices that come later are offered by themselves."""
    classes = dgx / "sys/class"
    (classes / "infiniband").rename(classes / "hidden")
    with start(fake, dgx, config) as process:
        line = process.wait_line(lambda line: line["event"] == "resource changed")
        assert (line["slots"], line["reason"]) == (0, "the node has no RDMA device")
        (classes / "hidden").rename(classes / "infiniband")
        fake.wait_slots(RESOURCE, 200)


def in_place(path: Path, text: str) -> None:
    """Write as `echo > file` does."""
    path.write_text(text)


def renamed(path: Path, text: str) -> None:
    """Write as an editor does."""
    draft = path.with_suffix(".swp")
    draft.write_text(text)
    draft.replace(path)


def config_map(path: Path, text: str) -> None:
    """Write as the kubelet updates a ConfigMap volume: `..data` is swapped, the file is a link through it."""
    version = path.parent / f"..{len(list(path.parent.iterdir()))}"
    version.mkdir()
    (version / path.name).write_text(text)
    link = path.parent / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(path.parent / "..data")
    if not path.is_symlink():
        path.unlink()
        path.symlink_to(f"..data/{path.name}")


@pytest.mark.parametrize("write", [in_place, renamed, config_map])
def test_config_edit_is_taken_over(
    fake: FakeKubelet, dgx: Path, tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    """However the file is written: the list follows; a broken edit changes nothing and is said; a removed one empties."""
    config = write_config(tmp_path / "config.json")
    with start(fake, dgx, config) as process:
        fake.wait_slots(RESOURCE, 200)
        base = EXAMPLE_CONFIG["configList"][0]
        other = base | {"resourceName": "other", "rdmaHcaMax": 7}
        write(config, json.dumps({"configList": [base | {"rdmaHcaMax": 150}, other]}))
        fake.wait_slots(RESOURCE, 150)
        fake.wait_slots("rdma/other", 7)
        write(config, '{"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "selector": {}}]}')
        line = process.wait_line(lambda line: line["level"] == "error")
        assert "selector: unknown key" in line["why"]
        assert fake.wait_slots(RESOURCE, 150)
        write(config, json.dumps({"configList": [base]}))
        fake.wait_slots(RESOURCE, 200)
        fake.wait_slots("rdma/other", 0)
        assert fake.slots("rdma/other") == {}
        assert process.stop() == 0


def test_sighup_reads_the_file_again(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """SIGHUP means: look again now; the process goes on."""
    with start(fake, dgx, config, "--log-level", "debug") as process:
        fake.wait_slots(RESOURCE, 200)
        count = len(process.lines)
        process.process.send_signal(signal.SIGHUP)
        process.wait_line(lambda line: line["event"] == "looking again", after=count)
        assert process.stop() == 0


def test_steady_node_logs_nothing(fake: FakeKubelet, dgx: Path, tmp_path: Path) -> None:
    """Scan after scan of a steady node adds no line."""
    config = write_config(tmp_path / "config.json")
    with PluginProcess(*plugin_arguments(fake, dgx, config), "--log-level", "debug") as process:
        fake.wait_slots(RESOURCE, 200)
        process.wait_line(lambda line: line["event"] == "registered")
        count = len(process.lines)
        for _ in range(3):
            seen = len(process.lines)
            process.process.send_signal(signal.SIGHUP)
            process.wait_line(lambda line: line["event"] == "looking again", after=seen)
        assert {line["level"] for line in process.lines[count:]} == {"debug"}


def test_directory_of_the_nodes_that_was_made_anew(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """A container that has the removed /dev/infiniband mounted ends with 1 and one line, to be started with the new one."""
    real = dgx / "dev/infiniband"
    kept = dgx / "dev/kept"
    real.rename(kept)
    handle = os.open(kept, os.O_PATH)
    real.symlink_to(f"/proc/{os.getpid()}/fd/{handle}")
    try:
        with start(fake, dgx, config) as process:
            fake.wait_slots(RESOURCE, 200)
            shutil.rmtree(kept)
            assert process.wait() == 1
            assert "made anew" in process.lines[-1]["why"]
            assert "Traceback" not in process.text
    finally:
        os.close(handle)


def test_node_that_became_another_hcas_is_never_given(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """A reload hands out the numbers anew: a pod gets the HCA's new node or an error, never the node of another HCA."""
    verbs = dgx / "sys/class/infiniband_verbs"
    with start(fake, dgx, config) as process:
        fake.wait_slots(RESOURCE, 200)
        process.wait_line(lambda line: line["event"] == "registered")
        (verbs / "uverbs0/ibdev").write_text("mlx5_1\n")
        (verbs / "uverbs1/ibdev").write_text("mlx5_0\n")
        pods = (fake.run_pod(f"pod{number}", {RESOURCE: 1}, "") for number in itertools.count())
        refused: list[str] = []
        wait_until(lambda: takes_the_new_node(next(pods), refused), 10, "a pod with the HCA's new node")
        assert all("now belongs to mlx5_1" in message for message in refused)


def test_hca_that_was_renamed_is_given_all_the_same(fake: FakeKubelet, dgx: Path, config: Path) -> None:
    """A rename, as udev does it, isn't another HCA: a pod that comes right then isn't refused."""
    classes = dgx / "sys/class"
    device = (classes / "infiniband/mlx5_0").resolve()
    with start(fake, dgx, config) as process:
        fake.wait_slots(RESOURCE, 200)
        process.wait_line(lambda line: line["event"] == "registered")
        (classes / "infiniband/mlx5_0").unlink()
        device.rename(device.with_name("ibp24s0"))
        (classes / "infiniband/ibp24s0").symlink_to(device.with_name("ibp24s0"))
        (classes / "infiniband_verbs/uverbs0/ibdev").write_text("ibp24s0\n")
        pod = fake.run_pod("meanwhile", {RESOURCE: 1}, "")
        assert pod.phase == "Running", pod
        assert "dev /dev/infiniband/uverbs0 rw" in pod.logs


def takes_the_new_node(pod: PodResult, refused: list[str]) -> bool:
    """The pod runs with uverbs1 and without uverbs0, or was refused."""
    if pod.phase == "Failed":
        refused.append(pod.message)
        return False
    assert "uverbs0" not in pod.logs
    return "dev /dev/infiniband/uverbs1 rw" in pod.logs
