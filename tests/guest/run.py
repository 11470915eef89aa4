# SPDX-License-Identifier: Apache-2.0
"""Run one shell command in a fresh guest, as `python -m tests.guest.run 'modprobe rdma_rxe; rdma dev'`.

Builds what the guest needs the first time. The command runs in this checkout, as root, with the environment's own
Python first on PATH; its output is shown as it comes, and its status is this program's. 125: no guest could be had.
"""

import shlex
import sys
import time

from tests.guest import build
from tests.guest.guest import Guest
from tests.rig.build import NeedsError, say
from tests.rig.wait import RigError

DEADLINE_S = 600.0
NO_GUEST = 125


def show(text: str) -> None:
    """Print a piece of output now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """A single word is a shell command line; several are a program and its arguments."""
    command = words[0] if len(words) == 1 else shlex.join(words)
    began = time.monotonic()
    try:
        with Guest(build.ensure()) as guest:
            say(f"guest booted in {time.monotonic() - began:.1f} s")
            rc = guest.run(command, DEADLINE_S, show).rc
    except NeedsError as err:
        say(f"cannot build: {err}")
        return NO_GUEST
    except RigError as err:
        say(str(err))
        return NO_GUEST
    say(f"guest done after {time.monotonic() - began:.1f} s, status {rc}")
    return rc


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
