# SPDX-License-Identifier: Apache-2.0
"""What the fuzz tests share: one small node, and one plugin process."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import plugin, write_config
from tests.fakes import nodes, places
from tests.fakes.kubelet import FakeKubelet
from tests.fuzz.doors import RESOURCE, Target, Tree


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    """Lay the node out."""
    with places.short_dir() as root:
        yield Tree(root)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run the plugin on a DGX and connect to it."""
    config = write_config(tmp_path_factory.mktemp("config") / "config.json", selectors={"rdmaDevices": ["mlx5_0"]})
    with places.short_dir() as folder:
        (folder / "node").mkdir()
        nodes.lay_out(nodes.load(nodes.DGX), folder / "node")
        with FakeKubelet(folder / "kubelet") as kubelet, plugin(kubelet, folder / "node", config, "watcher") as process:
            kubelet.wait_slots(RESOURCE, 200)
            (path,) = kubelet.streams()
            target = Target(process, path)
            yield target
            target.channel.close()
