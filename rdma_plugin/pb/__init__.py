# SPDX-License-Identifier: Apache-2.0
"""Generated from proto/ by `make proto`; never edited, imported only inside `kubelet`."""
