# SPDX-License-Identifier: Apache-2.0
"""`Reconciler`: the one writer. Reads configuration and host, builds pools, publishes what differs.

Each round reads everything anew, so no event can be lost and none has to be understood. A bad configuration keeps the
running one; a host that can't be read keeps the last lists. Only resources that changed are touched.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NoReturn

from rdma_plugin.core import config as config_module
from rdma_plugin.core import pools
from rdma_plugin.core.changes import View, changes
from rdma_plugin.core.config import Config
from rdma_plugin.core.errors import ConfigError, HostError
from rdma_plugin.core.model import RdmaDevice
from rdma_plugin.core.pool import Pool
from rdma_plugin.core.status import Link, Status
from rdma_plugin.host import config_file
from rdma_plugin.host.look import Look
from rdma_plugin.host.worker import Worker
from rdma_plugin.latest import Latest
from rdma_plugin.wake import Wake

logger = logging.getLogger(__name__)
RETRY_S = 5.0
"""Pause after a host that couldn't be read."""
READ_DEADLINE_S = 5.0
"""For reading and checking a configuration file of at most 4 MiB."""

Keep = Callable[[str, Latest[Pool]], Coroutine[None, None, None]]
"""Keeps one resource registered until cancelled."""


class Reconciler:
    """State of the process; used from one event loop."""

    def __init__(self, *, root: Path, file: Path, config: Config, text: bytes, keep: Keep) -> None:
        """`config` is what `text`, the bytes of `file`, means; `keep` is started for each resource."""
        self._file = file
        self._config = config
        self._text: bytes | str = text
        self._keep = keep
        self._look = Look(root)
        self._reader = Worker("config-file", READ_DEADLINE_S, "look at the disk that holds the configuration")
        self._latest: dict[str, Latest[Pool]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._redefined: frozenset[str] = frozenset()
        self._status = Status(version="")

    def status(self, version: str, links: tuple[Link, ...]) -> Status:
        """Return how the process stands."""
        return replace(self._status, version=version, links=links)

    def readable_devices(self) -> tuple[RdmaDevice, ...]:
        """Return the devices whose ports can be looked at."""
        view = self._status.view
        return view.inventory.devices if view else ()  # a device that hangs has no known port

    async def run(self, group: asyncio.TaskGroup, wake: Wake) -> NoReturn:
        """Round after round, until cancelled; resources are kept by tasks of `group`."""
        while True:
            await self._round(group)
            interval_s = RETRY_S if self._status.host_fault else self._config.periodic_update_interval or None
            is_woken = await wake.wait(interval_s)
            logger.debug("looking again", extra={"because": "something happened" if is_woken else "time passed"})

    async def _round(self, group: asyncio.TaskGroup) -> None:
        await self._read_config()
        started = monotonic()
        try:
            inventory = await self._look.scan()
        except HostError as err:
            if self._status.host_fault != str(err):
                logger.warning("host can't be read, the last lists stay", extra={"why": str(err)})
            failures = self._status.scan_failures + 1
            self._status = replace(self._status, host_fault=str(err), scan_failures=failures)
            return
        if self._status.host_fault:
            logger.info("host can be read again")
        published = {name: latest.value for name, latest in self._latest.items() if name not in self._redefined}
        self._redefined = frozenset()
        view = View(inventory=inventory, pools=pools.build(self._config, inventory, published))
        for change in changes(self._status.view, view):
            logger.log(change.severity.value, change.event, extra=dict(change.fields))
        self._status = replace(
            self._status, view=view, host_fault=None, scans=self._status.scans + 1, scan_s=monotonic() - started
        )
        self._publish(view.pools, group)

    def _publish(self, offered: tuple[Pool, ...], group: asyncio.TaskGroup) -> None:
        for pool in offered:
            if pool.resource in self._latest:
                self._latest[pool.resource].set(pool)
                continue
            # only now: the kubelet never gets a list from before the first scan (K8)
            latest = self._latest[pool.resource] = Latest(pool)
            name = f"registrar {pool.resource}"
            keep = self._keep_after(self._tasks.get(pool.resource), pool.resource, latest)
            self._tasks[pool.resource] = group.create_task(keep, name=name)
        for resource in self._latest.keys() - {pool.resource for pool in offered}:
            # an empty list first, else the node shows the old capacity for minutes (C8); the server sends it at its end
            latest = self._latest.pop(resource)
            latest.set(Pool(resource=resource, reason="the configuration doesn't have it any more"))
            self._tasks[resource].cancel()
            logger.info("resource removed", extra={"resource": resource})

    async def _keep_after(self, earlier: asyncio.Task[None] | None, resource: str, latest: Latest[Pool]) -> None:
        """Keep a resource registered; if it was removed a moment ago, its old registration ends first."""
        if earlier is not None:
            await asyncio.wait([earlier])
        await self._keep(resource, latest)

    async def _read_config(self) -> None:
        """Take over a changed file; a bad one keeps the running configuration and is said once."""
        try:
            text = await self._reader.call("read the configuration", lambda: config_file.read(self._file))
            if text == self._text:
                return
            self._text = text
            name = str(self._file)
            config = await self._reader.call("check the configuration", lambda: config_module.parse(text, name))
        except ConfigError as err:
            self._refuse("; ".join(f"{fault.where}: {fault.what}" for fault in err.faults))
            return
        except HostError as err:
            self._refuse(str(err))
            return
        if config != self._config or self._status.config_fault:
            logger.info("configuration taken over", extra={"file": name})
        # what was offered under another definition says nothing about this one
        known = {resource.full_name: resource for resource in self._config.config_list}
        self._redefined |= {new.full_name for new in config.config_list if known.get(new.full_name) != new}
        self._config = config
        self._status = replace(self._status, config_fault=None, reloads=self._status.reloads + 1)

    def _refuse(self, why: str) -> None:
        if self._status.config_fault == why:
            return
        self._text = ""  # a file that comes back as it was is taken over again
        hint = "correct the file; it is read again as soon as it changes"
        logger.error(
            "configuration refused, the running one stays", extra={"file": str(self._file), "why": why, "hint": hint}
        )
        failures = self._status.reload_failures + 1
        self._status = replace(self._status, config_fault=why, reload_failures=failures)
