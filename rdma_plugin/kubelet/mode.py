# SPDX-License-Identifier: Apache-2.0
"""The ways of registration to choose from; a module of its own, so that the command line needn't load gRPC for it."""

from enum import StrEnum


class Mode(StrEnum):
    """Which ways of registration are used."""

    AUTO = "auto"
    """kubelet.sock; the plugin watcher where nobody listens on it."""
    KUBELET = "kubelet"
    WATCHER = "watcher"
