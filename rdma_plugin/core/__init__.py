# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: values in, values out; no operating system, no clock, no log."""
