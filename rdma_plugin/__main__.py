# SPDX-License-Identifier: Apache-2.0
"""`python -m rdma_plugin` is `rdma-plugin`."""

from rdma_plugin import cli

if __name__ == "__main__":
    cli.main()
