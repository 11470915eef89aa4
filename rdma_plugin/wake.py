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

    def __init__(self, quiet_s: float = QUIET_S, latest_s: float = LATEST_S) -> None:
        """A burst is over after `quiet_s` seconds without a call, and waited for no longer than `latest_s`."""
        self._quiet_s = quiet_s
        self._latest_s = latest_s
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter; on the loop's own thread."""
        self._event.set()

    async def wait(self, pause_s: float | None) -> bool:
        """Return True after a burst of calls of `set`, False when `pause_s` seconds passed; None waits for good."""
        if not await self._within(pause_s):
            return False
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._latest_s
        while True:
            self._event.clear()
            left_s = min(self._quiet_s, latest - loop.time())
            if left_s <= 0 or not await self._within(left_s):
                return True

    async def _within(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
