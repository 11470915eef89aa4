# SPDX-License-Identifier: Apache-2.0
"""A cheap look at what changes without an event: port states have none, and events get lost.

Returns a value to compare with the one before; what it means is for the scan. Reads a few dozen small files; blocks:
worker thread only.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from rdma_plugin.core.model import RdmaDevice
from rdma_plugin.host import files

Glance: TypeAlias = tuple[object, ...]
_CLASSES = ("class/infiniband", "class/infiniband_verbs", "class/infiniband_mad")


def glance(root: Path, devices: Iterable[RdmaDevice], others: Iterable[Path]) -> Glance:
    """Look at the names of devices and nodes, the ports of these devices, netns mode, and the identity of other files."""
    top = str(root / "sys")
    ports = tuple(
        files.read(top, f"class/infiniband/{device.name}/ports/{port.number}/state").text
        for device in devices
        for port in device.ports
    )
    names = tuple(files.names(top, name) for name in _CLASSES)
    nodes = files.names(str(root / "dev"), "infiniband")
    mode = files.read(top, "module/ib_core/parameters/netns_mode").text
    return (names, ports, nodes, mode, *(identity(path) for path in others))


def is_orphan(directory: Path) -> bool:
    """Return whether a directory is there but has been removed from its parent.

    The kernel removes the /dev/infiniband that it made when the last node goes, and makes a new one for the next node
    (drivers/base/devtmpfs.c); a container that has mounted the old one never sees the new.
    """
    try:
        return directory.stat().st_nlink == 0
    except OSError:
        return False


def identity(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written or replaced, links followed; empty if it can't be looked at."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
