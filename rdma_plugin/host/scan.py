# SPDX-License-Identifier: Apache-2.0
"""One pass over a host: everything below `<root>/sys` and `<root>/dev` that matters, as an `Inventory`.

First the identity of all devices, then what the node shares (char nodes, GPUs, netlink), then device by device; what
fails costs only itself and is stated. Blocks: worker thread only. Netlink is asked only for root `/`, and only where
devices make it worth while, since a mere RDMA netlink socket may load ib_core.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from rdma_plugin.core import parse
from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import CharNode, Inventory, NetnsMode, Problem, RdmaDevice
from rdma_plugin.host import chars, files, netdevs, netlink, pci, sysfs
from rdma_plugin.host.sysfs import Surroundings

T = TypeVar("T")

_CLASS = "class/infiniband"


def scan(
    root: Path, *, leave_out: Collection[str] = (), on_device: Callable[[str], object] = lambda _: None
) -> Inventory:
    """Read the host below `root`.

    Of the devices in `leave_out` only the path is told, because their files are known to hang. `on_device` is called
    with a device's name before its files are read, in the calling thread.

    Raises:
        HostError: `<root>/sys` can't be listed.
    """
    try:
        top = files.top_of(root)
    except (OSError, ValueError) as error:
        hint = "mount the host's /sys there or give another --root"
        raise HostError(f"{root / 'sys'} can't be listed: {files.reason(error)}; {hint}") from error
    return settled(
        lambda: files.names(top, files.resolve(top, _CLASS)),
        lambda names: _pass(root, top, names, leave_out, on_device),
    )


def settled(list_names: Callable[[], tuple[str, ...]], read: Callable[[tuple[str, ...]], T]) -> T:
    """Read what is listed; once more if the list is another one afterwards, as when udev renames a device (D13)."""
    names = list_names()
    found = read(names)
    later = list_names()
    return found if later == names else read(later)


def _pass(
    root: Path,
    top: str,
    names: tuple[str, ...],
    leave_out: Collection[str],
    on_device: Callable[[str], object],
) -> Inventory:
    paths, problems = _paths(top, names)
    is_host = root.resolve() == Path("/") and bool(paths)
    virtual = [name for name, path in paths.items() if sysfs.identify(name, path).is_virtual]
    links = netlink.links() if is_host else {}
    char_nodes, char_problems = chars.join(root, top)
    around = Surroundings(
        top=top,
        char_nodes=char_nodes,
        has_uverbs_class=files.resolve(top, "class/infiniband_verbs") is not None,
        gpu_paths=pci.gpu_paths(top) if paths else (),
        links=links,
        port_netdevs=netlink.port_netdevs(virtual) if is_host else {},
        read_interfaces=cache(partial(netdevs.of_holder, top, links=links)),
        read_vf_indices=cache(partial(pci.read_vf_indices, top)),
    )
    rdma_cm = chars.read_rdma_cm(root, top)
    netns_mode = _netns_mode(top, is_host=is_host)
    problems += [*char_problems, *_node_problems(around, paths, rdma_cm, netns_mode)]
    devices = []
    for name, path in paths.items():
        if name in leave_out:
            devices.append(sysfs.identify(name, path))
            continue
        on_device(name)
        devices.append(read_device(around, name, path))
    return Inventory(
        devices=tuple(devices),
        rdma_cm=rdma_cm,
        netns_mode=netns_mode,
        problems=tuple(sorted(set(problems))),
    )


def _paths(top: str, names: Iterable[str]) -> tuple[Mapping[str, str], list[Problem]]:
    """Return the real path of each device by name, and what is wrong with the entries that are none."""
    paths, problems = {}, []
    for name in names:
        link = f"{_CLASS}/{name}"
        path = files.resolve(top, link)
        if path and name.isprintable() and path.startswith("devices/") and path.split("/")[-2] == "infiniband":
            paths[name] = path
        elif path or files.is_link(top, link):
            why = f"{files.host_path(link)!a} doesn't lead to the directory of an RDMA device"
            problems.append(
                Problem(f"{name!a}: not a device", why, "if it stays, reload the driver that made the entry")
            )
    return paths, problems


def read_device(around: Surroundings, name: str, path: str) -> RdmaDevice:
    """Read one device; whatever goes wrong, what its path tells remains."""
    try:
        return sysfs.read_device(around, name, path)
    except Exception as error:  # noqa: BLE001 - one broken device must not lose the others (D12)
        why = f"{files.host_path(path)}: {type(error).__name__}: {error}"
        problem = Problem(f"{name}: can't be read", why, "please report it, with a listing of that directory")
        return replace(sysfs.identify(name, path), problems=(problem,))


def _netns_mode(top: str, *, is_host: bool) -> NetnsMode | None:
    parameters = files.resolve(top, "module/ib_core/parameters")
    mode = parse.netns_mode(files.read(top, f"{parameters}/netns_mode").text) if parameters else None
    return netlink.netns_mode() if mode is None and is_host else mode


def _node_problems(
    around: Surroundings, names: Collection[str], rdma_cm: CharNode | None, mode: NetnsMode | None
) -> Iterator[Problem]:
    """Yield what is wrong with the node as a whole, and which module to load."""
    if mode is NetnsMode.EXCLUSIVE:
        why = "each RDMA device belongs to one network namespace, so a pod can't use a device of the host"
        hint = "set it to shared: `rdma system set netns shared` before any pod runs, or ib_core's module option netns_mode=1"
        yield Problem("RDMA devices are in the exclusive network namespace mode", why, hint)
    if files.resolve(around.top, _CLASS) is None:
        why = f"{files.host_path(_CLASS)} doesn't exist: no RDMA driver is loaded"
        hint = "look for an adapter with `lspci -nn` and load its RDMA driver, for NVIDIA/Mellanox: modprobe mlx5_ib"
        yield Problem("no RDMA devices", why, hint)
    elif not names:
        why = f"{files.host_path(_CLASS)} names no device"
        hint = "load the adapter's RDMA driver, for NVIDIA/Mellanox: modprobe mlx5_ib; its complaints are in dmesg"
        yield Problem("no RDMA devices", why, hint)
    if names and not around.has_uverbs_class:
        why = f"{files.host_path('class/infiniband_verbs')} doesn't exist: ib_uverbs isn't loaded"
        yield Problem("no uverbs devices", why, "load ib_uverbs: modprobe ib_uverbs")
    if names and rdma_cm is None:
        why = f"{files.host_path('class/misc/rdma_cm')} doesn't exist: rdma_ucm isn't loaded"
        yield Problem("no rdma_cm device", why, "load rdma_ucm: modprobe rdma_ucm")
