# SPDX-License-Identifier: Apache-2.0
"""One entry of `/sys/class/infiniband` into an `RdmaDevice`.

Comes in: the device's name, its real path, and `Surroundings`, which one pass reads once for all devices. Goes out:
the device with every attribute that could be read, and a `Problem` for each that should have been there (D12). All
reads of a device end here, in `pci` and in `netdevs`, through `files`; GID tables are never walked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rdma_plugin.core import parse
from rdma_plugin.core.model import Auxiliary, CharKind, CharNode, PciFunction, Port, Problem, RdmaDevice
from rdma_plugin.host import files, netdevs, pci
from rdma_plugin.host.files import Attribute
from rdma_plugin.host.netdevs import Interfaces
from rdma_plugin.host.netlink import Link

_VIRTUAL = "devices/virtual/"
_RNIC = "4: RNIC"
_SIW_DESCRIPTION = "Software iWARP stack"
_ZERO_GUID_CHARACTERS = "0:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the devices of one pass have in common."""

    top: str
    """Real path of the root's `sys`."""
    char_nodes: Mapping[str, tuple[CharNode, ...]]
    """By ibdev."""
    has_uverbs_class: bool
    """False if ib_uverbs isn't loaded."""
    gpu_paths: tuple[str, ...]
    links: Mapping[str, Link]
    """From route netlink; empty for a root other than `/`."""
    port_netdevs: Mapping[str, tuple[str, ...]]
    """Interfaces of virtual devices by ibdev, from RDMA netlink; a device that isn't there is unknown."""
    read_interfaces: Callable[[str], Interfaces]
    """`netdevs.of_holder`, remembered: all SFs of a function share its interfaces."""
    read_vf_indices: Callable[[str], Mapping[str, int]]
    """`pci.read_vf_indices`, remembered: all VFs of a function share its list."""


def identify(name: str, path: str) -> RdmaDevice:
    """Return what the real path alone tells of a device; needs no read and can't fail."""
    function = pci.ancestor(path)
    return RdmaDevice(
        name=name,
        pci=PciFunction(address=function.rpartition("/")[2], sys_path=function) if function else None,
        is_virtual=path.startswith(_VIRTUAL),
    )


def read_device(around: Surroundings, name: str, path: str) -> RdmaDevice:
    """Read one device; `path` is its real path below `sys`, `…/<holder>/infiniband/<name>`."""
    top = around.top
    problems: list[Problem] = []
    holder = path.rpartition("/infiniband/")[0]
    device = identify(name, path)
    if device.pci:
        function, found = pci.read(top, device.pci.sys_path, around.read_vf_indices)
        device = replace(device, pci=function, nearest_gpu=pci.nearest(function.sys_path, around.gpu_paths))
        problems += found
    guid, parent = (files.read(top, f"{path}/{attribute}") for attribute in ("node_guid", "parent"))
    node_guid = parse.guid(guid.text)
    if guid.text.strip(_ZERO_GUID_CHARACTERS) and node_guid is None:
        problems.append(files.problem(name, guid))
    ports, port_problems = _ports(top, name, path)
    is_sub_device = _is_sub_device(around, name, holder)
    problems += port_problems
    if not is_sub_device:  # a management sub-device beside the real one never has any
        problems += _missing_uverbs(around, name)
    device = replace(
        device,
        guid=node_guid,
        auxiliary=_auxiliary(top, holder),
        software=_software(top, path, parent),
        ports=ports,
        char_nodes=tuple(replace(node, guid=node_guid) for node in around.char_nodes.get(name, ())),
        is_sub_device=is_sub_device,
        problems=tuple(sorted(set(problems))),
    )
    return _with_interfaces(around, device, path, parent.text)


def _with_interfaces(around: Surroundings, device: RdmaDevice, path: str, parent: str) -> RdmaDevice:
    """Add the interfaces; `parent` is what rxe says it runs on."""
    function = device.pci.sys_path if device.pci else None
    is_subfunction = device.auxiliary is not None and device.auxiliary.sfnum is not None
    own = _own_interfaces(around, device, path, parent)
    physical = pci.pf_path(around.top, function) if function and device.pci and device.pci.pf else None
    if physical is None and is_subfunction:
        physical = function
    named = around.read_interfaces(physical) if physical else own
    return replace(device, netdevs=own.netdevs if own else None, pf_netdevs=named.pf_names if named else ())


def _own_interfaces(around: Surroundings, device: RdmaDevice, path: str, parent: str) -> Interfaces | None:
    """Return the device's interfaces; None if they can't be told from others or not at all (siw)."""
    told = around.port_netdevs.get(device.name)
    if told is None and parent:
        told = (parent,)
    if told is None and device.is_virtual:
        told = _gid_netdevs(around.top, path, device.ports)
    if told is not None:
        return netdevs.of_names(around.top, told, around.links)
    holder = path.rpartition("/infiniband/")[0]
    if device.is_virtual or not _owns_holder(around, device.name, holder):
        return None
    if device.pci and device.auxiliary and device.auxiliary.sfnum is None:
        holder = device.pci.sys_path  # a part of the driver itself (irdma): the interface stays with the PCI function
    return around.read_interfaces(holder)


def _owns_holder(around: Surroundings, name: str, holder: str) -> bool:
    """Of several ibdevs in one holder (ConnectX-8), the only one that has a uverbs device owns the interfaces."""
    devices = files.names(around.top, f"{holder}/infiniband")
    if len(devices) == 1:
        return True
    hardware = [
        device for device in devices if files.read(around.top, f"{holder}/infiniband/{device}/parent").is_missing
    ]
    return len(hardware) == 1 or [device for device in hardware if _has_uverbs(around, device)] == [name]


def _gid_netdevs(top: str, path: str, ports: tuple[Port, ...]) -> tuple[str, ...] | None:
    """Return what the first GID of each port names; a read fails on siw (EINVAL), then nothing is known."""
    tables = (files.resolve(top, f"{path}/ports/{port.number}/gid_attrs/ndevs") for port in ports)
    texts = {files.read(top, f"{table}/0").text for table in tables if table}
    return tuple(sorted(texts - {""})) or None


def _ports(top: str, name: str, path: str) -> tuple[tuple[Port, ...], list[Problem]]:
    ports, problems = [], []
    for entry, port_path in files.directories(top, files.enter(top, path, "ports")).items():
        number = parse.decimal(entry)
        if number and str(number) == entry:
            port, found = _port(top, f"{name} port {number}", port_path, number)
            ports.append(port)
            problems += found
    if not ports:
        why = f"{files.host_path(path)}/ports has no entry that can be read"
        problems.append(Problem(f"{name}: no ports", why, "look for errors of the device's driver: dmesg"))
    return tuple(ports), problems


def _port(top: str, owner: str, path: str, number: int) -> tuple[Port, list[Problem]]:
    state, link_layer, rate = (files.read(top, f"{path}/{name}") for name in ("state", "link_layer", "rate"))
    port = Port(
        number=number,
        state=parse.port_state(state.text),
        link_type=parse.link_layer(link_layer.text),
        rate_gbps=parse.rate_gbps(rate.text),
    )
    values = ((state, port.state), (link_layer, port.link_type), (rate, port.rate_gbps))
    return port, [files.problem(owner, attribute) for attribute, value in values if value is None]


def _missing_uverbs(around: Surroundings, name: str) -> list[Problem]:
    """Without ib_uverbs the inventory says so once."""
    if not around.has_uverbs_class or _has_uverbs(around, name):
        return []
    why = "no entry of /sys/class/infiniband_verbs names it, so no program can open it"
    return [Problem(f"{name}: no uverbs device", why, "look for errors of ib_uverbs and the device's driver: dmesg")]


def _is_sub_device(around: Surroundings, name: str, holder: str) -> bool:
    if _has_uverbs(around, name):
        return False
    return any(_has_uverbs(around, device) for device in files.names(around.top, f"{holder}/infiniband"))


def _has_uverbs(around: Surroundings, name: str) -> bool:
    return any(node.kind is CharKind.UVERBS for node in around.char_nodes.get(name, ()))


def _auxiliary(top: str, holder: str) -> Auxiliary | None:
    if files.enter(top, holder, "subsystem") != "bus/auxiliary":
        return None
    return Auxiliary(name=holder.rpartition("/")[2], sfnum=parse.decimal(files.read(top, f"{holder}/sfnum").text))


def _software(top: str, path: str, parent: Attribute) -> str | None:
    """`parent` is an attribute of rxe alone; siw is known by its kind (drivers/infiniband/sw)."""
    if not parent.is_missing:
        return "rdma_rxe"
    if not path.startswith(_VIRTUAL):
        return None
    is_iwarp = (
        files.read(top, f"{path}/node_type").text == _RNIC
        or files.read(top, f"{path}/node_desc").text == _SIW_DESCRIPTION
    )
    return "siw" if is_iwarp else None
