# SPDX-License-Identifier: Apache-2.0
"""The two fakes: a described node laid out as real files, and a kubelet on real sockets."""
