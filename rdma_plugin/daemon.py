# SPDX-License-Identifier: Apache-2.0
"""The process that `rdma-plugin run` is: scan, build, publish if different, keep registered.

One event loop, one writer. Whatever wakes the loop only means "look again"; the scan tells the truth. A task that dies
takes the process down with it: no zombie that looks healthy and serves dead sockets (K5).
"""

import asyncio
import logging
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from rdma_plugin.core import pools
from rdma_plugin.core.changes import View, changes
from rdma_plugin.core.config import Config
from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import CharNode, Problem
from rdma_plugin.core.pool import Pool
from rdma_plugin.host import chars, scan, watch
from rdma_plugin.host.worker import Worker
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.kubelet.registrar import Registrar
from rdma_plugin.latest import Latest

logger = logging.getLogger(__name__)
SCAN_DEADLINE_S = 10.0
"""A scan of a thousand devices takes well under a second; later than this something hangs."""
CHECK_DEADLINE_S = 2.0
"""A stat in devtmpfs takes microseconds."""
DIRECTORY_DEADLINE_S = 5.0
"""The kubelet's directories are local and small."""
_CARD_HINT = "look for a dying card in dmesg"
_DISK_HINT = "look for a disk or file system that hangs below the kubelet's directories"
RETRY_S = 5.0
"""Pause after a scan that failed as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `run` was asked to do, beside the configuration."""

    root: Path
    """Holds `sys` and `dev` of the node."""
    registration: Mode
    device_plugin_dir: Path
    plugin_registry_dir: Path
    plugin_registry_host_path: PurePosixPath
    """`plugin_registry_dir` as the kubelet sees it (K2)."""


class _Stop(Exception):  # noqa: N818 - not an error: somebody asked the process to stop
    pass


class Daemon:
    """Owns the state of the process; `run` returns when the process was asked to stop."""

    def __init__(self, settings: Settings, config: Config) -> None:
        """Nothing is opened or read before `run`."""
        self._settings = settings
        self._config = config
        self._woken = asyncio.Event()
        self._scan_worker = Worker("host-scan", SCAN_DEADLINE_S, _CARD_HINT)
        self._check_worker = Worker("char-check", CHECK_DEADLINE_S, _CARD_HINT)
        self._view: View | None = None
        self._latest: dict[str, Latest[Pool]] = {}
        self._registrar = Registrar(
            mode=settings.registration,
            device_plugin_dir=settings.device_plugin_dir,
            plugin_registry_dir=settings.plugin_registry_dir,
            plugin_registry_host_path=settings.plugin_registry_host_path,
            check=self._check,
            blocking=Worker("kubelet-directories", DIRECTORY_DEADLINE_S, _DISK_HINT).call,
        )

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; SIGHUP looks at the node again at once.

        Raises:
            ExceptionGroup: a task died; the process must end with it.
        """
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._woken.set)
        directories = (self._settings.device_plugin_dir, self._settings.plugin_registry_dir)
        try:
            with watch.directories(directories, self._registrar.wake):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_raise_when(stopped), name="signals")
                    group.create_task(self._reconcile(group), name="reconcile")
                    group.create_task(self._registrar.watch(), name="kubelet directories")
        except* _Stop:
            logger.info("stopped")

    async def _reconcile(self, group: asyncio.TaskGroup) -> None:
        interval_s = self._config.periodic_update_interval or None
        failed = ""
        while True:
            pause_s: float | None = interval_s
            try:
                inventory = await self._scan_worker.call("scan of the host", lambda: scan.scan(self._settings.root))
            except HostError as err:
                if str(err) != failed:
                    logger.warning("host can't be read, the last lists stay", extra={"why": str(err)})
                failed, pause_s = str(err), RETRY_S
            else:
                failed = ""
                self._publish(
                    View(inventory=inventory, pools=pools.build(self._config, inventory, self._published())), group
                )
            await self._wait_for_wake(pause_s)

    def _published(self) -> Mapping[str, Pool]:
        return {name: latest.value for name, latest in self._latest.items()}

    def _publish(self, view: View, group: asyncio.TaskGroup) -> None:
        for change in changes(self._view, view):
            logger.log(change.severity.value, change.event, extra=dict(change.fields))
        self._view = view
        for pool in view.pools:
            if pool.resource in self._latest:
                self._latest[pool.resource].set(pool)
                continue
            # only now: the kubelet never gets a list from before the first scan (K8)
            latest = self._latest[pool.resource] = Latest(pool)
            group.create_task(self._registrar.keep_registered(pool.resource, latest), name=f"registrar {pool.resource}")

    async def _wait_for_wake(self, pause_s: float | None) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _check(self, nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        def look() -> dict[str, Problem]:
            found = {node.path: chars.check(self._settings.root, node) for node in nodes}
            return {path: problem for path, problem in found.items() if problem}

        return await self._check_worker.call("look at /dev/infiniband", look)


async def _raise_when(stopped: asyncio.Event) -> NoReturn:
    await stopped.wait()
    raise _Stop
