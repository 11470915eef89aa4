# SPDX-License-Identifier: Apache-2.0
"""PCI facts: the function above a device, its PF and VF index, whether it manages NVSwitch, and the nearest GPU.

Comes in: real paths below `sys`. Goes out: values and the problems met. It won't read configuration space, and reads
vital product data only where it can matter, because that is slow on real hardware.
"""

from collections.abc import Callable, Mapping

from rdma_plugin.core import parse
from rdma_plugin.core.model import PciFunction, Problem
from rdma_plugin.host import files

VfIndices = Callable[[str], Mapping[str, int]]

_DISPLAY_CLASS = "0x03"
"""Base class of display controllers: 0300 VGA, 0302 3D, 0380 other (PCI Code and ID Assignment Specification)."""
_MELLANOX = "15b3"
_MANAGEMENT_MARK = b"SW_MNG"
"""In the VPD of the ConnectX functions that manage NVSwitch on HGX B200 (D9)."""
_VPD_LIMIT_BYTES = 32 * 1024
"""VPD has 15-bit addresses (PCI Local Bus Specification 3.0, appendix I)."""


def ancestor(path: str) -> str | None:
    """Return the path of the nearest PCI function on the way up from a real path; None if there is none."""
    while path:
        path = path.rpartition("/")[0]
        if _is_address(path.rpartition("/")[2]):
            return path
    return None


def read(top: str, path: str, vf_indices: VfIndices) -> tuple[PciFunction, tuple[Problem, ...]]:
    """Read the function at a real path; `vf_indices` is `read_vf_indices`, perhaps remembered for the pass."""
    address = path.rpartition("/")[2]
    vendor, device, numa_node = (files.read(top, f"{path}/{name}") for name in ("vendor", "device", "numa_node"))
    ids = {attribute: parse.hex_id(attribute.text) for attribute in (vendor, device)}
    problems = [files.problem(address, attribute) for attribute, value in ids.items() if value is None]
    numa = parse.numa_node(numa_node.text)
    if numa is None and not numa_node.is_missing and numa_node.text != "-1":
        problems.append(files.problem(address, numa_node))
    driver = files.enter(top, path, "driver")
    if driver is None and files.is_link(top, f"{path}/driver"):
        why = f"{files.host_path(path)}/driver leads nowhere below /sys"
        problems.append(
            Problem(f"{address}: driver can't be told", why, "look for errors of the device's driver: dmesg")
        )
    pf = pf_path(top, path)
    function = PciFunction(
        address=address,
        sys_path=path,
        vendor=ids[vendor],
        device=ids[device],
        driver=driver.rpartition("/")[2] if driver else None,
        numa_node=numa,
        pf=pf.rpartition("/")[2] if pf else None,
        vf_index=vf_indices(pf).get(address) if pf else None,
        is_management=pf is None
        and ids[vendor] == _MELLANOX
        and files.holds(top, f"{path}/vpd", _MANAGEMENT_MARK, _VPD_LIMIT_BYTES),
    )
    return function, tuple(problems)


def read_vf_indices(top: str, pf: str) -> Mapping[str, int]:
    """Return address to N for all `virtfnN` of a PF at a real path (drivers/pci/iov.c)."""
    links = [
        (name, parse.decimal(name.removeprefix("virtfn"))) for name in files.names(top, pf) if name.startswith("virtfn")
    ]
    functions = [(files.enter(top, pf, name), index) for name, index in links]
    return {path.rpartition("/")[2]: index for path, index in functions if path and index is not None}


def pf_path(top: str, path: str) -> str | None:
    """Return the real path of a VF's PF; None if the function isn't a VF or its PF isn't visible."""
    physfn = files.enter(top, path, "physfn")
    return physfn if physfn and _is_address(physfn.rpartition("/")[2]) else None


def gpu_paths(top: str) -> tuple[str, ...]:
    """Return the real paths of all display and 3D controllers, by address."""
    functions = files.directories(top, files.resolve(top, "bus/pci/devices"))
    return tuple(
        path for path in functions.values() if files.read(top, f"{path}/class").text.startswith(_DISPLAY_CLASS)
    )


def nearest(path: str, gpus: tuple[str, ...]) -> str | None:
    """Return the address of the GPU that shares the deepest bridge with `path`, the first of several; None if none does."""
    best, best_depth = None, 0
    for gpu in gpus:
        depth = _shared_bridges(path, gpu)
        if depth > best_depth:
            best, best_depth = gpu.rpartition("/")[2], depth
    return best


def _shared_bridges(path: str, other: str) -> int:
    depth = 0
    for part, other_part in zip(path.split("/")[:-1], other.split("/")[:-1], strict=False):
        if part != other_part:
            break
        depth += _is_address(part)
    return depth


def _is_address(name: str) -> bool:
    match = parse.PCI_ADDRESS.fullmatch(name)
    return match is not None and match.group(1) is not None
