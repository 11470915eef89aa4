#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh CMD...: build the rig's programs if need be, then run CMD in namespace.sh with their folder in RDMA_PLUGIN_RIG.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
RDMA_PLUGIN_RIG=$("${PYTHON:-python3}" "$here/build.py")
export RDMA_PLUGIN_RIG
exec "$here/namespace.sh" "$@"
