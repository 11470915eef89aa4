# SPDX-License-Identifier: Apache-2.0
"""How long the heavy tests of this folder run: a few seconds with the other tests, hours if one variable says so.

`RDMA_PLUGIN_SOAK=1000` makes a thousand kubelet restarts out of each short form, and everything else in proportion.
"""

import os

ROUNDS = int(os.environ.get("RDMA_PLUGIN_SOAK", "0"))
IS_LONG = ROUNDS > 0


def times(short: int, share: float = 1.0) -> int:
    """Return how often to do something: `short` times, in the long form `share` times the rounds that were asked for."""
    return max(short, round(ROUNDS * share)) if IS_LONG else short
