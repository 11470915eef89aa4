# SPDX-License-Identifier: Apache-2.0
"""The error tree. Each text says what failed, on which object, and what to do.

    RdmaPluginError
    ├── ConfigError       all faults of a configuration at once; first start exits 2, a reload keeps the old one
    ├── HostError         the host as a whole can't be read; keep the last inventory, try again
    ├── KubeletError      the kubelet refused or can't be reached; only the registrar catches it, with back-off
    └── AllocationError   no answer for an Allocate call; the server maps `kind` to a gRPC status

Trouble of a single device is a `model.Problem` value, never an exception.
"""

from dataclasses import dataclass
from enum import StrEnum


class RdmaPluginError(Exception):
    """Base of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a configuration: where it is, and what is wrong, allowed and nearest."""

    where: str
    """Key path such as `configList[0].selectors.vendors[1]`, `line 3, column 64`, or `file` for the document as a whole."""
    what: str
    """One sentence: the value, what is allowed, the nearest valid choice."""


class ConfigError(RdmaPluginError):
    """A configuration that can't be used; `faults` holds every fault found, in document order."""

    def __init__(self, source: str, faults: tuple[Fault, ...]) -> None:
        """`source` is the file's name as the user wrote it; `faults` is not empty."""
        self.source = source
        self.faults = faults
        super().__init__("\n".join(f"{source}: {fault.where}: {fault.what}" for fault in faults))


class HostError(RdmaPluginError):
    """The host can't be read as a whole (for example: no `sys` below the root, or a read that hangs)."""


class KubeletError(RdmaPluginError):
    """The kubelet refused a registration or can't be reached."""


class AllocationKind(StrEnum):
    """Why an Allocate call has no answer."""

    UNKNOWN_SLOT = "unknown-slot"
    NOTHING_USABLE = "nothing-usable"


class AllocationError(RdmaPluginError):
    """No answer for an Allocate call."""

    def __init__(self, kind: AllocationKind, text: str) -> None:
        """`kind` picks the gRPC status, `text` is what the kubelet shows in the pod's status."""
        self.kind = kind
        super().__init__(text)
