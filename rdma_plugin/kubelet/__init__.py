# SPDX-License-Identifier: Apache-2.0
"""The doors to the kubelet: registration and the device plugin service."""
