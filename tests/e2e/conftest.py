# SPDX-License-Identifier: Apache-2.0
"""One kubelet for each test, fake or real: the same cases run against all of them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import nodes
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import EXAMPLE_CONFIG, PluginProcess
from tests.rig.kubelet import RealKubelet

RIG = "RDMA_PLUGIN_RIG"
"""Environment variable: the folder of the real programs, set by tests/rig/run.sh."""
NODES = Path(__file__).parents[1] / "nodes"
DEV = Path("/dev/infiniband")
Kubelet = FakeKubelet | RealKubelet


@pytest.fixture
def dgx(short_dir: Path) -> Path:
    """The root of a laid-out DGX H100 whose `ibp24s0` is called `ibs108`, as the example configuration wants it."""
    root = short_dir / "node"
    node = nodes.load(NODES / "a-dgx-h100.yaml", changes={"net ibp24s0": {"name": "ibs108"}})
    nodes.lay_out(node, root)
    return root


@pytest.fixture(
    params=[
        "fake-single",
        "fake-list",
        pytest.param("1.34.4", marks=pytest.mark.real_kubelet),
        pytest.param("1.37.2", marks=pytest.mark.real_kubelet),
    ]
)
def kubelet(request: pytest.FixtureRequest, short_dir: Path, tmp_path: Path) -> Iterator[Kubelet]:
    """A running kubelet: the fake one with the registration rule up to 1.36 or from 1.37, or a real one."""
    name: str = request.param
    if name.startswith("fake-"):
        with FakeKubelet(short_dir / "kubelet", rule="list" if name == "fake-list" else "single") as fake:
            yield fake
    else:
        with RealKubelet(name, Path(os.environ[RIG]), tmp_path) as real:
            yield real


@pytest.fixture
def node(kubelet: Kubelet, dgx: Path) -> Iterator[Path]:
    """The DGX as the kubelet's own node: a real kubelet finds its nodes at /dev/infiniband of the rig's private /dev."""
    if isinstance(kubelet, FakeKubelet):
        yield dgx
        return
    DEV.symlink_to(dgx / "dev" / "infiniband")
    yield dgx
    DEV.unlink()


def plugin_arguments(kubelet: Kubelet, root: Path, config: Path, registration: str = "auto") -> list[str]:
    """The flags of `rdma-plugin run` for this kubelet and node."""
    return [
        *("--root", str(root), "--config", str(config), "--registration", registration),
        *("--device-plugin-dir", str(kubelet.device_plugin_dir)),
        *("--plugin-registry-dir", str(kubelet.plugin_registry_dir)),
    ]


def write_config(path: Path, **changes: Any) -> Path:
    """Write the example configuration with its one resource changed; return the path."""
    resource = EXAMPLE_CONFIG["configList"][0] | changes
    path.write_text(json.dumps(EXAMPLE_CONFIG | {"configList": [resource]}))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The example configuration as a file."""
    return write_config(tmp_path / "config.json")


def plugin(kubelet: Kubelet, root: Path, config: Path, registration: str = "auto") -> PluginProcess:
    """The real plugin for this kubelet and node, not started yet."""
    return PluginProcess(*plugin_arguments(kubelet, root, config, registration))
