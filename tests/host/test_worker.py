# SPDX-License-Identifier: Apache-2.0
"""The deadline-guarded thread for host reads."""

import asyncio
import threading

import pytest

from rdma_plugin.core.errors import HostError
from rdma_plugin.host.worker import MAX_LEFT_BEHIND, Worker


def fail() -> None:
    """Raise as a read does."""
    raise OSError(5, "Input/output error")


async def test_returns_what_the_function_returns() -> None:
    """The value comes back, and calls share one thread that isn't the loop's."""
    worker = Worker("w", 5, "look in dmesg")
    first, second = [await worker.call("who", threading.get_ident) for _ in range(2)]
    assert first == second != threading.get_ident()
    worker.close()


async def test_error_of_the_function_reaches_the_caller() -> None:
    """An exception is the caller's, and the worker goes on."""
    worker = Worker("w", 5, "look in dmesg")
    with pytest.raises(OSError, match="Input/output"):
        await worker.call("read", fail)
    assert await worker.call("read", lambda: 7) == 7
    worker.close()


async def test_hung_read_costs_one_call() -> None:
    """A call past its deadline raises and names the work; the next one runs in a fresh thread."""
    worker = Worker("w", 0.05, "look in dmesg")
    hang = threading.Event()
    with pytest.raises(HostError, match=r"read of the card: no answer within 0\.05 s; look in dmesg"):
        await worker.call("read of the card", hang.wait)
    assert await worker.call("read", lambda: 7) == 7
    hang.set()
    worker.close()


@pytest.mark.slow
async def test_hung_reads_are_capped() -> None:
    """When too many threads hang, a call fails at once; when they return, calls work again."""
    worker = Worker("w", 0.02, "look in dmesg")
    hang = threading.Event()
    hung: list[threading.Thread] = []

    def block() -> None:
        hung.append(threading.current_thread())
        hang.wait()

    for _ in range(MAX_LEFT_BEHIND):
        with pytest.raises(HostError):
            await worker.call("read", block)
    with pytest.raises(HostError, match="not tried, 4 earlier calls"):
        await worker.call("read", lambda: 7)
    hang.set()
    for thread in hung:
        thread.join(5)
    assert await worker.call("read", lambda: 7) == 7
    worker.close()


async def test_cancellation_that_comes_with_the_result_is_not_lost() -> None:
    """A task that is cancelled in the very moment in which its read returns does end; else SIGTERM would hang."""
    worker = Worker("w", 5, "look in dmesg")
    loop = asyncio.get_running_loop()

    def read() -> None:
        loop.call_soon_threadsafe(cancel_behind, threading.current_thread())

    def cancel_behind(thread: threading.Thread) -> None:
        worker.close()
        thread.join(5)  # now the result is queued on the loop, and the task doesn't know it yet
        loop.call_soon(task.cancel)

    task = asyncio.ensure_future(worker.call("read", read))
    with pytest.raises(asyncio.CancelledError):
        await task
