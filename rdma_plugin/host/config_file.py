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
        # O_NONBLOCK: opening a FIFO must not wait for a writer
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as err:
        raise ConfigError(str(path), (Fault("file", _why(err)),)) from err
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise ConfigError(
                str(path), (Fault("file", f"is {kind}; name the JSON file itself, for example {path}/config.json"),)
            )
        try:
            text = file.read(MAX_BYTES + 1)
        except OSError as err:
            raise ConfigError(str(path), (Fault("file", _why(err)),)) from err
    if len(text) > MAX_BYTES:
        raise ConfigError(
            str(path), (Fault("file", f"is larger than {MAX_BYTES} bytes; a configuration is a few kilobytes"),)
        )
    return text


def _why(err: Exception) -> str:
    if not isinstance(err, OSError):
        return f"can't be opened: {err}"
    match err.errno:
        case errno.ENOENT:
            return (
                "doesn't exist; name the configuration with --config (in a cluster: mount the ConfigMap rdma-devices)"
            )
        case errno.EACCES | errno.EPERM:
            return f"can't be read: {err.strerror}; check the file's mode and, with SELinux, its label"
        case errno.EISDIR:
            return "is a directory; name the JSON file itself"
        case _:
            return f"can't be read: {err.strerror}"
