# SPDX-License-Identifier: Apache-2.0
"""Ways to break one file of a laid-out node, and what discovery says about it.

Each way takes the path to break and leaves something else, or nothing, in its place.
"""

import os
import shutil
from pathlib import Path

from rdma_plugin.core.model import Inventory


def remove(path: Path) -> None:
    """Remove a file, a link or a whole directory; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fill(path: Path, content: bytes) -> None:
    """Put a plain file there."""
    remove(path)
    path.write_bytes(content)


def make_directory(path: Path) -> None:
    """Put an empty directory there."""
    remove(path)
    path.mkdir()


def make_fifo(path: Path) -> None:
    """Put a FIFO there, on which an ordinary open would hang."""
    remove(path)
    os.mkfifo(path)


def bend(path: Path, target: str) -> None:
    """Put a link there, wherever it leads."""
    remove(path)
    path.symlink_to(target)


def forbid(path: Path) -> None:
    """Take all permissions; root has them all the same."""
    if not path.is_symlink():
        path.chmod(0)


def allow_all(root: Path) -> None:
    """Give back the permissions that removing a tree needs."""
    for directory, names, _ in os.walk(root):
        for path in (Path(directory, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


def said(inventory: Inventory) -> str:
    """Return all that an inventory says about trouble, as text."""
    found = [*inventory.problems, *(problem for device in inventory.devices for problem in device.problems)]
    found += [node.problem for device in inventory.devices for node in device.char_nodes if node.problem]
    return "\n".join(f"{problem.what}; {problem.why}; {problem.hint}" for problem in found)
