# SPDX-License-Identifier: Apache-2.0
"""Tests of rdma_plugin; `tests.fakes` holds the laid-out node and the embedded kubelet."""
