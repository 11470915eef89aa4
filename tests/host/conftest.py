# SPDX-License-Identifier: Apache-2.0
"""A root directory for laid-out nodes."""

from pathlib import Path

import pytest


@pytest.fixture
def root(short_dir: Path) -> Path:
    """An empty directory to lay a node out in."""
    return short_dir
