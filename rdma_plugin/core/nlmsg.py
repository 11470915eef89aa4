# SPDX-License-Identifier: Apache-2.0
"""Netlink bytes into values and back: the few RDMA and route messages that discovery needs.

Pure functions over bytes; `host.netlink` owns the socket. Whatever the bytes, nothing raises: a malformed or truncated
message ends the parsing and what was whole before it counts. Layouts and numbers: include/uapi/linux/netlink.h,
rdma/rdma_netlink.h, linux/rtnetlink.h and linux/if_link.h. A hand-written reader because pyroute2 has no RDMA module
and costs 11 MiB of memory.
"""

import errno
import struct
from dataclasses import dataclass

from rdma_plugin.core.model import NetnsMode

REQUEST = 0x1
"""NLM_F_REQUEST."""
ACKNOWLEDGE = 0x4
"""NLM_F_ACK: ends the answer to a request that isn't a dump."""
DUMP = 0x300
"""NLM_F_DUMP: the answer ends with DONE."""
RDMA_GET, RDMA_PORT_GET, RDMA_SYS_GET = (5 << 10 | command for command in (1, 5, 6))
"""RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)."""
LINK_GET = 18
"""RTM_GETLINK."""

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_ERROR_NUMBER = struct.Struct("=i")
_LINK_HEADER = struct.Struct("=BxHiII")
_ERROR, _DONE = 2, 3
_TYPE_MASK = 0x3FFF
"""Without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""
_DEVICE_INDEX, _DEVICE_NAME, _NETDEV_NAME, _NETNS_MODE = 1, 2, 51, 66
_LINK_NAME, _LINK_INFO, _EXTENSION_MASK, _PROPERTIES = 3, 18, 29, 52
_INFO_KIND = 1
_ALTERNATIVE_NAME = 53
_SKIP_STATISTICS = 0x8
"""RTEXT_FILTER_SKIP_STATS: half of a link message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One netlink message without its header."""

    kind: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What route netlink says about an interface beyond sysfs."""

    name: str
    altnames: tuple[str, ...] = ()
    """Sorted."""
    kind: str | None = None
    """`bond`, `team`, `bridge`, …; None for hardware."""


def request(kind: int, flags: int, body: bytes = b"") -> bytes:
    """Build one request."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body


def port_request(device_index: int) -> bytes:
    """Build a request for all ports of one RDMA device."""
    return request(RDMA_PORT_GET, DUMP, _ATTRIBUTE.pack(8, _DEVICE_INDEX) + _NUMBER.pack(device_index))


def link_request() -> bytes:
    """Build a request for all interfaces, without their counters."""
    extension = _ATTRIBUTE.pack(8, _EXTENSION_MASK) + _NUMBER.pack(_SKIP_STATISTICS)
    return request(LINK_GET, DUMP, _LINK_HEADER.pack(0, 0, 0, 0, 0) + extension)


def messages(data: bytes) -> tuple[Message, ...]:
    """Split what one receive returned."""
    found = []
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            break
        found.append(Message(kind, data[_HEADER.size : length]))
        data = data[_aligned(length) :]
    return tuple(found)


def end(message: Message) -> int | None:
    """Return 0 if the message ends an answer well, an errno if badly, None if it belongs to the answer."""
    if message.kind == _DONE:
        return 0
    if message.kind != _ERROR:
        return None
    return -_ERROR_NUMBER.unpack_from(message.body)[0] if len(message.body) >= _ERROR_NUMBER.size else errno.EBADMSG


def netns_mode(body: bytes) -> NetnsMode | None:
    """Read the answer to RDMA_SYS_GET; None from kernels before 5.2, which have no such mode."""
    return {b"\0": NetnsMode.EXCLUSIVE, b"\1": NetnsMode.SHARED}.get(dict(_attributes(body)).get(_NETNS_MODE, b""))


def device(body: bytes) -> tuple[str, int] | None:
    """Read the name and index of one RDMA device from an answer to RDMA_GET."""
    attributes = dict(_attributes(body))
    name, index = _text(attributes.get(_DEVICE_NAME, b"")), attributes.get(_DEVICE_INDEX, b"")
    return (name, _NUMBER.unpack(index)[0]) if name and len(index) == _NUMBER.size else None


def port_netdev(body: bytes) -> str | None:
    """Read a port's interface from an answer to RDMA_PORT_GET; None also if it lives in another namespace."""
    return _text(dict(_attributes(body)).get(_NETDEV_NAME, b"")) or None


def link(body: bytes) -> Link | None:
    """Read one answer to RTM_GETLINK."""
    attributes = dict(_attributes(body[_LINK_HEADER.size :]))
    name = _text(attributes.get(_LINK_NAME, b""))
    properties = _attributes(attributes.get(_PROPERTIES, b""))
    kind = _text(dict(_attributes(attributes.get(_LINK_INFO, b""))).get(_INFO_KIND, b""))
    altnames = tuple(sorted(_text(value) for key, value in properties if key == _ALTERNATIVE_NAME))
    return Link(name=name, altnames=altnames, kind=kind or None) if name else None


def _attributes(body: bytes) -> list[tuple[int, bytes]]:
    found = []
    while len(body) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(body)
        if not _ATTRIBUTE.size <= length <= len(body):
            break
        found.append((kind & _TYPE_MASK, body[_ATTRIBUTE.size : length]))
        body = body[_aligned(length) :]
    return found


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode(errors="replace")


def _aligned(length: int) -> int:
    """Netlink pads to four bytes (NLMSG_ALIGN, NLA_ALIGN)."""
    return length + 3 & ~3
