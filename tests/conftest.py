# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import places


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """An empty folder with a short path, in memory where possible; removed afterwards."""
    with places.short_dir() as path:
        yield path
