# SPDX-License-Identifier: Apache-2.0
"""The doors to the node: sysfs, /dev, RDMA netlink."""
