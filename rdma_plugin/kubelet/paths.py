# SPDX-License-Identifier: Apache-2.0
"""Sockets in the kubelet's directories: fresh names, proof of life, removal of our own dead ones.

Every function here blocks and belongs into a worker thread. Nothing is ever removed but a socket that carries our name
and that nobody listens on, or one that is known to be ours by its identity: no file, no foreign name, no live socket.
"""

import errno
import hashlib
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from rdma_plugin.core.errors import KubeletError

MAX_PATH_BYTES = 107
"""Longest path of a unix socket (`sun_path` of unix(7) is 108 bytes, with a closing NUL)."""
PREFIX = "rdma-plugin_"
SUFFIX = ".sock"
KUBELET_SOCKET = "kubelet.sock"
"""Name of the registration socket (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go)."""
KUBELET_DIR = PurePosixPath("/var/lib/kubelet/device-plugins")
"""Where the kubelet looks for our sockets: a constant of its own, whatever its --root-dir (same file)."""
_DIGEST_DIGITS = 8
PRIVATE_AGE_S = 60.0
"""A private name younger than this may belong to an instance that has bound and doesn't listen yet."""
_CONNECT_S = 1.0
_DENIED_HINT = (
    "the plugin must run as root; where SELinux is enforcing, its process also needs a type that may write "
    "to the kubelet's sockets and directories (look for AVC lines of audit)"
)


@dataclass(frozen=True, slots=True)
class SocketId:
    """Which socket lies at a path. The time is part of it, because a freed inode number is used again."""

    device: int
    inode: int
    mtime_ns: int
    """Set when the socket is made; unlike ctime, a new mode or SELinux label leaves it alone."""


def fresh_name(resource: str, *directories: PurePath) -> str:
    """Return a socket name that was never used before and fits into each of the directories.

    The kubelet refuses a path for good that registered twice (kubelet 1.37, devicemanager/manager.go), hence the token.
    A long resource name is cut for the reader; the digest tells resources apart (C5).

    Raises:
        KubeletError: a directory is so long that no name fits.
    """
    digest = hashlib.sha256(resource.encode()).hexdigest()[:_DIGEST_DIGITS]
    name = f"{PREFIX}{{}}_{digest}_{secrets.token_hex(4)}{SUFFIX}"
    slug = re.sub(r"[^A-Za-z0-9.-]", "_", resource)
    longest = max(directories, key=lambda directory: len(os.fsencode(directory)))
    # one byte each for the slash, and for the dot that makes the name private
    room = MAX_PATH_BYTES - len(os.fsencode(longest)) - len(name.format("")) - 2
    if room < 1:
        raise KubeletError(
            f"{longest}: too long for a unix socket, whose whole path may have {MAX_PATH_BYTES} bytes; use a path that is {1 - room} bytes shorter"
        )
    return name.format(slug[:room])


def private(path: Path) -> Path:
    """Return the name under which a socket is made; the kubelet's plugin watcher skips names with a dot."""
    return path.with_name(f".{path.name}")


def check_directory(directory: Path, flag: str) -> None:
    """Prove that a socket can be made in the directory, by making one.

    gRPC says only that it failed and writes the reason to stderr by itself. `flag` is the option that names the directory.

    Raises:
        KubeletError: with the system's reason and what to do.
    """
    path = private(directory / fresh_name("check", directory))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(os.fspath(path))
        except OSError as err:
            raise KubeletError(
                f"{directory}: a socket can't be made there: {err.strerror}; {hint(err, directory, flag)}"
            ) from err
    path.unlink(missing_ok=True)


def publish(path: Path) -> SocketId:
    """Give a listening socket its public name: mode 0600, then renamed from `private(path)`.

    From then on gRPC, which unlinks the path that it has bound, can no longer hit what lies at the public one.

    Raises:
        KubeletError: it vanished meanwhile (a starting kubelet deletes every socket in its directory) or can't be renamed.
    """
    try:
        private(path).chmod(0o600)
        private(path).rename(path)
        return _id(path.lstat())
    except OSError as err:
        raise KubeletError(
            f"{path.parent}: our new socket can't be renamed: {err.strerror}; a starting kubelet may have deleted it"
        ) from err


def identify(path: Path) -> SocketId | None:
    """Return which socket lies at the path; None if there is none (or something else, or it can't be told)."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return _id(status) if stat.S_ISSOCK(status.st_mode) else None


def remove(path: Path, socket_id: SocketId) -> bool:
    """Remove our own socket if it is still the one; return whether it was removed."""
    if identify(path) != socket_id:
        return False
    path.unlink(missing_ok=True)
    return True


def family(path: Path) -> str:
    """Return what the names of one resource's sockets have in common, over all instances of the plugin: its digest."""
    return path.name.removesuffix(SUFFIX).split("_")[-2]


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies in a directory beside this process's own sockets."""

    others: dict[Path, SocketId]
    """Live sockets of other instances of this plugin."""
    removed: dict[Path, SocketId]
    """Dead ones that other processes left behind (SIGKILL), removed just now."""


def survey(directory: Path, own: Container[Path]) -> Survey:
    """Look for sockets that carry our name, and remove the dead ones; `own` are left alone."""
    others: dict[Path, SocketId] = {}
    removed: dict[Path, SocketId] = {}
    for path in _ours(directory):
        socket_id = identify(path)
        if socket_id is None or path in own:
            continue
        if not _is_dead(path, socket_id):
            others[path] = socket_id
        elif remove(path, socket_id):
            removed[path] = socket_id
    return Survey(others, removed)


def probe(kubelet_socket: Path) -> SocketId:
    """Return which socket it is if somebody listens on it.

    Raises:
        KubeletError: nobody does; with the system's reason and what to do.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(_CONNECT_S)
        try:
            trial.connect(os.fspath(kubelet_socket))
        except TimeoutError as err:
            raise KubeletError(
                f"{kubelet_socket}: no answer within {_CONNECT_S:g} s; see the log of the kubelet"
            ) from err
        except OSError as err:
            raise KubeletError(
                f"{kubelet_socket}: {err.strerror or err}; {hint(err, kubelet_socket.parent, '--device-plugin-dir')}"
            ) from err
    found = identify(kubelet_socket)
    if found is None:
        raise KubeletError(f"{kubelet_socket}: replaced while it was looked at; it is tried again")
    return found


def hint(err: OSError, directory: Path, flag: str) -> str:
    """Return what to do about an error in a directory of the kubelet; `flag` is the option that names the directory."""
    if err.errno in (errno.EACCES, errno.EPERM):
        return _DENIED_HINT
    if err.errno == errno.EROFS:
        return f"mount the kubelet's directory read-write at {directory}"
    if not directory.is_dir():
        return f"mount the kubelet's directory there or name the right one with {flag}"
    if err.errno == errno.ENOENT:
        return f"the kubelet makes it when it starts; if it runs, {flag} isn't the directory that it uses"
    if err.errno == errno.ECONNREFUSED:
        return "the kubelet is down or starting"
    return f"check {flag}"


def _id(status: os.stat_result) -> SocketId:
    return SocketId(device=status.st_dev, inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def _ours(directory: Path) -> Iterator[Path]:
    try:
        found = list(directory.iterdir())
    except OSError:
        return
    for path in found:
        if path.name.removeprefix(".").startswith(PREFIX) and path.name.endswith(SUFFIX):
            yield path


def _is_dead(path: Path, socket_id: SocketId) -> bool:
    """A public name is given only to a socket that listens already, so a refused connection proves that it is dead."""
    if path.name.startswith(".") and time.time() - socket_id.mtime_ns / 1e9 < PRIVATE_AGE_S:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(_CONNECT_S)
        try:
            trial.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
