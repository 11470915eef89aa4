# SPDX-License-Identifier: Apache-2.0
"""One burst of events, as a process of its own so that it doesn't slow down who measures: `python -m … PID DIR STATE N`.

Sends N times SIGHUP to PID, writes N files into DIR, and lets the port whose state file is STATE flap.
"""

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Make the burst."""
    pid, directory, state, count = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    for number in range(count):
        os.kill(pid, signal.SIGHUP)
        (directory / f"note-{number % 8}").write_text("")
        if number % 100 == 0:
            state.write_text("2: INIT\n" if number % 200 else "4: ACTIVE\n")


if __name__ == "__main__":
    main()
