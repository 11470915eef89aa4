# SPDX-License-Identifier: Apache-2.0
"""`Look`: scans of a host that may hang. A device whose read never returns costs itself, and only itself (H5).

Scans run in a worker thread with a deadline. When one is late, the device that it was reading is left out of the next
scans until that read returns; the inventory then holds what was last known of it, with the reason.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rdma_plugin.core.model import Inventory, Problem, RdmaDevice
from rdma_plugin.host import scan
from rdma_plugin.host.worker import LateError, Worker

if TYPE_CHECKING:
    import threading

DEADLINE_S = 5.0
"""A scan of a thousand devices takes a second; later than this something hangs."""
_HINT = "look for a dying card in dmesg"


class Scan(Protocol):
    """Reads a host, as `host.scan.scan` does."""

    def __call__(self, root: Path, *, leave_out: Collection[str], on_device: Callable[[str], object]) -> Inventory:
        """Return what is there; `on_device` is told each device's name before its files are read."""


class Look:
    """Scans one host again and again; used from one event loop."""

    def __init__(self, root: Path, deadline_s: float = DEADLINE_S, scan: Scan = scan.scan) -> None:
        """`root` holds `sys` and `dev`; `deadline_s` is the time one scan may take; `scan` reads the host."""
        self._root = root
        self._scan = scan
        self._worker = Worker("host-scan", deadline_s, _HINT)
        self._hung: dict[str, threading.Thread] = {}
        self._known: dict[str, RdmaDevice] = {}

    async def scan(self) -> Inventory:
        """Return what the host has now.

        Raises:
            HostError: the host as a whole can't be read.
        """
        while True:
            self._hung = {name: thread for name, thread in self._hung.items() if thread.is_alive()}
            hung = frozenset(self._hung)
            reading: list[str] = []
            scanning = partial(self._scan, self._root, leave_out=hung, on_device=reading.append)
            try:
                inventory = await self._worker.call("scan of the host", scanning)
            except LateError as err:
                if not reading or reading[-1] in hung:
                    raise
                self._hung[reading[-1]] = err.thread
                continue
            # what is known of a hung device is from before
            self._known |= {device.name: device for device in inventory.devices if device.name not in hung}
            self._known = {
                device.name: self._known[device.name] for device in inventory.devices if device.name in self._known
            }
            return replace(inventory, devices=tuple(map(self._with_hung, inventory.devices)))

    def close(self) -> None:
        """Let the worker thread end."""
        self._worker.close()

    def _with_hung(self, device: RdmaDevice) -> RdmaDevice:
        if device.name not in self._hung:
            return device
        problem = Problem(
            what=f"{device.name}: can't be read",
            why="a read of its files in /sys doesn't return; the driver or the card hangs",
            hint=_HINT,
        )
        known = self._known.get(device.name, device)
        nodes = tuple(replace(node, problem=problem) for node in known.char_nodes)
        return replace(known, char_nodes=nodes, ports=(), problems=(problem,))
