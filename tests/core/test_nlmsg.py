# SPDX-License-Identifier: Apache-2.0
"""Netlink bytes: a recorded dump of links, RDMA answers laid out as rdma_netlink.h has them, and broken bytes."""

import errno
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import nlmsg
from rdma_plugin.core.model import NetnsMode
from rdma_plugin.core.nlmsg import Link

_RECORDED = Path(__file__).parent / "recorded/link-dump.hex"
_RDMA_NETDEV_INDEX, _RDMA_NETDEV_NAME = 50, 51


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 4711) + body


_DEVICE = _number(1, 0) + _text(2, "rxe0") + _number(3, 1) + _attribute(4, bytes(8)) + _text(5, "")
"""Index, name, number of ports, capabilities and firmware: how an answer to RDMA_GET begins."""


def test_recorded_dump_of_links() -> None:
    """The kernel's own bytes: alternative names sorted, no kind for a device without one, and a clean end."""
    if sys.byteorder == "big":
        pytest.fail("record the dump anew on this machine")
    lines = _RECORDED.read_text().splitlines()
    messages = nlmsg.messages(bytes.fromhex("".join(line for line in lines if not line.startswith("#"))))

    assert [nlmsg.end(message) for message in messages] == [None, 0]
    assert nlmsg.link(messages[0].body) == Link(name="lo", altnames=("enp24s0np0", "ens3"))


def test_kind_of_a_link() -> None:
    """A bond says so in its nested link information."""
    body = bytes(16) + _text(3, "bond0") + _attribute(18, _text(1, "bond"))

    assert nlmsg.link(body) == Link(name="bond0", kind="bond")


def test_device_has_name_and_index() -> None:
    """Both are needed; an answer that lacks one names no device."""
    assert nlmsg.device(_DEVICE) == ("rxe0", 0)
    assert nlmsg.device(_number(1, 3)) is None
    assert nlmsg.device(_text(2, "siw0")) is None
    assert nlmsg.device(_attribute(1, b"\1") + _text(2, "siw0")) is None


def test_port_names_its_interface() -> None:
    """The kernel leaves the interface out where it is in another namespace."""
    port = _number(1, 1) + _text(2, "siw0") + _number(3, 1)

    assert nlmsg.port_netdev(port + _number(_RDMA_NETDEV_INDEX, 2) + _text(_RDMA_NETDEV_NAME, "eth1")) == "eth1"
    assert nlmsg.port_netdev(port) is None


@pytest.mark.parametrize(
    ("value", "mode"),
    [(b"\1", NetnsMode.SHARED), (b"\0", NetnsMode.EXCLUSIVE), (b"\2", None), (b"", None)],
)
def test_netns_mode(value: bytes, mode: NetnsMode | None) -> None:
    """One is shared, zero exclusive; anything else can't be told."""
    assert nlmsg.netns_mode(_attribute(93, b"\1") + _attribute(66, value)) is mode


def test_netns_mode_of_an_old_kernel() -> None:
    """Without the attribute the mode can't be told."""
    assert nlmsg.netns_mode(b"") is None


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (_message(3, struct.pack("=i", 0)), 0),
        (_message(2, struct.pack("=i", 0) + bytes(16)), 0),
        (_message(2, struct.pack("=i", -errno.EOPNOTSUPP) + bytes(16)), errno.EOPNOTSUPP),
        (_message(2, b""), errno.EBADMSG),
        (_message(nlmsg.RDMA_GET, _DEVICE), None),
    ],
)
def test_end_of_an_answer(message: bytes, end: int | None) -> None:
    """Done and an acknowledgement end it well, an error with its number; anything else belongs to it."""
    assert [nlmsg.end(found) for found in nlmsg.messages(message)] == [end]


def test_requests_are_whole_messages() -> None:
    """What is sent splits into the one message that it is, with its type."""
    requests = {
        nlmsg.RDMA_PORT_GET: nlmsg.port_request(7),
        nlmsg.LINK_GET: nlmsg.link_request(),
        nlmsg.RDMA_SYS_GET: nlmsg.request(nlmsg.RDMA_SYS_GET, nlmsg.ACKNOWLEDGE),
    }

    assert {kind: [message.kind for message in nlmsg.messages(request)] for kind, request in requests.items()} == {
        kind: [kind] for kind in requests
    }
    assert nlmsg.messages(requests[nlmsg.RDMA_PORT_GET])[0].body == _number(1, 7)


def test_truncated_message_keeps_what_came_before() -> None:
    """A cut-off message is dropped, whole ones before it count."""
    whole = _message(nlmsg.RDMA_GET, _DEVICE)

    assert [message.body for message in nlmsg.messages(whole + whole[:-1])] == [_DEVICE]


@pytest.mark.parametrize("read", [nlmsg.device, nlmsg.port_netdev, nlmsg.netns_mode, nlmsg.link, nlmsg.messages])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(read: Callable[[bytes], object], data: bytes) -> None:
    """Garbage gives nothing or something, but never an exception."""
    read(data)
    read(_DEVICE[:20] + data)
