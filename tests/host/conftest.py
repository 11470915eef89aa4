# SPDX-License-Identifier: Apache-2.0
"""A root directory for laid-out nodes, in memory where the system has such a place: a node is thousands of tiny files."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def root() -> Iterator[Path]:
    """Return an empty directory; it is removed afterwards, whatever permissions a test left in it."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="rdma-plugin-test-", dir=place))
    yield path
    shutil.rmtree(path)
