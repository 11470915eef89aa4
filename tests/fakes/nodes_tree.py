# SPDX-License-Identifier: Apache-2.0
"""A directory that looks like `/`: texts, relative links and character device nodes as the kernel makes them.

Character nodes come in two ways. `mknod` makes the real thing and needs CAP_MKNOD. `links` needs no rights: each node
is a symlink to /dev/null, and sysfs states /dev/null's number for it, so that the product's check (a character device
of the number that sysfs says) holds without being weakened.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Literal

Chars = Literal["mknod", "links"]

_NULL = Path("/dev/null")


def usable_chars(root: Path) -> Chars:
    """Return `mknod` if this process can make a device node below `root`, else `links`."""
    probe = root / ".mknod-probe"
    try:
        os.mknod(probe, stat.S_IFCHR | 0o600, _NULL.stat().st_rdev)
    except OSError:
        return "links"
    probe.unlink()
    return "mknod"


class Tree:
    """Writes below one root; every path that it takes is below `sys` or `dev`."""

    def __init__(self, root: Path, chars: Chars) -> None:
        """`root` must exist; `chars` is how nodes in /dev are made."""
        self.sys = root / "sys"
        self.dev = root / "dev"
        self._chars = chars

    def directory(self, path: Path) -> Path:
        """Make a directory with its parents; it may be there already."""
        path.mkdir(parents=True, exist_ok=True)
        return path

    def text(self, path: Path, text: object) -> None:
        """Write an attribute as the kernel prints it: one newline at the end."""
        content = f"{text}\n".encode("latin-1")
        try:
            path.write_bytes(content)
        except FileNotFoundError:
            self.directory(path.parent)
            path.write_bytes(content)

    def texts(self, directory: Path, **texts: object) -> None:
        """Write several attributes of one directory; None makes no file."""
        for name, text in texts.items():
            if text is not None:
                self.text(directory / name, text)

    def link(self, at: Path, target: Path) -> None:
        """Link as kernfs does: relative, up to the deepest directory that `at` and the target's parent share."""
        self.directory(at.parent)
        up = os.path.relpath(target.parent, at.parent)
        at.symlink_to(Path(up) / target.name)

    def subsystem(self, directory: Path, name: str, kind: Literal["class", "bus"] = "class") -> None:
        """Link a device to its class or bus."""
        self.link(directory / "subsystem", self.directory(self.sys / kind / name))

    def char_device(
        self, directory: Path, name: str, number: tuple[int, int], *, is_missing: bool, is_public: bool
    ) -> None:
        """Write `dev` and `uevent` of a character device and, unless missing, its node in /dev/infiniband."""
        node = self.directory(self.dev / "infiniband") / name
        if self._chars == "links":
            null = _NULL.stat().st_rdev
            number = (os.major(null), os.minor(null))
        mode = "\nDEVMODE=0666" if is_public else ""
        uevent = f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME=infiniband/{name}{mode}"
        self.texts(directory, dev=f"{number[0]}:{number[1]}", uevent=uevent)
        if is_missing:
            return
        if self._chars == "links":
            node.symlink_to(_NULL)
        else:
            os.mknod(node, stat.S_IFCHR | (0o666 if is_public else 0o600), os.makedev(*number))

    def replace_node(self, name: str, kind: Literal["dirs", "files"]) -> None:
        """Put a directory or an empty plain file into /dev/infiniband, also in place of a node."""
        path = self.directory(self.dev / "infiniband") / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if kind == "dirs":
            path.mkdir()
        else:
            path.touch()
