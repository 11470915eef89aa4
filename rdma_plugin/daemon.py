# SPDX-License-Identifier: Apache-2.0
"""The process that `rdma-plugin run` is: look, build, publish if different, keep registered.

One event loop, one writer. Whatever wakes the loop only means "look again": the configuration and the node are read
anew and the result is compared. A task that dies takes the process down with it: no zombie that looks healthy and
serves dead sockets (K5).
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

import rdma_plugin
from rdma_plugin import http
from rdma_plugin.core.config import Config
from rdma_plugin.core.errors import HostError
from rdma_plugin.core.model import CharNode, Problem
from rdma_plugin.core.status import Link, Status
from rdma_plugin.host import chars, glance, netlink, watch
from rdma_plugin.host.worker import Worker
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.kubelet.registrar import Registrar
from rdma_plugin.reconcile import Reconciler
from rdma_plugin.wake import Wake

logger = logging.getLogger(__name__)
CHECK_DEADLINE_S = 2.0
"""A stat in devtmpfs takes microseconds."""
DIRECTORY_DEADLINE_S = 5.0
"""The kubelet's directories are local and small."""
GLANCE_S = 2.0
"""Between two looks at what changes without an event."""
_CARD_HINT = "look for a dying card in dmesg"
_DISK_HINT = "look for a disk or file system that hangs below the kubelet's directories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `run` was asked to do, beside the configuration."""

    root: Path
    """Holds `sys` and `dev` of the node."""
    config: Path
    """The configuration file, read again whenever it changes."""
    registration: Mode
    device_plugin_dir: Path
    plugin_registry_dir: Path
    plugin_registry_host_path: PurePosixPath
    """`plugin_registry_dir` as the kubelet sees it (K2)."""
    http_address: tuple[str, int] | None
    """Host and port of the HTTP server; None for none."""


class _Stop(Exception):  # noqa: N818 - not an error: somebody asked the process to stop
    pass


class Daemon:
    """Owns the state of the process; `run` returns when the process was asked to stop."""

    def __init__(self, settings: Settings, config: Config, text: bytes) -> None:
        """`config` is what `text`, the file's bytes, means. Nothing is opened or read before `run`."""
        self._settings = settings
        self._wake = Wake()
        self._check_worker = Worker("char-check", CHECK_DEADLINE_S, _CARD_HINT)
        self._glance_worker = Worker("glance", CHECK_DEADLINE_S, _CARD_HINT)
        self._registrar = Registrar(
            mode=settings.registration,
            device_plugin_dir=settings.device_plugin_dir,
            plugin_registry_dir=settings.plugin_registry_dir,
            plugin_registry_host_path=settings.plugin_registry_host_path,
            check=self._check,
            blocking=Worker("kubelet-directories", DIRECTORY_DEADLINE_S, _DISK_HINT).call,
        )
        self._reconciler = Reconciler(
            root=settings.root, file=settings.config, config=config, text=text, keep=self._registrar.keep_registered
        )

    async def run(self) -> None:
        """Work until SIGTERM, SIGINT or SIGQUIT; SIGHUP reads the configuration and looks at the node again at once.

        Raises:
            ExceptionGroup: a task died; the process must end with it.
        """
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._wake.set)
        settings = self._settings
        fields = {"version": rdma_plugin.__version__, "config": str(settings.config), "root": str(settings.root)}
        logger.info("starting", extra=fields | {"registration": settings.registration.value})
        try:
            with self._watches():
                async with asyncio.TaskGroup() as group:
                    group.create_task(_raise_when(stopped), name="signals")
                    group.create_task(self._registrar.watch(), name="kubelet directories")
                    group.create_task(self._glance(), name="glance")
                    group.create_task(self._reconciler.run(group, self._wake), name="reconcile")
                    if self._settings.http_address:
                        group.create_task(http.serve(*self._settings.http_address, self.status), name="http")
        except* _Stop:
            logger.info("stopped")

    def status(self) -> Status:
        """Return how the process stands; on the loop."""
        links = (
            Link(
                resource=resource,
                mode=contact.way,
                is_registered=contact.is_registered,
                is_ready=contact.is_ready,
                streams=contact.streams,
                last_contact=contact.last_call_at,
                last_error=contact.last_error,
                registrations=contact.registrations,
                failures=contact.failures,
                allocations=contact.allocations,
                refusals=contact.refusals,
            )
            for resource, contact in sorted(self._registrar.contacts.items())
        )
        return self._reconciler.status(rdma_plugin.__version__, tuple(links))

    def _watches(self) -> ExitStack:
        settings = self._settings
        with ExitStack() as stack:
            kubelet = (settings.device_plugin_dir, settings.plugin_registry_dir)
            stack.enter_context(watch.directories(kubelet, self._registrar.wake))
            # a ConfigMap is swapped by a link beside the file, an editor renames over it: both show in its directory
            stack.enter_context(watch.directories([settings.config.parent], self._wake.set))
            if settings.root == Path("/"):
                stack.enter_context(watch.uevents(self._wake.set))
                stack.enter_context(watch.link_events(self._wake.set))
                threading.Thread(target=netlink.prepare, name="import", daemon=True).start()
            return stack.pop_all()

    async def _glance(self) -> NoReturn:
        """Wake when something changed that has no event, or whose event was lost.

        The first glance always wakes: what changed between it and the first scan would else go unnoticed.

        Raises:
            HostError: the char nodes can never be seen again from here.
        """
        before: glance.Glance = ()
        root, nodes = self._settings.root, self._settings.root / "dev" / "infiniband"

        def look() -> tuple[glance.Glance, bool]:
            devices = self._reconciler.readable_devices()
            return glance.glance(root, devices, [self._settings.config]), glance.is_orphan(nodes)

        while True:
            await asyncio.sleep(GLANCE_S)
            try:
                now, is_orphan = await self._glance_worker.call("glance at the host", look)
            except HostError as err:
                now, is_orphan = (str(err),), False
            if is_orphan:
                raise HostError(
                    f"{nodes} was removed and made anew on the host, and this container still has the old directory: "
                    "ending, so that the kubelet starts the container again with the new one"
                )
            if now != before:
                self._wake.set()
            before = now

    async def _check(self, nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        def look() -> dict[str, Problem]:
            found = {node.path: chars.check(self._settings.root, node) for node in nodes}
            return {path: problem for path, problem in found.items() if problem}

        unusable = await self._check_worker.call("look at /dev/infiniband", look)
        if unusable:
            self._wake.set()  # the last look at the host is out of date
        return unusable


async def _raise_when(stopped: asyncio.Event) -> NoReturn:
    await stopped.wait()
    raise _Stop
