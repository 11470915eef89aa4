# SPDX-License-Identifier: Apache-2.0
"""Single facts of discovery that no described server shows, on small nodes made for each."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from rdma_plugin.core.model import Auxiliary, Inventory, NetDevice, RdmaDevice
from rdma_plugin.host import chars, files, netdevs, scan
from rdma_plugin.host.netlink import Link
from tests.fakes import nodes

_PORT = "{link: Ethernet, state: active, rate: '100 Gb/sec (4X EDR)'}"


def _lay_out(root: Path, pci: str, rest: str = "") -> None:
    """Lay out a node with one function, described by `pci`, and whatever `rest` adds."""
    path = root / "node.yaml"
    path.write_text(
        f"{{format: 1, name: small, {rest} expect: {{rdma: {{}}}}, "
        f'pci: [{{at: "pci0000:00/00:01.0/01:00.0", class: "0200", id: "8086:1592", driver: ice, {pci}}}]}}'
    )
    nodes.lay_out(nodes.load(path), root)


def _rdma(name: str, more: str = "") -> str:
    return f'{{name: {name}, guid: "b696:91ff:feaa:bbc0", ports: [{_PORT}], {more}}}'


def _net(name: str, more: str = "") -> str:
    return f'{{name: {name}, mac: "b4:96:91:aa:bb:c0", {more}}}'


def _names(device: RdmaDevice) -> list[str] | None:
    return None if device.netdevs is None else [netdev.name for netdev in device.netdevs]


def _devices(inventory: Inventory) -> dict[str, RdmaDevice]:
    return {device.name: device for device in inventory.devices}


def test_auxiliary_device_of_a_driver_leaves_the_interface_at_the_function(root: Path) -> None:
    """A device under `ice.roce.0`, which has no sfnum, keeps its function's interface (rdma-core#1248)."""
    _lay_out(root, f"net: [{_net('ens6f0')}], aux: [{{name: ice.roce.0, rdma: [{_rdma('irdma0')}]}}]")

    device = _devices(scan.scan(root))["irdma0"]

    assert device.auxiliary == Auxiliary(name="ice.roce.0")
    assert device.pci is not None
    assert device.pci.address == "0000:01:00.0"
    assert _names(device) == ["ens6f0"]
    assert device.pf_netdevs == ("ens6f0",)


def test_two_real_devices_of_one_function_cannot_be_told_apart(root: Path) -> None:
    """Where two ibdevs with uverbs share a function, neither gets the interface."""
    _lay_out(root, f"net: [{_net('ens6f0')}], rdma: [{_rdma('irdma0')}, {_rdma('irdma1')}]")

    devices = _devices(scan.scan(root))

    assert {name: _names(device) for name, device in devices.items()} == {"irdma0": None, "irdma1": None}


def test_rxe_beside_hardware_takes_only_its_own_interface(root: Path) -> None:
    """Older kernels put rxe under the NIC's function; the hardware device keeps the interface (D2)."""
    _lay_out(root, f"net: [{_net('ens6f0')}], rdma: [{_rdma('irdma0')}, {_rdma('rxe0', 'parent: ens6f0')}]")

    devices = _devices(scan.scan(root))

    assert {name: _names(device) for name, device in devices.items()} == {"irdma0": ["ens6f0"], "rxe0": ["ens6f0"]}
    assert devices["rxe0"].software == "rdma_rxe"
    assert devices["irdma0"].software is None


def test_virtual_device_without_parent_is_told_by_its_first_gid(root: Path) -> None:
    """The name in gid_attrs counts if the host has such an interface (D12: no further GIDs are read)."""
    port = "{link: Ethernet, state: active, rate: '2.5 Gb/sec (1X SDR)', ndev: ens6f0}"
    device = f'{{name: soft0, guid: "5054:00ff:fe12:3457", ports: [{port}]}}'
    _lay_out(root, f"net: [{_net('ens6f0')}]", f"virtual: {{rdma: [{device}]}},")

    found = _devices(scan.scan(root))["soft0"]

    assert _names(found) == ["ens6f0"]
    assert found.pci is None


def test_port_without_switchdev_names_the_function(root: Path) -> None:
    """A physical port's name and switch id alone, without representors, make no difference."""
    net = f"net: [{_net('ens6f0', 'port_name: p0, switch_id: aabb')}, {_net('ens6f0d1')}]"
    _lay_out(root, f"{net}, rdma: [{_rdma('irdma0')}]")

    assert _devices(scan.scan(root))["irdma0"].pf_netdevs == ("ens6f0", "ens6f0d1")


@pytest.mark.parametrize("port_name", ["pf0", "c1pf0", "pf0vf12", "c1pf0vf0", "pf0sf88"])
def test_representor_names(root: Path, port_name: str) -> None:
    """Every form in which devlink names a host PF, VF or SF is a representor, beside the uplink (D4)."""
    uplink = _net("zz0", "port_name: p0s1, switch_id: aabb")
    representor = _net("aa0", f"port_name: {port_name}, switch_id: aabb")
    _lay_out(root, f"net: [{representor}, {uplink}, {_net('bb0')}], rdma: [{_rdma('irdma0')}]")

    device = _devices(scan.scan(root))["irdma0"]

    assert device.netdevs is not None
    assert [netdev.name for netdev in device.netdevs if netdev.is_representor] == ["aa0"]
    assert device.pf_netdevs == ("zz0",)


def test_team_and_altnames_come_from_netlink(root: Path) -> None:
    """A team is only known by its kind; a bridge above an interface isn't one of the device's interfaces."""
    team = '{name: team0, mac: "b4:96:91:aa:bb:c0", bond: true}'
    _lay_out(
        root, f"net: [{_net('ens6f0', 'master: team0')}], rdma: [{_rdma('irdma0')}]", f"virtual: {{net: [{team}]}},"
    )
    shutil.rmtree(root / "sys/devices/virtual/net/team0/bonding")
    top = files.top_of(root)
    holder = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    member = NetDevice(name="ens6f0", master="team0")

    assert netdevs.of_holder(top, holder, {"team0": Link(name="team0", kind="bridge")}).netdevs == (member,)
    links = {"team0": Link(name="team0", kind="team"), "ens6f0": Link(name="ens6f0", altnames=("enp1s0",))}
    assert netdevs.of_holder(top, holder, links).netdevs == (
        dataclasses.replace(member, altnames=("enp1s0",)),
        NetDevice(name="team0", is_master=True),
    )


def test_unknown_netns_mode_is_none(root: Path) -> None:
    """An old kernel without the parameter, or a value from the future, can't be told (E4)."""
    nodes.lay_out(nodes.load(nodes.MLX4), root)
    parameter = root / "sys/module/ib_core/parameters/netns_mode"
    parameter.write_text("maybe\n")
    assert scan.scan(root).netns_mode is None

    parameter.unlink()
    assert scan.scan(root).netns_mode is None


def test_driver_loaded_without_a_device_says_so(root: Path) -> None:
    """An empty class differs from a missing one: the core is loaded, no device is there."""
    (root / "sys/class/infiniband").mkdir(parents=True)

    problems = scan.scan(root).problems

    assert [problem.why for problem in problems] == ["/sys/class/infiniband names no device"]


def test_node_is_looked_at_now(root: Path) -> None:
    """A node that vanishes or turns into something else after the scan is refused when it is asked for (V4)."""
    nodes.lay_out(nodes.load(nodes.MLX4), root)
    node = _devices(scan.scan(root))["mlx5_0"].char_nodes[-1]
    assert node.problem is None
    assert chars.check(root, node) is None

    path = root / node.path.lstrip("/")
    path.unlink()
    gone = chars.check(root, node)
    path.touch()
    replaced = chars.check(root, node)

    assert gone is not None
    assert gone.what == "uverbs2: /dev/infiniband/uverbs2 doesn't exist"
    assert replaced is not None
    assert "is a plain file" in replaced.why


def test_connection_manager_node_is_checked(root: Path) -> None:
    """rdma_cm promised by sysfs but absent from /dev is there, unusable, and says why."""
    node = nodes.load(nodes.MLX4)
    nodes.lay_out(dataclasses.replace(node, dev={**node.dev, "missing": ["rdma_cm"]}), root)

    rdma_cm = scan.scan(root).rdma_cm

    assert rdma_cm is not None
    assert rdma_cm.problem is not None
    assert "ls -l /dev/infiniband" in rdma_cm.problem.hint


def test_reads_are_bounded_and_never_follow_links(root: Path) -> None:
    """An attribute of exactly one page is read, one byte more isn't; a link is no attribute."""
    (root / "page").write_bytes(b"x" * 4096)
    (root / "more").write_bytes(b"x" * 4097)
    (root / "link").symlink_to("page")

    top = str(root)
    assert len(files.read(top, "page").text) == 4096
    assert files.read(top, "more").error == "has more than 4096 bytes"
    assert files.read(top, "link").error == "is a symbolic link"
    assert files.read(top, "none").is_missing
    assert files.holds(top, "more", b"x" * 4097, 5000)
    assert not files.holds(top, "more", b"x" * 4097, 4096)
