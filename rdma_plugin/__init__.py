# SPDX-License-Identifier: Apache-2.0
"""Kubernetes device plugin that shares a node's RDMA devices between pods and says why.

`cli` is the entry point; `docs/architecture.md` shows how the parts fit together.
"""

from importlib import metadata

__version__ = metadata.version("rdma-plugin")
