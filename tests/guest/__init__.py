# SPDX-License-Identifier: Apache-2.0
"""A real kernel with soft-RoCE for `make test-guest`: `python -m tests.guest.run CMD...` runs CMD on it in seconds."""
