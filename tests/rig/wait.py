# SPDX-License-Identifier: Apache-2.0
"""The one place of the rig where time passes: look, pause, look again, until a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.03


class RigError(Exception):
    """The rig or a real program in it didn't do what was asked; the text says what was last seen."""


def wait_until(look: Callable[[], T], deadline_s: float, what: str, done: Callable[[T], object] = bool) -> T:
    """Call `look` until `done` accepts its value, and return that value.

    An OSError of `look` (nobody listens yet, no file yet) counts as not done.

    Raises:
        RigError: `deadline_s` seconds passed; names `what` was waited for and what `look` gave last.
    """
    end = time.monotonic() + deadline_s
    while True:
        seen: T | OSError
        try:
            seen = look()
        except OSError as err:
            seen = err
        else:
            if done(seen):
                return seen
        if time.monotonic() > end:
            raise RigError(f"not within {deadline_s:g} s: {what}; last seen: {seen!r}")
        time.sleep(PAUSE_S)
