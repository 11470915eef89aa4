# SPDX-License-Identifier: Apache-2.0
"""A running kubelet side: pools, a registrar with its tasks, and blocking calls of the fake kubelet off the loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

from rdma_plugin.core.model import CharKind, CharNode, Problem
from rdma_plugin.core.pool import Member, Pool, Slot
from rdma_plugin.host.worker import Worker
from rdma_plugin.kubelet.lane import Contact
from rdma_plugin.kubelet.mode import Mode
from rdma_plugin.kubelet.registrar import Registrar
from rdma_plugin.latest import Latest
from tests.fakes.kubelet import FakeKubelet

T = TypeVar("T")
RESOURCE = "rdma/a"
DEADLINE_S = 10.0
"""A machine under load may take its time; nothing here waits for so long if all is well."""


def char(name: str) -> CharNode:
    """A node such as uverbs0 or rdma_cm."""
    kind = CharKind.RDMA_CM if name == "rdma_cm" else CharKind(name.rstrip("0123456789"))
    return CharNode(kind=kind, name=name, path=f"/dev/infiniband/{name}", major=231, minor=192)


def pool(slots: str = "+++", resource: str = RESOURCE, hcas: int = 1, numa_nodes: tuple[int, ...] = ()) -> Pool:
    """A pool with a healthy slot for each plus and an unhealthy one for each minus, over HCAs mlx5_0, mlx5_1 and so on."""
    return Pool(
        resource=resource,
        slots=tuple(
            Slot(id=str(number), is_healthy=sign == "+", numa_nodes=numa_nodes) for number, sign in enumerate(slots)
        ),
        members=tuple(
            Member(device=f"mlx5_{number}", nodes=(char(f"uverbs{number}"),), is_healthy=True, reason="ACTIVE")
            for number in range(hcas)
        ),
        common_nodes=(char("rdma_cm"),),
        env_name="RDMA_A",
        reason="as the test wants it",
    )


async def all_fine(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
    """Find every node usable."""
    del nodes
    return {}


async def off_loop(function: Callable[..., T], *arguments: object) -> T:
    """Run a blocking call of a test, so that the loop can serve meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


class Plugin:
    """A registrar at work for one process; `pools` are what it serves."""

    def __init__(self, registrar: Registrar, pools: Mapping[str, Latest[Pool]]) -> None:
        self.registrar = registrar
        self.pools = pools
        self._tasks = [asyncio.ensure_future(registrar.watch())]
        self._tasks += [asyncio.ensure_future(registrar.keep_registered(name, each)) for name, each in pools.items()]

    async def stop(self) -> None:
        """End the tasks as SIGTERM does; raise what one of them died of."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError | None):
                raise result

    @property
    def contact(self) -> Contact:
        """How the first resource stands."""
        return self.registrar.contacts.get(next(iter(self.pools)), Contact())

    async def wait(self, accepts: Callable[[Contact], bool], deadline_s: float = DEADLINE_S) -> Contact:
        """Return the first resource's contact as soon as it is as wanted."""
        async with asyncio.timeout(deadline_s):
            while not accepts(self.contact):  # noqa: ASYNC110 - a snapshot, read as the status page reads it
                await asyncio.sleep(0.01)
        return self.contact


def is_ready(contact: Contact) -> bool:
    """The kubelet reads our list."""
    return contact.is_ready


@asynccontextmanager
async def plugin(
    kubelet: FakeKubelet, *pools: Pool, mode: Mode = Mode.AUTO, host_path: PurePosixPath | None = None
) -> AsyncIterator[Plugin]:
    """Run a registrar for the pools (one of three slots if there are none); stopped on leaving."""
    worker = Worker("kubelet-directories", 5.0, "look at the disk")
    registrar = Registrar(
        mode=mode,
        device_plugin_dir=kubelet.device_plugin_dir,
        plugin_registry_dir=kubelet.plugin_registry_dir,
        plugin_registry_host_path=host_path or PurePosixPath(kubelet.plugin_registry_dir),
        check=all_fine,
        blocking=worker.call,
    )
    served = {each.resource: Latest(each) for each in pools or (pool(),)}
    running = Plugin(registrar, served)
    try:
        yield running
    finally:
        await running.stop()
        worker.close()


def our_sockets(directory: Path) -> list[Path]:
    """The plugin's sockets in a directory, private ones too."""
    return sorted(path for path in directory.iterdir() if "rdma-plugin" in path.name)


def events(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """The product's log so far, from a level on."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("rdma_plugin") and record.levelno >= level
    ]
