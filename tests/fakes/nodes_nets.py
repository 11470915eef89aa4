# SPDX-License-Identifier: Apache-2.0
"""Lay out network interfaces: Ethernet, IPoIB with its children, bonds, switchdev representors.

An interface that lives in another network namespace leaves nothing behind but its holder's `net` directory.
"""

from collections.abc import Iterable
from itertools import count
from pathlib import Path

from tests.fakes.nodes_format import HOST, NetSpec, Node
from tests.fakes.nodes_tree import Tree

_IPOIB_PREFIX = "00:00:10:47:fe:80:00:00:00:00:00:00"
_IPOIB_CHILD_PREFIX = "00:00:10:4f"


class Nets:
    """Lays interfaces out; remembers where each lies, because links and children point back to it."""

    def __init__(self, tree: Tree, node: Node) -> None:
        """`node` tells the port GUIDs that IPoIB addresses are made of."""
        self._tree = tree
        self._has_ipoib = "ib_ipoib" in node.modules
        devices = [device for holder in node.holders() for device in holder.rdma]
        self._guids = {
            f"{device.name}/{port.n}": port.guid or device.guid for device in devices for port in device.ports
        }
        self._indices = count(2)
        self._made: dict[str, tuple[NetSpec, Path]] = {}

    def lay_out(self, base: Path, parent: Path | None, nets: Iterable[NetSpec]) -> None:
        """Make the interfaces of one holder; `net/` is there even if all of them are in other namespaces."""
        known = [net for net in nets if self._has_ipoib or not net.ipoib]
        if known:
            self._tree.directory(base / "net")
        for net in known:
            if net.netns == HOST:
                self._interface(base / "net" / net.name, parent, net)

    def lay_out_masters(self) -> None:
        """Link interfaces to their bond and the bond to them."""
        tree = self._tree
        bonds = [name for name, (net, _) in self._made.items() if net.bond]
        if bonds:
            tree.text(tree.sys / "class/net/bonding_masters", " ".join(bonds))
        for bond in bonds:
            master = self._made[bond][1]
            slaves = {name: path for name, (net, path) in self._made.items() if net.master == bond}
            tree.texts(master / "bonding", slaves=" ".join(slaves), mode="802.3ad 4")
            for name, path in slaves.items():
                tree.link(path / "master", master)
                tree.link(path / f"upper_{bond}", master)
                tree.link(master / f"lower_{name}", path)

    def _interface(self, directory: Path, parent: Path | None, net: NetSpec) -> None:
        tree = self._tree
        index = link = next(self._indices)
        address, port_index = net.mac, None
        if net.ipoib:
            device, _, port = net.ipoib.partition("/")
            port_index = int(port or 1) - 1
            guid = self._guids[f"{device}/{port_index + 1}"].replace(":", "")
            address = address or f"{_IPOIB_PREFIX}:{bytes.fromhex(guid).hex(':')}"
        if net.child_of:
            upper = self._made[net.child_of][1]
            address = _IPOIB_CHILD_PREFIX + (upper / "address").read_text().strip()[len(_IPOIB_CHILD_PREFIX) :]
            link = int((upper / "ifindex").read_text())
        if address is None:
            raise ValueError(f"interface {net.name} has no mac")
        tree.texts(
            directory,
            type=net.type,
            address=address,
            addr_len=address.count(":") + 1,
            dev_port=net.dev_port if port_index is None else port_index,
            dev_id=f"{net.dev_id if port_index is None else port_index:#x}",
            operstate=net.state,
            mtu=net.mtu,
            speed=net.speed,
            ifindex=index,
            iflink=link,
            flags="0x1003" if net.state == "up" else "0x1002",
            phys_port_name=net.port_name,
            phys_switch_id=net.switch_id,
            uevent=f"INTERFACE={net.name}\nIFINDEX={index}",
            parent=net.child_of,
            pkey=net.pkey or ("0xffff" if net.ipoib else None),
            mode="datagram" if net.ipoib and not net.pkey else None,
        )
        tree.texts(directory, **net.files)
        tree.subsystem(directory, "net")
        if parent:
            tree.link(directory / "device", parent)
        tree.link(tree.sys / "class/net" / net.name, directory)
        self._made[net.name] = (net, directory)
