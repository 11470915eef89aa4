# SPDX-License-Identifier: Apache-2.0
"""Discovery on the described servers: every file and variant gives exactly what it states in `expect`."""

from pathlib import Path
from typing import Any

import pytest

from rdma_plugin.core.model import Inventory, NetnsMode, PortState, RdmaDevice
from rdma_plugin.host import scan
from tests.fakes import nodes

_CASES = [
    pytest.param(path, variant, id=f"{path.stem}-{variant or 'plain'}")
    for path in nodes.ALL
    for variant in (None, *nodes.variants(path))
]


def _found(root: Path, path: Path, variant: str | None = None) -> Inventory:
    nodes.lay_out(nodes.load(path, variant), root)
    return scan.scan(root)


def _device(inventory: Inventory, name: str) -> RdmaDevice:
    return next(device for device in inventory.devices if device.name == name)


def _seen(device: RdmaDevice, keys: set[str]) -> dict[str, Any]:
    """Say what discovery found in the words of the format; facts that are there although not expected count too."""
    function = device.pci
    facts = {
        "pci": function and function.address,
        "driver": device.driver,
        "link": list(device.link_types),
        "numa": device.numa_node,
        "net": None if device.netdevs is None else sorted(netdev.name for netdev in device.netdevs),
        "chars": sorted(node.name for node in device.char_nodes if node.is_usable),
        "pf": function and function.pf,
        "vf": function and function.vf_index,
        "aux": device.auxiliary and device.auxiliary.name,
        "sfnum": device.auxiliary and device.auxiliary.sfnum,
    }
    always = {"pci", "driver", "link", "numa", "net", "chars"}
    return {key: value for key, value in facts.items() if key in always | keys or value is not None}


@pytest.mark.parametrize(("path", "variant"), _CASES)
def test_described_server_gives_what_it_expects(root: Path, path: Path, variant: str | None) -> None:
    """Facts, usable nodes and rdma_cm are those of `expect`, for these devices and no others.

    What is normal (no umad, GUID zero, no netdev, a sub-device without uverbs) is no problem of a device.
    """
    node = nodes.load(path, variant)
    expected = {name: dict(facts) for name, facts in node.expect["rdma"].items()}
    tags = {name: facts.pop("tags", []) for name, facts in expected.items()}
    uplinks = {name: facts.pop("uplink") for name, facts in expected.items() if "uplink" in facts}
    nodes.lay_out(node, root)

    inventory = scan.scan(root)

    seen = {device.name: _seen(device, set(expected.get(device.name, ()))) for device in inventory.devices}
    assert seen == expected
    assert (inventory.rdma_cm is not None and inventory.rdma_cm.is_usable) == node.expect["rdma_cm"]
    assert not {device.pci.address for device in inventory.devices if device.pci} & set(node.expect.get("no_rdma", ()))
    assert [name for name in tags if "nvswitch-mgmt" in tags[name]] == [
        device.name for device in inventory.devices if device.is_management
    ]
    assert {name: _device(inventory, name).pf_netdevs for name in uplinks} == {
        name: (uplink,) for name, uplink in uplinks.items()
    }
    assert [problem for device in inventory.devices for problem in device.problems] == []
    assert {problem.what for problem in inventory.problems} <= {
        "no rdma_cm device",
        "RDMA devices are in the exclusive network namespace mode",
    }


def test_devices_and_nodes_come_in_natural_order(root: Path) -> None:
    """mlx5_2 stands before mlx5_10, and so do the nodes of a device."""
    inventory = _found(root, nodes.DGX)

    assert [device.name for device in inventory.devices] == [f"mlx5_{number}" for number in range(11)]
    assert [node.path for node in _device(inventory, "mlx5_10").char_nodes] == [
        "/dev/infiniband/issm10",
        "/dev/infiniband/umad10",
        "/dev/infiniband/uverbs10",
    ]


def test_renamed_netdev_is_found_under_its_new_name(root: Path) -> None:
    """The name of the task's example config is the one that discovery reports."""
    nodes.lay_out(nodes.load(nodes.DGX, changes={"net ibp24s0": {"name": "ibs108"}}), root)

    netdevs = _device(scan.scan(root), "mlx5_0").netdevs

    assert netdevs is not None
    assert [netdev.name for netdev in netdevs] == ["ibs108"]


def test_ports_say_state_and_rate(root: Path) -> None:
    """A pulled cable is DOWN, a missing subnet manager INIT; only ACTIVE is active."""
    inventory = _found(root, nodes.DGX, "port-down")
    ports = {device.name: device.ports[0] for device in inventory.devices}

    assert (ports["mlx5_3"].state, ports["mlx5_3"].rate_gbps) == (PortState.DOWN, 10.0)
    assert ports["mlx5_4"].state is PortState.INIT
    assert (ports["mlx5_0"].state, ports["mlx5_0"].rate_gbps) == (PortState.ACTIVE, 400.0)
    assert [name for name, port in ports.items() if not port.is_active] == ["mlx5_2", "mlx5_3", "mlx5_4"]


def test_two_port_device_keeps_port_numbers_of_its_umads(root: Path) -> None:
    """A mlx4 device has one umad and issm for each port (D5)."""
    device = _device(_found(root, nodes.MLX4), "mlx4_1")

    assert [port.number for port in device.ports] == [1, 2]
    assert [(node.name, node.port) for node in device.char_nodes] == [
        ("issm2", 1),
        ("issm3", 2),
        ("umad2", 1),
        ("umad3", 2),
        ("uverbs1", None),
    ]


def test_bond_is_a_master_and_its_member_says_so(root: Path) -> None:
    """A LAG device is found by its own interface and by the bond; `pfNames` means its own (D8)."""
    device = _device(_found(root, nodes.LAG), "mlx5_bond_0")

    assert device.netdevs is not None
    assert [(netdev.name, netdev.master, netdev.is_master) for netdev in device.netdevs] == [
        ("bond0", None, True),
        ("enp193s0f0np0", "bond0", False),
    ]
    assert device.pf_netdevs == ("enp193s0f0np0",)


def test_representors_are_known_whatever_their_name(root: Path) -> None:
    """A representor that udev missed has a hex name and sorts before the uplink; `phys_port_name` tells it (D4)."""
    device = _device(_found(root, nodes.BLUEFIELD, "hex-representor"), "mlx5_0")

    assert device.netdevs is not None
    assert [netdev.name for netdev in device.netdevs if not netdev.is_representor] == ["p0"]
    assert device.pf_netdevs == ("p0",)


def test_pf_names_of_functions(root: Path) -> None:
    """A VF and an SF answer to their PF's interface, also where their own is in a pod; a PF to its own (S3)."""
    inventory = _found(root, nodes.SRIOV)
    names = {device.name: device.pf_netdevs for device in inventory.devices}

    assert names["mlx5_0"] == ("ibp65s0",)
    assert names["mlx5_4"] == ("ibp65s0",)
    assert names["mlx5_10"] == ("enp94s0f0np0",)


def test_subfunction_answers_to_its_uplink(root: Path) -> None:
    """An SF's own interface differs from the one that `pfNames` means."""
    device = _device(_found(root, nodes.BLUEFIELD, "sf-in-pod"), "mlx5_2")

    assert device.netdevs == ()
    assert device.pf_netdevs == ("p0",)


def test_nearest_gpu_shares_the_deepest_bridge(root: Path) -> None:
    """Each compute HCA has the GPU under its own switch; HCAs without a shared bridge have none."""
    inventory = _found(root, nodes.DGX)
    gpus = {device.name: device.nearest_gpu for device in inventory.devices}

    assert gpus["mlx5_0"] == "0000:1b:00.0"
    assert gpus["mlx5_10"] == "0000:df:00.0"
    assert [name for name, gpu in gpus.items() if gpu is None] == ["mlx5_1", "mlx5_2", "mlx5_6"]


def test_software_devices_are_told_by_what_they_are(root: Path) -> None:
    """A soft-RoCE device with a hardware name is still rxe and virtual; siw is known without a netdev (D2)."""
    inventory = _found(root, nodes.OTHERS, "rxe-named-mlx5")
    software = {device.name: (device.software, device.is_virtual) for device in inventory.devices}

    assert software["mlx5_7"] == ("rdma_rxe", True)
    assert software["siw0"] == ("siw", True)
    assert software["bnxt_re0"] == (None, False)
    assert _device(inventory, "siw0").netdevs is None


def test_ids_and_guid_are_read(root: Path) -> None:
    """Ids lose their 0x; the all-zero GUID of EFA names nothing."""
    inventory = _found(root, nodes.OTHERS)
    device = _device(inventory, "rdmap16s27")

    assert device.pci is not None
    assert (device.pci.vendor, device.pci.device, device.guid) == ("1d0f", "efa1", None)
    assert device.pci.sys_path == "devices/pci0000:10/0000:10:1b.0"
    assert _device(inventory, "bnxt_re0").guid == "8e84:74ff:fe1f:2551"


def test_exclusive_mode_is_stated_with_its_fix(root: Path) -> None:
    """The mode is in the inventory, and a problem says what to do (E4)."""
    inventory = _found(root, nodes.SRIOV, "exclusive")

    assert inventory.netns_mode is NetnsMode.EXCLUSIVE
    assert any("netns set shared" in problem.hint or "netns shared" in problem.hint for problem in inventory.problems)


def test_missing_rdma_ucm_is_stated_with_its_fix(root: Path) -> None:
    """Without rdma_ucm the node has no rdma_cm, and the hint names the module (V2)."""
    inventory = _found(root, nodes.DGX, "no-rdma-ucm")

    assert inventory.rdma_cm is None
    assert [problem.hint for problem in inventory.problems] == ["load rdma_ucm: modprobe rdma_ucm"]
