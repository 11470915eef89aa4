# SPDX-License-Identifier: Apache-2.0
"""`Latest`: the current value first, then changes, the last one always."""

import asyncio

from rdma_plugin.latest import Latest


async def read_until(latest: Latest[int], last: int, seen: list[int]) -> None:
    """Collect what one reader sees up to `last`."""
    async for value in latest.updates():
        seen.append(value)
        await asyncio.sleep(0)
        if value == last:
            return


async def test_every_reader_sees_first_and_last_in_order() -> None:
    """Fifty readers, a thousand values: each sees the first, the last, and nothing out of order."""
    latest = Latest(0)
    seen: list[list[int]] = [[] for _ in range(50)]
    async with asyncio.TaskGroup() as group:
        for values in seen:
            group.create_task(read_until(latest, 1000, values))
        await asyncio.sleep(0)
        for value in range(1, 1001):
            latest.set(value)
            if value % 97 == 0:
                await asyncio.sleep(0)
    for values in seen:
        assert values[0] == 0
        assert values[-1] == 1000
        assert values == sorted(set(values))


async def test_equal_value_wakes_nobody() -> None:
    """Setting an equal value says so and yields nothing new."""
    latest = Latest("a")
    updates = latest.updates()
    assert await anext(updates) == "a"
    assert latest.set("a") is False
    waiting = asyncio.ensure_future(anext(updates))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert latest.set("b") is True
    assert await waiting == "b"
