# SPDX-License-Identifier: Apache-2.0
"""Network interfaces of an RDMA device's holder: names, bond masters, switchdev representors and uplinks.

Comes in: the real path of a directory that may have a `net` directory, and what netlink told about links. Goes out:
`Interfaces`. An interface in another network namespace isn't in the host's sysfs and so isn't here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rdma_plugin.core import parse
from rdma_plugin.core.model import NetDevice
from rdma_plugin.host import files
from rdma_plugin.host.netlink import Link

_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf\d+|sf\d+)?")
"""`phys_port_name` of host PF, VF and SF, perhaps of another controller (net/core/devlink.c)."""
_UPLINK = re.compile(r"p\d+(?:s\d+)?")
"""`phys_port_name` of a physical port, perhaps split; together with `phys_switch_id` it is a switchdev uplink."""
_MASTER_KINDS = ("bond", "team")


@dataclass(frozen=True, slots=True)
class Interfaces:
    """All interfaces below one holder."""

    netdevs: tuple[NetDevice, ...] = ()
    """By name, with the bond or team above each."""
    pf_names: tuple[str, ...] = ()
    """What a `pfNames` selector may call the holder: its own interfaces; only the uplinks in switchdev mode."""


def of_holder(top: str, holder: str, links: Mapping[str, Link]) -> Interfaces:
    """Read the interfaces below `<holder>/net`; a missing directory is none."""
    paths = files.directories(top, files.enter(top, holder, "net")).values()
    return _interfaces(top, paths, links)


def of_names(top: str, names: tuple[str, ...], links: Mapping[str, Link]) -> Interfaces:
    """Read interfaces by name; those that the host doesn't have are left out."""
    paths = [files.resolve(top, f"class/net/{name}") for name in names if parse.interface_name(name)]
    return _interfaces(top, [path for path in paths if path], links)


def _interfaces(top: str, paths: Iterable[str], links: Mapping[str, Link]) -> Interfaces:
    own: dict[str, NetDevice] = {}
    masters: dict[str, NetDevice] = {}
    uplinks = []
    for path in paths:
        netdev, master = _netdev(top, path, links)
        port_name = files.read(top, f"{path}/phys_port_name").text
        own[netdev.name] = replace(netdev, is_representor=_REPRESENTOR.fullmatch(port_name) is not None)
        if _UPLINK.fullmatch(port_name) and files.read(top, f"{path}/phys_switch_id").text:
            uplinks.append(netdev.name)
        if master and _is_bond(top, master, links):
            above, _ = _netdev(top, master, links)
            masters[above.name] = replace(above, is_master=True)
    netdevs = tuple(sorted((masters | own).values(), key=lambda netdev: parse.natural(netdev.name)))
    plain = [netdev.name for netdev in own.values() if not netdev.is_representor]
    pf_names = uplinks if uplinks and len(plain) < len(own) else plain
    return Interfaces(netdevs, tuple(sorted(pf_names, key=parse.natural)))


def _netdev(top: str, path: str, links: Mapping[str, Link]) -> tuple[NetDevice, str | None]:
    """Return an interface and the path of its master."""
    name = path.rpartition("/")[2]
    master = files.enter(top, path, "master")
    altnames = links[name].altnames if name in links else ()
    return NetDevice(name=name, altnames=altnames, master=master.rpartition("/")[2] if master else None), master


def _is_bond(top: str, master: str, links: Mapping[str, Link]) -> bool:
    """A bond shows `bonding` in sysfs; a team shows nothing there, only netlink knows it from a bridge or a VRF."""
    link = links.get(master.rpartition("/")[2])
    return files.enter(top, master, "bonding") is not None or (link is not None and link.kind in _MASTER_KINDS)
