# SPDX-License-Identifier: Apache-2.0
"""Small reads below one directory that nothing in it can lead out of, block or flood.

Paths come in relative to `top` (the real path of a root's `sys`) and appear in problems as the host sees them. Links
are followed only where `resolve` or `enter` say so, and only to directories below `top`; attributes are plain files.
A read never raises: it returns an `Attribute` with the text or with the system's reason (D12). Nothing is written and
no device node is opened.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from rdma_plugin.core import parse
from rdma_plugin.core.model import Problem

_PAGE_BYTES = 4096
"""A text attribute fills at most one page, and one read returns no more of a binary one (Documentation/filesystems/sysfs.rst)."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Not to hang on a FIFO that lies where a file should be."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFREG: "a plain file",
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a sysfs attribute said, or why it said nothing."""

    path: str
    """As the host sees it: `/sys/…/numa_node`."""
    text: str = ""
    """Stripped; empty if the attribute is empty or can't be read."""
    error: str | None = None
    """The system's words; None if it could be read."""
    is_missing: bool = False
    """True if there is no such file, which for most attributes is normal."""


def read(top: str, path: str) -> Attribute:
    """Read a text attribute; more than one page of it isn't one."""
    shown = host_path(path)
    try:
        content = _content(f"{top}/{path}", _PAGE_BYTES + 1)
    except FileNotFoundError:
        return Attribute(shown, error="doesn't exist", is_missing=True)
    except (OSError, ValueError) as error:
        return Attribute(shown, error=reason(error))
    if len(content) > _PAGE_BYTES:
        return Attribute(shown, error=f"has more than {_PAGE_BYTES} bytes")
    return Attribute(shown, text=content.decode(errors="replace").strip())


def holds(top: str, path: str, needle: bytes, limit_bytes: int) -> bool:
    """Return whether the first `limit_bytes` of a binary attribute hold `needle`; an unreadable one doesn't."""
    try:
        return needle in _content(f"{top}/{path}", limit_bytes)
    except (OSError, ValueError):
        return False


def top_of(root: Path) -> str:
    """Return the real path of `<root>/sys`.

    Raises:
        OSError: it can't be listed.
    """
    top = os.path.realpath(root / "sys", strict=True)
    with os.scandir(top):
        return top


def names(top: str, directory: str | None) -> tuple[str, ...]:
    """List a real directory, numbers compared as numbers; nothing if it is None or can't be listed."""
    if directory is None:
        return ()
    try:
        with os.scandir(f"{top}/{directory}") as entries:
            return tuple(sorted((entry.name for entry in entries), key=parse.natural))
    except (OSError, ValueError):
        return ()


def directories(top: str, directory: str | None) -> dict[str, str]:
    """Return the real path of each directory, or link to one, in a real directory; by name, in the order of `names`."""
    entered = {name: enter(top, directory, name) for name in names(top, directory)} if directory else {}
    return {name: path for name, path in entered.items() if path}


def is_link(top: str, path: str) -> bool:
    """Return whether there is a link, wherever it leads."""
    return Path(top, path).is_symlink()


def resolve(top: str, path: str) -> str | None:
    """Return the real path of a directory, relative to `top`; None if it leads out, into a loop or nowhere."""
    try:
        real = _real_directory(f"{top}/{path}")
    except (OSError, ValueError):
        return None
    return real[len(top) + 1 :] if real.startswith(f"{top}/") else None


def enter(top: str, directory: str, name: str) -> str | None:
    """Return the real path of a directory entry below a real `directory`; as `resolve`, but cheap if it is no link."""
    path = f"{directory}/{name}"
    try:
        mode = os.lstat(f"{top}/{path}").st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(mode):
        return path
    return resolve(top, path) if stat.S_ISLNK(mode) else None


def host_path(path: str) -> str:
    """Return a path below `top` as a person on the host would write it."""
    return f"/sys/{path}"


def kind(mode: int) -> str:
    """Say in words what kind of file `st_mode` describes."""
    return _KINDS.get(stat.S_IFMT(mode), "no known kind of file")


def reason(error: OSError | ValueError) -> str:
    """Return the system's words for an error, without path and number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def problem(owner: str, attribute: Attribute) -> Problem:
    """State that an attribute of `owner` can't be used."""
    name = attribute.path.rpartition("/")[2]
    if attribute.error is None:
        what, why = f"{owner}: {name} makes no sense", f"{attribute.path} says {attribute.text[:60]!a}"
    else:
        what, why = f"{owner}: {name} can't be read", f"{attribute.path}: {attribute.error}"
    return Problem(what, why, "look for errors of the device's driver: dmesg")


def _content(path: str, limit_bytes: int) -> bytes:
    """Read a plain file, at most `limit_bytes`; the first look keeps device nodes from being opened at all."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"is {kind(mode)}")
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("isn't a plain file any more")
        content = part = os.read(descriptor, limit_bytes)
        while len(part) >= _PAGE_BYTES and len(content) < limit_bytes:
            part = os.read(descriptor, limit_bytes - len(content))
            content += part
        return content
    finally:
        os.close(descriptor)


def _real_directory(path: str) -> str:
    """Let the kernel follow the links: a tenth of the time that os.path.realpath takes, which is there without /proc."""
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except FileNotFoundError:
        return os.path.realpath(path, strict=True)
    finally:
        os.close(descriptor)
