# SPDX-License-Identifier: Apache-2.0
"""Lay out a `Node` below a root: PCI functions and bridges, SR-IOV links, auxiliary devices, modules.

The result has the paths, relative links and texts of a real /sys, plain files between class links included; the rules
are those of the format that the node files follow. RDMA devices are made by `nodes_rdma`, interfaces by `nodes_nets`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.nodes_format import AuxSpec, FunctionSpec, Holder, NetSpec, Node
from tests.fakes.nodes_nets import Nets
from tests.fakes.nodes_rdma import lay_out_device
from tests.fakes.nodes_tree import Chars, Tree, usable_chars

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LOOPBACK = NetSpec(name="lo", mac="00:00:00:00:00:00", type=772, mtu=65536)


def lay_out(node: Node, root: Path, chars: Chars | None = None) -> None:
    """Make `root/sys` and `root/dev`; `root` must exist and hold neither.

    `chars` None takes `mknod` where this process may make device nodes, else `links` (see nodes_tree).
    """
    tree = Tree(root, chars or usable_chars(root))
    for name in (
        "bus/pci/devices",
        "bus/pci/drivers",
        "bus/auxiliary/devices",
        "class/net",
        "class/misc",
        "devices/virtual/misc",
        "module",
    ):
        tree.directory(tree.sys / name)
    tree.directory(tree.dev / "infiniband")
    nets = Nets(tree, node)
    _bridges(tree, node)
    for function in node.functions:
        _function(tree, node, function, nets)
    for function in node.functions:
        _link_vf(tree, function)
    virtual = tree.sys / "devices/virtual"
    _children(tree, node, node.virtual, virtual, nets)
    nets.lay_out(virtual, None, (_LOOPBACK,))
    nets.lay_out_masters()
    _modules(tree, node)
    for name in node.dev["dirs"]:
        tree.replace_node(name, "dirs")
    for name in node.dev["files"]:
        tree.replace_node(name, "files")


def _bridges(tree: Tree, node: Node) -> None:
    """Make each PCI address on the way to a function that isn't a function of the file a bridge."""
    made = {function.address for function in node.functions}
    for function in node.functions:
        depth = 0
        for index, part in enumerate(function.parts[:-1]):
            if not _ADDRESS.fullmatch(part):
                depth = 0
                continue
            depth += 1
            if part in made:
                continue
            made.add(part)
            described = {
                **(node.bridges.get("root" if depth == 1 else "switch") or {}),
                **(node.bridges.get(part) or {}),
            }
            texts: dict[str, Any] = {"id": "8086:352a", "class": "0604", "driver": "pcieport", **described}
            class_code = texts.pop("class").ljust(6, "0")
            spec = FunctionSpec(address=part, parts=function.parts[: index + 1], class_code=class_code, **texts)
            _pci_directory(tree, node, spec)


def _pci_directory(tree: Tree, node: Node, spec: FunctionSpec) -> Path:
    directory = tree.sys.joinpath("devices", *spec.parts)
    ids = [*spec.id.split(":"), *spec.sub.split(":")]
    upper = [text.upper() for text in (*ids, spec.class_code)]
    classes = re.findall("..", upper[4])
    alias = "pci:v0000{}d0000{}sv0000{}sd0000{}".format(*upper) + "bc{}sc{}i{}".format(*classes)
    driver = f"DRIVER={spec.driver}\n" if spec.driver else ""
    tree.texts(
        directory,
        vendor=f"0x{ids[0]}",
        device=f"0x{ids[1]}",
        subsystem_vendor=f"0x{ids[2]}",
        subsystem_device=f"0x{ids[3]}",
        revision=spec.rev,
        numa_node=_numa_node(node.numa, spec),
        modalias=alias,
        acpi_index=spec.acpi_index,
        uevent=f"{driver}PCI_CLASS={int(spec.class_code, 16):X}\nPCI_ID={upper[0]}:{upper[1]}\n"
        f"PCI_SUBSYS_ID={upper[2]}:{upper[3]}\nPCI_SLOT_NAME={spec.address}\nMODALIAS={alias}",
    )
    tree.text(directory / "class", f"0x{spec.class_code}")
    if spec.driver:
        bound = tree.directory(tree.sys / "bus/pci/drivers" / spec.driver)
        tree.link(directory / "driver", bound)
        tree.link(bound / spec.address, directory)
    tree.subsystem(directory, "pci", "bus")
    tree.link(tree.sys / "bus/pci/devices" / spec.address, directory)
    return directory


def _numa_node(numa: Mapping[str, int], spec: FunctionSpec) -> int:
    return (
        spec.numa if spec.numa is not None else next((numa[part] for part in reversed(spec.parts) if part in numa), -1)
    )


def _function(tree: Tree, node: Node, spec: FunctionSpec, nets: Nets) -> None:
    directory = _pci_directory(tree, node, spec)
    if spec.vpd:
        vpd = directory / "vpd"
        vpd.write_bytes(spec.vpd.encode("latin-1"))
        vpd.chmod(0o600)
    if spec.iommu_group is not None:
        group = tree.sys / "kernel/iommu_groups" / str(spec.iommu_group)
        tree.link(group / "devices" / spec.address, directory)
        tree.link(directory / "iommu_group", group)
    tree.texts(directory, **spec.files)
    for aux in spec.aux:
        _auxiliary(tree, node, aux, directory, nets)
    _children(tree, node, spec, directory, nets)
    if spec.sriov:
        tree.texts(
            directory,
            sriov_totalvfs=spec.sriov.total,
            sriov_numvfs=spec.sriov.vf_count,
            sriov_offset=spec.sriov.offset,
            sriov_stride=spec.sriov.stride,
            sriov_vf_device=spec.sriov.vf_id.partition(":")[2],
            sriov_drivers_autoprobe=1,
        )


def _auxiliary(tree: Tree, node: Node, spec: AuxSpec, function: Path, nets: Nets) -> None:
    directory = function / spec.name
    tree.texts(directory, sfnum=spec.sfnum, uevent=f"MODALIAS=auxiliary:{spec.name.rpartition('.')[0]}")
    if spec.driver:
        tree.link(directory / "driver", tree.directory(tree.sys / "bus/auxiliary/drivers" / spec.driver))
    tree.subsystem(directory, "auxiliary", "bus")
    tree.link(tree.sys / "bus/auxiliary/devices" / spec.name, directory)
    _children(tree, node, spec, directory, nets)


def _children(tree: Tree, node: Node, holder: Holder, directory: Path, nets: Nets) -> None:
    parent = None if holder is node.virtual else directory
    for device in holder.rdma:
        lay_out_device(tree, node, device, directory, parent)
    nets.lay_out(directory, parent, holder.net)


def _link_vf(tree: Tree, spec: FunctionSpec) -> None:
    if spec.pf is None:
        return
    directory = tree.sys.joinpath("devices", *spec.parts)
    pf = directory.parent / spec.pf
    tree.link(directory / "physfn", pf)
    tree.link(pf / f"virtfn{spec.index}", directory)


def _modules(tree: Tree, node: Node) -> None:
    """Make what a loaded module shows even without a device."""
    for module, kind, abi in (("ib_uverbs", "infiniband_verbs", 6), ("ib_umad", "infiniband_mad", 5)):
        if module in node.modules:
            tree.text(tree.sys / "class" / kind / "abi_version", abi)
    if (tree.sys / "class/infiniband").exists():
        mode = "N" if node.netns_mode == "exclusive" else "Y"
        tree.text(tree.sys / "module/ib_core/parameters/netns_mode", mode)
    if "rdma_ucm" in node.modules:
        directory = tree.sys / "devices/virtual/misc/rdma_cm"
        is_missing = "rdma_cm" in node.dev["missing"]
        tree.char_device(directory, "rdma_cm", (10, node.rdma_cm), is_missing=is_missing, is_public=True)
        tree.texts(directory, abi_version=4)
        tree.subsystem(directory, "misc")
        tree.link(tree.sys / "class/misc/rdma_cm", directory)
