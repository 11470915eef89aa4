# SPDX-License-Identifier: Apache-2.0
"""`Registrar`: keeps every resource registered with the kubelet, whatever the kubelet does.

One task for each resource, and one that looks at the directories. A registration that ends is followed by the next at
once, because nothing else heals it; one that fails, or lasts less than a second three times in a row, is followed after
a growing pause. A new kubelet.sock ends every pause.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from time import monotonic

from rdma_plugin.core.errors import RdmaPluginError
from rdma_plugin.core.pool import Pool
from rdma_plugin.kubelet.directories import Directories, Directory
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.kubelet.paths import KUBELET_DIR, SocketId
from rdma_plugin.kubelet.registration import SHORT_LIFE_S, End, Ending, Plan, Registration, Way
from rdma_plugin.kubelet.reports import Reports
from rdma_plugin.kubelet.server import Blocking, ResourceServer, hold_poller
from rdma_plugin.kubelet.servicer import Check
from rdma_plugin.kubelet.session import Call, Session
from rdma_plugin.latest import Latest

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
SHORT_LIVES = 3
"""Streams shorter than `SHORT_LIFE_S` in a row before there is a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How a resource stands with the kubelet at one moment."""

    way: Way | None = None
    """The way in use or being tried; None between attempts."""
    is_registered: bool = False
    """True if the kubelet accepted the registration."""
    is_current: bool = False
    """True if kubelet.sock and our socket are the ones that the registration was made with."""
    streams: int = 0
    """ListAndWatch streams that are open."""
    last_call: Call | None = None
    """What the kubelet called last, over all registrations."""
    last_call_at: str | None = None
    """ISO 8601, UTC."""
    last_error: str | None = None
    """Why the last attempt failed; None once the kubelet reads our list."""

    @property
    def is_ready(self) -> bool:
        """True if the kubelet reads our list by the sockets that are there."""
        return self.is_registered and self.is_current and self.streams > 0


class _Lane:
    """One resource on its way from registration to registration."""

    def __init__(self, resource: str, pool: Latest[Pool]) -> None:
        self.resource = resource
        self.pool = pool
        self.changed = asyncio.Event()
        self.registration: Registration | None = None
        self.past = Contact()
        self.kubelet_socket: SocketId | None = None  # as the attempt saw it
        self.error: str | None = None
        self.short_lives = 0
        self.pauses = 0

    def contact(self) -> Contact:
        registration = self.registration
        if registration is None:
            return Contact(last_call=self.past.last_call, last_call_at=self.past.last_call_at, last_error=self.error)
        session = registration.session
        return Contact(
            way=registration.plan.way,
            is_registered=session.accepted_at is not None and session.ended_at is None,
            is_current=registration.is_current,
            streams=session.streams,
            last_call=session.last_call or self.past.last_call,
            last_call_at=session.last_call_at or self.past.last_call_at,
            last_error=None if session.streams else self.error,
        )

    def count(self, ending: Ending) -> None:
        if ending.end is End.ENDED and ending.lived_s < SHORT_LIFE_S:
            self.short_lives += 1
        elif ending.end is not End.FAILED:
            self.calm()

    def calm(self) -> None:
        self.short_lives = self.pauses = 0

    @property
    def is_flapping(self) -> bool:
        return self.short_lives >= SHORT_LIVES

    def next_pause_s(self) -> float:
        most = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self.pauses)
        self.pauses = min(self.pauses + 1, 16)
        return random.uniform(most / 2, most)  # noqa: S311 - jitter: resources must not come back all at once


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
        self._lanes: dict[str, _Lane] = {}
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
        lane = self._lanes[resource] = _Lane(resource, pool)
        try:
            while True:
                await self._pause(lane, await self._attempt(lane))
        finally:
            del self._lanes[resource]

    async def _attempt(self, lane: _Lane) -> Ending:
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

    async def _prepare(self, lane: _Lane) -> Registration:
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

    async def _choose(self, lane: _Lane) -> tuple[Way, str]:
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

    async def _pause(self, lane: _Lane, ending: Ending) -> None:
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
