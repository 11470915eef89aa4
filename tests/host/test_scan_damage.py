# SPDX-License-Identifier: Apache-2.0
"""Discovery with one broken thing: the other devices stay exactly as they were and the trouble is said."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rdma_plugin.core.model import Inventory, RdmaDevice
from rdma_plugin.host import scan
from tests.fakes import damage, nodes

_VICTIM = "mlx5_1"
_CLASS_LINK = f"sys/class/infiniband/{_VICTIM}"
_PORT = f"{_CLASS_LINK}/ports/1"
_FUNCTION = "sys/bus/pci/devices/0000:05:00.1"
_UVERBS = "sys/class/infiniband_verbs/uverbs3"
_NODE = "dev/infiniband/uverbs3"

_DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "class link dangling": (
        lambda root: damage.bend(root / _CLASS_LINK, "../../devices/gone"),
        "'mlx5_1': not a device",
    ),
    "class link to itself": (lambda root: damage.bend(root / _CLASS_LINK, _VICTIM), "'mlx5_1': not a device"),
    "class link out of the root": (lambda root: damage.bend(root / _CLASS_LINK, "/etc"), "'mlx5_1': not a device"),
    "class link to another place": (lambda root: damage.bend(root / _CLASS_LINK, "../net"), "'mlx5_1': not a device"),
    "class link to sys itself": (lambda root: damage.bend(root / _CLASS_LINK, "../.."), "'mlx5_1': not a device"),
    "state missing": (lambda root: damage.remove(root / f"{_PORT}/state"), "mlx5_1 port 1: state can't be read"),
    "state a directory": (lambda root: damage.make_directory(root / f"{_PORT}/state"), "/state: is a directory"),
    "state a FIFO": (lambda root: damage.make_fifo(root / f"{_PORT}/state"), "/state: is a FIFO"),
    "state a device": (lambda root: damage.bend(root / f"{_PORT}/state", "/dev/zero"), "/state: is a symbolic link"),
    "state garbage": (
        lambda root: damage.fill(root / f"{_PORT}/state", b"\x00\xff\xfe\x1b[2J"),
        "mlx5_1 port 1: state makes no sense",
    ),
    "state empty": (lambda root: damage.fill(root / f"{_PORT}/state", b""), "state makes no sense"),
    "link layer huge": (
        lambda root: damage.fill(root / f"{_PORT}/link_layer", b"x" * 5_000_000),
        "has more than 4096 bytes",
    ),
    "rate garbage": (lambda root: damage.fill(root / f"{_PORT}/rate", b"fast\n"), "says 'fast'"),
    "ports missing": (lambda root: damage.remove(root / f"{_CLASS_LINK}/ports"), "mlx5_1: no ports"),
    "ports a file": (lambda root: damage.fill(root / f"{_CLASS_LINK}/ports", b"1"), "mlx5_1: no ports"),
    "ports out of the root": (
        lambda root: damage.bend(root / f"{_CLASS_LINK}/ports", "/proc/1/task"),
        "mlx5_1: no ports",
    ),
    "port number odd": (lambda root: damage.bend(root / f"{_CLASS_LINK}/ports", "net"), "mlx5_1: no ports"),
    "GUID garbage": (
        lambda root: damage.fill(root / f"{_CLASS_LINK}/node_guid", b"\xff" * 20),
        "node_guid makes no sense",
    ),
    "NUMA node garbage": (
        lambda root: damage.fill(root / f"{_FUNCTION}/numa_node", b"many\n"),
        "0000:05:00.1: numa_node makes no sense",
    ),
    "NUMA node huge": (
        lambda root: damage.fill(root / f"{_FUNCTION}/numa_node", b"9" * 4000),
        "0000:05:00.1: numa_node makes no sense",
    ),
    "vendor missing": (lambda root: damage.remove(root / f"{_FUNCTION}/vendor"), "/0000:05:00.1/vendor: doesn't exist"),
    "driver in a loop": (
        lambda root: damage.bend(root / f"{_FUNCTION}/driver", "driver"),
        "0000:05:00.1: driver can't be told",
    ),
    "driver out of the root": (
        lambda root: damage.bend(root / f"{_FUNCTION}/driver", "/usr"),
        "0000:05:00.1: driver can't be told",
    ),
    "uverbs gone": (lambda root: damage.remove(root / _UVERBS), "mlx5_1: no uverbs device"),
    "uverbs link loop": (lambda root: damage.bend(root / _UVERBS, "uverbs3"), "mlx5_1: no uverbs device"),
    "ibdev empty": (lambda root: damage.fill(root / f"{_UVERBS}/ibdev", b"\n"), "uverbs3: ibdev makes no sense"),
    "ibdev a directory": (
        lambda root: damage.make_directory(root / f"{_UVERBS}/ibdev"),
        "uverbs3: ibdev can't be read",
    ),
    "number of another": (lambda root: damage.fill(root / f"{_UVERBS}/dev", b"231:9"), "uverbs3 is another device"),
    "node missing": (lambda root: damage.remove(root / _NODE), "/dev/infiniband/uverbs3 doesn't exist"),
    "node a plain file": (lambda root: damage.fill(root / _NODE, b""), "it is a plain file"),
    "node a directory": (lambda root: damage.make_directory(root / _NODE), "it is a directory"),
    "node a loop": (lambda root: damage.bend(root / _NODE, "uverbs3"), "uverbs3 can't be looked at"),
    "node dangling": (lambda root: damage.bend(root / _NODE, "uverbs99"), "/dev/infiniband/uverbs3 doesn't exist"),
    "number garbage": (
        lambda root: damage.fill(root / f"{_UVERBS}/dev", b"231"),
        "uverbs3: its device number is unknown",
    ),
}


def _device(inventory: Inventory) -> RdmaDevice:
    return next(device for device in inventory.devices if device.name == _VICTIM)


@pytest.fixture
def node(root: Path) -> Path:
    """Lay out a node with five devices."""
    nodes.lay_out(nodes.load(nodes.MLX4), root)
    return root


@pytest.mark.parametrize(("harm", "words"), _DAMAGES.values(), ids=_DAMAGES)
def test_damage_costs_only_what_it_hits(node: Path, harm: Callable[[Path], None], words: str) -> None:
    """The other devices are exactly as before, the trouble is said, and no path in it is below the root."""
    before = scan.scan(node)
    harm(node)

    after = scan.scan(node)

    assert [device for device in after.devices if device.name != _VICTIM] == [
        device for device in before.devices if device.name != _VICTIM
    ]
    assert words in damage.said(after)
    assert str(node) not in damage.said(after)


def test_unreadable_attribute_costs_only_itself(node: Path) -> None:
    """A device whose port state and NUMA node can't be read keeps all else (D12)."""
    before = _device(scan.scan(node))
    damage.make_directory(node / _PORT / "state")
    damage.make_directory(node / _FUNCTION / "numa_node")

    after = _device(scan.scan(node))

    assert after.ports[0].state is None
    assert after.numa_node is None
    assert (after.ports[0].link_type, after.netdevs, after.char_nodes) == (
        before.ports[0].link_type,
        before.netdevs,
        before.char_nodes,
    )
    assert len(after.problems) == 2


def test_permission_denied_is_said_in_the_systems_words(node: Path) -> None:
    """A file without read permission is a problem for an ordinary user; root reads it all the same."""
    attribute = node / _FUNCTION / "numa_node"
    damage.forbid(attribute)

    device = _device(scan.scan(node))

    is_readable = os.access(attribute, os.R_OK)
    assert device.numa_node == (0 if is_readable else None)
    assert ["Permission denied" in problem.why for problem in device.problems] == [True] * (not is_readable)
