# SPDX-License-Identifier: Apache-2.0
"""`Latest[T]`: one value, one writer, any number of readers on one event loop.

A reader sees the current value first and then each newer one that is there when it looks; values that were replaced
meanwhile are skipped, the last one never is. Nothing blocks and nothing is shared between readers (K3).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The current value of something, and a way to wait for the next."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = asyncio.Event()

    @property
    def value(self) -> T:
        """The current value."""
        return self._value

    def set(self, value: T) -> bool:
        """Replace the value; an equal one changes nothing. Return whether it changed."""
        if value == self._value:
            return False
        self._value = value
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def updates(self) -> AsyncIterator[T]:
        """Yield the current value, then each change; ends only by cancellation."""
        while True:
            changed, value = self._changed, self._value
            yield value
            if changed is self._changed:
                await changed.wait()
