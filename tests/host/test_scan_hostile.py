# SPDX-License-Identifier: Apache-2.0
"""Discovery on trees that lead astray, lack what is usual, or change while they are read."""

import os
import shutil
from pathlib import Path

import pytest

from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import Inventory, RdmaDevice
from rdma_plugin.host import files, netdevs, pci, scan
from rdma_plugin.host.sysfs import Surroundings
from tests.fakes import damage, nodes

_VICTIM = "mlx5_1"


def _device(inventory: Inventory, name: str = _VICTIM) -> RdmaDevice:
    return next(device for device in inventory.devices if device.name == name)


@pytest.fixture
def dgx(root: Path) -> Path:
    """Lay out a DGX node."""
    nodes.lay_out(nodes.load(nodes.DGX), root)
    return root


def test_class_directory_out_of_the_root_shows_nothing(dgx: Path, tmp_path: Path) -> None:
    """A whole tree outside is not read through links, absolute or relative, at any level."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.move(dgx / "sys", outside / "sys")
    (dgx / "sys/class/infiniband").mkdir(parents=True)
    (dgx / "sys/class/infiniband/mlx5_0").symlink_to((outside / "sys/class/infiniband/mlx5_0").resolve())
    up = os.path.relpath(outside / "sys/class/infiniband/mlx5_3", dgx / "sys/class/infiniband")
    (dgx / "sys/class/infiniband/mlx5_3").symlink_to(up)
    (dgx / "sys/class/infiniband_verbs").symlink_to(outside / "sys/class/infiniband_verbs")

    inventory = scan.scan(dgx)

    assert inventory.devices == ()
    assert "'mlx5_0': not a device" in damage.said(inventory)
    assert "'mlx5_3': not a device" in damage.said(inventory)


def test_plain_files_between_class_links_are_skipped(dgx: Path) -> None:
    """abi_version and its like are normal and said by nobody."""
    (dgx / "sys/class/infiniband/abi_version").write_text("6\n")
    (dgx / "sys/class/net/bonding_masters").write_text("\n")

    inventory = scan.scan(dgx)

    assert len(inventory.devices) == 11
    assert inventory.problems == ()


def test_real_directory_in_the_class_is_no_device(dgx: Path) -> None:
    """The kernel only ever makes links there; a directory would lie in no device's place."""
    (dgx / "sys/class/infiniband/mlx5_99/ports/1").mkdir(parents=True)

    inventory = scan.scan(dgx)

    assert len(inventory.devices) == 11
    assert "'mlx5_99': not a device" in damage.said(inventory)


def test_undecodable_name_is_no_device(dgx: Path) -> None:
    """A name that no terminal and no JSON can show is said in escaped form."""
    entries = dgx / "sys/class/infiniband"
    (entries / os.fsdecode(b"\xff\xfe")).symlink_to((entries / "mlx5_0").readlink())

    inventory = scan.scan(dgx)

    assert len(inventory.devices) == 11
    assert r"'\udcff\udcfe': not a device" in damage.said(inventory)


def test_rxe_parent_that_is_a_path_is_not_followed(root: Path) -> None:
    """Text that isn't an interface name names no interface, whatever it points to."""
    nodes.lay_out(nodes.load(nodes.OTHERS), root)
    (root / "sys/class/infiniband/rxe0/parent").write_bytes(b"../../devices\0x\n")

    assert _device(scan.scan(root), "rxe0").netdevs == ()


def test_rxe_parent_elsewhere_is_no_interface(root: Path) -> None:
    """A soft-RoCE device whose interface is in a pod has none on the host."""
    nodes.lay_out(nodes.load(nodes.OTHERS), root)
    (root / "sys/class/infiniband/rxe0/parent").write_text("net1\n")

    assert _device(scan.scan(root), "rxe0").netdevs == ()


def test_no_sys_is_a_host_error(root: Path) -> None:
    """Only a root whose sys can't be listed fails as a whole; the error names it."""
    with pytest.raises(HostError, match="can't be listed: No such file or directory"):
        scan.scan(root)


def test_sys_that_is_a_file_is_a_host_error(root: Path) -> None:
    """The system's reason is in the text."""
    (root / "sys").touch()

    with pytest.raises(HostError, match="Not a directory"):
        scan.scan(root)


def test_node_without_rdma_says_what_to_load(root: Path) -> None:
    """An empty sys is no error: zero devices, one problem with a hint (E5)."""
    (root / "sys").mkdir()

    inventory = scan.scan(root)

    assert inventory.devices == ()
    assert [problem.what for problem in inventory.problems] == ["no RDMA devices"]
    assert "modprobe mlx5_ib" in inventory.problems[0].hint


def test_missing_ib_uverbs_is_said_once(dgx: Path) -> None:
    """Without the class the module is missing: one problem of the node, not eleven of its devices."""
    shutil.rmtree(dgx / "sys/class/infiniband_verbs")

    inventory = scan.scan(dgx)

    assert [problem.hint for problem in inventory.problems] == ["load ib_uverbs: modprobe ib_uverbs"]
    assert [problem for device in inventory.devices for problem in device.problems] == []


def test_unexpected_error_leaves_the_identity(dgx: Path) -> None:
    """Whatever goes wrong in the middle of a device, its name and PCI address remain, with the error's words."""

    def fail(_holder: str) -> netdevs.Interfaces:
        raise RuntimeError("out of luck")

    top = files.top_of(dgx)
    path = files.resolve(top, f"class/infiniband/{_VICTIM}")
    assert path is not None
    around = Surroundings(
        top=top,
        char_nodes={},
        has_uverbs_class=False,
        gpu_paths=(),
        links={},
        port_netdevs={},
        read_interfaces=fail,
        read_vf_indices=lambda pf: pci.read_vf_indices(top, pf),
    )

    device = scan.read_device(around, _VICTIM, path)

    assert device.pci is not None
    assert device.pci.address == "0000:29:00.0"
    assert "RuntimeError: out of luck" in device.problems[0].why


def test_rename_in_the_middle_makes_a_second_pass(dgx: Path) -> None:
    """A pass that a rename overtakes is done once more with the new names (D13)."""
    entries = dgx / "sys/class/infiniband"
    passes: list[tuple[str, ...]] = []

    def read(names: tuple[str, ...]) -> tuple[str, ...]:
        if not passes:
            (entries / "mlx5_0").rename(entries / "ibp24s0")
        passes.append(names)
        return names

    found = scan.settled(lambda: files.names(str(dgx / "sys"), "class/infiniband"), read)

    assert len(passes) == 2
    assert "ibp24s0" in found
    assert "mlx5_0" not in found


def test_quiet_host_is_read_once() -> None:
    """Without a change there is no second pass."""
    passes: list[tuple[str, ...]] = []

    scan.settled(lambda: ("mlx5_0",), passes.append)

    assert passes == [("mlx5_0",)]
