# SPDX-License-Identifier: Apache-2.0
"""The kubelet's two directories as the registrar sees them: which kubelet.sock is there, and are our sockets.

Looks each second, and at once when woken; the look by timer is enough, because inotify may be exhausted or blind (K7).
Everything that touches the disk runs in a worker thread.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from time import monotonic

from rdma_plugin.core.errors import RdmaPluginError
from rdma_plugin.kubelet import paths
from rdma_plugin.kubelet.paths import SocketId
from rdma_plugin.kubelet.server import Blocking

logger = logging.getLogger(__name__)
_LATE_NS = 20_000_000_000
"""A socket may be registered that long after it was made (a Register call takes up to 15 s), so of two sockets made in
that time nobody can say which one the kubelet took last."""
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
        self._own: set[Path] = set()
        self._held: dict[Path, SocketId] = {}
        self._lost: set[Path] = set()
        self._succeeded: set[Path] = set()
        self._bereft_at: dict[Path, float] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()

    async def watch(self) -> None:
        """Look and look again until cancelled."""
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
        self._own.add(directory.path / name)
        return directory.path / name

    def hold(self, path: Path, socket_id: SocketId) -> None:
        """Watch over a socket of ours from now on."""
        self._held[path] = socket_id

    def release(self, path: Path) -> None:
        """Watch no longer over a socket of ours; it may be removed. It is ours until `forget`."""
        self._held.pop(path, None)
        self._lost.discard(path)
        self._bereft_at.pop(path, None)

    def forget(self, path: Path) -> None:
        """Take a path that `fresh_path` gave for anybody's again: our socket there is removed."""
        self._own.discard(path)

    def is_lost(self, path: Path) -> bool:
        """True if a socket of ours was gone or replaced at the last look."""
        return path in self._lost

    def bereft_at(self, path: Path) -> float | None:
        """Return when another instance that had come after a socket of ours ended, monotonic seconds; None if none did."""
        return self._bereft_at.get(path)

    async def _look(self) -> None:
        held, own = dict(self._held), frozenset(self._own)
        folders = {self.device_plugins.path, self.registry.path}

        def look() -> tuple[SocketId | None, set[Path], list[paths.Survey]]:
            lost = {path for path, socket_id in held.items() if paths.identify(path) != socket_id}
            return paths.identify(self.kubelet_path), lost, [paths.survey(folder, own) for folder in folders]

        try:
            kubelet_socket, lost, surveys = await self._blocking("look at the kubelet's directories", look)
        except (RdmaPluginError, OSError) as err:
            logger.debug("directories not looked at", extra={"why": str(err)})
            return
        # a path that became ours during the look isn't another process's
        removed = {path: made for survey in surveys for path, made in survey.removed.items() if path not in self._own}
        if removed:
            names = sorted(path.name for path in removed)
            logger.info("removed dead sockets of other processes", extra={"names": names})
        self._succeeded |= self._with_younger(removed)  # also one that came and was killed between two looks
        lost &= self._held.keys()  # what was released meanwhile was removed on purpose
        others = {path: made for survey in surveys for path, made in survey.others.items() if path not in self._own}
        bereft = self._compare(others)
        if (kubelet_socket, lost) != (self.kubelet_socket, self._lost) or bereft:
            self.kubelet_socket, self._lost = kubelet_socket, lost
            self._on_change()

    def _compare(self, others: dict[Path, SocketId]) -> bool:
        """Note which of our sockets has a younger sibling, and which has none any more; return whether there are such."""
        before, self._succeeded = self._succeeded, self._with_younger(others)
        for path in self._succeeded:
            self._bereft_at.pop(path, None)
        for path in self._succeeded - before:
            logger.info("another instance of the plugin serves the resource too", extra={"path": str(path)})
        bereft = (before - self._succeeded) & self._held.keys()
        for path in bereft:
            self._bereft_at[path] = monotonic()
        return bool(bereft)

    def _with_younger(self, others: dict[Path, SocketId]) -> set[Path]:
        """Return those of our sockets after which one of the others may have registered for the same resource."""
        newest: dict[str, int] = {}
        for path, made in others.items():
            newest[paths.family(path)] = max(made.mtime_ns, newest.get(paths.family(path), 0))
        return {
            path for path, made in self._held.items() if newest.get(paths.family(path), 0) > made.mtime_ns - _LATE_NS
        }
