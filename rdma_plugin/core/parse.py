# SPDX-License-Identifier: Apache-2.0
"""Text of the kernel and of users into values.

Every function takes stripped text and returns a value or None; None means "this text isn't one of those". Nothing here
raises, whatever the text.
"""

import re

from rdma_plugin.core.model import LinkType, NetnsMode, PortState

PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
"""`0000:18:00.0`; the domain may be missing and may have more than four digits (Intel VMD, D10)."""

_HEX_ID = re.compile(r"(?:0x)?([0-9a-f]{1,4})", re.IGNORECASE)
_STATE = re.compile(r"(\d+): ([A-Z_]+)")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec\b")
_DEV = re.compile(r"(\d{1,7}):(\d{1,7})")
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}")
_LINKS = {"InfiniBand": LinkType.INFINIBAND, "Ethernet": LinkType.ETHER, "Unknown": LinkType.UNKNOWN}
_STATES = {state.value: state for state in PortState}
_INTERFACE = re.compile(r"(?!\.{1,2}$)[^/\s\0]{1,15}")
_MAX_PORT = 65_535
_NATURAL = re.compile(r"(\d+)")
_LINK_WORDS = {
    "infiniband": LinkType.INFINIBAND,
    "ib": LinkType.INFINIBAND,
    "ether": LinkType.ETHER,
    "eth": LinkType.ETHER,
    "ethernet": LinkType.ETHER,
    "roce": LinkType.ETHER,
    "unknown": LinkType.UNKNOWN,
}


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which numbers compare as numbers: `uverbs2` before `uverbs10`."""
    parts = _NATURAL.split(text)
    return tuple((0, int(part), part) if part.isascii() and part.isdigit() else (1, 0, part) for part in parts if part)


def pci_address(text: str) -> str | None:
    """Return the address in the kernel's spelling (lower case, with domain); a missing domain is 0000."""
    match = PCI_ADDRESS.fullmatch(text)
    if match is None:
        return None
    domain, bus, slot, function = match.groups()
    return f"{domain or '0000'}:{bus}:{slot}.{function}".lower()


def hex_id(text: str) -> str | None:
    """Return a vendor or device id as four lower-case hex digits; `0x` and case don't matter."""
    match = _HEX_ID.fullmatch(text)
    return match.group(1).lower().zfill(4) if match else None


def link_layer(text: str) -> LinkType | None:
    """Read `ports/<n>/link_layer` (Documentation/ABI/stable/sysfs-class-infiniband)."""
    return _LINKS.get(text)


def link_word(text: str) -> LinkType | None:
    """Read a user's word for a link type: `ib`, `infiniband`, `eth`, `ether`, `ethernet`, `roce`, `unknown`; any case."""
    return _LINK_WORDS.get(text.lower())


def port_state(text: str) -> PortState | None:
    """Read `ports/<n>/state`, for example `4: ACTIVE` (Documentation/ABI/stable/sysfs-class-infiniband)."""
    match = _STATE.fullmatch(text)
    return _STATES.get(match.group(2)) if match else None


def rate_gbps(text: str) -> float | None:
    """Read `ports/<n>/rate`, for example `400 Gb/sec (4X NDR)`; Gbit/s."""
    match = _RATE.match(text)
    return float(match.group(1)) if match else None


def device_number(text: str) -> tuple[int, int] | None:
    """Read a `dev` file, `major:minor`."""
    match = _DEV.fullmatch(text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def guid(text: str) -> str | None:
    """Read `node_guid`; None also for the all-zero GUID, which names nothing."""
    return text if _GUID.fullmatch(text) and text.strip("0:") else None


def numa_node(text: str) -> int | None:
    """Read `numa_node`; None for -1 (no node known), which must never reach the kubelet (T2)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None  # noqa: PLR2004 - digits


def decimal(text: str) -> int | None:
    """Read a non-negative decimal number of at most nine digits, such as `sfnum`."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None  # noqa: PLR2004 - digits


def netns_mode(text: str) -> NetnsMode | None:
    """Read `/sys/module/ib_core/parameters/netns_mode`: Y is shared, N exclusive (drivers/infiniband/core/device.c)."""
    return {"Y": NetnsMode.SHARED, "N": NetnsMode.EXCLUSIVE}.get(text)


def interface_name(text: str) -> str | None:
    """Read a network interface's name; None for what the kernel wouldn't take as one (net/core/dev.c, dev_valid_name)."""
    return text if _INTERFACE.fullmatch(text) else None


def host_port(text: str) -> tuple[str, int] | None:
    """Read `127.0.0.1:8081` or `[::1]:8081`; port 0 lets the system choose."""
    host, _, digits = text.rpartition(":")
    port = decimal(digits)
    if not host or port is None or port > _MAX_PORT:
        return None
    return host.removeprefix("[").removesuffix("]"), port
