# SPDX-License-Identifier: Apache-2.0
"""How many inputs each fuzz test takes: a few hundred with the other tests, `RDMA_PLUGIN_FUZZ` of them by hand.

Inputs of the long form are new ones each time; what failed is remembered in `.hypothesis` and tried first.
"""

import os

from hypothesis import HealthCheck, settings

ASKED = int(os.environ.get("RDMA_PLUGIN_FUZZ", "0"))
TIMEOUT_S = 60 + ASKED // 20
"""For one test; each input takes a few milliseconds."""
INPUT_MS = 5000
"""No input may take longer on a machine that others use too."""


def inputs(short: int) -> settings:
    """Return settings that try `short` inputs, or as many as were asked for."""
    return settings(
        max_examples=ASKED or short,
        deadline=INPUT_MS,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )
