# SPDX-License-Identifier: Apache-2.0
"""Lay out an RDMA device: its directory, its ports and GIDs, and its uverbs, umad and issm devices.

The GIDs of an Ethernet port come from an interface's address as the kernel derives them; empty slots have no
gid_attrs files, because a plain file can't fail with EINVAL as the kernel's does.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.fakes.nodes_format import HOST, GidSpec, Node, PortSpec, RdmaSpec
from tests.fakes.nodes_tree import Tree

_STATES = {"active": "4: ACTIVE", "down": "1: DOWN", "init": "2: INIT", "armed": "3: ARMED"}
_PHYS_STATES = {"LinkUp": "5: LinkUp", "Polling": "2: Polling", "Disabled": "3: Disabled", "Sleep": "1: Sleep"}
_NODE_TYPES = {"CA": "1: CA", "RNIC": "4: RNIC", "unspecified": "7: unspecified"}
_LINK_LAYERS = {"IB": "InfiniBand", "Ethernet": "Ethernet", "Unknown": "Unknown"}
_GID_TYPES = {"ib": "IB/RoCE v1", "v1": "IB/RoCE v1", "v2": "RoCE v2"}
_EMPTY_GID = ":".join(["0000"] * 8)
_MAJOR = 231
"""Fixed major of the first uverbs (minor 192 + N), umad (N) and issm (64 + N), drivers/infiniband/core."""


def lay_out_device(tree: Tree, node: Node, spec: RdmaSpec, base: Path, parent: Path | None) -> None:
    """Make a device below `base`, the directory of its holder; `parent` is None for a virtual one."""
    tree.directory(base / "infiniband")
    tree.directory(tree.sys / "class/infiniband")
    if spec.netns == HOST:
        _device_directory(tree, node, spec, base / "infiniband" / spec.name, parent)
    if "ib_uverbs" in node.modules and spec.uverbs is not None:
        name = f"uverbs{spec.uverbs}"
        directory = _char_device(tree, node, base / "infiniband_verbs" / name, spec, 192 + spec.uverbs, parent)
        tree.texts(directory, abi_version=spec.abi)
    for port in spec.ports if "ib_umad" in node.modules else ():
        if port.umad is None:
            continue
        mad = base / "infiniband_mad"
        devices = [(f"umad{port.umad}", port.umad)] + [(f"issm{port.umad}", 64 + port.umad)] * port.issm
        for name, minor in devices:
            tree.texts(_char_device(tree, node, mad / name, spec, minor, parent), port=port.n)


def _device_directory(tree: Tree, node: Node, spec: RdmaSpec, directory: Path, parent: Path | None) -> None:
    tree.texts(
        directory,
        node_type=_NODE_TYPES[spec.node_type],
        node_guid=spec.guid,
        sys_image_guid=spec.sys_guid or spec.guid,
        fw_ver=spec.fw,
        node_desc=spec.desc,
        hca_type=spec.hca,
        board_id=spec.board,
        hw_rev=spec.hw_rev,
        parent=spec.parent,
        uevent=f"NAME={spec.name}",
    )
    tree.subsystem(directory, "infiniband")
    if parent:
        tree.link(directory / "device", parent)
    tree.link(tree.sys / "class/infiniband" / spec.name, directory)
    macs = {net.name: net.mac for holder in node.holders() for net in holder.net if net.mac and net.netns == HOST}
    for port in spec.ports:
        _port_directory(tree, spec, port, directory / "ports" / str(port.n), macs)


def _char_device(tree: Tree, node: Node, directory: Path, spec: RdmaSpec, minor: int, parent: Path | None) -> Path:
    """Make a class device, its link in the class and its node; return its directory."""
    kind, name = directory.parent.name, directory.name
    is_missing = name in node.dev["missing"]
    tree.char_device(directory, name, (_MAJOR, minor), is_missing=is_missing, is_public=kind == "infiniband_verbs")
    tree.texts(directory, ibdev=spec.name)
    tree.subsystem(directory, kind)
    if parent:
        tree.link(directory / "device", parent)
    tree.link(tree.sys / "class" / kind / name, directory)
    return directory


def _port_directory(tree: Tree, device: RdmaSpec, port: PortSpec, directory: Path, macs: Mapping[str, str]) -> None:
    tree.texts(
        directory,
        state=_STATES[port.state],
        phys_state=_PHYS_STATES[port.phys or ("Polling" if port.state == "down" else "LinkUp")],
        link_layer=_LINK_LAYERS[port.link],
        rate=port.rate,
        lid=port.lid,
        lid_mask_count=0,
        sm_lid=port.sm_lid,
        sm_sl=0,
        cap_mask=port.cap_mask or ("0xa751e848" if port.link == "IB" else "0x00010000"),
    )
    for name in ("gids", "gid_attrs/ndevs", "gid_attrs/types"):
        tree.directory(directory / name)
    gids = port.gids if port.gids is not None else tuple(_gids(device, port, macs))
    for slot, gid in enumerate(gids):
        tree.text(directory / f"gids/{slot}", gid.gid)
        tree.text(directory / f"gid_attrs/types/{slot}", _GID_TYPES[gid.type])
        if gid.ndev:
            tree.text(directory / f"gid_attrs/ndevs/{slot}", gid.ndev)
    for slot in range(len(gids), port.gid_table):
        tree.text(directory / f"gids/{slot}", _EMPTY_GID)
    for slot, pkey in enumerate(port.pkeys):
        tree.text(directory / f"pkeys/{slot}", pkey)


def _gids(device: RdmaSpec, port: PortSpec, macs: Mapping[str, str]) -> Iterator[GidSpec]:
    """Yield the filled slots: the port GUID's for InfiniBand; the address's and the IPv4 ones' for Ethernet."""
    if port.link != "Ethernet":
        yield GidSpec(gid=f"fe80:0000:0000:0000:{port.guid or device.guid}", type="ib")
        return
    mac = port.mac or macs.get(port.ndev or "")
    if mac is None or (port.state == "down" and port.phys == "Disabled"):
        return
    octets = [int(octet, 16) for octet in mac.split(":")]
    eui64 = bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]).hex(":", -2)
    mapped = [bytes(int(octet) for octet in ip4.split(".")).hex(":", -2) for ip4 in port.ip4]
    for gid in (f"fe80:0000:0000:0000:{eui64}", *(f"0000:0000:0000:0000:0000:ffff:{ip4}" for ip4 in mapped)):
        if port.v1:
            yield GidSpec(gid=gid, type="v1", ndev=port.ndev)
        yield GidSpec(gid=gid, type="v2", ndev=port.ndev)
