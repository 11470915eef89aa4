# SPDX-License-Identifier: Apache-2.0
"""Where laid-out nodes and sockets go."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def short_dir() -> Iterator[Path]:
    """Make an empty folder and remove it afterwards.

    Its path is short, because a socket's path has at most 107 bytes. It is in memory where the system has such a place,
    because a node is more than a thousand tiny files.
    """
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else Path("/tmp")
    path = Path(tempfile.mkdtemp(prefix="rp-", dir=place))
    try:
        yield path
    finally:
        for directory, _, _ in os.walk(path):
            Path(directory).chmod(0o700)  # whatever a test made of it
        shutil.rmtree(path)
