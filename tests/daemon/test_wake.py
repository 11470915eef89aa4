# SPDX-License-Identifier: Apache-2.0
"""Wake-ups are debounced and never lost."""

import asyncio

import pytest

from rdma_plugin.wake import LATEST_S, QUIET_S, Wake


@pytest.mark.slow
async def test_burst_is_one_wake_up() -> None:
    """Many calls make one wake-up, after the last of them."""
    wake = Wake()
    loop = asyncio.get_running_loop()
    started = loop.time()
    for number in range(10):
        loop.call_later(number * QUIET_S / 10, wake.set)
    assert await wake.wait(5)
    assert loop.time() - started >= QUIET_S * 1.8
    assert not await wake.wait(0)


@pytest.mark.slow
async def test_storm_is_not_waited_out() -> None:
    """Calls that never pause still wake the waiter after a second."""
    wake = Wake()
    loop = asyncio.get_running_loop()

    async def storm() -> None:
        while True:
            wake.set()
            await asyncio.sleep(QUIET_S / 10)

    task = asyncio.create_task(storm())
    started = loop.time()
    assert await wake.wait(5)
    assert LATEST_S <= loop.time() - started < LATEST_S + 1
    task.cancel()


@pytest.mark.slow
async def test_call_during_the_work_is_not_lost() -> None:
    """What happens while the waiter works makes the next wake-up."""
    wake = Wake()
    wake.set()
    assert await wake.wait(5)
    wake.set()
    assert await wake.wait(5)


async def test_nothing_happens() -> None:
    """Without a call the pause passes."""
    assert not await Wake().wait(0.01)
