# SPDX-License-Identifier: Apache-2.0
"""`Wake`: any number of sources say "look again", one loop does, debounced.

A burst of calls makes one wake-up, soon after its last call; a storm that doesn't end makes one a second. Nothing is
lost: a call during the work makes the next wake-up.
"""

import asyncio

QUIET_S = 0.2
"""How long nothing must happen before a burst counts as over (N3)."""
LATEST_S = 1.0
"""How late a wake-up may be, however long the storm."""


class Wake:
    """One flag that wakes one waiter; used on one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter; on the loop's own thread."""
        self._event.set()

    async def wait(self, pause_s: float | None) -> bool:
        """Return True after a burst of calls of `set`, False when `pause_s` seconds passed; None waits for good."""
        if not await self._within(pause_s):
            return False
        loop = asyncio.get_running_loop()
        latest = loop.time() + LATEST_S
        while True:
            self._event.clear()
            left_s = min(QUIET_S, latest - loop.time())
            if left_s <= 0 or not await self._within(left_s):
                return True

    async def _within(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
