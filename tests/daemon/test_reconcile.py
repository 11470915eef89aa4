# SPDX-License-Identifier: Apache-2.0
"""The reconciler on real files: reload, its faults, and what is published."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rdma_plugin.core import config as config_module
from rdma_plugin.core import pools
from rdma_plugin.core.pool import Pool
from rdma_plugin.host import scan
from rdma_plugin.latest import Latest
from rdma_plugin.reconcile import Reconciler
from rdma_plugin.wake import Wake
from tests.core.corpus import HOSTILE
from tests.fakes import nodes

pytestmark = pytest.mark.slow
DEADLINE_S = 10.0


def resource(name: str, **changes: Any) -> dict[str, Any]:
    """A resource over the InfiniBand devices."""
    return {"resourceName": name, "rdmaHcaMax": 3, "selectors": {"linkTypes": ["infiniband"]}} | changes


def document(*resources: dict[str, Any]) -> bytes:
    """A configuration."""
    return json.dumps({"periodicUpdateInterval": 0, "configList": resources}).encode()


class Running:
    """A reconciler at work, and what it has told to the kubelet's side."""

    def __init__(self, root: Path, file: Path) -> None:
        self.file = file
        self.wake = Wake(quiet_s=0, latest_s=0)
        self.kept: dict[str, Latest[Pool]] = {}
        self.started: list[str] = []
        self.last: dict[str, Pool] = {}
        """What a removed resource said last."""
        text = file.read_bytes()
        config = config_module.parse(text, str(file))
        self.reconciler = Reconciler(root=root, file=file, config=config, text=text, keep=self._keep)

    async def _keep(self, name: str, latest: Latest[Pool]) -> None:
        self.kept[name] = latest
        self.started.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            self.last[name] = latest.value
            del self.kept[name]

    def lists(self) -> dict[str, Pool]:
        """What is promised for each resource now."""
        return {name: latest.value for name, latest in self.kept.items()}

    def keeps(self, names: set[str]) -> bool:
        """Just these resources are kept registered."""
        return self.kept.keys() == names

    async def rounds(self, count: int) -> None:
        """Look again as often, and so at least once after what was just written."""
        wanted = self.reconciler.status("", ()).scans + count
        await self.until(lambda: self.reconciler.status("", ()).scans >= wanted)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Look again until something holds."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                self.wake.set()
                await asyncio.sleep(0)


@pytest.fixture
def root(short_dir: Path) -> Path:
    """A node with five HCAs, two of them with InfiniBand ports only: mlx5_2, and mlx4_1 on one of two."""
    nodes.lay_out(nodes.load(nodes.MLX4), short_dir / "node")
    return short_dir / "node"


@asynccontextmanager
async def running(root: Path, text: bytes) -> AsyncIterator[Running]:
    """Run a reconciler until the end of the block."""
    file = root.parent / "config.json"
    file.write_bytes(text)
    run = Running(root, file)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run.reconciler.run(group, run.wake))
        await run.until(lambda: len(run.kept) == len(json.loads(text)["configList"]))
        yield run
        task.cancel()
        for other in asyncio.all_tasks():
            if other.get_name().startswith("registrar "):
                other.cancel()


async def test_resources_come_and_go(root: Path) -> None:
    """An added resource is started, a removed one says that it is empty and ends, the others aren't touched."""
    async with running(root, document(resource("a"), resource("b"))) as run:
        untouched = run.kept["rdma/a"]
        run.file.write_bytes(document(resource("a"), resource("c", rdmaHcaMax=5)))
        await run.until(lambda: run.kept.keys() == {"rdma/a", "rdma/c"})
        assert run.last["rdma/b"].slots == ()
        assert "doesn't have it any more" in run.last["rdma/b"].reason
        assert run.kept["rdma/a"] is untouched
        assert len(run.lists()["rdma/c"].slots) == 5
        assert run.started == ["rdma/a", "rdma/b", "rdma/c"]


async def test_changed_resource_keeps_its_stream(root: Path) -> None:
    """Another number of slots or other selectors are a new list, not a new registration."""
    async with running(root, document(resource("a"))) as run:
        before = run.kept["rdma/a"]
        run.file.write_bytes(document(resource("a", rdmaHcaMax=7, selectors={"rdmaDevices": ["mlx5_1"]})))
        await run.until(lambda: len(run.lists()["rdma/a"].slots) == 7)
        assert run.kept["rdma/a"] is before
        assert [member.device for member in before.value.members] == ["mlx5_1"]
        assert run.started == ["rdma/a"]


async def test_resource_that_comes_back_at_once(root: Path) -> None:
    """Removed and added again: the old registration ends before the new one begins."""
    async with running(root, document(resource("a"), resource("b"))) as run:
        run.file.write_bytes(document(resource("a")))
        await run.until(lambda: run.kept.keys() == {"rdma/a"})
        run.file.write_bytes(document(resource("a"), resource("b")))
        await run.until(lambda: run.kept.keys() == {"rdma/a", "rdma/b"})
        assert len(run.lists()["rdma/b"].slots) == 3


@pytest.mark.parametrize("name", ["empty", "gone", "directory"])
async def test_bad_file_keeps_the_running_configuration(
    root: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The fault is said once and shown in the status; the lists stay; a good file ends it."""
    caplog.set_level(logging.INFO)
    text = document(resource("a"))
    async with running(root, text) as run:
        lists = run.lists()
        if name == "empty":
            run.file.write_bytes(b"")
        else:
            run.file.unlink()
        if name == "directory":
            run.file.mkdir()
        await run.until(lambda: run.reconciler.status("", ()).config_fault)
        await run.rounds(3)
        assert run.lists() == lists
        refusals = [vars(record) for record in caplog.records if "refused" in record.getMessage()]
        reasons = [record["why"] for record in refusals]
        assert len(reasons) == len(set(reasons)) > 0
        assert {record["levelname"] for record in refusals} == {"ERROR"}
        if name == "directory":
            run.file.rmdir()
        run.file.write_bytes(text)
        await run.until(lambda: run.reconciler.status("", ()).config_fault is None)
        assert run.lists() == lists


@pytest.mark.timeout(90)
async def test_edits_end_where_a_fresh_start_ends(root: Path) -> None:
    """After each of 200 random edits, good and broken, the lists are those of a fresh start with the last good file."""
    chance = random.Random(20261201)  # noqa: S311 - the same edits each time
    broken = [text for name, text in HOSTILE.items() if len(text) < 10_000]
    inventory = scan.scan(root)
    names = [f"r{index}" for index in range(6)]
    good = document(resource("r0"))
    async with running(root, good) as run:
        for _ in range(200):
            if chance.random() < 0.4:
                text, is_good = chance.choice(broken), False
            else:
                chosen = chance.sample(names, chance.randint(1, len(names)))
                text = good = document(
                    *(
                        resource(
                            name,
                            rdmaHcaMax=chance.randint(0, 4),
                            selectors={"rdmaDevices": [f"mlx5_{chance.randint(0, 5)}"]},
                            health=chance.choice(["any", "all", "present"]),
                        )
                        for name in chosen
                    )
                )
                is_good = True
            if chance.random() < 0.5:
                run.file.write_bytes(text)
            else:
                draft = run.file.with_suffix(".draft")
                draft.write_bytes(text)
                draft.replace(run.file)
            await run.rounds(2)
            config = config_module.parse(good, "good")
            fresh = {pool.resource: pool for pool in pools.build(config, inventory, {})}
            await run.until(partial(run.keeps, set(fresh)))
            assert (run.reconciler.status("", ()).config_fault is None) == is_good
            assert run.lists() == fresh
