# SPDX-License-Identifier: Apache-2.0
"""What a process holds: open files, threads, memory; read from /proc, compared with an earlier look.

A registration that ended is closed by gRPC's own threads a moment later, so a comparison waits for the number to settle.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.rig.wait import wait_until

MAX_MORE = 2
"""File descriptors and threads that may be more or fewer."""
MAX_RSS = 0.05
"""Share of its memory by which a process may have grown."""
SETTLE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """One look at a process."""

    files: int
    threads: int
    rss_kib: int

    def fits(self, start: "Footprint") -> bool:
        """Return whether no more is held than at the start; less memory is fine."""
        return (
            abs(self.files - start.files) <= MAX_MORE
            and abs(self.threads - start.threads) <= MAX_MORE
            and self.rss_kib <= start.rss_kib * (1 + MAX_RSS)
        )


def of(pid: int) -> Footprint:
    """Look at a process that runs."""
    process = Path("/proc") / str(pid)
    status = (process / "status").read_text()

    def number(name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
        assert found, f"{process}/status has no {name}"
        return int(found[1])

    return Footprint(files=len(list((process / "fd").iterdir())), threads=number("Threads"), rss_kib=number("VmRSS"))


def wait_fits(pid: int, start: Footprint) -> Footprint:
    """Return the footprint as soon as it is that of the start.

    Raises:
        RigError: it doesn't become that in time.
    """
    return wait_until(lambda: of(pid), SETTLE_S, f"the footprint of the start: {start}", lambda now: now.fits(start))
