# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes import places

# The same examples each time, on any machine however loaded, and nothing written into the checkout.
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty folder with a short path, in memory where possible; removed afterwards."""
    with places.short_dir() as path:
        yield path
