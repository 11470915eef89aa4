# SPDX-License-Identifier: Apache-2.0
"""Blocking host reads off the event loop: one daemon thread, one deadline for each call.

A read of a dying card can hang for good (H5). `asyncio.to_thread` would then keep the process from ending, so the
thread here is a daemon thread: a call that is late raises HostError, its thread is left behind, and the next call
starts a fresh one. Threads left behind are capped.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rdma_plugin.core.errors import HostError

T = TypeVar("T")
MAX_LEFT_BEHIND = 4
"""Threads that may hang before calls fail at once; each costs a stack."""

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class LateError(HostError):
    """A call passed its deadline; its thread is left behind."""

    def __init__(self, text: str, thread: threading.Thread) -> None:
        """`thread` ends when, and if, the call returns."""
        self.thread = thread
        super().__init__(text)


class Worker:
    """Runs functions one at a time in a thread of its own; used from one event loop."""

    def __init__(self, name: str, deadline_s: float, hint: str) -> None:
        """`name` is for the thread list; `deadline_s` is the time one call may take; `hint` says what to do if it doesn't do."""
        self._name = name
        self._hint = hint
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._left_behind: set[threading.Thread] = set()
        self._thread: threading.Thread | None = None
        self._turn = asyncio.Lock()

    async def call(self, what: str, function: Callable[[], T]) -> T:
        """Return `function()`; `what` names the work in the error.

        Raises:
            LateError: the deadline passed.
            HostError: too many earlier calls still hang.
        """
        async with self._turn:
            self._left_behind = {thread for thread in self._left_behind if thread.is_alive()}
            if len(self._left_behind) >= MAX_LEFT_BEHIND:
                raise HostError(f"{what}: not tried, {len(self._left_behind)} earlier calls still hang; {self._hint}")
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            thread = self._start()
            self._jobs.put((function, future))
            try:
                async with asyncio.timeout(self._deadline_s):
                    return await future
            except TimeoutError:
                self._abandon(thread)
                raise LateError(f"{what}: no answer within {self._deadline_s:g} s; {self._hint}", thread) from None
            except asyncio.CancelledError:
                self._abandon(thread)
                raise

    def _start(self) -> threading.Thread:
        if self._thread is None:
            self._jobs = queue.SimpleQueue()
            self._thread = threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
        return self._thread

    def _abandon(self, thread: threading.Thread) -> None:
        self._jobs.put(None)  # the thread ends when, and if, the call returns
        self._left_behind.add(thread)
        self._thread = None

    def close(self) -> None:
        """Let the thread end once it is idle; calls after this start a new one."""
        if self._thread is not None:
            self._jobs.put(None)
        self._thread = None


def _work(jobs: "queue.SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        function, future = job
        try:
            result = function()
        except Exception as err:  # noqa: BLE001 - carried to the caller, which decides
            _deliver(future, future.set_exception, err)
        else:
            _deliver(future, future.set_result, result)


def _deliver(future: "asyncio.Future[Any]", setter: Callable[[Any], None], value: object) -> None:
    def finish() -> None:
        if not future.done():  # cancelled by the deadline
            setter(value)

    try:
        future.get_loop().call_soon_threadsafe(finish)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more
