# SPDX-License-Identifier: Apache-2.0
"""`Registrar`: keeps every resource registered with the kubelet, whatever the kubelet does.

One task for each resource, and one that looks at the directories. A registration that ends is followed by the next at
once, because nothing else heals it; one that fails, or lasts less than a second three times in a row, is followed after
a growing pause. A new kubelet.sock ends every pause.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from time import monotonic

from rdma_plugin.core.errors import RdmaPluginError
from rdma_plugin.core.pool import Pool
from rdma_plugin.kubelet.directories import Directories, Directory
from rdma_plugin.kubelet.lane import Contact, Lane
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.kubelet.paths import KUBELET_DIR
from rdma_plugin.kubelet.registration import End, Ending, Plan, Registration, Way
from rdma_plugin.kubelet.reports import Reports
from rdma_plugin.kubelet.server import Blocking, ResourceServer, hold_poller
from rdma_plugin.kubelet.servicer import Check
from rdma_plugin.kubelet.session import Session
from rdma_plugin.latest import Latest


class Registrar:
    """Keeps resources registered; `watch` must run beside `keep_registered`."""

    def __init__(
        self,
        *,
        mode: Mode,
        device_plugin_dir: Path,
        plugin_registry_dir: Path,
        plugin_registry_host_path: PurePosixPath,
        check: Check,
        blocking: Blocking,
    ) -> None:
        """`plugin_registry_host_path` is that directory as the kubelet sees it; `blocking` runs work on directories."""
        self._mode = mode
        self._check = check
        self._blocking = blocking
        self._lanes: dict[str, Lane] = {}
        self._reports = Reports()
        self._directories = Directories(
            Directory(path=device_plugin_dir, seen_as=KUBELET_DIR, flag="--device-plugin-dir"),
            Directory(path=plugin_registry_dir, seen_as=plugin_registry_host_path, flag="--plugin-registry-dir"),
            blocking,
            self._wake_lanes,
        )

    @property
    def contacts(self) -> Mapping[str, Contact]:
        """How each resource stands now."""
        return {resource: lane.contact() for resource, lane in self._lanes.items()}

    def wake(self) -> None:
        """Look at the directories now: something happened there."""
        self._directories.wake()

    async def watch(self) -> None:
        """Watch over kubelet.sock and our sockets until cancelled."""
        hold_poller()
        await self._directories.watch()

    async def keep_registered(self, resource: str, pool: Latest[Pool]) -> None:
        """Keep one resource registered until cancelled; then its streams are ended and its socket is removed."""
        lane = self._lanes[resource] = Lane(resource, pool)
        try:
            while True:
                await self._pause(lane, await self._attempt(lane))
        finally:
            self._lanes.pop(resource, None)

    async def _attempt(self, lane: Lane) -> Ending:
        lane.kubelet_socket = self._directories.kubelet_socket
        path: str | None = None
        try:
            registration = lane.registration = await self._prepare(lane)
            path = registration.path
            try:
                ending = await registration.run()
            finally:
                lane.past = lane.contact()
                lane.registration = None
                await registration.stop()
        except (RdmaPluginError, OSError) as err:
            ending = Ending(end=End.FAILED, why=str(err))
        lane.count(ending)
        if ending.end is End.FAILED or lane.is_flapping:
            lane.error = ending.why
            self._reports.fails(lane.resource, ending.why, path)
        else:
            lane.error = None
            self._reports.ended(lane.resource, ending.why, ending.lived_s)
        return ending

    async def _prepare(self, lane: Lane) -> Registration:
        way, why = await self._choose(lane)
        directory = self._directories.device_plugins if way is Way.KUBELET else self._directories.registry
        path = await self._directories.fresh_path(directory, lane.resource)
        session = Session(lane.changed.set)
        endpoint = str(directory.seen_as / path.name) if way is Way.WATCHER else None
        if way is Way.WATCHER:
            self._reports.offers(lane.resource, str(path), why)
        plan = Plan(
            resource=lane.resource,
            way=way,
            kubelet_socket=lane.kubelet_socket,
            is_fallback=self._mode is Mode.AUTO and way is Way.WATCHER,
            is_suspect=lane.is_flapping,
        )
        resource_server = ResourceServer(lane.pool, self._check, session, path, self._blocking, endpoint)
        return Registration(plan, resource_server, session, self._directories, self._reports, lane.changed)

    async def _choose(self, lane: Lane) -> tuple[Way, str]:
        """Return the way to take, and what is wrong with kubelet.sock if that was tried."""
        if self._mode is Mode.WATCHER:
            return Way.WATCHER, ""
        try:
            lane.kubelet_socket = await self._directories.probe()
        except RdmaPluginError as err:
            if self._mode is Mode.AUTO and await self._directories.has_registry():
                return Way.WATCHER, str(err)
            raise
        return Way.KUBELET, ""

    async def _pause(self, lane: Lane, ending: Ending) -> None:
        if ending.end is not End.FAILED and not lane.is_flapping:
            return
        until = monotonic() + lane.next_pause_s()
        while (left_s := until - monotonic()) > 0:
            lane.changed.clear()
            if self._directories.kubelet_socket not in (None, lane.kubelet_socket):
                lane.calm()
                return
            try:
                async with asyncio.timeout(left_s):
                    await lane.changed.wait()
            except TimeoutError:
                return

    def _wake_lanes(self) -> None:
        for lane in self._lanes.values():
            lane.changed.set()
