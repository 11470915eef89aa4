# SPDX-License-Identifier: Apache-2.0
"""The bytes of the configuration file, or one clear ConfigError. What they mean is `core.config`'s business."""

import errno
import os
import stat
from pathlib import Path

from rdma_plugin.core.errors import ConfigError, Fault

MAX_BYTES = 4 * 1024 * 1024
"""A ConfigMap holds at most 1 MiB; more than four of them is not a configuration."""


def read(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        ConfigError: no such file, no permission, not a regular file, or larger than `MAX_BYTES`.
    """
    try:
        return _read(path)
    except (OSError, ValueError) as err:
        raise ConfigError(str(path), (Fault("file", _why(err)),)) from err


def _read(path: Path) -> bytes:
    # O_NONBLOCK: opening a FIFO must not wait for a writer
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise ValueError("it is not a regular file")
        text = b""
        while len(text) <= MAX_BYTES and (part := os.read(handle, MAX_BYTES + 1 - len(text))):
            text += part
    finally:
        os.close(handle)
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes, and a configuration is a few kilobytes")
    return text


def _why(err: Exception) -> str:
    if not isinstance(err, OSError):
        return f"can't be read: {err}"
    match err.errno:
        case errno.ENOENT:
            return (
                "doesn't exist; name the configuration with --config (in a cluster: mount the ConfigMap rdma-devices)"
            )
        case errno.EACCES | errno.EPERM:
            return f"can't be read: {err.strerror}; check the file's mode and, with SELinux, its label"
        case errno.EISDIR:
            return "is a directory; name the JSON file in it, for example config.json"
        case _:
            return f"can't be read: {err.strerror}"
