# SPDX-License-Identifier: Apache-2.0
"""Scans of a host whose reads may hang."""

import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import Inventory
from rdma_plugin.host import scan
from rdma_plugin.host.look import Look
from tests.fakes import nodes

DEADLINE_S = 2.0
pytestmark = pytest.mark.slow


class Hanging:
    """The real scan, with reads of some devices that don't return until `over`."""

    def __init__(self, *devices: str) -> None:
        self.devices = set(devices)
        self.over = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, root: Path, *, leave_out: Collection[str], on_device: Callable[[str], object]) -> Inventory:
        """Scan, and hang at a device as a read of its files would."""

        def reach(device: str) -> None:
            on_device(device)
            if device in self.devices:
                self.threads.append(threading.current_thread())
                self.over.wait()

        return scan.scan(root, leave_out=leave_out, on_device=reach)


async def test_hung_device_costs_only_itself(root: Path) -> None:
    """The others are there as before; the hung one keeps its place, unusable, with the reason; then it comes back."""
    nodes.lay_out(nodes.load(nodes.DGX), root)
    hanging = Hanging()
    look = Look(root, DEADLINE_S, hanging)
    before = await look.scan()
    hanging.devices = {"mlx5_3", "mlx5_7"}
    during = await look.scan()
    assert [device.name for device in during.devices] == [device.name for device in before.devices]
    for device, known in zip(during.devices, before.devices, strict=True):
        if device.name not in hanging.devices:
            assert device == known
            continue
        assert "doesn't return" in device.problems[0].why
        assert [node.name for node in device.char_nodes] == [node.name for node in known.char_nodes]
        assert not any(node.is_usable for node in device.char_nodes)
        assert device.netdevs == known.netdevs
    assert await look.scan() == during
    hanging.devices = set()
    hanging.over.set()
    for thread in hanging.threads:
        thread.join(5)
    assert await look.scan() == before
    look.close()


async def test_device_that_hangs_at_the_first_look(root: Path) -> None:
    """Nothing is known of it but its name and place."""
    nodes.lay_out(nodes.load(nodes.DGX), root)
    hanging = Hanging("mlx5_0")
    found = await Look(root, DEADLINE_S, hanging).scan()
    assert len(found.devices) == 11
    assert found.devices[0].pci is not None
    assert found.devices[0].pci.address == "0000:18:00.0"
    assert found.devices[0].char_nodes == ()
    hanging.over.set()


async def test_host_that_hangs_as_a_whole(root: Path) -> None:
    """A hang outside of any device is an error of the host; the caller keeps what it has."""
    over = threading.Event()

    def hang(root: Path, *, leave_out: Collection[str], on_device: Callable[[str], object]) -> Inventory:
        over.wait()
        return scan.scan(root, leave_out=leave_out, on_device=on_device)

    with pytest.raises(HostError, match="scan of the host: no answer"):
        await Look(root, DEADLINE_S, hang).scan()
    over.set()
