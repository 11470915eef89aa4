# SPDX-License-Identifier: Apache-2.0
"""The kubelet's two directories as the registrar sees them: which kubelet.sock is there, and are our sockets.

Looks each second, and at once when woken; the look by timer is enough, because inotify may be exhausted or blind (K7).
Everything that touches the disk runs in a worker thread.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from rdma_plugin.core.errors import RdmaPluginError
from rdma_plugin.kubelet import paths
from rdma_plugin.kubelet.paths import SocketId
from rdma_plugin.kubelet.server import Blocking

logger = logging.getLogger(__name__)
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory that our sockets are made in."""

    path: Path
    seen_as: PurePosixPath
    """The same directory as the kubelet sees it (K2)."""
    flag: str
    """Name of the option that says where it is, for hints."""


class Directories:
    """What is known of the directories; `watch` keeps it true."""

    def __init__(
        self, device_plugins: Directory, registry: Directory, blocking: Blocking, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called on the loop when kubelet.sock or one of our sockets isn't what it was."""
        self.device_plugins = device_plugins
        self.registry = registry
        self.kubelet_path = device_plugins.path / paths.KUBELET_SOCKET
        self.kubelet_socket: SocketId | None = None
        """Which kubelet.sock was there at the last look, whether or not somebody listens; None if none was."""
        self._blocking = blocking
        self._on_change = on_change
        self._held: dict[Path, SocketId] = {}
        self._lost: set[Path] = set()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()

    async def watch(self) -> None:
        """Look and look again until cancelled."""
        await self._remove_dead()
        while True:
            await self._look()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._woken.wait()
            except TimeoutError:
                continue
            finally:
                self._woken.clear()

    async def probe(self) -> SocketId:
        """Return which kubelet.sock it is that somebody listens on.

        Raises:
            RdmaPluginError: nobody does, or it can't be told.
        """
        self.kubelet_socket = await self._blocking("dial kubelet.sock", lambda: paths.probe(self.kubelet_path))
        return self.kubelet_socket

    async def has_registry(self) -> bool:
        """Return whether there is a directory for the plugin watcher."""
        return await self._blocking("look for the plugin registry", self.registry.path.is_dir)

    async def fresh_path(self, directory: Directory, resource: str) -> Path:
        """Return a path for a new socket, in a directory in which one can be made.

        Raises:
            RdmaPluginError: none can be made there; with the reason and what to do.
        """
        name = paths.fresh_name(resource, directory.path, directory.seen_as)
        await self._blocking("make a socket", lambda: paths.check_directory(directory.path, directory.flag))
        return directory.path / name

    def hold(self, path: Path, socket_id: SocketId) -> None:
        """Watch over a socket of ours from now on."""
        self._held[path] = socket_id

    def release(self, path: Path) -> None:
        """Forget a socket of ours; it may be removed."""
        self._held.pop(path, None)
        self._lost.discard(path)

    def is_lost(self, path: Path) -> bool:
        """True if a socket of ours was gone or replaced at the last look."""
        return path in self._lost

    async def _look(self) -> None:
        held = dict(self._held)

        def look() -> tuple[SocketId | None, set[Path]]:
            lost = {path for path, socket_id in held.items() if paths.identify(path) != socket_id}
            return paths.identify(self.kubelet_path), lost

        try:
            kubelet_socket, lost = await self._blocking("look at the kubelet's directories", look)
        except RdmaPluginError as err:
            logger.debug("directories not looked at", extra={"why": str(err)})
            return
        lost &= self._held.keys()  # what was released meanwhile was removed on purpose
        if kubelet_socket == self.kubelet_socket and lost == self._lost:
            return
        is_new = kubelet_socket not in (None, self.kubelet_socket)
        self.kubelet_socket, self._lost = kubelet_socket, lost
        self._on_change()
        if is_new:
            await self._remove_dead()

    async def _remove_dead(self) -> None:
        for directory in {self.device_plugins.path, self.registry.path}:
            try:
                names = await self._blocking("remove dead sockets", partial(paths.remove_dead, directory))
            except RdmaPluginError as err:
                logger.debug("dead sockets not looked for", extra={"why": str(err)})
                continue
            if names:
                logger.info("removed dead sockets of earlier runs", extra={"directory": str(directory), "names": names})
